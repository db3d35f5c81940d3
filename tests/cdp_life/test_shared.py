"""Tenants of one profile: each sees and touches its own tabs only, not those of others nor of the browser's user."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Playwright
from tests.browsers.real import launched
from tests.server.conftest import Server, with_settings

from .conftest import ON_PLAYWRIGHTS_LOOP, host_of, until, ws_of
from .wire_client import CdpError, WireClient, wire_client

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Of a server of one's own, and of the worker's.
SHARED = {"POOLS__DEFAULT__ISOLATION": "shared"}
POOL = "pool=shared"


@pytest.fixture
async def ada(server: Server) -> AsyncIterator[WireClient]:
    async with wire_client(ws_of(server, POOL), server.token_of("ada")) as client:
        yield client


@pytest.fixture
async def bob(server: Server) -> AsyncIterator[WireClient]:
    async with wire_client(ws_of(server, POOL), server.token_of("bob")) as client:
        yield client


async def ids(client: WireClient) -> set[str]:
    return {page["targetId"] for page in await client.pages()}


# --- Seeing -----------------------------------------------------------------------------------------------------


@ON_PLAYWRIGHTS_LOOP
async def test_two_playwright_clients_see_only_their_own_pages(
    playwright: Playwright, server: Server, site: str
) -> None:
    browsers = [
        await playwright.chromium.connect_over_cdp(f"http://{host_of(server)}?{POOL}&token={server.token_of(agent)}")
        for agent in ("ada", "bob")
    ]
    for number, browser in enumerate(browsers):
        page = await browser.contexts[0].new_page()
        await page.goto(f"{site}?{number}")
        async with page.expect_popup() as opened:
            await page.evaluate(f"window.open('{site}?popup-{number}'); 1")
        await (await opened.value).wait_for_load_state()
    for number, browser in enumerate(browsers):
        urls = {page.url for page in browser.contexts[0].pages} - {"about:blank"}
        assert urls == {f"{site}?{number}", f"{site}?popup-{number}"}
    for browser in browsers:
        await browser.close()


async def test_discovery_tells_of_own_pages_only(ada: WireClient, bob: WireClient) -> None:
    for client in (ada, bob):
        await client.call("Target.setDiscoverTargets", {"discover": True})
    theirs, session_id = await bob.open_page("data:text/html,<title>Secret</title>")
    await bob.value("document.title = 'More secret'", session_id)
    mine, _ = await ada.open_page()
    await bob.call("Target.closeTarget", {"targetId": theirs})
    await ada.event("Target.targetCreated", lambda event: event["targetInfo"]["targetId"] == mine)
    await ada.call("Browser.getVersion")
    assert theirs not in str(ada.inbox)
    assert "ecret" not in str(ada.inbox)
    assert (await ids(ada)) & (await ids(bob)) == set()


async def test_attaching_by_itself_reaches_own_pages_and_popups_only(ada: WireClient, bob: WireClient) -> None:
    options = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}
    for client in (ada, bob):
        await client.call("Target.setAutoAttach", options)
    first = (await ada.event("Target.attachedToTarget"))["sessionId"]
    await ada.call("Runtime.runIfWaitingForDebugger", {}, first)
    await ada.send(
        "Runtime.evaluate", {"expression": "window.open('about:blank#popup'); 1", "userGesture": True}, first
    )
    popup = await ada.event("Target.attachedToTarget")
    assert popup["waitingForDebugger"]
    await ada.call("Runtime.runIfWaitingForDebugger", {}, popup["sessionId"])
    assert popup["targetInfo"]["targetId"] in await ids(ada)
    await bob.call("Browser.getVersion")
    assert popup["targetInfo"]["targetId"] not in str(bob.inbox)


# --- Touching ---------------------------------------------------------------------------------------------------


async def test_a_page_of_another_tenant_does_not_exist(ada: WireClient, bob: WireClient) -> None:
    theirs, session_id = await bob.open_page()
    mine = await ada.page()
    for method in ("Target.attachToTarget", "Target.closeTarget", "Target.activateTarget", "Target.getTargetInfo"):
        params: dict[str, Any] = {"targetId": theirs} | ({"flatten": True} if "attach" in method else {})
        with pytest.raises(CdpError, match="No target with given id"):
            await ada.call(method, params)
        with pytest.raises(CdpError):
            await ada.call(method, params, mine)
    assert await bob.value("1 + 1", session_id) == 2


async def test_what_is_the_whole_profiles_is_denied(ada: WireClient) -> None:
    for method, params in (
        ("Target.createBrowserContext", {}),
        ("Storage.getCookies", {}),
        ("Storage.clearCookies", {}),
        ("Browser.grantPermissions", {"permissions": ["geolocation"]}),
    ):
        with pytest.raises(CdpError, match="policy_denied"):
            await ada.call(method, params)


async def test_pages_that_a_client_made_go_with_its_session(
    server: Server, bob: WireClient, admin: httpx.Client
) -> None:
    async with wire_client(ws_of(server, POOL), server.token_of("cyd")) as client:
        made, _ = await client.open_page()
        await client.call("Browser.close")
        await client.closed()
    await until(lambda: all(tab["agentId"] != "cyd" for tab in admin.get("/tabs").json()["tabs"]))
    assert made not in await ids(bob)


# --- Somebody's own browser -------------------------------------------------------------------------------------


async def test_the_users_own_tabs_are_out_of_reach_in_a_browser_that_is_attached_to(tmp_path: Path) -> None:
    async with launched(tmp_path / "profiles") as user:
        own = await user.new_tab("")
        await own.call("Runtime.evaluate", {"expression": "document.title = 'Private'"})
        settings = SHARED | {
            "POOLS__DEFAULT__SOURCE": "attach",
            "POOLS__DEFAULT__ENDPOINT": f"http://127.0.0.1:{user.row.port}",
        }
        with with_settings(tmp_path / "state", settings) as server:
            async with wire_client(ws_of(server), server.token_of("ada")) as client:
                await client.call("Target.setDiscoverTargets", {"discover": True})
                made, session_id = await client.open_page()
                assert await client.value("1 + 1", session_id) == 2
                assert own.target_id not in await ids(client)
                for method in ("Target.attachToTarget", "Target.closeTarget", "Target.getTargetInfo"):
                    params: dict[str, Any] = {"targetId": own.target_id}
                    with pytest.raises(CdpError, match="No target with given id"):
                        await client.call(method, params | ({"flatten": True} if "attach" in method else {}))
                assert own.target_id not in str(client.inbox)
                assert made in await ids(client)
        # It is the user's, and stays.
        title = await own.call("Runtime.evaluate", {"expression": "document.title"})
        assert title["result"]["value"] == "Private"
