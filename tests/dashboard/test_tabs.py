"""The board of tabs and the page of one: who holds what and who waits, live, and how an operator steps in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect
from tests.server.conftest import Server, with_settings

from .crowd import Crowd, crowd_at, tab_of, until
from .looking import overflow
from .rig import PHONE, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]

# A browser that is stopped for a while must not be taken for a hung one here.
PATIENT = {
    "POOLS__DEFAULT__BROWSERS_MAX": "1",
    "POOLS__DEFAULT__PROBE_EVERY_MS": "60000",
    "POOLS__DEFAULT__PROBE_LIMIT_MS": "60000",
}
LONG_AGO = "2026-01-01T00:00:00.000Z"
MARKUP = "<img src=x onerror=\"document.body.dataset.owned='1'\"><b>bold</b>"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with with_settings(tmp_path_factory.mktemp("board") / "state", PATIENT) as running:
        yield running


@pytest.fixture
def crowd(server: Server) -> Iterator[Crowd]:
    with crowd_at(server) as crowd:
        yield crowd


def row(page: Page, session: Any) -> Locator:
    return page.locator(f"[role=row][data-key={tab_of(session)}]")


def path(session: Any) -> str:
    return f"/tabs/{tab_of(session)}"


def say_yes(page: Page) -> None:
    page.locator("dialog [data-confirm]").click()


def say_no(page: Page) -> None:
    page.get_by_role("button", name="Keep as it is").click()


# --- Seeing -----------------------------------------------------------------------------------------------------


def test_the_holder_of_a_tab_and_those_who_wait_are_shown_as_they_come(crowd: Crowd, dashboards: Dashboards) -> None:
    board, one = dashboards.open("/tabs"), dashboards.open("/tabs")
    session = crowd.open("ada", "Orders", access="shared")
    expect(row(board, session)).to_contain_text("Orders")
    expect(row(board, session)).to_contain_text("free")
    dashboards.go(one, path(session))
    expect(one.locator("[data-situation=free]")).to_be_visible()
    crowd.hold(session, "ada", controllerId="worker")
    crowd.wait(session, "bob")
    crowd.wait(session, "cyd")
    expect(row(board, session)).to_contain_text("ada/worker")
    expect(row(board, session)).to_contain_text("1 bob (evaluate) · 2 cyd (evaluate)")
    expect(one.locator("[data-situation=command]")).to_contain_text("ada/worker has been running evaluate")
    expect(one.locator("[data-position='1']")).to_contain_text("bob")
    expect(one.locator("[data-position='2']")).to_contain_text("cyd")
    command = crowd.tab(tab_of(session))["holder"]["commandId"]
    crowd.admin.post(f"/commands/{command}/cancel").raise_for_status()
    expect(one.locator("[data-position]")).to_have_count(0)
    expect(row(board, session)).to_contain_text("free")


def test_a_quarantined_tab_is_shown_first_and_explained(crowd: Crowd, server: Server, dashboards: Dashboards) -> None:
    fine, stuck = crowd.open("ada", "Fine"), crowd.open("bob", "Stuck")
    # Its time must not be over before the browser stands still.
    running = crowd.hold(stuck, "bob", expression="for (;;);", timeoutMs=15_000)
    stopped = server.browsers()
    for process in stopped:
        process.suspend()
    try:
        page = dashboards.open("/tabs")
        expect(page.locator(f"[data-look={tab_of(stuck)}]")).to_contain_text("quarantined")
        expect(page.locator(".rows .row").first).to_have_attribute("data-key", tab_of(stuck))
        expect(row(page, fine)).to_contain_text("free")
        dashboards.go(page, path(stuck))
        expect(page.locator("[data-situation=quarantine]")).to_contain_text("A command timed out")
    finally:
        for process in stopped:
            process.resume()
    assert running.result().json()["code"] == "command_timed_out"
    expect(page.locator("[data-situation=free]")).to_be_visible()


def test_a_tab_with_a_long_line_comes_before_one_that_is_only_held(crowd: Crowd, dashboards: Dashboards) -> None:
    free, held = crowd.open("ada", "Free"), crowd.open("ada", "Held")
    busy = crowd.open("zoe", "Busy", access="shared")
    crowd.lock(held, "ada")
    crowd.lock(busy, "zoe")
    crowd.wait(busy, "bob")
    page = dashboards.open("/tabs")
    keys = page.locator(".rows .row")
    for place, session in enumerate((busy, held, free)):
        expect(keys.nth(place)).to_have_attribute("data-key", tab_of(session))


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


def test_of_many_tabs_only_those_in_sight_are_drawn(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open("ada", "One of many")
    model = crowd.tab(tab_of(session))
    many = [{**model, "tabId": f"tab_{number:05}", "agentId": f"agent-{number:05}"} for number in range(2_000)]
    answer = json.dumps({"tabs": many})

    def crowded(route: Route) -> None:
        route.fulfill(status=200, content_type="application/json", body=answer)

    page = dashboards.open("/events")
    page.route("**/tabs", crowded)
    dashboards.go(page, "/tabs")
    expect(page.locator("[data-key=tab_00000]")).to_be_visible()
    assert page.locator(".rows .row").count() < 60
    page.locator(".rows").focus()
    page.keyboard.press("End")
    expect(page.locator("[data-key=tab_01999]")).to_be_visible()
    assert page.locator(".rows .row").count() < 60


def test_what_a_page_calls_itself_stays_text(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open("ada", MARKUP)
    crowd.lock(session, "ada", controllerId=MARKUP[:40])
    page = dashboards.open("/tabs")
    expect(row(page, session)).to_contain_text(MARKUP)
    dashboards.go(page, path(session))
    expect(page.get_by_role("heading", level=1)).to_have_text(MARKUP)
    page.keyboard.press("x")
    expect(page.get_by_role("dialog")).to_be_visible()
    say_no(page)
    page.keyboard.press("h")
    expect(page.get_by_role("dialog")).to_contain_text(MARKUP)
    say_no(page)
    assert page.evaluate("document.body.dataset.owned") is None
    assert page.locator("main img, dialog img, main b:text-is('bold')").count() == 0


def test_a_tab_that_is_closed_meanwhile_says_so(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open("ada", "Short-lived")
    page = dashboards.open(path(session))
    expect(page.get_by_role("heading", level=1)).to_have_text("Short-lived")
    crowd.agent("ada").delete(f"/sessions/{session['sessionId']}").raise_for_status()
    expect(page.locator("[data-state=empty]")).to_contain_text("This tab is gone")


def test_nothing_is_wider_than_a_phone(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open(
        "ada", "A page with a rather long title that does not fit into a line of a phone", access="shared"
    )
    crowd.lock(session, "ada", controllerId="a-controller-with-a-rather-long-name-of-its-own")
    crowd.wait(session, "bob", controllerId="another-controller-with-a-rather-long-name")
    page = dashboards.open("/tabs", size=PHONE)
    expect(row(page, session)).to_be_visible()
    assert overflow(page) == []
    dashboards.go(page, path(session))
    expect(page.locator("[data-position='1']")).to_be_visible()
    assert overflow(page) == []


def test_a_tab_that_wants_a_look_fits_a_phone_whatever_its_agent_is_called(
    crowd: Crowd, dashboards: Dashboards
) -> None:
    session = crowd.open("ada", "A page with a rather long title that does not fit into a line of a phone")
    crowd.lock(session, "ada")
    tab = crowd.tab(tab_of(session))
    tab |= {"agentId": f"crawler/{'x' * 60}@somewhere.example", "holder": tab["holder"] | {"since": LONG_AGO}}
    page = dashboards.open("/events", size=PHONE)
    page.route("**/tabs", lambda route: route.fulfill(json={"tabs": [tab]}))
    dashboards.go(page, "/tabs")
    expect(page.locator("[data-look]")).to_be_visible()
    assert overflow(page) == []


# --- Stepping in ------------------------------------------------------------------------------------------------


def test_a_tab_is_handed_off_and_given_back_by_its_buttons(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open("ada", "Form")
    page = dashboards.open(path(session))
    page.get_by_role("button", name="Hand off").click()
    say_yes(page)
    expect(page.locator("[data-situation=handoff]")).to_contain_text("admin has taken the tab over")
    assert crowd.tab(tab_of(session))["state"] == "paused"
    page.get_by_role("button", name="Give back").click()
    say_yes(page)
    expect(page.locator("[data-situation=free]")).to_be_visible()
    assert crowd.tab(tab_of(session))["state"] == "ready"


def test_saying_no_changes_nothing(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open("ada", "Kept", access="shared")
    held = crowd.lock(session, "ada")
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


def test_a_command_is_cancelled_and_the_next_one_runs(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open("ada", "Slow", access="shared")
    running = crowd.hold(session, "ada")
    waiting = crowd.wait(session, "bob")
    page = dashboards.open(path(session))
    page.get_by_role("button", name="Cancel command").click()
    say_yes(page)
    assert running.result().json()["outcome"] == "cancelled"
    assert waiting.result().json()["ok"]
    expect(page.get_by_role("button", name="Cancel command")).to_have_count(0)


def test_a_tab_lock_is_freed_by_force_and_the_trail_says_by_whom(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open("ada", "Locked", access="shared")
    held = crowd.lock(session, "ada")
    waiting = crowd.wait(session, "bob")
    page = dashboards.open(path(session))
    page.get_by_role("button", name="Free lock").click()
    say_yes(page)
    assert waiting.result().json()["ok"]
    lost = crowd.agent("ada").post(f"{path(session)}/lock", json={"ticket": held["ticket"]})
    assert lost.json()["code"] == "lock_not_found"
    entry = page.get_by_role("row").filter(has_text="lock released")
    expect(entry).to_contain_text("admin")
    expect(entry).to_contain_text("forced, held by")


def test_a_tab_is_closed_and_its_session_goes_on(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open("ada", "Extra")
    crowd.agent("ada").post(f"/sessions/{session['sessionId']}/tabs", json={}).raise_for_status()
    page = dashboards.open(path(session))
    page.get_by_role("button", name="Close tab").click()
    say_yes(page)
    expect(page.locator("[data-state=empty]")).to_contain_text("This tab is gone")
    assert crowd.state_of(session) == "active"


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


def test_a_refused_action_is_said_in_words(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open("ada", "Busy", access="shared")
    crowd.hold(session, "ada")
    page = dashboards.open(path(session))
    page.get_by_role("button", name="Close tab").click()
    say_yes(page)
    expect(page.locator(".toast.bad")).to_contain_text("Another command has the tab.")
    assert crowd.state_of(session) == "active"
