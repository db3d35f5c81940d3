"""The page of browsers: how each is, and what an admin can do with one, never by mistake."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from playwright.sync_api import Page, Route, expect
from tests.edge.fake_broker import BROWSER
from tests.server.conftest import Server, kill_browser, open_session, release

from .rig import PHONE, WAIT_MS, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def only_browser(client: httpx.Client) -> dict[str, Any]:
    """The one that runs, once it does."""
    for _ in range(WAIT_MS // 50):
        browsers = client.get("/browsers").json()["browsers"]
        if len(browsers) == 1 and browsers[0]["state"] == "ready":
            return dict(browsers[0])
        time.sleep(0.05)
    raise AssertionError(f"there are {[(one['browserId'], one['state']) for one in browsers]}")


def row(page: Page, browser_id: str) -> Any:
    return page.locator(f".rows [data-key={browser_id}]")


def opened(page: Page, browser_id: str) -> Any:
    """What is shown of it once its row was clicked."""
    row(page, browser_id).click()
    return page.locator(f"[data-details={browser_id}]")


def with_browsers(page: Page, *browsers: dict[str, Any]) -> None:
    """The server says that there are these browsers."""
    page.route("**/browsers", lambda route: _answer(route, {"browsers": list(browsers)}))


def _answer(route: Route, body: dict[str, Any]) -> None:
    route.fulfill(status=200, content_type="application/json", body=json.dumps(body))


def browser(**fields: Any) -> dict[str, Any]:
    """A browser as the wire tells of it."""
    told: dict[str, Any] = msgspec.to_builtins(BROWSER)
    assert fields.keys() <= told.keys()
    return told | fields


# --- Restarting and draining ------------------------------------------------------------------------------------


def test_a_restart_is_asked_for_once_more_and_then_done(dashboards: Dashboards, admin: httpx.Client) -> None:
    session = open_session(admin, agentId="ada")
    old = only_browser(admin)
    page = dashboards.open("/browsers")
    details = opened(page, old["browserId"])
    details.get_by_role("button", name="Restart").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Restart {old['browserId']}?")
    expect(dialog).to_contain_text("Its session goes on in another browser")
    dialog.get_by_role("button", name="Restart").click()
    expect(page.locator(".toast")).to_contain_text("is being restarted")
    expect(details).to_contain_text("It has ended")
    replacement = only_browser(admin)
    assert replacement["browserId"] != old["browserId"]
    expect(row(page, replacement["browserId"])).to_contain_text("ready")
    expect(row(page, old["browserId"])).to_have_count(0)
    release(admin, session)


@pytest.mark.parametrize("way", ["button", "Escape", "Enter"])
def test_whoever_does_not_confirm_changes_nothing(dashboards: Dashboards, admin: httpx.Client, way: str) -> None:
    before = only_browser(admin)
    page = dashboards.open("/browsers")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.method == "POST" else None)
    opened(page, before["browserId"]).get_by_role("button", name="Restart").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    if way == "button":
        dialog.get_by_role("button", name="Keep as it is").click()
    else:
        # The safe answer has the focus.
        page.keyboard.press(way)
    expect(dialog).to_have_count(0)
    assert asked == []
    assert only_browser(admin)["browserId"] == before["browserId"]


def test_a_drained_browser_ends_with_its_last_session(dashboards: Dashboards, admin: httpx.Client) -> None:
    session = open_session(admin, agentId="ada")
    old = only_browser(admin)
    page = dashboards.open("/browsers")
    opened(page, old["browserId"]).get_by_role("button", name="Drain").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    expect(row(page, old["browserId"])).to_contain_text("draining")
    # Its replacement is there already.
    expect(page.locator(".rows [data-key]")).to_have_count(2)
    release(admin, session)
    expect(row(page, old["browserId"])).to_have_count(0)
    expect(row(page, only_browser(admin)["browserId"])).to_contain_text("ready")


def test_what_the_server_refuses_is_said_in_its_words(dashboards: Dashboards, admin: httpx.Client) -> None:
    page = dashboards.window()
    with_browsers(page, browser(browserId="brw_gone"))
    page.goto(f"{dashboards.url}/#token={dashboards.server.admin_token}")
    expect(page.locator(".frame")).to_be_visible()
    dashboards.go(page, "/browsers")
    opened(page, "brw_gone").get_by_role("button", name="Restart").click()
    page.get_by_role("dialog").get_by_role("button", name="Restart").click()
    expect(page.locator(".toast.bad")).to_contain_text("No such browser.")


def test_everything_can_be_done_with_the_keyboard(dashboards: Dashboards, admin: httpx.Client) -> None:
    old = only_browser(admin)
    page = dashboards.open("/")
    page.keyboard.press("g")
    page.keyboard.press("b")
    rows = page.get_by_label("Browsers, rows")
    expect(row(page, old["browserId"])).to_be_visible()
    rows.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(f"[data-details={old['browserId']}]")).to_be_visible()
    page.keyboard.press("r")
    expect(page.get_by_role("dialog")).to_contain_text("Restart")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(row(page, old["browserId"])).to_have_count(0)
    expect(row(page, only_browser(admin)["browserId"])).to_be_visible()


def test_an_agent_sees_the_browsers_and_is_offered_nothing(dashboards: Dashboards, admin: httpx.Client) -> None:
    shown = only_browser(admin)
    page = dashboards.open("/browsers", token=dashboards.server.token_of("bob"))
    details = opened(page, shown["browserId"])
    expect(details).to_contain_text(shown["product"])
    expect(details.get_by_role("button")).to_have_text(["Close"])
    page.keyboard.press("r")
    expect(page.get_by_role("dialog")).to_have_count(0)


# --- How each is ------------------------------------------------------------------------------------------------


def test_a_killed_browser_gives_way_to_another_that_says_why(dashboards: Dashboards, admin: httpx.Client) -> None:
    old = only_browser(admin)
    page = dashboards.open("/browsers")
    expect(row(page, old["browserId"])).to_contain_text("ready")
    kill_browser(old["pid"])
    expect(row(page, old["browserId"])).to_have_count(0)
    new = only_browser(admin)
    assert new["lastFailure"]
    expect(row(page, new["browserId"])).to_contain_text(new["lastFailure"])


@pytest.mark.parametrize(
    ("fields", "label", "words"),
    [
        ({"state": "broken", "circuit": "open", "lastFailure": "exits at once"}, "broken", "kept dying"),
        ({"state": "crashed", "lastFailure": "killed by signal 9"}, "crashed", "killed by signal 9"),
        ({"suspect": True}, "suspect", "has missed a probe"),
    ],
)
def test_what_is_wrong_with_a_browser_is_said_in_words(
    dashboards: Dashboards, fields: dict[str, Any], label: str, words: str
) -> None:
    page = dashboards.window(size=PHONE)
    with_browsers(page, browser(**fields))
    page.goto(f"{dashboards.url}/#token={dashboards.server.admin_token}")
    found = page.locator("[data-finding=browsers]")
    expect(found).to_have_attribute("data-mood", "bad")
    expect(found).to_contain_text(words)
    expect(page.get_by_role("status").filter(has_text="Something needs a look")).to_be_visible()
    dashboards.go(page, "/browsers")
    expect(row(page, "brw_1")).to_contain_text(label)
    expect(opened(page, "brw_1").get_by_role("alert")).to_contain_text(words)


def test_a_server_without_browsers_says_when_one_comes(dashboards: Dashboards) -> None:
    page = dashboards.window()
    with_browsers(page)
    page.goto(f"{dashboards.url}/#token={dashboards.server.admin_token}")
    expect(page.locator(".frame")).to_be_visible()
    dashboards.go(page, "/browsers")
    expect(page.locator("[data-state=empty]")).to_contain_text("No browser runs")
