"""A client that writes frames by hand, whatever the protocol says, and reads only when it is told to."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

TEXT, BINARY, CONTINUATION, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10
LIMIT_S = 90


class Frame(NamedTuple):
    kind: int
    payload: bytes
    is_last: bool

    @property
    def close_code(self) -> int:
        assert self.kind == CLOSE, self
        return int.from_bytes(self.payload[:2], "big")


class RawSocket:
    """One connection whose upgrade was granted."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def write(self, payload: bytes, kind: int = TEXT, *, is_last: bool = True, reserved: int = 0) -> None:
        """One frame."""
        head = bytes([(is_last << 7) | (reserved << 4) | kind])
        if len(payload) < 126:
            head += bytes([0x80 | len(payload)])
        elif len(payload) < 1 << 16:
            head += bytes([0x80 | 126]) + struct.pack("!H", len(payload))
        else:
            head += bytes([0x80 | 127]) + struct.pack("!Q", len(payload))
        mask = os.urandom(4)
        key = int.from_bytes((mask * (len(payload) // 4 + 1))[: len(payload)], "big")
        masked = (int.from_bytes(payload, "big") ^ key).to_bytes(len(payload), "big")
        self._writer.write(head + mask + masked)

    def announce(self, length: int) -> None:
        """The head of a text frame of that size, and no more."""
        self._writer.write(bytes([0x81, 0x80 | 127]) + struct.pack("!Q", length) + b"\0\0\0\0")

    def say(self, id: int, method: str, session_id: str = "", **params: Any) -> None:
        message = {"id": id, "method": method, "params": params}
        self.write(json.dumps(message | ({"sessionId": session_id} if session_id else {})).encode())

    @property
    def is_closed(self) -> bool:
        """Whether nothing more can be said."""
        return self._writer.is_closing()

    async def read(self) -> Frame:
        """The next frame; the end of the stream is one of kind CLOSE without a payload."""
        async with asyncio.timeout(LIMIT_S):
            try:
                first, second = await self._reader.readexactly(2)
                length = second & 0x7F
                if length == 126:
                    (length,) = struct.unpack("!H", await self._reader.readexactly(2))
                elif length == 127:
                    (length,) = struct.unpack("!Q", await self._reader.readexactly(8))
                return Frame(first & 0x0F, await self._reader.readexactly(length), bool(first & 0x80))
            except (asyncio.IncompleteReadError, ConnectionError):
                return Frame(CLOSE, b"", True)

    async def hear(self, id: int) -> dict[str, Any]:
        """The answer to that command; what comes before it is passed over."""
        while (frame := await self.read()).kind != CLOSE:
            if frame.kind == TEXT and (message := json.loads(frame.payload)).get("id") == id:
                answer: dict[str, Any] = message
                return answer
        raise AssertionError(f"the socket was closed instead: {frame}")

    async def ask(self, id: int, method: str, session_id: str = "", **params: Any) -> dict[str, Any]:
        self.say(id, method, session_id, **params)
        return await self.hear(id)

    async def page(self) -> str:
        """A session with the page that is there."""
        targets = (await self.ask(1, "Target.getTargets"))["result"]["targetInfos"]
        target_id = next(target["targetId"] for target in targets if target["type"] == "page")
        attached = await self.ask(2, "Target.attachToTarget", targetId=target_id, flatten=True)
        session_id: str = attached["result"]["sessionId"]
        return session_id

    async def next_close(self) -> Frame:
        """Read on to the close."""
        while (frame := await self.read()).kind != CLOSE:
            pass
        return frame


@asynccontextmanager
async def raw_socket(url: str, token: str, receive_bytes: int | None = None) -> AsyncIterator[RawSocket]:
    """Connected; with a small receive buffer, where what is not read must not hide."""
    address = urlsplit(url)
    link = socket.socket()
    if receive_bytes is not None:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    link.connect((address.hostname or "", address.port or 80))
    link.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=link, limit=1 << 16)
    try:
        lines = [
            f"GET {address.path or '/'}{'?' if address.query else ''}{address.query} HTTP/1.1",
            f"Host: {address.netloc}",
            f"Authorization: Bearer {token}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head
        yield RawSocket(reader, writer)
    finally:
        writer.transport.abort()
