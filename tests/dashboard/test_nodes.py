"""The page of nodes: one that works alone, and several that share a store."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, Request, expect
from tests.server.conftest import Server

from .rig import PHONE, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]


def node(number: int, **fields: Any) -> dict[str, Any]:
    """A node of a cluster, as the wire tells of it."""
    return {
        "nodeId": f"nod_{number}",
        "url": f"http://10.0.0.{number}:7722",
        "state": "up",
        "epoch": number,
        "isSelf": number == 1,
        "startedAt": "2025-01-01T00:00:00.000Z",
        "beatAgeMs": 400,
        "sessions": number,
        "freeSeats": 20,
    } | fields


def cluster(dashboards: Dashboards, *nodes: dict[str, Any], token: str | None = None, **window: Any) -> Page:
    """The page of a server that says it has these nodes."""
    page = dashboards.window(**window)
    body = json.dumps({"nodes": list(nodes)})
    page.route("**/nodes", lambda route: route.fulfill(status=200, content_type="application/json", body=body))
    page.goto(f"{dashboards.url}/#token={token or dashboards.server.admin_token}")
    expect(page.locator(".frame")).to_be_visible()
    dashboards.go(page, "/nodes")
    expect(page.locator("main[data-page='/nodes'] h1")).to_be_visible()
    return page


# --- Alone ------------------------------------------------------------------------------------------------------


def test_a_node_that_is_alone_says_so_and_how_to_have_more(dashboards: Dashboards) -> None:
    page = dashboards.open("/nodes", size=PHONE)
    expect(page.get_by_role("heading", name="One node, all by itself")).to_be_visible()
    expect(page.locator(".alone")).to_contain_text("TABHERD_STORE=postgresql://")


def test_a_node_is_drained_and_resumed_each_after_a_question(dashboards: Dashboards, server: Server) -> None:
    page = dashboards.open("/nodes")
    with server.client() as admin:

        def is_draining() -> bool:
            return bool(admin.get("/stats").json()["draining"])

        page.get_by_role("button", name="Drain").click()
        page.get_by_role("dialog").get_by_role("button", name="Keep as it is").click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert not is_draining()
        page.get_by_role("button", name="Drain").click()
        page.get_by_role("dialog").get_by_role("button", name="Drain").click()
        expect(page.locator(".alone")).to_contain_text("can be stopped without harm to anybody")
        assert is_draining()
        page.get_by_role("button", name="Resume").click()
        page.get_by_role("dialog").get_by_role("button", name="Resume").click()
        expect(page.get_by_role("button", name="Drain")).to_be_visible()
        assert not is_draining()


def test_a_drain_that_was_begun_elsewhere_is_seen_at_once(dashboards: Dashboards, server: Server) -> None:
    page = dashboards.open("/nodes")
    expect(page.locator(".alone .badge")).to_have_text("up")
    with server.client() as admin:
        admin.post("/drain").raise_for_status()
        try:
            expect(page.locator(".alone .badge")).to_have_text("draining")
        finally:
            admin.delete("/drain").raise_for_status()
    expect(page.locator(".alone .badge")).to_have_text("up")


def test_an_agent_is_not_offered_to_drain(dashboards: Dashboards) -> None:
    page = dashboards.open("/nodes", token=dashboards.server.token_of("bob"))
    expect(page.locator(".alone .badge")).to_have_text("up")
    expect(page.locator("main").get_by_role("button")).to_have_count(0)
    page.keyboard.press("d")
    expect(page.get_by_role("dialog")).to_have_count(0)


# --- Several ----------------------------------------------------------------------------------------------------


def test_every_node_of_a_cluster_is_listed_with_its_state_in_words(dashboards: Dashboards) -> None:
    states = ["up", "draining", "silent", "dead"]
    page = cluster(dashboards, *(node(number, state=state) for number, state in enumerate(states, 1)), size=PHONE)
    expect(page.locator(".rows [data-key] .badge")).to_have_text(states)
    expect(page.get_by_role("heading", name="Nodes").locator("..")).to_contain_text("1 of 4 up")
    dashboards.go(page, "/")
    found = page.locator("[data-finding=nodes]")
    expect(found).to_have_attribute("data-mood", "bad")
    expect(found).to_contain_text("nod_3 is silent, last heard of 400 ms ago; nod_4 is dead")
    expect(page.locator("[data-finding=draining]")).to_contain_text("nod_2 admits no new session")


@pytest.mark.parametrize(("state", "verb", "method"), [("up", "Drain", "POST"), ("draining", "Resume", "DELETE")])
def test_the_node_that_was_meant_is_told(dashboards: Dashboards, state: str, verb: str, method: str) -> None:
    page = cluster(dashboards, node(1), node(2, state=state))
    told: list[Request] = []
    page.route("**/drain?*", lambda route: (told.append(route.request), route.fulfill(status=200, body="{}")))
    page.locator(".rows [data-key=nod_2]").get_by_role("button", name=verb).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("nod_2")
    dialog.get_by_role("button", name=verb).click()
    expect(page.locator(".toast")).to_contain_text("nod_2")
    assert [(request.method, httpx.URL(request.url).params["node"]) for request in told] == [(method, "nod_2")]


def test_a_node_that_is_over_is_offered_nothing(dashboards: Dashboards) -> None:
    page = cluster(dashboards, node(1), node(2, state="dead"), node(3, state="left"), node(4, state="silent"))
    expect(page.locator(".rows [data-key]")).to_have_count(4)
    expect(page.locator(".rows").get_by_role("button")).to_have_count(1)
