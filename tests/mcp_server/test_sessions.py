"""MCP sessions over HTTP: whose they are, how many there may be, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.edge.fake_broker import FakeBroker

from tabherd.edge.http import App
from tabherd.mcp import extra

from .conftest import Clock
from .speaker import HELLO, Speaker, told

IDLE_S = 600


async def test_the_first_request_opens_a_session_that_later_ones_name(alice: Speaker) -> None:
    answer = await alice.open()
    assert told(answer)["result"]["serverInfo"]["name"] == "tabherd"
    assert "browser_navigate" in (await alice.post("tools/list", {})).text


async def test_requests_at_once_with_the_same_id_are_refused_but_for_the_first(alice: Speaker) -> None:
    await alice.open()
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*(alice.post("tools/list", {}, id=7) for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [200, 400, 400, 400, 400]
    assert (await alice.post("tools/list", {}, id=7)).status_code == 200


async def test_an_agents_token_leases_for_that_agent(alice: Speaker, broker: FakeBroker) -> None:
    await alice.open()
    await alice.text("browser_lease")
    assert [view.agent_id for view in broker.sessions.views.values()] == ["alice"]


async def test_an_admin_that_names_an_agent_leases_for_it(app: App, admin_token: str, broker: FakeBroker) -> None:
    speaker = Speaker(app, admin_token, **{"X-Agent-Id": "bob"})
    await speaker.open()
    await speaker.text("browser_lease")
    assert [view.agent_id for view in broker.sessions.views.values()] == ["bob"]


async def test_an_admin_that_names_nobody_is_another_agent_in_each_session(
    app: App, admin_token: str, broker: FakeBroker
) -> None:
    for speaker in (Speaker(app, admin_token), Speaker(app, admin_token)):
        await speaker.open()
        await speaker.text("browser_lease")
    one, two = (view.agent_id for view in broker.sessions.views.values())
    assert one != two
    assert one.startswith("mcp-")
    assert two.startswith("mcp-")


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_another_credential_does_not_find_the_session(alice: Speaker, root: Speaker, method: str) -> None:
    await alice.open()
    root.headers["Mcp-Session-Id"] = alice.session_id
    # A stream that opened would not end by itself.
    async with asyncio.timeout(60):
        answer = await root.send(method, content=b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}')
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert (await alice.post("tools/list", {})).status_code == 200


async def test_a_session_does_not_change_its_agent(app: App, root: Speaker) -> None:
    await root.open()
    root.headers["X-Agent-Id"] = "bob"
    assert (await root.post("tools/list", {})).status_code == 404


async def test_delete_ends_the_session_and_gives_back_what_it_leased(alice: Speaker, broker: FakeBroker) -> None:
    await alice.open()
    await alice.text("browser_lease")
    await alice.text("browser_lease")
    assert (await alice.send("DELETE")).status_code == 204
    assert sorted(broker.sessions.released) == ["ses_1", "ses_2"]
    assert (await alice.post("tools/list", {})).status_code == 404


async def test_a_session_that_nobody_uses_is_ended_with_its_leases(
    app: App, alice: Speaker, broker: FakeBroker, clock: Clock
) -> None:
    await alice.open()
    await alice.text("browser_lease")
    clock.now_s += IDLE_S - 1
    await app.mcp.reap()
    assert (await alice.post("tools/list", {})).status_code == 200
    clock.now_s += IDLE_S
    await app.mcp.reap()
    assert broker.sessions.released == ["ses_1"]
    assert (await alice.post("tools/list", {})).status_code == 404


async def test_a_session_with_a_call_that_runs_is_not_idle(
    app: App, alice: Speaker, broker: FakeBroker, clock: Clock
) -> None:
    await alice.open()
    await alice.text("browser_lease")
    broker.commands.is_hanging = True
    calling = asyncio.ensure_future(alice.call("browser_click", selector="a"))
    await broker.commands.began.wait()
    clock.now_s += 2 * IDLE_S
    await app.mcp.reap()
    assert len(app.mcp) == 1
    await alice.send("DELETE")
    await asyncio.gather(calling, return_exceptions=True)


async def test_a_session_ends_with_its_credential_and_so_does_its_open_stream(
    app: App, alice: Speaker, alice_token: str, broker: FakeBroker
) -> None:
    credential = await broker.credentials.authenticate(alice_token)
    assert credential is not None
    await alice.open()
    listening = asyncio.ensure_future(alice.send("GET"))
    async with asyncio.timeout(60):
        while not [session for session in app.mcp._sessions.values() if session.requests]:
            await asyncio.sleep(0.001)
        await app.mcp.reap()
        assert len(app.mcp) == 1
        await broker.credentials.revoke(credential.id)
        await app.mcp.reap()
        assert len(app.mcp) == 0
        await listening
    assert (await alice.post("tools/list", {})).status_code == 401


async def test_idle_sessions_are_looked_for_by_a_timer(
    app: App, alice: Speaker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tabherd.edge.mcp.REAP_EVERY_S", 0.001)
    await alice.open()
    clock.now_s += IDLE_S
    async with asyncio.timeout(60):
        while len(app.mcp):
            await asyncio.sleep(0.001)


async def test_the_end_of_the_server_ends_the_sessions_and_gives_back_what_they_leased(
    app: App, alice: Speaker, broker: FakeBroker
) -> None:
    await alice.open()
    await alice.text("browser_lease")
    await app.close()
    assert broker.sessions.released == ["ses_1"]
    del alice.headers["Mcp-Session-Id"]
    assert (await alice.open()).json()["code"] == "draining"


async def test_a_credential_has_so_many_sessions_and_no_more(app: App, alice_token: str) -> None:
    first, second, third = (Speaker(app, alice_token) for _ in range(3))
    assert [(await each.open()).status_code for each in (first, second)] == [200, 200]
    refused = await third.open()
    assert (refused.status_code, refused.json()["details"]) == (429, {"reason": "mcp_cap", "count": 2, "cap": 2})
    await first.send("DELETE")
    assert (await third.open()).status_code == 200


async def test_the_server_has_so_many_sessions_and_no_more(app: App, alice_token: str, admin_token: str) -> None:
    crowd = [Speaker(app, token) for token in (alice_token, alice_token, admin_token, admin_token)]
    assert [(await each.open()).status_code for each in crowd] == [200, 200, 200, 429]


async def test_an_opening_that_is_refused_leaves_no_session(app: App, alice: Speaker) -> None:
    assert (await alice.post("initialize", {"protocolVersion": "2025-06-18"})).json()["details"] == {"field": "params"}
    alice.headers["Accept"] = "text/plain"
    assert (await alice.post("initialize", HELLO)).status_code == 406
    assert len(app.mcp) == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "not a JSON-RPC request"),
        (b"[]", "not a JSON-RPC request"),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}', "initialize"),
    ],
)
async def test_what_opens_no_session_is_refused(alice: Speaker, body: bytes, message: str) -> None:
    answer = await alice.send("POST", content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert message in answer.json()["message"]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_without_a_session_there_is_nothing_to_listen_to_or_to_end(alice: Speaker, method: str) -> None:
    answer = await alice.send(method)
    assert (answer.status_code, answer.json()["details"]) == (400, {"field": "Mcp-Session-Id"})


async def test_a_version_without_sessions_is_answered_with_those_that_have_them(alice: Speaker) -> None:
    alice.headers["MCP-Protocol-Version"] = "2026-07-28"
    answer = await alice.post("server/discover", {}, id=7)
    assert answer.status_code == 400
    assert (answer.json()["id"], answer.json()["error"]["code"]) == (7, -32022)
    assert "2025-11-25" in answer.json()["error"]["data"]["supported"]


async def test_a_body_that_is_too_large_is_refused(make_app: Callable[..., App], alice_token: str) -> None:
    speaker = Speaker(make_app({"server": {"body_max_bytes": 1024}}), alice_token)
    answer = await speaker.send("POST", content=b" " * 2000)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


async def test_a_page_of_another_origin_is_refused(alice: Speaker) -> None:
    alice.headers["Origin"] = "http://evil.test"
    assert (await alice.post("initialize", HELLO)).status_code == 403


async def test_a_call_that_its_client_cancels_ends_the_command(alice: Speaker, broker: FakeBroker) -> None:
    await alice.open()
    await alice.text("browser_lease")
    broker.commands.is_hanging = True
    calling = asyncio.ensure_future(alice.post("tools/call", _click(), id=99))
    await broker.commands.began.wait()
    await alice.notify("notifications/cancelled", requestId=99)
    async with asyncio.timeout(60):
        await broker.commands.cancelled.wait()
        assert told(await calling)["error"]["message"] == "Request cancelled"


async def test_delete_ends_a_command_that_runs(alice: Speaker, broker: FakeBroker) -> None:
    await alice.open()
    await alice.text("browser_lease")
    broker.commands.is_hanging = True
    calling = asyncio.ensure_future(alice.post("tools/call", _click()))
    await broker.commands.began.wait()
    await alice.send("DELETE")
    assert broker.commands.cancelled.is_set()
    assert broker.sessions.released == ["ses_1"]
    await calling


async def test_calls_of_one_session_are_one_controllers_and_of_another_anothers(
    app: App, alice_token: str, broker: FakeBroker
) -> None:
    for speaker in (Speaker(app, alice_token), Speaker(app, alice_token)):
        await speaker.open()
        await speaker.text("browser_lease")
        await speaker.text("browser_press", key="a")
        await speaker.text("browser_press", key="b")
    one, again, two, _ = (caller.controller_id for caller in broker.commands.callers)
    assert one == again
    assert one != two


async def test_without_the_sdk_one_error_names_what_to_install(alice: Speaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda name: None)
    answer = await alice.open()
    assert answer.status_code == 404
    assert "pip install 'tabherd[mcp]'" in answer.json()["action"]


def _click() -> dict[str, Any]:
    return {"name": "browser_click", "arguments": {"selector": "a"}}
