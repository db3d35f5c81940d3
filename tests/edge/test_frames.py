"""Messages that leave a WebSocket together arrive as they were sent, in order, and never wait for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect, ws_create_server

from tabherd.edge.frames import BUNDLED_MAX, BUNDLED_MAX_BYTES, Bundle, client_frame, server_frame
from tabherd.edge.sockets import Socket

LIMIT_S = 60
SIZES = (0, 1, 125, 126, 127, 4_000, BUNDLED_MAX_BYTES)


@pytest.fixture
def event_loop_policy() -> uvloop.EventLoopPolicy:
    """The loop that the server has; its transports are not those of asyncio."""
    return uvloop.EventLoopPolicy()


class Reader(WSListener):
    """Hears what the other side sends, as picows reads it."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[bytes | WSCloseCode] = asyncio.Queue()
        self.transport: WSTransport | None = None

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            self.heard.put_nowait(frame.get_close_code())
        else:
            assert frame.msg_type == WSMsgType.TEXT
            assert frame.fin
            self.heard.put_nowait(frame.get_payload_as_bytes())

    async def hear(self, count: int) -> list[bytes | WSCloseCode]:
        async with asyncio.timeout(LIMIT_S):
            return [await self.heard.get() for _ in range(count)]


@asynccontextmanager
async def connected(server_side: WSListener, client_side: WSListener) -> AsyncIterator[WSTransport]:
    """Two sides that are connected; the client's transport."""
    server = await ws_create_server(lambda request: server_side, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        transport, _ = await ws_connect(lambda: client_side, f"ws://127.0.0.1:{port}/")
        try:
            yield transport
        finally:
            transport.disconnect(graceful=False)
    finally:
        server.close()


class Written:
    """A transport that remembers what is written to it."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.is_close_frame_sent = False
        self.underlying_transport = SimpleNamespace(write=self.pieces.append, is_closing=lambda: False)


def bundled(transport: Any, *messages: bytes) -> Bundle:
    bundle = Bundle(server_frame)
    for message in messages:
        bundle.add(transport, message)
    return bundle


async def test_frames_of_a_client_are_read_as_they_were_written() -> None:
    reader = Reader()
    async with connected(reader, Reader()) as transport:
        messages = [b"x" * size for size in SIZES]
        for message in messages:
            transport.underlying_transport.write(client_frame(message))
        assert await reader.hear(len(messages)) == messages


async def test_frames_of_a_server_are_read_as_they_were_written() -> None:
    reader, writer = Reader(), Reader()
    async with connected(writer, reader):
        assert writer.transport is not None
        messages = [b"x" * size for size in SIZES]
        for message in messages:
            writer.transport.underlying_transport.write(server_frame(message))
        assert await reader.hear(len(messages)) == messages


async def test_messages_that_follow_each_other_leave_in_one_piece() -> None:
    transport = Written()
    bundled(transport, b"one", b"two")
    await asyncio.sleep(0)
    assert transport.pieces == [server_frame(b"one") + server_frame(b"two")]


async def test_a_message_leaves_also_when_nothing_follows_it() -> None:
    transport = Written()
    bundled(transport, b"one")
    assert transport.pieces == []
    await asyncio.sleep(0)
    assert transport.pieces == [server_frame(b"one")]


async def test_a_full_bundle_leaves_at_once() -> None:
    transport = Written()
    bundled(transport, *[b"one"] * BUNDLED_MAX)
    assert transport.pieces == [server_frame(b"one") * BUNDLED_MAX]


async def test_nothing_leaves_after_the_close() -> None:
    transport = Written()
    bundle = bundled(transport, b"one")
    transport.is_close_frame_sent = True
    bundle.send(transport)  # type: ignore[arg-type]
    assert transport.pieces == []


class Talker(Socket):
    """Says, when it is spoken to, one after the other: some together, one alone, a large one, and good-bye."""

    said = (b"together 1", b"together 2", b"alone", b"together 3", b"x" * (BUNDLED_MAX_BYTES + 1), b"together 4")

    def received(self, data: bytes) -> None:
        for message in self.said:
            if message == b"alone":
                self.send(message)
            else:
                self.send_with_next(message)
        self.close(WSCloseCode.OK)


async def test_a_socket_keeps_the_order_of_what_it_sends_together_and_alone_until_its_close() -> None:
    reader = Reader()
    async with connected(Talker(), reader) as transport:
        transport.send(WSMsgType.TEXT, b"speak")
        assert await reader.hear(len(Talker.said) + 1) == [*Talker.said, WSCloseCode.OK]
