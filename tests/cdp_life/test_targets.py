"""The order in which a client hears of its targets and gets attached to them, as both libraries rely on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.server.conftest import Server, open_session

from .conftest import ws_of
from .wire_client import CdpError, Message, WireClient, wire_client

pytestmark = [pytest.mark.server, pytest.mark.browser]

AUTO = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}
OPEN = {"expression": "window.open('about:blank#popup'); 1", "userGesture": True}


@pytest.fixture
async def client(server: Server, token: str) -> AsyncIterator[WireClient]:
    async with wire_client(ws_of(server), token) as client:
        yield client


def is_of(target_id: str) -> Any:
    return lambda message: (
        message.get("params", {}).get("targetInfo", {}).get("targetId") == target_id
        or message.get("params", {}).get("targetId") == target_id
    )


async def order_of(client: WireClient, id: int) -> list[Message]:
    """Everything that came until that answer, which is the last of it; it stays in the inbox."""
    answer = await client.next(lambda message: message.get("id") == id)
    seen = [*client.inbox, answer]
    client.inbox.append(answer)
    return seen


def index(seen: list[Message], method: str, target_id: str) -> int:
    return next(n for n, one in enumerate(seen) if one.get("method") == method and is_of(target_id)(one))


async def attached_popup(client: WireClient, page: str) -> Message:
    """Have the page open a popup: its attachment. The opener's answer waits for the popup to run."""
    await client.send("Runtime.evaluate", OPEN, page)
    return await client.event("Target.attachedToTarget", lambda event: event["targetInfo"]["type"] == "page")


async def begin(client: WireClient) -> str:
    """Attach to all by itself: the session with the page that is there, which runs."""
    await client.call("Target.setAutoAttach", AUTO)
    attached = await client.event("Target.attachedToTarget")
    await client.call("Runtime.runIfWaitingForDebugger", {}, attached["sessionId"])
    session_id: str = attached["sessionId"]
    return session_id


# --- Order ------------------------------------------------------------------------------------------------------


async def test_what_exists_is_reported_and_attached_before_the_answer(client: WireClient) -> None:
    (page,) = await client.pages()
    told = {"discover": True, "filter": [{}]}
    seen = await order_of(client, await client.send("Target.setDiscoverTargets", told))
    created = [one["params"]["targetInfo"] for one in seen[:-1] if one["method"] == "Target.targetCreated"]
    assert page["targetId"] in [info["targetId"] for info in created]
    (itself,) = [info for info in created if info["type"] == "browser"]
    assert itself["attached"]
    assert itself["targetId"] == (await client.call("Target.getTargetInfo"))["targetInfo"]["targetId"]
    client.inbox.clear()
    seen = await order_of(client, await client.send("Target.setAutoAttach", AUTO))
    assert [one.get("method") for one in seen[:-1]].count("Target.attachedToTarget") == 1
    attached = seen[index(seen, "Target.attachedToTarget", page["targetId"])]
    assert "sessionId" not in attached
    assert attached["params"]["targetInfo"]["browserContextId"] == page["browserContextId"]


async def test_a_new_page_is_reported_and_attached_before_its_creation_is_answered(client: WireClient) -> None:
    # Also when nobody attaches there is an answer.
    assert (await client.call("Target.createTarget", {"url": "about:blank"}))["targetId"]
    await client.call("Target.setDiscoverTargets", {"discover": True})
    await begin(client)
    sent = await client.send("Target.createTarget", {"url": "about:blank"})
    seen = await order_of(client, sent)
    made = seen[-1]["result"]["targetId"]
    assert index(seen, "Target.targetCreated", made) < index(seen, "Target.attachedToTarget", made) < len(seen) - 1
    client.inbox.clear()
    sent = await client.send("Target.attachToTarget", {"targetId": made, "flatten": True})
    seen = await order_of(client, sent)
    attached = seen[index(seen, "Target.attachedToTarget", made)]
    assert attached["params"]["sessionId"] == seen[-1]["result"]["sessionId"]


# --- News -------------------------------------------------------------------------------------------------------


async def test_a_page_is_followed_from_its_beginning_to_its_end_or_crash(client: WireClient) -> None:
    await client.call("Target.setDiscoverTargets", {"discover": True})
    made, session_id = await client.open_page()
    await client.call("Page.navigate", {"url": "data:text/html,<title>Moved</title>"}, session_id)
    await client.event("Target.targetInfoChanged", lambda event: "Moved" in event["targetInfo"]["url"])
    await client.call("Target.closeTarget", {"targetId": made})
    assert (await client.event("Target.detachedFromTarget"))["sessionId"] == session_id
    assert (await client.event("Target.targetDestroyed"))["targetId"] == made
    made, session_id = await client.open_page()
    await client.send("Page.crash", {}, session_id)
    assert (await client.event("Target.targetCrashed"))["targetId"] == made


async def test_nothing_is_told_any_more_once_that_is_not_wanted(client: WireClient) -> None:
    await client.call("Target.setDiscoverTargets", {"discover": True})
    await client.call("Target.setAutoAttach", AUTO)
    await client.call("Target.setDiscoverTargets", {"discover": False})
    await client.call("Target.setAutoAttach", AUTO | {"autoAttach": False})
    client.inbox.clear()
    made = (await client.call("Target.createTarget", {"url": "about:blank"}))["targetId"]
    await client.call("Target.closeTarget", {"targetId": made})
    await client.call("Browser.getVersion")
    assert client.inbox == []


