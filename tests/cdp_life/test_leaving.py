"""What is left of a client that goes, or whose browser or broker goes, and what it finds when it comes back."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Playwright
from tests.cli.running import Started, running_server
from tests.server.conftest import (
    Server,
    browser_pids,
    environment_of,
    kill_browser,
    open_session,
    release,
    value_of,
    with_settings,
)

from .conftest import ON_PLAYWRIGHTS_LOOP, SETTINGS, host_of, until, ws_of
from .wire_client import CdpError, wire_client

pytestmark = [pytest.mark.server, pytest.mark.browser]

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


@pytest.fixture(scope="module")
def doomed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    with running_server(tmp_path_factory.mktemp("doomed") / "state", environment_of(SETTINGS)) as started:
        yield started


@pytest.fixture
def own_server(doomed: Started) -> Server:
    """A server that the test may kill, and its browsers: the next one that needs it starts it again."""
    server = Server(doomed.state, doomed)
    if not doomed.is_running:
        server.start(SETTINGS)
    return server


def only(client: httpx.Client, key: str) -> dict[str, Any]:
    """The one session with that key, ended or not."""
    (found,) = [one for one in client.get("/sessions?limit=1000").json()["sessions"] if one["key"] == key]
    return found


async def ended(client: httpx.Client, session_id: str) -> str:
    """Why the session ended, once it has."""

    def reason() -> str:
        one = client.get(f"/sessions/{session_id}").json()
        return str(one["endReason"]) if one["state"] in ("closed", "pooled", "lost") else ""

    told: str = await until(reason)
    return told


# --- Going ------------------------------------------------------------------------------------------------------


async def test_who_disconnects_is_released_after_the_grace(server: Server, ada: httpx.Client, token: str) -> None:
    async with wire_client(ws_of(server, "key=disconnects"), token):
        session = only(ada, "disconnects")
        left_at = time.monotonic()
    assert await ended(ada, session["sessionId"]) == "disconnected"
    assert time.monotonic() - left_at >= int(SETTINGS["POOLS__DEFAULT__DISCONNECT_GRACE_S"])


async def test_who_comes_back_within_the_grace_keeps_the_session(tmp_path: Path) -> None:
    with (
        with_settings(tmp_path / "state", SETTINGS | {"POOLS__DEFAULT__DISCONNECT_GRACE_S": "10"}) as server,
        server.client() as admin,
    ):
        async with wire_client(ws_of(server, "key=back"), server.admin_token) as client:
            made, _ = await client.open_page()
        session = only(admin, "back")
        async with wire_client(session["webSocketDebuggerUrl"]) as client:
            assert made in [page["targetId"] for page in await client.pages()]
            async with wire_client(ws_of(server, "key=later"), server.admin_token):
                later = only(admin, "later")
            # Who left after it is gone by then, so its own grace is over as well.
            assert await ended(admin, later["sessionId"]) == "disconnected"
            assert only(admin, "back")["state"] == "active"


async def test_closing_the_browser_releases_at_once(server: Server, ada: httpx.Client, token: str) -> None:
    async with wire_client(ws_of(server, "key=closes"), token) as client:
        session = only(ada, "closes")
        assert await client.call("Browser.close") == {}
        assert (await client.closed())[0] == 1000
    assert await ended(ada, session["sessionId"]) == "released"


@pytest.mark.parametrize("query", ["key=kept-closes&keepAlive=true", "session="])
async def test_closing_the_browser_does_not_release_what_is_kept_or_was_joined(
    query: str, server: Server, ada: httpx.Client, token: str
) -> None:
    session = None
    if query == "session=":
        session = open_session(ada, keepAlive=True)
        query += session["sessionId"]
    async with wire_client(ws_of(server, query), token) as client:
        session = session or only(ada, "kept-closes")
        await client.call("Browser.close")
        await client.closed()
    async with wire_client(ws_of(server, f"session={session['sessionId']}"), token) as client:
        assert len(await client.pages()) == 1
    release(ada, session)


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
    release(ada, session)


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
    release(ada, session)


async def test_a_client_that_is_killed_is_released(server: Server, ada: httpx.Client, token: str) -> None:
    url = ws_of(server, f"key=killed&token={token}")
    with subprocess.Popen([sys.executable, "-c", IDLE_CLIENT, url], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "connected\n"
            session = only(ada, "killed")
        finally:
            process.kill()
    assert await ended(ada, session["sessionId"]) == "disconnected"


# --- The broker or the browser goes -----------------------------------------------------------------------------


async def test_the_address_of_a_kept_session_is_good_after_the_broker_was_killed(own_server: Server) -> None:
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


async def test_a_client_hears_that_its_browser_died_and_joins_the_session_again(own_server: Server) -> None:
    with own_server.client() as admin:
        session = open_session(admin, keepAlive=True, url="data:text/html,<title>Back again</title>")
        tab_id = session["tabs"][0]["tabId"]
        generation = admin.get(f"/tabs/{tab_id}").json()["generation"]
        async with wire_client(session["webSocketDebuggerUrl"]) as client:
            await client.page()
            for pid in browser_pids(admin):
                kill_browser(pid)
            code, reason = await client.closed()
            assert (code, reason.partition(":")[0]) == (4502, "browser_crashed")
        await until(lambda: admin.get(f"/tabs/{tab_id}").json()["generation"] > generation)
        assert value_of(admin, tab_id, "document.title") == "Back again"
        async with wire_client(session["webSocketDebuggerUrl"]) as client:
            assert [page["title"] for page in await client.pages()] == ["Back again"]


@ON_PLAYWRIGHTS_LOOP
async def test_playwright_hears_that_its_browser_died(playwright: Playwright, own_server: Server) -> None:
    with own_server.client() as admin:
        browser = await playwright.chromium.connect_over_cdp(
            f"http://{host_of(own_server)}?token={own_server.admin_token}"
        )
        for pid in browser_pids(admin):
            kill_browser(pid)
        await until(lambda: not browser.is_connected())


async def test_a_server_that_ends_says_so(own_server: Server) -> None:
    async with wire_client(ws_of(own_server), own_server.admin_token) as client:
        own_server.stop()
        code, reason = await client.closed()
        assert code in (1001, 4503)
        assert reason
