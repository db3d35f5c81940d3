"""While somebody else has a tab, what a CDP client sends to it waits; nothing else does, and nothing deadlocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from playwright.async_api import Playwright
from tests.server.conftest import Server, act, open_session
from tests.server.effects_site import EffectsSite

from tabherd.edge.cdp.parking import PARKED_MAX

from .conftest import ON_PLAYWRIGHTS_LOOP, until, until_async, ws_of
from .wire_client import CdpError, WireClient, wire_client

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Has the tab until the site opens.
HOLD = "fetch('/hold').then(() => 'done')"
NOTE = "(window.log ??= []).push(%r)"


@pytest.fixture
def callers(effects: EffectsSite) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as callers:
        yield callers
        effects.is_open.set()


@pytest.fixture
def session(ada: httpx.Client, effects: EffectsSite) -> Iterator[dict[str, Any]]:
    """A session at a page of the site."""
    session = open_session(ada, keepAlive=True)
    assert act(ada, session["tabs"][0]["tabId"], "navigate", url=effects.url()).status_code == 200
    yield session
    effects.is_open.set()


@pytest.fixture
def tab_id(session: dict[str, Any]) -> str:
    first: str = session["tabs"][0]["tabId"]
    return first


@asynccontextmanager
async def joined(server: Server, token: str, session: dict[str, Any], query: str = "") -> AsyncIterator[WireClient]:
    async with wire_client(ws_of(server, f"session={session['sessionId']}&{query}"), token) as client:
        yield client


def lock(client: httpx.Client, tab_id: str, controller_id: str = "somebody") -> str:
    answer = client.post(f"/tabs/{tab_id}/lock", json={"controllerId": controller_id})
    assert answer.status_code == 200, answer.text
    ticket: str = answer.json()["ticket"]
    return ticket


def unlock(client: httpx.Client, tab_id: str, ticket: str) -> None:
    assert client.delete(f"/tabs/{tab_id}/lock", params={"ticket": ticket}).status_code == 204


def run_command(
    callers: ThreadPoolExecutor, client: httpx.Client, tab_id: str, site: EffectsSite
) -> Future[httpx.Response]:
    """A command that has the tab until the site is open."""
    running = callers.submit(act, client, tab_id, "evaluate", expression=HOLD)
    assert site.is_held.wait(30)
    return running


async def is_answered(client: WireClient, id: int, session_id: str = "") -> bool:
    """Whether there is an answer to that, once something that no hold stops was answered in the same session."""
    await client.call("Runtime.enable" if session_id else "Browser.getVersion", {}, session_id)
    return any(message.get("id") == id for message in client.inbox)


async def is_without_pages(client: WireClient) -> bool:
    return await client.pages() == []


# --- What holds -------------------------------------------------------------------------------------------------


async def test_messages_wait_for_a_running_command_and_then_go_on_in_order(
    server: Server,
    ada: httpx.Client,
    token: str,
    session: dict[str, Any],
    tab_id: str,
    effects: EffectsSite,
    callers: ThreadPoolExecutor,
) -> None:
    async with joined(server, token, session) as client:
        page = await client.page()
        running = run_command(callers, ada, tab_id, effects)
        sent = [await client.send("Runtime.evaluate", {"expression": NOTE % n}, page) for n in range(5)]
        assert not await is_answered(client, sent[0], page)
        effects.is_open.set()
        assert running.result().json()["result"] == "done"
        await client.result(sent[-1])
        assert await client.value("log", page) == [0, 1, 2, 3, 4]


async def test_messages_wait_for_a_tab_lock(
    server: Server, ada: httpx.Client, token: str, session: dict[str, Any], tab_id: str
) -> None:
    async with joined(server, token, session) as client:
        page = await client.page()
        ticket = lock(ada, tab_id)
        sent = await client.send("Runtime.evaluate", {"expression": NOTE % "cdp"}, page)
        assert not await is_answered(client, sent, page)
        held = act(ada, tab_id, "evaluate", expression=f"{NOTE % 'lock'}; log", controllerId="somebody")
        assert held.json()["result"] == ["lock"]
        unlock(ada, tab_id, ticket)
        await client.result(sent)
        assert await client.value("log", page) == ["lock", "cdp"]
        # One that ends by itself lets them go on as well.
        body = {"controllerId": "somebody", "lockLeaseMs": 300}
        assert ada.post(f"/tabs/{tab_id}/lock", json=body).status_code == 200
        assert await client.value("'mine'", page) == "mine"


async def test_messages_wait_for_a_person_who_has_the_tab_and_other_tabs_go_on(
    server: Server, ada: httpx.Client, token: str, session: dict[str, Any], tab_id: str
) -> None:
    async with joined(server, token, session) as client:
        page = await client.page()
        _, other = await client.open_page()
        assert ada.post(f"/tabs/{tab_id}/handoff", json={}).status_code == 200
        sent = await client.send("Runtime.evaluate", {"expression": "'back'"}, page)
        assert await client.value("'beside'", other) == "beside"
        assert not await is_answered(client, sent, page)
        assert ada.post(f"/tabs/{tab_id}/resume").status_code == 200
        assert (await client.result(sent))["result"]["value"] == "back"


async def test_what_is_in_a_page_waits_with_it(
    server: Server, ada: httpx.Client, token: str, session: dict[str, Any], tab_id: str
) -> None:
    async with joined(server, token, session) as client:
        page = await client.page()
        options = {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": True}
        await client.call("Target.setAutoAttach", options, page)
        work = "new Worker(URL.createObjectURL(new Blob(['onmessage = () => 1'])))"
        await client.call("Runtime.evaluate", {"expression": f"window.worker = {work}; 1"}, page)
        worker = (await client.event("Target.attachedToTarget"))["sessionId"]
        ticket = lock(ada, tab_id)
        sent = await client.send("Runtime.evaluate", {"expression": "1"}, worker)
        assert not await is_answered(client, sent, worker)
        unlock(ada, tab_id, ticket)
        await client.result(sent)


async def test_a_held_tab_is_neither_closed_nor_brought_to_the_front_under_its_holder(
    server: Server, ada: httpx.Client, token: str, session: dict[str, Any], tab_id: str
) -> None:
    async with joined(server, token, session) as client:
        (page,) = await client.pages()
        ticket = lock(ada, tab_id)
        shown = await client.send("Target.activateTarget", {"targetId": page["targetId"]})
        closing = await client.send("Target.closeTarget", {"targetId": page["targetId"]})
        assert not await is_answered(client, shown)
        assert not await is_answered(client, closing)
        assert act(ada, tab_id, "evaluate", expression="1", controllerId="somebody").status_code == 200
        unlock(ada, tab_id, ticket)
        assert await client.result(shown) == {}
        assert (await client.result(closing))["success"]
        await until_async(lambda: is_without_pages(client))


async def test_the_page_socket_waits_as_well(
    server: Server, ada: httpx.Client, token: str, session: dict[str, Any], tab_id: str
) -> None:
    url = ws_of(server).rstrip("/") + f"/devtools/page/{tab_id}"
    async with wire_client(url, token) as client:
        ticket = lock(ada, tab_id)
        sent = await client.send("Runtime.evaluate", {"expression": "'mine'"})
        await client.call("Page.enable")
        assert not any(message.get("id") == sent for message in client.inbox)
        unlock(ada, tab_id, ticket)
        assert (await client.result(sent))["result"]["value"] == "mine"


# --- What a hold does not stop ----------------------------------------------------------------------------------


async def test_the_owner_of_the_lock_passes_under_the_same_name_and_credential(
    server: Server, ada: httpx.Client, token: str, session: dict[str, Any], tab_id: str
) -> None:
    ticket = lock(ada, tab_id, "me")
    async with joined(server, token, session, "controllerId=me&cdpWaitPolicy=fail") as client:
        assert await client.value("'mine'", await client.page()) == "mine"
    async with joined(server, server.token_of("ada"), session, "controllerId=me&cdpWaitPolicy=fail") as client:
        page = await client.page()
        with pytest.raises(CdpError, match="tab_locked"):
            await client.value("'mine'", page)
    unlock(ada, tab_id, ticket)


async def test_events_and_domains_pass_under_a_hold(
    server: Server, ada: httpx.Client, token: str, session: dict[str, Any], tab_id: str
) -> None:
    async with joined(server, token, session) as client:
        page = await client.page()
        ticket = lock(ada, tab_id)
        await client.call("Runtime.enable", {}, page)
        act(ada, tab_id, "evaluate", expression="console.log('told')", controllerId="somebody")
        heard = await client.event("Runtime.consoleAPICalled")
        assert heard["args"][0]["value"] == "told"
        unlock(ada, tab_id, ticket)


@ON_PLAYWRIGHTS_LOOP
async def test_playwright_keeps_its_promises_across_holds(
    playwright: Playwright,
    server: Server,
    ada: httpx.Client,
    session: dict[str, Any],
    tab_id: str,
    effects: EffectsSite,
    callers: ThreadPoolExecutor,
) -> None:
    browser = await playwright.chromium.connect_over_cdp(session["cdpUrl"])
    (page,) = browser.contexts[0].pages
    await page.route("**/routed", lambda route: route.fulfill(status=200, body="by the client"))
    page.on("dialog", lambda dialog: asyncio.ensure_future(dialog.accept("typed")))
    waiting = asyncio.ensure_future(page.wait_for_function("window.ready === true"))
    fetched = await asyncio.to_thread(
        act, ada, tab_id, "evaluate", expression="fetch('/routed').then(answer => answer.text())"
    )
    assert fetched.json()["result"] == "by the client"
    asked = await asyncio.to_thread(act, ada, tab_id, "evaluate", expression="prompt('name?')")
    assert asked.json()["result"] == "typed"
    running = run_command(callers, ada, tab_id, effects)
    # All of it waits for the command, in order, and is done when that has ended.
    clicked = asyncio.ensure_future(page.evaluate("document.body.innerHTML = '<button onclick=ready=true>b</button>'"))
    effects.is_open.set()
    await clicked
    await page.click("button")
    await waiting
    assert running.result().json()["result"] == "done"
    await browser.close()


# --- Refusing instead of waiting --------------------------------------------------------------------------------


async def test_who_does_not_want_to_wait_hears_of_a_lock_and_of_a_command(
    server: Server,
    ada: httpx.Client,
    token: str,
    session: dict[str, Any],
    tab_id: str,
    effects: EffectsSite,
    callers: ThreadPoolExecutor,
) -> None:
    async with joined(server, token, session, "cdpWaitPolicy=fail") as client:
        (target,) = await client.pages()
        page = await client.attach(target["targetId"])
        ticket = lock(ada, tab_id)
        with pytest.raises(CdpError) as caught:
            await client.value("1", page)
        assert caught.value.code == -32000
        assert caught.value.message.startswith("tab_locked: ")
        assert caught.value.data["code"] == "tab_locked"
        assert caught.value.data["details"]["holder"].endswith("/somebody")
        assert caught.value.data["retryAfterMs"] > 0
        unlock(ada, tab_id, ticket)
        assert await client.value("1", page) == 1
        run_command(callers, ada, tab_id, effects)
        for method, params, where in (
            ("Runtime.evaluate", {"expression": "1"}, page),
            ("Target.closeTarget", {"targetId": target["targetId"]}, ""),
        ):
            with pytest.raises(CdpError, match="tab_busy"):
                await client.call(method, params, where)


async def test_only_so_much_waits(
    server: Server, ada: httpx.Client, token: str, session: dict[str, Any], tab_id: str
) -> None:
    async with joined(server, token, session) as client:
        page = await client.page()
        ticket = lock(ada, tab_id)
        sent = [await client.send("Runtime.evaluate", {"expression": NOTE % n}, page) for n in range(PARKED_MAX + 1)]
        with pytest.raises(CdpError, match="tab_queue_limit_exceeded"):
            await client.result(sent[-1])
        unlock(ada, tab_id, ticket)
        await client.result(sent[-2])
        assert await client.value("log.length === 1000 && log.every((n, index) => n === index)", page)


# --- A page that is replaced ------------------------------------------------------------------------------------


async def test_after_a_quarantine_there_is_a_new_page_and_the_old_one_is_not_found(
    server: Server, ada: httpx.Client, token: str, session: dict[str, Any], tab_id: str, callers: ThreadPoolExecutor
) -> None:
    async with joined(server, token, session) as client:
        await client.call("Target.setDiscoverTargets", {"discover": True})
        (before,) = await client.pages()
        page = await client.attach(before["targetId"])
        spinning = callers.submit(act, ada, tab_id, "evaluate", expression="fetch('/never')", timeoutMs=2000)
        await until(lambda: ada.get(f"/tabs/{tab_id}").json()["holder"] or spinning.done())
        sent = await client.send("Runtime.evaluate", {"expression": "1"}, page)
        assert spinning.result().json()["code"] == "command_timed_out"
        with pytest.raises(CdpError) as caught:
            await client.result(sent)
        assert caught.value.code == -32001
        await client.event("Target.targetDestroyed", lambda event: event["targetId"] == before["targetId"])
        (after,) = await client.pages()
        assert after["targetId"] != before["targetId"]
        assert await client.value("1 + 1", await client.attach(after["targetId"])) == 2
