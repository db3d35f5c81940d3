"""One Chromium per module for the tests that only use it; those that kill it start their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tabherd.browsers import driver
from tabherd.browsers.chromium import ChromiumBrowser

from .real import launched


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that answers late because the machine is busy is not one that does not answer."""
    monkeypatch.setattr(driver, "ATTACH_LIMIT_S", 60)


# A module and not a worker: the ports that are safe for debugging are few, and all browsers of the machine share them.
@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser_of_module(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ChromiumBrowser]:
    async with launched(tmp_path_factory.mktemp("profiles")) as live:
        yield live


@pytest_asyncio.fixture(loop_scope="session")
async def browser(browser_of_module: ChromiumBrowser) -> AsyncIterator[ChromiumBrowser]:
    """The module's browser, without the contexts of earlier tests."""
    yield browser_of_module
    for context_id in await browser_of_module.context_ids():
        await browser_of_module.dispose_context(context_id)
