"""Bytes that anybody can send: too many, too slowly, or in a shape that two programs would read differently."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import msgspec
import pytest
from tests.edge.control_house import LIMIT_S, House, until

from tabherd.edge.connection import Limits

from .raw import HASTY, get, host, serving, wire

KEY = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n" + KEY
CHUNKED = b"Transfer-Encoding: chunked\r\n"


@pytest.fixture
async def here() -> AsyncIterator[House]:
    async with serving() as house:
        yield house


@pytest.fixture
async def patient() -> AsyncIterator[House]:
    """One that cuts off nobody for being slow."""
    async with serving(msgspec.structs.replace(HASTY, head_limit_s=60)) as house:
        yield house


async def others_are_served(here: House) -> None:
    async with wire(here) as other:
        await other.send(get(here))
        assert (await other.answer()).status == 200


# --- Too much -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start",
    [b"GET /", b"GET /health HTTP/1.1\r\nX-Long: ", b"GET /health HTTP/1.1\r\nX-", b"GET /?q="],
    ids=["path", "value of a header", "name of a header", "query"],
)
async def test_a_head_without_an_end_is_refused_when_it_is_too_long(patient: House, start: bytes) -> None:
    async with wire(patient) as client:
        await client.send(start)
        # More than it is let have, but not so much that the answer is lost in what was never read.
        await client.send(b"a" * (HASTY.head_max_bytes // 2))
        await client.send(b"a" * HASTY.head_max_bytes)
        answer = await client.answer()
        assert (answer.status, answer.code) == (431, "invalid_request")
        await client.ended()
    await others_are_served(patient)


async def test_an_endless_head_is_not_read_to_its_end(patient: House) -> None:
    async with wire(patient) as client:
        await client.send(b"GET /health HTTP/1.1\r\nX-Long: ")
        assert await client.is_cut_off(b"a" * HASTY.head_max_bytes)


async def test_many_small_headers_count_as_one_large(patient: House) -> None:
    async with wire(patient) as client:
        await client.send(get(patient, more=b"X-A: b\r\n" * (HASTY.head_max_bytes // 8)))
        assert (await client.answer()).status == 431


async def test_a_head_just_below_the_limit_is_answered_however_it_is_cut(patient: House) -> None:
    request = get(patient, more=b"X-Long: " + b"a" * (HASTY.head_max_bytes - 500) + b"\r\n")
    for size in (len(request), 10_000):
        async with wire(patient) as client:
            for start in range(0, len(request), size):
                await client.send(request[start : start + size])
            assert (await client.answer()).status == 200


async def test_trailers_without_an_end_are_refused(patient: House) -> None:
    async with wire(patient) as client:
        await client.send(b"POST /login HTTP/1.1\r\n" + host(patient) + CHUNKED + b"\r\n2\r\n{}\r\n0\r\nX-Long: ")
        assert await client.is_cut_off(b"a" * HASTY.head_max_bytes)


async def test_extensions_of_chunks_without_an_end_are_refused(patient: House) -> None:
    async with wire(patient) as client:
        await client.send(b"POST /login HTTP/1.1\r\n" + host(patient) + CHUNKED + b"\r\n2;x=")
        assert await client.is_cut_off(b"a" * HASTY.head_max_bytes)


async def test_a_body_in_chunks_of_one_byte_is_read(patient: House) -> None:
    body = b'{"token":"' + b"t" * 3_000 + b'"}'
    async with wire(patient) as client:
        await client.send(b"POST /login HTTP/1.1\r\n" + host(patient) + CHUNKED + b"\r\n")
        for start in range(0, len(body), 100):
            await client.send(b"".join(b"1\r\n%c\r\n" % byte for byte in body[start : start + 100]))
        await client.send(b"0\r\n\r\n")
        assert (await client.answer()).code in ("unauthenticated", "invalid_request")


async def test_requests_ahead_of_their_answers_wait_in_a_short_line(patient: House) -> None:
    """uvicorn alone took in thousands for each one that it answered."""
    async with wire(patient) as client:
        cutting = asyncio.create_task(client.is_cut_off(get(patient) * 1_000, 200))
        while not cutting.done():
            for connection in patient.front.server_state.connections:
                assert len(getattr(connection, "pipeline", ())) <= HASTY.pipelined_max
            await asyncio.sleep(0)
        assert await cutting
    await others_are_served(patient)


async def test_a_few_requests_ahead_of_their_answers_are_answered_in_order(patient: House) -> None:
    async with wire(patient) as client:
        await client.send(get(patient) + get(patient, b"/nothing") + get(patient))
        assert [(await client.answer()).status for _ in range(3)] == [200, 404, 200]


# --- Too slow -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start",
    [b"", b"GET", b"GET /health HTTP/1.1\r\nHost", b"\r\n\r\n\r\n"],
    ids=["nothing", "a word", "a header", "empty lines"],
)
async def test_a_head_that_does_not_come_is_not_waited_for(here: House, start: bytes) -> None:
    async with wire(here) as client:
        await client.send(start)
        assert await client.ended() == b""


async def test_a_head_that_trickles_is_not_waited_for(here: House) -> None:
    async with wire(here) as client:

        async def trickle() -> None:
            while True:
                await client.send(b"x")
                await asyncio.sleep(0.02)

        await client.send(b"GET /health HTTP/1.1\r\nX: ")
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(trickle(), LIMIT_S)


async def test_a_body_that_does_not_come_is_not_waited_for(here: House) -> None:
    async with wire(here) as client:
        await client.send(b"POST /login HTTP/1.1\r\n" + host(here) + b"Content-Length: 100\r\n\r\n{")
        assert await client.ended() == b""


async def test_the_rest_of_a_body_that_was_refused_is_not_waited_for(here: House) -> None:
    async with wire(here) as client:
        await client.send(b"POST /sessions HTTP/1.1\r\n" + host(here) + b"Content-Length: 100000\r\n\r\n{")
        assert (await client.answer()).status == 401
        await client.send(b" ")
        assert await client.ended() == b""


async def test_a_request_at_work_may_take_longer_than_a_head(here: House) -> None:
    token = await here.token("ada")
    tab_id = await here.open_tab("ada")
    action = b'{"kind": "evaluate", "expression": "held-1"}'
    async with wire(here) as client, wire(here) as idle:
        await client.send(
            b"POST /tabs/%b/action HTTP/1.1\r\n" % tab_id.encode() + host(here) +
            b"Authorization: Bearer %b\r\nContent-Length: %d\r\n\r\n" % (token.encode(), len(action)) + action
        )  # fmt: skip
        await until(lambda: here.pages.begun)
        # Longer than the patience with one that says nothing.
        await idle.ended()
        here.pages.finish("held-1")
        assert (await client.answer()).status == 200


async def test_slow_connections_are_bounded_and_keep_nobody_out(here: House) -> None:
    """The classic: hundreds of connections that never finish their heads."""
    async with AsyncExitStack() as stack:
        for number in range(5 * HASTY.waiting_max):
            client = await stack.enter_async_context(wire(here))
            await client.send(b"GET /health HTTP/1.1\r\nX-%d: " % number)
            assert here.front.connections.waiting <= HASTY.waiting_max
            if number % 50 == 0:
                await others_are_served(here)
    await until(lambda: here.front.connections.waiting == 0)


async def test_idle_connections_are_bounded_too() -> None:
    async with serving(Limits(head_limit_s=60, waiting_max=32)) as here, AsyncExitStack() as stack:
        for _ in range(100):
            client = await stack.enter_async_context(wire(here))
            await client.send(get(here))
            assert (await client.answer()).status == 200
            assert here.front.connections.waiting <= 32


# --- Read in two ways -----------------------------------------------------------------------------------------------

SMUGGLED = {
    "length and chunks": b"Content-Length: 5\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
    "chunks and length": CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "a length with a sign": b"Content-Length: +2\r\n\r\n{}",
    "a negative length": b"Content-Length: -2\r\n\r\n{}",
    "a length beyond all bounds": b"Content-Length: 99999999999999999999999\r\n\r\n{}",
    "a list of lengths": b"Content-Length: 2, 2\r\n\r\n{}",
    "an encoding that is not chunked": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "an encoding after chunked": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunked twice": CHUNKED + CHUNKED + b"\r\n0\r\n\r\n",
    "a negative chunk": CHUNKED + b"\r\n-1\r\n{}\r\n0\r\n\r\n",
    "a chunk longer than it says": CHUNKED + b"\r\n2\r\n{}{}\r\n0\r\n\r\n",
    "a size of a chunk beyond all bounds": CHUNKED + b"\r\nffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    "a space before the colon": b"Content-Length : 2\r\n\r\n{}",
    "a folded header": b"X-A: b\r\n Content-Length: 2\r\n\r\n{}",
    "a NUL in a header": b"X-A: a\0b\r\n\r\n",
    "a lone line feed": b"X-A: a\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("rest", SMUGGLED.values(), ids=SMUGGLED.keys())
async def test_a_request_that_can_be_read_in_two_ways_is_refused_and_ends_the_connection(
    here: House, rest: bytes
) -> None:
    async with wire(here) as client:
        await client.send(b"POST /login HTTP/1.1\r\n" + host(here) + rest + get(here))
        answer = await client.answer()
        assert (answer.status, answer.code, answer.headers["connection"]) == (400, "invalid_request", "close")
        # In particular, what followed was not taken for a request.
        assert await client.ended() == b""


async def test_what_follows_a_body_is_not_a_header(here: House) -> None:
    """A proxy that strips headers does not strip trailers."""
    token = (await here.token("ada")).encode()
    async with wire(here) as client:
        await client.send(
            b"GET /login HTTP/1.1\r\n" + host(here) + CHUNKED + b"\r\n0\r\nAuthorization: Bearer %b\r\n\r\n" % token
        )
        assert (await client.answer()).status == 401


async def test_an_upgrade_has_no_body(here: House) -> None:
    token = (await here.token("ada")).encode()
    more = UPGRADE + b"Authorization: Bearer %b\r\n" % token
    for framing in (b"Content-Length: 40\r\n", CHUNKED):
        async with wire(here) as client:
            await client.send(get(here, b"/ws", more + framing) + get(here))
            assert (await client.answer()).status == 400
            assert await client.ended() == b""
    async with wire(here) as client:
        await client.send(get(here, b"/ws", more + b"Content-Length: 0\r\n"))
        assert (await client.answer()).status == 101


async def test_an_upgrade_ahead_of_an_answer_ends_the_connection(here: House) -> None:
    async with wire(here) as client:
        await client.send(get(here) + get(here, b"/ws", UPGRADE))
        assert b"101" not in await client.ended()


async def test_an_upgrade_to_another_protocol_is_answered_in_this_one_and_is_the_last(here: House) -> None:
    async with wire(here) as client:
        await client.send(get(here, more=b"Connection: Upgrade\r\nUpgrade: h2c\r\n"))
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await client.ended() == b""


async def test_a_target_that_names_another_host_than_host_is_refused(here: House) -> None:
    async with wire(here) as client:
        await client.send(b"GET http://evil.example/health HTTP/1.1\r\n" + host(here) + b"\r\n")
        assert (await client.answer()).status == 400
    async with wire(here) as client:
        await client.send(b"GET http://127.0.0.1:%d/health HTTP/1.1\r\n" % here.port + host(here) + b"\r\n")
        assert (await client.answer()).status == 200


NOT_HTTP = {
    "nothing printable": b"\x00\xff\xfe\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a tunnel": b"CONNECT evil.example:80 HTTP/1.1\r\nHost: evil.example:80\r\n\r\n",
    "a path that is not ASCII": b"GET /he\xffalth HTTP/1.1\r\n\r\n",
    "a method that is none": b"STEAL /health HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("data", NOT_HTTP.values(), ids=NOT_HTTP.keys())
async def test_what_is_not_http_is_answered_in_the_one_shape(here: House, data: bytes) -> None:
    async with wire(here) as client:
        await client.send(data)
        answer = await client.answer()
        assert (answer.status, answer.code) == (400, "invalid_request")
        assert await client.ended() == b""


async def test_a_mistake_after_a_request_does_not_answer_that_request(here: House) -> None:
    """Its client would take the refusal for the answer to what was done."""
    async with wire(here) as client:
        await client.send(get(here) + b"\x00\x00\r\n\r\n")
        assert b"400" not in await client.ended()


@pytest.mark.parametrize("path", [b"/locks/%ff%fe", b"/sessions/%c3", b"/tabs/%ed%a0%80", b"/ui/%ff"])
async def test_bytes_in_a_path_that_are_no_text_are_refused(here: House, path: bytes) -> None:
    """Replaced by a mark, two names would become one lock."""
    token = (await here.token("ada")).encode()
    async with wire(here) as client:
        await client.send(get(here, path, b"Authorization: Bearer %b\r\n" % token))
        assert (await client.answer()).status in (400, 405)
