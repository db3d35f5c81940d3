"""A caller of the server: one keep-alive HTTP/1.1 connection with as little as possible in the way.

What a client library costs is not what is measured, so requests are bytes on a socket here.
"""

from __future__ import annotations

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
        where = urlsplit(url)
        assert where.hostname is not None
        assert where.port is not None
        self._head = f"Host: {where.netloc}\r\nAuthorization: Bearer {token}\r\n"
        self._socket = socket.create_connection((where.hostname, where.port), timeout=ANSWER_LIMIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The decoded answer, None for an empty one; raises `Refused`."""
        content = b"" if body is None else msgspec.json.encode(body)
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: {len(content)}\r\n"
        head += "Content-Type: application/json\r\n\r\n" if content else "\r\n"
        self._socket.sendall(head.encode("ascii") + content)
        status, answer = self._receive()
        decoded = msgspec.json.decode(answer) if answer else None
        if status >= 400:
            raise Refused(status, decoded or {})
        return decoded

    def open(self, **body: Any) -> Opened:
        """Lease a session."""
        session = self.call("POST", "/sessions", body)
        return Opened(session["sessionId"], session["tabs"][0]["tabId"])

    def evaluate(self, tab_id: str, expression: str = "1 + 1") -> Any:
        """The value of an expression in the page; raises `Refused`, also when the page did not answer it."""
        done = self.call("POST", f"/tabs/{tab_id}/action", {"kind": "evaluate", "expression": expression})
        if not done["ok"]:
            raise Refused(200, done["error"])
        return done["result"]

    def release(self, session: Opened) -> None:
        self.call("DELETE", f"/sessions/{session.session_id}")

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
        length = _CONTENT_LENGTH.search(head)
        missing = (int(length[1]) if length else 0) - len(answer)
        while missing > 0:
            chunk = self._more()
            answer += chunk
            missing -= len(chunk)
        return int(head.split(b" ", 2)[1]), answer

    def _more(self) -> bytes:
        chunk = self._socket.recv(_RECEIVE_BYTES)
        if not chunk:
            raise ConnectionResetError("the server closed the connection")
        return chunk


def now_ms() -> float:
    """For durations."""
    return time.perf_counter() * 1000
