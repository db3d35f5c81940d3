"""Who gets in, how, and what a page elsewhere can do with a login: nothing."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import expect

from .rig import PHONE, Dashboards

pytestmark = [pytest.mark.server, pytest.mark.browser]


def test_a_person_logs_in_with_a_token_and_stays_in_after_a_reload(dashboards: Dashboards) -> None:
    page = dashboards.window(size=PHONE)
    page.goto(dashboards.url)
    page.get_by_label("Token").fill(dashboards.server.admin_token)
    page.keyboard.press("Enter")
    expect(page.locator(".connection.live")).to_be_visible()
    page.reload()
    expect(page.locator(".connection.live")).to_be_visible()


def test_a_wrong_token_is_refused_in_words(dashboards: Dashboards) -> None:
    page = dashboards.window()
    page.goto(dashboards.url)
    page.get_by_label("Token").fill("th_wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("The token is not valid.")


def test_an_address_with_a_token_logs_in_and_forgets_it(dashboards: Dashboards) -> None:
    page = dashboards.open()
    expect(page.locator(".who")).to_have_text("admin")
    assert "th_" not in page.url
    assert "th_" not in page.evaluate("JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}])")


def test_an_address_with_a_token_does_not_turn_somebody_into_somebody_else(dashboards: Dashboards) -> None:
    page = dashboards.open()
    page.goto("about:blank")
    page.goto(f"{dashboards.url}/#token={dashboards.server.token_of('mallory')}")
    expect(page.locator(".who")).to_have_text("admin")


def test_logging_out_forgets_the_login(dashboards: Dashboards) -> None:
    page = dashboards.open()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.context.cookies() == []
    page.reload()
    expect(page.get_by_label("Token")).to_be_visible()


def test_the_cookie_is_out_of_reach_of_scripts_and_of_other_sites(dashboards: Dashboards) -> None:
    page = dashboards.open()
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    assert page.evaluate("document.cookie") == ""


def test_the_cookie_alone_opens_nothing(dashboards: Dashboards) -> None:
    # Every program on this host hears it, whatever its port.
    page = dashboards.open()
    (cookie,) = page.context.cookies()
    with httpx.Client(base_url=dashboards.url, cookies={cookie["name"]: cookie["value"]}) as thief:
        assert thief.get("/sessions").status_code == 401
        assert thief.get("/json/list").status_code == 401
        assert thief.get("/sessions", headers={"X-Csrf-Token": "0" * 64}).status_code == 401
        word = page.evaluate("localStorage['tabherd.csrf']")
        assert thief.get("/sessions", headers={"X-Csrf-Token": word}).status_code == 200


def test_the_page_runs_nothing_but_its_own_files(dashboards: Dashboards) -> None:
    answer = httpx.get(dashboards.url)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
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
