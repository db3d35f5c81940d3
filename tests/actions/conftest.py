"""One Chromium per worker with one page that tests share; a test that needs a page of its own asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.browsers.real import NO_SPARE_RENDERER, blank_tab, launched

from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.driver import ChromiumTab
from tabherd.browsers.port import CdpFailure, TabGone

from .site import Site, serving
from .unhurried import take_time


class Pages:
    """A browser with a page that is used again by one test after the other, as long as it lives."""

    def __init__(self, browser: ChromiumBrowser) -> None:
        self.browser = browser
        self._tab: ChromiumTab | None = None

    async def shared(self) -> ChromiumTab:
        try:
            if self._tab is not None:
                await self._tab.ping()
                return self._tab
        except TabGone:
            pass
        except CdpFailure:
            # It is still on its way to another document.
            await self.browser.close_tab(self._tab.target_id)
        self._tab = await blank_tab(self.browser)
        return self._tab


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    take_time(monkeypatch)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def reused(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pages]:
    async with launched(tmp_path_factory.mktemp("profiles")) as live:
        yield Pages(live)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def reused_apart(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pages]:
    """A browser that gives each site a renderer of its own, as on a machine with more memory.

    It lives as long as a module does: debug ports are few.
    """
    async with launched(tmp_path_factory.mktemp("profiles"), flags=("--site-per-process", NO_SPARE_RENDERER)) as live:
        yield Pages(live)


@pytest.fixture
def browser(reused: Pages) -> ChromiumBrowser:
    return reused.browser


@pytest_asyncio.fixture(loop_scope="session")
async def tab(reused: Pages) -> ChromiumTab:
    """The shared page, with whatever the test before left in it: a test shows its own document first."""
    return await reused.shared()


@pytest_asyncio.fixture(loop_scope="session")
async def own_tab(browser: ChromiumBrowser) -> AsyncIterator[ChromiumTab]:
    """A blank page in a context of its own, for tests about cookies, history, size or the end of a page."""
    context_id = await browser.new_context()
    yield await browser.new_tab(context_id)
    await browser.dispose_context(context_id)


@pytest_asyncio.fixture(loop_scope="session")
async def site() -> AsyncIterator[Site]:
    async with serving() as live:
        yield live
