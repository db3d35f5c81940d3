"""The overview: what an operator sees at a glance, while it happens, and what an agent sees of it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect
from tests.server.conftest import Server, act, kill_browser, open_session, release, with_settings

from .rig import PHONE, WAIT_MS, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]

# One session of a key at a time: whoever comes second waits.
SETTINGS = {"POOLS__DEFAULT__BROWSERS_MAX": "1", "POOLS__DEFAULT__MAX_ACTIVE_PER_KEY": "1"}
SOLO = "solo"
# A name that is part of no id.
OTHER = "other-agent"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with with_settings(tmp_path_factory.mktemp("overview") / "state", SETTINGS) as running:
        yield running


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    """The admin, after whose test no session is left."""
    with server.client() as client:
        yield client
        for session in client.get("/sessions", params={"limit": 1_000}).json()["sessions"]:
            client.delete(f"/sessions/{session['sessionId']}")


def until(is_so: Callable[[], Any]) -> None:
    """Ask the server until it says so."""
    for _ in range(WAIT_MS // 50):
        if is_so():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to be")


@contextmanager
def asking(client: httpx.Client, method: str, path: str, **request: Any) -> Iterator[None]:
    """A request that takes its time; it is answered before this ends."""
    with ThreadPoolExecutor(1) as aside:
        answer = aside.submit(client.request, method, path, **request)
        yield
        answer.result()


@contextmanager
def held(client: httpx.Client, session: dict[str, Any]) -> Iterator[str]:
    """The session's first tab while a command has it; its id."""
    tab_id = session["tabs"][0]["tabId"]
    action = {"kind": "evaluate", "expression": "new Promise((done) => { window.done = done; })", "timeoutMs": 120_000}
    with asking(client, "POST", f"/tabs/{tab_id}/action", json=action):
        until(lambda: client.get(f"/tabs/{tab_id}").json()["holder"])
        try:
            yield tab_id
        finally:
            let_go(client, tab_id)


def let_go(client: httpx.Client, tab_id: str) -> None:
    """End the command that has the tab, if one does."""
    holder = client.get(f"/tabs/{tab_id}").json()["holder"]
    if holder is not None:
        client.post(f"/commands/{holder['commandId']}/cancel").raise_for_status()


def agent_row(page: Page, agent_id: str) -> Any:
    return page.locator(f"[data-agent={agent_id}]")


def finding(page: Page, name: str) -> Any:
    return page.locator(f"[data-finding={name}]")


def figure(page: Page, curve: str) -> Any:
    return page.locator(f"[data-tile={curve}] .figure")


# --- What happens elsewhere -------------------------------------------------------------------------------------


def test_a_quiet_server_says_that_nothing_is_stuck(dashboards: Dashboards, admin: httpx.Client) -> None:
    page = dashboards.open()
    expect(page.locator("[data-verdict]")).to_have_attribute("data-verdict", "good")
    expect(page.get_by_role("status").filter(has_text="Nothing is stuck")).to_be_visible()
    expect(page.get_by_text("Nobody is here yet")).to_be_visible()


def test_a_session_that_is_opened_elsewhere_appears_without_a_reload(
    dashboards: Dashboards, server: Server, admin: httpx.Client
) -> None:
    page = dashboards.open()
    expect(figure(page, "sessions")).to_have_text("0")
    page.evaluate("window.isSame = true")
    with server.agent("ada") as ada:
        session = open_session(ada)
        expect(figure(page, "sessions")).to_have_text("1")
        expect(agent_row(page, "ada")).to_contain_text("1 session, 1 tab")
        expect(page.locator("[data-event='session.opened']").first).to_contain_text(session["sessionId"])
        release(ada, session)
    expect(figure(page, "sessions")).to_have_text("0")
    expect(agent_row(page, "ada")).to_have_count(0)
    assert page.evaluate("window.isSame")


