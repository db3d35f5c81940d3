"""Submits tasks from a process of its own, over several kept connections, each the next when it has its answer.

What it costs must not be what is measured, so requests are made beforehand, are bytes on a socket, and of an answer
only its status and its length are read.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec
import uvloop

LIMIT_S: Final = 120.0
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be submitted."""

    url: str
    token: str
    # Paths and bodies, sent in turns, so many in all.
    posts: list[tuple[str, Any]]
    requests: int
    connections: int


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """How that went: every request was accepted."""

    # By the clock that all processes of the machine share; and how much of it was this process's CPU.
    began_s: float
    ended_s: float
    cpu_s: float
    # From each request to its answer.
    answers_ms: list[float]


def submit(order: Order) -> Submitted:
    """Do it, from a process that ends with it; raises when anything was refused."""
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=msgspec.json.encode(order),
        stdout=subprocess.PIPE,
        timeout=2 * LIMIT_S,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Submitted)


class _Connection(asyncio.Protocol):
    """Sends one request after the other."""

    def __init__(self, requests: Iterator[bytes], answers_ms: list[float]) -> None:
        # Set when there are no more requests, or one was refused.
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests = requests
        self._answers_ms = answers_ms
        self._transport: asyncio.Transport | None = None
        self._sent_s = 0.0
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def begin(self) -> None:
        """Send the first request; the others follow."""
        assert self._transport is not None
        request = next(self._requests, None)
        if request is None:
            self.over.set_result(None)
            return
        self._sent_s = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        received = self._received = self._received + data if self._received else data
        end = received.find(b"\r\n\r\n")
        length = _LENGTH.search(received, 0, end) if end > 0 else None
        if length is None or len(received) < end + 4 + int(length[1]):
            return
        self._received = b""
        self._answers_ms.append((time.perf_counter() - self._sent_s) * 1000)
        if received[9:10] != b"2":
            self.over.set_exception(RuntimeError(received[:500].decode(errors="replace")))
        else:
            self.begin()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(ConnectionResetError("the server closed the connection"))


async def _submit(order: Order) -> Submitted:
    where = urlsplit(order.url)
    assert where.hostname is not None
    assert where.port is not None
    answers_ms: list[float] = []
    requests = itertools.islice(itertools.cycle(_requests(order, where.netloc)), order.requests)
    loop = asyncio.get_running_loop()
    connections: list[_Connection] = []
    for _ in range(order.connections):
        _, connection = await loop.create_connection(
            lambda: _Connection(requests, answers_ms), where.hostname, where.port
        )
        connections.append(connection)
    began_s, cpu_s = time.perf_counter(), time.process_time()
    for connection in connections:
        connection.begin()
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*(connection.over for connection in connections))
    return Submitted(
        began_s=began_s,
        ended_s=time.perf_counter(),
        cpu_s=time.process_time() - cpu_s,
        answers_ms=answers_ms,
    )


def _requests(order: Order, host: str) -> Sequence[bytes]:
    made = []
    for path, body in order.posts:
        content = msgspec.json.encode(body)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {order.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        made.append(head.encode("ascii") + content)
    return made


if __name__ == "__main__":
    done = uvloop.run(_submit(msgspec.json.decode(sys.stdin.buffer.read(), type=Order)))
    sys.stdout.buffer.write(msgspec.json.encode(done))
