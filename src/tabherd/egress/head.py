"""Reads and rewrites the heads of HTTP/1.1 messages as a forward proxy must, and says where their bodies end.

Pure: bytes come in, bytes go out.

Invariants:
- What both sides could understand differently is refused, never guessed: two lengths, a length beside chunks, a target
  with credentials, a line that folds. So one request cannot hide in another.
- The host that was judged is the host that is asked for: the Host header is written anew from the target.
- Headers that belong to one connection (Connection and what it names, Proxy-*, Upgrade, ...) are not passed on.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from .policy import Host, read_host

Headers = list[tuple[bytes, bytes]]

HTTP_PORT: Final = 80
# Digits that a length can have without being nonsense.
LENGTH_MAX_DIGITS: Final = 18
_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_REQUEST: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e\x80-\xff]+) HTTP/1\.1")
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-9]\d\d)(?: ([\t\x20-\x7e\x80-\xff]*))?")
_ABSOLUTE: Final = re.compile(rb"http://([^/?#]+)([^#]*)", re.IGNORECASE)
_AUTHORITY: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:@\[\]]+)(?::(\d{1,5}))?")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*[;\r]")
_PER_CONNECTION: Final = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate"),
        *(b"proxy-authentication-info", b"te", b"upgrade", b"http2-settings"),
    )
)

_FRAMING: Final = frozenset((b"transfer-encoding", b"content-length"))


class BadHead(Exception):
    """This is not HTTP/1.1 as a proxy may pass it on; the message says why."""


class Target(msgspec.Struct, frozen=True):
    """Whom a request is for."""

    host: Host
    port: int
    # As it was written, for the Host header.
    authority: bytes


class Body(msgspec.Struct, frozen=True):
    """Where a body ends: after so many bytes, with its last chunk, or (neither) when the connection does."""

    length: int | None = None
    is_chunked: bool = False

    @property
    def is_empty(self) -> bool:
        return self.length == 0

    @property
    def is_endless(self) -> bool:
        return self.length is None and not self.is_chunked


NO_BODY: Final = Body(length=0)


class Request(msgspec.Struct, frozen=True):
    """The head of a request."""

    method: bytes
    target: Target
    # Path and query; empty for CONNECT.
    path: bytes
    headers: Headers
    body: Body

    @property
    def is_tunnel(self) -> bool:
        return self.method == b"CONNECT"

    @property
    def may_reuse(self) -> bool:
        """Whether the client wants to send another request on this connection."""
        return b"close" not in _words(self.headers, b"connection") | _words(self.headers, b"proxy-connection")

    def onward(self) -> bytes:
        """The head that the origin gets."""
        kept = _passed_on(self.headers, but=b"host")
        return _join(b"%s %s HTTP/1.1" % (self.method, self.path), [(b"Host", self.target.authority), *kept])


class Response(msgspec.Struct, frozen=True):
    """The head of a response."""

    status: int
    reason: bytes
    headers: Headers
    body: Body
    # Whether the origin keeps its connection open for another request.
    may_reuse: bool

    @property
    def is_interim(self) -> bool:
        return self.status < 200

    def onward(self, *, is_last: bool) -> bytes:
        """The head that the client gets; `is_last`: the connection is closed after this one."""
        # Of a length beside chunks only the chunks count, and nobody after us shall believe otherwise.
        kept = _passed_on(self.headers, but=b"content-length" if self.body.is_chunked else b"")
        if is_last:
            kept.append((b"Connection", b"close"))
        return _join(b"HTTP/1.1 %d %s" % (self.status, self.reason), kept)


def read_request(raw: bytes) -> Request:
    """Raises BadHead. `raw` ends with the empty line."""
    first, headers = _read(raw)
    found = _REQUEST.fullmatch(first)
    if found is None:
        raise BadHead("This is a proxy for HTTP/1.1.")
    method, target = found.groups()
    if method == b"CONNECT":
        return Request(method, read_target(target, default_port=None), b"", headers, NO_BODY)
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        # Not a request to a proxy at all: somebody opened this port like a web site.
        raise BadHead("This is a proxy: it takes CONNECT, and requests for whole http:// addresses.")
    path = absolute[2] if absolute[2].startswith(b"/") else b"/" + absolute[2]
    return Request(method, read_target(absolute[1], default_port=HTTP_PORT), path, headers, _request_body(headers))


def read_target(authority: bytes, *, default_port: int | None) -> Target:
    """Raises BadHead when this is not `host:port`, or not `host` where there is a default."""
    try:
        found = _AUTHORITY.fullmatch(authority.decode("ascii"))
        if found is not None and (port := int(found[2] or default_port or 0)) in range(1, 65_536):
            return Target(read_host(found[1]), port, authority)
    except ValueError as error:
        raise BadHead(f"The target has no valid host: {error}.") from None
    raise BadHead("The target is not host:port.")


def read_response(raw: bytes, method: bytes) -> Response:
    """The answer to a request with that method. Raises BadHead. `raw` ends with the empty line."""
    first, headers = _read(raw)
    found = _STATUS.fullmatch(first)
    if found is None:
        raise BadHead("The site does not answer in HTTP/1.1.")
    minor, status, reason = found[1], int(found[2]), found[3] or b""
    if status == 101:
        raise BadHead("The site changes the protocol, which nobody asked for.")
    has_none = method == b"HEAD" or status < 200 or status in (204, 304)
    body = NO_BODY if has_none else _response_body(headers)
    may_reuse = minor == b"1" and b"close" not in _words(headers, b"connection") and not body.is_endless
    return Response(status, reason, headers, body, may_reuse)


def read_chunk_size(line: bytes) -> int:
    """The size in a chunk's first line. Raises BadHead."""
    found = _CHUNK.match(line)
    if found is None:
        raise BadHead("A chunk has no valid size.")
    return int(found[1], 16)


