"""A web site on the loopback address that remembers whom it was asked for, and a browser behind a network policy."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.browsers.real import new_row

from tabherd.browsers.attach import AttachedBrowser
from tabherd.browsers.chromium import ChromiumBrowser, ChromiumLauncher
from tabherd.browsers.driver import ChromiumTab
from tabherd.config import Config, parse
from tabherd.egress.supervise import Egress, running

# What does not happen within this shall fail, not hang.
LIMIT_S = 60
_WEBSOCKET = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Origin:
    """Answers every request with a page of its path, `/to?url` with a redirect, `/worker.js` with a worker."""

    def __init__(self) -> None:
        self.port = 0
        # Host (without the port) and path of each request.
        self.asked: list[str] = []

    def url(self, host: str, path: str = "/") -> str:
        return f"http://{host}:{self.port}{path}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                path = head.split(" ")[1]
                self.asked.append(f"{headers['host'].rpartition(':')[0]} {path}")
                writer.write(self._respond(path, headers))
                if "upgrade" in headers:
                    await reader.read()
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    def _respond(self, path: str, headers: dict[str, str]) -> bytes:
        if "upgrade" in headers:
            key = base64.b64encode(hashlib.sha1(headers["sec-websocket-key"].encode() + _WEBSOCKET).digest()).decode()
            return (
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Accept: {key}\r\n\r\n".encode()
            )
        if path.startswith("/to?"):
            return f"HTTP/1.1 302 Found\r\nLocation: {unquote(path[4:])}\r\nContent-Length: 0\r\n\r\n".encode()
        body, kind = f"<title>{path}</title>", "text/html"
        if path.startswith("/worker.js?"):
            body, kind = (
                f"fetch('{unquote(path[11:])}').then(() => postMessage('reached'), () => postMessage('refused'))",
                "text/javascript",
            )
        return (
            f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nAccess-Control-Allow-Origin: *\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )


@asynccontextmanager
async def serving() -> AsyncIterator[Origin]:
    origin = Origin()
    server = await asyncio.start_server(origin.answer, "127.0.0.1", 0)
    origin.port = server.sockets[0].getsockname()[1]
    try:
        yield origin
    finally:
        server.close()


def with_pool(**settings: Any) -> Config:
    """A configuration whose only pool has these settings."""
    return parse({"pools": {"default": settings}})


@asynccontextmanager
async def behind_policy(
    directory: Path, **settings: Any
) -> AsyncIterator[tuple[ChromiumBrowser | AttachedBrowser, Egress]]:
    """A browser of a pool with these settings, and what keeps to its policy."""
    config = with_pool(**settings)
    async with running(config, directory) as egress:
        launcher = ChromiumLauncher(directory / "profiles", config.pools, proxies=egress.proxies)
        browser = await launcher.launch(new_row())
        try:
            yield browser, egress
        finally:
            await browser.stop()


async def visit(tab: ChromiumTab, url: str) -> int | None:
    """Go there; the status of the answer, or None when there was none."""
    statuses: list[int] = []

    def heard(event: Any) -> None:
        if event["type"] == "Document":
            statuses.append(event["response"]["status"])

    await tab.call("Network.enable")
    loaded = tab.expect("load")
    stops = [
        tab.listen("Network.responseReceived", heard),
        tab.listen("Page.loadEventFired", lambda _: loaded.done() or loaded.set_result(None)),
    ]
    async with asyncio.timeout(LIMIT_S):
        await tab.call("Page.navigate", {"url": url})
        await loaded
    for stop in stops:
        stop()
    return statuses[-1] if statuses else None


async def run(tab: ChromiumTab, script: str) -> Any:
    """The value that a script of the page comes to."""
    async with asyncio.timeout(LIMIT_S):
        ran = await tab.call("Runtime.evaluate", {"expression": script, "awaitPromise": True, "returnByValue": True})
    assert "exceptionDetails" not in ran, ran["exceptionDetails"]
    return ran["result"].get("value")
