"""The page of nodes: one that works alone, and several that share a store."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from playwright.sync_api import Route, expect

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


def test_a_node_that_is_alone_says_so_and_is_drained_and_resumed_each_after_a_question(
    dashboards: Dashboards, admin: httpx.Client
) -> None:
    page = dashboards.open("/nodes", size=PHONE)
    expect(page.get_by_role("heading", name="One node, all by itself")).to_be_visible()
    expect(page.locator(".alone")).to_contain_text("TABHERD_STORE=postgresql://")

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


def test_a_drain_that_was_begun_elsewhere_is_seen_at_once_and_offered_to_no_agent(
    dashboards: Dashboards, admin: httpx.Client
) -> None:
    theirs = dashboards.open("/nodes", token=dashboards.server.token_of("bob"))
    page = dashboards.open("/")
    draining = page.locator("[data-finding=draining]")
    expect(draining).to_have_attribute("data-mood", "good")
    expect(theirs.locator(".alone .badge")).to_have_text("up")
    admin.post("/drain").raise_for_status()
    try:
        expect(theirs.locator(".alone .badge")).to_have_text("draining")
        expect(draining).to_contain_text("this node admits no new session")
        expect(page.locator("[data-verdict]")).to_have_attribute("data-verdict", "busy")
    finally:
        admin.delete("/drain").raise_for_status()
    expect(theirs.locator("main").get_by_role("button")).to_have_count(0)
    theirs.keyboard.press("d")
    expect(theirs.get_by_role("dialog")).to_have_count(0)


def test_every_node_of_a_cluster_is_listed_with_its_state_in_words_and_the_one_that_is_meant_is_told(
    dashboards: Dashboards,
) -> None:
    states = ["up", "draining", "silent", "dead", "left", "up"]
    page = dashboards.open("/events")
    nodes = {"nodes": [node(number, state=state) for number, state in enumerate(states, 1)]}
    page.route("**/nodes", lambda route: route.fulfill(json=nodes))
    told: list[tuple[str, str]] = []

    def tell(route: Route) -> None:
        told.append((route.request.method, httpx.URL(route.request.url).params["node"]))
        route.fulfill(json={})

    page.route("**/drain?*", tell)
    dashboards.go(page, "/nodes")
    expect(page.locator(".rows [data-key] .badge")).to_have_text(states)
    expect(page.get_by_role("heading", name="Nodes").locator("..")).to_contain_text("2 of 6 up")
    # Nothing is offered for those that are silent or over.
    expect(page.locator(".rows").get_by_role("button")).to_have_text(["Drain…", "Resume…", "Drain…"])
    for number, verb in ((6, "Drain"), (2, "Resume")):
        page.locator(f".rows [data-key=nod_{number}]").get_by_role("button", name=verb).click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(f"nod_{number}")
        dialog.get_by_role("button", name=verb).click()
        expect(page.locator(".toast").filter(has_text=f"nod_{number}")).to_be_visible()
    assert told == [("POST", "nod_6"), ("DELETE", "nod_2")]
    dashboards.go(page, "/")
    found = page.locator("[data-finding=nodes]")
    expect(found).to_have_attribute("data-mood", "bad")
    expect(found).to_contain_text("nod_3 is silent, last heard of 400 ms ago; nod_4 is dead")
    expect(page.locator("[data-finding=draining]")).to_contain_text("nod_2 admits no new session")
