"""Sessions as leases: who may use and end them, how they are kept alive, and what their owners are told."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from playwright.sync_api import sync_playwright
from tests.shared_server import unique

from tabherd.browsers.find import find_browser

from .conftest import Server, act, events_of, open_session, release, value_of, wait_while
from .login_site import LoginSite

pytestmark = [pytest.mark.server, pytest.mark.browser]


def tab_of(session: dict[str, Any]) -> str:
    return session["tabs"][0]["tabId"]


# --- Time -------------------------------------------------------------------------------------------------------


def test_the_owner_is_told_that_the_deadline_is_near_and_after_it_nothing_is_served(
    server: Server, ada: httpx.Client
) -> None:
    with events_of(server, "session_expiring") as events:
        session = open_session(ada, deadlineMs=1_500, keepAlive=True)
        near = next(event for event in events if event["sessionId"] == session["sessionId"])
    assert (near["agentId"], near["expiresAt"]) == (session["agentId"], session["expiresAt"])
    wait_while(lambda: act(ada, tab_of(session), "text").status_code == 200)
    late = act(ada, tab_of(session), "text")
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")


def test_a_session_without_a_sign_of_life_ends_and_one_with_any_does_not(server: Server, ada: httpx.Client) -> None:
    kept = open_session(ada, pool="hasty", keepAlive=True)
    handed_off, working = (open_session(ada, pool="hasty") for _ in range(2))
    paths = [f"/sessions/{session['sessionId']}" for session in (kept, handed_off, working)]
    ada.post(f"/tabs/{tab_of(handed_off)}/handoff", json={}).raise_for_status()
    with events_of(server, "session.closed") as events, ThreadPoolExecutor(1) as callers:
        at_work = "new Promise(done => setTimeout(done, 4500, 'done'))"
        work = callers.submit(value_of, ada, tab_of(working), at_work)
        wait_while(lambda: ada.get(f"/tabs/{tab_of(working)}").json()["holder"] is None)
        # Opened last, and nobody has asked for the others since: when its time is over, theirs would be as well.
        silent = open_session(ada, pool="hasty")
        told = next(events)
        assert (told["sessionId"], told["reason"]) == (silent["sessionId"], "idle")
        assert [ada.get(path).json()["state"] for path in paths] == ["active"] * 3
        assert work.result() == "done"


# --- Whose it is ------------------------------------------------------------------------------------------------


def test_a_shared_session_is_used_by_all_and_ended_by_its_owner(ada: httpx.Client, bob: httpx.Client) -> None:
    session = open_session(ada, access="shared")
    session_id, tab_id = session["sessionId"], tab_of(session)
    assert value_of(bob, tab_id, "window.mark = 'bob was here'") == "bob was here"
    assert value_of(ada, tab_id, "window.mark") == "bob was here"
    assert bob.get(f"/sessions/{session_id}").json()["access"] == "shared"
    for refused in (
        bob.delete(f"/sessions/{session_id}"),
        bob.post(f"/sessions/{session_id}/heartbeat", json={"fence": session["fence"]}),
        bob.post(f"/sessions/{session_id}/tabs", json={}),
        bob.get(f"/sessions/{session_id}/state"),
        bob.post(f"/tabs/{tab_id}/handoff", json={}),
    ):
        assert (refused.status_code, refused.json()["code"]) == (403, "not_owner")
    assert ada.get(f"/sessions/{session_id}").json()["state"] == "active"
    release(ada, session)


def test_events_of_a_session_are_told_to_its_own_agent_only(server: Server, ada: httpx.Client) -> None:
    name = unique("bob")
    token = server.token_of(name)
    with events_of(server, "session.*", token) as events, server.client(token) as bob:
        release(ada, open_session(ada))
        mine = open_session(bob)
        release(bob, mine)
        told = [next(events) for _ in range(2)]
    assert [(event["type"], event["agentId"]) for event in told] == [
        ("session.opened", name),
        ("session.closed", name),
    ]


# --- What it carries --------------------------------------------------------------------------------------------


def test_playwright_and_sessions_take_each_others_state(ada: httpx.Client, login_site: LoginSite) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(find_browser().path), args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(login_site.url("/login/grace"))
        page.evaluate("localStorage.draft = 'of grace'")
        state = page.context.storage_state()
        at_the_opening, later = open_session(ada, storageState=state), open_session(ada)
        assert ada.put(f"/sessions/{later['sessionId']}/state", json=state).status_code == 204
        for session in (at_the_opening, later):
            act(ada, tab_of(session), "navigate", url=login_site.url("/elsewhere"))
            found = value_of(ada, tab_of(session), "[document.body.innerText, localStorage.draft]")
            assert found == ["Hello, grace", "of grace"]
        again = ada.get(f"/sessions/{later['sessionId']}/state").json()
        draft = {"name": "draft", "value": "of grace"}
        assert again["origins"] == [{"origin": login_site.origin, "localStorage": [draft]}]
        assert {cookie["name"]: cookie["value"] for cookie in again["cookies"]} == {"login": "secret-of-grace"}
        other = browser.new_context(storage_state=again).new_page()
        other.goto(login_site.url("/elsewhere"))
        assert (other.inner_text("h1"), other.evaluate("localStorage.draft")) == ("Hello, grace", "of grace")
        browser.close()


def test_a_state_that_is_none_is_refused_and_leaves_no_session(ada: httpx.Client) -> None:
    bad = {"cookies": [{"name": "a", "value": "b", "domain": "not a domain", "path": "/"}]}
    refused = ada.post("/sessions", json={"storageState": bad})
    assert (refused.status_code, refused.json()["details"]["field"]) == (400, "storageState")
    assert ada.get("/sessions", params={"state": "active"}).json()["sessions"] == []


def test_a_page_has_the_size_that_was_asked_for(ada: httpx.Client) -> None:
    session = open_session(ada, viewport={"width": 640, "height": 360, "deviceScaleFactor": 2})
    more = ada.post(f"/sessions/{session['sessionId']}/tabs", json={}).json()["tabId"]
    for tab_id in (tab_of(session), more):
        assert value_of(ada, tab_id, "[innerWidth, innerHeight, devicePixelRatio]") == [640, 360, 2]
