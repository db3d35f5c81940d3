"""From uvicorn's request for an upgrade to an open socket, or to a refusal that a client can read.

An upgrade is decided before it is answered: Host and Origin, path, then whatever its door asks for, which may take its
time. A refusal is an HTTP answer with the typed error as its body. A client that leaves meanwhile cancels the decision,
so that nothing is granted to nobody. Then picows takes the connection over; its protocol class has a private
constructor, which is used in this file only.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from picows import WSAutoPingStrategy, WSUpgradeRequest, WSUpgradeResponse, WSUpgradeResponseWithListener
from picows.picows import WSProtocol  # type: ignore[attr-defined]

from .. import logs
from ..cluster.elsewhere import Elsewhere
from ..cluster.hop import Hop
from ..errors import InvalidRequest, MethodNotAllowed, NodeUnreachable, ResourceNotFound, TabherdError
from ..metrics import Metrics
from .auth import Address, Guard
from .forward.failures import RETRY_AFTER_MS, Misdirected
from .forward.tunnel import open_tunnel
from .head import Head
from .reply import CLOSE, Reply, bug, refusal, traced
from .routing import HOPS_TRIED_MAX, MISDIRECTED, Routing, trace_of
from .sockets import Socket

log = logs.get_logger("upgrade")

# What a client may send while its upgrade is decided; one that keeps to the protocol sends nothing.
EARLY_MAX_BYTES: Final = 64 << 10
# A key of the handshake is this long, decoded.
KEY_BYTES: Final = 16

# picows logs every connection, and every mistake of a client as an error; what matters is logged by our callbacks.
_quiet: Final = logging.getLogger("picows.edge")
_quiet.setLevel(logging.CRITICAL + 1)


class Upgrade(msgspec.Struct, frozen=True, kw_only=True):
    """A client's wish to open a socket."""

    # Still percent-encoded.
    path: str
    query: bytes
    head: Head
    # Where the client connects from, also when another node has passed its wish on.
    client: Address | None
    # What that node says.
    hop: Hop | None = None


# Decides on an upgrade: the socket to open, or a typed error. It may wait, and is cancelled when the client leaves.
Door = Callable[[Upgrade], Awaitable[Socket]]


class Doors:
    """The sockets that a server offers: by path, or by what the path begins with up to its last slash."""

    def __init__(
        self, guard: Guard, metrics: Metrics, doors: Mapping[str, Door], routing: Routing | None = None
    ) -> None:
        self._guard = guard
        self._metrics = metrics
        self._doors = doors
        # The ways to other nodes; None: there are none.
        self.routing = routing

    def protocol(self, *, config: Any, server_state: Any, app_state: Any) -> Upgrading:
        """What uvicorn hands a connection to that asks for a WebSocket (its `ws` setting)."""
        return Upgrading(self, server_state.connections)

    async def admit(self, upgrade: Upgrade, local: Address | None) -> Socket:
        """The socket that was asked for, or a typed error."""
        if upgrade.hop is None:
            self._guard.check_address(upgrade.head, local)
        path = upgrade.path
        # A path that ends with a slash stands for all below it, except the root, which stands for itself.
        door = self._doors.get(path) or self._doors.get(path[: path.rfind("/", 1) + 1])
        if door is None:
            raise ResourceNotFound(
                f"There is no socket {logs.redact(path)[:200]!r} here.",
                action="Use one of the paths in details.",
                paths=[*self._doors],
            )
        return await door(upgrade)

    def refused(self, error: TabherdError) -> None:
        self._metrics.rejected_total.inc(error.code)


