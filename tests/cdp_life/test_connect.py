"""Every address under which a client gets in, what it finds there, and what looking around does not lease."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest
from playwright.async_api import Playwright
from tests.server.conftest import Server, open_session

from .conftest import ON_PLAYWRIGHTS_LOOP, host_of, sessions_of, ws_of
from .wire_client import wire_client

pytestmark = [pytest.mark.server, pytest.mark.browser]


@ON_PLAYWRIGHTS_LOOP
async def test_playwright_gets_in_by_every_address(
    playwright: Playwright, server: Server, admin: httpx.Client, ada: httpx.Client, token: str
) -> None:
    connect = playwright.chromium.connect_over_cdp
    browser = await connect(f"http://{host_of(server)}?token={server.admin_token}&agent=connects-for")
    assert [one["agentId"] for one in sessions_of(admin)].count("connects-for") == 1
    assert await (await browser.contexts[0].new_page()).evaluate("1 + 1") == 2
    await browser.close()
    for address in (f"http://{host_of(server)}", f"ws://{host_of(server)}/devtools/browser"):
        browser = await connect(address, headers={"Authorization": f"Bearer {token}"})
        assert len(browser.contexts) == 1
        await browser.close()
    session = open_session(ada, url="data:text/html,<title>Joined</title>")
    for address in (session["cdpUrl"], session["webSocketDebuggerUrl"]):
        browser = await connect(address)
        assert [await page.title() for page in browser.contexts[0].pages] == ["Joined"]
        await browser.close()


async def test_every_door_takes_a_token_in_the_query_and_a_ticket_needs_none(
    server: Server, ada: httpx.Client, token: str
) -> None:
    doors = [f"ws://{host_of(server)}{path}?token={token}" for path in ("/", "/devtools/browser", "/devtools/browser/")]
    for url in (*doors, ada.get("/json/version").json()["webSocketDebuggerUrl"]):
        async with wire_client(url) as client:
            assert "Chrom" in (await client.call("Browser.getVersion"))["product"]
            assert len(await client.pages()) == 1


async def test_an_address_carries_what_was_asked_for(server: Server, ada: httpx.Client, token: str) -> None:
    query = {"token": token, "keepAlive": "true", "tier": "pro", "key": "vendor"}
    with httpx.Client(base_url=server.record["url"]) as anybody:
        url = anybody.get("/json/version", params=query).json()["webSocketDebuggerUrl"]
    assert token not in url
    async with wire_client(url):
        (session,) = [one for one in sessions_of(ada) if one["key"] == "vendor"]
        assert (session["keepAlive"], session["tier"], session["agentId"]) == (True, "pro", "ada")


async def test_connections_share_the_session_they_name_and_no_other(
    server: Server, ada: httpx.Client, token: str
) -> None:
    session = open_session(ada)
    url = ws_of(server, f"session={session['sessionId']}")
    async with wire_client(url, token) as first, wire_client(url, token) as second:
        page = (await first.open_page("data:text/html,<title>Both</title>"))[0]
        assert page in [target["targetId"] for target in await second.pages()]
        async with wire_client(ws_of(server), token) as third, wire_client(ws_of(server), token) as fourth:
            assert len(sessions_of(ada)) == 3
            (one,), (other,) = await third.pages(), await fourth.pages()
            assert one["targetId"] != other["targetId"]


async def test_looking_around_leases_nothing_and_tells_a_stranger_where_but_not_with_what(
    server: Server, admin: httpx.Client, token: str
) -> None:
    before = {one["sessionId"] for one in sessions_of(admin)}
    with httpx.Client(base_url=server.record["url"]) as anybody:
        for path in ("/", "/json", "/json/list", "/json/version", "/json/version/", "/json/protocol"):
            assert anybody.get(path, params={"token": token} if path != "/" else {}).status_code == 200, path
        assert anybody.get("/devtools/browser", params={"token": token}).status_code == 404
        told = anybody.get("/json/version").json()
    assert told["webSocketDebuggerUrl"] == f"ws://{host_of(server)}/devtools/browser"
    assert "Chrom" in told["Browser"]
    assert {one["sessionId"] for one in sessions_of(admin)} <= before


async def test_a_controller_named_in_the_address_survives_the_detour_over_json_version(ada: httpx.Client) -> None:
    session = open_session(ada)
    tab_id = session["tabs"][0]["tabId"]
    assert ada.post(f"/tabs/{tab_id}/lock", json={"controllerId": "a b"}).status_code == 200
    query = f"session={session['sessionId']}&controllerId={quote('a b')}&cdpWaitPolicy=fail"
    url = ada.get(f"/json/version?{query}").json()["webSocketDebuggerUrl"]
    async with wire_client(url) as client:
        assert await client.value("1 + 1", await client.page()) == 2
