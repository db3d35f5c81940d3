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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ChromiumBrowser]:
    async with launched(tmp_path_factory.mktemp("profiles")) as live:
        yield live
