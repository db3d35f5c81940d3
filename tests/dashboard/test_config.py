"""The settings: where each comes from, changed by a form that asks first, and refused in the server's own words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect
from tests.server.conftest import Server
from tests.server.tasking import until

from .looking import overflow
from .rig import PHONE, WIDE, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]


@pytest.fixture(autouse=True)
def as_before(server: Server, admin: httpx.Client) -> Iterator[None]:
    """The file of settings is as it was, and in force."""
    file = server.state / "tabherd.toml"
    before, settings = file.read_text() if file.exists() else "", admin.get("/config").json()["settings"]
    yield
    file.write_text(before)
    admin.patch("/config", json={"scheduler": {"workers": settings["scheduler"]["workers"]}}).raise_for_status()


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


def test_a_setting_is_shown_with_its_meaning_found_by_name_and_changed_by_a_form(
    dashboards: Dashboards, admin: httpx.Client
) -> None:
    page = dashboards.open("/config", size=PHONE)
    setting(page, "pools.default.flags").get_by_role("button", name="Change pools.default.flags").click()
    expect(setting(page, "pools.default.flags").get_by_label("pools.default.flags", exact=True)).to_be_visible()
    assert overflow(page) == []
    page.set_viewport_size(WIDE)
    expect(setting(page, "gate.lock_lease_ms")).to_contain_text("30000 30 s")
    # A rate is no time.
    expect(setting(page, "auth.rate_per_s")).not_to_contain_text("min")
    expect(setting(page, "gate.lock_lease_ms").locator(".badge")).to_have_text("default")
    expect(setting(page, "pools.default.browsers_max").locator(".badge")).to_have_text("environment")
    expect(setting(page, "pools.default.browsers_max").get_by_role("button")).to_have_count(0)
    expect(page.locator("header .where")).to_contain_text("tabherd.toml")
    # Saying no changes nothing.
    change(page, "gate.tickets_per_tab", "3", is_yes=False)
    assert in_force(admin, "gate", "tickets_per_tab") == 20
    setting(page, "gate.tickets_per_tab").get_by_label("gate.tickets_per_tab", exact=True).press("Escape")
    expect(setting(page, "gate.tickets_per_tab").locator("code")).to_have_text("20")
    change(page, "scheduler.workers", "7")
    expect(page.get_by_text("scheduler.workers is in force.")).to_be_visible()
    expect(setting(page, "scheduler.workers").locator("code")).to_have_text("7")
    expect(setting(page, "scheduler.workers").locator(".badge")).to_have_text("file")
    assert in_force(admin, "scheduler", "workers") == 7
    # Switches and lists are changed in their own way.
    change(page, "scheduler.enabled", "false")
    expect(setting(page, "scheduler.enabled").locator("code")).to_have_text("false")
    change(page, "webhooks.allow_hosts", "one.test, two.test")
    expect(setting(page, "webhooks.allow_hosts").locator("code")).to_have_text("one.test, two.test")
    assert in_force(admin, "scheduler", "enabled") is False
    assert in_force(admin, "webhooks", "allow_hosts") == ["one.test", "two.test"]
    # One is taken out of the file.
    setting(page, "scheduler.enabled").get_by_role("button", name="Change scheduler.enabled").click()
    setting(page, "scheduler.enabled").get_by_role("button", name="Take out of the file").click()
    page.get_by_role("dialog").locator("[data-confirm]").click()
    expect(setting(page, "scheduler.enabled").locator("code")).to_have_text("true")
    # What needs a restart is said to wait for one.
    change(page, "server.log_level", "warning")
    expect(page.locator("[data-waiting]")).to_contain_text("server.log_level")
    expect(setting(page, "server.log_level")).to_contain_text("waits for a restart")
    expect(setting(page, "server.log_level").locator("code")).to_have_text("info")
    # The search survives a reload.
    page.get_by_label("Find a setting").fill("idle_ttl")
    for _ in range(2):
        expect(page.locator("[data-setting]")).to_have_count(1)
        expect(setting(page, "pools.default.idle_ttl_s")).to_be_visible()
        page.reload()
    page.get_by_label("Find a setting").fill("no such thing")
    expect(page.locator('[data-state="empty"]')).to_contain_text("No setting fits")
    dashboards.go(page, "/audit")
    entry = page.locator(".rows [role=row]", has_text="scheduler.workers").first
    expect(entry).to_contain_text("admin")
    expect(entry).to_contain_text("config")


def test_a_value_that_is_refused_is_explained_beside_the_field_and_changes_nothing(
    dashboards: Dashboards, admin: httpx.Client
) -> None:
    before = admin.get("/config").json()
    page = dashboards.open("/config")
    for name, text, why in (
        ("gate.timeout_ms", "0", "Expected `int` >= 1"),
        ("gate.lock_lease_ms", "soon", "Expected `int`"),
        ("pools.default.stale_after_s", "1", "less than two beats"),
    ):
        change(page, name, text)
        expect(setting(page, name).get_by_role("alert")).to_contain_text(why)
        # What was typed is still there to be corrected.
        expect(setting(page, name).get_by_label(name, exact=True)).to_have_value(text)
    name = "pools.default.pinned_hosts"
    setting(page, name).get_by_role("button", name=f"Change {name}").click()
    setting(page, name).get_by_label(name, exact=True).fill("{no")
    setting(page, name).get_by_role("button", name="Save").click()
    expect(setting(page, name).get_by_role("alert")).to_contain_text("That is no JSON")
    assert admin.get("/config").json() == before
    # What is changed elsewhere is shown at once, and what is being typed stays.
    expect(page.locator(".connection.live")).to_be_visible()
    admin.patch("/config", json={"tiers": {"night": 77}}).raise_for_status()
    expect(setting(page, "tiers.night").locator("code")).to_have_text("77")
    expect(setting(page, name).get_by_label(name, exact=True)).to_have_value("{no")


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


def test_a_file_that_was_refused_is_told_with_the_reason(
    dashboards: Dashboards, server: Server, admin: httpx.Client
) -> None:
    file = server.state / "tabherd.toml"
    before = file.read_text() if file.exists() else ""
    file.write_text(f"{before}\n[nonsense]\n")
    try:
        until(lambda: "nonsense" in admin.get("/config").text)
        page = dashboards.open("/config")
        expect(page.get_by_role("alert")).to_contain_text("nonsense")
    finally:
        file.write_text(before)
    until(lambda: "nonsense" not in admin.get("/config").text)
    page.reload()
    expect(setting(page, "gate.timeout_ms")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_another_nodes_settings_can_be_asked_for_and_one_that_is_gone_is_said_to_be(dashboards: Dashboards) -> None:
    page = dashboards.open("/events")
    known = {"url": "", "state": "up", "epoch": 1, "startedAt": "2025-01-01T00:00:00.000Z", "sessions": 0}
    nodes = [{"nodeId": "nod_here", "isSelf": True, **known}, {"nodeId": "nod_there", "isSelf": False, **known}]
    page.route("**/nodes", lambda route: route.fulfill(json={"nodes": nodes}))
    dashboards.go(page, "/config")
    with page.expect_request("**/config?node=nod_there"):
        page.get_by_label("Node", exact=True).select_option("nod_there")
    expect(page.locator('[data-state="empty"]')).to_contain_text("That node is not there")
    page.get_by_role("button", name="This node").click()
    expect(setting(page, "gate.timeout_ms")).to_be_visible()
