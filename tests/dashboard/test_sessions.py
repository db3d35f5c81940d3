"""The list of sessions: those that are open and those that ended, how one is released, and how it is given away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, Route, expect
from tests.server.conftest import Server

from .crowd import Crowd, crowd_at, tab_of
from .rig import PHONE, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]

MARKUP = "<img src=x onerror=\"document.body.dataset.owned='1'\">"


@pytest.fixture
def crowd(server: Server) -> Iterator[Crowd]:
    with crowd_at(server) as crowd:
        yield crowd


def row(page: Page, session: Any) -> Locator:
    return page.locator(f"[role=row][data-key={session['sessionId']}]")


def panel(page: Page, session: Any) -> Locator:
    return page.locator(f"[data-session={session['sessionId']}]")


def test_a_session_appears_with_what_it_is_and_its_panel_leads_to_its_tab(crowd: Crowd, dashboards: Dashboards) -> None:
    page = dashboards.open("/sessions")
    session = crowd.open("ada", "Orders", key="chatgpt", tier="pro", keepAlive=True)
    for words in ("ada", "active", "default", "chatgpt", "pro"):
        expect(row(page, session)).to_contain_text(words)
    row(page, session).click()
    expect(panel(page, session)).to_contain_text(f"{session['fence']}")
    expect(panel(page, session)).to_contain_text("only at its deadline (keepAlive)")
    panel(page, session).get_by_role("link", name="Orders").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Orders")
    assert page.url.endswith(f"#/tabs/{tab_of(session)}")


def test_a_session_that_ended_leaves_the_list_and_is_found_among_the_ended_with_the_reason(
    crowd: Crowd, dashboards: Dashboards
) -> None:
    kept, over = crowd.open("ada"), crowd.open("bob")
    page = dashboards.open("/sessions")
    expect(row(page, over)).to_be_visible()
    crowd.agent("bob").delete(f"/sessions/{over['sessionId']}").raise_for_status()
    expect(row(page, over)).to_have_count(0)
    expect(row(page, kept)).to_be_visible()
    page.get_by_label("State").select_option("ended")
    expect(row(page, over)).to_contain_text("released")
    expect(row(page, kept)).to_have_count(0)
    page.reload()
    expect(row(page, over)).to_contain_text("released")


def test_a_session_is_released_only_by_a_yes(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open("ada", "Kept")
    page = dashboards.open(f"/sessions?session={session['sessionId']}")
    panel(page, session).get_by_role("button", name="Release").click()
    expect(page.get_by_role("dialog")).to_contain_text("ada loses")
    page.get_by_role("button", name="Keep as it is").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert crowd.state_of(session) == "active"
    panel(page, session).get_by_role("button", name="Release").click()
    page.locator("[data-confirm]").click()
    expect(row(page, session)).to_have_count(0)
    assert crowd.state_of(session) == "closed"
    expect(panel(page, session)).to_contain_text("It is not among the open sessions")


def test_an_admin_gives_a_session_to_an_agent_that_is_named(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open("ada", "Passed on")
    page = dashboards.open(f"/sessions?session={session['sessionId']}")
    panel(page, session).get_by_role("button", name="Take over").click()
    # Without a name nothing is done.
    page.locator("[data-confirm]").click()
    expect(page.get_by_label("Agent that gets it")).to_be_focused()
    page.keyboard.type("bob")
    page.keyboard.press("Enter")
    expect(row(page, session)).to_contain_text("bob")
    expect(page.get_by_role("dialog")).to_have_count(0)
    lost = crowd.agent("ada").get(f"/tabs/{tab_of(session)}")
    assert lost.json()["code"] == "lease_lost"
    assert crowd.agent("bob").get(f"/tabs/{tab_of(session)}").is_success


def test_a_name_that_cannot_be_an_agents_is_refused_in_words(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open("ada")
    page = dashboards.open(f"/sessions?session={session['sessionId']}")
    panel(page, session).get_by_role("button", name="Take over").click()
    page.keyboard.type("no such, name")
    page.keyboard.press("Enter")
    expect(page.locator(".toast.bad")).to_contain_text("agentId")
    assert crowd.state_of(session) == "active"


def test_an_agent_sees_its_own_sessions_and_cannot_give_them_away(crowd: Crowd, dashboards: Dashboards) -> None:
    mine, theirs = crowd.open("bob"), crowd.open("ada", access="shared")
    page = dashboards.open(f"/sessions?session={mine['sessionId']}", token=crowd.tokens["bob"])
    expect(panel(page, mine).get_by_role("button", name="Release")).to_be_visible()
    expect(panel(page, mine).get_by_role("button", name="Take over")).to_have_count(0)
    expect(row(page, theirs)).to_have_count(0)
    page.keyboard.press("o")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_filters_by_text_and_pool_are_kept_in_the_address(crowd: Crowd, dashboards: Dashboards) -> None:
    ada, bob = crowd.open("ada"), crowd.open("bob")
    page = dashboards.open("/sessions")
    expect(row(page, ada)).to_be_visible()
    page.get_by_role("searchbox").fill("bob")
    expect(row(page, ada)).to_have_count(0)
    page.get_by_label("Pool").select_option("default")
    page.reload()
    expect(row(page, bob)).to_be_visible()
    expect(row(page, ada)).to_have_count(0)


def test_more_than_the_server_tells_at_once_are_read_on_demand(crowd: Crowd, dashboards: Dashboards) -> None:
    crowd.open("ada")
    (model,) = crowd.admin.get("/sessions", params={"state": "active"}).json()["sessions"]
    many = [{**model, "sessionId": f"ses_{number:05}"} for number in range(1_500)]

    def paged(route: Route) -> None:
        cursor = parse_qs(urlsplit(route.request.url).query).get("cursor", [""])[0]
        rest = [one for one in many if one["sessionId"] > cursor]
        more = {"nextCursor": rest[999]["sessionId"]} if len(rest) > 1_000 else {}
        body = json.dumps({"sessions": rest[:1_000], **more})
        route.fulfill(status=200, content_type="application/json", body=body)

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


def test_what_a_caller_named_and_a_page_called_itself_stay_text(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open("ada", MARKUP, key=MARKUP)
    page = dashboards.open(f"/sessions?session={session['sessionId']}")
    expect(row(page, session)).to_contain_text(MARKUP)
    expect(panel(page, session).get_by_role("link")).to_have_text(MARKUP)
    assert page.evaluate("document.body.dataset.owned") is None
    assert page.locator("main img").count() == 0


def test_looking_does_not_keep_a_session_alive(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open("ada", "Quiet")
    asked: list[str] = []
    page = dashboards.open("/sessions")
    page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    row(page, session).click()
    # What it shows at first it has from the list; the tab itself is asked for a moment later.
    with page.expect_request(lambda request: urlsplit(request.url).path == f"/tabs/{tab_of(session)}"):
        panel(page, session).get_by_role("link", name="Quiet").click()
    expect(page.get_by_role("heading", name="Session")).to_be_visible()
    expect(page.get_by_text("Owner seen")).to_be_visible()
    # Reading one by its id counts as activity of its owner; the list does not.
    assert f"/sessions/{session['sessionId']}" not in asked


def test_nothing_is_wider_than_a_phone(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open("ada", "A page with a rather long title that does not fit into a line of a phone")
    page = dashboards.open(f"/sessions?session={session['sessionId']}", size=PHONE)
    expect(panel(page, session)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert (
        page.evaluate("(() => { const m = document.querySelector('main'); return m.scrollWidth - m.clientWidth; })()")
        == 0
    )
