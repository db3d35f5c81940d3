"""The settings: where each comes from, changed by a form that asks first, and refused in the server's own words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect
from tests.server.conftest import Server

from .looking import overflow
from .rig import PHONE, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]

MARKUP = "<img src=x onerror=\"window.stolen = 'yes'\">"


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def setting(page: Page, name: str) -> Locator:
    return page.locator(f'[data-setting="{name}"]')


def in_force(admin: httpx.Client, section: str, key: str) -> Any:
    return admin.get("/config").json()["settings"][section][key]


def change(page: Page, name: str, text: str, *, is_yes: bool = True) -> None:
    """As a person does it, to the answer that it was asked for."""
    setting(page, name).get_by_role("button", name=f"Change {name}").click()
    field = setting(page, name).get_by_label(name, exact=True)
    expect(field).to_be_focused()
    if field.evaluate("field => field.localName") == "select":
        field.select_option(text)
    else:
        field.fill(text)
    setting(page, name).get_by_role("button", name="Save").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Change {name}?")
    if is_yes:
        dialog.locator("[data-confirm]").click()
    else:
        dialog.get_by_role("button", name="Keep as it is").click()
    expect(dialog).to_have_count(0)


def test_settings_are_shown_with_their_meaning_and_where_they_come_from(dashboards: Dashboards) -> None:
    page = dashboards.open("/config")
    expect(setting(page, "gate.lock_lease_ms")).to_contain_text("30000 30 s")
    expect(setting(page, "gate.lock_lease_ms").locator(".badge")).to_have_text("default")
    expect(setting(page, "pools.default.browsers_max").locator(".badge")).to_have_text("environment")
    expect(setting(page, "pools.default.browsers_max").get_by_role("button")).to_have_count(0)
    expect(page.locator("header .where")).to_contain_text("tabherd.toml")


def test_a_change_by_the_form_is_in_force_and_in_the_audit_trail(dashboards: Dashboards, admin: httpx.Client) -> None:
    page = dashboards.open("/config")
    change(page, "scheduler.workers", "7")
    expect(page.get_by_text("scheduler.workers is in force.")).to_be_visible()
    expect(setting(page, "scheduler.workers").locator("code")).to_have_text("7")
    expect(setting(page, "scheduler.workers").locator(".badge")).to_have_text("file")
    assert in_force(admin, "scheduler", "workers") == 7
    dashboards.go(page, "/audit")
    entry = page.locator(".rows [role=row]", has_text="config").first
    expect(entry).to_contain_text("admin")
    expect(entry).to_contain_text("scheduler.workers")


def test_saying_no_changes_nothing(dashboards: Dashboards, admin: httpx.Client) -> None:
    page = dashboards.open("/config")
    change(page, "gate.tickets_per_tab", "3", is_yes=False)
    assert in_force(admin, "gate", "tickets_per_tab") == 20
    setting(page, "gate.tickets_per_tab").get_by_label("gate.tickets_per_tab", exact=True).press("Escape")
    expect(setting(page, "gate.tickets_per_tab").locator("code")).to_have_text("20")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("gate.timeout_ms", "0", "Expected `int` >= 1"),
        ("gate.timeout_ms", "soon", "Expected `int`"),
        ("pools.default.stale_after_s", "1", "less than two beats"),
        ("pools.default.pinned_hosts", "{no", "That is no JSON"),
    ],
)
def test_a_value_that_is_refused_is_explained_beside_the_field_and_changes_nothing(
    dashboards: Dashboards, admin: httpx.Client, name: str, text: str, why: str
) -> None:
    before = admin.get("/config").json()
    page = dashboards.open("/config")
    if "JSON" in why:
        setting(page, name).get_by_role("button", name=f"Change {name}").click()
        setting(page, name).get_by_label(name, exact=True).fill(text)
        setting(page, name).get_by_role("button", name="Save").click()
    else:
        change(page, name, text)
    expect(setting(page, name).get_by_role("alert")).to_contain_text(why)
    # What was typed is still there to be corrected.
    expect(setting(page, name).get_by_label(name, exact=True)).to_have_value(text)
    assert admin.get("/config").json() == before


def test_what_needs_a_restart_is_said_to_wait_for_one(dashboards: Dashboards, admin: httpx.Client) -> None:
    page = dashboards.open("/config?text=log_level")
    change(page, "server.log_level", "warning")
    expect(page.locator("[data-waiting]")).to_contain_text("server.log_level")
    expect(setting(page, "server.log_level")).to_contain_text("waits for a restart")
    expect(setting(page, "server.log_level").locator("code")).to_have_text("info")
    setting(page, "server.log_level").get_by_role("button", name="Change server.log_level").click()


def test_a_setting_is_taken_out_of_the_file(dashboards: Dashboards, admin: httpx.Client) -> None:
    admin.patch("/config", json={"locks": {"held_max": 9}}).raise_for_status()
    page = dashboards.open("/config?text=held_max")
    setting(page, "locks.held_max").get_by_role("button", name="Change locks.held_max").click()
    setting(page, "locks.held_max").get_by_role("button", name="Take out of the file").click()
    page.get_by_role("dialog").locator("[data-confirm]").click()
    expect(setting(page, "locks.held_max").locator("code")).to_have_text("1000")
    assert in_force(admin, "locks", "held_max") == 1_000


def test_switches_and_lists_are_changed_in_their_own_way(dashboards: Dashboards, admin: httpx.Client) -> None:
    page = dashboards.open("/config")
    change(page, "scheduler.enabled", "false")
    expect(setting(page, "scheduler.enabled").locator("code")).to_have_text("false")
    change(page, "webhooks.allow_hosts", "one.test, two.test")
    expect(setting(page, "webhooks.allow_hosts").locator("code")).to_have_text("one.test, two.test")
    assert in_force(admin, "scheduler", "enabled") is False
    assert in_force(admin, "webhooks", "allow_hosts") == ["one.test", "two.test"]


def test_a_secret_is_written_and_never_shown(dashboards: Dashboards, admin: httpx.Client, server: Server) -> None:
    page = dashboards.open("/config?text=webhooks.secret")
    change(page, "webhooks.secret", "open sesame")
    expect(setting(page, "webhooks.secret")).to_contain_text("kept hidden")
    assert "open sesame" in (server.state / "tabherd.toml").read_text()
    assert "open sesame" not in page.content()
    setting(page, "webhooks.secret").get_by_role("button", name="Change webhooks.secret").click()
    field = setting(page, "webhooks.secret").get_by_label("webhooks.secret", exact=True)
    expect(field).to_have_value("")
    expect(field).to_have_attribute("type", "password")
    trail = admin.get("/audit", params={"order": "desc"}).json()["entries"]
    assert "webhooks.secret" in [entry["detail"] for entry in trail]
    assert "open sesame" not in json.dumps(trail)


def test_what_is_changed_elsewhere_is_shown_at_once_and_what_is_being_typed_stays(
    dashboards: Dashboards, admin: httpx.Client
) -> None:
    page = dashboards.open("/config")
    expect(page.locator(".connection.live")).to_be_visible()
    setting(page, "gate.timeout_ms").get_by_role("button", name="Change gate.timeout_ms").click()
    setting(page, "gate.timeout_ms").get_by_label("gate.timeout_ms", exact=True).fill("12345")
    admin.patch("/config", json={"tiers": {"night": 77}}).raise_for_status()
    expect(setting(page, "tiers.night").locator("code")).to_have_text("77")
    expect(setting(page, "gate.timeout_ms").get_by_label("gate.timeout_ms", exact=True)).to_have_value("12345")


def test_a_file_that_was_refused_is_told_with_the_reason(dashboards: Dashboards, server: Server) -> None:
    file = server.state / "tabherd.toml"
    before = file.read_text() if file.exists() else ""
    page = dashboards.open("/config")
    expect(setting(page, "gate.timeout_ms")).to_be_visible()
    file.write_text(f"{before}\n[nonsense]\n")
    try:
        expect(page.get_by_role("alert")).to_contain_text("nonsense")
    finally:
        file.write_text(before)
    expect(page.get_by_role("alert")).to_have_count(0)


def test_settings_are_found_by_name_and_the_search_survives_a_reload(dashboards: Dashboards) -> None:
    page = dashboards.open("/config")
    page.get_by_label("Find a setting").fill("idle_ttl")
    for _ in range(2):
        expect(page.locator("[data-setting]")).to_have_count(1)
        expect(setting(page, "pools.default.idle_ttl_s")).to_be_visible()
        page.reload()
    page.get_by_label("Find a setting").fill("no such thing")
    expect(page.locator('[data-state="empty"]')).to_contain_text("No setting fits")


def test_another_nodes_settings_can_be_asked_for_and_one_that_is_gone_is_said_to_be(dashboards: Dashboards) -> None:
    page = dashboards.window()
    known = {"url": "", "state": "up", "epoch": 1, "startedAt": "2025-01-01T00:00:00.000Z", "sessions": 0}
    nodes = [{"nodeId": "nod_here", "isSelf": True, **known}, {"nodeId": "nod_there", "isSelf": False, **known}]
    page.route("**/nodes", lambda route: route.fulfill(json={"nodes": nodes}))
    page.goto(f"{dashboards.url}/#token={dashboards.server.admin_token}")
    page.locator(".frame").wait_for()
    dashboards.go(page, "/config")
    with page.expect_request("**/config?node=nod_there"):
        page.get_by_label("Node", exact=True).select_option("nod_there")
    expect(page.locator('[data-state="empty"]')).to_contain_text("That node is not there")
    page.get_by_role("button", name="This node").click()
    expect(setting(page, "gate.timeout_ms")).to_be_visible()


def test_the_settings_are_not_for_agents(dashboards: Dashboards, server: Server) -> None:
    page = dashboards.open("/config", token=server.token_of("eve"))
    expect(page.locator('[data-state="forbidden"]')).to_contain_text("The configuration is not for this token")
    expect(page.locator("[data-setting]")).to_have_count(0)


def test_markup_in_a_setting_stays_text(dashboards: Dashboards, admin: httpx.Client) -> None:
    admin.patch("/config", json={"server": {"allowed_hosts": [MARKUP]}}).raise_for_status()
    page = dashboards.open("/config?text=allowed_hosts")
    expect(setting(page, "server.allowed_hosts").locator("code")).to_have_text(MARKUP)
    assert page.evaluate("[window.stolen ?? null, document.images.length]") == [None, 0]


def test_on_a_phone_nothing_is_cut_off_not_even_while_a_setting_is_changed(dashboards: Dashboards) -> None:
    page = dashboards.open("/config", size=PHONE)
    setting(page, "pools.default.flags").get_by_role("button", name="Change pools.default.flags").click()
    expect(setting(page, "pools.default.flags").get_by_label("pools.default.flags", exact=True)).to_be_visible()
    assert overflow(page) == []
