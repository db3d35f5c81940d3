"""One connection to another node, whatever is spoken on it: how it is set up, written to, and how it ends.

Invariants:
- It ends once, with one reason, however many causes there are; whoever keeps it is told exactly once.
- Writers wait while the other side does not read: no more than the transport's buffer waits to be sent.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from typing import Final

from ...cluster.peer import Peer

# A machine that is gone without a word is noticed: after this much silence it is asked, so often, so many times.
KEEPALIVE_IDLE_S: Final = 10
KEEPALIVE_EVERY_S: Final = 5
KEEPALIVE_TRIES: Final = 3


class Line(asyncio.Protocol):
    """A connection to a peer; subclasses hear `data_received` and `ended`."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        # Set by connection_made.
        self.transport: asyncio.Transport | None = None
        # Why it is over; None while it is not.
        self.failure: str | None = None
        # Whether it was this side that ended it.
        self.is_cut = False
        # Whoever keeps count of it; called once, at its end.
        self.on_ended: Callable[[], None] = lambda: None
        # Clear while the other side does not read fast enough.
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._has_ended = False

    def ended(self) -> None:
        """It is over; nothing more will be received. `failure` says why."""

    def abort(self, reason: str) -> None:
        """Cut it off now, for that reason. Idempotent: the first reason stays."""
        if self.failure is None:
            self.failure = reason
            self.is_cut = True
        if self.transport is not None:
            self.transport.abort()
        # Not only when the loop gets to it: whoever waits is let go at once.
        self._end()

    async def drain(self) -> None:
        """Wait until there is room to write, or nobody left to write to."""
        await self._can_write.wait()

    def is_quiet(self) -> bool:
        """Whether it is open and nothing has come in that was not read yet. An idle connection on which something has,
        be it the other side's end, is of no use, and here that is known before anything is written.
        """
        if self.failure is not None or self.transport is None or self.transport.is_closing():
            return False
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    # --- asyncio's callbacks --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        link: socket.socket = transport.get_extra_info("socket")
        # A request is one write, and the answer to it is waited for.
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_EVERY_S)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_TRIES)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.failure is None:
            self.failure = "it closed the connection" if exc is None else "the connection broke"
        self._end()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def _end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._can_write.set()
            self.on_ended()
            self.ended()
