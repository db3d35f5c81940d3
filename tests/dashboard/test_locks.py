"""The page of locks: who has which name and who waits, tab locks, what the backend knows, and freeing one by force."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from .crowd import Crowd, tab_of
from .rig import Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]

NAME = "account:shop"


def row(page: Page, kind: str, key: str) -> Locator:
    return page.locator(f"[data-locks={kind}] .rows .row").filter(has_text=key)


def test_a_lock_shows_its_holder_and_who_waits_and_is_freed_by_force_only_by_a_yes(
    crowd: Crowd, dashboards: Dashboards
) -> None:
    page = dashboards.open("/locks")
    expect(page.locator("[data-locks=named]")).to_contain_text("No named lock is held")
    held = crowd.take(NAME, "ada", controllerId="worker")
    for words in ("ada/worker", f"{held['fence']}"):
        expect(row(page, "named", NAME)).to_contain_text(words)
    bob, cyd = [crowd.ask(NAME, name) for name in ("bob", "cyd")]
    # That somebody waits is no event.
    page.reload()
    expect(row(page, "named", NAME).locator(".badge")).to_have_text("2")
    page.get_by_role("button", name=f"Free {NAME}").click()
    expect(page.get_by_role("dialog")).to_contain_text("ada/worker loses it at once")
    page.get_by_role("button", name="Keep as it is").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert crowd.agent("ada").post(f"/locks/{NAME}/renew", json={"ticket": held["ticket"]}).is_success
    page.get_by_role("button", name=f"Free {NAME}").click()
    page.locator("[data-confirm]").click()
    second = bob.result().json()
    assert second["fence"] > held["fence"]
    expect(row(page, "named", NAME)).to_contain_text("bob")
    lost = crowd.agent("ada").post(f"/locks/{NAME}/renew", json={"ticket": held["ticket"]})
    assert lost.json()["code"] == "lock_lost"
    # One that passed on while one decided is not freed.
    page.get_by_role("button", name=f"Free {NAME}").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    crowd.agent("bob").delete(f"/locks/{NAME}", params={"ticket": second["ticket"]}).raise_for_status()
    third = cyd.result().json()
    page.locator("[data-confirm]").click()
    expect(page.locator(".toast.bad")).to_contain_text("somebody else's by now")
    assert crowd.agent("cyd").post(f"/locks/{NAME}/renew", json={"ticket": third["ticket"]}).is_success


def test_tab_locks_are_listed_and_freed_by_force(crowd: Crowd, dashboards: Dashboards) -> None:
    session = crowd.open("ada", "Orders", access="shared")
    crowd.lock(session, "ada", controllerId="writer")
    waiting = crowd.wait(session, "bob")
    page = dashboards.open("/locks")
    expect(row(page, "tab", "Orders")).to_contain_text("ada/writer")
    page.get_by_role("button", name="Free the lock on Orders").click()
    page.locator("[data-confirm]").click()
    assert waiting.result().json()["ok"]
    expect(page.locator("[data-locks=tab]")).to_contain_text("No tab is locked.")
    assert crowd.tab(tab_of(session))["holder"] is None


def test_who_keeps_finding_a_lock_busy_is_marked_as_starving_and_no_agent_is_told_who_has_it(
    crowd: Crowd, dashboards: Dashboards
) -> None:
    crowd.take(NAME, "ada")
    crowd.take("mine", "bob")
    page = dashboards.open("/locks")
    expect(row(page, "advisory", NAME)).to_contain_text("ada")
    expect(row(page, "advisory", NAME)).not_to_contain_text("starving")
    for _ in range(10):
        crowd.agent("bob").post(f"/locks/{NAME}", json={"skip": True}).raise_for_status()
    page.reload()
    expect(row(page, "advisory", NAME)).to_contain_text("starving")
    theirs = dashboards.open("/locks", token=crowd.tokens["bob"])
    expect(row(theirs, "named", NAME)).to_contain_text("another agent")
    expect(row(theirs, "named", NAME)).not_to_contain_text("ada")
    expect(row(theirs, "named", "mine")).to_contain_text("bob")
    expect(theirs.locator("[data-act=free]")).to_have_count(0)
