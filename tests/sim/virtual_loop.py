"""An asyncio event loop whose clock only moves when nothing is left to do.

Sleeping costs nothing and every run with the same seed is the same run. Callbacks keep asyncio's own order; different
interleavings come from the random delays of the simulated world.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from .clockwork import Clockwork
from .script import PACE

# How long the work of a thread may take.
THREAD_S = 0.01
# A history that takes more turns of the loop than this goes round in circles.
TURNS_MAX = 200_000


class VirtualLoop(Clockwork):
    def __init__(self) -> None:
        super().__init__()
        # Called at every turn of the loop, before time moves: they see every state that lasts longer than a turn. True
        # says that somebody was woken and time must not move yet.
        self.watches: list[Callable[[], bool]] = []
        # Called whenever time is about to move: nothing is left that could be done at once. It only looks.
        self.on_idle: Callable[[], None] | None = None
        # Called with what a thread is about to do.
        self.on_thread: Callable[[Callable[..., Any]], None] = lambda work: None

    def run_in_executor(  # type: ignore[override]
        self, executor: None, work: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """A thread: what it does is done in one moment, a while later, unless its process is killed before."""
        done = self.create_future()
        self.call_later(PACE.get().random() * THREAD_S, self._work, done, work, args)
        return done

    def _work(self, done: asyncio.Future[Any], work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.on_thread(work)
        try:
            result = work(*args)
        except Exception as error:  # noqa: BLE001 - whoever waits for the thread hears it
            if not done.done():
                done.set_exception(error)
        else:
            if not done.done():
                done.set_result(result)

    def _run_once(self) -> None:
        """All turns until the loop is told to stop: one by one, asyncio would ask that after each."""
        ready, timers = self.ready, self.timers
        while True:
            self.turns += 1
            if self.turns > TURNS_MAX:
                # Once: what is left has to be cleared away.
                self.turns = 0
                raise RuntimeError("livelock: the history does not end")
            # All of them look, also when the first one has woken somebody.
            is_woken = sum([look() for look in list(self.watches)]) > 0 if self.watches else False
            if not ready and not is_woken and not self._stopping:
                self._move_time()
            if timers and timers[0][0] <= self.now_s:
                self.ring()
            for _ in range(len(ready)):
                due = ready.popleft()
                if not due.is_cancelled:
                    try:
                        due.context.run(due.callback, *due.args)
                    except BaseException as error:  # noqa: BLE001 - as asyncio's handles do
                        self.failed(due, error)
            if self._stopping:
                return

    def _move_time(self) -> None:
        """To the next timer."""
        next_s = self.next_timer_s()
        if next_s is None or next_s > self.now_s:
            if self.on_idle is not None:
                self.on_idle()
            if next_s is None:
                raise RuntimeError("deadlock: every task waits and no timer is set")
            self.now_s = next_s
