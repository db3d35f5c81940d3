"""The ways in that the cases do not take, and what only a shared browser refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.async_api import Error, Playwright
from tests.server.conftest import open_session

from .client import Client, connected
from .endpoint import BrokerEndpoint, broker
from .node import Node
from .playwright_cases_pages import a_page_has_the_title_of_what_it_loads
from .site import Site

pytestmark = [pytest.mark.server, pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_a_server_without_auth_takes_its_bare_address(
    playwright: Playwright, node: Node, site: Site, new_name: Callable[[], str], tmp_path: Path
) -> None:
    with broker(tmp_path, "[auth]\nenabled = false\n", warm=0) as server:
        url = server.record["url"]
        order = {"case": "aPageHasTheTitleOfWhatItLoads", "files": str(tmp_path), "address": {"browserURL": url}}
        assert (await node.order(who=new_name(), **order))["error"] is None
        browser = await playwright.chromium.connect_over_cdp(url)
        await a_page_has_the_title_of_what_it_loads(Client(new_name(), browser, site, tmp_path, url, playwright))
        await browser.close()


async def test_the_whole_browser_is_not_traced(
    playwright: Playwright, own_endpoint: BrokerEndpoint, site: Site, new_name: Callable[[], str], tmp_path: Path
) -> None:
    async with connected(playwright, own_endpoint, site, tmp_path, new_name()) as client:
        session = await client.browser.new_browser_cdp_session()
        with pytest.raises(Error, match="policy_denied"):
            await session.send("Tracing.start")


async def test_a_file_of_the_session_is_uploaded_by_its_path(
    node: Node, own_endpoint: BrokerEndpoint, new_name: Callable[[], str]
) -> None:
    with own_endpoint.server.agent("ada") as agent:
        session = open_session(agent)
        files = f"/sessions/{session['sessionId']}/files"
        path = agent.post(files, params={"name": "mine.txt"}, content=b"of ada").raise_for_status().json()["path"]
        address = {"browserWSEndpoint": session["webSocketDebuggerUrl"]}
        ended = await node.order(case="theFileIsUploaded", who=new_name(), address=address, files=path)
    assert ended["error"] is None


async def test_a_file_of_the_machine_is_not_uploaded_by_its_path(
    node: Node, own_endpoint: BrokerEndpoint, new_name: Callable[[], str], tmp_path: Path
) -> None:
    secret = tmp_path / "mine.txt"
    secret.write_text("of ada")
    async with own_endpoint.door("ada") as door:
        address = {"browserWSEndpoint": door.ws}
        ended = await node.order(case="theFileIsUploaded", who=new_name(), address=address, files=str(secret))
    assert "policy_denied" in (ended["error"] or "")
