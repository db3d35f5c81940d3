"""Which threads and tasks of this process hold which locks, so that none waits for itself.

A task of asyncio is a holder of its own, and so is a thread outside of any task. A lock belongs to whoever acquired it
until it is released, by whomever: nothing is remembered about the holder once the lock is gone. A fork holds nothing.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any, Final, NamedTuple

from ..errors import LockDeadlock, LockReentered
from .base import AnyHold, LockKey


class Owner(NamedTuple):
    """A thread, and the task that runs in it."""

    thread: threading.Thread
    # None: outside of any task.
    task: asyncio.Task[Any] | None


class Held(NamedTuple):
    """A lock that somebody here has."""

    owner: Owner
    hold: AnyHold


class Holders:
    """Who holds what, by the address of the locks and the key."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, LockKey], Held] = {}
        # The same by holder, the latest last.
        self._by_owner: dict[tuple[str, Owner], list[AnyHold]] = {}
        # Held while both are changed.
        self._guard = threading.Lock()
        os.register_at_fork(after_in_child=self._forget)

    def refuse_own(self, caller: Owner, address: str, key: LockKey, *, is_blocking: bool) -> None:
        """Raise if the caller could never get the lock because it would wait for itself.

        `is_blocking`: the whole thread would wait, and with it every task of its loop.
        """
        held = self._held.get((address, key))
        if held is None:
            return
        owner = held.owner
        is_nested = owner.task is None or owner.task is caller.task
        if owner.thread is caller.thread and is_nested:
            who = "thread" if owner.task is None else "task"
            raise LockReentered(f"This {who} holds lock '{key.label}' already.", lock=key.label)
        if owner.thread is caller.thread and is_blocking:
            raise LockDeadlock(
                f"Lock '{key.label}' is held by another task of this event loop, which could not go on meanwhile.",
                action="In a task, use async_advisory_lock.",
                lock=key.label,
            )

    def latest(self, caller: Owner, address: str) -> AnyHold | None:
        """The lock that the caller acquired last of those at this address that it has."""
        holds = self._by_owner.get((address, caller))
        return holds[-1] if holds else None

    def add(self, caller: Owner, address: str, hold: AnyHold) -> None:
        """The caller has acquired the lock."""
        with self._guard:
            self._held[address, hold.key] = Held(caller, hold)
            self._by_owner.setdefault((address, caller), []).append(hold)

    def remove(self, address: str, hold: AnyHold) -> None:
        """It is about to be released; before that, since the next holder may be quick."""
        with self._guard:
            held = self._held.get((address, hold.key))
            if held is None or held.hold is not hold:
                # A fork has inherited the block, but not the lock.
                return
            del self._held[address, hold.key]
            holds = self._by_owner[address, held.owner]
            holds.remove(hold)
            if not holds:
                del self._by_owner[address, held.owner]

    def _forget(self) -> None:
        self._held.clear()
        self._by_owner.clear()
        self._guard = threading.Lock()


def current_owner() -> Owner:
    """Who is asking."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        # No loop runs in this thread.
        task = None
    return Owner(threading.current_thread(), task)


HOLDERS: Final = Holders()
