"""Safeguards that can be switched off, to show that the simulator notices.

A safeguard without a line here is not proven by the simulation. Each entry patches one piece of the broker for the
duration of a run; `test_ablations.py` demands a violation within a bounded number of seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tabherd.broker import files, sessions, tabs
from tabherd.broker.adoption import Adoption
from tabherd.broker.commands import Commands
from tabherd.broker.idempotency import Keys
from tabherd.broker.leases import Leases
from tabherd.broker.opening import Opening
from tabherd.broker.pooling import Pooling
from tabherd.broker.reaper import Reaper
from tabherd.broker.recovery import Recovery
from tabherd.browsers.port import Seat
from tabherd.core import lease
from tabherd.core.gate import Gate
from tabherd.core.lease import OwnerProcess
from tabherd.core.lifecycle import LeaseState, TabState
from tabherd.core.model import Idempotency, Tab, changed

from .fakes import SimBrowser, SimMarks, SimOwners
from .lives import VERB
from .minimise import MakeWorld
from .world import World

Patch = Callable[[pytest.MonkeyPatch], MakeWorld]


def patching(owner: Any, name: str, replacement: Any) -> Patch:
    """The broker without one of its methods."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
        monkeypatch.setattr(owner, name, replacement)
        return World

    instead = replacement.__name__.strip("_").removesuffix("_async").replace("_", " ")
    what = f"`{owner.__name__.rsplit('.', 1)[-1]}.{name}`"
    patch.__doc__ = f"{what} does nothing" if instead == "nothing" else f"Instead of {what}: {instead}"
    return patch


def off(patch: Patch) -> str:
    """What is switched off, in words."""
    return " ".join((patch.__doc__ or "").split()).rstrip(".")


def _caps_outside_the_transaction(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """Counters are moved without looking at their caps."""
    return partial(World, drop_caps=True)


async def _bind_without_record(self: Opening, reserved: Any, browser: Any, seat: Any, page: Any) -> Any:
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


def _forget_all_marks(self: SimMarks) -> dict[str, int]:
    self._file.clear()
    return {}


def _forget_mark(self: Recovery, tab: Any, **how: Any) -> None:
    tab.unmark()


def _forget_waiters(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """Neither is turned away who waits when the session changes hands, nor is the lease looked at after the wait."""

    def turn_away_running(live: Any, error: Any) -> None:
        for tab in live.tabs.values():
            if tab.running is not None:
                tab.running.cancel()

    monkeypatch.setattr(sessions, "turn_away", turn_away_running)
    monkeypatch.setattr(Commands, "_check_again", _nothing)
    return World


def _rebuild_for_each_witness(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """Everybody who sees a page die has it rebuilt."""

    def page_crashed(self: Recovery, tab: Any, target_id: str) -> None:
        for _ in range(2):
            self._go_down(tab)
            self._spawn(rebuild(self, tab))

    async def rebuild(self: Recovery, tab: Any) -> None:
        async with tab.session.mutex:
            target_id = tab.row.target_id
            if tab.row.state is TabState.READY:
                self._go_down(tab)
        await self._replace(tab, target_id, tab.row.url)

    monkeypatch.setattr(Recovery, "page_crashed", page_crashed)
    return World


async def _end_whoever_holds_it(
    self: Leases, live: Any, reason: str, *, fence: int | None = None, is_still_due: Any = None
) -> bool:
    async with live.mutex:
        return self._registry.is_bound(live) and await self.end_held(live, reason)


async def _reap_without_looking_again(self: Reaper, live: Any, reason: str) -> bool:
    return await self._leases.end(live, reason)


async def _keep_as_it_is(self: Pooling, live: Any, kept: Any) -> Seat:
    return Seat(live.row.context_id, kept.port)


async def _claim_nothing(self: Keys, row: Idempotency) -> str:
    return row.command_id


def may_run_under_a_lock(self: Gate, one: Any) -> bool:
    return self._running is None and self._handoff is None and self._quarantine is None


def _no_evidence(self: SimOwners, session_id: str) -> OwnerProcess:
    return OwnerProcess.NONE


def _count_from_the_writing(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """The silence of a new owner counts from when its row was written."""
    create = Opening._create

    async def created(self: Opening, *args: Any) -> Any:
        live = await create(self, *args)
        live.seen_at = live.row.heartbeat_at
        return live

    monkeypatch.setattr(Opening, "_create", created)
    return World


def forget_the_fence(module: Any, *verbs: str) -> Patch:
    """Those verbs do not look who has the session when it is their turn."""

    def check_fence(*args: Any) -> None:
        if VERB.get() not in verbs:
            lease.check_fence(*args)

    def patch(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
        monkeypatch.setattr(module, "lease", SimpleNamespace(check_fence=check_fence))
        return World

    patch.__doc__ = f"{', '.join(verbs)}: nobody looks who has the session when it is their turn"
    return patch


ABLATIONS: dict[str, Patch] = {
    "caps are checked inside the transaction": _caps_outside_the_transaction,
    "a session is recorded before it is bound": patching(Opening, "_record_bound", _bind_without_record),
    "a failed opening is undone": patching(Opening, "_undo", _nothing_async),
    "an ended session is uncounted": patching(Leases, "uncounting", _nothing),
    "the fence is checked": patching(lease, "check_fence", _nothing),
    "a tab is quarantined after a timeout": patching(Recovery, "quarantine", _forget_mark),
    "silent owners are reaped": patching(Reaper, "sweep", _nothing_async),
    "commands at work are marked": patching(SimMarks, "left", _forget_all_marks),
    "unknown contexts are disposed of": patching(SimBrowser, "context_ids", _no_contexts),
    "leftovers of an earlier life are taken up": patching(Adoption, "take_up", _nothing_async),
    "the lease is checked again after a wait": _forget_waiters,
    "no tab is changed behind a takeover": forget_the_fence(tabs, "open tab", "close tab", "hand off", "resume tab"),
    "no state is put or read behind a takeover": forget_the_fence(sessions, "put state", "read state"),
    "no file is put or listed behind a takeover": forget_the_fence(files, "upload file", "list files"),
    "a page that died is rebuilt once": _rebuild_for_each_witness,
    "a release is compared with the fence when its turn comes": patching(Leases, "end", _end_whoever_holds_it),
    "a silent owner is reaped only if it is not alive either": patching(SimOwners, "state", _no_evidence),
    "a heartbeat that came first saves the session": patching(Reaper, "_reap", _reap_without_looking_again),
    "a new owner's silence counts from when it hears of its session": _count_from_the_writing,
    "a pooled tab is made clean": patching(Pooling, "_seat_to_keep", _keep_as_it_is),
    "a key is on disk before its command acts": patching(Keys, "claim", _claim_nothing),
    "a tab lock keeps others out": patching(Gate, "_may_run", may_run_under_a_lock),
    "sessions of a dead browser are recovered": patching(Recovery, "recover", _nothing_async),
}
