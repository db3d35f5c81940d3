"""What a page shows when there is nothing to show: not yet, not any more, nothing at all, or not to you.

Each state is brought about as it comes about in earnest: by a server that is empty, slow, broken, gone, back again, or
that refuses.
"""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Page, Route, expect
from tests.server.conftest import open_session, release
from tests.shared_server import unique

from .conftest import SETTINGS
from .rig import Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Pages that read something before they can show anything.
READING = ["/", "/tabs", "/sessions", "/tasks", "/locks", "/browsers", "/nodes", "/audit", "/config"]
# Those that have nothing to show to an agent that has done nothing.
EMPTY = ["/sessions", "/tasks", "/locks", "/tabs"]
# What is not about what a page shows, but about there being a page.
FRAME = re.compile(r"/|/ui/.*|/login|/events")
BROKEN = {
    "code": "store_unavailable",
    "message": "The store does not answer.",
    "action": "Look at the server's log.",
    "retryable": True,
    "details": {},
}


def is_read(url: str) -> bool:
    """Whether that is something that a page reads."""
    return FRAME.fullmatch(urlsplit(url).path) is None


def state_of(page: Page, state: str) -> Any:
    return page.locator(f"main [data-state={state}]").first


def answer(route: Route, status: int, body: Any) -> None:
    route.fulfill(status=status, content_type="application/json", body=json.dumps(body))


def test_a_page_without_anything_says_what_to_do_until_something_comes(dashboards: Dashboards) -> None:
    name = unique("alice")
    page = dashboards.open(token=dashboards.server.token_of(name))
    for path in EMPTY:
        dashboards.go(page, path)
        expect(page.locator(f"main[data-page='{path}']")).to_be_visible()
        expect(state_of(page, "empty").locator("code, pre").first).to_contain_text(re.compile("tabherd|curl"))
    with dashboards.server.agent(name) as alice:
        session = open_session(alice)
        expect(page.locator("main").get_by_text(name).first).to_be_visible()
        expect(state_of(page, "empty")).to_have_count(0)
        release(alice, session)
        expect(state_of(page, "empty")).to_be_visible()


def test_a_page_says_that_it_reads_then_why_it_cannot_and_shows_what_comes_when_it_is_tried_again(
    dashboards: Dashboards,
) -> None:
    page = dashboards.open("/events")
    held: list[Route] | None = None

    def reading(route: Route) -> None:
        if held is None:
            answer(route, 503, BROKEN)
        else:
            held.append(route)

    for path in READING:
        held = []
        page.route(is_read, reading)
        dashboards.go(page, path)
        # What other pages have read is forgotten.
        page.reload()
        expect(page.locator(f"main[data-page='{path}'] [data-state=loading]").first).to_be_visible()
        expect(page.locator("main [aria-busy=true]").first).to_contain_text("Reading")
        slow, held = held, None
        for route in slow:
            answer(route, 503, BROKEN)
        failed = state_of(page, "error")
        for words in ("The store does not answer.", "Look at the server's log.", "store_unavailable"):
            expect(failed).to_contain_text(words)
        page.unroute_all(behavior="ignoreErrors")
        # What is read apart fails apart.
        page.get_by_role("button", name="Try again").evaluate_all("all => all.forEach((one) => one.click())")
        expect(state_of(page, "error")).to_have_count(0)
        expect(state_of(page, "loading")).to_have_count(0)
        expect(page.locator("main h1").first).to_be_visible()


def test_what_was_read_stays_when_a_later_look_fails_and_a_node_that_does_not_answer_is_named(
    dashboards: Dashboards, admin: httpx.Client
) -> None:
    def without_one(route: Route) -> None:
        got = route.fetch()
        answer(route, got.status, {**got.json(), "unreachable": ["nod_far"]})

    open_session(admin, agentId="alice")
    page = dashboards.open("/events")
    page.route(lambda url: urlsplit(url).path == "/tabs", without_one)
    dashboards.go(page, "/tabs")
    expect(page.locator("main [role=alert]").first).to_contain_text("nod_far")
    expect(page.get_by_text("alice").first).to_be_visible()
    page.unroute_all(behavior="wait")
    expect(page.get_by_text("nod_far")).to_have_count(0)
    with page.expect_response(lambda got: is_read(got.url) and got.status == 503):
        page.route(is_read, lambda route: answer(route, 503, BROKEN))
    expect(page.get_by_text("alice").first).to_be_visible()
    expect(state_of(page, "error")).to_have_count(0)


