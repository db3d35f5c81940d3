"""The broker is killed and started again: browsers, pages, cookies, ids and fences are still there."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import httpx
import pytest

from .conftest import Server, act, browser_pids, kill_browser, open_session, release, value_of, wait_while
from .effects_site import REPORT, EffectsSite
from .local_site import serving
from .login_site import LoginSite

pytestmark = [pytest.mark.server, pytest.mark.browser]

PATIENT = {"waitPolicy": "wait_with_timeout", "timeoutMs": 60_000}


def test_after_kill_9_sessions_go_on_and_who_comes_early_never_hears_that_they_are_over(
    own_server: Server, site: str
) -> None:
    kept = "[window.kept, document.cookie, localStorage.who]"
    with own_server.client() as admin, serving(EffectsSite()) as effects, ThreadPoolExecutor(1) as aside:
        sessions = [open_session(admin, agentId=f"a{n}", url=site) for n in range(4)]
        tabs = [session["tabs"][0]["tabId"] for session in sessions]
        for n, tab_id in enumerate(tabs):
            write = f"window.kept = {n}; document.cookie = 'who=a{n}; max-age=999'; localStorage.who = 'a{n}'; true"
            assert value_of(admin, tab_id, write) is True
        # A person has the last one.
        admin.post(f"/tabs/{tabs[3]}/handoff", json={}).raise_for_status()
        # A tab that was given back waits for its agent.
        pooled = open_session(admin, agentId="ada", key="k", reuse="same-agent")
        value_of(admin, pooled["tabs"][0]["tabId"], "window.mark = 'pooled'")
        release(admin, pooled, "pool")
        # A page is at work, on a command with a key; another command with a key is over.
        at_work = open_session(admin, agentId="ada", url=effects.url("/field"))["tabs"][0]["tabId"]
        value_of(admin, at_work, "window.mark = 'old page'")
        told = {"expression": "'told'", "idempotencyKey": "order-7"}
        done = act(admin, at_work, "evaluate", **told).json()
        buy = {"expression": f"{REPORT % 'bought'}.then(() => fetch('/hold'))", "idempotencyKey": "order-8"}
        buying = aside.submit(act, admin, at_work, "evaluate", **buy, **PATIENT)
        assert effects.is_held.wait(30)
        browsers = {b["browserId"]: b["pid"] for b in admin.get("/browsers").json()["browsers"]}
        port = str(admin.base_url.port)
        own_server.kill()
        assert isinstance(buying.exception(), httpx.TransportError)

        starting = aside.submit(own_server.start, {"SERVER__PORT": port})
        heard = {"there"}
        while not starting.done():
            try:
                heard.add(admin.get(f"/tabs/{tabs[2]}").json().get("code", "there"))
            except httpx.TransportError:
                # It does not listen yet.
                continue
        starting.result()
        assert heard == {"there"}

        assert {b["browserId"]: b["pid"] for b in admin.get("/browsers").json()["browsers"]} == browsers
        for n in range(3):
            answer = act(admin, tabs[n], "evaluate", expression=kept, fence=sessions[n]["fence"])
            assert answer.json()["result"] == [n, f"who=a{n}", f"a{n}"]
            now = admin.get(f"/sessions/{sessions[n]['sessionId']}").json()
            assert (now["state"], now["fence"]) == ("active", sessions[n]["fence"])
        stats = admin.get("/stats").json()["pools"]["default"]
        assert (stats["active"], stats["pooled"]) == (5, 1)
        assert act(admin, tabs[3], "text").json()["code"] == "tab_paused_handoff"
        admin.post(f"/tabs/{tabs[3]}/resume").raise_for_status()
        assert act(admin, tabs[3], "text").status_code == 200
        again = open_session(admin, agentId="ada", key="k")
        assert again["fence"] > max(session["fence"] for session in (*sessions, pooled))
        assert value_of(admin, again["tabs"][0]["tabId"], "window.mark") == "pooled"

        # What was at work is replaced before the next command, and what nobody saw end is never run again.
        assert value_of(admin, at_work, "window.mark ?? null") is None
        for _ in range(2):
            unknown = act(admin, at_work, "evaluate", **buy, **PATIENT)
            assert (unknown.status_code, unknown.json()["code"]) == (502, "outcome_unknown")
        assert act(admin, at_work, "evaluate", **told).json() == done
        assert effects.count("bought") == 1


def test_sessions_that_lost_their_browser_with_the_broker_are_there_again_with_their_logins(
    own_server: Server, login_site: LoginSite
) -> None:
    server = own_server
    with server.client() as admin:
        size = {"width": 500, "height": 400}
        urls = [login_site.url(f"/login/a{n}") for n in range(2)]
        sessions = [open_session(admin, agentId=f"a{n}", url=url, viewport=size) for n, url in enumerate(urls)]
        over = open_session(admin, agentId="late", deadlineMs=1_000)
        # After a few checkpoints in a row the next one takes its time: an orderly stop must not rely on it.
        for turn in range(3):
            for session in sessions:
                value_of(admin, session["tabs"][0]["tabId"], f"localStorage.draft = 'turn {turn}'")
            if turn < 2:
                server.wait_kept([session["sessionId"] for session in sessions], f"turn {turn}")
        old = admin.get("/browsers").json()["browsers"][0]["browserId"]
    server.stop()
    wait_while(lambda: time.time() < datetime.fromisoformat(over["expiresAt"]).timestamp())
    server.start()
    assert old not in server.profiles()
    with server.client() as admin:
        now = admin.get(f"/sessions/{over['sessionId']}").json()
        assert (now["state"], now["endReason"]) == ("closed", "deadline")
        are_back(admin, sessions, "turn 2", 2)
        for session in sessions:
            value_of(admin, session["tabs"][0]["tabId"], "localStorage.draft = 'before the power failed'")
        server.wait_kept([session["sessionId"] for session in sessions], "before the power failed")
        (pid,) = browser_pids(admin)
    server.kill()
    kill_browser(pid)
    server.start()
    with server.client() as admin:
        are_back(admin, sessions, "before the power failed", 3)


def are_back(admin: httpx.Client, sessions: list[dict[str, Any]], draft: str, generation: int) -> None:
    for n, session in enumerate(sessions):
        tab_id = session["tabs"][0]["tabId"]
        seen = "[document.body.innerText, localStorage.draft, location.pathname, innerWidth]"
        assert value_of(admin, tab_id, seen) == [f"Hello, a{n}", draft, f"/home/a{n}", 500]
        now = admin.get(f"/sessions/{session['sessionId']}").json()
        assert (now["state"], now["fence"]) == ("active", session["fence"])
        assert admin.get(f"/tabs/{tab_id}").json()["generation"] == generation
    assert admin.get("/stats").json()["pools"]["default"]["active"] == len(sessions)
