"""A caller of the server: one keep-alive HTTP/1.1 connection with as little as possible in the way.

What a client library costs is not what is measured, so requests are bytes on a socket here. `Caller` blocks; a `Line`
is the same for those who are many.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import msgspec

# Longer than anything that is measured may take.
ANSWER_LIMIT_S: Final = 120.0
_RECEIVE_BYTES: Final = 1 << 16
_CONTENT_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        super().__init__(f"{status} {error.get('code')}: {error.get('message')}")
        self.status = status
        self.code: str = error.get("code", "")


class Opened(msgspec.Struct, frozen=True):
    """A session and its first tab."""

    session_id: str
    tab_id: str


class Caller:
    """One connection. Use it in `with`."""

    def __init__(self, url: str, token: str) -> None:
        self._head = _head(url, token)
        self._socket = socket.create_connection(_address(url), timeout=ANSWER_LIMIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The decoded answer, None for an empty one; raises `Refused`."""
        self._socket.sendall(_request(method, path, self._head, body))
        return _decoded(*self._receive())

    def open(self, **body: Any) -> Opened:
        """Lease a session."""
        session = self.call("POST", "/sessions", body)
        return Opened(session["sessionId"], session["tabs"][0]["tabId"])

    def evaluate(self, tab_id: str, expression: str = "1 + 1") -> Any:
        """The value of an expression in the page; raises `Refused`, also when the page did not answer it."""
        return self.act(tab_id, "evaluate", expression=expression)

    def act(self, tab_id: str, kind: str, **params: Any) -> Any:
        """The result of an action on the page; raises `Refused`, also when the action failed."""
        done = self.call("POST", f"/tabs/{tab_id}/action", {"kind": kind, **params})
        if not done["ok"]:
            raise Refused(200, done["error"])
        return done["result"]

    def release(self, session: Opened, disposition: str = "close") -> None:
        self.call("DELETE", f"/sessions/{session.session_id}?disposition={disposition}")

    def browser_pids(self, pool: str = "default") -> list[int]:
        """The pids of the browsers that a pool has ready."""
        browsers = self.call("GET", "/browsers")["browsers"]
        return [each["pid"] for each in browsers if each["pool"] == pool and each["state"] == "ready"]

    def stock(self, pool: str) -> int:
        """How many warm contexts a pool has."""
        return sum(each["stock"] for each in self.call("GET", "/browsers")["browsers"] if each["pool"] == pool)

    def _receive(self) -> tuple[int, bytes]:
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._more()
        head, _, answer = received.partition(b"\r\n\r\n")
        status, length = _status_and_length(head)
        missing = length - len(answer)
        while missing > 0:
            chunk = self._more()
            answer += chunk
            missing -= len(chunk)
        return status, answer

    def _more(self) -> bytes:
        chunk = self._socket.recv(_RECEIVE_BYTES)
        if not chunk:
            raise ConnectionResetError("the server closed the connection")
        return chunk


class Line:
    """One connection that does not block; one call at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        self._reader = reader
        self._writer = writer
        self._head = head

    @classmethod
    async def open(cls, url: str, token: str) -> Self:
        reader, writer = await asyncio.open_connection(*_address(url))
        return cls(reader, writer, _head(url, token))

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """As `Caller.call`."""
        self._writer.write(_request(method, path, self._head, body))
        head = await self._reader.readuntil(b"\r\n\r\n")
        status, length = _status_and_length(head)
        return _decoded(status, await self._reader.readexactly(length))

    def close(self) -> None:
        self._writer.close()


def _address(url: str) -> tuple[str, int]:
    where = urlsplit(url)
    assert where.hostname is not None
    assert where.port is not None
    return where.hostname, where.port


def _head(url: str, token: str) -> str:
    """What every request of a connection has in it."""
    return f"Host: {urlsplit(url).netloc}\r\nAuthorization: Bearer {token}\r\n"


def _request(method: str, path: str, head: str, body: Any) -> bytes:
    content = b"" if body is None else msgspec.json.encode(body)
    start = f"{method} {path} HTTP/1.1\r\n{head}Content-Length: {len(content)}\r\n"
    start += "Content-Type: application/json\r\n\r\n" if content else "\r\n"
    return start.encode("ascii") + content


def _status_and_length(head: bytes) -> tuple[int, int]:
    length = _CONTENT_LENGTH.search(head)
    return int(head.split(b" ", 2)[1]), int(length[1]) if length else 0


def _decoded(status: int, answer: bytes) -> Any:
    decoded = msgspec.json.decode(answer) if answer else None
    if status >= 400:
        raise Refused(status, decoded or {})
    return decoded


def now_ms() -> float:
    """For durations."""
    return time.perf_counter() * 1000
