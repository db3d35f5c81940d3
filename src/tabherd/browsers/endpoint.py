"""Asks a browser's debug port for what it says over HTTP, the address of its control socket above all."""

from __future__ import annotations

import asyncio
import re
from typing import Final

import msgspec

# How long a browser may take to answer one HTTP request once its port is open.
PAGE_LIMIT_S: Final = 5.0
# The protocol of today is a megabyte and a half long.
PAGE_MAX_BYTES: Final = 16 << 20
_CONTENT_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length:[ ]*(\d+)")


class Version(msgspec.Struct, frozen=True):
    """The part of /json/version that we read."""

    product: str = msgspec.field(name="Browser")
    endpoint: str = msgspec.field(name="webSocketDebuggerUrl")


class NotCdp(Exception):
    """Something answers there, but it is no browser's debug port."""


async def ask_version(host: str, port: int) -> Version:
    """What the browser at that address says of itself. Raises `NotCdp`, OSError or TimeoutError."""
    try:
        return msgspec.json.decode(await read_page(host, port, "/json/version"), type=Version)
    except msgspec.MsgspecError as error:
        raise NotCdp(f"/json/version was answered with something else: {error}") from error


async def read_page(host: str, port: int, path: str) -> bytes:
    """One page of the browser's debug port. Raises `NotCdp`, OSError or TimeoutError."""
    async with asyncio.timeout(PAGE_LIMIT_S):
        reader, writer = await asyncio.open_connection(host, port)
        name = f"[{host}]" if ":" in host else host
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = _CONTENT_LENGTH.search(head)
            return await reader.readexactly(min(int(length[1]), PAGE_MAX_BYTES)) if length else b""
        except (EOFError, asyncio.LimitOverrunError) as error:
            raise NotCdp(f"{path} was answered with something else: {error}") from error
        finally:
            writer.close()
