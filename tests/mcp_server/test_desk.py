"""Which session and tab a call means, over an application with a fake broker."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.edge.fake_broker import FakeBroker

from tabherd.edge.http import App

from .speaker import Speaker


@pytest.fixture
async def ada(alice: Speaker) -> Speaker:
    """An open MCP session."""
    await alice.open()
    return alice


def tab_ids(error: dict[str, Any]) -> list[str]:
    return [candidate["tabId"] for candidate in error["details"]["candidates"]]


@pytest.mark.parametrize("tool", ["browser_snapshot", "browser_release", "browser_handoff", "browser_screenshot"])
async def test_with_nothing_leased_the_next_step_is_named(ada: Speaker, tool: str) -> None:
    error = await ada.error(tool)
    assert (error["code"], "browser_navigate" in error["action"]) == ("session_not_found", True)


async def test_navigating_with_nothing_leased_leases(ada: Speaker, broker: FakeBroker) -> None:
    broker.commands.result = {"url": "http://a.test/", "title": "A", "status": 404}
    assert await ada.text("browser_navigate", url="http://a.test/") == (
        'tab_1 is at "http://a.test/" (HTTP 404), titled "A".'
    )
    assert [*broker.sessions.views] == ["ses_1"]


async def test_two_that_navigate_at_once_lease_once(ada: Speaker, broker: FakeBroker) -> None:
    broker.commands.result = {"url": "http://a.test/", "title": "A"}
    is_free = asyncio.Event()
    broker.sessions.on_open = is_free.wait
    both = [asyncio.ensure_future(ada.text("browser_navigate", url="http://a.test/")) for _ in range(2)]
    while not broker.sessions.callers:
        await asyncio.sleep(0)
    is_free.set()
    await asyncio.gather(*both)
    assert [*broker.sessions.views] == ["ses_1"]


async def test_the_only_tab_is_meant(ada: Speaker, broker: FakeBroker) -> None:
    await ada.text("browser_lease")
    broker.commands.result = 'text "x"'
    assert await ada.text("browser_snapshot") == 'text "x"'


async def test_with_several_sessions_the_call_must_name_one(ada: Speaker) -> None:
    await ada.text("browser_lease")
    await ada.text("browser_lease")
    error = await ada.error("browser_snapshot")
    assert (error["code"], tab_ids(error)) == ("ambiguous_target", ["tab_1", "tab_2"])
    assert await ada.text("browser_press", key="a", sessionId="ses_2") == "Pressed a."
    assert await ada.text("browser_press", key="a", tabId="tab_1") == "Pressed a."


async def test_with_several_tabs_the_call_must_name_one(ada: Speaker) -> None:
    await ada.text("browser_lease")
    assert await ada.text("browser_tabs", action="new", url="http://b.test/") == "Opened tab_1_1."
    for arguments in ({}, {"sessionId": "ses_1"}):
        error = await ada.error("browser_click", selector="a", **arguments)
        assert (error["code"], tab_ids(error)) == ("ambiguous_target", ["tab_1", "tab_1_1"])
    assert await ada.text("browser_click", selector="a", tabId="tab_1_1") == "Clicked."


async def test_a_popup_makes_the_next_call_ambiguous(ada: Speaker, broker: FakeBroker) -> None:
    await ada.text("browser_lease")
    popup = msgspec.structs.replace(broker.sessions.views["ses_1"].tabs[0], tab_id="tab_9")
    _change(broker, "ses_1", tabs=[*broker.sessions.views["ses_1"].tabs, popup])
    assert tab_ids(await ada.error("browser_snapshot")) == ["tab_1", "tab_9"]
    assert await ada.text("browser_press", key="a", tabId="tab_9") == "Pressed a."


async def test_a_tab_of_another_session_does_not_exist_even_for_an_admin(
    ada: Speaker, root: Speaker, broker: FakeBroker
) -> None:
    await ada.text("browser_lease")
    await root.open()
    await root.text("browser_lease")
    errors = [
        await root.error("browser_snapshot", tabId="tab_1"),
        await root.error("browser_release", sessionId="ses_1"),
        await root.error("browser_lease", sessionId="ses_1"),
        await root.error("browser_snapshot", tabId="tab_1", sessionId="ses_2"),
    ]
    codes = ["tab_not_found", "session_not_found", "session_not_found", "tab_not_found"]
    assert [error["code"] for error in errors] == codes
    assert broker.commands.callers == []


async def test_an_agent_takes_a_session_up_again_that_it_had(app: App, alice_token: str, ada: Speaker) -> None:
    await ada.text("browser_lease")
    later = Speaker(app, alice_token)
    await later.open()
    assert (await later.text("browser_lease", sessionId="ses_1")).startswith("Leased ses_1 with tab_1")
    assert await later.text("browser_press", key="a") == "Pressed a."


async def test_a_session_that_was_only_taken_up_is_not_ended_with_the_mcp_session(
    app: App, alice_token: str, ada: Speaker, broker: FakeBroker
) -> None:
    await ada.text("browser_lease")
    later = Speaker(app, alice_token)
    await later.open()
    await later.text("browser_lease", sessionId="ses_1")
    await later.send("DELETE")
    assert broker.sessions.released == []


async def test_a_session_that_has_ended_is_reported_once_and_then_forgotten(ada: Speaker, broker: FakeBroker) -> None:
    await ada.text("browser_lease")
    _change(broker, "ses_1", state="closed", end_reason="deadline")
    error = await ada.error("browser_snapshot")
    assert (error["code"], error["message"]) == ("lease_lost", "The session has ended: deadline.")
    assert (await ada.error("browser_snapshot"))["code"] == "session_not_found"


async def test_released_is_released(ada: Speaker, broker: FakeBroker) -> None:
    await ada.text("browser_lease")
    assert await ada.text("browser_release") == "Released ses_1."
    assert broker.sessions.released == ["ses_1"]
    assert await ada.text("browser_tabs") == "No tabs are open."


async def test_a_lease_that_its_client_gave_up_leaves_nothing(ada: Speaker, broker: FakeBroker) -> None:
    broker.sessions.on_open = asyncio.Event().wait
    calling = asyncio.ensure_future(ada.post("tools/call", {"name": "browser_lease", "arguments": {}}, id=50))
    while not broker.sessions.callers:
        await asyncio.sleep(0)
    await ada.notify("notifications/cancelled", requestId=50)
    await calling
    assert broker.sessions.views == {}


def _change(broker: FakeBroker, session_id: str, **changes: Any) -> None:
    broker.sessions.views[session_id] = msgspec.structs.replace(broker.sessions.views[session_id], **changes)