def test_two_dashboards_at_once_both_follow(dashboards: Dashboards, server: Server, admin: httpx.Client) -> None:
    pages = [dashboards.open(), dashboards.open(size=PHONE, theme="dark")]
    for page in pages:
        expect(figure(page, "sessions")).to_have_text("0")
    with server.agent("ada") as ada:
        session = open_session(ada)
        for page in pages:
            expect(agent_row(page, "ada")).to_be_visible()
        release(ada, session)
    for page in pages:
        expect(agent_row(page, "ada")).to_have_count(0)


def test_who_waits_for_a_session_is_shown_with_the_place_in_the_queue(
    dashboards: Dashboards, server: Server, admin: httpx.Client
) -> None:
    page = dashboards.open()
    waiting = {"key": SOLO, "waitMs": 120_000}
    with server.agent("ada") as ada, server.agent("bob") as bob, server.agent("cyd") as cyd:
        session = open_session(ada, key=SOLO)
        with asking(bob, "POST", "/sessions", json=waiting):
            until(lambda: admin.get("/stats").json()["pools"]["default"]["waiting"] == 1)
            with asking(cyd, "POST", "/sessions", json=waiting):
                rows = page.locator("[data-pool=default] [data-position]")
                expect(rows).to_have_count(2)
                expect(rows.nth(0)).to_contain_text("bob")
                expect(rows.nth(1)).to_contain_text("cyd")
                assert [row.get_attribute("data-position") for row in rows.all()] == ["1", "2"]
                expect(agent_row(page, "cyd")).to_contain_text("a session in default: number 2")
                expect(finding(page, "wait")).to_have_attribute("data-mood", "busy")
                expect(finding(page, "wait")).to_contain_text("bob is number 1")
                release(ada, session)
                # Bob has it now, and cyd is next.
                expect(rows).to_have_count(1)
                expect(rows.first).to_contain_text("cyd")
                bobs = next(one for one in bob.get("/sessions").json()["sessions"] if one["state"] == "active")
                release(bob, bobs)
    expect(finding(page, "wait")).to_contain_text("nobody waits")


def test_a_held_tab_is_shown_with_who_waits_behind_it(
    dashboards: Dashboards, server: Server, admin: httpx.Client
) -> None:
    page = dashboards.open()
    with server.agent("ada") as ada, server.agent("bob") as bob:
        session = open_session(ada, access="shared")
        with held(ada, session) as tab_id:
            look = {"kind": "evaluate", "expression": "1", "waitPolicy": "wait_with_timeout", "timeoutMs": 120_000}
            expect(finding(page, "hold")).to_contain_text(tab_id)
            expect(finding(page, "hold")).to_contain_text("nobody waits behind it")
            with asking(bob, "POST", f"/tabs/{tab_id}/action", json=look):
                expect(finding(page, "hold")).to_contain_text("behind it: bob (evaluate)")
                expect(finding(page, "hold")).to_have_attribute("data-mood", re.compile("busy|bad"))
                expect(agent_row(page, "bob")).to_contain_text("number 1")
                finding(page, "hold").get_by_role("link").click()
                expect(page).to_have_url(re.compile(f"#/tabs/{tab_id}$"))
                let_go(ada, tab_id)


def test_a_draining_server_says_so_at_the_top(dashboards: Dashboards, admin: httpx.Client) -> None:
    page = dashboards.open()
    expect(finding(page, "draining")).to_have_attribute("data-mood", "good")
    admin.post("/drain").raise_for_status()
    try:
        expect(finding(page, "draining")).to_contain_text("this node admits no new session")
        expect(page.locator("[data-verdict]")).to_have_attribute("data-verdict", "busy")
    finally:
        admin.delete("/drain").raise_for_status()
    expect(finding(page, "draining")).to_have_attribute("data-mood", "good")


