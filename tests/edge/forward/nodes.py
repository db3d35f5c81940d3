"""Other nodes to forward to, real or scripted byte by byte, and a client that is an ASGI server's end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from tabherd.cluster.peer import Peer
from tabherd.edge.server import Front

KEY = b"k" * 32
NOW_MS = 1_700_000_000_000
# Nothing waits longer than this for anything; no test depends on how long it is.
LIMIT_S = 60
CLIENT = ("10.1.2.3", 4567)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
MISDIRECTED = b"HTTP/1.1 421 Misdirected\r\nx-tabherd-misdirected: 1\r\ncontent-length: 2\r\n\r\n{}"

Talk = Callable[["Wire"], Awaitable[None]]


def peer_at(port: int) -> Peer:
    return Peer("nod_b", 3, f"http://127.0.0.1:{port}")


class Wire:
    """A scripted node's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self.reader = reader
        self.writer = writer
        # Which connection of the node this is, from 0.
        self.number = number

    async def request(self) -> bytes:
        """The next request's head; its body is read too, if it says how long it is."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        for line in head.split(b"\r\n"):
            if line.startswith(b"content-length: "):
                await self.reader.readexactly(int(line[16:]))
        return head

    async def gone(self) -> None:
        """Until the other side has left; what it still says is skipped."""
        try:
            while await self.reader.read(1 << 16):
                pass
        except ConnectionError:
            pass

    def write(self, data: bytes) -> None:
        self.writer.write(data)


class Scripted:
    """A node that does on each connection what the test says."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.peer = peer_at(port)
        # How many connections were made.
        self.connections = 0
        # What its script raised, which ends the test.
        self.failures: list[Exception] = []


@asynccontextmanager
async def scripted(talk: Talk) -> AsyncIterator[Scripted]:
    """A node that talks like that; a connection ends when its talk does."""
    talks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        wire = Wire(reader, writer, node.connections)
        node.connections += 1
        try:
            await talk(wire)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            # Whoever it spoke with has left, or the test is over.
            pass
        except Exception as error:
            node.failures.append(error)
            raise
        finally:
            writer.close()
            talks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    node = Scripted(server.sockets[0].getsockname()[1])
    try:
        yield node
        assert not node.failures
    finally:
        server.close()
        for task in list(talks):
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)


def saying(*answers: bytes) -> Talk:
    """Answers each request on a connection with the next of these, then hangs up."""

    async def talk(wire: Wire) -> None:
        for answer in answers:
            await wire.request()
            wire.write(answer)
            await wire.writer.drain()

    return talk


@asynccontextmanager
async def serving(app: Any, doors: Any = None) -> AsyncIterator[int]:
    """A real server with that application, and its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        front = Front(app, doors)
        running = asyncio.create_task(front.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            front.should_exit = True
            await running


class Client:
    """A client's request as an ASGI application gets it, and what it is answered."""

    def __init__(
        self,
        method: str = "GET",
        target: bytes = b"/tabs",
        body: Iterable[bytes] = (b"",),
        headers: Iterable[tuple[bytes, bytes]] = (),
        *,
        is_endless: bool = False,
    ) -> None:
        path, _, query = target.partition(b"?")
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "raw_path": path,
            "query_string": query,
            "headers": [(b"host", b"node-a:7722"), *headers],
            "client": CLIENT,
        }
        self._body = iter(body)
        self._next: bytes | None = next(self._body, None)
        self._is_endless = is_endless
        # How many pieces of its body were taken.
        self.taken = 0
        self.has_left = asyncio.Event()
        # While it is clear, the client does not read.
        self.reads = asyncio.Event()
        self.reads.set()
        self.sent: list[dict[str, Any]] = []
        self.has_heard = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self._next is None or self.has_left.is_set():
            await self.has_left.wait()
            return {"type": "http.disconnect"}
        piece, self._next = self._next, next(self._body, None)
        self.taken += 1
        await asyncio.sleep(0)
        return {"type": "http.request", "body": piece, "more_body": self._next is not None or self._is_endless}

    async def send(self, message: Any) -> None:
        await self.reads.wait()
        self.sent.append(message)
        self.has_heard.set()

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return list(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])

    @property
    def is_answered(self) -> bool:
        """Whether the answer is all there."""
        return bool(self.sent) and self.sent[-1].get("more_body") is False


async def until(is_so: Callable[[], bool]) -> None:
    """Bounded: what never comes is a failure."""
    async with asyncio.timeout(LIMIT_S):
        while not is_so():
            await asyncio.sleep(0.002)
