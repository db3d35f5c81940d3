"""An asyncio event loop whose clock only moves when nothing is left to do.

Sleeping costs nothing and every run with the same seed is the same run: there is no selector, no thread and no wall
clock. Callbacks keep asyncio's own order; different interleavings come from the random delays of the simulated world.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

# A history that takes more turns of the loop than this goes round in circles.
TURNS_MAX = 200_000


class _NoSelector(selectors.BaseSelector):
    """Never waits: waiting is what moves the virtual clock."""

    def __init__(self) -> None:
        self.loop: VirtualLoop | None = None

    def select(self, timeout: float | None = None) -> list[Any]:
        assert self.loop is not None
        woken = [look() for look in list(self.loop.watches)]
        if any(woken):
            return []
        if timeout != 0 and self.loop.on_idle is not None:
            self.loop.on_idle()
        if timeout is None:
            raise RuntimeError("deadlock: every task waits and no timer is set")
        self.loop.now_s += timeout
        self.loop.turns += 1
        if self.loop.turns > TURNS_MAX:
            raise RuntimeError("livelock: the history does not end")
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> Any:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> Any:
        return None

    def get_map(self) -> Any:
        return {}


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        selector = _NoSelector()
        self.now_s = 1_000.0
        self.turns = 0
        # Called at every turn of the loop, before time moves: they see every state that lasts longer than a turn. True
        # says that somebody was woken and time must not move yet.
        self.watches: list[Callable[[], bool]] = []
        # Called whenever time is about to move: nothing is left that could be done at once. It only looks.
        self.on_idle: Callable[[], None] | None = None
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        return self.now_s

    def clock_ms(self) -> int:
        """Milliseconds since some 1970."""
        return int(self.now_s * 1000)
