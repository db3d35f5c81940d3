"""Asks a browser's debug port for the address of its control socket."""

from __future__ import annotations

import asyncio
import re
from typing import Final

import msgspec

# How long a browser may take to answer one HTTP request once its port is open.
VERSION_LIMIT_S: Final = 5.0
VERSION_MAX_BYTES: Final = 64 << 10
_CONTENT_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length:[ ]*(\d+)")


class Version(msgspec.Struct, frozen=True):
    """The part of /json/version that we read."""

    product: str = msgspec.field(name="Browser")
    endpoint: str = msgspec.field(name="webSocketDebuggerUrl")


class NotCdp(Exception):
    """Something answers there, but it is no browser's debug port."""


async def ask_version(host: str, port: int) -> Version:
    """What the browser at that address says of itself. Raises `NotCdp`, OSError or TimeoutError."""
    async with asyncio.timeout(VERSION_LIMIT_S):
        reader, writer = await asyncio.open_connection(host, port, limit=VERSION_MAX_BYTES)
        name = f"[{host}]" if ":" in host else host
        try:
            writer.write(f"GET /json/version HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = _CONTENT_LENGTH.search(head)
            body = await reader.readexactly(min(int(length[1]), VERSION_MAX_BYTES)) if length else b""
            return msgspec.json.decode(body, type=Version)
        except (EOFError, asyncio.LimitOverrunError, msgspec.MsgspecError) as error:
            raise NotCdp(f"/json/version was answered with something else: {error}") from error
        finally:
            writer.close()
