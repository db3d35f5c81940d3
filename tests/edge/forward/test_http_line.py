"""What a node may answer with, and that nothing else does harm: neither to this request nor to the next."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabherd.edge.forward.failures import Lost
from tabherd.edge.forward.http_line import HEAD_MAX_BYTES, HIGH_WATER_BYTES, HttpLine

from .nodes import OK, peer_at


class FakeSocket:
    def setsockopt(self, *option: int) -> None:
        pass


class FakeTransport:
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        self.is_aborted = False
        self.is_paused = False

    def get_extra_info(self, name: str) -> FakeSocket:
        return FakeSocket()

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        self.is_aborted = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


def line_with(transport: FakeTransport, *, is_head: bool = False) -> HttpLine:
    """A line on which a request was sent."""
    line = HttpLine(peer_at(1))
    line.connection_made(transport)  # type: ignore[arg-type]
    line.begin(b"request", is_head=is_head, is_whole=True)
    return line


async def outcome(line: HttpLine) -> Any:
    """The answer as far as it goes: status, headers and body, or what was wrong."""
    try:
        head = await line.head()
        body = b""
        while piece := await line.read():
            body += piece
    except Lost as lost:
        return str(lost)
    return head.status, tuple(head.headers), body


def after(data: bytes, cuts: list[int], *, is_head: bool = False) -> tuple[Any, HttpLine, FakeTransport]:
    """What comes of these bytes, received in pieces, when the connection ends afterwards."""

    async def run() -> tuple[Any, HttpLine, FakeTransport]:
        transport = FakeTransport()
        line = line_with(transport, is_head=is_head)
        ends = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
        for start, end in pairwise(ends):
            if not transport.is_aborted:
                line.data_received(data[start:end])
        line.connection_lost(None)
        return await outcome(line), line, transport

    return asyncio.run(run())


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
VALID = {
    "content-length": OK,
    "chunked": CHUNKED + b"3\r\nabc\r\n0\r\n\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n",
    "after hints": b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK,
    "last of its connection": b"HTTP/1.1 500 Oh\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx",
    "misdirected": b"HTTP/1.1 421 M\r\nx-tabherd-misdirected: 1\r\ncontent-length: 0\r\n\r\n",
}
WRONG = {
    "nothing": b"",
    "not HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "an older HTTP": b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
    "an upgrade": b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    "no such status": b"HTTP/1.1 999 X\r\ncontent-length: 0\r\n\r\n",
    "status zero": b"HTTP/1.1 000 X\r\ncontent-length: 0\r\n\r\n",
    "no length": b"HTTP/1.1 200 OK\r\n\r\nabc",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabc",
    "length and chunks": CHUNKED.replace(b"\r\n", b"\r\ncontent-length: 3\r\n", 1) + b"3\r\nabc\r\n0\r\n\r\n",
    "another coding": b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "negative length": b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "half a body": b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab",
    "half a chunk": CHUNKED + b"5\r\nab",
    "no last chunk": CHUNKED + b"2\r\nab\r\n",
    "no such chunk": CHUNKED + b"zz\r\nab\r\n",
    "a folded header": b"HTTP/1.1 200 OK\r\na: b\r\n c\r\ncontent-length: 0\r\n\r\n",
    "a bare line feed": b"HTTP/1.1 200 OK\ncontent-length: 0\n\n",
    "a zero byte": b"HTTP/1.1 200 OK\r\na: \x00\r\ncontent-length: 0\r\n\r\n",
    "a huge head": b"HTTP/1.1 200 OK\r\na: " + b"x" * HEAD_MAX_BYTES + b"\r\ncontent-length: 0\r\n\r\n",
    "a head without end": b"HTTP/1.1 200 OK\r\na: " + b"x" * (2 * HEAD_MAX_BYTES),
    "hints without end": b"HTTP/1.1 103 Early Hints\r\n\r\n" * (HEAD_MAX_BYTES // 10),
    "a trailer without end": CHUNKED + b"0\r\na: " + b"x" * (2 * HEAD_MAX_BYTES),
}


@pytest.mark.parametrize("data", VALID.values(), ids=VALID)
def test_an_answer_is_read_whole(data: bytes) -> None:
    answer, _, transport = after(data, [])
    assert isinstance(answer, tuple)
    assert not transport.is_aborted


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_what_is_no_whole_answer_is_a_loss(data: bytes) -> None:
    assert isinstance(after(data, [])[0], str)


@pytest.mark.parametrize("name", ["a head without end", "hints without end", "a trailer without end"])
def test_what_has_no_end_is_cut_off(name: str) -> None:
    data = WRONG[name]
    assert after(data, list(range(0, len(data), 4_096)))[2].is_aborted


@given(st.sampled_from([*VALID, *WRONG]), st.lists(st.integers(0, 1 << 20), max_size=10))
def test_how_an_answer_is_cut_into_packets_does_not_matter(name: str, cuts: list[int]) -> None:
    data = (VALID | WRONG)[name]
    whole, pieces = after(data, [])[0], after(data, cuts)[0]
    assert pieces == whole or (isinstance(whole, str) and isinstance(pieces, str))


@given(st.data())
def test_no_bytes_raise_or_make_an_answer_of_what_is_none(data: st.DataObject) -> None:
    bytes_ = bytearray((VALID | WRONG)[data.draw(st.sampled_from([*VALID, *list(WRONG)[:-4]]))])
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(bytes_)))
        piece = data.draw(
            st.binary(max_size=6) | st.sampled_from([b"\r\n", b"\r\n\r\n", b"HTTP/1.1 ", b": ", b"0\r\n"])
        )
        bytes_[at : at + data.draw(st.integers(0, 4))] = piece
    answer, line, _ = after(bytes(bytes_), data.draw(st.lists(st.integers(0, 200), max_size=4)))
    assert line.failure is not None
    if not isinstance(answer, str):
        status, headers, body = answer
        fields = dict(headers)
        # Whatever was taken for an answer is one that can be passed on: its length is what it says.
        assert 200 <= status <= 599
        if status not in (204, 304) and b"transfer-encoding" not in fields:
            assert len(body) == int(fields[b"content-length"])
        assert not any(set(name + value) & set(b"\r\n\0") for name, value in headers)


@given(st.binary(max_size=100))
def test_any_bytes_at_all_end_in_an_answer_or_a_loss(data: bytes) -> None:
    assert isinstance(after(data, [])[0], str | tuple)


async def test_an_answer_to_head_has_no_body_and_is_the_last_of_its_connection() -> None:
    line = line_with(FakeTransport(), is_head=True)
    line.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
    assert await outcome(line) == (200, ((b"content-length", b"5"),), b"")
    assert not line.rest()


@pytest.mark.parametrize("extra", [OK, b"garbage", b"\x00"])
@pytest.mark.parametrize("is_together", [True, False])
async def test_an_answer_nobody_asked_for_is_not_given_to_the_next_request(extra: bytes, is_together: bool) -> None:
    line = line_with(FakeTransport())
    if is_together:
        line.data_received(OK + extra)
    else:
        line.data_received(OK)
        line.data_received(extra)
    assert (await outcome(line))[2] == b"ok"
    assert not line.rest()


async def test_whoever_speaks_before_it_is_asked_is_cut_off() -> None:
    transport = FakeTransport()
    line = line_with(transport)
    line.data_received(OK)
    assert line.rest()
    line.data_received(OK)
    assert transport.is_aborted


async def test_a_line_serves_one_request_at_a_time() -> None:
    line = line_with(FakeTransport())
    with pytest.raises(AssertionError, match="one request"):
        line.begin(b"another", is_head=False, is_whole=True)


async def test_a_connection_that_the_other_side_ends_is_not_used_again() -> None:
    line = line_with(FakeTransport())
    line.data_received(VALID["last of its connection"])
    assert (await outcome(line))[0] == 500
    assert not line.rest()


async def test_a_connection_whose_request_was_not_all_sent_is_not_used_again() -> None:
    line = HttpLine(peer_at(1))
    line.connection_made(FakeTransport())  # type: ignore[arg-type]
    line.begin(b"half", is_head=False, is_whole=False)
    line.data_received(OK)
    assert not line.rest()


async def test_a_reader_that_is_behind_makes_the_other_side_wait() -> None:
    transport = FakeTransport()
    line = line_with(transport)
    line.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (4 * HIGH_WATER_BYTES))
    line.data_received(b"x" * (HIGH_WATER_BYTES + 1))
    assert transport.is_paused
    await line.read()
    assert not transport.is_paused


async def test_what_came_before_a_loss_is_read_first() -> None:
    line = line_with(FakeTransport())
    line.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab")
    line.connection_lost(None)
    assert (await line.head()).status == 200
    assert await line.read() == b"ab"
    with pytest.raises(Lost):
        await line.read()
