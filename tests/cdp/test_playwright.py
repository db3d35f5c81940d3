"""Every Playwright case, in two clients at once and beside a Puppeteer client, all on one Chromium."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.async_api import Playwright

from . import (
    playwright_cases_connection,
    playwright_cases_emulation,
    playwright_cases_frames,
    playwright_cases_input,
    playwright_cases_network,
    playwright_cases_output,
    playwright_cases_pages,
    playwright_cases_script,
    playwright_cases_state,
    playwright_cases_workers,
)
from .client import cases_of, connected
from .endpoint import CASE_LIMIT_S, Endpoint
from .node import Node, case_names
from .site import Site

pytestmark = [pytest.mark.server, pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

CASES = cases_of(
    playwright_cases_connection,
    playwright_cases_emulation,
    playwright_cases_frames,
    playwright_cases_input,
    playwright_cases_network,
    playwright_cases_output,
    playwright_cases_pages,
    playwright_cases_script,
    playwright_cases_state,
    playwright_cases_workers,
)
COMPANIONS = case_names()


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.__name__ for case in CASES])
async def test_two_playwright_clients_beside_a_puppeteer_client(
    number: int,
    playwright: Playwright,
    node: Node,
    endpoint: Endpoint,
    site: Site,
    new_name: Callable[[], str],
    tmp_path: Path,
) -> None:
    case, companion = CASES[number], COMPANIONS[number % len(COMPANIONS)]

    async def run(who: str, *, takes_first: bool) -> None:
        files = tmp_path / who
        files.mkdir()
        async with connected(playwright, endpoint, site, files, who, takes_first=takes_first) as client:
            await case(client)
            assert await client.strangers() == set()

    async with asyncio.timeout(CASE_LIMIT_S), asyncio.TaskGroup() as group:
        # One at home in the page that is there from the start, the other in pages that it opens.
        group.create_task(run(new_name(), takes_first=True))
        if endpoint.is_shared:
            group.create_task(run(new_name(), takes_first=False))
            group.create_task(node.run(companion, new_name(), endpoint, tmp_path, takes_first=True))
    assert site.leaks == []
