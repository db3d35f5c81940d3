"""The audit trail, as an admin reads it: newest first, on and on, and not for anybody else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect
from tests.server.conftest import Server, act, open_session, release

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
    opened = open_session(admin, agentId="ada")
    yield opened
    release(admin, opened)


def tab_of(session: dict[str, Any]) -> str:
    return str(session["tabs"][0]["tabId"])


def rows(page: Page) -> Locator:
    return page.locator(".rows [role=row]")


def test_what_was_done_is_shown_newest_first_and_what_is_done_now_comes_on_top(
    dashboards: Dashboards, admin: httpx.Client, session: dict[str, Any]
) -> None:
    act(admin, tab_of(session), "text")
    page = dashboards.open(f"/audit?tab={tab_of(session)}")
    expect(rows(page)).to_have_count(1)
    expect(rows(page).first).to_contain_text("text")
    act(admin, tab_of(session), "html")
    expect(rows(page)).to_have_count(2)
    expect(rows(page).first).to_contain_text("html")


def test_a_name_that_is_clicked_is_filtered_by_and_the_filter_survives_a_reload(
    dashboards: Dashboards, server: Server, admin: httpx.Client, session: dict[str, Any]
) -> None:
    act(admin, tab_of(session), "text")
    with server.agent("bob") as bob:
        release(bob, open_session(bob))
    page = dashboards.open("/audit")
    page.get_by_title("Only agent bob").first.click()
    expect(page.get_by_title("Only agent admin")).to_have_count(0)
    assert page.url.endswith("#/audit?agent=bob")
    page.reload()
    expect(page.get_by_label("Agent", exact=True)).to_have_value("bob")
    expect(page.get_by_title("Only agent bob").first).to_be_visible()
    expect(page.get_by_title("Only agent admin")).to_have_count(0)


def test_filters_that_are_typed_are_asked_of_the_server(
    dashboards: Dashboards, admin: httpx.Client, session: dict[str, Any]
) -> None:
    act(admin, tab_of(session), "text")
    page = dashboards.open("/audit")
    page.get_by_label("Session id").fill(session["sessionId"])
    page.keyboard.press("Enter")
    # That it was opened, and what was done in it.
    expect(rows(page)).to_have_count(2)
    page.get_by_label("Session id").fill("ses_none")
    page.keyboard.press("Enter")
    expect(page.locator('[data-state="empty"]')).to_contain_text("Nothing in the trail fits")


def test_more_is_read_while_one_scrolls_down(
    dashboards: Dashboards, admin: httpx.Client, session: dict[str, Any]
) -> None:
    steps = {"steps": [{"kind": "evaluate", "expression": "1"}]}
    for _ in range(230):
        admin.post(f"/tabs/{tab_of(session)}/actions", json=steps).raise_for_status()
    first = admin.get("/audit", params={"tabId": tab_of(session), "limit": 1}).json()["entries"][0]["id"]
    page = dashboards.open(f"/audit?tab={tab_of(session)}")
    expect(page.locator("header [role=status]").last).to_have_text("200 read, more below")
    assert rows(page).count() < 60
    page.get_by_label("Audit trail, rows").focus()
    page.keyboard.press("End")
    expect(page.locator("header [role=status]").last).to_have_text("230 read, all there is")
    page.keyboard.press("End")
    expect(page.locator(f'[data-key="{first}"]')).to_be_visible()


def test_an_entry_is_shown_whole(dashboards: Dashboards, admin: httpx.Client, session: dict[str, Any]) -> None:
    command_id = act(admin, tab_of(session), "text").json()["commandId"]
    page = dashboards.open(f"/audit?tab={tab_of(session)}")
    rows(page).first.click(position={"x": 5, "y": 5})
    expect(page.get_by_role("dialog").locator("pre")).to_contain_text(command_id)


def test_the_trail_is_not_for_agents(dashboards: Dashboards, server: Server) -> None:
    page = dashboards.open("/audit", token=server.token_of("eve"))
    expect(page.locator('[data-state="forbidden"]')).to_contain_text("The audit trail is not for this token")
    expect(page.get_by_role("grid")).to_have_count(0)


def test_markup_in_an_entry_stays_text(dashboards: Dashboards, admin: httpx.Client, session: dict[str, Any]) -> None:
    tab = f"/tabs/{tab_of(session)}"
    admin.post(f"{tab}/handoff", json={"by": MARKUP}).raise_for_status()
    admin.post(f"{tab}/resume").raise_for_status()
    assert MARKUP in [entry["detail"] for entry in admin.get("/audit", params={"order": "desc"}).json()["entries"]]
    page = dashboards.open(f"/audit?tab={tab_of(session)}")
    expect(rows(page).filter(has_text="handoff")).to_contain_text(MARKUP)
    assert page.evaluate("[window.stolen ?? null, document.images.length]") == [None, 0]


def test_on_a_phone_nothing_is_cut_off_and_a_row_says_who_did_what(
    dashboards: Dashboards, admin: httpx.Client, session: dict[str, Any]
) -> None:
    act(admin, tab_of(session), "text")
    page = dashboards.open(f"/audit?tab={tab_of(session)}", size=PHONE)
    expect(rows(page).first).to_contain_text("admin · completed")
    assert overflow(page) == []
