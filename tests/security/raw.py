"""A client that sends whatever bytes it is given, and a server whose patience is short."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from tests.edge.control_house import LIMIT_S, House, house

from tabherd.edge.connection import Limits

# So that a test need not wait for what an operator would allow.
HASTY = Limits(head_limit_s=0.3, body_bytes_per_s=1 << 20, waiting_max=64, pipelined_max=16)

# Asks for a socket, and is answered in full when there is none.
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
}


class Answer(NamedTuple):
    """One answer as it came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The code of a typed error."""
        return str(json.loads(self.body)["code"])


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def is_cut_off(self, piece: bytes, pieces_max: int = 1_000) -> bool:
        """Send that again and again; whether the server puts an end to it."""
        try:
            for _ in range(pieces_max):
                await self.send(piece)
            # All of it may lie in buffers by now.
            await self.ended()
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    def stop_reading(self) -> None:
        """Leave in the system's buffers what comes from now on, and so at the server what does not fit there."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    async def answer(self) -> Answer:
        """The next one; fails when the connection ends instead."""
        async with asyncio.timeout(LIMIT_S):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(int(first.split(" ")[1]), headers, body)

    async def ended(self) -> bytes:
        """What still came before the server ended the connection; fails when it does not."""
        async with asyncio.timeout(LIMIT_S):
            try:
                return await self._reader.read()
            except ConnectionError:
                return b""

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def wire(here: House) -> AsyncIterator[Wire]:
    one = Wire(*await asyncio.open_connection("127.0.0.1", here.port, limit=1 << 24))
    try:
        yield one
    finally:
        one.close()


def host(here: House) -> bytes:
    """The header that every request needs."""
    return b"Host: 127.0.0.1:%d\r\n" % here.port


def get(here: House, path: bytes = b"/health", more: bytes = b"") -> bytes:
    return b"GET " + path + b" HTTP/1.1\r\n" + host(here) + more + b"\r\n"


@asynccontextmanager
async def serving(limits: Limits = HASTY, settings: dict[str, Any] | None = None) -> AsyncIterator[House]:
    async with house(settings, limits=limits) as here:
        yield here
