"""HTTP heads: what is passed on, what is left out, and what is refused because two sides could read it differently."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabherd.egress.head import BadHead, Body, read_chunk_size, read_request, read_response


def request(first: str, *headers: str) -> bytes:
    return "\r\n".join((first, *headers, "", "")).encode("latin-1")


def test_a_request_is_passed_on_for_the_host_that_was_judged() -> None:
    read = read_request(request("GET http://a.test:81/p?q HTTP/1.1", "Host: evil.test", "Accept: */*"))
    assert (read.target.host, read.target.port) == ("a.test", 81)
    assert read.onward() == b"GET /p?q HTTP/1.1\r\nHost: a.test:81\r\nAccept: */*\r\n\r\n"


def test_what_belongs_to_one_connection_is_left_out() -> None:
    read = read_request(
        request(
            "GET http://a.test/ HTTP/1.1",
            *("Connection: keep-alive, X-Mine", "X-Mine: 1", "Proxy-Connection: keep-alive", "Keep-Alive: 5"),
            *("Proxy-Authorization: Basic x", "TE: trailers", "Upgrade: h2c", "X-Kept: 2"),
        )
    )
    assert read.onward() == b"GET / HTTP/1.1\r\nHost: a.test\r\nX-Kept: 2\r\n\r\n"


def test_a_connection_header_cannot_take_the_framing_away() -> None:
    raw = request("POST http://a.test/ HTTP/1.1", "Connection: content-length", "Content-Length: 3")
    assert b"Content-Length: 3" in read_request(raw).onward()


@pytest.mark.parametrize(
    ("target", "path"), [("http://a.test", b"/"), ("http://a.test?q", b"/?q"), ("HTTP://a.test/x", b"/x")]
)
def test_a_target_without_a_path_gets_one(target: str, path: bytes) -> None:
    assert read_request(request(f"GET {target} HTTP/1.1")).path == path


def test_connect_names_a_host_and_a_port() -> None:
    read = read_request(request("CONNECT [::1]:443 HTTP/1.1"))
    assert (read.is_tunnel, str(read.target.host), read.target.port) == (True, "::1", 443)


@pytest.mark.parametrize(
    "first",
    [
        "GET / HTTP/1.1",
        "GET http://a.test/ HTTP/1.0",
        "GET https://a.test/ HTTP/1.1",
        "GET ftp://a.test/ HTTP/1.1",
        "CONNECT a.test HTTP/1.1",
        "CONNECT a.test:0 HTTP/1.1",
        "CONNECT a.test:65536 HTTP/1.1",
        "CONNECT / HTTP/1.1",
        "GET http://u:p@a.test/ HTTP/1.1",
        "GET http:///x HTTP/1.1",
        "GET http://a.test:x/ HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "GET  http://a.test/ HTTP/1.1",
        "GET http://a.test/#f HTTP/1.1",
        "GET http://a.test/ x HTTP/1.1",
        "",
        "\x16\x03\x01",
    ],
)
def test_what_is_no_request_to_a_proxy_is_refused(first: str) -> None:
    with pytest.raises(BadHead):
        read_request(request(first))


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 1", "Content-Length: 2"),
        ("Content-Length: 1, 2",),
        ("Content-Length: +1",),
        ("Content-Length: -1",),
        ("Content-Length: 0x10",),
        ("Content-Length: " + "9" * 19,),
        ("Content-Length: 1", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked, chunked",),
        ("Transfer-Encoding: gzip",),
        ("Transfer-Encoding: xchunked",),
        (" folded",),
        ("Name : space",),
        ("no colon",),
        ("Bare: a\nb",),
        ("Bare: a\rb",),
    ],
)
def test_a_request_whose_end_can_be_read_in_two_ways_is_refused(headers: tuple[str, ...]) -> None:
    with pytest.raises(BadHead):
        read_request(request("POST http://a.test/ HTTP/1.1", *headers))


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ((), Body(length=0)),
        (("Content-Length: 7", "Content-Length: 7"), Body(length=7)),
        (("transfer-encoding: Chunked",), Body(is_chunked=True)),
    ],
)
def test_the_end_of_a_request_is_known(headers: tuple[str, ...], body: Body) -> None:
    assert read_request(request("POST http://a.test/ HTTP/1.1", *headers)).body == body


@pytest.mark.parametrize(
    ("method", "status", "headers", "body"),
    [
        (b"GET", "200 OK", (), Body()),
        (b"GET", "200", ("Content-Length: 5",), Body(length=5)),
        (b"GET", "200 OK", ("Transfer-Encoding: gzip, chunked",), Body(is_chunked=True)),
        (b"GET", "200 OK", ("Transfer-Encoding: gzip",), Body()),
        (b"HEAD", "200 OK", ("Content-Length: 5",), Body(length=0)),
        (b"GET", "304 Not Modified", ("Content-Length: 5",), Body(length=0)),
        (b"GET", "204 No Content", (), Body(length=0)),
    ],
)
def test_the_end_of_an_answer_is_known(method: bytes, status: str, headers: tuple[str, ...], body: Body) -> None:
    assert read_response(request(f"HTTP/1.1 {status}", *headers), method).body == body


def test_of_a_length_beside_chunks_only_the_chunks_are_passed_on() -> None:
    raw = request("HTTP/1.1 200 OK", "Content-Length: 5", "Transfer-Encoding: chunked")
    assert read_response(raw, b"GET").onward(is_last=False) == request("HTTP/1.1 200 OK", "Transfer-Encoding: chunked")


@pytest.mark.parametrize(
    ("first", "headers"),
    [
        ("HTTP/1.0 200 OK", ("Content-Length: 1",)),
        ("HTTP/1.1 200 OK", ("Content-Length: 1", "Connection: Close")),
        ("HTTP/1.1 200 OK", ()),
    ],
)
def test_an_origin_that_closes_is_not_asked_again(first: str, headers: tuple[str, ...]) -> None:
    assert not read_response(request(first, *headers), b"GET").may_reuse


@pytest.mark.parametrize(
    "first", ["HTTP/2 200", "HTTP/1.1 20 OK", "HTTP/1.1 099 X", "ICY 200 OK", "HTTP/1.1 101 Switching Protocols"]
)
def test_what_is_no_answer_is_refused(first: str) -> None:
    with pytest.raises(BadHead):
        read_response(request(first), b"GET")


@pytest.mark.parametrize(("line", "size"), [(b"0\r\n", 0), (b"1A\r\n", 26), (b"a;x=y\r\n", 10), (b"5 \r\n", 5)])
def test_the_size_of_a_chunk_is_hexadecimal(line: bytes, size: int) -> None:
    assert read_chunk_size(line) == size


@pytest.mark.parametrize(
    "line", [b"\r\n", b"0x10\r\n", b"-1\r\n", b"+1\r\n", b"1_0\r\n", b"f" * 16 + b"\r\n", b" 1\r\n"]
)
def test_a_chunk_without_a_plain_size_is_refused(line: bytes) -> None:
    with pytest.raises(BadHead):
        read_chunk_size(line)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_head_or_a_refusal(raw: bytes) -> None:
    for read in (read_request, lambda head: read_response(head, b"GET")):
        with contextlib.suppress(BadHead):
            read(raw + b"\r\n\r\n")
