"""What a page shows when there is nothing to show: not yet, not any more, nothing at all, or not to you.

Each state is brought about as it comes about in earnest: by a server that is empty, slow, broken, gone, back again, or
that refuses.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from tests.server.conftest import Server, open_session, release, with_settings

from .conftest import SETTINGS
from .rig import Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Pages that read something before they can show anything.
READING = ["/", "/tabs", "/sessions", "/tasks", "/locks", "/browsers", "/nodes", "/audit", "/config"]
# Those that have nothing to show on a server that nobody has used.
EMPTY = ["/tabs", "/sessions", "/tasks", "/locks"]
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


def open_with(dashboards: Dashboards, path: str, reading: Callable[[Route], None]) -> Page:
    """The page of that path, whose every reading, from the first, is answered like that."""
    page = dashboards.window()
    page.route(is_read, reading)
    page.goto(f"{dashboards.url}/#token={dashboards.server.admin_token}")
    expect(page.locator(".connection.live")).to_be_visible()
    dashboards.go(page, path)
    return page


def answer(route: Route, status: int, body: Any) -> None:
    route.fulfill(status=status, content_type="application/json", body=json.dumps(body))


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """One that the test may stop."""
    with with_settings(tmp_path / "state", SETTINGS) as running:
        yield running


@pytest.fixture
def own_dashboards(own_server: Server, viewing: Browser) -> Iterator[Dashboards]:
    opened = Dashboards(viewing, own_server)
    try:
        yield opened
        assert opened.mistakes == []
    finally:
        opened.close()


# --- Nothing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", EMPTY)
def test_a_page_without_anything_says_what_to_do(dashboards: Dashboards, path: str) -> None:
    page = dashboards.open(path)
    expect(state_of(page, "empty")).to_be_visible()
    expect(state_of(page, "empty").locator("code, pre").first).to_contain_text(re.compile("tabherd|curl"))


def test_what_comes_takes_the_place_of_nothing_without_a_reload(dashboards: Dashboards) -> None:
    page = dashboards.open("/tabs")
    expect(state_of(page, "empty")).to_be_visible()
    with dashboards.server.agent("alice") as alice:
        session = open_session(alice)
        expect(page.get_by_text("alice").first).to_be_visible()
        expect(state_of(page, "empty")).to_have_count(0)
        release(alice, session)
        expect(state_of(page, "empty")).to_be_visible()


# --- Not yet ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", READING)
def test_a_page_whose_answers_are_on_their_way_says_so_and_shows_them_when_they_come(
    dashboards: Dashboards, path: str
) -> None:
    held: list[Route] = []
    is_slow = True
    page = open_with(dashboards, path, lambda route: held.append(route) if is_slow else route.continue_())
    expect(state_of(page, "loading")).to_be_visible()
    expect(page.locator("main [aria-busy=true]").first).to_contain_text("Reading")
    is_slow = False
    for route in held:
        route.continue_()
    expect(state_of(page, "loading")).to_have_count(0)
    expect(page.locator("main h1").first).to_be_visible()


# --- Broken -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", READING)
def test_a_page_that_cannot_be_read_says_why_and_what_to_do_and_tries_again(dashboards: Dashboards, path: str) -> None:
    page = open_with(dashboards, path, lambda route: answer(route, 503, BROKEN))
    failed = state_of(page, "error")
    expect(failed).to_contain_text("The store does not answer.")
    expect(failed).to_contain_text("Look at the server's log.")
    expect(failed).to_contain_text("store_unavailable")
    page.unroute(is_read)
    failed.get_by_role("button", name="Try again").click()
    expect(state_of(page, "error")).to_have_count(0)
    expect(page.locator("main h1").first).to_be_visible()


def test_an_answer_that_is_none_of_ours_is_told_by_its_status(dashboards: Dashboards) -> None:
    bad_gateway = {"status": 502, "content_type": "text/html", "body": "<h1>Bad gateway</h1>"}
    page = open_with(dashboards, "/tabs", lambda route: route.fulfill(**bad_gateway))
    expect(state_of(page, "error")).to_contain_text("502")


def test_what_was_read_before_stays_when_a_later_look_fails(dashboards: Dashboards) -> None:
    with dashboards.server.agent("alice") as alice:
        session = open_session(alice)
        page = dashboards.open("/tabs")
        expect(page.get_by_text("alice").first).to_be_visible()
        with page.expect_response(lambda got: is_read(got.url) and got.status == 503):
            page.route(is_read, lambda route: answer(route, 503, BROKEN))
        expect(page.get_by_text("alice").first).to_be_visible()
        expect(state_of(page, "error")).to_have_count(0)
        release(alice, session)


def test_a_page_whose_module_cannot_be_loaded_says_so(dashboards: Dashboards) -> None:
    page = dashboards.open("/events")
    page.route("**/ui/tabs.js", lambda route: route.abort())
    dashboards.go(page, "/tabs")
    expect(state_of(page, "error")).to_contain_text("This page cannot be shown.")


# --- Not all of it ----------------------------------------------------------------------------------------------


def test_a_node_that_does_not_answer_is_named_above_what_the_others_have(dashboards: Dashboards) -> None:
    def without_one(route: Route) -> None:
        got = route.fetch()
        answer(route, got.status, {**got.json(), "unreachable": ["nod_far"]})

    with dashboards.server.agent("alice") as alice:
        session = open_session(alice)
        page = dashboards.open("/events")
        page.route(lambda url: urlsplit(url).path == "/tabs", without_one)
        dashboards.go(page, "/tabs")
        expect(page.locator("main [role=alert]").first).to_contain_text("nod_far")
        expect(page.get_by_text("alice").first).to_be_visible()
        page.unroute_all(behavior="wait")
        expect(page.get_by_text("nod_far")).to_have_count(0)
        release(alice, session)


# --- Not to you -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/audit", "/config"])
def test_what_is_the_admins_is_not_shown_to_an_agent_who_is_told_so(dashboards: Dashboards, path: str) -> None:
    page = dashboards.open(path, token=dashboards.server.token_of("mallory"))
    expect(state_of(page, "forbidden")).to_be_visible()
    expect(state_of(page, "forbidden")).to_contain_text("Log out")
    expect(page.locator("main [data-state=error]")).to_have_count(0)


def test_an_agent_sees_its_own_and_nothing_of_others(dashboards: Dashboards) -> None:
    with dashboards.server.agent("alice") as alice, dashboards.server.agent("bob") as bob:
        mine, theirs = open_session(alice), open_session(bob)
        page = dashboards.open("/sessions", token=dashboards.server.token_of("alice"))
        expect(page.get_by_text("alice").nth(1)).to_be_visible()
        assert "bob" not in page.locator("main").inner_text()
        release(alice, mine)
        release(bob, theirs)


# --- Gone and back ----------------------------------------------------------------------------------------------


def test_a_server_that_is_gone_is_waited_for_and_what_was_known_stays_on_the_screen(
    own_dashboards: Dashboards,
) -> None:
    server, port = own_dashboards.server, str(urlsplit(own_dashboards.url).port)
    with server.agent("alice") as alice:
        open_session(alice, keepAlive=True)
    page = own_dashboards.open("/tabs")
    expect(page.locator(".connection.live")).to_be_visible()
    expect(page.get_by_text("alice").first).to_be_visible()
    page.evaluate("window.isTheSameDocument = true")
    server.stop()
    expect(state_of(page, "reconnecting")).to_be_visible()
    expect(page.locator(".connection.reconnecting")).to_be_visible()
    expect(page.get_by_text("alice").first).to_be_visible()
    server.start({**SETTINGS, "SERVER__PORT": port})
    expect(page.locator(".connection.live")).to_be_visible()
    expect(state_of(page, "reconnecting")).to_have_count(0)
    with server.agent("bob") as bob:
        open_session(bob)
        expect(page.get_by_text("bob").first).to_be_visible()
    assert page.evaluate("window.isTheSameDocument")


def test_what_happened_while_the_server_was_gone_is_seen_when_it_is_back(own_dashboards: Dashboards) -> None:
    server, port = own_dashboards.server, str(urlsplit(own_dashboards.url).port)
    with server.agent("alice") as alice:
        open_session(alice)
    page = own_dashboards.open("/tabs")
    expect(page.get_by_text("alice").first).to_be_visible()
    # Nobody keeps the session across the restart, so it is not there afterwards.
    server.stop()
    expect(state_of(page, "reconnecting")).to_be_visible()
    with closing(sqlite3.connect(server.state / "tabherd.db")) as rows, rows:
        rows.execute("DELETE FROM tabs")
        rows.execute("DELETE FROM sessions")
    server.start({**SETTINGS, "SERVER__PORT": port})
    expect(state_of(page, "empty")).to_be_visible()
    expect(page.get_by_text("alice")).to_have_count(0)


def test_a_page_that_is_opened_while_there_is_no_server_comes_up_with_it(own_dashboards: Dashboards) -> None:
    server, port = own_dashboards.server, str(urlsplit(own_dashboards.url).port)
    page = own_dashboards.open()
    expect(page.locator(".connection.live")).to_be_visible()
    # The files are the browser's already; what is asked for is who one is.
    page.route("**/login", lambda route: route.abort())
    page.reload()
    expect(page.locator("[data-state=error]")).to_contain_text("does not answer")
    page.unroute("**/login")
    expect(page.locator(".connection.live")).to_be_visible()
    assert (server.record["url"], port) == (own_dashboards.url, port)


# --- The login is over ------------------------------------------------------------------------------------------


def test_a_login_whose_credential_was_revoked_ends_at_the_login_with_the_reason(own_dashboards: Dashboards) -> None:
    server, port = own_dashboards.server, str(urlsplit(own_dashboards.url).port)
    page = own_dashboards.open("/sessions", token=server.token_of("alice"))
    expect(page.locator(".connection.live")).to_be_visible()
    server.stop()
    with closing(sqlite3.connect(server.state / "tabherd.db")) as rows, rows:
        rows.execute("UPDATE credentials SET revoked_at = 1 WHERE agent_id = 'alice'")
    server.start({**SETTINGS, "SERVER__PORT": port})
    expect(page.get_by_label("Token")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_text("The credential of this login was revoked.")
    page.get_by_label("Token").fill(server.token_of("bob"))
    page.keyboard.press("Enter")
    expect(page.locator(".who")).to_have_text("bob")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_login_that_ends_while_something_is_asked_leads_to_the_login_and_back(dashboards: Dashboards) -> None:
    page = dashboards.open("/sessions")
    expect(page.locator(".connection.live")).to_be_visible()
    page.context.clear_cookies()
    expect(page.get_by_label("Token")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_text("No credential was given.")
    page.get_by_label("Token").fill(dashboards.server.admin_token)
    page.keyboard.press("Enter")
    # Where one was.
    expect(page.locator("main[data-page='/sessions']")).to_be_visible()
