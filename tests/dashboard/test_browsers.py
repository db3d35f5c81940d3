"""The page of browsers: how each is, and what an admin can do with one, never by mistake."""

from __future__ import annotations

import time
from typing import Any

import httpx
import msgspec
import pytest
from playwright.sync_api import Page, expect
from tests.edge.fake_broker import BROWSER
from tests.server.conftest import kill_browser, open_session, release

from .rig import WAIT_MS, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]


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


def browser(**fields: Any) -> dict[str, Any]:
    """A browser as the wire tells of it."""
    told: dict[str, Any] = msgspec.to_builtins(BROWSER)
    assert fields.keys() <= told.keys()
    return told | fields


def test_a_restart_is_asked_for_once_more_and_then_done_by_keys_alone(
    dashboards: Dashboards, admin: httpx.Client
) -> None:
    session = open_session(admin, agentId="ada")
    old = only_browser(admin)
    page = dashboards.open("/")
    page.keyboard.press("g")
    page.keyboard.press("b")
    expect(row(page, old["browserId"])).to_be_visible()
    page.get_by_label("Browsers, rows").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    details = page.locator(f"[data-details={old['browserId']}]")
    expect(details).to_be_visible()
    # The safe answer has the focus, and whoever does not confirm changes nothing.
    dialog = page.get_by_role("dialog")
    for way in ("button", "Escape", "Enter"):
        details.get_by_role("button", name="Restart").click()
        expect(dialog).to_contain_text(f"Restart {old['browserId']}?")
        expect(dialog).to_contain_text("Its session goes on in another browser")
        if way == "button":
            dialog.get_by_role("button", name="Keep as it is").click()
        else:
            page.keyboard.press(way)
        expect(dialog).to_have_count(0)
    assert only_browser(admin)["browserId"] == old["browserId"]
    page.keyboard.press("r")
    expect(dialog).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("is being restarted")
    expect(details).to_contain_text("It has ended")
    replacement = only_browser(admin)
    assert replacement["browserId"] != old["browserId"]
    expect(row(page, replacement["browserId"])).to_contain_text("ready")
    expect(row(page, old["browserId"])).to_have_count(0)
    release(admin, session)


def test_a_drained_browser_ends_with_its_last_session_and_an_agent_is_offered_nothing(
    dashboards: Dashboards, admin: httpx.Client
) -> None:
    session = open_session(admin, agentId="ada")
    old = only_browser(admin)
    theirs = dashboards.open("/browsers", token=dashboards.server.token_of("bob"))
    details = opened(theirs, old["browserId"])
    expect(details).to_contain_text(old["product"])
    expect(details.get_by_role("button")).to_have_text(["Close"])
    theirs.keyboard.press("r")
    expect(theirs.get_by_role("dialog")).to_have_count(0)
    page = dashboards.open("/browsers")
    opened(page, old["browserId"]).get_by_role("button", name="Drain").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    expect(row(page, old["browserId"])).to_contain_text("draining")
    # Its replacement is there already.
    expect(page.locator(".rows [data-key]")).to_have_count(2)
    release(admin, session)
    expect(row(page, old["browserId"])).to_have_count(0)
    expect(row(page, only_browser(admin)["browserId"])).to_contain_text("ready")


def test_a_killed_browser_gives_way_to_another_that_says_why(dashboards: Dashboards, admin: httpx.Client) -> None:
    old = only_browser(admin)
    page = dashboards.open()
    expect(page.locator(f"[data-browser={old['browserId']}]")).to_contain_text("ready")
    kill_browser(old["pid"])
    expect(page.locator("[data-event='browser.crashed']")).to_contain_text(old["browserId"])
    expect(page.locator(f"[data-browser={old['browserId']}]")).to_have_count(0)
    expect(page.locator("[data-browser]")).to_contain_text("ready")
    # Why there is another one is said for as long as it is the last thing that happened to that place.
    expect(page.locator("[data-browser]")).to_contain_text("the one before it")
    new = only_browser(admin)
    assert new["lastFailure"]
    dashboards.go(page, "/browsers")
    expect(row(page, new["browserId"])).to_contain_text(new["lastFailure"])
    expect(row(page, old["browserId"])).to_have_count(0)


def test_what_is_wrong_with_a_browser_is_said_in_words(dashboards: Dashboards) -> None:
    page = dashboards.open("/events")
    told: list[dict[str, Any]] = []
    page.route("**/browsers", lambda route: route.fulfill(json={"browsers": told}))
    dashboards.go(page, "/browsers")
    expect(page.locator("[data-state=empty]")).to_contain_text("No browser runs")
    for fields, label, words in (
        ({"state": "broken", "circuit": "open", "lastFailure": "exits at once"}, "broken", "kept dying"),
        ({"state": "crashed", "lastFailure": "killed by signal 9"}, "crashed", "killed by signal 9"),
        ({"suspect": True}, "suspect", "has missed a probe"),
    ):
        told[:] = [browser(**fields)]
        dashboards.go(page, "/")
        page.reload()
        found = page.locator("[data-finding=browsers]")
        expect(found).to_have_attribute("data-mood", "bad")
        expect(found).to_contain_text(words)
        expect(page.get_by_role("status").filter(has_text="Something needs a look")).to_be_visible()
        dashboards.go(page, "/browsers")
        expect(row(page, "brw_1")).to_contain_text(label)
        expect(opened(page, "brw_1").get_by_role("alert")).to_contain_text(words)
    # The server knows none of that name.
    page.locator("[data-details=brw_1]").get_by_role("button", name="Restart").click()
    page.get_by_role("dialog").get_by_role("button", name="Restart").click()
    expect(page.locator(".toast.bad")).to_contain_text("No such browser.")
