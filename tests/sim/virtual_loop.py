"""An asyncio event loop whose clock only moves when nothing is left to do.

Sleeping costs nothing and every run with the same seed is the same run. Callbacks keep asyncio's own order; different
interleavings come from the random delays of the simulated world.
"""

from __future__ import annotations

from collections.abc import Callable

from .clockwork import Clockwork

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