def test_what_is_no_answer_of_ours_is_told_by_its_status_and_a_missing_module_by_its_name(
    dashboards: Dashboards,
) -> None:
    page = dashboards.open("/events")
    bad_gateway = {"status": 502, "content_type": "text/html", "body": "<h1>Bad gateway</h1>"}
    page.route(is_read, lambda route: route.fulfill(**bad_gateway))
    dashboards.go(page, "/tabs")
    expect(state_of(page, "error")).to_contain_text("502")
    page.route("**/ui/nodes.js", lambda route: route.abort())
    dashboards.go(page, "/nodes")
    expect(state_of(page, "error")).to_contain_text("This page cannot be shown.")
    page.unroute_all(behavior="ignoreErrors")
    # The files are the browser's already; what is asked for is who one is.
    page.route("**/login", lambda route: route.abort())
    page.reload()
    expect(page.locator("[data-state=error]")).to_contain_text("does not answer")
    page.unroute("**/login")
    expect(page.locator(".connection.live")).to_be_visible()


def test_what_is_the_admins_is_not_shown_to_an_agent_who_is_told_so(dashboards: Dashboards) -> None:
    page = dashboards.open(token=dashboards.server.token_of("mallory"))
    for path, words in (("/audit", "The audit trail"), ("/config", "The configuration")):
        dashboards.go(page, path)
        expect(state_of(page, "forbidden")).to_contain_text(f"{words} is not for this token")
        expect(state_of(page, "forbidden")).to_contain_text("Log out")
        expect(page.locator("main [data-state=error], main [role=grid], main [data-setting]")).to_have_count(0)


def test_a_server_that_is_gone_is_waited_for_and_what_changed_meanwhile_is_seen_when_it_is_back(
    dashboards: Dashboards,
) -> None:
    server, port = dashboards.server, str(urlsplit(dashboards.url).port)
    gone, revoked = unique("gone"), unique("revoked")
    with server.agent(gone) as agent:
        open_session(agent, keepAlive=True)
    page = dashboards.open("/tabs")
    theirs = dashboards.open("/sessions", token=server.token_of(revoked))
    for each in (page, theirs):
        expect(each.locator(".connection.live")).to_be_visible()
    expect(page.get_by_text(gone).first).to_be_visible()
    page.evaluate("window.isTheSameDocument = true")
    server.stop()
    try:
        expect(state_of(page, "reconnecting")).to_be_visible()
        expect(page.locator(".connection.reconnecting")).to_be_visible()
        expect(page.get_by_text(gone).first).to_be_visible()
        with closing(sqlite3.connect(server.state / "tabherd.db")) as rows, rows:
            rows.execute("DELETE FROM tabs")
            rows.execute("DELETE FROM sessions")
            rows.execute("UPDATE credentials SET revoked_at = 1 WHERE agent_id = ?", (revoked,))
    finally:
        server.start({**SETTINGS, "SERVER__PORT": port})
    expect(page.locator(".connection.live")).to_be_visible()
    expect(state_of(page, "reconnecting")).to_have_count(0)
    expect(state_of(page, "empty")).to_be_visible()
    with server.agent("bob") as bob:
        open_session(bob)
        expect(page.get_by_text("bob").first).to_be_visible()
    assert page.evaluate("window.isTheSameDocument")
    # A login whose credential was revoked ends at the login, with the reason.
    expect(theirs.get_by_label("Token")).to_be_visible()
    expect(theirs.get_by_role("alert")).to_have_text("The credential of this login was revoked.")
    theirs.get_by_label("Token").fill(server.token_of("bob"))
    theirs.keyboard.press("Enter")
    expect(theirs.locator(".who")).to_have_text("bob")
    expect(theirs.get_by_role("alert")).to_have_count(0)
