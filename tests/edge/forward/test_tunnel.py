"""A socket that is passed on is the same to its client: every byte arrives, both ways, and its end is one end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server
from picows.websockets import ConnectionClosed, InvalidStatus, connect

from tabherd.cluster.hop import HOP_HEADER, Hop, verify
from tabherd.cluster.peer import Peer
from tabherd.edge.forward import tunnel as tunnel_module
from tabherd.edge.forward.failures import Misdirected
from tabherd.edge.forward.links import Links
from tabherd.edge.forward.tunnel import Tunnel, open_tunnel
from tabherd.errors import NodeUnreachable

from .nodes import KEY, LIMIT_S, MISDIRECTED, NOW_MS, Wire, peer_at, scripted, serving, until

SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"
ASK = (
    b"GET /ws?a=b HTTP/1.1\r\nHost: node-a:7722\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nX-Tabherd-Hop: forged\r\n\r\n"
)


class Near:
    """The server's own side, as far as an upgrade that belongs elsewhere needs it."""

    def __init__(self, links: Links, peer: Peer) -> None:
        self.links = links
        self.peer = peer
        self.failures: list[Exception] = []
        self.upgrading: list[Upgrading] = []
        self.tunnels: list[Tunnel] = []
        self.connections: set[Any] = set()

    def protocol(self, *, config: Any, server_state: Any, app_state: Any) -> asyncio.Protocol:
        self.connections = server_state.connections
        self.upgrading.append(Upgrading(self))
        return self.upgrading[-1]


class Upgrading(asyncio.Protocol):
    """What uvicorn hands a connection to, until the tunnel has it."""

    def __init__(self, near: Near) -> None:
        self._near = near
        self.early = bytearray()
        self._deciding: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._near.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._deciding is None:
            self._deciding = asyncio.create_task(self._decide(data))
        else:
            self.early += data

    def connection_lost(self, exc: Exception | None) -> None:
        self._near.connections.discard(self)
        assert self._deciding is not None
        self._deciding.cancel()

    def shutdown(self) -> None:
        self._transport.close()

    async def _decide(self, request: bytes) -> None:
        near = self._near
        try:
            tunnel = await open_tunnel(
                near.links,
                near.peer,
                request,
                transport=self._transport,
                early=self.early,
                connections=near.connections,
                client=("10.1.2.3", 4567),
                grant="ses_1",
                headers=((b"x-request-id", b"req_1"),),
            )
        except (NodeUnreachable, Misdirected) as error:
            near.failures.append(error)
            self._transport.close()
        else:
            near.tunnels.append(tunnel)
            near.connections.discard(self)


@asynccontextmanager
async def near_side(links: Links, peer: Peer) -> AsyncIterator[tuple[Near, int]]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("only upgrades come here")

    near = Near(links, peer)
    async with serving(app, near) as port:
        yield near, port


class Echo(WSListener):
    """The other node's socket."""

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code())
            transport.disconnect()
        else:
            transport.send(frame.msg_type, frame.get_payload_as_bytes())


@asynccontextmanager
async def echoing(links: Links) -> AsyncIterator[tuple[Near, str]]:
    """A socket that answers with what it is told, behind a tunnel."""

    def listener(request: WSUpgradeRequest) -> WSListener:
        return Echo()

    server = await ws_create_server(listener, "127.0.0.1", 0, max_frame_size=32 << 20)
    try:
        async with near_side(links, peer_at(server.sockets[0].getsockname()[1])) as (near, port):
            yield near, f"ws://127.0.0.1:{port}/ws"
    finally:
        server.close()


