"""A crowd of both kinds of clients on one Chromium, all with everything open at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.async_api import Playwright
from tests.browsers.real import launched

from .client import Client, connected
from .endpoint import CASE_LIMIT_S, Door, Endpoint, OneDoor
from .node import Node
from .site import FLAGS, Site

pytestmark = [pytest.mark.server, pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

# Of each kind.
CLIENTS = 2


async def _open_everything(client: Client) -> None:
    """A page with frames, a popup, and workers, in two contexts; then wait for the others."""
    await client.watch_targets()
    page = await client.page("opener")
    async with page.expect_popup() as waiting:
        await page.click("#far")
    await waiting.value
    await client.page("frames", await client.new_context())
    await client.page("shared")
    await client.page("service", host="localhost")
    await client.page("gate")


async def _crowd(
    playwright: Playwright, node: Node, endpoint: Endpoint, site: Site, files: Path, names: list[str]
) -> list[set[str]]:
    """Whom each client saw besides itself: first those of Playwright, then those of Puppeteer."""
    site.gate = asyncio.Barrier(len(names))
    half = len(names) // 2

    async def with_playwright(who: str) -> set[str]:
        async with connected(playwright, endpoint, site, files, who) as client:
            await _open_everything(client)
            return await client.strangers()

    async def with_puppeteer(who: str) -> set[str]:
        async with endpoint.door(who) as door:
            address = {"browserWSEndpoint": door.ws}
            ended = await node.order(cases=["everythingIsOpened"], who=who, address=address, files=str(files))
        assert ended["errors"] == {}
        return set(ended["strangers"])

    async with asyncio.timeout(CASE_LIMIT_S), asyncio.TaskGroup() as group:
        tasks = [group.create_task(with_playwright(who)) for who in names[:half]]
        tasks += [group.create_task(with_puppeteer(who)) for who in names[half:]]
    return [task.result() for task in tasks]


async def test_nobody_in_a_crowd_sees_anything_of_the_others(
    playwright: Playwright, node: Node, endpoint: Endpoint, site: Site, new_name: Callable[[], str], tmp_path: Path
) -> None:
    names = [new_name() for _ in range(2 * CLIENTS)]
    assert await _crowd(playwright, node, endpoint, site, tmp_path, names) == [set()] * len(names)
    assert site.take_leaks() == []


async def test_clients_that_share_a_bare_chromium_do_see_each_other(
    playwright: Playwright, node: Node, site: Site, new_name: Callable[[], str], tmp_path: Path
) -> None:
    # Without tabherd in between: so the test above would notice.
    names = [new_name() for _ in range(2)]
    async with launched(tmp_path, flags=FLAGS) as browser:
        bare = OneDoor(Door(f"http://127.0.0.1:{browser.row.port}", browser.row.endpoint))
        seen = await _crowd(playwright, node, bare, site, tmp_path, names)
    # Also what is just going, which may have no name any more.
    assert [name in strangers for name, strangers in zip(reversed(names), seen, strict=True)] == [True, True]
    # Their cookies are the same ones, of course.
    assert site.take_leaks()
