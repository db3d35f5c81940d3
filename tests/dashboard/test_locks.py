"""The page of locks: who has which name and who waits, tab locks, what the backend knows, and freeing one by force."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.server.conftest import Server

from .crowd import Crowd, crowd_at, tab_of
from .rig import PHONE, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]

NAME = "account:shop"
MARKUP = "<img src=x onerror=\"document.body.dataset.owned='1'\">"


@pytest.fixture
def crowd(server: Server) -> Iterator[Crowd]:
    with crowd_at(server) as crowd:
        yield crowd


def row(page: Page, kind: str, key: str) -> Locator:
    return page.locator(f"[data-locks={kind}] .rows .row").filter(has_text=key)


def test_a_lock_shows_its_holder_its_fence_and_who_waits_as_they_come(crowd: Crowd, dashboards: Dashboards) -> None:
    page = dashboards.open("/locks")
    expect(page.locator("[data-locks=named]")).to_contain_text("No named lock is held")
    held = crowd.take(NAME, "ada", controllerId="worker")
    for words in ("ada/worker", f"{held['fence']}"):
        expect(row(page, "named", NAME)).to_contain_text(words)
    waiting = [crowd.ask(NAME, name) for name in ("bob", "cyd")]
    expect(row(page, "named", NAME).locator(".badge")).to_have_text("2")
    crowd.agent("ada").delete(f"/locks/{NAME}", params={"ticket": held["ticket"]}).raise_for_status()
    expect(row(page, "named", NAME)).to_contain_text("bob")
    assert waiting[0].result().json()["fence"] > held["fence"]


def test_a_lock_is_freed_by_force_only_by_a_yes(crowd: Crowd, dashboards: Dashboards) -> None:
    held = crowd.take(NAME, "ada")
    waiting = crowd.ask(NAME, "bob")
    page = dashboards.open("/locks")
    expect(row(page, "named", NAME)).to_contain_text("ada")
    page.get_by_role("button", name=f"Free {NAME}").click()
    expect(page.get_by_role("dialog")).to_contain_text("ada loses it at once")
    page.get_by_role("button", name="Keep as it is").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    renewed = crowd.agent("ada").post(f"/locks/{NAME}/renew", json={"ticket": held["ticket"]})
    assert renewed.is_success
    page.get_by_role("button", name=f"Free {NAME}").click()
    page.locator("[data-confirm]").click()
    assert waiting.result().json()["fence"] > held["fence"]
    expect(row(page, "named", NAME)).to_contain_text("bob")
    lost = crowd.agent("ada").post(f"/locks/{NAME}/renew", json={"ticket": held["ticket"]})
    assert lost.json()["code"] == "lock_lost"


def test_a_lock_that_passed_on_while_one_decided_is_not_freed(crowd: Crowd, dashboards: Dashboards) -> None:
    first = crowd.take(NAME, "ada")
    waiting = crowd.ask(NAME, "bob")
    page = dashboards.open("/locks")
    page.get_by_role("button", name=f"Free {NAME}").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    crowd.agent("ada").delete(f"/locks/{NAME}", params={"ticket": first["ticket"]}).raise_for_status()
    second = waiting.result().json()
    page.locator("[data-confirm]").click()
    expect(page.locator(".toast.bad")).to_contain_text("somebody else's by now")
    renewed = crowd.agent("bob").post(f"/locks/{NAME}/renew", json={"ticket": second["ticket"]})
    assert renewed.is_success


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


def test_who_keeps_finding_a_lock_busy_is_marked_as_starving(crowd: Crowd, dashboards: Dashboards) -> None:
    crowd.take(NAME, "ada")
    page = dashboards.open("/locks")
    expect(row(page, "advisory", NAME)).to_contain_text("ada")
    expect(row(page, "advisory", NAME)).not_to_contain_text("starving")
    for _ in range(10):
        crowd.agent("bob").post(f"/locks/{NAME}", json={"skip": True}).raise_for_status()
    expect(row(page, "advisory", NAME)).to_contain_text("starving")


def test_an_agent_is_not_told_who_else_has_a_lock_and_frees_none(crowd: Crowd, dashboards: Dashboards) -> None:
    crowd.take(NAME, "ada")
    crowd.take("mine", "bob")
    page = dashboards.open("/locks", token=crowd.tokens["bob"])
    expect(row(page, "named", NAME)).to_contain_text("another agent")
    expect(row(page, "named", NAME)).not_to_contain_text("ada")
    expect(row(page, "named", "mine")).to_contain_text("bob")
    expect(page.locator("[data-act=free]")).to_have_count(0)


def test_the_name_of_a_lock_stays_text(crowd: Crowd, dashboards: Dashboards) -> None:
    crowd.take(MARKUP, "ada")
    page = dashboards.open("/locks")
    expect(row(page, "named", MARKUP)).to_be_visible()
    page.get_by_role("button", name=f"Free {MARKUP}").click()
    expect(page.get_by_role("dialog")).to_contain_text(MARKUP)
    page.locator("[data-confirm]").click()
    expect(row(page, "named", MARKUP)).to_have_count(0)
    assert page.evaluate("document.body.dataset.owned") is None
    assert page.locator("main img, dialog img").count() == 0


def test_nothing_is_wider_than_a_phone(crowd: Crowd, dashboards: Dashboards) -> None:
    crowd.take("a-lock-with-a-rather-long-name-that-does-not-fit-into-a-line-of-a-phone", "ada", controllerId="writer")
    page = dashboards.open("/locks", size=PHONE)
    expect(row(page, "named", "a-lock-with")).to_contain_text("ada/writer")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert (
        page.evaluate("(() => { const m = document.querySelector('main'); return m.scrollWidth - m.clientWidth; })()")
        == 0
    )
