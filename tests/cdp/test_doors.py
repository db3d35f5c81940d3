"""The ways in that the cases do not take, and what only a shared browser refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.async_api import Error, Playwright
from tests.server.conftest import Server, open_session, with_settings

from .client import Client, connected
from .endpoint import BrokerEndpoint
from .node import Node
from .playwright_cases_pages import a_page_has_the_title_of_what_it_loads
from .site import FLAGS, Site

pytestmark = [pytest.mark.server, pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_a_server_without_auth_takes_its_bare_address(
    playwright: Playwright, node: Node, site: Site, new_name: Callable[[], str], tmp_path: Path
) -> None:
    settings = {"AUTH__ENABLED": "false", "POOLS__DEFAULT__WARM": "0", "POOLS__DEFAULT__FLAGS": FLAGS[0]}
    with with_settings(tmp_path / "state", settings) as server:
        url = server.record["url"]
        order = {"cases": ["aPageHasTheTitleOfWhatItLoads"], "files": str(tmp_path), "address": {"browserURL": url}}
        assert (await node.order(who=new_name(), **order))["errors"] == {}
        browser = await playwright.chromium.connect_over_cdp(url)
        await a_page_has_the_title_of_what_it_loads(Client(new_name(), browser, site, tmp_path, url, playwright))
        await browser.close()


async def test_a_shared_browser_is_not_traced(
    playwright: Playwright, own_endpoint: BrokerEndpoint, site: Site, new_name: Callable[[], str], tmp_path: Path
) -> None:
    async with connected(playwright, own_endpoint, site, tmp_path, new_name()) as client:
        session = await client.browser.new_browser_cdp_session()
        with pytest.raises(Error, match="policy_denied"):
            await session.send("Tracing.start")


async def test_a_file_is_uploaded_by_its_path_if_it_is_the_sessions(
    node: Node, shared_server: Server, new_name: Callable[[], str], tmp_path: Path
) -> None:
    secret = tmp_path / "mine.txt"
    secret.write_text("of ada")
    with shared_server.agent(new_name()) as agent:
        session = open_session(agent, pool="bound", keepAlive=True)
        files = f"/sessions/{session['sessionId']}/files"
        path = agent.post(files, params={"name": "mine.txt"}, content=b"of ada").raise_for_status().json()["path"]
        address = {"browserWSEndpoint": session["webSocketDebuggerUrl"]}
        order = {"cases": ["theFileIsUploaded"], "address": address, "who": new_name()}
        assert (await node.order(files=path, **order))["errors"] == {}
        refused = (await node.order(files=str(secret), **order))["errors"]
    assert "policy_denied" in refused["theFileIsUploaded"]
