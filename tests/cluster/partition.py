"""The network between a node and its PostgreSQL: a wire that can be cut, or that swallows what is said without a word.

Invariant: what is swallowed is kept and arrives when the wire is mended, as the packets of a network that comes back
do, so that a write which was under way lands late and not never.

It runs in a thread of its own, so that tests which wait for an answer do not hold it up.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

# How long starting, breaking and mending may take.
LIMIT_S = 30


class Wire:
    """Carries bytes to a port until it is told otherwise. Made by `wire_to`."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire")
        self._server: asyncio.Server | None = None
        # While it is clear, nothing gets through, in either direction.
        self._is_whole = asyncio.Event()
        self._is_whole.set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._carriers: set[asyncio.Task[None]] = set()
        self.port = 0

    def start(self) -> None:
        self._thread.start()
        self.mend()

    def swallow(self) -> None:
        """From now on nothing gets through, and nobody is told: connections stay, new ones are accepted."""
        self._in_loop(self._is_whole.clear)

    def refuse(self) -> None:
        """End all connections and take no new ones, as when the database is not running."""
        asyncio.run_coroutine_threadsafe(self._refuse(), self._loop).result(LIMIT_S)

    def mend(self) -> None:
        """Carry again, first of all what was swallowed."""
        asyncio.run_coroutine_threadsafe(self._mend(), self._loop).result(LIMIT_S)

    def stop(self) -> None:
        self.refuse()
        self._in_loop(self._loop.stop)
        self._thread.join(LIMIT_S)
        self._loop.close()

    def _in_loop(self, work: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            work()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(LIMIT_S)

    async def _mend(self) -> None:
        self._is_whole.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for end in list(self._ends):
            end.transport.abort()
        # Whatever was swallowed is lost now: there is nobody left to hear it.
        self._is_whole.set()
        await asyncio.gather(*self._carriers)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        carrier = asyncio.current_task()
        assert carrier is not None
        self._carriers.add(carrier)
        self._ends.add(writer)
        far: asyncio.StreamWriter | None = None
        try:
            await self._is_whole.wait()
            far_reader, far = await asyncio.open_connection("127.0.0.1", self._target)
            self._ends.add(far)
            pipes = [asyncio.create_task(self._pipe(reader, far)), asyncio.create_task(self._pipe(far_reader, writer))]
            try:
                await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
                # What the other end had said before it left arrives as well.
                await asyncio.wait(pipes, timeout=0.1)
            finally:
                for pipe in pipes:
                    pipe.cancel()
                await asyncio.gather(*pipes, return_exceptions=True)
        except OSError:
            # The database is not there; whoever dialled finds out when its connection ends.
            return
        finally:
            for end in (writer, far):
                if end is not None:
                    end.transport.abort()
                    self._ends.discard(end)
            self._carriers.discard(carrier)

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                await self._is_whole.wait()
                writer.write(data)
                await writer.drain()
        # The end of a connection is carried like what was said on it.
        await self._is_whole.wait()


@contextmanager
def wire_to(port: int) -> Iterator[Wire]:
    wire = Wire(port)
    wire.start()
    try:
        yield wire
    finally:
        wire.stop()
