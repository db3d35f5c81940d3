"""An event loop on virtual time whose callbacks belong to processes, each of which can be stopped, woken and killed.

A process is a context variable: what a task of it starts, and whatever wakes such a task, carries it along, so ordinary
futures may lead from one process to another. What is due in a process that is stopped waits for it and runs in order
when it is woken, overdue timers included, as after SIGCONT; what is due in one that was killed never runs. Nothing else
moves time: there is no selector, no thread and no wall clock, and a seed is one history.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")
# A history that takes more turns of the loop than this goes round in circles.
TURNS_MAX = 500_000
# Timers that were cancelled and are still in the heap, before they are swept out of it.
CANCELLED_MAX = 500


class Process:
    """What can be stopped, woken and killed. Its own callbacks are those of the context."""

    def __init__(self, loop: MachineLoop) -> None:
        self._loop = loop
        self.context: Context = copy_context()
        self.context.run(_PROCESS.set, self)
        self.is_stopped = False
        self.is_killed = False
        # Resolved when it is killed.
        self.death: asyncio.Future[None] = loop.create_future()
        # What was due while it was stopped; or after it was killed, to be cleared away in the end.
        self.missed: list[asyncio.Handle] = []
        loop.begin(self)

    def spawn(self, work: Coroutine[Any, Any, T], context: Context | None = None) -> asyncio.Task[T]:
        """Have the process do this, in a context of it."""
        return self._loop.create_task(work, context=context or self.context)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        """Have something from outside reach the process after that time."""
        self._loop.call_later(delay_s, callback, *args, context=self.context)

    def stop(self) -> None:
        self.is_stopped = True

    def wake(self) -> None:
        self.is_stopped = False
        self._loop.resume(self.missed)
        self.missed = []

    def kill(self) -> None:
        self.is_killed = True
        self.death.set_result(None)


_PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class MachineLoop(asyncio.BaseEventLoop):
    """The loop of one history."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1_000.0
        self.turns = 0
        # At the end everything runs, so that it can be cleared away.
        self.is_over = False
        self._processes: list[Process] = []
        # Its own tasks: asyncio's list has those of every loop that was not yet collected.
        self._made: WeakSet[asyncio.Task[Any]] = WeakSet()
        # For what is nobody's: the world itself.
        self.outside: Context = copy_context()

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

    def begin(self, process: Process) -> None:
        """There is one more."""
        self._processes.append(process)

    def end_all(self) -> None:
        """Whatever was stopped or killed runs from now on, to be cleared away."""
        self.is_over = True
        for process in self._processes:
            self.resume(process.missed)
            process.missed = []

    def resume(self, handles: list[asyncio.Handle]) -> None:
        """These are due now."""
        self._ready.extend(handles)  # type: ignore[attr-defined]

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        if not ready:
            self._move_time(ready)
        self.turns += 1
        if self.turns > TURNS_MAX:
            raise RuntimeError("livelock: the history does not end")
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(_PROCESS)
            if process is None or self.is_over:
                handle._run()
            elif process.is_killed or process.is_stopped:
                process.missed.append(handle)
            else:
                handle._run()

    def _move_time(self, ready: Any) -> None:
        """To the next timer: nothing is left that could be done at once."""
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        if self._timer_cancelled_count > CANCELLED_MAX:  # type: ignore[has-type]
            timers[:] = [timer for timer in timers if not timer._cancelled]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        while True:
            if not timers:
                raise RuntimeError("deadlock: every task waits and no timer is set")
            if not timers[0]._cancelled:
                break
            heapq.heappop(timers)._scheduled = False
            self._timer_cancelled_count -= 1
        self.now_s = max(self.now_s, timers[0]._when)
        while timers and timers[0]._when <= self.now_s:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            if timer._cancelled:
                self._timer_cancelled_count -= 1
            ready.append(timer)

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""
