"""A browser in which a person looks at the dashboard, and what that costs: paints, bytes, frames, memory.

One Chromium of the same build as the server's; each `Window` is a fresh context, with an empty cache.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, sync_playwright

from bench import percentile

from .direct import HEADLESS_SHELL, found
from .server import Server

WAIT_MS: Final = 120_000
SIZE: Final = {"width": 1280, "height": 800}
# How far one turn of the wheel goes, and how often it is turned.
WHEEL_PX: Final = 240
WHEEL_S: Final = 0.03
# Resolves when what was waited for is on the screen, after the frame in which it came, with when that was.
SEEN: Final = """(selector) => {
  window.seenAtMs = new Promise((seen) => {
    const look = () => {
      if (!document.querySelector(selector)) return requestAnimationFrame(look);
      requestAnimationFrame(() => seen(performance.now()));
    };
    look();
  });
}"""
FRAMES: Final = """() => {
  window.frameTimes = [];
  const note = (at) => {
    if (!window.frameTimes) return;
    window.frameTimes.push(at);
    requestAnimationFrame(note);
  };
  requestAnimationFrame(note);
}"""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One load of the dashboard, with nothing in the cache."""

    first_paint_ms: float
    # When the numbers were on the screen, too.
    shown_ms: float
    # Everything that came over the wire until then, heads included.
    received_bytes: int
    requests: int


class Scroll(msgspec.Struct, frozen=True, kw_only=True):
    """Frames while a list was scrolled."""

    per_s: float
    # Of the slowest hundredth.
    worst_per_s: float
    # Processor time of the page's own thread, per frame.
    own_ms: float
    frames: int
    heap_mb: float


class Viewer:
    """Opens windows of one browser. Made by `viewing`."""

    def __init__(self, browser: Browser, server: Server) -> None:
        self._browser = browser
        self._server = server
        # The cookie and the word of somebody who is logged in.
        self._login: Any = None

    def load(self, shown: str) -> Load:
        """Load the overview as somebody who is logged in, until that selector is there."""
        if self._login is None:
            self._login = self._logged_in()
        context = self._browser.new_context(viewport=SIZE, storage_state=self._login)
        try:
            page, client = self._page(context)
            received = _counted(client)
            page.add_init_script(f"({SEEN})({shown!r})")
            page.goto(self._server.url)
            shown_ms = page.evaluate("window.seenAtMs")
            paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
            return Load(
                first_paint_ms=paint,
                shown_ms=shown_ms,
                received_bytes=sum(received.values()),
                requests=len(received),
            )
        finally:
            context.close()

    @contextmanager
    def page(self, path: str) -> Iterator[Page]:
        """A window that stays, at that path, for the admin."""
        context = self._browser.new_context(viewport=SIZE)
        try:
            page, _ = self._page(context)
            page.goto(f"{self._server.url}/#token={self._server.token}")
            page.locator(".connection.live").wait_for()
            page.evaluate("path => { location.hash = '#' + path; }", path)
            yield page
        finally:
            context.close()

    @contextmanager
    def still_list(self, rows: int) -> Iterator[Page]:
        """A list of as many rows that nothing ever changes: what the machine can show at this moment."""
        context = self._browser.new_context(viewport=SIZE)
        try:
            page, _ = self._page(context)
            lines = "".join(f"<p>row {number}</p>" for number in range(rows))
            page.set_content(f"<div class=table><div class=rows style='height:90vh;overflow:auto'>{lines}</div></div>")
            yield page
        finally:
            context.close()

    def _logged_in(self) -> Any:
        with self.page("/") as page:
            return page.context.storage_state()

    @staticmethod
    def _page(context: BrowserContext) -> tuple[Page, CDPSession]:
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        client = context.new_cdp_session(page)
        client.send("Network.enable")
        return page, client


def scrolled(page: Page, seconds: float) -> Scroll:
    """Turn the wheel over the table of that page, down and up again, and count frames."""
    rows = page.locator(".table .rows").first
    rows.wait_for()
    rows.hover()
    client = page.context.new_cdp_session(page)
    client.send("Performance.enable", {"timeDomain": "threadTicks"})
    before_s = _busy_s(client)
    page.evaluate(FRAMES)
    until_s, direction = time.monotonic() + seconds, 1
    while time.monotonic() < until_s:
        page.mouse.wheel(0, direction * WHEEL_PX)
        time.sleep(WHEEL_S)
        top, most = rows.evaluate("(rows) => [rows.scrollTop, rows.scrollHeight - rows.clientHeight]")
        direction = -1 if top >= most - 1 else 1 if top <= 0 else direction
    times: list[float] = page.evaluate(
        "(() => { const times = window.frameTimes; window.frameTimes = null; return times; })()"
    )
    own_s = _busy_s(client) - before_s
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    client.send("HeapProfiler.collectGarbage")
    heap = client.send("Runtime.getHeapUsage")["usedSize"]
    return Scroll(
        per_s=1000 / statistics.median(gaps),
        worst_per_s=1000 / percentile(gaps, 99),
        own_ms=1000 * own_s / len(times),
        frames=len(times),
        heap_mb=heap / (1 << 20),
    )


def _busy_s(client: CDPSession) -> float:
    """How long the page's thread has been at work, by its own clock, so far."""
    metrics = client.send("Performance.getMetrics")["metrics"]
    return next(float(metric["value"]) for metric in metrics if metric["name"] == "TaskDuration")


def _counted(client: CDPSession) -> dict[str, int]:
    """Bytes by request, from now on; a stream that does not end counts with what has come of it."""
    received: dict[str, int] = {}

    def add(event: dict[str, Any]) -> None:
        received[event["requestId"]] = received.get(event["requestId"], 0) + int(event.get("encodedDataLength", 0))

    def head(event: dict[str, Any]) -> None:
        received[event["requestId"]] = int(event["response"].get("encodedDataLength", 0))

    def whole(event: dict[str, Any]) -> None:
        received[event["requestId"]] = int(event["encodedDataLength"])

    client.on("Network.responseReceived", head)
    client.on("Network.dataReceived", add)
    client.on("Network.loadingFinished", whole)
    return received


@contextmanager
def viewing(server: Server) -> Iterator[Viewer]:
    """Gone with its `with`."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found(HEADLESS_SHELL).path)
        try:
            yield Viewer(browser, server)
        finally:
            browser.close()
