"""The list of tasks and the page of one: followed while they happen, found, and cancelled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect
from tests.server.conftest import Server, open_session, release
from tests.server.effects_site import EffectsSite
from tests.server.local_site import serving
from tests.server.tasking import ended, held, look, submit, until, until_running
from tests.shared_server import unique

from tabherd import errors

from .looking import overflow
from .rig import PHONE, WIDE, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]

MANY = 150


class Workshop(NamedTuple):
    """A tab on a site whose scripts end when the site says so: what is submitted after one of them waits."""

    admin: httpx.Client
    site: EffectsSite
    tab_id: str
    agent: str

    def submit(self, expression: str = "1", **fields: Any) -> str:
        return submit(self.admin, expression, agentId=self.agent, tabId=self.tab_id, **fields)

    def hold(self) -> str:
        """A task that runs until the site is opened."""
        task_id = self.submit(held("holder"))
        until_running(self.admin, task_id)
        return task_id


@pytest.fixture
def workshop(admin: httpx.Client) -> Iterator[Workshop]:
    with serving(EffectsSite()) as site:
        agent = unique("ada")
        session = open_session(admin, agentId=agent, url=site.url())
        try:
            yield Workshop(admin, site, session["tabs"][0]["tabId"], agent)
        finally:
            site.is_open.set()
            release(admin, session)


def row(page: Page, task_id: str) -> Locator:
    return page.locator(f'.rows [data-key="{task_id}"]')


def answer(page: Page, *, is_yes: bool) -> None:
    """What a person says to the question that is asked."""
    dialog = page.get_by_role("dialog")
    if is_yes:
        dialog.locator("[data-confirm]").click()
    else:
        dialog.get_by_role("button", name="Keep as it is").click()
    expect(dialog).to_have_count(0)


def test_tasks_are_followed_while_they_happen_in_the_order_in_which_they_start(
    dashboards: Dashboards, workshop: Workshop
) -> None:
    page = dashboards.open("/tasks")
    expect(page.locator(".connection.live")).to_be_visible()
    first = workshop.submit(held("holder"))
    expect(row(page, first).locator(".badge")).to_have_text("running")
    later, sooner = workshop.submit(priority=5), workshop.submit(priority=1)
    other = submit(workshop.admin, "1", agentId="bob")
    expect(row(page, other)).to_be_visible()
    # Who has tasks in the queue is told and can be chosen.
    page.locator(f'[data-agent="{workshop.agent}"]').click()
    expect(page.locator(f'[data-agent="{workshop.agent}"]')).to_contain_text("2 waiting, 1 running")
    expect(row(page, later)).to_be_visible()
    expect(row(page, other)).to_have_count(0)
    dashboards.go(page, "/tasks?order=start")
    expect(row(page, sooner)).to_contain_text("number 1")
    expect(row(page, later)).to_contain_text("number 2")
    keys = page.locator(".rows [data-key]").evaluate_all("rows => rows.map((row) => row.dataset.key)")
    assert keys[:3] == [first, sooner, later]
    dashboards.go(page, "/tasks")
    workshop.site.is_open.set()
    expect(row(page, first).locator(".badge")).to_have_text("done")
    expect(row(page, later).locator(".badge")).to_have_text("done")


def test_an_agent_sees_its_own_tasks_and_that_the_scheduler_is_switched_off(
    dashboards: Dashboards, server: Server, admin: httpx.Client
) -> None:
    eve = unique("eve")
    mine, other = submit(admin, "1", agentId=eve), submit(admin, "1", agentId="ada")
    ended(admin, other)
    admin.patch("/config", json={"scheduler": {"enabled": False}}).raise_for_status()
    try:
        page = dashboards.open("/tasks", token=server.token_of(eve))
        expect(page.get_by_text("The scheduler is switched off")).to_be_visible()
    finally:
        admin.patch("/config", json={"scheduler": {"enabled": True}}).raise_for_status()
    expect(row(page, mine)).to_be_visible()
    expect(row(page, other)).to_have_count(0)
    expect(page.get_by_label("Agent", exact=True)).to_have_count(0)
    dashboards.go(page, "/tasks/tsk_none")
    expect(page.locator('[data-state="empty"]')).to_contain_text("There is no such task")


def test_a_failed_task_is_found_by_filters_and_says_why_and_what_to_do(
    dashboards: Dashboards, admin: httpx.Client
) -> None:
    finn = unique("finn")
    # Nothing listens there.
    body = {"action": "navigate", "params": {"url": f"http://127.0.0.1:9/{'needle' * 60}"}, "agentId": finn}
    failed = admin.post("/tasks", json=body).json()["taskId"]
    done, other = submit(admin, "1", agentId=finn), submit(admin, "throw new Error('no')", agentId="ada")
    why = ended(admin, failed)["error"]
    for task_id in (done, other):
        ended(admin, task_id)
    page = dashboards.open("/tasks")
    expect(row(page, other)).to_be_visible()
    # Text is found in ids and in addresses, and typing keeps the focus.
    page.locator("main").press("/")
    page.keyboard.type("NEEDLE")
    expect(row(page, other)).to_have_count(0)
    expect(row(page, failed)).to_be_visible()
    page.get_by_label("Find id, action, address").fill(other)
    expect(row(page, other)).to_be_visible()
    page.get_by_label("Find id, action, address").fill("nothing is like this")
    expect(page.locator('[data-state="empty"]')).to_contain_text("No task fits")
    page.locator('[data-state="empty"]').get_by_role("button", name="Clear filters").click()
    page.get_by_label("State", exact=True).select_option("failed")
    page.get_by_label("Agent", exact=True).select_option(finn)
    assert page.url.endswith(f"#/tasks?state=failed&agent={finn}")
    for _ in range(2):
        expect(row(page, failed)).to_contain_text("navigation_failed")
        expect(row(page, done)).to_have_count(0)
        expect(row(page, other)).to_have_count(0)
        page.reload()
    expect(row(page, failed)).to_contain_text(why)
    page.set_viewport_size(PHONE)
    expect(row(page, failed)).to_contain_text("navigation_failed")
    assert overflow(page) == []
    row(page, failed).click()
    for words in (why, "navigation_failed", errors.NavigationFailed.next_step):
        expect(page.get_by_role("alert")).to_contain_text(words)
    assert overflow(page) == []
    page.set_viewport_size(WIDE)
    # Its id is copied; where nothing can be copied a person can do it by hand.
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the id of the task").click()
    expect(page.get_by_text("Copied the id of the task.")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == failed
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.get_by_role("button", name="Copy the id of the task").click()
    expect(page.get_by_role("dialog").get_by_role("textbox")).to_have_value(failed)


def test_a_task_is_cancelled_after_a_yes_and_not_after_a_no_also_by_keys_alone(
    dashboards: Dashboards, workshop: Workshop
) -> None:
    task_id = workshop.hold()
    page = dashboards.open(f"/tasks?agent={workshop.agent}&state=running")
    expect(row(page, task_id)).to_be_visible()
    page.get_by_label("Tasks, rows").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="evaluate")).to_be_visible()
    page.get_by_role("button", name="Cancel…").click()
    answer(page, is_yes=False)
    assert look(workshop.admin, task_id)["state"] == "running"
    page.keyboard.press("x")
    expect(page.get_by_role("dialog")).to_be_visible()
    # The safe answer has the focus.
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".page header .badge")).to_have_text("cancelled")
    assert look(workshop.admin, task_id)["state"] == "cancelled"


def test_the_page_of_a_task_follows_it_to_its_end(dashboards: Dashboards, workshop: Workshop) -> None:
    workshop.hold()
    task_id = workshop.submit("({answer: 42})")
    page = dashboards.open(f"/tasks/{task_id}")
    expect(page.locator(".page header .badge")).to_have_text("queued")
    expect(page.get_by_text("number 1")).to_be_visible()
    workshop.site.is_open.set()
    expect(page.locator(".page header .badge")).to_have_text("done")
    expect(page.locator("pre")).to_contain_text('"answer": 42')
    expect(page.locator('[data-moment="Done"]')).to_contain_text("at work")
    expect(page.get_by_role("button", name="Cancel…")).to_have_count(0)


def test_results_are_shown_as_pictures_steps_and_folded_text_also_from_the_archive(
    dashboards: Dashboards, admin: httpx.Client
) -> None:
    steps = [{"kind": "screenshot"}, {"kind": "evaluate", "expression": "throw new Error('no')"}, {"kind": "text"}]
    task_id = admin.post("/tasks", json={"steps": steps, "agentId": "ada"}).json()["taskId"]
    long = submit(admin, "'x'.repeat(500_000)", agentId="ada")
    assert ended(admin, task_id)["code"] == "javascript_error"
    ended(admin, long)
    page = dashboards.open(f"/tasks/{task_id}")
    expect(page.locator('[data-step="0"] .badge')).to_have_text("done")
    expect(page.locator('[data-step="1"]')).to_contain_text("javascript_error")
    expect(page.locator('[data-step="2"] .badge')).to_have_text("not reached")
    page.wait_for_function("document.querySelector('[data-step=\"0\"] img')?.naturalWidth > 0")
    admin.patch("/config", json={"scheduler": {"result_ttl_s": 1}}).raise_for_status()
    try:
        until(lambda: long not in admin.get("/tasks", params={"limit": 1_000}).text)
        dashboards.go(page, f"/tasks/{long}")
        expect(page.get_by_text("it is in the archive")).to_be_visible()
        expect(page.locator("details.value")).not_to_have_attribute("open", "")
        page.locator("details.value summary").click()
        expect(page.locator("details.value pre")).to_be_visible()
        assert page.locator("details.value pre").evaluate("pre => pre.textContent.length") == 100_000
    finally:
        admin.patch("/config", json={"scheduler": {"result_ttl_s": 300}}).raise_for_status()


def test_of_many_tasks_only_the_rows_in_sight_are_in_the_page_and_those_that_fit_can_be_cancelled(
    dashboards: Dashboards, workshop: Workshop
) -> None:
    admin = workshop.admin
    holder = workshop.hold()
    task = {
        "action": "evaluate",
        "tabId": workshop.tab_id,
        "params": {"expression": "1"},
        "deadline": int(time.time() * 1000) + 3_600_000,
    }
    task_ids: list[str] = []
    for batch in range(MANY // 50):
        some = task if batch else {**task, "action": "html", "params": {}}
        made = admin.post("/tasks/batch", json={"agentId": workshop.agent, "tasks": [some] * 50}).json()
        task_ids += [each["taskId"] for each in made["tasks"]]
    page = dashboards.open(f"/tasks?agent={workshop.agent}&state=queued")
    expect(page.locator("header [role=status]").last).to_contain_text(f"{MANY} of")
    assert page.locator(".rows [data-key]").count() < 60
    page.get_by_label("Tasks, rows").focus()
    page.keyboard.press("End")
    expect(row(page, task_ids[0])).to_be_visible()
    assert page.locator(".rows [data-key]").count() < 60

    # Those that were ticked, after a question that says how many.
    for task_id in task_ids[-2:]:
        page.get_by_label("Find id, action, address").fill(task_id)
        page.get_by_label(f"Tick {task_id}").check()
    page.get_by_role("button", name="Cancel 2…").click()
    expect(page.get_by_role("dialog")).to_contain_text("Cancel 2 tasks?")
    answer(page, is_yes=True)
    until(lambda: [look(admin, task_id)["state"] for task_id in task_ids[-2:]] == ["cancelled"] * 2)
    page.get_by_label("Find id, action, address").fill("html")
    expect(page.locator("header [role=status]").last).to_contain_text("50 of")
    page.get_by_role("button", name="Tick all that are not over").click()
    page.get_by_role("button", name="Cancel 50…").click()
    expect(page.get_by_role("dialog")).to_contain_text("None of them has started.")
    answer(page, is_yes=True)
    expect(page.get_by_text("50 tasks were cancelled.")).to_be_visible()
    expect(page.locator('[data-state="empty"]')).to_contain_text("No task fits")
    page.get_by_label("State", exact=True).select_option("cancelled")
    expect(page.locator("header [role=status]").last).to_contain_text("50 of")
    assert look(admin, holder)["state"] == "running"
    assert admin.get("/scheduler/stats").json()["queue"]["totalQueued"] == MANY - 52
