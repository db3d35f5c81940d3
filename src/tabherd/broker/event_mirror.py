"""The events of another node, as far as they have come here: the same numbers in the same order.

Invariant: between the oldest and the newest that it has, nothing is missing. What comes after a gap begins it anew, so
that whoever had read up to before the gap is told `reset`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .events import Event, EventBus, EventId


class EventMirror(EventBus):
    """A ring that is filled from afar. Whoever listens to it waits at this node's own bus."""

    def __init__(self, *, epoch: int, ring: int, clock: Callable[[], int], bus: EventBus) -> None:
        super().__init__(epoch=epoch, ring=ring, clock=clock)
        self._bus = bus
        # How far the other node was when it was first heard; None before.
        self._goal: int | None = None
        # Set once all of that is here.
        self.is_synced = asyncio.Event()

    def hear_of(self, newest: EventId) -> None:
        """The other node says how far it is."""
        if self._goal is None:
            self._goal = newest.seq
            self._check()

    def accept(self, event: Event) -> None:
        """An event of the other node; one that is here already changes nothing."""
        if event.seq <= self._seq:
            return
        if event.type == "reset":
            # The way here was slower than the other node's ring turns.
            self._first = event.seq + 1
        else:
            if event.seq != self._seq + 1:
                self._first = event.seq
            self._ring[event.seq % len(self._ring)] = event
        self._seq = event.seq
        self._check()
        self._bus.wake()

    async def news(self) -> None:
        await self._bus.news()

    def _check(self) -> None:
        if self._goal is not None and self._seq >= self._goal and not self.is_synced.is_set():
            self.is_synced.set()
            self._bus.wake()
