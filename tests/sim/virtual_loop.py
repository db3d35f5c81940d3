"""An asyncio event loop whose clock only moves when nothing is left to do.

Sleeping costs nothing and every run with the same seed is the same run: there is no selector, no thread and no wall
clock. Callbacks keep asyncio's own order; different interleavings come from the random delays of the simulated world.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine
from typing import Any
from weakref import WeakSet

# A history that takes more turns of the loop than this goes round in circles.
TURNS_MAX = 200_000


class _NoSelector(selectors.BaseSelector):
    """What the base class wants to have; nothing is ever selected."""

    def select(self, timeout: float | None = None) -> list[Any]:
        raise AssertionError("the virtual loop turns by itself")

    def register(self, fileobj: Any, events: int, data: Any = None) -> Any:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> Any:
        return None

    def get_map(self) -> Any:
        return {}


class VirtualLoop(asyncio.SelectorEventLoop):
    # Of the base class, which has no types for them.
    _ready: Any
    _scheduled: Any
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.turns = 0
        # Called at every turn of the loop, before time moves: they see every state that lasts longer than a turn. True
        # says that somebody was woken and time must not move yet.
        self.watches: list[Callable[[], bool]] = []
        # Called whenever time is about to move: nothing is left that could be done at once. It only looks.
        self.on_idle: Callable[[], None] | None = None
        # Its own tasks: asyncio's list has those of every loop that was not yet collected.
        self._made: WeakSet[asyncio.Task[Any]] = WeakSet()
        super().__init__(_NoSelector())

    def create_task(self, coro: Coroutine[Any, Any, Any], **more: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        task: asyncio.Task[Any] = super().create_task(coro, **more)
        self._made.add(task)
        return task

    def unfinished(self) -> set[asyncio.Task[Any]]:
        """The tasks that are not over."""
        return {task for task in self._made if not task.done()}

    def time(self) -> float:
        return self.now_s

    def clock_ms(self) -> int:
        """Milliseconds since some 1970."""
        return int(self.now_s * 1000)

    def _run_once(self) -> None:
        """One turn, as the base class does it, without asking the system for anything."""
        ready, scheduled = self._ready, self._scheduled
        self.turns += 1
        if self.turns > TURNS_MAX:
            # Once: what is left has to be cleared away.
            self.turns = 0
            raise RuntimeError("livelock: the history does not end")
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
            self._timer_cancelled_count -= 1
        # All of them look, also when the first one has woken somebody.
        is_woken = sum([look() for look in list(self.watches)]) > 0 if self.watches else False
        if not ready and not is_woken and not self._stopping:
            when = scheduled[0]._when if scheduled else None
            if when is None or when > self.now_s:
                if self.on_idle is not None:
                    self.on_idle()
                if when is None:
                    raise RuntimeError("deadlock: every task waits and no timer is set")
                self.now_s = when
        while scheduled and scheduled[0]._when <= self.now_s:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if handle._cancelled:
                self._timer_cancelled_count -= 1
            else:
                ready.append(handle)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()
