"""Safeguards of named locks, webhooks, handoffs, drains and browsers that can be switched off; see `ablations`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tabherd.broker.lock_domain import LoneDomain, LoneHold
from tabherd.broker.lock_holds import Holds, LiveLock
from tabherd.broker.lock_rows import LockRows
from tabherd.broker.named_locks import NamedLocks
from tabherd.broker.operations import Operations
from tabherd.broker.registry import Registry
from tabherd.broker.tasking import Tasking
from tabherd.broker.webhooks import Webhooks
from tabherd.browsers.pool import Pool
from tabherd.browsers.port import Usage
from tabherd.browsers.slot import Slot
from tabherd.core.gate import Gate
from tabherd.core.lock_queue import LockQueue, Wish
from tabherd.core.model import NamedLock, Task, changed
from tabherd.store.base import Put

from .ablations import Patch, patching
from .minimise import MakeWorld
from .world import World


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


async def _nothing_async(*args: Any, **kwargs: Any) -> None:
    return None


def _grant_to_all(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """A lock is given to whoever asks, held or not."""

    async def try_acquire(self: LoneDomain, key: Any, holder: Any, beside: Any = None) -> LoneHold:
        return LoneHold(self, key, holder, self._clock())

    def grant(self: LockQueue, wish: Wish) -> None:
        self.leave(wish)
        self._holders[wish.name] = wish.party

    def free(self: LockQueue, name: str) -> None:
        self._holders.pop(name, None)

    monkeypatch.setattr(LoneDomain, "try_acquire", try_acquire)
    monkeypatch.setattr(LockQueue, "is_held", lambda self, name: False)
    monkeypatch.setattr(LockQueue, "grant", grant)
    monkeypatch.setattr(LockQueue, "free", free)
    return World


def _last_comes_first(self: LockQueue, name: str) -> Wish | None:
    line = self._lines.get(name)
    return next(reversed(line.values())) if line else None


async def _count_by_heart(self: LockRows, row: NamedLock) -> NamedLock:
    """The fence is one more than that of the lock that this life of the broker granted before."""
    self.granted = getattr(self, "granted", 0) + 1  # type: ignore[attr-defined]
    written = changed(row, fence=self.granted)  # type: ignore[attr-defined]
    outcome = await self._store.apply(Put(written))
    return outcome.rows[0]  # type: ignore[union-attr,return-value]


def _any_ticket(self: NamedLocks, name: str, ticket: str) -> LiveLock | None:
    return self._holds.get(name)


def _no_delivery(self: Tasking, row: Task) -> tuple[()]:
    return ()


async def _read_nothing(self: Webhooks) -> None:
    await asyncio.get_running_loop().create_future()


def _miss_early_ends(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """Nobody hears of a page that ended before it was behind a tab."""
    monkeypatch.setattr(Registry, "ended_early", _nothing)
    monkeypatch.setattr(Pool, "page_ended", _nothing)
    return World


async def _always_well(self: Slot, browser: Any, gone: Any) -> Usage:
    return Usage()


OTHER_ABLATIONS: dict[str, Patch] = {
    "a named lock has one holder": _grant_to_all,
    "who waits first for a named lock has it first": patching(LockQueue, "first", _last_comes_first),
    "fences of named locks are numbered on disk": patching(LockRows, "record", _count_by_heart),
    "a named lock ends with its lease": patching(Holds, "_arm", _nothing),
    "named locks outlive the broker": patching(Holds, "adopt", _nothing_async),
    "a named lock is given back and renewed with its ticket only": patching(NamedLocks, "_held_with", _any_ticket),
    "a delivery is written with the end of its task": patching(Tasking, "_on_end", _no_delivery),
    "what was not delivered is taken up by the next life": patching(Webhooks, "_read_forever", _read_nothing),
    "an attempt to deliver is written down": patching(Webhooks, "_record", _nothing_async),
    "nobody acts on a tab that a person has": patching(Gate, "pause", _nothing),
    "a draining broker admits nobody": patching(Operations, "refuse_sessions", _nothing),
    "a page that died before it had a tab is noticed": _miss_early_ends,
    "a browser that hangs is ended": patching(Slot, "_probe", _always_well),
}
