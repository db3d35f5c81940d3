"""The audit trail, as an admin reads it: newest first, on and on, and not for anybody else."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.sync_api import Locator, Page, Route, expect
from tests.server.conftest import act, open_session
from tests.shared_server import unique

from .looking import overflow
from .rig import PHONE, WIDE, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]


def tab_of(session: dict[str, Any]) -> str:
    return str(session["tabs"][0]["tabId"])


def rows(page: Page) -> Locator:
    return page.locator(".rows [role=row]")


def test_what_was_done_is_shown_newest_first_and_found_by_what_is_clicked_and_typed(
    dashboards: Dashboards, admin: httpx.Client
) -> None:
    session = open_session(admin, agentId=(name := unique("ada")))
    command_id = act(admin, tab_of(session), "text").json()["commandId"]
    page = dashboards.open(f"/audit?tab={tab_of(session)}", size=PHONE)
    expect(rows(page).first).to_contain_text("admin · completed")
    assert overflow(page) == []
    page.set_viewport_size(WIDE)
    expect(rows(page)).to_have_count(1)
    expect(rows(page).first).to_contain_text("text")
    # An entry is shown whole.
    rows(page).first.click(position={"x": 5, "y": 5})
    expect(page.get_by_role("dialog").locator("pre")).to_contain_text(command_id)
    page.keyboard.press("Escape")
    # What is done now comes on top.
    act(admin, tab_of(session), "html")
    expect(rows(page)).to_have_count(2)
    expect(rows(page).first).to_contain_text("html")
    # What is typed is asked of the server.
    dashboards.go(page, "/audit")
    page.get_by_label("Session id").fill(session["sessionId"])
    page.keyboard.press("Enter")
    # That it was opened, and what was done in it.
    expect(rows(page)).to_have_count(3)
    page.get_by_label("Session id").fill("ses_none")
    page.keyboard.press("Enter")
    expect(page.locator('[data-state="empty"]')).to_contain_text("Nothing in the trail fits")
    # A name that is clicked is filtered by, also after a reload.
    with dashboards.server.agent(name) as ada:
        open_session(ada)
    dashboards.go(page, "/audit")
    page.get_by_title(f"Only agent {name}").first.click()
    expect(page.get_by_title("Only agent admin")).to_have_count(0)
    assert page.url.endswith(f"#/audit?agent={name}")
    page.reload()
    expect(page.get_by_label("Agent", exact=True)).to_have_value(name)
    expect(page.get_by_title(f"Only agent {name}").first).to_be_visible()
    expect(page.get_by_title("Only agent admin")).to_have_count(0)


def test_more_is_read_while_one_scrolls_down(dashboards: Dashboards, admin: httpx.Client) -> None:
    (model,) = admin.get("/audit", params={"limit": 1}).json()["entries"]
    entries = [model | {"id": number} for number in range(230, 0, -1)]

    def paged(route: Route) -> None:
        cursor = parse_qs(urlsplit(route.request.url).query).get("cursor", [""])[0]
        some = entries[200:] if cursor else entries[:200]
        route.fulfill(json={"entries": some, "nextCursor": None if cursor else "further"})

    page = dashboards.open("/events")
    page.route("**/audit?*", paged)
    dashboards.go(page, "/audit")
    expect(page.locator("header [role=status]").last).to_have_text("200 read, more below")
    assert rows(page).count() < 60
    page.get_by_label("Audit trail, rows").focus()
    page.keyboard.press("End")
    expect(page.locator("header [role=status]").last).to_have_text("230 read, all there is")
    page.keyboard.press("End")
    expect(page.locator('[data-key="1"]')).to_be_visible()
