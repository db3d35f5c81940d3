"""The frame around all pages: keys, colours, the menu of a phone; and that everybody can read and reach all of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect
from tests.server.conftest import Server, open_session

from .looking import contrasts, faint, nameless, overflow
from .rig import PHONE, WIDE, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Each letter after g, and where it leads.
LETTERS = {"o": "/", "t": "/tabs", "s": "/sessions", "k": "/tasks", "l": "/locks", "b": "/browsers", "n": "/nodes",
           "e": "/events", "a": "/audit", "c": "/config"}  # fmt: skip
PAGES = list(LETTERS.values())
CONTRAST_LEAST = 4.5
GROUNDS = ["--ground", "--card", "--raised"]
PAIRS = [
    *((text, ground) for text in ("--text", "--quiet", "--accent", "--bad") for ground in GROUNDS),
    ("--on-accent", "--accent"),
    ("--good", "--good-soft"),
    ("--busy", "--busy-soft"),
    ("--bad", "--bad-soft"),
]


@pytest.fixture
def furnished(server: Server) -> Iterator[dict[str, str]]:
    """Something on every page, with names as long as they come; one tab, its live view and one task."""
    long_name = "crawler/of-the-night-shift@somewhere.example:0123456789"
    with server.agent(long_name, ["browse", "evaluate", "tasks", "locks"]) as agent:
        url = "data:text/html,<title>" + "A title that is long " * 10 + "</title><h1>Hello</h1>"
        session = open_session(agent, url=url, key="a-key-that-is-rather-long-" * 2)
        tab_id = session["tabs"][0]["tabId"]
        done: dict[str, Any] = {}
        for expression in ("document.title", "nothing.of.that.name"):
            body = {"tabId": tab_id, "action": "evaluate", "params": {"expression": expression}}
            done = agent.post("/tasks", json=body).raise_for_status().json()
        agent.post("/locks/a-name-of-a-lock-that-goes-on-and-on", json={"leaseMs": 600_000}).raise_for_status()
        agent.post(
            f"/tabs/{tab_id}/lock", json={"lockLeaseMs": 600_000, "waitPolicy": "wait_with_timeout"}
        ).raise_for_status()
        # It waits for as long as the tab is locked, so that its agent is named among those with tasks.
        waits = {"tabId": tab_id, "action": "text", "deadline": int(time.time() * 1000) + 3_600_000}
        agent.post("/tasks", json=waits).raise_for_status()
        tab = f"/tabs/{tab_id}"
        yield {"/tabs/{tabId}": tab, "/tabs/{tabId}/live": f"{tab}/live", "/tasks/{taskId}": f"/tasks/{done['taskId']}"}


def at(page: Page, path: str) -> None:
    """Wait until that page is open and has read what it shows."""
    expect(page.locator(f"main[data-page='{path}']")).to_be_visible()
    expect(page.locator("main h1").first).to_be_visible()
    expect(page.locator("main [data-state=loading]")).to_have_count(0)


def settled(page: Page) -> None:
    expect(page.locator("main h1").first).to_be_visible()
    expect(page.locator("main [data-state=loading]")).to_have_count(0)
    expect(page.locator(".connection.live")).to_be_visible()


# --- Keys and addresses -----------------------------------------------------------------------------------------


def test_g_and_a_letter_lead_to_every_page_each_with_a_title_of_its_own(dashboards: Dashboards) -> None:
    page = dashboards.open("/tasks")
    settled(page)
    titles = set()
    for letter, path in LETTERS.items():
        page.keyboard.press("g")
        page.keyboard.press(letter)
        at(page, path)
        expect(page.locator("nav [aria-current=page]")).to_have_attribute("href", f"#{path}")
        titles.add(page.title())
    assert len(titles) == len(PAGES)
    assert all(title.endswith(" · tabherd") for title in titles)
    # A letter that leads nowhere ends it.
    for key in "gxt":
        page.keyboard.press(key)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.locator(f"main[data-page='{path}']")).to_be_visible()


def test_question_mark_shows_the_keys_slash_leads_to_the_filter_and_escape_out_of_all(
    dashboards: Dashboards, furnished: dict[str, str]
) -> None:
    page = dashboards.open("/tasks")
    at(page, "/tasks")
    dashboards.go(page, "/tabs")
    at(page, "/tabs")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("g t")
    expect(dialog).to_contain_text("go to a page")
    # Behind the dialog they do nothing.
    page.keyboard.press("g")
    page.keyboard.press("k")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.locator("main[data-page='/tabs']")).to_be_visible()
    page.keyboard.press("/")
    search = page.locator("input[type=search]")
    expect(search).to_be_focused()
    page.keyboard.type("gt?")
    expect(search).to_have_value("gt?")
    page.keyboard.press("Escape")
    expect(search).not_to_be_focused()
    expect(page.locator("main[data-page='/tabs']")).to_be_visible()
    page.keyboard.press("Escape")
    at(page, "/tasks")


def test_tab_goes_through_the_head_then_the_menu_then_the_page(dashboards: Dashboards) -> None:
    page = dashboards.open("/tabs")
    at(page, "/tabs")
    page.evaluate("document.activeElement.blur()")
    parts: list[str] = []
    for _ in range(40):
        page.keyboard.press("Tab")
        part = page.evaluate("document.activeElement.closest('header, nav, main')?.tagName || 'BODY'")
        if part == "BODY":
            break
        parts.append(part)
        has_ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle !== 'none'")
        assert has_ring, page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
    order = [part for index, part in enumerate(parts) if index == 0 or parts[index - 1] != part]
    assert order[:2] == ["HEADER", "NAV"]
    assert set(order[2:]) <= {"MAIN", "HEADER"}


def test_addresses_are_kept_by_the_back_button_and_a_reload_and_one_that_leads_nowhere_says_so(
    dashboards: Dashboards,
) -> None:
    page = dashboards.open("/tabs")
    at(page, "/tabs")
    page.get_by_role("link", name="Tasks", exact=True).click()
    at(page, "/tasks")
    page.get_by_role("link", name="Locks", exact=True).click()
    at(page, "/locks")
    page.go_back()
    at(page, "/tasks")
    page.go_back()
    at(page, "/tabs")
    page.go_forward()
    at(page, "/tasks")
    for path in ("/nowhere", "/tabs/a/b/c", "%"):
        dashboards.go(page, path)
        expect(page.locator("main[data-page=nowhere]")).to_contain_text(f"Nothing is at #{path}.")
        page.locator("main").get_by_role("link", name="Overview").click()
        at(page, "/")
    dashboards.go(page, "/tabs/%")
    expect(page.locator("main [data-state=empty]")).to_contain_text("This tab is gone")
    dashboards.go(page, "")
    at(page, "/")
    dashboards.go(page, "/tasks?state=failed")
    at(page, "/tasks")
    page.reload()
    at(page, "/tasks")
    assert page.url.endswith("#/tasks?state=failed")


# --- Colours and motion -----------------------------------------------------------------------------------------


def test_colours_follow_the_system_until_one_is_chosen_and_stay_chosen(dashboards: Dashboards) -> None:
    page = dashboards.open("/", theme="dark")
    settled(page)
    # Every colour of text can be read on what it stands on.
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        assert {pair: ratio for pair, ratio in contrasts(page, PAIRS).items() if ratio < CONTRAST_LEAST} == {}
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_role("button", name="Colours").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    light = page.evaluate(ground)
    assert light != dark
    page.reload()
    settled(page)
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert page.evaluate(ground) == light
    page.get_by_role("button", name="Colours").click()
    assert page.evaluate(ground) == dark


def test_who_wants_less_motion_gets_less(dashboards: Dashboards) -> None:
    page = dashboards.open("/events")
    settled(page)
    page.emulate_media(reduced_motion="reduce")
    page.route("**/ui/audit.js", lambda route: None)
    dashboards.go(page, "/audit")
    expect(page.locator(".spinner")).to_be_visible()
    moves = "document.getAnimations().map((one) => one.effect.getTiming().duration)"
    assert all(duration >= 2_000 for duration in page.evaluate(moves))
    page.emulate_media(reduced_motion="no-preference")
    assert any(duration < 2_000 for duration in page.evaluate(moves))
    page.unroute_all(behavior="ignoreErrors")


# --- Everybody --------------------------------------------------------------------------------------------------


def test_the_menu_of_a_phone_opens_and_closes_behind_the_choice(dashboards: Dashboards) -> None:
    page = dashboards.open("/", size=PHONE)
    settled(page)
    menu = page.get_by_role("button", name="Menu")
    expect(page.get_by_role("navigation")).to_be_hidden()
    menu.click()
    expect(menu).to_have_attribute("aria-expanded", "true")
    page.get_by_role("link", name="Tabs", exact=True).click()
    at(page, "/tabs")
    expect(page.get_by_role("navigation")).to_be_hidden()
    expect(menu).to_have_attribute("aria-expanded", "false")


def looks_well(page: Page) -> None:
    """Nothing is cut off or without a name, and all of it can be read."""
    assert overflow(page) == []
    assert nameless(page) == []
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        assert faint(page, CONTRAST_LEAST) == []


def test_a_page_fits_and_everything_on_it_has_a_name_and_can_be_read(
    dashboards: Dashboards, furnished: dict[str, str]
) -> None:
    page = dashboards.open("/")
    for pattern, path in {**dict(zip(PAGES, PAGES, strict=True)), **furnished}.items():
        page.set_viewport_size(WIDE)
        dashboards.go(page, path)
        expect(page.locator(f"main[data-page='{pattern}']")).to_be_visible()
        settled(page)
        for size in (WIDE, PHONE):
            page.set_viewport_size(size)
            looks_well(page)


# The columns that end beyond what of the table is shown and can be scrolled to.
LOST_COLUMNS = """(table) => {
  const { left } = table.getBoundingClientRect();
  const reach = /auto|scroll/.test(getComputedStyle(table).overflowX) ? table.scrollWidth : table.clientWidth;
  const end = (cell) => cell.getBoundingClientRect().right - left + table.scrollLeft;
  return [...table.querySelectorAll("[role=columnheader], [data-key] > *")]
    .filter((cell) => cell.checkVisibility() && end(cell) > reach + 1)
    .map((cell) => cell.textContent);
}"""


@pytest.mark.parametrize("width", [721, 1024])
def test_every_column_can_be_reached_on_a_window_between_a_phone_and_a_wide_one(
    dashboards: Dashboards, furnished: dict[str, str], width: int
) -> None:
    page = dashboards.open("/", size={"width": width, "height": 800})
    for path in ("/tabs", "/sessions", "/tasks", "/locks", "/browsers", "/audit"):
        dashboards.go(page, path)
        at(page, path)
        expect(page.locator("main .table .rows .row").first).to_be_visible()
        for table in page.locator("main .table").all():
            assert table.evaluate(LOST_COLUMNS) == [], path
        assert overflow(page) == []


def test_the_login_and_the_dialog_of_keys_do_so_too(dashboards: Dashboards) -> None:
    page = dashboards.window()
    page.goto(dashboards.url)
    for size in (PHONE, WIDE):
        page.set_viewport_size(size)
        expect(page.get_by_label("Token")).to_be_focused()
        looks_well(page)
    page.get_by_label("Token").fill(dashboards.server.admin_token)
    page.keyboard.press("Enter")
    settled(page)
    # Its button is on wide windows only; who has a keyboard can ask for it everywhere.
    page.keyboard.press("?")
    for size in (PHONE, WIDE):
        page.set_viewport_size(size)
        expect(page.get_by_role("dialog")).to_be_visible()
        looks_well(page)


def test_the_page_of_the_http_interface_shows_every_operation_and_every_shape(
    dashboards: Dashboards, admin: httpx.Client
) -> None:
    described = admin.get("/openapi.json").json()
    page = dashboards.window()
    page.goto(f"{dashboards.url}/docs")
    expect(page.locator("#about")).to_contain_text(described["info"]["version"])
    operations = sum(len(methods) for methods in described["paths"].values())
    expect(page.locator("#operations details")).to_have_count(operations)
    expect(page.locator("#shapes details")).to_have_count(len(described["components"]["schemas"]))
    uploads = page.locator("#operations details", has_text="POST/sessions/{sessionId}/files")
    expect(uploads).to_contain_text("Body: application/octet-stream string")


def test_two_who_look_see_the_same_change(dashboards: Dashboards, server: Server) -> None:
    one, other = dashboards.open("/tabs"), dashboards.open("/sessions", size=PHONE)
    settled(one)
    settled(other)
    with server.agent("newcomer") as agent:
        session = open_session(agent)
        for page in (one, other):
            expect(page.get_by_text("newcomer").first).to_be_visible()
        agent.delete(f"/sessions/{session['sessionId']}").raise_for_status()
        expect(one.get_by_text("newcomer")).to_have_count(0)
