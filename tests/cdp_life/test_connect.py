"""Every address under which a client gets in, what it finds there, and what looking around does not lease."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest
from playwright.async_api import Playwright
from tests.server.conftest import Server, open_session, release

from .conftest import ON_PLAYWRIGHTS_LOOP, host_of, sessions_of, ws_of
from .wire_client import wire_client

pytestmark = [pytest.mark.server, pytest.mark.browser]


# --- Playwright -------------------------------------------------------------------------------------------------


@ON_PLAYWRIGHTS_LOOP
async def test_an_admin_connects_for_an_agent_with_the_bare_address(
    playwright: Playwright, server: Server, admin: httpx.Client
) -> None:
    address = f"http://{host_of(server)}?token={server.admin_token}&agent=connects-for"
    browser = await playwright.chromium.connect_over_cdp(address)
    assert [one["agentId"] for one in sessions_of(admin)].count("connects-for") == 1
    page = await browser.contexts[0].new_page()
    assert await page.evaluate("1 + 1") == 2
    await browser.close()


@ON_PLAYWRIGHTS_LOOP
async def test_the_address_of_a_session_joins_it(playwright: Playwright, ada: httpx.Client) -> None:
    session = open_session(ada, url="data:text/html,<title>Joined</title>")
    browser = await playwright.chromium.connect_over_cdp(session["cdpUrl"])
    assert [await page.title() for page in browser.contexts[0].pages] == ["Joined"]
    await browser.close()
    release(ada, session)


@ON_PLAYWRIGHTS_LOOP
async def test_the_websocket_address_of_a_session_joins_it(playwright: Playwright, ada: httpx.Client) -> None:
    session = open_session(ada, url="data:text/html,<title>Joined</title>")
    browser = await playwright.chromium.connect_over_cdp(session["webSocketDebuggerUrl"])
    assert [await page.title() for page in browser.contexts[0].pages] == ["Joined"]
    await browser.close()
    release(ada, session)


@ON_PLAYWRIGHTS_LOOP
async def test_a_header_is_as_good_as_a_token_in_the_address(
    playwright: Playwright, server: Server, token: str
) -> None:
    for address in (f"http://{host_of(server)}", f"ws://{host_of(server)}/devtools/browser"):
        browser = await playwright.chromium.connect_over_cdp(address, headers={"Authorization": f"Bearer {token}"})
        assert len(browser.contexts) == 1
        await browser.close()


# --- On the wire ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/devtools/browser", "/devtools/browser/"])
async def test_every_door_takes_a_token_in_the_query(path: str, server: Server, token: str) -> None:
    async with wire_client(f"ws://{host_of(server)}{path}?token={token}") as client:
        assert "Chrom" in (await client.call("Browser.getVersion"))["product"]


async def test_the_address_that_json_version_names_needs_nothing_else(server: Server, ada: httpx.Client) -> None:
    async with wire_client(ada.get("/json/version").json()["webSocketDebuggerUrl"]) as client:
        assert len(await client.pages()) == 1


async def test_an_address_carries_what_was_asked_for(server: Server, ada: httpx.Client, token: str) -> None:
    query = {"token": token, "keepAlive": "true", "tier": "pro", "key": "vendor"}
    with httpx.Client(base_url=server.record["url"]) as anybody:
        url = anybody.get("/json/version", params=query).json()["webSocketDebuggerUrl"]
    assert token not in url
    async with wire_client(url):
        (session,) = [one for one in sessions_of(ada) if one["key"] == "vendor"]
        assert (session["keepAlive"], session["tier"], session["agentId"]) == (True, "pro", "ada")
    release(ada, session)


async def test_two_clients_can_be_in_one_session(server: Server, ada: httpx.Client, token: str) -> None:
    session = open_session(ada)
    url = ws_of(server, f"session={session['sessionId']}")
    async with wire_client(url, token) as first, wire_client(url, token) as second:
        page = (await first.open_page("data:text/html,<title>Both</title>"))[0]
        assert page in [target["targetId"] for target in await second.pages()]
    release(ada, session)


async def test_every_connection_without_a_session_gets_one_of_its_own(
    server: Server, ada: httpx.Client, token: str
) -> None:
    before = {one["sessionId"] for one in sessions_of(ada)}
    async with wire_client(ws_of(server), token) as first, wire_client(ws_of(server), token) as second:
        assert len({one["sessionId"] for one in sessions_of(ada)} - before) == 2
        (one,), (other,) = await first.pages(), await second.pages()
        assert one["targetId"] != other["targetId"]


async def test_looking_around_leases_nothing(server: Server, admin: httpx.Client, token: str) -> None:
    before = {one["sessionId"] for one in admin.get("/sessions", params={"limit": 500}).json()["sessions"]}
    with httpx.Client(base_url=server.record["url"]) as anybody:
        for path in ("/", "/json", "/json/list", "/json/version", "/json/version/", "/json/protocol"):
            assert anybody.get(path, params={"token": token} if path != "/" else {}).status_code == 200, path
        assert anybody.get("/devtools/browser", params={"token": token}).status_code == 404
    after = {one["sessionId"] for one in admin.get("/sessions", params={"limit": 500}).json()["sessions"]}
    assert after == before


async def test_json_version_tells_a_stranger_where_but_not_with_what(server: Server) -> None:
    with httpx.Client(base_url=server.record["url"]) as stranger:
        told = stranger.get("/json/version").json()
    assert told["webSocketDebuggerUrl"] == f"ws://{host_of(server)}/devtools/browser"
    assert "Chrom" in told["Browser"]


async def test_a_controller_named_in_the_address_survives_the_detour_over_json_version(
    server: Server, ada: httpx.Client, token: str
) -> None:
    session = open_session(ada)
    tab_id = session["tabs"][0]["tabId"]
    assert ada.post(f"/tabs/{tab_id}/lock", json={"controllerId": "a b"}).status_code == 200
    query = f"session={session['sessionId']}&controllerId={quote('a b')}&cdpWaitPolicy=fail"
    url = ada.get(f"/json/version?{query}").json()["webSocketDebuggerUrl"]
    async with wire_client(url) as client:
        assert await client.value("1 + 1", await client.page()) == 2
    release(ada, session)
