"""Driving: whose input passes the gate, and that agents get the tab back as it was left, with nothing pressed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.edge.control_house import until

from tabherd import errors, wire
from tabherd.broker import live_hands
from tabherd.broker.caller import AGENT_SCOPES, Caller

from .stage import ADMIN, Stage
from .viewer import LIMIT_S, LiveClient, is_you

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADA = Caller(agent_id="ada", scopes=AGENT_SCOPES, controller_id="ada/1")


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a person has done is taken in, however long a busy machine takes for it."""
    for limit in ("TAKE_IN_LIMIT_S", "FINISH_LIMIT_S", "LET_GO_LIMIT_S"):
        monkeypatch.setattr(live_hands, limit, LIMIT_S)


async def press(viewer: LiveClient) -> None:
    await viewer.say("mouse", event="down", x=1, y=1, button="left", buttons=1, clickCount=1)


async def test_whoever_only_watches_touches_nothing(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        cast = await stage.cast()
        for type, fields in (
            ("mouse", {"event": "move", "x": 1, "y": 1}),
            ("key", {"event": "down", "key": "a"}),
            ("text", {"text": "x"}),
            ("navigate", {"url": "http://example.test/"}),
            ("history", {"by": -1}),
            ("reload", {}),
        ):
            await viewer.say(type, **fields)
            error = await viewer.next("error")
            assert (error["code"], error["refused"]) == ("conflict", type)
        assert cast.calls == []


async def test_who_takes_the_tab_over_drives_it_and_agents_are_refused(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        cast = await stage.cast()
        state = await viewer.take()
        assert (state["tab"]["state"], state["tab"]["holder"]["reason"]) == ("paused", "handoff")
        assert state["driver"] == {"name": "ada", "isYou": True}
        assert cast.is_awake
        with pytest.raises(errors.TabPausedHandoff):
            await stage.run(tab, "1")
        await viewer.click(3, 4)
        await until(lambda: cast.told == ["mouseMoved none", "mousePressed left", "mouseReleased left"])


async def test_who_gives_it_back_drives_no_more_and_agents_go_on(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        cast = await stage.cast()
        await viewer.take()
        waiting = asyncio.ensure_future(stage.run(tab, "next", wait_policy="wait_with_timeout"))
        await viewer.state(lambda state: state["tab"]["waiters"])
        await viewer.say("give")
        assert (await waiting).result == "next"
        await viewer.state(lambda state: state["driver"] is None and state["tab"]["state"] == "ready")
        assert not cast.is_awake
        await press(viewer)
        assert (await viewer.next("error"))["code"] == "conflict"
        assert cast.calls == []


async def test_what_a_person_did_before_giving_back_is_done_first(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        cast = await stage.cast()
        await viewer.take()
        cast.may_answer.clear()
        for _ in range(20):
            await viewer.press("a", "KeyA")
        await viewer.say("give")
        await until(lambda: len(cast.calls) == 16)
        cast.may_answer.set()
        await viewer.state(lambda state: state["tab"]["state"] == "ready")
        assert len(cast.calls) == 40


async def test_what_is_pressed_is_let_go_of_before_an_agent_has_the_tab(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        cast = await stage.cast()
        await viewer.take()
        await press(viewer)
        await viewer.say("key", event="down", key="Control", code="ControlLeft", modifiers=2)
        await until(lambda: len(cast.calls) == 2)
        waiting = asyncio.ensure_future(stage.run(tab, "after", wait_policy="wait_with_timeout"))
        await viewer.state(lambda state: state["tab"]["waiters"])
        # The page has not taken it in yet: nobody gets the tab.
        cast.may_answer.clear()
        await viewer.say("give")
        await until(lambda: len(cast.calls) == 4)
        assert cast.told[2:] == ["mouseReleased left", "keyUp Control"]
        assert "after" not in stage.house.pages.begun
        cast.may_answer.set()
        await waiting


async def test_the_same_when_it_is_given_back_over_http(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        cast = await stage.cast()
        await viewer.take()
        await press(viewer)
        await until(lambda: cast.calls)
        await stage.broker.tabs.resume(ADA, tab)
        assert cast.told[1:] == ["mouseReleased left"]
        await viewer.state(lambda state: state["driver"] is None)


async def test_a_page_that_is_stuck_cannot_keep_the_tab_from_being_given_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_hands, "FINISH_LIMIT_S", 0.01)
    monkeypatch.setattr(live_hands, "LET_GO_LIMIT_S", 0.01)
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        cast = await stage.cast()
        await viewer.take()
        cast.may_answer.clear()
        await press(viewer)
        await until(lambda: cast.calls)
        await viewer.say("give")
        await viewer.state(lambda state: state["tab"]["state"] == "ready")


async def test_a_driver_that_vanishes_leaves_the_tab_handed_off_and_nothing_pressed(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as other:
        await other.state()
        cast = await stage.cast()
        async with stage.watch(tab) as driver:
            await driver.take()
            await press(driver)
            await until(lambda: cast.calls)
        state = await other.state(lambda state: state["driver"] is None and state["viewers"] == 1)
        assert state["tab"]["state"] == "paused"
        await until(lambda: cast.told[1:] == ["mouseReleased left"])
        assert not cast.is_awake
        with pytest.raises(errors.TabPausedHandoff):
            await stage.run(tab, "1")
        await other.say("give")
        await other.state(lambda state: state["tab"]["state"] == "ready")


async def test_the_last_viewer_lets_go_before_the_connection_to_the_page_is_closed(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as driver:
        cast = await stage.cast()
        await driver.take()
        await press(driver)
        await until(lambda: cast.calls)
        cast.may_answer.clear()
    await until(lambda: cast.told[1:] == ["mouseReleased left"])
    assert not cast.over.is_set()
    cast.may_answer.set()
    await until(cast.over.is_set)


async def test_only_one_drives_and_force_takes_it_from_them(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab, "ada") as ada, stage.watch(tab, "root") as root:
        cast = await stage.cast()
        await ada.take()
        await press(ada)
        await until(lambda: cast.calls)
        await root.say("take")
        error = await root.next("error")
        assert (error["code"], error["refused"], error["details"]["driver"]) == ("conflict", "take", "ada")
        await press(root)
        assert (await root.next("error"))["code"] == "conflict"
        await root.take(force=True)
        assert cast.told[1:] == ["mouseReleased left"]
        state = await ada.state(lambda state: not is_you(state))
        assert state["driver"] == {"name": "root", "isYou": False}
        await press(ada)
        assert (await ada.next("error"))["details"]["driver"] == "root"
        await press(root)
        await until(lambda: len(cast.calls) == 3)


async def test_a_tab_that_an_agent_handed_off_is_driven_by_whoever_takes_it(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    await stage.broker.tabs.hand_off(ADA, tab, "somebody, please")
    async with stage.watch(tab) as viewer:
        assert (await viewer.state())["tab"]["holder"]["controllerId"] == "somebody, please"
        state = await viewer.take()
        assert state["tab"]["holder"]["controllerId"] == "somebody, please"
        await press(viewer)
        cast = await stage.cast()
        await until(lambda: cast.calls)


async def test_what_ran_when_it_was_handed_off_finishes_first(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        cast = await stage.cast()
        running = asyncio.ensure_future(stage.run(tab, "held-1"))
        await viewer.state(lambda state: state["tab"]["holder"])
        await viewer.say("take")
        await viewer.state(is_you)
        await press(viewer)
        error = await viewer.next("error")
        assert (error["code"], error["retryable"]) == ("tab_busy", True)
        assert cast.calls == []
        stage.house.pages.finish("held-1")
        await running
        await viewer.state(lambda state: state["tab"]["holder"]["commandId"] is None)
        await press(viewer)
        await until(lambda: cast.calls)


async def test_nobody_drives_a_page_that_is_being_replaced(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        await viewer.take()
        live_tab = stage.broker.registry.tab(tab)
        assert live_tab is not None
        # The rebuild waits for the session, and so does the person.
        async with live_tab.session.mutex:
            stage.crash(tab)
            await viewer.state(lambda state: state["tab"]["state"] == "dead")
            await press(viewer)
            assert (await viewer.next("error"))["code"] == "tab_busy"
        # It is still theirs when it is there again.
        state = await viewer.state(lambda state: state["tab"]["generation"] == 2 and state["tab"]["state"] == "paused")
        assert is_you(state)
        cast = await stage.cast(1)
        await until(lambda: cast.is_awake)
        await press(viewer)
        await until(lambda: cast.told == ["mousePressed left"])


async def test_a_session_that_changes_hands_takes_the_wheel_from_its_old_owner(stage: Stage) -> None:
    session = await stage.house.open("ada")
    tab = session.tabs[0].tab_id
    async with stage.watch(tab, "root") as root, stage.watch(tab, "ada") as ada:
        await root.state()
        cast = await stage.cast()
        await ada.take()
        await press(ada)
        await until(lambda: cast.calls)
        await stage.broker.sessions.take_over(ADMIN, session.session_id, "bob")
        assert cast.told[1:] == ["mouseReleased left"]
        state = await root.state(lambda state: state["tab"]["agentId"] == "bob")
        assert (state["driver"], state["tab"]["state"]) == (None, "paused")


async def test_an_address_that_agents_may_not_visit_is_refused(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        cast = await stage.cast()
        await viewer.take()
        await viewer.say("navigate", url="file:///etc/passwd")
        assert (await viewer.next("error"))["code"] == "policy_denied"
        await viewer.say("navigate", url="http://example.test/")
        await until(lambda: cast.told == ["http://example.test/"])


async def test_the_clipboard_that_sessions_share_is_not_read(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        cast = await stage.cast()
        await viewer.take()
        await viewer.say("key", event="down", key="v", code="KeyV", modifiers=2)
        assert (await viewer.next("error"))["code"] == "policy_denied"
        assert cast.calls == []


async def test_taking_and_giving_are_in_the_audit_trail(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab, "ada") as ada, stage.watch(tab, "root") as root:
        await ada.take()
        await root.take(force=True)
        await root.say("give")
        await root.state(lambda state: state["tab"]["state"] == "ready")

    async def verbs() -> list[tuple[str, Any]]:
        page = await stage.broker.auditor.list(ADMIN, agent_id=None, session_id=None, tab_id=tab, limit=100, cursor="")
        return [(entry.verb, entry.agent_id) for entry in page.entries if entry.verb in ("handoff", "resume")]

    assert await verbs() == [("handoff", "ada"), ("handoff", "root"), ("resume", "root")]


async def test_a_take_that_is_under_way_is_not_begun_twice(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        await viewer.state()
        live_tab = stage.broker.registry.tab(tab)
        assert live_tab is not None
        async with live_tab.session.mutex:
            await viewer.say("take")
            await viewer.say("take")
            assert (await viewer.next("error"))["refused"] == "take"
        await viewer.state(is_you)


async def test_a_person_cannot_be_fenced_in_by_a_lock_of_an_agent(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    await stage.broker.tab_locks.lock(ADA, tab, wire.LockTab())
    async with stage.watch(tab) as viewer:
        cast = await stage.cast()
        await viewer.take()
        await press(viewer)
        await until(lambda: cast.calls)
