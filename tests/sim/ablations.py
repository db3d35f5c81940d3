"""Safeguards that can be switched off, to show that the simulator notices.

A safeguard without a line here is not proven by the simulation. Each entry patches one piece of the broker for the
duration of a run; `test_sim.py` demands a violation within a bounded number of seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tabherd.broker.adoption import Adoption
from tabherd.broker.commands import Commands
from tabherd.broker.leases import Leases
from tabherd.broker.reaper import Reaper
from tabherd.core import lease
from tabherd.core.lifecycle import LeaseState
from tabherd.core.model import Tab, changed

from .fakes import SimBrowser, SimMarks
from .world import World

Patch = Callable[[pytest.MonkeyPatch], Callable[[int], World]]


def _patching(owner: Any, name: str, replacement: Any) -> Patch:
    def patch(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], World]:
        monkeypatch.setattr(owner, name, replacement)
        return World

    return patch


def _caps_outside_the_transaction(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], World]:
    return lambda seed: World(seed, drop_caps=True)


async def _bind_without_record(self: Leases, reserved: Any, browser: Any, seat: Any, page: Any) -> Any:
    tab = Tab(
        id=self._ids.mint("tab"),
        session_id=reserved.id,
        node_id="nod_1",
        browser_id=browser.row.id,
        state="ready",
        target_id=seat.tab.target_id,
        version=1,
    )
    return changed(reserved, state=LeaseState.ACTIVE, browser_id=browser.row.id, context_id=seat.context_id), tab


async def _no_contexts(self: SimBrowser) -> list[str]:
    return []


async def _nothing_async(*args: Any, **kwargs: Any) -> None:
    return None


def _nothing(*args: Any, **kwargs: Any) -> tuple[()]:
    return ()


def _forget_mark(self: Commands, tab: Any) -> None:
    self._unmark(tab)


ABLATIONS: dict[str, Patch] = {
    "caps are checked inside the transaction": _caps_outside_the_transaction,
    "a session is recorded before it is bound": _patching(Leases, "_record_bound", _bind_without_record),
    "a failed opening is undone": _patching(Leases, "_undo", _nothing_async),
    "an ended session is uncounted": _patching(Leases, "_uncount", _nothing),
    "the fence is checked": _patching(lease, "check_fence", _nothing),
    "a tab is quarantined after a timeout": _patching(Commands, "quarantine", _forget_mark),
    "silent owners are reaped": _patching(Reaper, "sweep", _nothing_async),
    "commands at work are marked": _patching(SimMarks, "left", lambda self: self._file.clear() or {}),
    "unknown contexts are disposed of": _patching(SimBrowser, "context_ids", _no_contexts),
    "leftovers of an earlier life are settled": _patching(Adoption, "_settle", _nothing_async),
}
