"""Sessions as leases: who may use and end them, how they are kept alive, and what their owners are told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, sync_playwright

from tabherd.browsers.find import find_browser

from .conftest import Server, act, events_of, open_session, release, value_of, with_settings
from .login_site import LoginSite

pytestmark = [pytest.mark.server, pytest.mark.browser]

SETTINGS = {
    "TIERS__BRIEF": "2",
    # Time enough, on a machine that stalls, to be told of a deadline before the end.
    "POOLS__DEFAULT__DEADLINE_GRACE_S": "4",
    # A pool whose sessions are soon found idle.
    "POOLS__HASTY__IDLE_TTL_S": "6",
    "POOLS__HASTY__HEARTBEAT_S": "2",
    "POOLS__HASTY__STALE_AFTER_S": "12",
    "POOLS__HASTY__PROBE_LIMIT_MS": "30000",
    "POOLS__HASTY__WARM": "1",
    "POOLS__DEFAULT__WARM": "1",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with with_settings(tmp_path_factory.mktemp("leases") / "state", SETTINGS) as server:
        yield server


@pytest.fixture
def ada(server: Server) -> Iterator[httpx.Client]:
    with server.agent("ada") as client:
        yield client
        for session in client.get("/sessions", params={"state": "active"}).json()["sessions"]:
            client.delete(f"/sessions/{session['sessionId']}")


@pytest.fixture
def bob(server: Server) -> Iterator[httpx.Client]:
    with server.agent("bob") as client:
        yield client


def tab_of(session: dict[str, Any]) -> str:
    return session["tabs"][0]["tabId"]


# --- Time -------------------------------------------------------------------------------------------------------


def test_the_owner_is_told_that_the_deadline_is_near_and_that_it_has_passed(server: Server, ada: httpx.Client) -> None:
    with events_of(server, "session_expiring,session.closed") as events:
        session = open_session(ada, tier="brief", keepAlive=True)
        near, over = (next(event for event in events if event["sessionId"] == session["sessionId"]) for _ in range(2))
    assert (near["type"], near["agentId"], near["expiresAt"]) == ("session_expiring", "ada", session["expiresAt"])
    assert (over["type"], over["reason"]) == ("session.closed", "deadline")
    late = act(ada, tab_of(session), "text")
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")


def test_a_heartbeat_never_moves_the_deadline(ada: httpx.Client) -> None:
    session = open_session(ada, deadlineMs=60_000)
    path = f"/sessions/{session['sessionId']}/heartbeat"
    beats = [ada.post(path, json={"fence": session["fence"]}).json()["expiresAt"] for _ in range(3)]
    assert beats == [session["expiresAt"]] * 3


@pytest.mark.parametrize(
    ("how", "is_kept"),
    [("silent", False), ("keepAlive", True), ("handoff", True), ("working", True)],
)
def test_a_session_without_a_sign_of_life_ends_and_one_with_any_does_not(
    server: Server, ada: httpx.Client, how: str, is_kept: bool
) -> None:
    session = open_session(ada, pool="hasty", keepAlive=how == "keepAlive")
    if how == "handoff":
        ada.post(f"/tabs/{tab_of(session)}/handoff", json={}).raise_for_status()
    # Ends by itself six seconds after its opening, so that its end says that the time of the other one has come, too.
    with events_of(server, "session.closed") as events:
        clock = open_session(ada, pool="hasty")
        if how == "working":
            wait = "new Promise(done => setTimeout(done, 8000, 'done'))"
            assert value_of(ada, tab_of(session), wait) == "done"
        told = next(event for event in events if event["sessionId"] == clock["sessionId"])
    assert told["reason"] == "idle"
    state = ada.get(f"/sessions/{session['sessionId']}").json()["state"]
    assert state == ("active" if is_kept else "closed")


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


def test_a_shared_session_still_wants_the_scope(server: Server, ada: httpx.Client) -> None:
    session = open_session(ada, access="shared")
    with server.agent("clerk", scopes=["tasks"]) as clerk:
        assert act(clerk, tab_of(session), "text").json()["code"] == "forbidden"


def test_events_of_a_session_are_told_to_its_own_agent_only(server: Server, ada: httpx.Client) -> None:
    token = server.token_of("bob")
    with events_of(server, "session.*", token) as events, server.client(token) as bob:
        release(ada, open_session(ada))
        mine = open_session(bob)
        release(bob, mine)
        told = [next(events) for _ in range(2)]
    assert [(event["type"], event["agentId"]) for event in told] == [
        ("session.opened", "bob"),
        ("session.closed", "bob"),
    ]


# --- What it carries --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def playwrights() -> Iterator[Browser]:
    """A browser that Playwright drives by itself."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(find_browser().path), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def test_playwright_takes_a_sessions_state_and_is_logged_in(
    ada: httpx.Client, login_site: LoginSite, playwrights: Browser
) -> None:
    session = open_session(ada, url=login_site.url("/login/ada"))
    value_of(ada, tab_of(session), "localStorage.draft = 'of ada'")
    state = ada.get(f"/sessions/{session['sessionId']}/state").json()
    context = playwrights.new_context(storage_state=state)
    page = context.new_page()
    page.goto(login_site.url("/elsewhere"))
    assert page.inner_text("h1") == "Hello, ada"
    assert page.evaluate("localStorage.draft") == "of ada"
    context.close()


@pytest.mark.parametrize("when", ["at the opening", "later"])
def test_a_session_takes_the_state_that_playwright_saved(
    ada: httpx.Client, login_site: LoginSite, playwrights: Browser, when: str
) -> None:
    context = playwrights.new_context()
    page = context.new_page()
    page.goto(login_site.url("/login/grace"))
    page.evaluate("localStorage.draft = 'of grace'")
    state = context.storage_state()
    context.close()
    if when == "later":
        session = open_session(ada)
        assert ada.put(f"/sessions/{session['sessionId']}/state", json=state).status_code == 204
    else:
        session = open_session(ada, storageState=state)
    act(ada, tab_of(session), "navigate", url=login_site.url("/elsewhere"))
    assert value_of(ada, tab_of(session), "[document.body.innerText, localStorage.draft]") == [
        "Hello, grace",
        "of grace",
    ]
    again = ada.get(f"/sessions/{session['sessionId']}/state").json()
    assert again["origins"] == [{"origin": login_site.origin, "localStorage": [{"name": "draft", "value": "of grace"}]}]
    kept = {cookie["name"]: cookie["value"] for cookie in again["cookies"]}
    assert kept == {"login": "secret-of-grace"}


def test_a_state_that_is_none_is_refused_and_leaves_no_session(server: Server, ada: httpx.Client) -> None:
    bad = {"cookies": [{"name": "a", "value": "b", "domain": "not a domain", "path": "/"}]}
    refused = ada.post("/sessions", json={"storageState": bad})
    assert (refused.status_code, refused.json()["details"]["field"]) == (400, "storageState")
    assert ada.get("/sessions", params={"state": "active"}).json()["sessions"] == []


def test_a_page_has_the_size_that_was_asked_for(ada: httpx.Client) -> None:
    session = open_session(ada, viewport={"width": 640, "height": 360, "deviceScaleFactor": 2})
    more = ada.post(f"/sessions/{session['sessionId']}/tabs", json={}).json()["tabId"]
    for tab_id in (tab_of(session), more):
        assert value_of(ada, tab_id, "[innerWidth, innerHeight, devicePixelRatio]") == [640, 360, 2]
