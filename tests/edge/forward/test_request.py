"""What of a client's head reaches another node, and that nothing else can get into it."""

from __future__ import annotations

from typing import Any

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabherd.edge.forward.request import declared_length, passed_on, request_head
from tabherd.errors import InvalidRequest

FRAMING = ((b"content-length", b"0"),)
# What may stand in a head, and what may not.
names = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1).map(str.encode) | st.binary(max_size=5)
values = st.binary(max_size=20) | st.sampled_from([b"", b"chunked", b"5", b"a\r\nb: c", b"a\nb", b"a\x00b"])


class Read:
    """A request as the other node's server reads it."""

    def __init__(self, data: bytes) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.target = b""
        self.requests = 0
        parser = httptools.HttpRequestParser(self)
        parser.feed_data(data)
        self.method = parser.get_method()

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_message_complete(self) -> None:
        self.requests += 1


@pytest.mark.parametrize(
    "name",
    [b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect", b"content-length"],
)
def test_what_concerns_one_connection_stays_there(name: bytes) -> None:
    assert passed_on([(name, b"x"), (b"accept", b"*/*")], ()) == [(b"accept", b"*/*")]


@pytest.mark.parametrize("is_first", [True, False])
def test_what_connection_names_stays_there_too(is_first: bool) -> None:
    fields = [(b"x-secret", b"1"), (b"connection", b"close, X-Secret")]
    assert passed_on(fields[::-1] if is_first else fields, ()) == []


def test_connection_cannot_take_the_host_away() -> None:
    assert passed_on([(b"connection", b"host"), (b"host", b"a")], ()) == [(b"host", b"a")]


def test_a_client_cannot_speak_as_a_node() -> None:
    assert passed_on([(b"x-tabherd-hop", b"forged"), (b"x-tabherd-anything", b"1")], ()) == []


def test_a_header_that_is_given_replaces_all_of_its_name() -> None:
    fields = [(b"x-request-id", b"theirs"), (b"x-request-id", b"again"), (b"accept", b"*/*")]
    assert passed_on(fields, ((b"x-request-id", b"ours"),)) == [(b"accept", b"*/*"), (b"x-request-id", b"ours")]


@pytest.mark.parametrize(
    ("method", "target", "fields"),
    [
        ("GET\r\nX: y", b"/", []),
        ("GET /other", b"/", []),
        ("", b"/", []),
        ("GET", b"/a b", []),
        ("GET", b"/\r\nx: y", []),
        ("GET", b"/ HTTP/1.1\r\n\r\nGET /", []),
        ("GET", b"http://elsewhere/", []),
        ("GET", b"", []),
        ("GET", b"/", [(b"a\r\nb", b"c")]),
        ("GET", b"/", [(b"a:", b"c")]),
        ("GET", b"/", [(b"", b"c")]),
        ("GET", b"/", [(b"a", b"b\r\nc: d")]),
        ("GET", b"/", [(b"a", b"b\nc")]),
        ("GET", b"/", [(b"a", b"b\x00")]),
        ("GET", b"/", [(b"a", b"b\x7f")]),
    ],
)
def test_nothing_that_ends_a_line_gets_into_a_head(method: str, target: bytes, fields: Any) -> None:
    with pytest.raises(InvalidRequest):
        request_head(method, target, fields, FRAMING)


@given(st.lists(st.tuples(names, values), max_size=8), st.binary(max_size=20))
def test_whatever_comes_in_one_request_with_those_headers_goes_out_or_none(
    fields: list[tuple[bytes, bytes]], path: bytes
) -> None:
    kept = passed_on([(name.lower(), value) for name, value in fields], ())
    try:
        head = request_head("POST", b"/" + path, kept, FRAMING)
    except InvalidRequest:
        return
    read = Read(head)
    assert (read.method, read.target, read.requests) == (b"POST", b"/" + path, 1)
    assert read.headers == [(name, value.strip(b" \t")) for name, value in [*kept, *FRAMING]]


@given(st.lists(st.tuples(st.sampled_from([b"content-length", b"transfer-encoding", b"connection"]), values)))
def test_only_this_node_says_how_long_a_request_is(fields: list[tuple[bytes, bytes]]) -> None:
    assert passed_on(fields, ()) == []


@pytest.mark.parametrize(
    ("values", "length"),
    [([], None), ([b"5"], 5), ([b"5", b"5"], None), ([b"+5"], None), ([b"5 "], None), ([b"9" * 30], None)],
)
def test_a_length_counts_only_if_it_is_said_once_and_clearly(values: list[bytes], length: int | None) -> None:
    assert declared_length([(b"content-length", value) for value in values]) == length
