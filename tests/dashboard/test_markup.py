"""What pages, agents and callers call themselves stays text, on every page of the dashboard."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import expect
from tests.server.tasking import ended

from .crowd import Crowd, tab_of
from .rig import Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]

MARKUP = "<img src=x onerror=\"window.stolen = 'yes'\"><b>bold</b>"


def test_markup_stays_text_on_every_page_and_in_every_dialog(
    crowd: Crowd, dashboards: Dashboards, admin: httpx.Client
) -> None:
    page = dashboards.open("/events")
    expect(page.locator(".connection.live")).to_be_visible()
    session = crowd.open("ada", MARKUP, key=MARKUP)
    tab = f"/tabs/{tab_of(session)}"
    admin.post(f"{tab}/handoff", json={"by": MARKUP}).raise_for_status()
    admin.post(f"{tab}/resume").raise_for_status()
    crowd.take(MARKUP, "ada")
    steps = [
        {"kind": "navigate", "url": f"data:text/html,{MARKUP}"},
        {"kind": "evaluate", "expression": f"({{given: {MARKUP!r}}})"},
        {"kind": "evaluate", "expression": f"throw new Error({MARKUP!r})"},
    ]
    task_id = admin.post("/tasks", json={"steps": steps, "agentId": "ada"}).json()["taskId"]
    ended(admin, task_id)
    crowd.lock(session, "ada", controllerId=MARKUP[:40])
    before = admin.get("/config").json()["settings"]["server"]["allowed_hosts"]
    admin.patch("/config", json={"server": {"allowed_hosts": [MARKUP]}}).raise_for_status()
    try:
        expect(page.locator(".rows [role=row]", has_text="tab.paused")).to_contain_text(MARKUP)
        page.locator(".rows .badge", has_text="tab.paused").click()
        expect(page.get_by_role("dialog").locator("pre")).to_contain_text("onerror")
        page.keyboard.press("Escape")
        for path, part in (
            ("/", "main"),
            ("/tabs", f"[data-key={tab_of(session)}]"),
            (f"/sessions?session={session['sessionId']}", f"[data-session={session['sessionId']}]"),
            ("/locks", "[data-locks=named] .rows .row"),
            ("/tasks", f'[data-key="{task_id}"]'),
            (f"/tasks/{task_id}", "main [role=alert]"),
            (f"/audit?tab={tab_of(session)}", ".rows"),
            ("/config?text=allowed_hosts", "[data-setting='server.allowed_hosts'] code"),
            (tab, "h1"),
        ):
            dashboards.go(page, path)
            expect(page.locator(part).first).to_contain_text("onerror")
        for key in "xh":
            page.keyboard.press(key)
            expect(page.get_by_role("dialog")).to_be_visible()
            page.get_by_role("button", name="Keep as it is").click()
        dashboards.go(page, "/locks")
        page.get_by_role("button", name=f"Free {MARKUP}").click()
        expect(page.get_by_role("dialog")).to_contain_text(MARKUP)
        assert page.evaluate("[window.stolen ?? null, document.images.length]") == [None, 0]
        assert page.locator("main b:text-is('bold'), dialog b:text-is('bold')").count() == 0
    finally:
        admin.patch("/config", json={"server": {"allowed_hosts": before}}).raise_for_status()