def test_a_killed_browser_is_told_as_crashed_and_is_back(
    dashboards: Dashboards, server: Server, admin: httpx.Client
) -> None:
    page = dashboards.open()
    (browser,) = admin.get("/browsers").json()["browsers"]
    expect(page.locator(f"[data-browser={browser['browserId']}]")).to_contain_text("ready")
    kill_browser(browser["pid"])
    expect(page.locator("[data-event='browser.crashed']")).to_contain_text(browser["browserId"])
    expect(page.locator(f"[data-browser={browser['browserId']}]")).to_have_count(0)
    replacement = page.locator("[data-browser]")
    expect(replacement).to_contain_text("ready")
    # Why there is another one is said for as long as it is the last thing that happened to that place.
    expect(replacement).to_contain_text("the one before it")
    expect(page.locator("[data-event='browser.ready']").first).to_be_visible()


# --- Numbers ----------------------------------------------------------------------------------------------------


def test_commands_leave_a_curve_and_failures_are_said_in_words(
    dashboards: Dashboards, server: Server, admin: httpx.Client
) -> None:
    page = dashboards.open()
    tile = page.locator("[data-tile=commands]")
    with server.agent("ada") as ada:
        session = open_session(ada)
        tab_id = session["tabs"][0]["tabId"]
        for expression in ("1", "missing()", "2"):
            act(ada, tab_id, "evaluate", expression=expression)
        expect(tile).to_contain_text("failed")
        expect(tile.locator("path")).to_have_attribute("d", re.compile("M.+L"))
        expect(tile.locator("svg")).to_have_attribute("aria-label", re.compile("Commands, last .* highest: .* /s"))
        expect(page.locator("[data-tile=commandP95Ms]")).to_contain_text("95 % within")
        release(ada, session)


def test_only_the_end_of_the_history_is_asked_for_once_all_of_it_is_there(dashboards: Dashboards) -> None:
    page = dashboards.window()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/history" in request.url else None)
    page.goto(f"{dashboards.url}/#token={dashboards.server.admin_token}")
    expect(page.locator("[data-tile=sessions] path")).to_have_attribute("d", re.compile("M"))
    for _ in range(2):
        with page.expect_request(re.compile("/history")):
            pass
    assert len([url for url in asked if url.endswith("/history")]) == 1


# --- Who sees what ----------------------------------------------------------------------------------------------


def test_an_agent_sees_only_its_own(dashboards: Dashboards, server: Server, admin: httpx.Client) -> None:
    with server.agent(OTHER) as ada, server.agent("bob") as bob:
        sessions = [open_session(ada), open_session(bob)]
        page = dashboards.open(token=server.token_of("bob"))
        expect(agent_row(page, "bob")).to_contain_text("1 session, 1 tab")
        expect(page.get_by_role("heading", name="What is yours")).to_be_visible()
        with held(ada, sessions[0]) as tab_id:
            # It has to wait, so that the scheduler counts it.
            task = {"action": "evaluate", "tabId": tab_id, "params": {"expression": "1"}}
            task_id = ada.post("/tasks", json=task).raise_for_status().json()["taskId"]
            until(lambda: OTHER in bob.get("/scheduler/stats").json()["queue"]["agents"])
            with page.expect_response("**/scheduler/stats"):
                release(bob, sessions[1])
            expect(page.locator("[data-event='session.closed']")).to_contain_text(sessions[1]["sessionId"])
            expect(agent_row(page, "bob")).to_have_count(0)
            expect(finding(page, "hold")).to_contain_text("no tab is held")
            for secret in (OTHER, sessions[0]["sessionId"], tab_id, task_id):
                assert secret not in page.locator("main").inner_text()


# --- Everywhere -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/browsers", "/nodes"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(dashboards: Dashboards, admin: httpx.Client, path: str, theme: str) -> None:
    open_session(admin, url="about:blank")
    page = dashboards.open(path, size=PHONE, theme=theme)
    expect(page.locator(f"main[data-page='{path}'] h1")).to_be_visible()
    expect(page.locator("[data-state=loading]")).to_have_count(0)
    main = page.locator("main")
    assert main.evaluate("main => main.scrollWidth <= main.clientWidth")
    # What scrolls sideways by itself does so on purpose.
    wide = "main => [...main.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
    assert (
        main.evaluate(f"{wide}.filter(e => !e.closest('.scroll-x, .rows')).map(e => e.outerHTML.slice(0, 200))") == []
    )
