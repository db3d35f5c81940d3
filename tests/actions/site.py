"""A web site for tests: a few pages, some of them awkward, on the loopback address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

# Path to (status line, extra headers, body).
PAGES: Final[Mapping[str, tuple[str, str, str]]] = {
    "/": ("200 OK", "", "<title>Home</title><h1>Welcome</h1><p id=p>One  <b>two</b><span hidden>three</span></p>"),
    "/missing": ("404 Not Found", "", "<title>Nothing here</title>gone"),
    "/moved": ("302 Found", "Location: /\r\n", ""),
    "/onward": ("200 OK", "", "<title>Onward</title><script>location.replace('/')</script>"),
    "/slow-image": ("200 OK", "", "<title>Slow</title><img src=/never>text"),
    "/busy": ("200 OK", "", "<title>Busy</title><script>for (;;);</script>"),
    "/nothing": ("204 No Content", "", ""),
    "/chain": ("200 OK", "", "<script>location.replace('/chain?' + Math.random())</script>"),
    "/fresh": ("200 OK", "Cache-Control: no-store\r\n", "<title>Never kept</title>"),
    "/private": ("401 Unauthorized", "WWW-Authenticate: Basic realm=x\r\n", "<title>Private</title>"),
    "/polling": ("200 OK", "", "<title>Polling</title><script>setInterval(() => fetch('/missing'), 20)</script>"),
    "/file": ("200 OK", "Content-Disposition: attachment; filename=x.bin\r\n", "bytes"),
    "/tall": ("200 OK", "", "<body style='margin:0'><div style='height:3000px;background:#0a0'></div>"),
    "/drawing": (
        "200 OK",
        "Content-Type: image/svg+xml\r\n",
        "<svg xmlns='http://www.w3.org/2000/svg'><text>hi</text></svg>",
    ),
}


class Site:
    """Where it is, and what it was asked for."""

    def __init__(self) -> None:
        self.origin = ""
        # The same pages under a name that is another site to a browser.
        self.other_origin = ""
        # Pages of a test's own, as HTML by path; they go before the others.
        self.own: dict[str, str] = {}
        # Set when somebody asks for /never, which is never answered.
        self.asked_never = asyncio.Event()
        # While it is true, connections are closed without an answer.
        self.is_down = False
        self._open: set[asyncio.StreamWriter] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
            if self.is_down:
                return
            if path == "/never":
                self.asked_never.set()
                await reader.read()
                return
            path = path.partition("?")[0]
            if path in self.own:
                status, headers, body = "200 OK", "", self.own[path]
            else:
                status, headers, body = PAGES.get(path, ("404 Not Found", "", ""))
            kind = "" if "Content-Type" in headers else "Content-Type: text/html; charset=utf-8\r\n"
            content = body.encode()
            head = f"HTTP/1.1 {status}\r\n{kind}{headers}Content-Length: {len(content)}\r\nConnection: close"
            writer.write(f"{head}\r\n\r\n".encode() + content)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._open.discard(writer)
            writer.close()

    def hang_up(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()


@asynccontextmanager
async def serving() -> AsyncIterator[Site]:
    site = Site()
    server = await asyncio.start_server(site.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    site.origin, site.other_origin = f"http://127.0.0.1:{port}", f"http://localhost:{port}"
    try:
        yield site
    finally:
        server.close()
        site.hang_up()
        await server.wait_closed()
