"""Opens the dashboard in a browser, waits until it shows what it should, and takes the picture.

No picture leaves here that shows a token, or where on this machine something is: that fails instead.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, Page, Route, expect, sync_playwright
from screenshots_png import shrunk
from screenshots_server import Server

from tabherd.browsers.find import find_browser

WAIT_MS: Final = 60_000
WIDE: Final = {"width": 1280, "height": 800}
PHONE: Final = {"width": 360, "height": 740}
# From when a page has all that it shows to when it is quiet.
SETTLE_MS: Final = 1_200
# Whatever begins like this is on this machine and nowhere else.
PRIVATE: Final = ("th_", "/tmp/", "/home/", "/root/", "/var/", str(Path(__file__).resolve().parent.parent))
expect.set_options(timeout=WAIT_MS)


class Camera:
    """One browser, and windows of it."""

    def __init__(self, browser: Browser, server: Server, out: Path) -> None:
        self._browser = browser
        self.server = server
        self._out = out
        self._ordinary: Page | None = None

    @contextmanager
    def dashboard(self, *, theme: str = "light", is_phone: bool = False, token: str = "") -> Iterator[Page]:
        """A window with the dashboard, logged in: as the admin, unless a token says otherwise.

        The ordinary one stays, so that it knows what has happened; others are closed again, since each costs something.
        """
        if (theme, is_phone, token) != ("light", False, ""):
            page = self._logged_in(self.window(theme=theme, is_phone=is_phone), token)
            try:
                yield page
            finally:
                page.context.close()
            return
        if self._ordinary is None:
            self._ordinary = self._logged_in(self.window(), token)
        yield self._ordinary

    def _logged_in(self, page: Page, token: str) -> Page:
        page.goto(f"{self.server.url}/#token={token or self.server.token}")
        expect(page.locator(".connection.live")).to_be_visible()
        return page

    def window(self, *, theme: str = "light", is_phone: bool = False) -> Page:
        """An empty one."""
        context: BrowserContext = self._browser.new_context(
            viewport=PHONE if is_phone else WIDE,
            color_scheme="dark" if theme == "dark" else "light",
            device_scale_factor=2 if is_phone else 1,
            locale="en-GB",
            timezone_id="UTC",
            reduced_motion="reduce",
        )
        context.set_default_timeout(WAIT_MS)
        return context.new_page()

    def go(self, page: Page, path: str) -> None:
        """Another page in the same window, with what it shows."""
        page.evaluate("path => { location.hash = '#' + path; }", path)
        expect(page.locator("main h1").first).to_be_visible()
        expect(page.locator("main [data-state=loading]")).to_have_count(0)
        page.wait_for_timeout(SETTLE_MS)

    def answering(self, page: Page, reply: Callable[[Route], Any]) -> None:
        """From now on whatever the pages read is answered like that."""
        page.route(lambda url: not url.endswith(("/login", "/events", ".js", ".css", ".svg")), reply)

    def take(self, page: Page, name: str) -> None:
        """The picture of what the window shows."""
        self.keep(name, self.seen(page, name))

    def seen(self, page: Page, name: str) -> bytes:
        """The same, not kept yet."""
        shown = page.evaluate("document.title + document.body.innerText + [...document.images].map((i) => i.alt)")
        for secret in (*PRIVATE, *_names_of_this_machine()):
            assert secret not in shown, f"{name} would show {secret!r}"
        return page.screenshot()

    def take_terminal(self, html: str, name: str) -> None:
        """The picture of a terminal."""
        for secret in (*PRIVATE, *_names_of_this_machine()):
            assert secret not in html, f"{name} would show {secret!r}"
        context = self._browser.new_context(viewport=WIDE, device_scale_factor=1)
        page = context.new_page()
        page.set_content(html)
        picture = page.locator("pre").screenshot()
        context.close()
        self.keep(name, picture)

    def keep(self, name: str, picture: bytes) -> None:
        self._out.mkdir(parents=True, exist_ok=True)
        (self._out / f"{name}.png").write_bytes(shrunk(picture))


def _names_of_this_machine() -> list[str]:
    # A short one could be a word.
    return [name for name in {socket.gethostname(), socket.getfqdn()} if len(name) > 4 and name != "localhost"]


@contextmanager
def camera(server: Server, out: Path) -> Iterator[Camera]:
    """Gone with its `with`."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser().path, args=["--font-render-hinting=none", "--disable-lcd-text"]
        )
        try:
            yield Camera(browser, server, out)
        finally:
            browser.close()
