"""Sessions of frames that have renderers of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.actions.site import Site, serving
from tests.browsers.real import blank_tab, launched

from tabherd.browsers.driver import ChromiumTab
from tabherd.browsers.port import TabGone

pytestmark = pytest.mark.browser


@pytest_asyncio.fixture
async def site() -> AsyncIterator[Site]:
    async with serving() as live:
        yield live


@pytest_asyncio.fixture
async def tab(tmp_path: Path, site: Site) -> AsyncIterator[ChromiumTab]:
    """A page of one site, with a frame of another in it, with a frame of the first in that."""
    site.own["/top"] = f"<iframe id=f src={site.other_origin}/middle></iframe>"
    site.own["/middle"] = f"<title>middle</title><iframe id=f src={site.origin}/inner></iframe>"
    site.own["/inner"] = "<title>inner</title>"
    async with launched(tmp_path, flags=("--site-per-process",)) as browser:
        page = await blank_tab(browser)
        loaded = page.expect("load")
        page.listen("Page.loadEventFired", lambda _: loaded.done() or loaded.set_result(None))
        await page.call("Page.navigate", {"url": f"{site.origin}/top"})
        await loaded
        yield page


async def frame_below(session: Any) -> str:
    """The id of the frame that this document has in it."""
    held = await session.call("Runtime.evaluate", {"expression": "document.getElementById('f')"})
    node = await session.call("DOM.describeNode", {"objectId": held["result"]["objectId"]})
    return str(node["node"]["frameId"])


async def title_of(session: Any) -> Any:
    return (await session.call("Runtime.evaluate", {"expression": "document.title"}))["result"]["value"]


async def test_a_frame_with_its_own_renderer_is_reached_also_inside_another(tab: ChromiumTab) -> None:
    middle = await tab.frame(await frame_below(tab))
    assert await title_of(middle) == "middle"
    assert await title_of(await tab.frame(await frame_below(middle))) == "inner"


async def test_what_has_no_session_of_its_own_is_none(tab: ChromiumTab) -> None:
    assert await tab.frame(tab.target_id) is None
    assert await tab.frame("nowhere") is None


async def test_a_frame_that_left_is_forgotten_and_calls_to_it_fail(tab: ChromiumTab) -> None:
    frame_id = await frame_below(tab)
    middle = await tab.frame(frame_id)
    assert middle is not None
    waiting = asyncio.create_task(
        middle.call("Runtime.evaluate", {"expression": "new Promise(() => {})", "awaitPromise": True})
    )
    await title_of(middle)
    await tab.call("Runtime.evaluate", {"expression": "f.remove()"})
    with pytest.raises(TabGone):
        await waiting
    assert await tab.frame(frame_id) is None
