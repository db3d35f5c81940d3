"""An event loop on virtual time whose callbacks belong to processes, each of which can be stopped, woken and killed.

A process is a context variable: what a task of it starts, and whatever wakes such a task, carries it along, so ordinary
futures may lead from one process to another. What is due in a process that is stopped waits for it and runs in order
when it is woken, overdue timers included, as after SIGCONT; what is due in one that was killed never runs. Nothing else
moves time: there is no selector, no thread and no wall clock, and a seed is one history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from tests.sim.clockwork import Clockwork, Due

T = TypeVar("T")
# A history that takes more turns of the loop than this goes round in circles.
TURNS_MAX = 500_000


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
        self.missed: list[Due] = []
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
        self._loop.ready.extend(self.missed)
        self.missed = []

    def kill(self) -> None:
        self.is_killed = True
        self.death.set_result(None)


_PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class MachineLoop(Clockwork):
    """The loop of one history."""

    def __init__(self) -> None:
        super().__init__()
        # At the end everything runs, so that it can be cleared away.
        self.is_over = False
        self._processes: list[Process] = []
        # For what is nobody's: the world itself.
        self.outside: Context = copy_context()

    def begin(self, process: Process) -> None:
        """There is one more."""
        self._processes.append(process)

    def end_all(self) -> None:
        """Whatever was stopped or killed runs from now on, to be cleared away."""
        self.is_over = True
        for process in self._processes:
            self.ready.extend(process.missed)
            process.missed = []

    def _run_once(self) -> None:
        """All turns until the loop is told to stop: one by one, asyncio would ask that after each."""
        ready = self.ready
        while True:
            if not ready:
                self._move_time()
            self.turns += 1
            if self.turns > TURNS_MAX:
                raise RuntimeError("livelock: the history does not end")
            for _ in range(len(ready)):
                due = ready.popleft()
                if due.is_cancelled:
                    continue
                process = due.context.get(_PROCESS)
                if process is not None and not self.is_over and (process.is_killed or process.is_stopped):
                    process.missed.append(due)
                    continue
                try:
                    due.context.run(due.callback, *due.args)
                except BaseException as error:  # noqa: BLE001 - as asyncio's handles do
                    self.failed(due, error)
            if self._stopping:
                return

    def _move_time(self) -> None:
        """To the next timer: nothing is left that could be done at once."""
        next_s = self.next_timer_s()
        if next_s is None:
            raise RuntimeError("deadlock: every task waits and no timer is set")
        self.now_s = max(self.now_s, next_s)
        self.ring()