async def test_no_tenant_hears_of_another(server: Server, client: WireClient) -> None:
    async with wire_client(ws_of(server), server.token_of("bob")) as other:
        for one in (client, other):
            await one.call("Target.setDiscoverTargets", {"discover": True, "filter": [{}]})
        page = await begin(other)
        client.inbox.clear()
        popup = await attached_popup(other, page)
        await other.call("Runtime.runIfWaitingForDebugger", {}, popup["sessionId"])
        await other.open_page("data:text/html,<title>Secret</title>")
        await client.call("Browser.getVersion")
        assert client.inbox == []
        theirs = {target["targetId"] for target in await other.pages()}
        assert not theirs & {target["targetId"] for target in await client.pages()}
        # A session with the browser has no more powers.
        root = (await client.call("Target.attachToBrowserTarget"))["sessionId"]
        with pytest.raises(CdpError, match="policy_denied"):
            await client.call("Browser.crash", {}, root)
        targets = await client.call("Target.getTargets", {}, root)
        assert not theirs & {target["targetId"] for target in targets["targetInfos"]}


async def test_the_own_context_is_the_default_one(client: WireClient) -> None:
    (page,) = await client.pages()
    contexts = await client.call("Target.getBrowserContexts")
    assert contexts == {"browserContextIds": [], "defaultBrowserContextId": page["browserContextId"]}
    made = (await client.call("Target.createBrowserContext"))["browserContextId"]
    assert (await client.call("Target.getBrowserContexts"))["browserContextIds"] == [made]
    await client.call("Target.disposeBrowserContext", {"browserContextId": made})
    assert (await client.call("Target.getBrowserContexts"))["browserContextIds"] == []


# --- Popups wait for their client -------------------------------------------------------------------------------


async def test_a_popup_does_not_run_before_its_client_lets_it(client: WireClient) -> None:
    page = await begin(client)
    popup = await attached_popup(client, page)
    assert popup["waitingForDebugger"]
    first = {"source": "window.first = true"}
    prepared = await client.send("Page.addScriptToEvaluateOnNewDocument", first, popup["sessionId"])
    asked = await client.send("Runtime.evaluate", {"expression": "window.first"}, popup["sessionId"])
    await client.call("Runtime.runIfWaitingForDebugger", {}, popup["sessionId"])
    await client.result(prepared)
    await client.result(asked)
    await client.call("Page.navigate", {"url": "about:blank#again"}, popup["sessionId"])
    assert await client.value("1 + 1", page) == 2


async def test_a_popup_waits_for_all_who_want_to_see_it_first(server: Server, ada: httpx.Client) -> None:
    session = open_session(ada, keepAlive=True)
    async with (
        wire_client(session["webSocketDebuggerUrl"]) as first,
        wire_client(session["webSocketDebuggerUrl"]) as second,
    ):
        page, _ = await begin(first), await begin(second)
        sent = await first.send("Runtime.evaluate", OPEN, page)
        one, other = await first.event("Target.attachedToTarget"), await second.event("Target.attachedToTarget")
        assert one["targetInfo"]["targetId"] == other["targetInfo"]["targetId"]
        assert one["waitingForDebugger"]
        assert other["waitingForDebugger"]
        for client, popup in ((first, one), (second, other)):
            await client.send("Runtime.runIfWaitingForDebugger", {}, popup["sessionId"])
        await first.result(sent)


async def test_a_popup_does_not_wait_for_a_client_that_left(server: Server, ada: httpx.Client) -> None:
    session = open_session(ada, keepAlive=True)
    async with wire_client(session["webSocketDebuggerUrl"]) as staying:
        page = await staying.page()
        async with wire_client(session["webSocketDebuggerUrl"]) as leaving:
            await begin(leaving)
            sent = await staying.send("Runtime.evaluate", OPEN, page)
            await leaving.event("Target.attachedToTarget")
        assert (await staying.result(sent))["result"]["value"] == 1


async def test_a_popup_of_a_client_that_does_not_attach_runs_at_once(client: WireClient) -> None:
    page = await client.page()
    assert await client.value(OPEN["expression"], page, userGesture=True) == 1
    assert len(await client.pages()) == 2


# --- Tabs around pages ------------------------------------------------------------------------------------------


async def test_who_attaches_to_tabs_gets_the_page_through_its_tab(client: WireClient) -> None:
    through_tabs = AUTO | {"filter": [{"type": "page", "exclude": True}, {}]}
    await client.call("Target.setAutoAttach", through_tabs)
    tab = await client.event("Target.attachedToTarget", lambda event: event["targetInfo"]["type"] == "tab")
    await client.call("Target.setAutoAttach", AUTO, tab["sessionId"])
    message = await client.next(
        lambda one: one.get("method") == "Target.attachedToTarget" and one.get("sessionId") == tab["sessionId"]
    )
    assert message["params"]["targetInfo"]["type"] == "page"
    page = message["params"]["sessionId"]
    await client.send("Runtime.runIfWaitingForDebugger", {}, page)
    assert await client.value("1 + 1", page) == 2
