"""The board of tabs and the page of one: who holds what and who waits, live, and how an operator steps in."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.server.tasking import until

from .crowd import Crowd, tab_of
from .looking import overflow
from .rig import PHONE, WIDE, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]

LONG_AGO = "2026-01-01T00:00:00.000Z"
LONG_NAME = f"crawler/{'x' * 60}@somewhere.example"


def row(page: Page, session: Any) -> Locator:
    return page.locator(f"[role=row][data-key={tab_of(session)}]")


def path(session: Any) -> str:
    return f"/tabs/{tab_of(session)}"


def say_yes(page: Page) -> None:
    page.locator("dialog [data-confirm]").click()


def say_no(page: Page) -> None:
    page.get_by_role("button", name="Keep as it is").click()


# --- Seeing -----------------------------------------------------------------------------------------------------


def test_the_holder_of_a_tab_and_those_who_wait_are_shown_as_they_come_and_the_command_is_cancelled(
    crowd: Crowd, dashboards: Dashboards
) -> None:
    board, one = dashboards.open("/tabs"), dashboards.open("/tabs")
    session = crowd.open("ada", "Orders", access="shared")
    expect(row(board, session)).to_contain_text("Orders")
    expect(row(board, session)).to_contain_text("free")
    dashboards.go(one, path(session))
    expect(one.locator("[data-situation=free]")).to_be_visible()
    running = crowd.hold(session, "ada", controllerId="worker")
    bob, cyd = crowd.wait(session, "bob"), crowd.wait(session, "cyd")
    expect(row(board, session)).to_contain_text("ada/worker")
    expect(row(board, session)).to_contain_text("1 bob (evaluate) · 2 cyd (evaluate)")
    expect(one.locator("[data-situation=command]")).to_contain_text("ada/worker has been running evaluate")
    expect(one.locator("[data-position='1']")).to_contain_text("bob")
    expect(one.locator("[data-position='2']")).to_contain_text("cyd")
    # What the server refuses is said in its words.
    one.get_by_role("button", name="Close tab").click()
    say_yes(one)
    expect(one.locator(".toast.bad")).to_contain_text("Another command has the tab.")
    one.get_by_role("button", name="Cancel command").click()
    say_yes(one)
    assert running.result().json()["outcome"] == "cancelled"
    assert (bob.result().json()["ok"], cyd.result().json()["ok"]) == (True, True)
    expect(one.locator("[data-position]")).to_have_count(0)
    expect(one.get_by_role("button", name="Cancel command")).to_have_count(0)
    expect(row(board, session)).to_contain_text("free")


def test_of_many_tabs_those_with_trouble_come_first_and_only_those_in_sight_are_drawn(
    crowd: Crowd, dashboards: Dashboards
) -> None:
    session = crowd.open("ada", "A page with a rather long title that does not fit into a line of a phone")
    crowd.lock(session, "ada")
    held = crowd.tab(tab_of(session))
    holder = held["holder"] | {"since": LONG_AGO}
    waiter = {"position": 1, "agentId": "bob", "controllerId": "", "kind": "click"}
    free = held | {"holder": None}
    tabs = [
        *(free | {"tabId": f"tab_{number:05}", "agentId": f"agent-{number:05}"} for number in range(2_000)),
        held | {"tabId": "tab_held"},
        held | {"tabId": "tab_line", "agentId": LONG_NAME, "holder": holder, "waiters": [waiter]},
        held | {"tabId": "tab_stuck", "state": "quarantined", "holder": holder | {"reason": "quarantine"}},
    ]
    page = dashboards.open("/events")
    page.route("**/tabs", lambda route: route.fulfill(json={"tabs": tabs}))
    page.route("**/tabs/tab_stuck", lambda route: route.fulfill(json=tabs[-1]))
    dashboards.go(page, "/tabs")
    rows = page.locator(".rows .row")
    for place, tab_id in enumerate(("tab_stuck", "tab_line", "tab_held", "tab_00000")):
        expect(rows.nth(place)).to_have_attribute("data-key", tab_id)
    expect(page.locator("[data-look=tab_stuck]")).to_contain_text("quarantined")
    page.set_viewport_size(PHONE)
    assert overflow(page) == []
    page.set_viewport_size(WIDE)
    assert rows.count() < 60
    page.locator(".rows").focus()
    page.keyboard.press("End")
    expect(page.locator("[data-key=tab_01999]")).to_be_visible()
    assert rows.count() < 60
    dashboards.go(page, "/tabs/tab_stuck")
    expect(page.locator("[data-situation=quarantine]")).to_contain_text("A command timed out")


def test_filters_are_in_the_address_and_survive_a_reload(crowd: Crowd, dashboards: Dashboards) -> None:
    locked, other = crowd.open("ada", "Locked"), crowd.open("bob", "Other")
    crowd.lock(locked, "ada")
    page = dashboards.open("/tabs")
    expect(row(page, other)).to_be_visible()
    page.get_by_label("Only").select_option("held")
    expect(row(page, other)).to_have_count(0)
    page.reload()
    expect(row(page, locked)).to_be_visible()
    expect(row(page, other)).to_have_count(0)
    page.get_by_role("button", name="Clear filters").click()
    page.get_by_role("searchbox").fill("bob")
    expect(row(page, other)).to_be_visible()
    expect(row(page, locked)).to_have_count(0)


# --- Stepping in ------------------------------------------------------------------------------------------------


def test_a_tab_is_handed_off_given_back_unlocked_and_closed_only_by_a_yes(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open("ada", "Kept", access="shared")
    crowd.agent("ada").post(f"/sessions/{session['sessionId']}/tabs", json={}).raise_for_status()
    held = crowd.lock(session, "ada")
    waiting = crowd.wait(session, "bob")
    page = dashboards.open(path(session))
    for button in ("Hand off", "Free lock", "Close tab", "Release session"):
        page.get_by_role("button", name=button).click()
        say_no(page)
        expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Release session").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert crowd.state_of(session) == "active"
    crowd.lock(session, "ada", ticket=held["ticket"])
    page.get_by_role("button", name="Free lock").click()
    say_yes(page)
    assert waiting.result().json()["ok"]
    lost = crowd.agent("ada").post(f"{path(session)}/lock", json={"ticket": held["ticket"]})
    assert lost.json()["code"] == "lock_not_found"
    # The trail says by whom.
    entry = page.get_by_role("row").filter(has_text="lock released")
    expect(entry).to_contain_text("admin")
    expect(entry).to_contain_text("forced, held by")
    page.get_by_role("button", name="Hand off").click()
    say_yes(page)
    expect(page.locator("[data-situation=handoff]")).to_contain_text("was handed off to admin")
    assert crowd.tab(tab_of(session))["state"] == "paused"
    page.get_by_role("button", name="Give back").click()
    say_yes(page)
    expect(page.locator("[data-situation=free]")).to_be_visible()
    assert crowd.tab(tab_of(session))["state"] == "ready"
    page.get_by_role("button", name="Close tab").click()
    say_yes(page)
    expect(page.locator("[data-state=empty]")).to_contain_text("This tab is gone")
    assert crowd.state_of(session) == "active"


def test_a_session_is_released_after_a_question_that_says_what_happens_to_whom(
    crowd: Crowd, dashboards: Dashboards
) -> None:
    session = crowd.open("ada", "Stuck", access="shared")
    running = crowd.hold(session, "ada")
    waiting = crowd.wait(session, "bob")
    page = dashboards.open(path(session))
    expect(page.locator("[data-position='1']")).to_be_visible()
    page.get_by_role("button", name="Release session").click()
    expect(page.get_by_role("dialog")).to_contain_text("ada loses")
    expect(page.get_by_role("dialog")).to_contain_text("The one who waits for its tabs is turned away.")
    say_yes(page)
    expect(page.locator("[data-state=empty]")).to_contain_text("This tab is gone")
    assert crowd.state_of(session) == "closed"
    assert not running.result().is_success or not running.result().json()["ok"]
    assert waiting.result().json()["code"] == "lease_lost"


def test_an_agent_sees_what_it_may_and_is_offered_nothing_that_is_anothers(
    crowd: Crowd, dashboards: Dashboards
) -> None:
    mine, secret = crowd.open("bob", "Mine"), crowd.open("ada", "Secret")
    shared = crowd.open("ada", "Shared", access="shared")
    crowd.lock(shared, "ada")
    crowd.lock(mine, "bob")
    page = dashboards.open("/tabs", token=crowd.tokens["bob"])
    expect(row(page, mine)).to_be_visible()
    expect(row(page, shared)).to_be_visible()
    expect(row(page, secret)).to_have_count(0)
    dashboards.go(page, path(shared))
    expect(page.get_by_role("link", name="Watch")).to_be_visible()
    expect(page.locator("[data-act]")).to_have_count(0)
    page.keyboard.press("x")
    page.keyboard.press("u")
    expect(page.get_by_role("dialog")).to_have_count(0)
    dashboards.go(page, path(mine))
    expect(page.get_by_role("button", name="Release session")).to_be_visible()
    expect(page.get_by_role("button", name="Free lock")).to_have_count(0)
    expect(page.get_by_role("heading", name="Who did what")).to_have_count(0)
    dashboards.go(page, path(secret))
    expect(page.locator("[data-state=empty]")).to_contain_text("This tab is gone")


def test_the_keyboard_is_enough_to_find_a_tab_open_it_and_release_its_session(
    crowd: Crowd, dashboards: Dashboards
) -> None:
    other, session = crowd.open("ada", "Other"), crowd.open("bob", "Wanted")
    page = dashboards.open("/")
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(row(page, session)).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("wanted")
    expect(row(page, other)).to_have_count(0)
    until(lambda: _step(page) == "Tabs, rows")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Wanted")
    page.keyboard.press("x")
    expect(page.get_by_role("button", name="Keep as it is")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("[data-state=empty]")).to_contain_text("This tab is gone")
    assert crowd.state_of(session) == "closed"


def _step(page: Page) -> str | None:
    """Go on with Tab; the label of what has the focus then."""
    page.keyboard.press("Tab")
    label: str | None = page.evaluate("document.activeElement.getAttribute('aria-label')")
    return label
