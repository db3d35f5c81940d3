"""The page of the live view: what it shows in each state, and a person who takes a tab over there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect
from tests.live.site import Site
from tests.server.conftest import Server, act, open_session, value_of
from tests.server.local_site import serving

from .looking import overflow
from .rig import PHONE, WIDE, Dashboards

pytestmark = [pytest.mark.browser, pytest.mark.server]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving(Site()) as live:
        yield live


@pytest.fixture
def tab(admin: httpx.Client, site: Site) -> str:
    """A tab of the agent ada that shows a page with a field and a button."""
    body = {"agentId": "ada", "url": site.url("/page"), "viewport": {"width": 900, "height": 500}, "keepAlive": True}
    return str(open_session(admin, **body)["tabs"][0]["tabId"])


def opened(dashboards: Dashboards, tab: str, **window: Any) -> Page:
    """The live view of that tab, when there is a picture."""
    page = dashboards.open(f"/tabs/{tab}/live", **window)
    expect(page.locator(".live-stage canvas[data-seq]")).to_be_visible()
    return page


def driven(page: Page) -> None:
    """Taken over, and nothing else runs on the tab."""
    page.get_by_role("button", name="Take over").click()
    expect(page.locator(".live-banner[data-driver=you]")).to_contain_text("You drive this tab")


def hurried(page: Page) -> None:
    """From now on no time passes for the hands, so that a gesture is one on however slow a machine."""
    page.evaluate("() => { const now = performance.now(); performance.now = () => now; }")


def place(page: Page, x: float, y: float) -> tuple[float, float]:
    """Where a place of the shown page is in the window."""
    box = page.locator(".live-stage canvas").bounding_box()
    assert box is not None
    return box["x"] + x / 900 * box["width"], box["y"] + y / 500 * box["height"]


def seen(admin: httpx.Client, tab: str, kind: str) -> list[Any]:
    """What the page noticed of that kind, once it is the agents' again."""
    found: list[Any] = json.loads(
        value_of(admin, tab, f"JSON.stringify(seen.filter(([kind]) => kind === {json.dumps(kind)}))")
    )
    return found


def given_back(page: Page) -> None:
    page.get_by_role("button", name="Give back").click()
    expect(page.locator(".live-banner[data-driver=none]")).to_contain_text("Agents have this tab")


def test_a_viewer_sees_the_page_takes_it_over_and_gives_it_back_and_a_click_lands_where_it_was_aimed_at(
    dashboards: Dashboards, admin: httpx.Client, tab: str, site: Site
) -> None:
    page = opened(dashboards, tab)
    expect(page.locator(".live-banner")).to_contain_text("Agents have this tab")
    expect(page.get_by_label("Address")).to_have_value(site.url("/page"))
    expect(page.get_by_role("button", name="Reload")).to_be_disabled()
    # Keys and clicks of who only watches do nothing.
    page.mouse.click(*place(page, 60, 40))
    page.keyboard.type("x")
    driven(page)
    for size in (WIDE, {"width": 1600, "height": 560}, PHONE):
        page.set_viewport_size(size)
        expect(page.locator(".live-stage canvas[data-seq]")).to_be_visible()
        box = page.locator(".live-stage canvas").bounding_box()
        assert box is not None
        assert box["width"] / box["height"] == pytest.approx(900 / 500, rel=0.01)
        for x, y in ((300, 200), (880, 480)):
            page.mouse.click(*place(page, x, y))
    assert overflow(page) == []
    given_back(page)
    clicks = [(one[3], one[4]) for one in seen(admin, tab, "click")]
    # Of a small picture a pixel is several of the page's.
    assert clicks == 3 * [
        (pytest.approx(300, abs=2), pytest.approx(200, abs=2)),
        (pytest.approx(880, abs=2), pytest.approx(480, abs=2)),
    ]
    assert value_of(admin, tab, "field.value") == ""


def test_keys_and_what_is_pasted_go_to_the_page_only_while_driving_and_come_back(
    dashboards: Dashboards, admin: httpx.Client, tab: str
) -> None:
    page = opened(dashboards, tab)
    driven(page)
    page.mouse.click(*place(page, 60, 40))
    page.keyboard.type("Hi there")
    page.evaluate("""() => { const data = new DataTransfer(); data.setData('text/plain', ' päste');
        const paste = new ClipboardEvent('paste', {clipboardData: data, cancelable: true});
        document.activeElement.dispatchEvent(paste); }""")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+Alt+Escape")
    expect(page.get_by_role("button", name="Give back")).to_be_focused()
    page.keyboard.press("t")
    expect(page.locator(".live-banner[data-driver=none]")).to_be_visible()
    assert value_of(admin, tab, "field.value") == "Hi there päste"
    assert value_of(admin, tab, "document.activeElement.id") == "go"