class Upgrading(asyncio.Protocol):
    """One connection from the request for an upgrade to the open socket, or to the refusal."""

    def __init__(self, doors: Doors, connections: set[Any]) -> None:
        self._doors = doors
        # uvicorn's: whoever is in it is told to shut down when the server ends, and waited for.
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        # Runs while the upgrade is decided.
        self._deciding: asyncio.Task[None] | None = None
        # What came too early.
        self._early = bytearray()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if self._deciding is None:
            # uvicorn hands the whole head on in one piece, and sets this protocol only afterwards: the socket must
            # not take its place before that, hence a task even if nothing is waited for.
            self._deciding = asyncio.get_running_loop().create_task(self._decide(data))
        elif len(self._early) + len(data) > EARLY_MAX_BYTES:
            self._transport.abort()
        else:
            self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if self._deciding is not None:
            self._deciding.cancel()

    def shutdown(self) -> None:
        """The server ends: who is not in by now comes too late."""
        assert self._transport is not None
        self._transport.close()

    async def _decide(self, request: bytes) -> None:
        assert self._transport is not None
        method, target, headers = _parse(request)
        head = Head(headers)
        logs.bind(requestId=head.request_id.decode())
        path, _, query = target.partition(b"?")
        client, local = (_address(self._transport.get_extra_info(end)) for end in ("peername", "sockname"))
        routing = self._doors.routing
        hop = None if routing is None else routing.hop_of(head, method.decode("latin-1"), target)
        try:
            key = _key_of(method, headers)
            upgrade = Upgrade(
                path=path.decode("latin-1"),
                query=query,
                head=head,
                client=client if hop is None else hop.client,
                hop=hop,
            )
            try:
                socket = await self._doors.admit(upgrade, local)
            except Elsewhere as elsewhere:
                assert routing is not None, "only nodes of a cluster know of others"
                if hop is not None:
                    self._refuse(MISDIRECTED, head)
                else:
                    await self._pass_on(routing, elsewhere, request, upgrade, local, key)
                return
        except TabherdError as error:
            self._doors.refused(error)
            self._refuse(refusal(error), head)
        except Exception:
            log.exception("bug: unexpected exception in an upgrade")
            self._refuse(bug(head), head)
        else:
            self._open(socket, key, head)

    async def _pass_on(
        self, routing: Routing, elsewhere: Elsewhere, request: bytes, upgrade: Upgrade, local: Address | None, key: str
    ) -> None:
        """Tunnel the connection to the node that has what it is for."""
        assert self._transport is not None
        for _ in range(HOPS_TRIED_MAX):
            try:
                await open_tunnel(
                    routing.links,
                    routing.peer(elsewhere.node_id),
                    request,
                    transport=self._transport,
                    early=self._early,
                    connections=self._connections,
                    client=upgrade.client,
                    grant=elsewhere.grant,
                    headers=trace_of(upgrade.head),
                )
            except Misdirected:
                routing.forget_all()
            else:
                self._connections.discard(self)
                return
            try:
                socket = await self._doors.admit(upgrade, local)
            except Elsewhere as other:
                elsewhere = other
            else:
                # It has come here meanwhile.
                self._open(socket, key, upgrade.head)
                return
        raise NodeUnreachable("What was asked for moves from node to node.", retry_after_ms=RETRY_AFTER_MS)

    def _open(self, socket: Socket, key: str, head: Head) -> None:
        """Have picows take the connection over, as if it had read the request itself."""
        transport = self._transport
        assert transport is not None
        self._connections.discard(self)
        if transport.is_closing():
            socket.abandoned()
            return
        self._connections.add(socket)
        socket.on_closed = lambda: self._connections.discard(socket)
        protocol = _picows(socket, head)
        protocol.connection_made(transport)
        transport.set_protocol(protocol)
        # What was checked above in full; picows would be stricter than the standard in how headers are spelt.
        _feed(protocol, _HANDSHAKE % key.encode("ascii"))
        _feed(protocol, self._early)

    def _refuse(self, reply: Reply, head: Head) -> None:
        assert self._transport is not None
        lines = [b"HTTP/1.1 %d %s" % (reply.status, HTTPStatus(reply.status).phrase.encode())]
        lines += [b"%s: %s" % field for field in (*reply.headers, *traced(head), *CLOSE)]
        lines.append(b"content-length: %d" % len(reply.body))
        self._transport.write(b"\r\n".join([*lines, b"", reply.body]))
        self._transport.close()


# --- Parts ------------------------------------------------------------------------------------------------------

_HANDSHAKE: Final = (
    b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n"
)


def _picows(socket: Socket, head: Head) -> Any:
    """picows' protocol for a connection whose upgrade has been granted."""
    extra = {name.decode("latin-1"): value.decode("latin-1") for name, value in traced(head)}

    def listener(request: WSUpgradeRequest) -> WSUpgradeResponseWithListener:
        return WSUpgradeResponseWithListener(WSUpgradeResponse.create_101_response(extra), socket)

    return WSProtocol(
        None,  # host and port: a client's
        None,  # path: a client's
        False,  # whether this is the client
        listener,
        _quiet,
        True,  # disconnect when a callback raises
        None,  # time for the handshake, which is here already
        False,  # pings by itself: who pings decides what silence means
        20,  # their interval
        20,  # and how long an answer may take
        WSAutoPingStrategy.PING_WHEN_IDLE,
        True,  # pongs by itself
        socket.message_max_bytes,
        None,  # headers: a client's
        16 << 10,  # bytes that the buffer has at first
    )


def _feed(protocol: Any, data: bytes | bytearray) -> None:
    """Give a buffered protocol what was read before it was there."""
    rest = memoryview(data)
    while rest:
        room = protocol.get_buffer(-1)
        count = min(len(room), len(rest))
        room[:count] = rest[:count]
        protocol.buffer_updated(count)
        rest = rest[count:]


def _parse(request: bytes) -> tuple[bytes, bytes, list[tuple[bytes, bytes]]]:
    """Method, target and headers of a request that uvicorn has read, checked and written down again."""
    first, *lines = request.removesuffix(b"\r\n\r\n").split(b"\r\n")
    method, target, _ = first.split(b" ", 2)
    return method, target, [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]


def _key_of(method: bytes, headers: list[tuple[bytes, bytes]]) -> str:
    """The key that the handshake is answered with; raises unless it is a handshake as RFC 6455 has it."""
    if method != b"GET":
        raise MethodNotAllowed("A WebSocket is opened with GET.", allow=["GET"])
    fields = dict(headers)
    if fields.get(b"sec-websocket-version") != b"13":
        raise InvalidRequest("Only version 13 of WebSocket is spoken here.", field="Sec-WebSocket-Version")
    key = fields.get(b"sec-websocket-key", b"")
    try:
        is_good = len(base64.b64decode(key, validate=True)) == KEY_BYTES
    except binascii.Error:
        is_good = False
    if not is_good:
        raise InvalidRequest("The key of the handshake is missing or malformed.", field="Sec-WebSocket-Key")
    return key.decode("ascii")


def _address(info: Any) -> Address | None:
    """One end of a connection, as ASGI has it."""
    return (str(info[0]), int(info[1])) if isinstance(info, tuple) and len(info) >= 2 else None
