"""The overview: what an operator sees at a glance, while it happens, and what an agent sees of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect
from tests.server.conftest import Server, act, open_session, release
from tests.server.tasking import until
from tests.shared_server import unique

from .rig import Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]

SOLO = "solo"
LONG_AGO = "2026-01-01T00:00:00.000Z"
# A name that is part of no id.
OTHER = "other-agent"


@contextmanager
def asking(client: httpx.Client, method: str, path: str, **request: Any) -> Iterator[None]:
    """A request that takes its time; it is answered before this ends."""
    with ThreadPoolExecutor(1) as aside:
        answer = aside.submit(client.request, method, path, **request)
        yield
        answer.result()


@contextmanager
def held(client: httpx.Client, session: dict[str, Any]) -> Iterator[str]:
    """The session's first tab while a command has it; its id."""
    tab_id = session["tabs"][0]["tabId"]
    action = {"kind": "evaluate", "expression": "new Promise((done) => { window.done = done; })", "timeoutMs": 120_000}
    with asking(client, "POST", f"/tabs/{tab_id}/action", json=action):
        until(lambda: client.get(f"/tabs/{tab_id}").json()["holder"])
        try:
            yield tab_id
        finally:
            let_go(client, tab_id)


def let_go(client: httpx.Client, tab_id: str) -> None:
    """End the command that has the tab, if one does."""
    holder = client.get(f"/tabs/{tab_id}").json()["holder"]
    if holder is not None:
        client.post(f"/commands/{holder['commandId']}/cancel").raise_for_status()


def agent_row(page: Page, agent_id: str) -> Any:
    return page.locator(f"[data-agent={agent_id}]")


def finding(page: Page, name: str) -> Any:
    return page.locator(f"[data-finding={name}]")


def figure(page: Page, curve: str) -> Any:
    return page.locator(f"[data-tile={curve}] .figure")


def test_what_happens_elsewhere_appears_without_a_reload(
    dashboards: Dashboards, server: Server, admin: httpx.Client
) -> None:
    name = unique("ada")
    page = dashboards.open()
    expect(page.locator("[data-verdict]")).to_have_attribute("data-verdict", "good")
    expect(page.get_by_role("status").filter(has_text="Nothing is stuck")).to_be_visible()
    expect(page.get_by_text("Nobody is here yet")).to_be_visible()
    expect(figure(page, "sessions")).to_have_text("0")
    page.evaluate("window.isSame = true")
    tile = page.locator("[data-tile=commands]")
    with server.agent(name) as ada:
        session = open_session(ada)
        expect(figure(page, "sessions")).to_have_text("1")
        expect(agent_row(page, name)).to_contain_text("1 session, 1 tab")
        expect(page.locator("[data-event='session.opened']").first).to_contain_text(session["sessionId"])
        for expression in ("1", "missing()", "2"):
            act(ada, session["tabs"][0]["tabId"], "evaluate", expression=expression)
        release(ada, session)
    expect(figure(page, "sessions")).to_have_text("0")
    expect(agent_row(page, name)).to_have_count(0)
    # Commands leave a curve; of those that failed words tell as well.
    expect(tile).to_contain_text("failed")
    expect(tile.locator("path")).to_have_attribute("d", re.compile("M.+L"))
    expect(tile.locator("svg")).to_have_attribute("aria-label", re.compile("Commands, last .* highest: .* /s"))
    expect(page.locator("[data-tile=commandP95Ms]")).to_contain_text("95 % within")
    assert page.evaluate("window.isSame")
    # All of the history was asked for once, since then only its end.
    asked = page.evaluate("performance.getEntriesByType('resource').map(({ name }) => name)")
    assert len([url for url in asked if url.endswith("/history")]) == 1
    assert len([url for url in asked if "/history?" in url]) >= 1


def test_who_waits_for_a_session_is_shown_with_the_place_in_the_queue(
    dashboards: Dashboards, server: Server, admin: httpx.Client
) -> None:
    page = dashboards.open()
    waiting = {"key": SOLO, "waitMs": 120_000}
    with server.agent("ada") as ada, server.agent("bob") as bob, server.agent("cyd") as cyd:
        session = open_session(ada, key=SOLO)
        with asking(bob, "POST", "/sessions", json=waiting):
            until(lambda: admin.get("/stats").json()["pools"]["default"]["waiting"] == 1)
            with asking(cyd, "POST", "/sessions", json=waiting):
                rows = page.locator("[data-pool=default] [data-position]")
                expect(rows).to_have_count(2)
                expect(rows.nth(0)).to_contain_text("bob")
                expect(rows.nth(1)).to_contain_text("cyd")
                assert [row.get_attribute("data-position") for row in rows.all()] == ["1", "2"]
                expect(agent_row(page, "cyd")).to_contain_text("a session in default: number 2")
                expect(finding(page, "wait")).to_have_attribute("data-mood", "busy")
                expect(finding(page, "wait")).to_contain_text("bob is number 1")
                release(ada, session)
                # Bob has it now, and cyd is next.
                expect(rows).to_have_count(1)
                expect(rows.first).to_contain_text("cyd")
                bobs = next(one for one in bob.get("/sessions").json()["sessions"] if one["state"] == "active")
                release(bob, bobs)
    expect(finding(page, "wait")).to_contain_text("nobody waits")


