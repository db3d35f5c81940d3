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

from tabherd import errors

from .looking import overflow
from .rig import PHONE, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]

MARKUP = "<img src=x onerror=\"window.stolen = 'yes'\"><b>bold</b>"
MANY = 2_000


class Workshop(NamedTuple):
    """A tab of ada's on a site whose scripts end when the site says so: what is submitted after one of them waits."""

    admin: httpx.Client
    site: EffectsSite
    tab_id: str

    def submit(self, expression: str = "1", **fields: Any) -> str:
        return submit(self.admin, expression, agentId="ada", tabId=self.tab_id, **fields)

    def hold(self) -> str:
        """A task that runs until the site is opened."""
        task_id = self.submit(held("holder"))
        until_running(self.admin, task_id)
        return task_id


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def workshop(admin: httpx.Client) -> Iterator[Workshop]:
    with serving(EffectsSite()) as site:
        session = open_session(admin, agentId="ada", url=site.url())
        try:
            yield Workshop(admin, site, session["tabs"][0]["tabId"])
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


# --- Following --------------------------------------------------------------------------------------------------


def test_a_task_that_is_submitted_elsewhere_appears_and_finishes_while_one_looks(
    dashboards: Dashboards, workshop: Workshop
) -> None:
    page = dashboards.open("/tasks")
    expect(page.locator(".connection.live")).to_be_visible()
    task_id = workshop.submit(held("holder"))
    expect(row(page, task_id).locator(".badge")).to_have_text("running")
    workshop.site.is_open.set()
    expect(row(page, task_id).locator(".badge")).to_have_text("done")


def test_tasks_that_wait_are_shown_in_the_order_in_which_they_start(dashboards: Dashboards, workshop: Workshop) -> None:
    first = workshop.hold()
    later, sooner = workshop.submit(priority=5), workshop.submit(priority=1)
    page = dashboards.open("/tasks?order=start")
    expect(row(page, sooner)).to_contain_text("number 1")
    expect(row(page, later)).to_contain_text("number 2")
    keys = page.locator(".rows [data-key]").evaluate_all("rows => rows.map((row) => row.dataset.key)")
    assert keys[:3] == [first, sooner, later]


def test_who_has_tasks_in_the_queue_is_told_and_can_be_chosen(dashboards: Dashboards, workshop: Workshop) -> None:
    workshop.hold()
    waiting = workshop.submit()
    other = submit(workshop.admin, "1", agentId="bob")
    page = dashboards.open("/tasks")
    expect(row(page, other)).to_be_visible()
    page.locator('[data-agent="ada"]').click()
    expect(page.locator('[data-agent="ada"]')).to_contain_text("1 waiting, 1 running")
    expect(row(page, waiting)).to_be_visible()
    expect(row(page, other)).to_have_count(0)


def test_a_scheduler_that_is_switched_off_is_said_to_be(dashboards: Dashboards, admin: httpx.Client) -> None:
    page = dashboards.open("/tasks")
    admin.patch("/config", json={"scheduler": {"enabled": False}}).raise_for_status()
    try:
        expect(page.get_by_text("The scheduler is switched off")).to_be_visible()
    finally:
        admin.patch("/config", json={"scheduler": {"enabled": True}}).raise_for_status()
    expect(page.get_by_text("The scheduler is switched off")).to_have_count(0)


def test_an_agent_sees_its_own_tasks_and_no_others(dashboards: Dashboards, server: Server, admin: httpx.Client) -> None:
    mine, other = submit(admin, "1", agentId="eve"), submit(admin, "1", agentId="ada")
    page = dashboards.open("/tasks", token=server.token_of("eve"))
    expect(row(page, mine)).to_be_visible()
    expect(row(page, other)).to_have_count(0)
    expect(page.get_by_label("Agent", exact=True)).to_have_count(0)


# --- Finding ----------------------------------------------------------------------------------------------------


def test_filters_by_state_and_agent_survive_a_reload(dashboards: Dashboards, admin: httpx.Client) -> None:
    done, failed = submit(admin, "1", agentId="finn"), submit(admin, "throw new Error('no')", agentId="finn")
    other = submit(admin, "throw new Error('no')", agentId="ada")
    for task_id in (done, failed, other):
        ended(admin, task_id)
    page = dashboards.open("/tasks")
    page.get_by_label("State", exact=True).select_option("failed")
    page.get_by_label("Agent", exact=True).select_option("finn")
    assert page.url.endswith("#/tasks?state=failed&agent=finn")
    for _ in range(2):
        expect(row(page, failed)).to_be_visible()
        expect(row(page, done)).to_have_count(0)
        expect(row(page, other)).to_have_count(0)
        page.reload()


