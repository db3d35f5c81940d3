"""A session that is no longer the client's: its socket is closed with the reason, and nothing of it acts any more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import httpx
import pytest
from picows.websockets import ConnectionClosed, InvalidStatus
from tests.server.conftest import Server, open_session, release, value_of

from .conftest import sessions_of, ws_of
from .wire_client import WireClient, wire_client

pytestmark = [pytest.mark.server, pytest.mark.browser]

COOKIE = {"name": "late", "domain": "late.test", "path": "/"}


def took_over(admin: httpx.Client, session: dict[str, Any], agent_id: str) -> None:
    answer = admin.post(f"/sessions/{session['sessionId']}/takeover", json={"agentId": agent_id})
    assert answer.status_code == 200, answer.text


async def test_a_release_over_http_closes_the_socket(server: Server, ada: httpx.Client) -> None:
    session = open_session(ada)
    async with wire_client(session["webSocketDebuggerUrl"]) as client:
        await client.page()
        release(ada, session)
        code, reason = await client.closed()
        assert (code, reason) == (4409, "lease_lost: The session ended: released.")


async def test_a_takeover_closes_the_sockets_of_the_old_holder_and_leaves_an_idle_page_as_it_is(
    server: Server, ada: httpx.Client, bob: httpx.Client, admin: httpx.Client
) -> None:
    session = open_session(ada)
    tab_id = session["tabs"][0]["tabId"]
    page_url = f"{ws_of(server)}devtools/page/{tab_id}"
    token = str(ada.headers["Authorization"]).removeprefix("Bearer ")
    async with wire_client(session["webSocketDebuggerUrl"]) as whole, wire_client(page_url, token) as page:
        await whole.value("window.state = 42", await whole.page())
        await asyncio.to_thread(took_over, admin, session, "bob")
        for client in (whole, page):
            code, reason = await client.closed()
            assert (code, reason.partition(":")[0]) == (4409, "lease_lost")
    async with wire_client(bob.get(f"/sessions/{session['sessionId']}").json()["webSocketDebuggerUrl"]) as client:
        assert len(await client.pages()) == 1
    assert value_of(bob, tab_id, "window.state") == 42


async def test_a_deadline_closes_the_socket(server: Server, token: str) -> None:
    # Time enough to connect before it is over.
    async with wire_client(ws_of(server, "deadlineMs=3000"), token) as client:
        code, reason = await client.closed()
        assert (code, reason) == (4409, "lease_lost: The session's deadline has passed.")


async def test_nothing_in_flight_acts_under_the_new_holder(
    server: Server, ada: httpx.Client, bob: httpx.Client, admin: httpx.Client
) -> None:
    session = open_session(ada)
    tab_id, path = session["tabs"][0]["tabId"], f"/sessions/{session['sessionId']}/state"
    async with wire_client(session["webSocketDebuggerUrl"]) as client:
        flooding = asyncio.ensure_future(flood(client, await client.page()))
        # It is under way.
        await client.next(lambda message: message.get("id") == 50)
        await asyncio.to_thread(took_over, admin, session, "bob")
        value_of(bob, tab_id, "window.late = 'bob'")
        bob.put(path, json={"cookies": [COOKIE | {"value": "bob"}]}).raise_for_status()
        assert (await client.closed())[0] == 4409
        await flooding
    # Whatever was still on its way would have arrived before these.
    assert value_of(bob, tab_id, "new Promise(done => setTimeout(() => done(window.late), 200))") == "bob"
    assert [cookie["value"] for cookie in bob.get(path).json()["cookies"]] == ["bob"]


async def test_what_a_command_in_flight_would_still_do_is_not_done_under_the_new_holder(
    server: Server, ada: httpx.Client, bob: httpx.Client, admin: httpx.Client
) -> None:
    session = open_session(ada)
    tab_id = session["tabs"][0]["tabId"]
    async with wire_client(session["webSocketDebuggerUrl"]) as client:
        page = await client.page()
        later = "new Promise(done => setTimeout(() => done(window.late = 'ada'), 500))"
        await client.send("Runtime.evaluate", {"expression": later, "awaitPromise": True}, page)
        assert await client.value("1", page) == 1
        await asyncio.to_thread(took_over, admin, session, "bob")
    value_of(bob, tab_id, "window.late = 'bob'")
    assert value_of(bob, tab_id, "new Promise(done => setTimeout(() => done(window.late), 700))") == "bob"


async def test_what_waited_for_a_hold_never_acts_under_the_new_holder(
    server: Server, ada: httpx.Client, bob: httpx.Client, admin: httpx.Client
) -> None:
    session = open_session(ada)
    tab_id = session["tabs"][0]["tabId"]
    async with wire_client(session["webSocketDebuggerUrl"]) as client:
        page = await client.page()
        assert ada.post(f"/tabs/{tab_id}/lock", json={"controllerId": "somebody"}).status_code == 200
        await client.send("Runtime.evaluate", {"expression": "window.late = 'ada'"}, page)
        await client.call("Browser.getVersion")
        await asyncio.to_thread(took_over, admin, session, "bob")
        assert (await client.closed())[0] == 4409
    assert value_of(bob, tab_id, "typeof window.late") == "undefined"


async def test_an_agent_cannot_slip_in_while_its_session_changes_hands(
    server: Server, ada: httpx.Client, bob: httpx.Client, admin: httpx.Client
) -> None:
    session = open_session(ada)
    async with wire_client(session["webSocketDebuggerUrl"]):
        # It is bound to connections now, and those that come are not written down any more.
        is_taken = asyncio.Event()

        async def keep_trying() -> list[int]:
            """Close codes, and 0 for a refused upgrade."""
            codes = []
            while not is_taken.is_set():
                try:
                    async with wire_client(session["webSocketDebuggerUrl"]) as client:
                        codes.append((await client.closed())[0])
                except InvalidStatus:
                    codes.append(0)
            return codes

        trying = [asyncio.ensure_future(keep_trying()) for _ in range(4)]
        await asyncio.to_thread(sessions_of, ada)
        await asyncio.to_thread(took_over, admin, session, "bob")
        is_taken.set()
        # None is still connected: each was closed, or refused.
        codes = {code for codes in await asyncio.gather(*trying) for code in codes}
        assert codes <= {0, 4409}


async def flood(client: WireClient, page: str) -> None:
    """As fast as it is taken, until the socket is closed."""
    slow = "for (const end = performance.now() + 2; performance.now() < end;); window.late = 'ada'"
    with suppress(ConnectionClosed):
        while True:
            for _ in range(50):
                await client.send("Runtime.evaluate", {"expression": slow}, page)
            await client.send("Storage.setCookies", {"cookies": [COOKIE | {"value": "ada"}]})
            # Not more than a browser takes in within the test.
            await asyncio.sleep(0.05)
