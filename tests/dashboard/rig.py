"""A browser that shows the dashboard, beside the server that it is about."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
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
        flags = [*extra, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
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


class Dashboards:
    """Opens dashboards of one server, each in a window of its own that knows nothing of the others."""

    def __init__(self, browser: Browser, server: Server) -> None:
        self.server = server
        self.url = server.record["url"]
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        # What went wrong in any of them: a test that leaves something here fails.
        self.mistakes: list[str] = []

    def window(self, *, size: dict[str, int] = WIDE, theme: str = "light") -> Page:
        """A page that is nowhere yet, and nobody."""
        context = self._browser.new_context(viewport=size, color_scheme=theme)
        context.set_default_timeout(WAIT_MS)
        self._contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: self.mistakes.append(str(error)))
        page.on("console", lambda said: self.mistakes.append(said.text) if _is_mistake(said.text, said.type) else None)
        return page

    def open(
        self, path: str = "/", *, token: str | None = None, size: dict[str, int] = WIDE, theme: str = "light"
    ) -> Page:
        """The page of that path, logged in: as the admin, unless another token is given."""
        page = self.window(size=size, theme=theme)
        page.goto(f"{self.url}/#token={token or self.server.admin_token}")
        page.locator("header .who, .frame").first.wait_for()
        self.go(page, path)
        return page

    def go(self, page: Page, path: str) -> None:
        """Another path in the same window."""
        page.evaluate("path => { location.hash = '#' + path; }", path)

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        self._contexts.clear()


def _is_mistake(text: str, kind: str) -> bool:
    # A refused request is said on the console whatever the page makes of it; what the policy stops is never meant.
    return kind == "error" and not text.startswith("Failed to load resource")