def test_text_is_found_in_ids_and_in_addresses_and_typing_keeps_the_focus(
    dashboards: Dashboards, admin: httpx.Client
) -> None:
    wanted = admin.post("/tasks", json={"action": "navigate", "params": {"url": "data:text/html,needle"}}).json()
    other = submit(admin, "1")
    page = dashboards.open("/tasks")
    expect(row(page, other)).to_be_visible()
    page.locator("main").press("/")
    page.keyboard.type("NEEDLE")
    expect(row(page, other)).to_have_count(0)
    expect(row(page, wanted["taskId"])).to_be_visible()
    page.get_by_label("Find id, action, address").fill(other)
    expect(row(page, other)).to_be_visible()
    page.get_by_label("Find id, action, address").fill("nothing is like this")
    expect(page.locator('[data-state="empty"]')).to_contain_text("No task fits")
    page.locator('[data-state="empty"]').get_by_role("button", name="Clear filters").click()
    expect(row(page, other)).to_be_visible()


# --- Cancelling -------------------------------------------------------------------------------------------------


def test_a_task_is_cancelled_after_a_yes_and_not_after_a_no(dashboards: Dashboards, workshop: Workshop) -> None:
    task_id = workshop.hold()
    page = dashboards.open(f"/tasks/{task_id}")
    page.get_by_role("button", name="Cancel…").click()
    answer(page, is_yes=False)
    assert look(workshop.admin, task_id)["state"] == "running"
    page.get_by_role("button", name="Cancel…").click()
    answer(page, is_yes=True)
    expect(page.locator(".page header .badge")).to_have_text("cancelled")
    assert look(workshop.admin, task_id)["state"] == "cancelled"


def test_several_tasks_are_cancelled_after_a_question_that_says_how_many(
    dashboards: Dashboards, workshop: Workshop
) -> None:
    running = workshop.hold()
    waiting = [workshop.submit() for _ in range(3)]
    page = dashboards.open("/tasks?agent=ada")
    for task_id in waiting[:2]:
        page.get_by_label(f"Tick {task_id}").check()
    page.get_by_role("button", name="Cancel 2…").click()
    expect(page.get_by_role("dialog")).to_contain_text("Cancel 2 tasks?")
    answer(page, is_yes=True)
    for task_id in waiting[:2]:
        expect(row(page, task_id).locator(".badge")).to_have_text("cancelled")
    states = [look(workshop.admin, task_id)["state"] for task_id in (running, *waiting)]
    assert states == ["running", "cancelled", "cancelled", "queued"]


def test_a_task_is_found_opened_and_cancelled_by_keys_alone(dashboards: Dashboards, workshop: Workshop) -> None:
    task_id = workshop.hold()
    page = dashboards.open("/tasks?agent=ada&state=running")
    expect(row(page, task_id)).to_be_visible()
    page.get_by_label("Tasks, rows").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="evaluate")).to_be_visible()
    page.keyboard.press("x")
    expect(page.get_by_role("dialog")).to_be_visible()
    # The safe answer has the focus.
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".page header .badge")).to_have_text("cancelled")


# --- One task ---------------------------------------------------------------------------------------------------


def test_a_failed_task_says_why_in_its_row_and_what_to_do_on_its_page(
    dashboards: Dashboards, admin: httpx.Client
) -> None:
    # Nothing listens there.
    body = {"action": "navigate", "params": {"url": "http://127.0.0.1:9/"}, "agentId": "ada"}
    task_id = admin.post("/tasks", json=body).json()["taskId"]
    why = ended(admin, task_id)["error"]
    page = dashboards.open("/tasks")
    expect(row(page, task_id)).to_contain_text("navigation_failed")
    expect(row(page, task_id)).to_contain_text(why)
    row(page, task_id).click()
    failure = page.get_by_role("alert")
    expect(failure).to_contain_text(why)
    expect(failure).to_contain_text("navigation_failed")
    expect(failure).to_contain_text(errors.NavigationFailed.next_step)


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


def test_a_screenshot_is_shown_as_a_picture_and_steps_one_by_one(dashboards: Dashboards, admin: httpx.Client) -> None:
    steps = [{"kind": "screenshot"}, {"kind": "evaluate", "expression": "throw new Error('no')"}, {"kind": "text"}]
    task_id = admin.post("/tasks", json={"steps": steps, "agentId": "ada"}).json()["taskId"]
    assert ended(admin, task_id)["code"] == "javascript_error"
    page = dashboards.open(f"/tasks/{task_id}")
    expect(page.locator('[data-step="0"] .badge')).to_have_text("done")
    expect(page.locator('[data-step="1"]')).to_contain_text("javascript_error")
    expect(page.locator('[data-step="2"] .badge')).to_have_text("not reached")
    page.wait_for_function("document.querySelector('[data-step=\"0\"] img')?.naturalWidth > 0")


