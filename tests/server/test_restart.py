"""The broker is killed and started again: browsers, pages, cookies, ids and fences are still there."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest
from tests.cli.running import call

from .conftest import Server, act, is_alive, open_session

pytestmark = [pytest.mark.server, pytest.mark.browser]


def kill_broker(server: Server) -> None:
    broker = psutil.Process(server.record["pid"])
    broker.kill()
    broker.wait()


def start_broker(server: Server) -> None:
    started = call(server.state, "up", "--detach")
    assert started.returncode == 0, started.stdout + started.stderr


def test_sessions_go_on_with_their_pages_cookies_ids_and_fences(own_server: Server, site: str) -> None:
    with own_server.client() as admin:
        sessions = [open_session(admin, agentId=f"a{n}", url=site) for n in range(5)]
        for n, session in enumerate(sessions):
            write = f"window.kept = {n}; document.cookie = 'who=a{n}; max-age=999'; localStorage.who = 'a{n}'; true"
            assert act(admin, session["tabs"][0]["tabId"], "evaluate", expression=write).json()["result"] is True
        browsers = {b["browserId"]: b["pid"] for b in admin.get("/browsers").json()["browsers"]}
    kill_broker(own_server)
    start_broker(own_server)
    with own_server.client() as admin:
        assert {b["browserId"]: b["pid"] for b in admin.get("/browsers").json()["browsers"]} == browsers
        for n, session in enumerate(sessions):
            read = "[window.kept, document.cookie, localStorage.who]"
            tab_id = session["tabs"][0]["tabId"]
            answer = act(admin, tab_id, "evaluate", expression=read, fence=session["fence"])
            assert answer.json()["result"] == [n, f"who=a{n}", f"a{n}"]
            now = admin.get(f"/sessions/{session['sessionId']}").json()
            assert (now["state"], now["fence"]) == ("active", session["fence"])
        assert open_session(admin, agentId="new")["fence"] > max(session["fence"] for session in sessions)


def test_caps_still_count_what_was_open_before(own_server: Server) -> None:
    with own_server.client() as admin:
        before = [open_session(admin, agentId="ada") for _ in range(3)]
    kill_broker(own_server)
    start_broker(own_server)
    with own_server.client() as admin:
        stats = admin.get("/stats").json()["pools"]["default"]
        assert stats["active"] == 3
        for session in before:
            assert (
                admin.delete(f"/sessions/{session['sessionId']}", params={"fence": session["fence"]}).status_code == 204
            )
        assert admin.get("/stats").json()["pools"]["default"]["active"] == 0


def test_a_page_at_work_when_the_broker_died_is_replaced_before_the_next_command(own_server: Server) -> None:
    with own_server.client() as admin, ThreadPoolExecutor(1) as callers:
        session = open_session(admin, agentId="ada")
        tab_id = session["tabs"][0]["tabId"]
        act(admin, tab_id, "evaluate", expression="window.mark = 'old page'")
        forever = "new Promise(() => { window.spinning = true; })"
        running = callers.submit(
            act, admin, tab_id, "evaluate", expression=forever, waitPolicy="wait_with_timeout", timeoutMs=60_000
        )
        while act(admin, tab_id, "evaluate", expression="1").status_code == 200:
            pass
        kill_broker(own_server)
        with pytest.raises(httpx.HTTPError):
            running.result(timeout=30)
    start_broker(own_server)
    with own_server.client() as admin:
        after = act(admin, tab_id, "evaluate", expression="window.mark ?? null", waitPolicy="wait_with_timeout")
        assert after.json()["result"] is None


def test_a_browser_that_died_meanwhile_is_reaped_and_its_sessions_are_lost(own_server: Server) -> None:
    with own_server.client() as admin:
        session = open_session(admin, agentId="ada")
        (browser,) = admin.get("/browsers").json()["browsers"]
    kill_broker(own_server)
    os.killpg(browser["pid"], signal.SIGKILL)
    start_broker(own_server)
    with own_server.client() as admin:
        assert admin.get(f"/sessions/{session['sessionId']}").json()["state"] == "lost"
        assert open_session(admin, agentId="ada")["state"] == "active"
    assert browser["browserId"] not in own_server.profiles()


def test_a_context_that_no_row_knows_is_disposed_of(own_server: Server) -> None:
    with own_server.client() as admin:
        # The warm stock is made of such contexts.
        open_session(admin, agentId="ada")
        while admin.get("/stats").json()["pools"]["default"]["stock"] < 4:
            pass
    kill_broker(own_server)
    orphans = [process for process in own_server.browsers() if is_alive(process)]
    assert orphans
    start_broker(own_server)
    with own_server.client() as admin:
        while admin.get("/stats").json()["pools"]["default"]["stock"] < 4:
            pass
        (browser,) = admin.get("/browsers").json()["browsers"]
        renderers = [
            child
            for child in psutil.Process(browser["pid"]).children(recursive=True)
            if "--type=renderer" in child.cmdline()
        ]
        # One session and four warm seats; the four of the earlier life are gone (one spare renderer is Chromium's own).
        assert len(renderers) <= 6
