"""The connections of one backend: a bounded number, kept for the next lock, handed out in the order of asking.

- There are never more than `max_connections`, and what lies idle is used before another is opened, the latest first.
- One that was handed to a caller who has gone meanwhile is handed on. One that has ended makes room for the next, once.
- One that has a lock is nobody else's.
- Nobody waits longer than it said: waiting for a connection is waiting for the lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable

from .base import LockKey
from .links import Link
from .waiting import Line, Waiter


class LinkPool:
    """Connections to one database. Safe for threads; tasks of one loop have a pool of their own."""

    def __init__(self, open_link: Callable[[float], Awaitable[Link]], max_connections: int, *, is_task: bool) -> None:
        self._open = open_link
        self._max_connections = max_connections
        self._is_task = is_task
        self.forget()

    def forget(self) -> None:
        """In a fork: all of this is the parent's."""
        # Who waits is handed a connection, or None: room to open one.
        self._line: Line[Link | None] = Line()
        self._idle: list[Link] = []
        # Those that somebody has.
        self._lent: set[Link] = set()
        # Those that are idle, lent, or being opened.
        self._count = 0
        self._is_closed = False
        # Held for a few instructions at a time.
        self._guard = threading.Lock()

    async def borrow(self, until: float) -> Link | None:
        """A connection that is there as far as one can know; None when the time (monotonic) is over before."""
        while True:
            with self._guard:
                handed = self._at_hand()
            if not (handed := handed or await self._wait(until)):
                return None
            (link,) = handed
            if link is None:
                return await self._opened(until)
            if link.is_alive():
                return link
            link.close()
            self.settle(link)

    def hold(self, link: Link, key: LockKey, acquired_at: int) -> None:
        """It has got the lock."""
        with self._guard:
            link.held[key] = acquired_at

    def unhold(self, link: Link, key: LockKey) -> None:
        """It has that lock no more; with none left, and still open, it is kept for the next."""
        with self._guard:
            del link.held[key]
        self.settle(link)

    def settle(self, link: Link) -> None:
        """Take it back if it has no lock, or has ended; it must not be used after that by who calls."""
        with self._guard:
            if (link.held and link.is_open) or link not in self._lent:
                return
            self._lent.discard(link)
            link.is_used = True
            if link.is_open and not self._is_closed:
                if not self._line.hand(link):
                    self._idle.append(link)
                else:
                    self._lent.add(link)
                return
            if not self._line.hand(None):
                self._count -= 1
        link.close()

    def close(self) -> None:
        """End those that are idle now, and the others as they are given back."""
        with self._guard:
            self._is_closed = True
            idle, self._idle = self._idle, []
            self._count -= len(idle)
        for link in idle:
            link.close()

    @property
    def count(self) -> int:
        """How many there are."""
        return self._count

    def _at_hand(self) -> tuple[Link | None, ...]:
        """One that lies idle, or room for another, unless others were here first. Under the guard."""
        if self._idle:
            link = self._idle.pop()
            self._lent.add(link)
            return (link,)
        if self._count < self._max_connections and not self._line:
            self._count += 1
            return (None,)
        return ()

    async def _wait(self, until: float) -> tuple[Link | None, ...]:
        waiter: Waiter[Link | None] = Waiter(self._is_task)
        with self._guard:
            # What has become free since we looked would be handed to nobody.
            if handed := self._at_hand():
                return handed
            self._line.join(waiter)
        try:
            await waiter.wait(until - time.monotonic())
        except BaseException:
            for link in self._line.leave(waiter):
                if link is None:
                    self._make_room()
                else:
                    self.settle(link)
            raise
        return self._line.leave(waiter)

    async def _opened(self, until: float) -> Link:
        try:
            link = await self._open(max(until - time.monotonic(), 0))
        except BaseException:
            self._make_room()
            raise
        with self._guard:
            self._lent.add(link)
        return link

    def _make_room(self) -> None:
        with self._guard:
            if not self._line.hand(None):
                self._count -= 1
