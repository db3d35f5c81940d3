"""Following what happens: events are read one by one, resumed after a break, and no connection is left behind."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import httpx
import pytest
from tests.client.canned import BUSY, CannedServer
from tests.client.scripted import Script, SleptClock, refusal

from tabherd import errors
from tabherd.client import AsyncTabherd, Tabherd
from tabherd.client.events import EventParser

STREAM = (
    b": hello\n\n"
    b'id: 3-1\nevent: node.ready\ndata: {"type": "node.ready"}\n\n'
    b'id: 3-2\nevent: session.opened\ndata: {"agentId":\ndata: "alice"}\n\n'
    b"id: 3-3\n"
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
ONE = b'id: 3-1\nevent: tab.closed\ndata: {"n": 1}\n\n'


@contextmanager
def listening() -> Iterator[socket.socket]:
    """A port on which the test itself answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        yield listener


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def serve(listener: socket.socket, said: bytes) -> bytes:
    """Answer one request and wait until its sender hangs up; what was still received tells that it did: nothing."""
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(60)
        connection.recv(65_536)
        connection.sendall(said)
        return connection.recv(1)


def test_events_are_read_message_by_message(canned: CannedServer) -> None:
    canned.answer("GET", "/events", STREAM, media="text/event-stream")
    with Tabherd(canned.url, environ={}, patience_s=0) as herd:
        seen = [(event.id, event.type, event.data) for event in herd.events(after="3-0", types="session.*", tab="t")]
    assert seen == [("3-1", "node.ready", {"type": "node.ready"}), ("3-2", "session.opened", {"agentId": "alice"})]
    assert canned.asked[0].headers["last-event-id"] == "3-0"
    assert canned.asked[0].query == {"types": "session.*", "tabId": "t"}


def test_a_refused_stream_raises_its_typed_error(canned: CannedServer) -> None:
    canned.answer("GET", "/events", BUSY, 423)
    with Tabherd(canned.url, environ={}) as herd, pytest.raises(errors.TabBusy):
        next(herd.events())


def test_a_stream_that_breaks_goes_on_where_it_broke_off(script: Script, clock: SleptClock) -> None:
    first = httpx.Response(200, content=STREAM)
    again = httpx.Response(200, content=b'id: 3-4\nevent: tab.closed\ndata: {"n": 4}\n\n')
    script.on("GET", "/events", first, httpx.ConnectError("refused"), again)
    events = script.herd().events(after="3-0")
    assert [next(events).id for _ in range(3)] == ["3-1", "3-2", "3-4"]
    # Where the message stood that was never finished is no place that was reached.
    assert [asked.headers["last-event-id"] for asked in script.asked] == ["3-0", "3-2", "3-2"]


def test_a_place_that_was_told_without_an_event_is_where_it_goes_on(script: Script, clock: SleptClock) -> None:
    script.on(
        "GET", "/events", httpx.Response(200, content=b"retry: 1000\nid: 3-9\n\n"), httpx.Response(200, content=ONE)
    )
    next(script.herd().events())
    assert "last-event-id" not in script.asked[0].headers
    assert script.asked[1].headers["last-event-id"] == "3-9"


def test_a_server_that_always_hangs_up_is_given_up(script: Script, clock: SleptClock) -> None:
    script.on("GET", "/events", httpx.Response(200, content=b"id: 3-9\n\n"))
    with pytest.raises(errors.NodeUnreachable, match="ended the stream"):
        next(script.herd(patience_s=10).events())
    assert sum(clock.slept_s) <= 10


def test_a_stream_that_stays_refused_ends_with_that_refusal(script: Script, clock: SleptClock) -> None:
    script.on("GET", "/events", refusal("rate_limited", 429, retryable=True, retryAfterMs=4_000))
    with pytest.raises(errors.RateLimited):
        next(script.herd(patience_s=10).events())
    assert clock.slept_s == [4.0, 4.0]


def test_what_is_no_event_of_ours_is_a_typed_error() -> None:
    parser = EventParser()
    parser.feed("data: <h1>")
    with pytest.raises(errors.NodeUnreachable):
        parser.feed("")


def test_a_silence_ends_it() -> None:
    with listening() as listener:
        server = threading.Thread(target=serve, args=(listener, HEAD + ONE))
        server.start()
        with Tabherd(url_of(listener), environ={}) as herd:
            seen = [event.id for event in herd.events(silence_s=1)]
        server.join()
    assert seen == ["3-1"]


def test_leaving_the_loop_closes_the_connection() -> None:
    heard: list[bytes] = []
    with listening() as listener, Tabherd(url_of(listener), environ={}) as herd:
        server = threading.Thread(target=lambda: heard.append(serve(listener, HEAD + ONE)))
        server.start()
        for event in herd.events():
            assert event.data == {"n": 1}
            break
        # It ends only once the connection does, while the client is still open.
        server.join()
    assert heard == [b""]


@asynccontextmanager
async def answering(said: bytes, repeated: bytes = b"") -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A server on this loop that repeats itself until its one caller hangs up, and the end of that connection."""
    ended = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        while not reader.at_eof():
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), timeout=0.02)
            writer.write(repeated)
        writer.close()
        ended.set()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server, asyncio.timeout(60):
        yield url_of(server.sockets[0]), ended
        await ended.wait()


async def test_a_sign_of_life_without_an_event_is_silence_too() -> None:
    async with answering(HEAD + ONE, b": heartbeat\n\n") as (url, _), AsyncTabherd(url, environ={}) as herd:
        assert [event.id async for event in herd.events(silence_s=1)] == ["3-1"]


async def test_leaving_the_loop_closes_the_connection_in_asyncio_too() -> None:
    async with answering(HEAD + ONE) as (url, ended), AsyncTabherd(url, environ={}) as herd:
        async for event in herd.events():
            assert event.data == {"n": 1}
            break
        # While the client is still open.
        await ended.wait()


async def test_cancelling_who_waits_for_an_event_closes_the_connection() -> None:
    async with answering(HEAD + ONE) as (url, ended), AsyncTabherd(url, environ={}) as herd:
        has_begun = asyncio.Event()

        async def follow() -> None:
            async for _ in herd.events():
                has_begun.set()

        waiting = asyncio.ensure_future(follow())
        await has_begun.wait()
        waiting.cancel()
        await ended.wait()