def _read(raw: bytes) -> tuple[bytes, Headers]:
    first, *lines = raw[:-4].split(b"\r\n")
    headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _TOKEN.fullmatch(name) or b"\n" in value or b"\r" in value or b"\0" in value:
            raise BadHead("A header line is not valid.")
        headers.append((name, value.strip(b" \t")))
    return first, headers


def _request_body(headers: Headers) -> Body:
    codings = _values(headers, b"transfer-encoding")
    if not codings:
        return Body(length=_length(headers) or 0)
    if [coding.lower() for coding in codings] != [b"chunked"] or _values(headers, b"content-length"):
        raise BadHead("The end of the request's body cannot be told for certain.")
    return Body(is_chunked=True)


def _response_body(headers: Headers) -> Body:
    if codings := _values(headers, b"transfer-encoding"):
        return Body(is_chunked=codings[-1].rpartition(b",")[2].strip(b" \t").lower() == b"chunked")
    return Body(length=_length(headers))


def _length(headers: Headers) -> int | None:
    values = {each.strip(b" \t") for value in _values(headers, b"content-length") for each in value.split(b",")}
    if not values:
        return None
    value = values.pop()
    if values or not value.isdigit() or len(value) > LENGTH_MAX_DIGITS:
        raise BadHead("The length of the body cannot be told for certain.")
    return int(value)


def _values(headers: Headers, wanted: bytes) -> list[bytes]:
    return [value for name, value in headers if name.lower() == wanted]


def _words(headers: Headers, wanted: bytes) -> set[bytes]:
    return {word.strip(b" \t").lower() for value in _values(headers, wanted) for word in value.split(b",")}


def _passed_on(headers: Headers, *, but: bytes) -> Headers:
    # What says where the message ends is not for a Connection header to take away.
    dropped = _PER_CONNECTION | (_words(headers, b"connection") - _FRAMING) | {but}
    return [(name, value) for name, value in headers if name.lower() not in dropped]


def _join(first: bytes, headers: Headers) -> bytes:
    return b"\r\n".join((first, *(b"%s: %s" % header for header in headers), b"", b""))
