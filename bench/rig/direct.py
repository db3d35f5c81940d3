"""A Chromium without a broker: what the same build costs when it is driven directly.

Launched by tabherd's own launcher, with the same flags, and driven over its own socket with the fewest calls that do
the job: nothing that a broker adds for safety is in these numbers.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec

from tabherd.browsers import chromium
from tabherd.browsers.cdp import CdpConnection
from tabherd.browsers.chromium import ChromiumLauncher
from tabherd.browsers.find import FoundBrowser, find_browser
from tabherd.config import Pool
from tabherd.core.lifecycle import BrowserState
from tabherd.core.model import Browser

LOAD_LIMIT_S: Final = 30.0
LOAD_POLL_S: Final = 0.02
HEADLESS_SHELL: Final = "headless-shell"
FULL: Final = "chromium"


class DirectPage(msgspec.Struct, frozen=True):
    """A page and our session on it."""

    connection: CdpConnection
    session_id: str
    # Empty: the browser's own profile.
    context_id: str

    async def evaluate(self, expression: str = "1 + 1") -> Any:
        answer = await self.connection.call("Runtime.evaluate", {"expression": expression}, self.session_id)
        return answer["result"].get("value")

    async def load(self, url: str) -> None:
        """Returns when the document and what it needs have arrived."""
        seen = ""
        try:
            async with asyncio.timeout(LOAD_LIMIT_S):
                # A browser that has only just started may abort its first navigation.
                while "errorText" in await self.connection.call("Page.navigate", {"url": url}, self.session_id):
                    await asyncio.sleep(LOAD_POLL_S)
                while seen != f"{url} complete":
                    await asyncio.sleep(LOAD_POLL_S)
                    seen = await self.evaluate("`${location.href} ${document.readyState}`")
        except TimeoutError:
            raise RuntimeError(f"{url} did not load within {LOAD_LIMIT_S} s: {seen}") from None


class DirectBrowser(msgspec.Struct, frozen=True):
    """A browser of our own."""

    connection: CdpConnection
    pid: int
    product: str
    # Where others can drive it too.
    endpoint: str

    async def new_page(self) -> DirectPage:
        """A page in a fresh context."""
        context = await self.connection.call("Target.createBrowserContext")
        return await self._page_in(context["browserContextId"])

    async def first_page(self) -> DirectPage:
        """The page it started with, or one in its own profile."""
        targets = await self.connection.call("Target.getTargets")
        for target in targets["targetInfos"]:
            if target["type"] == "page":
                return await self._attached(target["targetId"], "")
        return await self._page_in("")

    async def dispose(self, page: DirectPage) -> None:
        await self.connection.call("Target.disposeBrowserContext", {"browserContextId": page.context_id})

    async def _page_in(self, context_id: str) -> DirectPage:
        params = {"url": "about:blank"} | ({"browserContextId": context_id} if context_id else {})
        made = await self.connection.call("Target.createTarget", params)
        return await self._attached(made["targetId"], context_id)

    async def _attached(self, target_id: str, context_id: str) -> DirectPage:
        attached = await self.connection.call("Target.attachToTarget", {"targetId": target_id, "flatten": True})
        return DirectPage(self.connection, attached["sessionId"], context_id)


@lru_cache
def found(kind: str) -> FoundBrowser:
    """The installed build of that kind; looked for once, so that launches are only launches."""
    return find_browser(kind, True)


@asynccontextmanager
async def launched(kind: str = HEADLESS_SHELL, *, is_as_it_comes: bool = False) -> AsyncIterator[DirectBrowser]:
    """A fresh browser of that kind, gone afterwards with its profile; also one whose windows have all that they come
    with, for whoever does not leave it out.
    """
    build = found(kind)
    with patch.object(chromium, "WINDOW_FEATURES_OFF", () if is_as_it_comes else chromium.WINDOW_FEATURES_OFF):
        async with _launched(kind, build) as browser:
            yield browser


@asynccontextmanager
async def _launched(kind: str, build: FoundBrowser) -> AsyncIterator[DirectBrowser]:
    with tempfile.TemporaryDirectory(prefix="tabherd-bench-", ignore_cleanup_errors=True) as directory:
        launcher = ChromiumLauncher(Path(directory), {"bench": Pool(browser=kind)}, find=lambda *_: build)
        row = Browser(id="brw_bench", pool="bench", node_id="nod_bench", state=BrowserState.STARTING)
        browser = await launcher.launch(row)
        try:
            connection = await CdpConnection.connect(browser.row.endpoint)
            try:
                yield DirectBrowser(connection, browser.row.pid, browser.row.product, browser.row.endpoint)
            finally:
                await connection.close()
        finally:
            await browser.stop()
