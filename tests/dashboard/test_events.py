"""The stream of events: as it comes, stopped for a closer look, filtered, and explained where something was missed."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, Route, expect
from tests.server.conftest import open_session, release
from tests.shared_server import unique

from .looking import overflow
from .rig import PHONE, WIDE, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]


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


def test_what_happens_is_shown_newest_first_stopped_for_a_closer_look_and_filtered(
    dashboards: Dashboards, admin: httpx.Client
) -> None:
    session = open_session(admin, agentId="ada")
    page = watched(dashboards)
    expect(page.locator('[data-state="empty"]')).to_contain_text("tabherd session new")
    rows = page.locator(".rows [role=row]")
    hand_over_and_back(admin, session)
    expect(rows).to_have_count(2)
    assert types(page) == ["tab.resumed", "tab.paused"]
    expect(rows.last).to_contain_text("by Grace")
    expect(page.locator(".rows a").first).to_have_attribute("href", f"#/tabs/{session['tabs'][0]['tabId']}")
    # A pause keeps what is shown and counts what comes meanwhile.
    page.get_by_role("button", name="Pause").click()
    hand_over_and_back(admin, session, "x" * 200)
    expect(page.locator("[data-paused]")).to_have_text("Paused. 2 events have come since.")
    assert types(page) == ["tab.resumed", "tab.paused"]
    page.locator("main").press("p")
    expect(rows).to_have_count(4)
    expect(page.locator("[data-paused]")).to_have_count(0)
    page.set_viewport_size(PHONE)
    assert overflow(page) == []
    page.set_viewport_size(WIDE)
    # Filters by kind, agent and text are kept by a link.
    bob = unique("bob")
    release(admin, open_session(admin, agentId=bob))
    expect(page.locator(".rows .badge", has_text="session.closed")).to_be_visible()
    page.get_by_label("Kind").select_option("session")
    assert set(types(page)) <= {"session.opened", "session.closed"}
    page.get_by_label("Agent", exact=True).select_option(bob)
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Clear filters").click()
    page.get_by_label("Find id, type, reason").fill("grace")
    expect(rows).to_have_count(1)
    assert types(page) == ["tab.paused"]
    # One event is shown whole.
    page.locator(".rows .badge", has_text="tab.paused").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_contain_text(f'"sessionId": "{session["sessionId"]}"')
    page.keyboard.press("Escape")
    page.reload()
    expect(page.get_by_label("Find id, type, reason")).to_have_value("grace")


def test_a_reset_is_explained_and_no_more_events_are_kept_than_fit(dashboards: Dashboards) -> None:
    def missed(route: Route) -> None:
        # As the server puts it to a window that was away for longer than it keeps events.
        said = [{"type": "tab.paused", "at": "2025-01-01T00:00:00.000Z", "tabId": f"tab_{n}"} for n in range(519)]
        said.append({"type": "reset", "at": "2025-01-01T00:00:00.000Z", "reason": "ring"})
        blocks = [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in said]
        route.fulfill(status=200, content_type="text/event-stream", body="".join(blocks))

    page = watched(dashboards)
    page.route("**/events", missed, times=1)
    page.reload()
    expect(page.locator("header .quiet").last).to_have_text("500 since this window was opened, the last of 520")
    assert page.locator(".rows [role=row]").count() < 60
    expect(page.locator(".rows [role=row]", has_text="reset")).to_contain_text("Events were missed")
    page.locator(".rows .badge", has_text="reset").click()
    expect(page.get_by_role("dialog")).to_contain_text("what follows comes without a gap")


def test_an_agent_hears_only_of_what_is_its_own(dashboards: Dashboards, admin: httpx.Client) -> None:
    session = open_session(admin, agentId="ada")
    page = watched(dashboards, token=dashboards.server.token_of("eve"))
    hand_over_and_back(admin, session)
    release(admin, open_session(admin, agentId="eve"))
    expect(page.locator(".rows .badge", has_text="session.closed")).to_be_visible()
    assert set(types(page)) == {"session.opened", "session.closed"}
