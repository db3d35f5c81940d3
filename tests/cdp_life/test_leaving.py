"""What is left of a client that goes, or whose browser or broker goes, and what it finds when it comes back."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Playwright
from tests.server.conftest import Server, browser_pids, kill_browser, open_session, value_of, with_settings

from .conftest import ON_PLAYWRIGHTS_LOOP, host_of, until, ws_of
from .wire_client import CdpError, wire_client

pytestmark = [pytest.mark.server, pytest.mark.browser]

# One page that is kept ready is enough.
SETTINGS = {"POOLS__DEFAULT__WARM": "1", "POOLS__DEFAULT__BROWSERS_MAX": "1"}

# Connects, says so, and does nothing more.
IDLE_CLIENT = """
import asyncio, sys
from picows.websockets import connect

async def main():
    async with connect(sys.argv[1], max_size=None):
        print("connected", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def only(client: httpx.Client, key: str) -> dict[str, Any]:
    """The latest session with that key, ended or not."""
    newest = client.get("/sessions", params={"order": "desc"}).json()["sessions"]
    found: dict[str, Any] = next(one for one in newest if one["key"] == key)
    return found


async def ended(client: httpx.Client, session_id: str) -> str:
    """Why the session ended, once it has."""

    def reason() -> str:
        one = client.get(f"/sessions/{session_id}").json()
        return str(one["endReason"]) if one["state"] in ("closed", "pooled", "lost") else ""

    told: str = await until(reason)
    return told


# --- Going ------------------------------------------------------------------------------------------------------


async def test_who_leaves_is_released_after_the_grace_also_without_a_word(
    server: Server, ada: httpx.Client, token: str
) -> None:
    async with wire_client(ws_of(server, "pool=brief&key=disconnects"), token):
        session = only(ada, "disconnects")
        left_at = time.monotonic()
    assert await ended(ada, session["sessionId"]) == "disconnected"
    assert time.monotonic() - left_at >= 1
    url = ws_of(server, f"pool=bound&key=killed&token={token}")
    with subprocess.Popen([sys.executable, "-c", IDLE_CLIENT, url], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "connected\n"
            session = only(ada, "killed")
        finally:
            process.kill()
    assert await ended(ada, session["sessionId"]) == "disconnected"


async def test_who_comes_back_within_the_grace_keeps_the_session(server: Server, ada: httpx.Client, token: str) -> None:
    async with wire_client(ws_of(server, "pool=lenient&key=back"), token) as client:
        made, _ = await client.open_page()
        session = only(ada, "back")
    async with wire_client(session["webSocketDebuggerUrl"]) as client:
        assert made in [page["targetId"] for page in await client.pages()]
        async with wire_client(ws_of(server, "pool=lenient&key=later"), token):
            later = only(ada, "later")
        # Who left after it is gone by then, so its own grace is over as well.
        assert await ended(ada, later["sessionId"]) == "disconnected"
        assert only(ada, "back")["state"] == "active"


async def test_closing_the_browser_releases_at_once_what_is_neither_kept_nor_joined(
    server: Server, ada: httpx.Client, token: str
) -> None:
    joined = open_session(ada, keepAlive=True)
    for query, session in (
        ("key=closes", None),
        ("key=kept-closes&keepAlive=true", None),
        (f"session={joined['sessionId']}", joined),
    ):
        async with wire_client(ws_of(server, query), token) as client:
            own = session or only(ada, query.partition("&")[0].removeprefix("key="))
            assert await client.call("Browser.close") == {}
            assert (await client.closed())[0] == 1000
        if query == "key=closes":
            assert await ended(ada, own["sessionId"]) == "released"
        else:
            async with wire_client(ws_of(server, f"session={own['sessionId']}"), token) as client:
                assert len(await client.pages()) == 1


@ON_PLAYWRIGHTS_LOOP
async def test_playwright_finds_the_pages_of_a_session_that_is_kept(
    playwright: Playwright, server: Server, ada: httpx.Client, token: str, site: str
) -> None:
    address = f"http://{host_of(server)}?token={token}&keepAlive=true&key=kept"
    browser = await playwright.chromium.connect_over_cdp(address)
    page = await browser.contexts[0].new_page()
    await page.goto(site)
    await page.evaluate("document.cookie = 'who=me'; window.state = 42")
    await browser.close()
    session = only(ada, "kept")
    again = await playwright.chromium.connect_over_cdp(session["cdpUrl"])
    (kept,) = [one for one in again.contexts[0].pages if one.url == site]
    assert await kept.title() == "A page"
    assert await kept.evaluate("window.state") == 42
    assert [cookie["value"] for cookie in await again.contexts[0].cookies(site)] == ["me"]
    await again.close()


async def test_contexts_that_a_client_made_go_with_it(server: Server, ada: httpx.Client, token: str) -> None:
    session = open_session(ada, keepAlive=True)
    url = ws_of(server, f"session={session['sessionId']}")
    async with wire_client(url, token) as client:
        context = (await client.call("Target.createBrowserContext"))["browserContextId"]
        made = await client.call("Target.createTarget", {"url": "about:blank", "browserContextId": context})
        assert made["targetId"] in [page["targetId"] for page in await client.pages()]
    async with wire_client(url, token) as client:
        assert made["targetId"] not in [page["targetId"] for page in await client.pages()]
        with pytest.raises(CdpError, match="context"):
            await client.call("Target.createTarget", {"url": "about:blank", "browserContextId": context})


# --- The broker or the browser goes -----------------------------------------------------------------------------


@ON_PLAYWRIGHTS_LOOP
async def test_clients_hear_that_their_browser_died_and_join_the_session_again(
    playwright: Playwright, server: Server, ada: httpx.Client, admin: httpx.Client
) -> None:
    session = open_session(ada, pool="mortal", keepAlive=True, url="data:text/html,<title>Back again</title>")
    tab_id = session["tabs"][0]["tabId"]
    generation = ada.get(f"/tabs/{tab_id}").json()["generation"]
    browser = await playwright.chromium.connect_over_cdp(session["cdpUrl"])
    async with wire_client(session["webSocketDebuggerUrl"]) as client:
        await client.page()
        for pid in browser_pids(admin, "mortal"):
            kill_browser(pid)
        code, reason = await client.closed()
        assert (code, reason.partition(":")[0]) == (4502, "browser_crashed")
    await until(lambda: not browser.is_connected())
    await until(lambda: ada.get(f"/tabs/{tab_id}").json()["generation"] > generation)
    assert value_of(ada, tab_id, "document.title") == "Back again"
    async with wire_client(session["webSocketDebuggerUrl"]) as client:
        assert [page["title"] for page in await client.pages()] == ["Back again"]


async def test_the_address_of_a_kept_session_is_good_after_the_broker_was_killed_and_an_end_is_told(
    tmp_path: Path,
) -> None:
    with with_settings(tmp_path / "state", SETTINGS) as own_server:
        with own_server.client() as admin:
            session = open_session(admin, keepAlive=True, url="data:text/html,<title>Survivor</title>")
        port = host_of(own_server).rpartition(":")[2]
        async with wire_client(session["webSocketDebuggerUrl"]) as client:
            assert await client.value("window.state = 42", await client.page()) == 42
            own_server.kill()
            await client.closed()
        own_server.start(SETTINGS | {"SERVER__PORT": port})
        async with wire_client(session["webSocketDebuggerUrl"]) as client:
            page = await client.page()
            assert await client.value("[document.title, window.state]", page) == ["Survivor", 42]
            own_server.stop()
            code, reason = await client.closed()
            assert code in (1001, 4503)
            assert reason