class Raw:
    """A client that writes bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read(self, count: int) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(count), LIMIT_S)

    async def rest(self) -> bytes:
        """All until the end."""
        return await asyncio.wait_for(self.reader.read(), LIMIT_S)


@asynccontextmanager
async def raw(port: int, ask: bytes = ASK) -> AsyncIterator[Raw]:
    """A client that has asked for a socket."""
    client = Raw(*await asyncio.open_connection("127.0.0.1", port))
    client.writer.write(ask)
    try:
        yield client
    finally:
        client.writer.transport.abort()


@asynccontextmanager
async def joined(links: Links, talk: Any) -> AsyncIterator[tuple[Near, Raw]]:
    """A raw client, and at the other end of its tunnel a scripted node that has said yes."""

    async def agree(wire: Wire) -> None:
        await wire.request()
        wire.write(SWITCHED)
        await talk(wire)

    async with scripted(agree) as node, near_side(links, node.peer) as (near, port), raw(port) as client:
        assert await client.read(len(SWITCHED)) == SWITCHED
        yield near, client


# --- What goes through ------------------------------------------------------------------------------------------


async def test_a_conversation_goes_through(links: Links) -> None:
    async with echoing(links) as (_, url), connect(url) as client:
        await client.send("hello")
        assert await client.recv() == "hello"


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 9 << 20])
async def test_a_message_of_any_size_goes_through(links: Links, size: int) -> None:
    async with echoing(links) as (_, url), connect(url, max_size=None) as client:
        message = bytes(range(256)) * (size // 256) + bytes(size % 256)
        await client.send(message)
        assert await client.recv() == message


async def test_thousands_of_messages_arrive_in_order(links: Links) -> None:
    async with echoing(links) as (_, url), connect(url, max_queue=None) as client:

        async def send() -> None:
            for number in range(10_000):
                await client.send(str(number))

        sending = asyncio.create_task(send())
        assert [int(await client.recv()) for _ in range(10_000)] == list(range(10_000))
        await sending


async def test_the_close_of_a_socket_goes_through(links: Links) -> None:
    async with echoing(links) as (near, url):
        client = await connect(url)
        await client.close(4001)
        assert client.close_code == 4001
        await until(lambda: not near.connections and not links.counts())


async def test_the_request_arrives_with_a_hop_of_this_node_alone(links: Links) -> None:
    heads: list[bytes] = []

    async def talk(wire: Wire) -> None:
        heads.append(await wire.request())
        wire.write(SWITCHED)

    ask = ASK.replace(b"\r\n\r\n", b"\r\nContent-Length: 0\r\nX-Request-Id: theirs\r\n\r\n")
    async with scripted(talk) as node, near_side(links, node.peer) as (_, port), raw(port, ask) as client:
        await client.rest()
    first, *lines = heads[0].removesuffix(b"\r\n\r\n").split(b"\r\n")
    fields = [tuple(line.split(b": ", 1)) for line in lines]
    hop = dict(fields)[HOP_HEADER]
    assert first == b"GET /ws?a=b HTTP/1.1"
    assert sorted(field for field in fields if field[0] != HOP_HEADER) == [
        (b"connection", b"Upgrade"),
        (b"host", b"node-a:7722"),
        (b"sec-websocket-key", b"MDEyMzQ1Njc4OWFiY2RlZg=="),
        (b"sec-websocket-version", b"13"),
        (b"upgrade", b"websocket"),
        (b"x-request-id", b"req_1"),
    ]
    assert len(fields) == 7
    assert verify(KEY, hop, method="GET", target=b"/ws?a=b", node_id="nod_b", now_ms=NOW_MS) == Hop(
        from_node="nod_a",
        from_epoch=7,
        to_node="nod_b",
        at_ms=NOW_MS,
        client=("10.1.2.3", 4567),
        boot_id="boot-a",
        grant="ses_1",
    )


async def test_what_is_said_before_the_answer_goes_through_after_it(links: Links) -> None:
    asked, answers = asyncio.Event(), asyncio.Event()

    async def talk(wire: Wire) -> None:
        await wire.request()
        asked.set()
        await answers.wait()
        assert not wire.reader._buffer, "nothing is said before the answer"  # type: ignore[attr-defined]
        wire.write(SWITCHED)
        wire.write(await wire.reader.readexactly(5))

    async with scripted(talk) as node, near_side(links, node.peer) as (near, port), raw(port) as client:
        await asked.wait()
        client.writer.write(b"early")
        await until(lambda: near.upgrading[0].early == b"early")
        answers.set()
        assert await client.rest() == SWITCHED + b"early"


async def test_a_client_that_does_not_read_makes_the_other_node_wait(links: Links) -> None:
    total, written = 100 << 20, 0
    done = asyncio.Event()

    async def talk(wire: Wire) -> None:
        nonlocal written
        while written < total:
            wire.write(bytes(1 << 16))
            await wire.writer.drain()
            written += 1 << 16
        done.set()

    async with joined(links, talk) as (near, client):
        client.writer.transport.pause_reading()
        await until(lambda: near.tunnels[0]._near.get_write_buffer_size() > 0)
        await until(lambda: not near.tunnels[0]._far.transport.is_reading())  # type: ignore[union-attr]
        assert near.tunnels[0]._near.get_write_buffer_size() < 1 << 20
        assert not done.is_set()
        client.writer.transport.resume_reading()
        read = 0
        while read < total:
            read += len(await asyncio.wait_for(client.reader.read(1 << 20), LIMIT_S))
        assert read == total


async def test_a_node_that_does_not_read_makes_the_client_wait(links: Links) -> None:
    total, reads = 100 << 20, asyncio.Event()

    async def talk(wire: Wire) -> None:
        await reads.wait()
        read = 0
        while read < total:
            read += len(await wire.reader.read(1 << 20))
        wire.write(b"all")

    async with joined(links, talk) as (near, client):

        async def send() -> None:
            for _ in range(total >> 16):
                client.writer.write(bytes(1 << 16))
                await client.writer.drain()

        sending = asyncio.create_task(send())
        await until(lambda: not near.tunnels[0]._near.is_reading())
        far = near.tunnels[0]._far.transport
        assert far is not None
        assert far.get_write_buffer_size() < 1 << 20
        assert not sending.done()
        reads.set()
        await sending
        assert await client.read(3) == b"all"


# --- How it ends ------------------------------------------------------------------------------------------------


async def test_a_client_that_leaves_ends_the_other_side(links: Links) -> None:
    left = asyncio.Event()

    async def talk(wire: Wire) -> None:
        await wire.gone()
        left.set()

    async with joined(links, talk) as (near, client):
        client.writer.transport.abort()
        await asyncio.wait_for(left.wait(), LIMIT_S)
        await until(lambda: not near.connections and not links.counts())


async def test_a_node_that_leaves_ends_the_clients_side_after_its_last_word(links: Links) -> None:
    async def talk(wire: Wire) -> None:
        wire.write(b"last word")

    async with joined(links, talk) as (near, client):
        assert await client.rest() == b"last word"
        client.writer.close()
        await until(lambda: not near.connections and not links.counts())


async def test_a_side_that_has_said_all_may_still_hear(links: Links) -> None:
    async def talk(wire: Wire) -> None:
        question = await wire.reader.read()
        wire.write(b"answer to " + question)

    async with joined(links, talk) as (near, client):
        client.writer.write(b"question")
        client.writer.write_eof()
        assert await client.rest() == b"answer to question"
        await until(lambda: not near.connections and not links.counts())


async def test_a_node_that_has_said_all_may_still_hear(links: Links) -> None:
    heard = asyncio.get_running_loop().create_future()

    async def talk(wire: Wire) -> None:
        wire.writer.write_eof()
        heard.set_result(await wire.reader.read())

    async with joined(links, talk) as (near, client):
        assert await client.rest() == b""
        client.writer.write(b"still here")
        client.writer.write_eof()
        assert await asyncio.wait_for(heard, LIMIT_S) == b"still here"
        await until(lambda: not near.connections and not links.counts())


async def test_a_node_that_is_declared_dead_ends_the_tunnel(links: Links) -> None:
    async with joined(links, Wire.gone) as (near, client):
        assert links.counts()["nod_b"].in_use == 1
        links.drop("nod_b")
        assert await client.rest() == b""
        await until(lambda: not near.connections)


async def test_the_end_of_the_server_ends_the_tunnel(links: Links) -> None:
    async with joined(links, Wire.gone) as (near, client):
        for each in list(near.connections):
            each.shutdown()
        assert await client.rest() == b""
        await until(lambda: not near.connections and not links.counts())


async def test_whoever_does_not_read_when_it_is_over_is_cut_off(links: Links, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel_module, "LINGER_S", 0.01)

    async def talk(wire: Wire) -> None:
        for _ in range(1 << 10):
            wire.write(bytes(1 << 16))
            await wire.writer.drain()

    async with joined(links, talk) as (near, client):
        client.writer.transport.pause_reading()
        await until(lambda: near.tunnels[0]._near.get_write_buffer_size() > 0)
        links.drop("nod_b")
        await until(lambda: not near.connections)


# --- What does not come about -----------------------------------------------------------------------------------


async def test_a_refusal_goes_through_and_nothing_that_the_client_says(links: Links) -> None:
    refusal = b"HTTP/1.1 429 Too Many\r\nretry-after: 1\r\ncontent-length: 2\r\n\r\n{}"
    smuggled = b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
    asked, answers = asyncio.Event(), asyncio.Event()
    followed = asyncio.get_running_loop().create_future()

    async def talk(wire: Wire) -> None:
        await wire.request()
        asked.set()
        await answers.wait()
        wire.write(refusal)
        followed.set_result(await wire.reader.read())

    async with scripted(talk) as node, near_side(links, node.peer) as (near, port), raw(port) as client:
        await asked.wait()
        client.writer.write(smuggled)
        await until(lambda: near.upgrading[0].early == smuggled)
        answers.set()
        assert await client.read(len(refusal)) == refusal
        near.tunnels[0].shutdown()
        assert await asyncio.wait_for(followed, LIMIT_S) == b""
        await until(lambda: not near.connections and not links.counts())


async def test_a_refusal_that_does_not_end_is_ended(links: Links, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel_module, "LINGER_S", 0.01)

    async def talk(wire: Wire) -> None:
        await wire.request()
        wire.write(b"HTTP/1.1 429 Too Many\r\ncontent-length: 2\r\n\r\n")
        await wire.gone()

    async with scripted(talk) as node, near_side(links, node.peer) as (near, port), raw(port):
        await until(lambda: bool(near.tunnels))
        await until(lambda: not near.connections and not links.counts())


async def test_a_websocket_client_understands_a_refusal(links: Links) -> None:
    async def talk(wire: Wire) -> None:
        await wire.request()
        wire.write(b"HTTP/1.1 503 Unavailable\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")

    async with scripted(talk) as node, near_side(links, node.peer) as (_, port):
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://127.0.0.1:{port}/ws")
        assert refused.value.response.status_code == 503


async def test_a_client_that_has_said_all_still_hears_why_it_is_refused(links: Links) -> None:
    goes_on = asyncio.Event()

    async def talk(wire: Wire) -> None:
        await wire.request()
        wire.write(b"HTTP/1.1 429 Too Many\r\ncontent-length: 2\r\n\r\n")
        await goes_on.wait()
        wire.write(b"{}")

    async with scripted(talk) as node, near_side(links, node.peer) as (near, port), raw(port) as client:
        await until(lambda: bool(near.tunnels))
        client.writer.write_eof()
        await asyncio.sleep(0)
        goes_on.set()
        assert (await client.rest()).endswith(b"\r\n\r\n{}")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 S\r\na: " + bytes(1 << 17),
    ],
)
async def test_an_answer_that_is_none_is_unreachable(links: Links, answer: bytes) -> None:
    async def talk(wire: Wire) -> None:
        await wire.request()
        wire.write(answer)

    async with scripted(talk) as node, near_side(links, node.peer) as (near, port), raw(port) as client:
        assert await client.rest() == b""
        assert isinstance(near.failures[0], NodeUnreachable)
        assert links.counts() == {}


async def test_a_port_where_nobody_listens_is_unreachable(links: Links) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    async with near_side(links, peer_at(port)) as (near, port), raw(port) as client:
        assert await client.rest() == b""
        assert isinstance(near.failures[0], NodeUnreachable)


async def test_a_socket_for_what_is_not_there_is_told(links: Links) -> None:
    async def talk(wire: Wire) -> None:
        await wire.request()
        wire.write(MISDIRECTED)
        await wire.gone()

    async with scripted(talk) as node, near_side(links, node.peer) as (near, port), raw(port) as client:
        assert await client.rest() == b""
        assert isinstance(near.failures[0], Misdirected)
        assert links.counts() == {}


async def test_a_client_that_leaves_before_the_answer_ends_the_wait_there_too(links: Links) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def talk(wire: Wire) -> None:
        await wire.request()
        asked.set()
        await wire.gone()
        left.set()

    async with scripted(talk) as node, near_side(links, node.peer) as (near, port), asyncio.timeout(LIMIT_S):
        async with raw(port):
            await asked.wait()
        await left.wait()
        assert near.tunnels == []


async def test_a_client_that_left_just_as_the_answer_came_takes_the_connection_along(links: Links) -> None:
    async def talk(wire: Wire) -> None:
        if wire.number:
            await wire.request()
            wire.write(SWITCHED)
        await wire.gone()

    async with scripted(talk) as node:
        client, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, "127.0.0.1", node.port)
        client.close()
        connections: set[Any] = set()
        await open_tunnel(
            links, node.peer, ASK, transport=client, early=bytearray(), connections=connections, client=None
        )
        assert connections == set()
        await until(lambda: not links.counts())


async def test_a_broken_conversation_is_seen_as_broken(links: Links) -> None:
    async with echoing(links) as (_, url):
        client = await connect(url)
        links.drop("nod_b")
        with pytest.raises(ConnectionClosed):
            await client.recv()
