"""A browser that shows the dashboard, beside the server that it is about."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from tests.browsers.real import NO_SPARE_RENDERER
from tests.server.conftest import Server

from tabherd.browsers.find import find_browser

# The machine may be busy: what is waited for is a sign, and how long that may take is no part of any test.
WAIT_MS = 60_000
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 360, "height": 740}
START_TRIES = 1_200
expect.set_options(timeout=WAIT_MS)


@contextmanager
def viewer(*extra: str) -> Iterator[Browser]:
    """A Chromium of its own, driven by Playwright; neither it nor its profile is left behind."""
    with tempfile.TemporaryDirectory(prefix="tabherd-viewer-", ignore_cleanup_errors=True) as profile:
        # Of two flags of one name the last one counts.
        flags = [NO_SPARE_RENDERER, *extra, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        process = subprocess.Popen(
            [
                find_browser().path,
                *flags,
                "--headless",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--remote-debugging-port=0",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            port = _port(Path(profile), process)
            with sync_playwright() as playwright:
                yield playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{port}")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _port(profile: Path, process: subprocess.Popen[bytes]) -> int:
    file = profile / "DevToolsActivePort"
    for _ in range(START_TRIES):
        assert process.poll() is None, "the viewer's browser ended while it started"
        if file.exists() and (lines := file.read_text().splitlines()):
            return int(lines[0])
        time.sleep(0.05)
    raise AssertionError("the viewer's browser did not start")


class Viewing:
    """A browser that stays for all tests of a worker, with one window in which the admin is logged in.

    Playwright's loop counts as running for as long as the browser is connected, and then no other loop of this thread
    can run: between tests it does not count.
    """

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self._loop = asyncio.get_running_loop()
        # The admin's window; None before the first test and after one that has spoilt it.
        self.kept: Page | None = None
        # What went wrong in any window of the present test.
        self.mistakes: list[str] = []

    def sleep(self) -> None:
        asyncio._set_running_loop(None)

    def wake(self) -> None:
        asyncio._set_running_loop(self._loop)


class Dashboards:
    """Opens dashboards of one server, each in a window of its own that knows nothing of the others.

    The first of the admin's is the window that is kept, if there is one.
    """

    def __init__(self, browser: Browser, server: Server, viewing: Viewing | None = None) -> None:
        self.server = server
        self.url = server.record["url"]
        self._browser = browser
        self._viewing = viewing
        self._is_kept_free = viewing is not None
        self._contexts: list[BrowserContext] = []
        # What went wrong in any of them: a test that leaves something here fails.
        self.mistakes: list[str] = viewing.mistakes if viewing else []

    def window(self, *, size: dict[str, int] = WIDE, theme: str = "light") -> Page:
        """A page that is nowhere yet, and nobody."""
        context = self._browser.new_context(viewport=size, color_scheme=theme)
        context.set_default_timeout(WAIT_MS)
        self._contexts.append(context)
        page = context.new_page()
        mistakes = self.mistakes
        page.on("pageerror", lambda error: mistakes.append(str(error)))
        page.on("console", lambda said: mistakes.append(said.text) if _is_mistake(said.text, said.type) else None)
        return page

    def open(
        self, path: str = "/", *, token: str | None = None, size: dict[str, int] = WIDE, theme: str = "light"
    ) -> Page:
        """The page of that path, logged in: as the admin, unless another token is given."""
        if token is None and self._is_kept_free:
            return self._open_kept(path, size, theme)
        page = self.window(size=size, theme=theme)
        page.goto(f"{self.url}/#token={token or self.server.admin_token}")
        page.locator(".frame").wait_for()
        self.go(page, path)
        return page

    def _open_kept(self, path: str, size: dict[str, int], theme: str) -> Page:
        assert self._viewing is not None
        self._is_kept_free = False
        page = self._viewing.kept
        if page is None:
            page = self._viewing.kept = self.open(path, size=size, theme=theme)
            # It outlasts the test.
            self._contexts.remove(page.context)
            return page
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=theme)
        page.goto(f"{self.url}/#{path}")
        page.locator(".frame").wait_for()
        return page

    def go(self, page: Page, path: str) -> None:
        """Another path in the same window."""
        page.evaluate("path => { location.hash = '#' + path; }", path)

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        self._contexts.clear()
        if self._viewing is not None and self._viewing.kept is not None and not self._is_kept_free:
            self._park(self._viewing, self._viewing.kept)

    def _park(self, viewing: Viewing, page: Page) -> None:
        """Leave the kept window at a file of the server, where nothing runs. One without its login is not kept."""
        if not page.context.cookies():
            page.context.close()
            viewing.kept = None
            return
        page.unroute_all(behavior="ignoreErrors")
        page.context.clear_permissions()
        page.emulate_media(reduced_motion="no-preference")
        page.evaluate("localStorage.removeItem('tabherd.theme')")
        page.goto(f"{self.url}/ui/icon.svg")


def _is_mistake(text: str, kind: str) -> bool:
    # A refused request is said on the console whatever the page makes of it; what the policy stops is never meant.
    return kind == "error" and not text.startswith("Failed to load resource")
