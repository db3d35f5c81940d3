"""The Puppeteer cases that Playwright's repeat, and every one in two clients at once on one Chromium.

`test_playwright.py` runs those that are Puppeteer's own, beside clients of the other kind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from .endpoint import Endpoint
from .node import Node, case_names, twin_names
from .site import Site

pytestmark = [pytest.mark.server, pytest.mark.browser, pytest.mark.asyncio(loop_scope="session"), pytest.mark.soak]


@pytest.mark.parametrize("case", [*case_names(), *twin_names()])
async def test_two_puppeteer_clients(
    case: str, node: Node, endpoint: Endpoint, site: Site, new_name: Callable[[], str], tmp_path: Path
) -> None:
    async with asyncio.TaskGroup() as group:
        # One at home in the page that is there from the start, the other in pages that it opens.
        for takes_first in (True, False) if endpoint.is_shared else (True,):
            group.create_task(node.run([case], new_name(), endpoint, tmp_path, takes_first=takes_first))
    assert site.take_leaks() == []
