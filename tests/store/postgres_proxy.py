"""What can stand between a store and its PostgreSQL: a line that is cut or goes deaf, and a pooler of transactions."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

# A startup packet has a length and no type; this number in it asks for TLS.
_TLS_REQUEST = 80877103


class Line:
    """Carries bytes to a port until it is told otherwise."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._carriers: set[asyncio.Task[None]] = set()
        # While it is clear, nothing that the server says arrives.
        self._is_heard = asyncio.Event()
        self._is_heard.set()
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def deafen(self) -> None:
        self._is_heard.clear()

    def cut(self) -> None:
        """End the connections there are; new ones are carried as before."""
        for writer in list(self._open):
            writer.transport.abort()
        self._is_heard.set()

    async def stop(self) -> None:
        """Refuse new connections and end those there are."""
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._carriers, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        carrier = asyncio.current_task()
        assert carrier is not None
        self._carriers.add(carrier)
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._open |= {writer, there_writer}
        try:
            await asyncio.gather(self._pipe(reader, there_writer, False), self._pipe(there_reader, writer, True))
        except OSError:
            pass
        finally:
            for end in (writer, there_writer):
                end.transport.abort()
            self._open -= {writer, there_writer}
            self._carriers.discard(carrier)

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_answer: bool) -> None:
        while data := await reader.read(65_536):
            if is_answer:
                await self._is_heard.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


@asynccontextmanager
async def line_to(port: int) -> AsyncIterator[Line]:
    line = Line(port)
    await line.start()
    try:
        yield line
    finally:
        await line.stop()


class Pooler:
    """A client's every transaction goes to the server connection that has waited longest, as with PgBouncer.

    So something that a client has left on a connection is not there when it comes back, and another's may be.
    """

    def __init__(self, target: int, size: int) -> None:
        self._target = target
        self._size = size
        self._idle: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self._writers: list[asyncio.StreamWriter] = []
        self._clients: set[asyncio.Task[None]] = set()
        # What a server says to somebody who has logged in, to be said to clients: all but the number of the process.
        self._greeting = b""
        self.transactions = 0
        self.port = 0

    async def start(self) -> asyncio.Server:
        for _ in range(self._size):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.append(writer)
            settings = b"user\0postgres\0database\0postgres\0client_encoding\0utf-8\0\0"
            writer.write(struct.pack("!II", len(settings) + 8, 196608) + settings)
            greeting = b""
            while (message := await _message(reader))[:1] != b"Z":
                greeting += struct.pack("!cIII", b"K", 12, 1, 1) if message[:1] == b"K" else message
            self._greeting = greeting + message
            self._idle.put_nowait((reader, writer))
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def stop(self) -> None:
        for client in list(self._clients):
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.current_task()
        assert client is not None
        self._clients.add(client)
        try:
            with closing(writer):
                length, code = struct.unpack("!II", await reader.readexactly(8))
                if code == _TLS_REQUEST:
                    writer.write(b"N")
                    length, code = struct.unpack("!II", await reader.readexactly(8))
                assert b"options" not in await reader.readexactly(length - 8), "a pooler knows no options"
                writer.write(self._greeting)
                while True:
                    first = await _message(reader)
                    if first[:1] == b"X":
                        return
                    await self._transaction(first, reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            return
        finally:
            self._clients.discard(client)

    async def _transaction(self, message: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """From the first message to the moment at which the server is outside a transaction again."""
        self.transactions += 1
        server_reader, server_writer = server = await self._idle.get()
        while True:
            server_writer.write(message)
            # The last message of an answer, by what was sent: queries and synchronisations are answered in full, and
            # before a flush the driver has had a statement described.
            last = {b"Q": b"Z", b"S": b"Z", b"H": b"TnE"}.get(message[:1], b"")
            answer = b""
            while last and answer[:1] not in {bytes([kind]) for kind in last}:
                answer = await _message(server_reader)
                if answer[5:] == b"I" and answer[:1] == b"Z":
                    # Before the client can hear of it, so that its next transaction is on another connection.
                    self._idle.put_nowait(server)
                    writer.write(answer)
                    return
                writer.write(answer)
            message = await _message(reader)


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    (length,) = struct.unpack("!I", head[1:])
    return head + await reader.readexactly(length - 4)


@asynccontextmanager
async def pooler_to(port: int, size: int = 3) -> AsyncIterator[Pooler]:
    pooler = Pooler(port, size)
    server = await pooler.start()
    try:
        yield pooler
    finally:
        server.close()
        await pooler.stop()
