"""Who gets in, how, and what a page elsewhere can do with a login: nothing. The rules of logins are in tests/edge."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import expect

from .rig import PHONE, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]


def test_a_person_logs_in_with_a_token_stays_in_after_a_reload_and_logs_out(dashboards: Dashboards) -> None:
    page = dashboards.window(size=PHONE)
    page.goto(dashboards.url)
    page.get_by_label("Token").fill("th_wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("The token is not valid.")
    page.get_by_label("Token").fill(dashboards.server.admin_token)
    page.keyboard.press("Enter")
    expect(page.locator(".connection.live")).to_be_visible()
    dashboards.go(page, "/sessions")
    page.reload()
    expect(page.locator(".connection.live")).to_be_visible()
    # A login that ends while something is asked leads to the login and back to where one was.
    page.context.clear_cookies()
    expect(page.get_by_role("alert")).to_have_text("No credential was given.")
    page.get_by_label("Token").fill(dashboards.server.admin_token)
    page.keyboard.press("Enter")
    expect(page.locator("main[data-page='/sessions']")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.context.cookies() == []
    page.reload()
    expect(page.get_by_label("Token")).to_be_visible()


def test_an_address_with_a_token_logs_in_forgets_it_and_turns_nobody_into_somebody_else(
    dashboards: Dashboards,
) -> None:
    page = dashboards.window()
    page.goto(f"{dashboards.url}/#token={dashboards.server.admin_token}")
    expect(page.locator(".who")).to_have_text("admin")
    assert "th_" not in page.url
    assert "th_" not in page.evaluate("JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}])")
    # The cookie is out of reach of scripts, and alone opens nothing: every program on this host hears it.
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    assert page.evaluate("document.cookie") == ""
    with httpx.Client(base_url=dashboards.url, cookies={cookie["name"]: cookie["value"]}) as thief:
        assert thief.get("/sessions").status_code == 401
        word = page.evaluate("localStorage['tabherd.csrf']")
        assert thief.get("/sessions", headers={"X-Csrf-Token": word}).status_code == 200
    page.goto(f"{dashboards.url}/ui/icon.svg")
    page.goto(f"{dashboards.url}/#token={dashboards.server.token_of('mallory')}")
    expect(page.locator(".who")).to_have_text("admin")


def test_the_page_runs_nothing_but_its_own_files(dashboards: Dashboards) -> None:
    page = dashboards.open()
    page.evaluate(
        "document.addEventListener('securitypolicyviolation', (e) => { window.stopped = e.effectiveDirective; })"
    )
    with pytest.raises(Exception, match="TrustedHTML"):
        page.evaluate("() => { document.body.innerHTML = '<img src=x onerror=1>'; }")
    page.evaluate(
        "() => { const s = document.createElement('style'); s.textContent = 'body{}'; document.head.append(s); }"
    )
    page.wait_for_function("window.stopped === 'style-src-elem'")
    dashboards.mistakes[:] = [
        said for said in dashboards.mistakes if not re.search("Trusted|Content Security Policy", said)
    ]