def test_other_buttons_the_wheel_and_fingers_reach_the_page(
    dashboards: Dashboards, admin: httpx.Client, tab: str
) -> None:
    page = opened(dashboards, tab)
    driven(page)
    hurried(page)
    at = place(page, 400, 300)
    page.mouse.click(*at, button="right")
    page.mouse.click(*at, button="middle")
    page.mouse.dblclick(*at)
    page.mouse.wheel(0, 120)
    given_back(page)
    assert [one[2] for one in seen(admin, tab, "mousedown")] == [2, 1, 0, 0]
    assert len(seen(admin, tab, "dblclick")) == 1
    assert len(seen(admin, tab, "wheel")) >= 1
    act(admin, tab, "evaluate", expression="seen.length = 0")
    driven(page)
    finger = page.context.new_cdp_session(page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        places = [{"x": x, "y": y} for x, y in points]
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

    x, y = place(page, 90, 95)
    touch("touchStart", (x, y))
    touch("touchEnd")
    x, y = place(page, 450, 400)
    touch("touchStart", (x, y))
    for step in range(1, 6):
        touch("touchMove", (x, y - 8 * step))
    touch("touchEnd")
    given_back(page)
    assert [one[1] for one in seen(admin, tab, "click")] == ["go"]
    assert len(seen(admin, tab, "wheel")) >= 1


def test_the_address_bar_leads_elsewhere_and_back_and_says_what_is_not_allowed(
    dashboards: Dashboards, admin: httpx.Client, tab: str, site: Site
) -> None:
    admin.post(f"/tabs/{tab}/handoff", json={"by": "captcha, please"}).raise_for_status()
    page = opened(dashboards, tab)
    expect(page.locator(".live-banner")).to_contain_text("Handed over by captcha, please; nobody drives it.")
    given_back(page)
    driven(page)
    page.get_by_label("Address").fill(site.url("/blue"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("blue")
    page.get_by_role("button", name="Back", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("page")
    page.get_by_label("Address").fill("file:///etc/passwd")
    page.keyboard.press("Enter")
    expect(page.locator(".toast.bad")).to_contain_text("file:")
    given_back(page)
    # The end of the tab is shown, and so is one that never was.
    assert act(admin, tab, "close").status_code == 200
    expect(page.locator("[data-state=ended]")).to_contain_text("The tab is closed")
    dashboards.go(page, "/tabs/tab_nowhere/live")
    expect(page.locator("[data-state=ended]")).to_contain_text("No such tab")


def test_who_drives_and_who_waits_is_said_to_all_and_only_force_takes_the_tab(
    dashboards: Dashboards, server: Server, tab: str
) -> None:
    admin_page = opened(dashboards, tab)
    ada_page = opened(dashboards, tab, token=server.token_of("ada"))
    driven(ada_page)
    expect(admin_page.locator(".live-banner[data-driver=other]")).to_contain_text("ada drives this tab")
    admin_page.get_by_role("button", name="Take over").click()
    admin_page.locator("dialog [data-confirm]").click()
    expect(admin_page.locator(".live-banner[data-driver=you]")).to_be_visible()
    expect(ada_page.locator(".live-banner[data-driver=other]")).to_contain_text("admin drives this tab")
    with server.caller("ada") as agent:
        agent.send("POST", f"/tabs/{tab}/action", {"kind": "text", "waitPolicy": "wait_with_timeout"})
        expect(admin_page.locator(".live-banner")).to_contain_text("1 agent waits (ada)")
        given_back(admin_page)
        assert agent.hear().status == 200


def test_the_address_in_a_sessions_answer_leads_to_its_page_once_one_has_logged_in(
    dashboards: Dashboards, admin: httpx.Client, site: Site
) -> None:
    session = open_session(admin, agentId="ada", url=site.url("/page"), keepAlive=True)
    page = dashboards.window()
    page.goto(session["liveUrl"])
    page.get_by_label("Token").fill(dashboards.server.admin_token)
    page.keyboard.press("Enter")
    expect(page.locator(".live-stage canvas[data-seq]")).to_be_visible()
    expect(page.get_by_label("Address")).to_have_value(site.url("/page"))


def test_a_token_without_the_scope_is_told(dashboards: Dashboards, admin: httpx.Client, tab: str) -> None:
    body = {"agentId": "ada", "scopes": ["tasks"]}
    token = admin.post("/agents", json=body).raise_for_status().json()["token"]
    page = dashboards.open(f"/tabs/{tab}/live", token=token)
    expect(page.locator("[data-state=forbidden]")).to_be_visible()


def test_a_lost_connection_is_shown_and_comes_back(dashboards: Dashboards, tab: str) -> None:
    page = dashboards.window()
    page.add_init_script("""(() => { const Real = WebSocket; window.sockets = [];
        window.WebSocket = class extends Real { constructor(...given) {
          if (window.isDown) given[0] = 'ws://127.0.0.1:9/'; super(...given); window.sockets.push(this); } }; })()""")
    page.goto(f"{dashboards.url}/#token={dashboards.server.admin_token}")
    page.locator(".frame").wait_for()
    dashboards.go(page, f"/tabs/{tab}/live")
    expect(page.locator(".live-stage canvas[data-seq]")).to_be_visible()
    page.evaluate("() => { window.isDown = true; window.sockets.at(-1).close(); }")
    expect(page.locator("[data-state=reconnecting]")).to_be_visible()
    expect(page.locator(".live-stage.stale canvas")).to_be_visible()
    page.evaluate("() => { window.isDown = false; }")
    expect(page.locator(".live-banner")).to_be_visible()
