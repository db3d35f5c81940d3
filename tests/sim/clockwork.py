"""What the event loops of simulated histories share: callbacks in asyncio's own order, on a clock that others move.

There is no selector, no thread and no wall clock. Histories are played by the hundred thousand and take most of their
time here, so whatever asyncio does only for debuggers and for real time is left out, and nothing else.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from itertools import count
from typing import Any
from weakref import ref

import msgspec


class Due(msgspec.Struct):
    """A callback that is to run, as asyncio's handles are."""

    callback: Callable[..., object]
    args: tuple[Any, ...]
    # In which it runs.
    context: Context
    when_s: float = 0.0
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True
        # What is never run keeps nothing alive.
        self.callback = _nothing
        self.args = ()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_s


class Clockwork(asyncio.BaseEventLoop):
    """A loop that is told when it is; how it turns is said by its heirs."""

    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1_000.0
        self.turns = 0
        # What runs next, in this order.
        self.ready: deque[Due] = deque()
        # What runs later, as a heap: when, and of those at the same time which came first.
        self.timers: list[tuple[float, int, Due]] = []
        self._timers_made = count()
        # Its own tasks: asyncio's list has those of every loop that was not yet collected.
        self._made: list[ref[asyncio.Task[Any]]] = []

    # --- What asyncio wants of a loop -----------------------------------------------------------------------

    def time(self) -> float:
        return self.now_s

    # Every future asks; this is False, without a call of ours.
    get_debug = staticmethod(bool)

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Due:  # type: ignore[override]
        due = Due(callback, args, context or copy_context())
        self.ready.append(due)
        return due

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Due:
        due = Due(callback, args, context or copy_context(), when)
        heapq.heappush(self.timers, (when, next(self._timers_made), due))
        return due

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Due:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._made.append(ref(task))
        return task

    def _write_to_self(self) -> None:
        """Nobody sleeps."""

    # --- What histories want of it --------------------------------------------------------------------------

    def clock_ms(self) -> int:
        """Milliseconds since some 1970."""
        return int(self.now_s * 1000)

    def unfinished(self) -> set[asyncio.Task[Any]]:
        """The tasks that are not over."""
        return {task for made in self._made if (task := made()) is not None and not task.done()}

    def pause(self, delay_s: float) -> asyncio.Future[None]:
        """Done after that time, as `asyncio.sleep` is, but for what that costs."""
        future: asyncio.Future[None] = asyncio.Future(loop=self)
        due = Due(_wake, (future,), copy_context())
        heapq.heappush(self.timers, (self.now_s + delay_s, next(self._timers_made), due))
        return future

    def failed(self, due: Due, error: BaseException) -> None:
        """What a callback raises is heard by the loop's handler of exceptions, but for what ends programs."""
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise error
        self.call_exception_handler({"message": f"{due.callback!r} failed", "exception": error})

    def next_timer_s(self) -> float | None:
        """When the next timer is due that was not cancelled."""
        timers = self.timers
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def ring(self) -> None:
        """Every timer that is due by now runs next."""
        timers, ready, now_s = self.timers, self.ready, self.now_s
        while timers and timers[0][0] <= now_s:
            due = heapq.heappop(timers)[2]
            if not due.is_cancelled:
                ready.append(due)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _nothing(*args: Any) -> None:
    """What a cancelled callback does."""
