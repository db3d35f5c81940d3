"""Lines of callers in one process, threads and asyncio tasks alike: who came first is served first.

A `Waiter` is one caller in a line. What is handed to it is its own from that moment: a caller that gives up must ask
`leave`, and pass on what it was handed in between. So nothing is ever handed into the void.

The code that waits is written once, as coroutines. In a thread these never suspend, because all that they await blocks
instead (`at_once` runs them); in a task they do.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine all of whose waiting blocks the thread; it must never suspend."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a coroutine that runs in a thread has suspended")


class Waiter(Generic[T]):
    """One caller that waits to be handed something: made by the thread or task that waits, for one wait."""

    def __init__(self, is_task: bool) -> None:
        # What it was handed, if anything yet.
        self._handed: list[T] = []
        # Released when it is handed something; for threads.
        self._turn = threading.Lock()
        # The loop to wake and what its task awaits; for tasks.
        self._loop = asyncio.get_running_loop() if is_task else None
        self._told: asyncio.Future[None] | None = self._loop.create_future() if self._loop else None
        if not is_task:
            self._turn.acquire()

    def hand(self, thing: T) -> None:
        """Make the thing the waiter's, and wake it. Once, by whoever took it out of the line."""
        self._handed.append(thing)
        if self._loop is None:
            self._turn.release()
            return
        try:
            self._loop.call_soon_threadsafe(self._tell)
        except RuntimeError:
            # The loop was closed, which has thrown its tasks away: nobody is left who could give the thing back.
            self._handed.clear()
            raise

    def _tell(self) -> None:
        assert self._told is not None
        if not self._told.done():
            self._told.set_result(None)

    async def wait(self, timeout_s: float) -> None:
        """Until it is handed something or the time is over, whichever is first; ask `taken` which it was."""
        if self._told is None:
            self._turn.acquire(timeout=max(timeout_s, 0))
        else:
            await asyncio.wait((self._told,), timeout=max(timeout_s, 0))

    def taken(self) -> tuple[T, ...]:
        """What it was handed: one thing, or nothing."""
        return tuple(self._handed)


class Line(Generic[T]):
    """Waiters, first come first served. Safe for threads."""

    def __init__(self) -> None:
        self._waiters: deque[Waiter[T]] = deque()
        self._guard = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiters)

    def join(self, waiter: Waiter[T]) -> None:
        """Take the last place."""
        with self._guard:
            self._waiters.append(waiter)

    def leave(self, waiter: Waiter[T]) -> tuple[T, ...]:
        """Give the place up; what was handed over before that, which is the caller's to use or to pass on."""
        with self._guard:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            return waiter.taken()

    def hand(self, thing: T) -> bool:
        """Give the thing to the first who can still take it; false if there is nobody."""
        with self._guard:
            while self._waiters:
                try:
                    self._waiters.popleft().hand(thing)
                except RuntimeError:
                    continue
                return True
            return False
