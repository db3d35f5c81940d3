"""The broker is killed and started again: browsers, pages, cookies, ids and fences are still there."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import httpx
import pytest

from .conftest import (
    Server,
    act,
    browser_pids,
    is_alive,
    kill_browser,
    open_session,
    renderers,
    value_of,
    wait_while,
    with_settings,
)
from .login_site import LoginSite
from .tasking import until

pytestmark = [pytest.mark.server, pytest.mark.browser]

STOCK = 4


def test_sessions_go_on_with_their_pages_cookies_ids_and_fences(ending_server: Server, site: str) -> None:
    with ending_server.client() as admin:
        sessions = [open_session(admin, agentId=f"a{n}", url=site) for n in range(5)]
        for n, session in enumerate(sessions):
            write = f"window.kept = {n}; document.cookie = 'who=a{n}; max-age=999'; localStorage.who = 'a{n}'; true"
            assert act(admin, session["tabs"][0]["tabId"], "evaluate", expression=write).json()["result"] is True
        browsers = {b["browserId"]: b["pid"] for b in admin.get("/browsers").json()["browsers"]}
    ending_server.kill()
    ending_server.start()
    with ending_server.client() as admin:
        assert {b["browserId"]: b["pid"] for b in admin.get("/browsers").json()["browsers"]} == browsers
        for n, session in enumerate(sessions):
            read = "[window.kept, document.cookie, localStorage.who]"
            tab_id = session["tabs"][0]["tabId"]
            answer = act(admin, tab_id, "evaluate", expression=read, fence=session["fence"])
            assert answer.json()["result"] == [n, f"who=a{n}", f"a{n}"]
            now = admin.get(f"/sessions/{session['sessionId']}").json()
            assert (now["state"], now["fence"]) == ("active", session["fence"])
        assert open_session(admin, agentId="new")["fence"] > max(session["fence"] for session in sessions)


def test_caps_still_count_what_was_open_before(ending_server: Server) -> None:
    with ending_server.client() as admin:
        before = [open_session(admin, agentId="ada") for _ in range(3)]
    ending_server.kill()
    ending_server.start()
    with ending_server.client() as admin:
        stats = admin.get("/stats").json()["pools"]["default"]
        assert stats["active"] == 3
        for session in before:
            assert (
                admin.delete(f"/sessions/{session['sessionId']}", params={"fence": session["fence"]}).status_code == 204
            )
        assert admin.get("/stats").json()["pools"]["default"]["active"] == 0


def test_a_page_at_work_when_the_broker_died_is_replaced_before_the_next_command(ending_server: Server) -> None:
    with ending_server.client() as admin, ThreadPoolExecutor(1) as callers:
        session = open_session(admin, agentId="ada")
        tab_id = session["tabs"][0]["tabId"]
        act(admin, tab_id, "evaluate", expression="window.mark = 'old page'")
        forever = "new Promise(() => { window.spinning = true; })"
        running = callers.submit(
            act, admin, tab_id, "evaluate", expression=forever, waitPolicy="wait_with_timeout", timeoutMs=60_000
        )
        while act(admin, tab_id, "evaluate", expression="1").status_code == 200:
            pass
        ending_server.kill()
        with pytest.raises(httpx.HTTPError):
            running.result(timeout=30)
    ending_server.start()
    with ending_server.client() as admin:
        after = act(admin, tab_id, "evaluate", expression="window.mark ?? null", waitPolicy="wait_with_timeout")
        assert after.json()["result"] is None


@pytest.mark.parametrize("end", ["the power fails", "an orderly stop"])
def test_sessions_that_lost_their_browser_with_the_broker_are_there_again_with_their_logins(
    ending_server: Server, login_site: LoginSite, end: str
) -> None:
    size = {"width": 500, "height": 400}
    with ending_server.client() as admin:
        sessions = [
            open_session(admin, agentId=f"a{n}", url=login_site.url(f"/login/a{n}"), viewport=size) for n in range(3)
        ]
        (browser,) = admin.get("/browsers").json()["browsers"]
        # After a few checkpoints in a row the next one takes its time: an orderly stop must not rely on it.
        for turn in range(4):
            for session in sessions:
                value_of(admin, session["tabs"][0]["tabId"], f"localStorage.draft = 'turn {turn}'")
            if turn < 3 or end == "the power fails":
                ending_server.wait_kept([session["sessionId"] for session in sessions], f"turn {turn}")
    if end == "the power fails":
        ending_server.kill()
        kill_browser(browser["pid"])
    else:
        ending_server.stop()
    ending_server.start()
    with ending_server.client() as admin:
        for n, session in enumerate(sessions):
            tab_id = session["tabs"][0]["tabId"]
            found = value_of(
                admin, tab_id, "[document.body.innerText, localStorage.draft, location.pathname, innerWidth]"
            )
            assert found == [f"Hello, a{n}", "turn 3", f"/home/a{n}", 500]
            now = admin.get(f"/sessions/{session['sessionId']}").json()
            assert (now["state"], now["fence"]) == ("active", session["fence"])
            assert admin.get(f"/tabs/{tab_id}").json()["generation"] == 2
        assert admin.get("/stats").json()["pools"]["default"]["active"] == 3
    assert browser["browserId"] not in ending_server.profiles()


def test_a_session_whose_deadline_passed_while_there_was_no_broker_is_over(ending_server: Server) -> None:
    with ending_server.client() as admin:
        session = open_session(admin, agentId="ada", deadlineMs=4_000)
    ending_server.stop()
    while time.time() < datetime.fromisoformat(session["expiresAt"]).timestamp():
        time.sleep(0.05)
    ending_server.start()
    with ending_server.client() as admin:
        now = admin.get(f"/sessions/{session['sessionId']}").json()
        assert (now["state"], now["endReason"]) == ("closed", "deadline")
        assert admin.get("/stats").json()["pools"]["default"]["active"] == 0


def test_a_context_that_no_row_knows_is_disposed_of(tmp_path: Path) -> None:
    settings = {"POOLS__DEFAULT__WARM": str(STOCK)}
    with with_settings(tmp_path / "state", settings) as own_server:
        with own_server.client() as admin:
            # The warm stock is made of such contexts.
            open_session(admin, agentId="ada")
            wait_while(lambda: stock_of(admin) < STOCK)
        own_server.kill()
        orphans = [process for process in own_server.browsers() if is_alive(process)]
        assert orphans
        own_server.start(settings)
        with own_server.client() as admin:
            wait_while(lambda: stock_of(admin) < STOCK)
            (pid,) = browser_pids(admin)
            # One session and four warm seats; the four of the earlier life go (one spare renderer is Chromium's own).
            until(lambda: len(renderers(pid)) <= 6)


def stock_of(client: httpx.Client) -> int:
    return client.get("/stats").json()["pools"]["default"]["stock"]
