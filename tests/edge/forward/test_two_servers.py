"""Two real servers, one behind the other: what a client on a socket of its own sees of a request that is passed on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tabherd.edge.body import ClientLeft
from tabherd.edge.forward.failures import CutShort
from tabherd.edge.forward.links import Links

from .nodes import LIMIT_S, Wire, peer_at, scripted, serving


@asynccontextmanager
async def before(links: Links, port: int) -> AsyncIterator[int]:
    """A server that passes everything on to that port."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await links.forward(peer_at(port), scope, receive, send, client=scope["client"])
        except (ClientLeft, CutShort):
            return

    async with serving(app) as near:
        yield near
        await links.close()


@asynccontextmanager
async def client_of(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(LIMIT_S):
            yield reader, writer
    finally:
        writer.transport.abort()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = b""
    while True:
        message = await receive()
        body += message["body"]
        if not message["more_body"]:
            break
    body = scope["raw_path"] + b" " + body
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def test_requests_sent_at_once_on_one_connection_are_answered_in_order(links: Links) -> None:
    async with serving(echo) as far, before(links, far) as near, client_of(near) as (reader, writer):
        for number in range(5):
            writer.write(b"POST /%d HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody" % number)
        for number in range(5):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert await reader.readexactly(7) == b"/%d body" % number


async def test_a_client_that_waits_to_be_told_to_go_on_is_told(links: Links) -> None:
    async with serving(echo) as far, before(links, far) as near, client_of(near) as (reader, writer):
        writer.write(b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"body")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(7) == b"/x body"


async def test_a_body_in_chunks_arrives_whole(links: Links) -> None:
    async with serving(echo) as far, before(links, far) as near, client_of(near) as (reader, writer):
        writer.write(
            b"POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n"
        )
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(7) == b"/x abcd"


async def test_the_answer_has_one_date(links: Links) -> None:
    async with serving(echo) as far, before(links, far) as near, client_of(near) as (reader, writer):
        writer.write(b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).lower().count(b"\r\ndate:") == 1


@pytest.mark.parametrize(
    ("half", "seen"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", b"half"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", b"4\r\nhalf\r\n"),
    ],
)
async def test_half_of_an_answer_never_looks_like_a_whole_one(links: Links, half: bytes, seen: bytes) -> None:
    async def talk(wire: Wire) -> None:
        await wire.request()
        wire.write(half)

    async with scripted(talk) as node, before(links, node.port) as near, client_of(near) as (reader, writer):
        writer.write(b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        # And then the end, without the rest or the last chunk.
        assert await reader.read() == seen


async def test_a_client_that_hangs_up_ends_the_wait_on_the_other_server(links: Links) -> None:
    waits, is_told = asyncio.Event(), asyncio.Event()

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive())["type"] == "http.request":
            assert not message["more_body"]
            waits.set()
        is_told.set()

    async with serving(waiting) as far, before(links, far) as near:
        async with client_of(near) as (_, writer):
            writer.write(b"POST /sessions HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n")
            await waits.wait()
        await asyncio.wait_for(is_told.wait(), LIMIT_S)


async def test_events_arrive_one_by_one(links: Links) -> None:
    heard = asyncio.Semaphore(0)

    async def events(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for number in range(3):
            await send({"type": "http.response.body", "body": b"data: %d\n\n" % number, "more_body": True})
            await heard.acquire()
        await send({"type": "http.response.body", "body": b""})

    async with serving(events) as far, before(links, far) as near, client_of(near) as (reader, writer):
        writer.write(b"GET /events HTTP/1.1\r\nhost: a\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        for number in range(3):
            assert await reader.readuntil(b"\n\n\r\n") == b"9\r\ndata: %d\n\n\r\n" % number
            heard.release()
        assert await reader.readuntil(b"0\r\n\r\n") == b"0\r\n\r\n"


async def test_a_request_with_two_lengths_reaches_nobody(links: Links) -> None:
    reached = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["raw_path"])
        await echo(scope, receive, send)

    async with serving(app) as far, before(links, far) as near, client_of(near) as (reader, writer):
        writer.write(
            b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n"
            b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n"
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 400")
        assert reached == []
