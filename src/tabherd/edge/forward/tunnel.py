"""A client's socket on its way through this node: its request for an upgrade goes to the node that has what it is for,
and then every byte goes through, both ways, unread.

Invariants:
- Nothing is sent to the client before the other node has answered: an answer that never comes, or that says that the
  thing is elsewhere, is raised. A refusal goes through as it is, and then the connection ends.
- Only after an upgrade does what the client sends go through: no second request can follow the first.
- Memory is bounded: a side that does not read makes the other one wait.
- A side that says that nothing more follows may still hear. A side that is gone ends the other, which has a moment to
  read what is on its way.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

from ...cluster.hop import MISDIRECTED_HEADER
from ...cluster.peer import Peer
from ..auth import Address
from .failures import Lost, Misdirected, unreachable
from .http_line import HEAD_MAX_BYTES, MISDIRECTED, TOO_LARGE
from .line import Line
from .links import Links
from .request import Fields, passed_on, request_head

# How long a side has to read what is on its way, once the other one is gone; and a refusal to arrive in whole.
LINGER_S: Final = 5.0
SWITCHING: Final = 101
_UPGRADE: Final = ((b"connection", b"Upgrade"), (b"upgrade", b"websocket"))
_STATUS: Final = re.compile(rb"HTTP/1\.1 (101|[2-5]\d\d)[ \r]")


async def open_tunnel(
    links: Links,
    peer: Peer,
    request: bytes,
    *,
    transport: asyncio.Transport,
    early: bytearray,
    connections: set[Any],
    client: Address | None,
    grant: str = "",
    headers: Fields = (),
) -> Tunnel:
    """Pass an upgrade on to the peer, and the client's connection with it.

    `request` is the whole head, as uvicorn hands it on; `headers` replace its own of the same name, as in `forward`.
    `early` collects, until this returns, what the client sends too early. `connections` is uvicorn's set: the tunnel is
    in it while it lasts, and whoever was there for this client before takes itself out when this has returned.

    Raises NodeUnreachable, Misdirected or InvalidRequest, with nothing sent to the client. A client that leaves before
    the other node has answered is noticed by the caller, who cancels this.
    """
    method, target, fields = _parse(request)
    head = request_head(
        method, target, passed_on(fields, headers), (*_UPGRADE, links.hop(peer, method, target, client, grant))
    )
    far = await links.lines.dial(FarSide(peer))
    try:
        far.write(head)
        status = await far.answered()
    except Lost as lost:
        far.abort(str(lost))
        raise unreachable(peer, str(lost)) from None
    except BaseException:
        far.abort("the client left")
        raise
    if status == MISDIRECTED and far.says(MISDIRECTED_HEADER):
        far.abort("it does not have it")
        raise Misdirected(peer, b"")
    return Tunnel(far, transport, early, connections, is_open=status == SWITCHING)


class FarSide(Line):
    """The connection to the other node: first for the answer, then as one end of a tunnel."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer)
        # What came before there was a tunnel: the head of the answer, and perhaps more.
        self.unread = bytearray()
        # Told when more came, or nothing will.
        self._waiter: asyncio.Future[None] | None = None
        # From then on all that comes is for the other end.
        self.tunnel: Tunnel | None = None

    def write(self, data: bytes | bytearray) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    async def answered(self) -> int:
        """The status of the answer, when its whole head is there. Raises Lost."""
        while b"\r\n\r\n" not in self.unread:
            if self.failure is not None:
                raise Lost(self.failure)
            if len(self.unread) > HEAD_MAX_BYTES:
                raise Lost(TOO_LARGE)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        status = _STATUS.match(self.unread)
        if status is None:
            raise Lost("its answer is not HTTP")
        return int(status[1])

    def says(self, name: bytes) -> bool:
        """Whether the answer has that header."""
        head = self.unread[: self.unread.index(b"\r\n\r\n")].lower()
        return any(line.startswith(name + b":") for line in head.split(b"\r\n"))

    def ended(self) -> None:
        self._wake()
        if self.tunnel is not None:
            self.tunnel.far_ended()

    def data_received(self, data: bytes) -> None:
        if self.tunnel is not None:
            self.tunnel.to_client(data)
        else:
            self.unread += data
            self._wake()

    def eof_received(self) -> bool:
        return self.tunnel is not None and self.tunnel.far_is_done()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.tunnel is not None:
            self.tunnel.hold_client()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.tunnel is not None:
            self.tunnel.release_client()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Tunnel(asyncio.Protocol):
    """The connection to the client, and what joins it to the other node's."""

    def __init__(
        self, far: FarSide, transport: asyncio.Transport, early: bytearray, connections: set[Any], *, is_open: bool
    ) -> None:
        self._far = far
        self._near = transport
        # uvicorn's: whoever is in it is told to shut down when the server ends, and waited for.
        self._connections = connections
        # Whether what the client sends goes through.
        self._is_open = is_open
        # Which side has said that nothing more follows; one that does so as the second may hear nothing more either.
        self._is_near_done = False
        self._is_far_done = False
        # Whether the client is gone.
        self._is_near_lost = False
        # Cuts off whoever does not read when it is over.
        self._cutting: asyncio.TimerHandle | None = None
        connections.add(self)
        far.tunnel = self
        transport.set_protocol(self)
        if transport.is_closing():
            # The client has left, and that may have been told to whoever was here before.
            self.connection_lost(None)
            return
        self.to_client(bytes(far.unread))
        self.data_received(bytes(early))
        if far.failure is not None:
            self.far_ended()
        elif not is_open:
            self._cut_soon()

    def shutdown(self) -> None:
        """The server ends, and nothing can be said in the middle of somebody else's conversation."""
        self._near.close()
        self._cut_soon()

    # --- From the other node to the client ------------------------------------------------------------------

    def to_client(self, data: bytes) -> None:
        if not self._near.is_closing():
            self._near.write(data)

    def far_is_done(self) -> bool:
        """It has nothing more to say; whether it may still hear."""
        self._is_far_done = True
        if not self._is_open or self._is_near_done or self._near.is_closing():
            return False
        self._near.write_eof()
        return True

    def far_ended(self) -> None:
        """It is gone: the client gets what is on its way, and then the end."""
        if self._is_near_lost:
            self._stop_cutting()
        else:
            self._near.close()
            self._cut_soon()

    def pause_writing(self) -> None:
        far = self._far.transport
        if far is not None and not far.is_closing():
            far.pause_reading()

    def resume_writing(self) -> None:
        far = self._far.transport
        if far is not None and not far.is_closing():
            far.resume_reading()

    # --- From the client to the other node ------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._is_open:
            self._far.write(data)

    def eof_received(self) -> bool:
        self._is_near_done = True
        far = self._far.transport
        if self._is_far_done or far is None or far.is_closing():
            return False
        far.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_near_lost:
            return
        self._is_near_lost = True
        self._connections.discard(self)
        self._stop_cutting()
        far = self._far.transport
        if self._far.failure is None and far is not None:
            # What the client had said still gets there, unless nobody reads it.
            far.close()
            self._cutting = asyncio.get_running_loop().call_later(LINGER_S, self._far.abort, "the client left")

    def hold_client(self) -> None:
        if not self._near.is_closing():
            self._near.pause_reading()

    def release_client(self) -> None:
        if not self._near.is_closing():
            self._near.resume_reading()

    # --- The end --------------------------------------------------------------------------------------------

    def _cut_soon(self) -> None:
        if self._cutting is None and not self._is_near_lost:
            self._cutting = asyncio.get_running_loop().call_later(LINGER_S, self._near.abort)

    def _stop_cutting(self) -> None:
        if self._cutting is not None:
            self._cutting.cancel()
            self._cutting = None


def _parse(request: bytes) -> tuple[str, bytes, list[tuple[bytes, bytes]]]:
    """Method, target and headers of a request that uvicorn has read, checked and written down again."""
    first, *lines = request.removesuffix(b"\r\n\r\n").split(b"\r\n")
    method, target, _ = first.split(b" ", 2)
    fields = [(name.lower(), value) for name, _, value in (line.partition(b": ") for line in lines)]
    return method.decode("latin-1"), target, fields