def test_a_held_tab_is_shown_with_who_waits_behind_it(
    dashboards: Dashboards, server: Server, admin: httpx.Client
) -> None:
    page = dashboards.open()
    with server.agent("ada") as ada, server.agent("bob") as bob:
        session = open_session(ada, access="shared")
        with held(ada, session) as tab_id:
            look = {"kind": "evaluate", "expression": "1", "waitPolicy": "wait_with_timeout", "timeoutMs": 120_000}
            expect(finding(page, "hold")).to_contain_text(tab_id)
            expect(finding(page, "hold")).to_contain_text("nobody waits behind it")
            with asking(bob, "POST", f"/tabs/{tab_id}/action", json=look):
                expect(finding(page, "hold")).to_contain_text("behind it: bob (evaluate)")
                expect(finding(page, "hold")).to_have_attribute("data-mood", re.compile("busy|bad"))
                expect(agent_row(page, "bob")).to_contain_text("number 1")
                finding(page, "hold").get_by_role("link").click()
                expect(page).to_have_url(re.compile(f"#/tabs/{tab_id}$"))
                let_go(ada, tab_id)


def test_a_tab_that_has_waited_for_a_person_for_a_while_needs_a_look(
    dashboards: Dashboards, server: Server, admin: httpx.Client
) -> None:
    page = dashboards.open("/events")
    with server.agent("ada") as ada:
        tab_id = open_session(ada)["tabs"][0]["tabId"]
        handed_off = ada.post(f"/tabs/{tab_id}/handoff", json={"by": "Eva"}).raise_for_status().json()
        dashboards.go(page, "/")
        expect(finding(page, "handoff")).to_contain_text(f"{tab_id} of ada: handed off to Eva")
        expect(finding(page, "handoff")).to_have_attribute("data-mood", "busy")
        holder = handed_off["holder"] | {"since": LONG_AGO}
        page.route("**/tabs", lambda route: route.fulfill(json={"tabs": [handed_off | {"holder": holder}]}))
        expect(finding(page, "handoff")).to_have_attribute("data-mood", "bad")
        expect(page.locator(".health")).to_contain_text("Something needs a look")
        dashboards.go(page, "/tabs")
        expect(page.locator(f"[data-look={tab_id}]")).to_contain_text("The tab was handed off to Eva")


def test_nobody_is_promised_a_turn_behind_a_command_that_hangs(
    dashboards: Dashboards, server: Server, admin: httpx.Client
) -> None:
    page = dashboards.open("/events")
    with server.agent("ada") as ada, held(ada, open_session(ada)) as tab_id:
        running = ada.get(f"/tabs/{tab_id}").json()
        hangs = running | {"holder": running["holder"] | {"since": LONG_AGO}}
        page.route("**/tabs", lambda route: route.fulfill(json={"tabs": [hangs]}))
        dashboards.go(page, "/tabs")
        expect(page.locator(f"[data-key={tab_id}] > :last-child")).to_have_text("unknown")


def test_an_agent_sees_only_its_own(dashboards: Dashboards, server: Server, admin: httpx.Client) -> None:
    with server.agent(OTHER) as ada, server.agent("bob") as bob:
        sessions = [open_session(ada), open_session(bob)]
        page = dashboards.open(token=server.token_of("bob"))
        expect(agent_row(page, "bob")).to_contain_text("1 session, 1 tab")
        expect(page.get_by_role("heading", name="What is yours")).to_be_visible()
        with held(ada, sessions[0]) as tab_id:
            # It has to wait, so that the scheduler counts it.
            task = {"action": "evaluate", "tabId": tab_id, "params": {"expression": "1"}}
            task_id = ada.post("/tasks", json=task).raise_for_status().json()["taskId"]
            until(lambda: OTHER in bob.get("/scheduler/stats").json()["queue"]["agents"])
            with page.expect_response("**/scheduler/stats"):
                release(bob, sessions[1])
            expect(page.locator("[data-event='session.closed']")).to_contain_text(sessions[1]["sessionId"])
            expect(agent_row(page, "bob")).to_have_count(0)
            expect(finding(page, "hold")).to_contain_text("no tab is held")
            for secret in (OTHER, sessions[0]["sessionId"], tab_id, task_id):
                assert secret not in page.locator("main").inner_text()
