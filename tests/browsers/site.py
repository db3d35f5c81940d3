"""A web site for tests that sets cookies, opens windows, and remembers who connected and what was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tabherd.browsers.driver import ChromiumTab

# Names that end like this lead to the site, whatever is before it.
FLAGS = ("--host-resolver-rules=MAP *.test 127.0.0.1",)
BUILDS = ("headless-shell", "chromium")

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Site:
    """Pages by path; all that are not named are empty."""

    def __init__(self, pages: Mapping[str, str]) -> None:
        self.port = 0
        self.connections = 0
        # The Cookie header of each request, by path.
        self.cookies: dict[str, str] = {}
        # What to set with the next pages.
        self.set_cookies: list[str] = []
        self._pages = pages

    def url(self, path: str = "/", host: str = "a.test") -> str:
        return f"http://{host}:{self.port}{path}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
            path = head.split(" ")[1]
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            self.cookies[path] = headers.get("cookie", "")
            set_cookies = "".join(f"Set-Cookie: {cookie}\r\n" for cookie in self.set_cookies)
            body = self._pages.get(path, "").replace("PORT", str(self.port)).encode()
            kind = "text/javascript" if path.endswith(".js") else "text/html"
            writer.write(
                f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{set_cookies}Content-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n".encode()
                + body
            )
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[int]:
    """Answer every connection to a free loopback port, which this is, like that."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def serving(pages: Mapping[str, str] | None = None) -> AsyncIterator[Site]:
    site = Site(pages or {})
    async with answering(site.answer) as site.port:
        yield site


async def load(tab: ChromiumTab, url: str) -> None:
    loaded = tab.expect("load")
    stop = tab.listen("Page.loadEventFired", lambda _: loaded.done() or loaded.set_result(None))
    await tab.call("Page.navigate", {"url": url})
    await loaded
    stop()


async def run(tab: ChromiumTab, script: str) -> Any:
    """The value of a script that a person's click could have started."""
    ran = await tab.call("Runtime.evaluate", {"expression": script, "userGesture": True, "returnByValue": True})
    assert "exceptionDetails" not in ran, ran["exceptionDetails"]
    return ran["result"].get("value")
