"""The web site that the compatibility cases visit: every address belongs to one client and is marked with its name.

Below `/~NAME~/` each client finds the same pages (`site_pages.py`), with its mark in title, cookie and console, so that
whatever a client sees can be told apart by its text alone. Invariants:
- A request under one client's mark that carries another client's cookie is written down in `leaks`.
- Names that end in `.test` lead here (`FLAGS`), so two hosts are two sites and a frame of the other is out of process.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from .site_pages import page

FLAGS = (
    "--host-resolver-rules=MAP *.test 127.0.0.1",
    "--site-per-process",
    # No renderer in store for whatever comes next: hundreds of clients that each open a page or two would have it
    # started again every time, which is a third of all renderers and a fifth of the work.
    "--disable-features=SpareRendererForSitePerProcess",
)
# How a client's name is written wherever it can be seen.
MARK = re.compile(r"~(\w+)~")
# What the page behind a password asks for.
LOGIN = {"username": "ada", "password": "lovelace"}
# More than that nobody uploads here.
BODY_MAX_BYTES = 1 << 20
WEBSOCKET_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT_FRAME, CLOSE_FRAME = 1, 8


class Request(NamedTuple):
    """What a browser asked for."""

    method: str
    # Without the mark and the query: `form`, `api/x`.
    name: str
    who: str
    headers: dict[str, str]
    body: bytes


class Site:
    """Listens on a free loopback port."""

    def __init__(self) -> None:
        self.port = 0
        # Requests that came with a cookie of somebody else.
        self.leaks: list[str] = []
        # Where requests for `gate` wait until so many have come; set by the test that sends clients there.
        self.gate = asyncio.Barrier(1)
        # Connections that are being answered; some only end with the site.
        self._open: set[asyncio.Task[None]] = set()

    def url(self, who: str, name: str, host: str = "a.test") -> str:
        return f"http://{host}:{self.port}/~{who}~/{name}"

    def take_leaks(self) -> list[str]:
        """What was written down; it is no longer, so that the next test does not fail for it."""
        leaks, self.leaks = self.leaks, []
        return leaks

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def end(self) -> None:
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _read(reader)
            self._look_for_leaks(request)
            if request.name == "never":
                # Until the browser gives up.
                await reader.read()
            elif "upgrade" in request.headers.get("connection", "").lower():
                await _echo_frames(reader, writer, request)
            else:
                if request.name == "gate":
                    await self.gate.wait()
                writer.write(self._reply(request))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            # A browser may leave at any time.
            return
        finally:
            writer.close()

    def _look_for_leaks(self, request: Request) -> None:
        strangers = set(MARK.findall(request.headers.get("cookie", ""))) - {request.who}
        if strangers:
            self.leaks.append(f"{request.name} of {request.who} came with cookies of {sorted(strangers)}")

    def _reply(self, request: Request) -> bytes:
        match request.name:
            case "private" if request.headers.get("authorization") != _basic():
                return _response(401, "text/html", b"no", {"WWW-Authenticate": 'Basic realm="cases"'})
            case "redirect":
                return _response(302, "text/html", b"", {"Location": "empty"})
            case "missing":
                return _response(404, "text/html", b"<h1>missing</h1>")
            case "attachment":
                name = {"Content-Disposition": f'attachment; filename="{request.who}.txt"'}
                return _response(200, "application/octet-stream", f"for ~{request.who}~".encode(), name)
            case "strict":
                policy = {"Content-Security-Policy": "script-src 'none'"}
                return _response(200, "text/html", page("empty", request.who, self.port), policy)
            case name if name.startswith("api/"):
                return _response(200, "application/json", _mirror(request), {"Access-Control-Allow-Origin": "*"})
            case name if name.endswith(".js"):
                return _response(200, "text/javascript", page(name, request.who, self.port))
            case name:
                cookie = {"Set-Cookie": f"who=~{request.who}~; Path=/"}
                return _response(200, "text/html; charset=utf-8", page(name, request.who, self.port), cookie)


async def _read(reader: asyncio.StreamReader) -> Request:
    head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
    method, path, _ = head.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(min(int(headers.get("content-length", 0)), BODY_MAX_BYTES))
    mark, _, name = path.removeprefix("/").partition("?")[0].partition("/")
    return Request(method, name, mark.strip("~"), headers, body)


def _mirror(request: Request) -> bytes:
    """The request, as the site got it."""
    seen = {"method": request.method, "name": request.name, "who": f"~{request.who}~", "headers": request.headers}
    return json.dumps(seen | {"body": request.body.decode()}).encode()


def _response(status: int, kind: str, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    lines = {"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close"} | (headers or {})
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} Said\r\n{head}\r\n".encode() + body


def _basic() -> str:
    return "Basic " + base64.b64encode("{username}:{password}".format(**LOGIN).encode()).decode()


async def _echo_frames(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: Request) -> None:
    """A WebSocket that answers each short text with the same text and the mark of its client."""
    key = hashlib.sha1((request.headers["sec-websocket-key"] + WEBSOCKET_MAGIC).encode()).digest()
    accept = f"Sec-WebSocket-Accept: {base64.b64encode(key).decode()}"
    writer.write(f"HTTP/1.1 101 Switch\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{accept}\r\n\r\n".encode())
    while True:
        kind, length = await reader.readexactly(2)
        assert length & 0x7F < 126, "the cases only send short texts"
        mask = await reader.readexactly(4)
        payload = bytes(b ^ mask[i % 4] for i, b in enumerate(await reader.readexactly(length & 0x7F)))
        if kind & 0x0F == CLOSE_FRAME:
            writer.write(bytes([0x80 | CLOSE_FRAME, len(payload)]) + payload)
            return
        reply = payload + f" ~{request.who}~".encode()
        writer.write(bytes([0x80 | TEXT_FRAME, len(reply)]) + reply)


@asynccontextmanager
async def serving() -> AsyncIterator[Site]:
    site = Site()
    server = await asyncio.start_server(site.accept, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        await site.end()
        await server.wait_closed()