def test_a_long_result_is_folded_and_not_all_of_it_is_in_the_page(dashboards: Dashboards, admin: httpx.Client) -> None:
    task_id = submit(admin, "'x'.repeat(500_000)", agentId="ada")
    ended(admin, task_id)
    page = dashboards.open(f"/tasks/{task_id}")
    expect(page.locator("details.value")).not_to_have_attribute("open", "")
    page.locator("details.value summary").click()
    expect(page.locator("details.value pre")).to_be_visible()
    assert page.locator("details.value pre").evaluate("pre => pre.textContent.length") == 100_000


def test_a_task_that_nobody_knows_is_explained(dashboards: Dashboards) -> None:
    page = dashboards.open("/tasks/tsk_none")
    expect(page.locator('[data-state="empty"]')).to_contain_text("There is no such task")


def test_a_task_in_the_archive_can_be_looked_at_and_says_where_it_is(
    dashboards: Dashboards, admin: httpx.Client
) -> None:
    task_id = submit(admin, "'kept'", agentId="ada")
    ended(admin, task_id)
    admin.patch("/config", json={"scheduler": {"result_ttl_s": 1}}).raise_for_status()
    try:
        until(lambda: task_id not in admin.get("/tasks", params={"limit": 1_000}).text)
        page = dashboards.open(f"/tasks/{task_id}")
        expect(page.locator("pre")).to_have_text("kept")
        expect(page.get_by_text("it is in the archive")).to_be_visible()
    finally:
        admin.patch("/config", json={"scheduler": {"result_ttl_s": 300}}).raise_for_status()


def test_the_id_of_a_task_is_copied(dashboards: Dashboards, admin: httpx.Client) -> None:
    task_id = submit(admin, "1", agentId="ada")
    page = dashboards.open(f"/tasks/{task_id}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the id of the task").click()
    expect(page.get_by_text("Copied the id of the task.")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == task_id


def test_where_nothing_can_be_copied_a_person_can_do_it_by_hand(dashboards: Dashboards, admin: httpx.Client) -> None:
    task_id = submit(admin, "1", agentId="ada")
    page = dashboards.open(f"/tasks/{task_id}")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.get_by_role("button", name="Copy the id of the task").click()
    expect(page.get_by_role("dialog").get_by_role("textbox")).to_have_value(task_id)


# --- Whatever it is ---------------------------------------------------------------------------------------------


def test_markup_in_what_a_task_is_and_gives_stays_text(dashboards: Dashboards, admin: httpx.Client) -> None:
    steps = [
        {"kind": "navigate", "url": f"data:text/html,{MARKUP}"},
        {"kind": "evaluate", "expression": f"({{given: {MARKUP!r}}})"},
        {"kind": "evaluate", "expression": f"throw new Error({MARKUP!r})"},
    ]
    task_id = admin.post("/tasks", json={"steps": steps, "agentId": "ada"}).json()["taskId"]
    ended(admin, task_id)
    page = dashboards.open("/tasks")
    expect(row(page, task_id)).to_contain_text(MARKUP)
    row(page, task_id).click()
    expect(page.get_by_role("alert")).to_contain_text(MARKUP)
    expect(page.locator('[data-step="1"] pre')).to_contain_text("<b>bold</b>")
    assert page.evaluate("[window.stolen ?? null, document.querySelectorAll('main img').length]") == [None, 0]


def test_on_a_phone_nothing_is_cut_off_and_a_row_says_why_it_failed(
    dashboards: Dashboards, admin: httpx.Client
) -> None:
    task_id = submit(admin, f"throw new Error({'x' * 500!r})", agentId="ada")
    ended(admin, task_id)
    page = dashboards.open("/tasks", size=PHONE)
    expect(row(page, task_id)).to_contain_text("javascript_error")
    assert overflow(page) == []
    row(page, task_id).click()
    expect(page.get_by_role("alert")).to_contain_text("javascript_error")
    assert overflow(page) == []


def test_of_two_thousand_tasks_only_the_rows_in_sight_are_in_the_page_and_those_that_fit_can_be_cancelled(
    dashboards: Dashboards, workshop: Workshop
) -> None:
    admin = workshop.admin
    admin.patch("/config", json={"scheduler": {"queue_max_per_agent": 2 * MANY}}).raise_for_status()
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
        made = admin.post("/tasks/batch", json={"agentId": "ada", "tasks": [some] * 50}).json()
        task_ids += [each["taskId"] for each in made["tasks"]]
    page = dashboards.open("/tasks?agent=ada&state=queued")
    expect(page.locator("header [role=status]").last).to_contain_text("2,000 of")
    assert page.locator(".rows [data-key]").count() < 60
    page.get_by_label("Tasks, rows").focus()
    page.keyboard.press("End")
    expect(row(page, task_ids[0])).to_be_visible()
    assert page.locator(".rows [data-key]").count() < 60

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
    assert admin.get("/scheduler/stats").json()["queue"]["totalQueued"] == MANY - 50
