"""The stream of events: as it comes, stopped for a closer look, filtered, and explained where something was missed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, Route, expect
from tests.server.conftest import Server, open_session, release

from .looking import overflow
from .rig import PHONE, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]

MARKUP = "<img src=x onerror=\"window.stolen = 'yes'\">"


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def session(admin: httpx.Client) -> Iterator[dict[str, Any]]:
    """One whose opening the windows of the test have not seen."""
    opened = open_session(admin, agentId="ada")
    yield opened
    release(admin, opened)


def watched(dashboards: Dashboards, **options: Any) -> Page:
    """The page of events, once it hears them."""
    page = dashboards.open("/events", **options)
    expect(page.locator(".connection.live")).to_be_visible()
    return page


def types(page: Page) -> list[str]:
    """What is shown, from the top."""
    found: list[str] = page.locator(".rows .badge").all_inner_texts()
    return found


def hand_over_and_back(admin: httpx.Client, session: dict[str, Any], by: str = "Grace") -> None:
    """Two events of a tab."""
    tab = f"/tabs/{session['tabs'][0]['tabId']}"
    admin.post(f"{tab}/handoff", json={"by": by}).raise_for_status()
    admin.post(f"{tab}/resume").raise_for_status()


def test_nothing_has_happened_yet_is_said_with_how_to_change_that(dashboards: Dashboards) -> None:
    page = watched(dashboards)
    expect(page.locator('[data-state="empty"]')).to_contain_text("tabherd session new")


def test_what_happens_is_shown_newest_first_with_what_it_is_about(
    dashboards: Dashboards, admin: httpx.Client, session: dict[str, Any]
) -> None:
    page = watched(dashboards)
    hand_over_and_back(admin, session)
    expect(page.locator(".rows [role=row]")).to_have_count(2)
    assert types(page) == ["tab.resumed", "tab.paused"]
    expect(page.locator(".rows [role=row]").last).to_contain_text("by Grace")
    expect(page.locator(".rows a").first).to_have_attribute("href", f"#/tabs/{session['tabs'][0]['tabId']}")


def test_a_pause_keeps_what_is_shown_and_counts_what_comes_meanwhile(
    dashboards: Dashboards, admin: httpx.Client, session: dict[str, Any]
) -> None:
    page = watched(dashboards)
    hand_over_and_back(admin, session)
    expect(page.locator(".rows [role=row]")).to_have_count(2)
    page.get_by_role("button", name="Pause").click()
    hand_over_and_back(admin, session)
    expect(page.locator("[data-paused]")).to_have_text("Paused. 2 events have come since.")
    assert types(page) == ["tab.resumed", "tab.paused"]
    page.locator("main").press("p")
    expect(page.locator(".rows [role=row]")).to_have_count(4)
    expect(page.locator("[data-paused]")).to_have_count(0)


def test_events_are_filtered_by_kind_agent_and_text_and_a_link_keeps_the_filters(
    dashboards: Dashboards, admin: httpx.Client, session: dict[str, Any]
) -> None:
    page = watched(dashboards)
    hand_over_and_back(admin, session, "Grace")
    other = open_session(admin, agentId="bob")
    release(admin, other)
    expect(page.locator(".rows .badge", has_text="session.closed")).to_be_visible()
    page.get_by_label("Kind").select_option("session")
    assert set(types(page)) <= {"session.opened", "session.closed"}
    page.get_by_label("Agent", exact=True).select_option("bob")
    expect(page.locator(".rows [role=row]")).to_have_count(2)
    page.get_by_role("button", name="Clear filters").click()
    page.get_by_label("Find id, type, reason").fill("grace")
    expect(page.locator(".rows [role=row]")).to_have_count(1)
    assert types(page) == ["tab.paused"]
    page.reload()
    expect(page.get_by_label("Find id, type, reason")).to_have_value("grace")


def test_one_event_is_shown_whole(dashboards: Dashboards, admin: httpx.Client, session: dict[str, Any]) -> None:
    page = watched(dashboards)
    hand_over_and_back(admin, session)
    page.locator(".rows .badge", has_text="tab.paused").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_contain_text(f'"sessionId": "{session["sessionId"]}"')
    dialog.get_by_role("link").click()
    expect(dialog).to_have_count(0)
    assert page.url.endswith(f"#/tabs/{session['tabs'][0]['tabId']}")


def test_a_reset_is_explained(dashboards: Dashboards) -> None:
    page = dashboards.window()

    def missed(route: Route) -> None:
        # As the server puts it to a window that was away for longer than it keeps events.
        said = 'id: 1-9\nevent: reset\ndata: {"type":"reset","at":"2025-01-01T00:00:00.000Z","reason":"ring"}\n\n'
        route.fulfill(status=200, content_type="text/event-stream", body=said)

    page.route("**/events", missed, times=1)
    page.goto(f"{dashboards.url}/#token={dashboards.server.admin_token}")
    page.locator(".frame").wait_for()
    dashboards.go(page, "/events")
    expect(page.locator(".rows [role=row]", has_text="reset")).to_contain_text("Events were missed")
    page.locator(".rows .badge", has_text="reset").click()
    expect(page.get_by_role("dialog")).to_contain_text("what follows comes without a gap")


def test_an_agent_hears_only_of_what_is_its_own(
    dashboards: Dashboards, server: Server, admin: httpx.Client, session: dict[str, Any]
) -> None:
    page = watched(dashboards, token=server.token_of("eve"))
    hand_over_and_back(admin, session)
    release(admin, open_session(admin, agentId="eve"))
    expect(page.locator(".rows .badge", has_text="session.closed")).to_be_visible()
    assert set(types(page)) == {"session.opened", "session.closed"}


def test_markup_in_an_event_stays_text(dashboards: Dashboards, admin: httpx.Client, session: dict[str, Any]) -> None:
    page = watched(dashboards)
    hand_over_and_back(admin, session, MARKUP)
    expect(page.locator(".rows [role=row]", has_text="tab.paused")).to_contain_text(MARKUP)
    page.locator(".rows .badge", has_text="tab.paused").click()
    expect(page.get_by_role("dialog").locator("pre")).to_contain_text("onerror")
    assert page.evaluate("[window.stolen ?? null, document.images.length]") == [None, 0]


def test_no_more_events_are_kept_than_fit_and_only_rows_in_sight_are_in_the_page(
    dashboards: Dashboards, admin: httpx.Client, session: dict[str, Any]
) -> None:
    page = watched(dashboards)
    for _ in range(260):
        hand_over_and_back(admin, session)
    expect(page.locator("header .quiet").last).to_have_text("500 since this window was opened, the last of 520")
    assert page.locator(".rows [role=row]").count() < 60


def test_on_a_phone_nothing_is_cut_off(dashboards: Dashboards, admin: httpx.Client, session: dict[str, Any]) -> None:
    page = watched(dashboards, size=PHONE)
    hand_over_and_back(admin, session, "x" * 200)
    expect(page.locator(".rows [role=row]")).to_have_count(2)
    assert overflow(page) == []
