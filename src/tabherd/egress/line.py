"""Carries bytes between two connections: heads, bodies whose end is known, and tunnels that end when both sides do.

Invariants:
- Memory is bounded: whoever reads slowly slows the other side down.
- A client that leaves in the middle of an exchange takes the connection to the origin along, at once.
- A tunnel's directions end separately: one side's end is passed on, the other may go on sending.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from .head import BadHead, Body, read_chunk_size

# Longest head, and how much is read at once.
HEAD_MAX_BYTES: Final = 64 << 10
# Trailer lines of one body.
TRAILERS_MAX: Final = 100
# How much of what nobody wants is read before a connection is cut, and for how long.
LINGER_READS: Final = 64
LINGER_S: Final = 2.0


class Reader(asyncio.StreamReader):
    """A stream that says when its other side has ended it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=HEAD_MAX_BYTES, loop=loop)
        self._when_ended: Callable[[], object] | None = None

    def when_ended(self, callback: Callable[[], object] | None) -> None:
        """Call this when the other side ends; at once if it has ended already. None: nobody wants to know any more."""
        self._when_ended = callback
        if callback is not None and (self.exception() is not None or self.at_eof()):
            callback()

    def feed_eof(self) -> None:
        super().feed_eof()
        self._tell()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self._tell()

    def _tell(self) -> None:
        if self._when_ended is not None:
            self._when_ended()


class Line:
    """One connection, to a client or to an origin."""

    def __init__(self, reader: Reader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @property
    def is_over(self) -> bool:
        """Whether the other side has nothing more to say, or is gone."""
        return self.reader.at_eof() or self.reader.exception() is not None or self.writer.is_closing()

    async def read_head(self) -> bytes:
        """Up to and with the empty line; nothing when the other side ended instead. Raises BadHead when too long."""
        try:
            return await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return b""
        except asyncio.LimitOverrunError:
            raise BadHead(f"The head is larger than {HEAD_MAX_BYTES} bytes.") from None

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def end(self) -> None:
        """Say that nothing more follows."""
        if not self.writer.is_closing():
            self.writer.write_eof()

    def abort(self) -> None:
        """Cut it off, whatever is still on its way. Idempotent."""
        self.writer.transport.abort()

    async def close(self, *, is_answered: bool) -> None:
        """Close it. What the other side still sends is read for a moment after a last answer: else it may be lost."""
        try:
            if is_answered:
                async with asyncio.timeout(LINGER_S):
                    await self.writer.drain()
                    self.end()
                    for _ in range(LINGER_READS):
                        if not await self.reader.read(HEAD_MAX_BYTES):
                            break
        except (OSError, TimeoutError):
            # It does not listen, so there is nothing to wait for.
            self.abort()
        finally:
            self.writer.close()


async def open_line(host: str, port: int) -> Line:
    """Connect to that address, which is no name. Raises OSError."""
    loop = asyncio.get_running_loop()
    reader = Reader(loop)
    transport, protocol = await loop.create_connection(lambda: asyncio.StreamReaderProtocol(reader), host, port)
    # One that is gone without a word is noticed some day.
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return Line(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


async def copy_body(body: Body, source: Line, sink: Line, alive: Callable[[], None]) -> None:
    """Pass a body on as it is framed; `alive` is called with each piece. EOFError when it ends too early."""
    if body.is_chunked:
        await _copy_chunks(source, sink, alive)
    elif body.is_endless:
        while data := await source.reader.read(HEAD_MAX_BYTES):
            await sink.send(data)
            alive()
    else:
        await _copy_bytes(body.length or 0, source, sink, alive)


async def _copy_bytes(count: int, source: Line, sink: Line, alive: Callable[[], None]) -> None:
    while count:
        data = await source.reader.read(min(count, HEAD_MAX_BYTES))
        if not data:
            raise EOFError("the body is shorter than was said")
        count -= len(data)
        await sink.send(data)
        alive()


async def _copy_chunks(source: Line, sink: Line, alive: Callable[[], None]) -> None:
    size = -1
    while size:
        line = await _read_line(source)
        size = read_chunk_size(line)
        sink.writer.write(line)
        if size:
            # With the line's end that follows each chunk.
            await _copy_bytes(size + 2, source, sink, alive)
    for _ in range(TRAILERS_MAX):
        line = await _read_line(source)
        await sink.send(line)
        if line == b"\r\n":
            return
    raise BadHead("There are too many trailers.")


async def _read_line(source: Line) -> bytes:
    try:
        return await source.reader.readuntil(b"\r\n")
    except asyncio.LimitOverrunError:
        raise BadHead("A line is too long.") from None


async def tunnel(one: Line, other: Line, idle_s: float) -> None:
    """Pass everything on, both ways, until both have ended; TimeoutError when neither says anything for so long."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(idle_s) as idle:

        async def pump(source: Line, sink: Line) -> None:
            while data := await source.reader.read(HEAD_MAX_BYTES):
                await sink.send(data)
                idle.reschedule(loop.time() + idle_s)
            sink.end()

        async with asyncio.TaskGroup() as both:
            both.create_task(pump(one, other))
            both.create_task(pump(other, one))
