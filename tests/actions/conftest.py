"""One Chromium per module, and a fresh page in a context of its own for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.browsers.real import blank_tab, launched

from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.driver import ChromiumTab

from .site import Site, serving
from .unhurried import take_time


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    take_time(monkeypatch)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ChromiumBrowser]:
    async with launched(tmp_path_factory.mktemp("profiles")) as live:
        yield live


@pytest_asyncio.fixture(loop_scope="module")
async def tab(browser: ChromiumBrowser) -> AsyncIterator[ChromiumTab]:
    page = await blank_tab(browser)
    yield page
    if not browser._connection.is_closed:
        await browser.close_tab(page.target_id)


@pytest_asyncio.fixture(loop_scope="module")
async def site() -> AsyncIterator[Site]:
    async with serving() as live:
        yield live
