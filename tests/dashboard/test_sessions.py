"""The list of sessions: those that are open and those that ended, how one is released, and how it is given away."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from .crowd import Crowd, tab_of
from .looking import overflow
from .rig import PHONE, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]


def row(page: Page, session: Any) -> Locator:
    return page.locator(f"[role=row][data-key={session['sessionId']}]")


def panel(page: Page, session: Any) -> Locator:
    return page.locator(f"[data-session={session['sessionId']}]")


def test_a_session_appears_with_what_it_is_and_its_panel_leads_to_its_tab(crowd: Crowd, dashboards: Dashboards) -> None:
    page = dashboards.open("/sessions")
    title = "A page with a rather long title that does not fit into a line of a phone"
    session, other = crowd.open("ada", title, key="chatgpt", tier="pro", keepAlive=True), crowd.open("bob")
    for words in ("ada", "active", "default", "chatgpt", "pro"):
        expect(row(page, session)).to_contain_text(words)
    expect(row(page, other)).to_be_visible()
    page.get_by_role("searchbox").fill("ada")
    expect(row(page, other)).to_have_count(0)
    page.get_by_label("Pool").select_option("default")
    page.reload()
    expect(row(page, session)).to_be_visible()
    expect(row(page, other)).to_have_count(0)
    row(page, session).click()
    expect(panel(page, session)).to_contain_text(f"{session['fence']}")
    expect(panel(page, session)).to_contain_text("only at its deadline (keepAlive)")
    beat = {"fence": session["fence"], "phase": "comparing prices"}
    crowd.admin.post(f"/sessions/{session['sessionId']}/heartbeat", json=beat).raise_for_status()
    expect(panel(page, session)).to_contain_text("comparing prices")
    page.set_viewport_size(PHONE)
    assert overflow(page) == []
    # What it shows at first it has from the list; the tab itself is asked for a moment later.
    with page.expect_request(lambda request: urlsplit(request.url).path == f"/tabs/{tab_of(session)}"):
        panel(page, session).get_by_role("link", name=title).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(title)
    expect(page.get_by_text("Owner seen")).to_be_visible()
    assert page.url.endswith(f"#/tabs/{tab_of(session)}")
    # Reading one by its id counts as activity of its owner; the list does not.
    asked = page.evaluate("performance.getEntriesByType('resource').map(({ name }) => new URL(name).pathname)")
    assert f"/tabs/{tab_of(session)}" in asked
    assert f"/sessions/{session['sessionId']}" not in asked


def test_a_session_is_released_only_by_a_yes_and_found_among_the_ended_with_the_reason(
    crowd: Crowd, dashboards: Dashboards
) -> None:
    kept, over = crowd.open("ada"), crowd.open("bob")
    page = dashboards.open(f"/sessions?session={over['sessionId']}")
    panel(page, over).get_by_role("button", name="Release").click()
    expect(page.get_by_role("dialog")).to_contain_text("bob loses")
    page.get_by_role("button", name="Keep as it is").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert crowd.state_of(over) == "active"
    panel(page, over).get_by_role("button", name="Release").click()
    page.locator("[data-confirm]").click()
    expect(row(page, over)).to_have_count(0)
    assert crowd.state_of(over) == "closed"
    expect(panel(page, over)).to_contain_text("It is not among the open sessions")
    expect(row(page, kept)).to_be_visible()
    page.get_by_label("State").select_option("ended")
    for _ in range(2):
        expect(row(page, over)).to_contain_text("released")
        expect(row(page, kept)).to_have_count(0)
        page.reload()


def test_an_admin_gives_a_session_to_an_agent_that_is_named(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open("ada", "Passed on")
    crowd.agent("bob")
    page = dashboards.open(f"/sessions?session={session['sessionId']}")
    panel(page, session).get_by_role("button", name="Take over").click()
    # Without a name nothing is done, and one that cannot be an agent's is refused in words.
    page.locator("[data-confirm]").click()
    expect(page.get_by_label("Agent that gets it")).to_be_focused()
    page.keyboard.type("no such, name")
    page.keyboard.press("Enter")
    expect(page.locator(".toast.bad")).to_contain_text("agentId")
    expect(page.get_by_role("dialog")).to_have_count(0)
    panel(page, session).get_by_role("button", name="Take over").click()
    page.keyboard.type("bob")
    page.keyboard.press("Enter")
    expect(row(page, session)).to_contain_text("bob")
    lost = crowd.agent("ada").get(f"/tabs/{tab_of(session)}")
    assert lost.json()["code"] == "lease_lost"
    assert crowd.agent("bob").get(f"/tabs/{tab_of(session)}").is_success


def test_an_agent_sees_its_own_sessions_and_cannot_give_them_away(crowd: Crowd, dashboards: Dashboards) -> None:
    mine, theirs = crowd.open("bob"), crowd.open("ada", access="shared")
    page = dashboards.open(f"/sessions?session={mine['sessionId']}", token=crowd.tokens["bob"])
    expect(panel(page, mine).get_by_role("button", name="Release")).to_be_visible()
    expect(panel(page, mine).get_by_role("button", name="Take over")).to_have_count(0)
    expect(row(page, theirs)).to_have_count(0)
    page.keyboard.press("o")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_more_than_the_server_tells_at_once_are_read_on_demand(crowd: Crowd, dashboards: Dashboards) -> None:
    crowd.open("ada")
    (model,) = crowd.admin.get("/sessions", params={"state": "active"}).json()["sessions"]
    many = [{**model, "sessionId": f"ses_{number:05}"} for number in range(1_500)]

    def paged(route: Route) -> None:
        cursor = parse_qs(urlsplit(route.request.url).query).get("cursor", [""])[0]
        rest = [one for one in many if one["sessionId"] > cursor]
        more = {"nextCursor": rest[999]["sessionId"]} if len(rest) > 1_000 else {}
        route.fulfill(json={"sessions": rest[:1_000], **more})

    page = dashboards.open("/events")
    page.route("**/sessions?*", paged)
    dashboards.go(page, "/sessions")
    expect(page.get_by_text("1,000 shown")).to_be_visible()
    page.get_by_role("button", name="Read 1,000 more").click()
    expect(page.get_by_text("1,500 shown")).to_be_visible()
    expect(page.get_by_role("button", name="Read 1,000 more")).to_have_count(0)
    page.locator(".rows").focus()
    page.keyboard.press("End")
    expect(page.locator("[data-key=ses_01499]")).to_be_visible()
    assert page.locator(".rows .row").count() < 80
