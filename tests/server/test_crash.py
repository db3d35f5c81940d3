"""Browsers are cattle: killed, hung or slow, callers notice at most a typed error and a short wait."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from .conftest import Server, act, is_alive, open_session, with_settings

pytestmark = [pytest.mark.server, pytest.mark.browser]

# How long the killer goes on; the soak goes on for a minute.
KILLING_S = float(os.environ.get("KILLING_S", "12"))


def browser_pids(client: httpx.Client) -> list[int]:
    return [b["pid"] for b in client.get("/browsers").json()["browsers"] if b["state"] in ("ready", "draining")]


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def test_sessions_of_a_killed_browser_are_lost_with_a_reason_and_waiters_are_served(own_server: Server) -> None:
    with own_server.client() as admin:
        session = open_session(admin, agentId="ada")
        first = admin.get("/browsers").json()["browsers"][0]
        kill(first["pid"])
        # No retry and no error: the request waits for the replacement.
        fresh = open_session(admin, agentId="ada")
        assert act(admin, fresh["tabs"][0]["tabId"], "evaluate", expression="1").json()["result"] == 1
        lost = admin.get(f"/sessions/{session['sessionId']}").json()
        assert lost["state"] == "lost"
        gone = act(admin, session["tabs"][0]["tabId"], "text")
        assert (gone.status_code, gone.json()["code"]) == (409, "lease_lost")
        assert gone.json()["details"]["reason"] == "browser_crashed"
        assert first["browserId"] not in [b["browserId"] for b in admin.get("/browsers").json()["browsers"]]


def test_the_loss_of_a_session_is_told_as_an_event(own_server: Server) -> None:
    with own_server.client() as admin, own_server.client() as listener:
        session = open_session(admin, agentId="ada")
        with listener.stream("GET", "/events", params={"types": "session_lost"}) as events:
            lines = events.iter_lines()
            kill(browser_pids(admin)[0])
            told = next(line for line in lines if line.startswith("data:"))
        assert session["sessionId"] in told
        assert "browser_crashed" in told


def test_a_stopped_browser_is_found_out_killed_and_replaced(own_server: Server) -> None:
    with own_server.client() as admin, ThreadPoolExecutor(2) as callers:
        tab_id = open_session(admin, agentId="ada")["tabs"][0]["tabId"]
        (pid,) = browser_pids(admin)
        os.kill(pid, signal.SIGSTOP)
        patient = {"waitPolicy": "wait_with_timeout", "timeoutMs": 60_000}
        answers = [callers.submit(act, admin, tab_id, "evaluate", expression="1", **patient) for _ in range(2)]
        # Neither waits for its own timeout: one had been sent, the other one waited for its turn.
        codes = sorted(answer.result(timeout=30).json()["code"] for answer in answers)
        assert codes == ["browser_crashed", "outcome_unknown"]
        assert open_session(admin, agentId="ada")["state"] == "active"


def test_a_crashed_renderer_takes_only_its_own_tab_along(own_server: Server) -> None:
    with own_server.client() as admin:
        mine = open_session(admin, agentId="ada")["tabs"][0]["tabId"]
        other = open_session(admin, agentId="bob")["tabs"][0]["tabId"]
        (pid,) = browser_pids(admin)
        before = {child.pid: child.cpu_times().user for child in renderers(pid)}
        # Busy for a moment, so that its process can be told from the others.
        act(admin, mine, "evaluate", expression="for (const end = performance.now() + 500; performance.now() < end;);")
        busiest = max(renderers(pid), key=lambda child: child.cpu_times().user - before.get(child.pid, 0.0))
        os.kill(busiest.pid, signal.SIGSEGV)
        while (crashed := act(admin, mine, "evaluate", expression="1")).status_code == 200:
            time.sleep(0.01)
        assert crashed.json()["code"] in ("tab_dead", "outcome_unknown")
        assert browser_pids(admin) == [pid]
        assert act(admin, other, "evaluate", expression="2").json()["result"] == 2


def renderers(pid: int) -> list[psutil.Process]:
    children = psutil.Process(pid).children(recursive=True)
    return [child for child in children if "--type=renderer" in child.cmdline()]


def test_callers_are_served_or_refused_while_browsers_are_killed_under_them(own_server_of_two: Server) -> None:
    """50 callers on 2 browsers, one of which is killed every second: nobody hangs, nothing is left, counts agree."""
    server = own_server_of_two
    outcomes: Counter[str] = Counter()
    is_over = threading.Event()

    def use(number: int) -> None:
        chance = random.Random(number)
        with server.client() as client:
            while not is_over.is_set():
                opened = client.post("/sessions", json={"agentId": f"a{number % 10}", "waitMs": 5_000})
                if opened.status_code != 201:
                    outcomes[opened.json()["code"]] += 1
                    continue
                outcomes["opened"] += 1
                session = opened.json()
                done = act(client, session["tabs"][0]["tabId"], "evaluate", expression="1 + 1")
                outcomes["acted" if done.status_code == 200 else done.json()["code"]] += 1
                if chance.random() < 0.9:
                    released = client.delete(f"/sessions/{session['sessionId']}")
                    outcomes["released" if released.status_code == 204 else released.json()["code"]] += 1

    def kill_one_every_second() -> None:
        with server.client() as client:
            while not is_over.wait(1.0):
                if pids := browser_pids(client):
                    kill(random.choice(pids))

    with ThreadPoolExecutor(51) as callers:
        killer = callers.submit(kill_one_every_second)
        users = [callers.submit(use, number) for number in range(50)]
        time.sleep(KILLING_S)
        is_over.set()
        for user in users:
            user.result(timeout=60)
        killer.result(timeout=60)
    allowed = {
        "opened",
        "acted",
        "released",
        "capacity",
        "no_browser",
        "browser_crashed",
        "outcome_unknown",
        "lease_lost",
    }
    assert set(outcomes) <= allowed, outcomes
    assert outcomes["opened"] > 50
    with server.client() as admin:
        for session in admin.get("/sessions", params={"state": "active", "limit": 500}).json()["sessions"]:
            admin.delete(f"/sessions/{session['sessionId']}")
        # Everything was given back: as many sessions as the cap can be opened again.
        again = [open_session(admin, agentId="last") for _ in range(6)]
        refused = admin.post("/sessions", json={"agentId": "last", "waitMs": 0})
        assert (refused.status_code, refused.json()["details"]["count"]) == (429, 6)
        for session in again:
            admin.delete(f"/sessions/{session['sessionId']}")
        known = set(browser_pids(admin))
        assert {p.pid for p in server.browsers() if is_alive(p) and "--type=" not in " ".join(p.cmdline())} <= known


@pytest.fixture
def own_server_of_two(tmp_path: Path) -> Iterator[Server]:
    # The breaker would, rightly, stop starting browsers that die every second.
    pool = {"browsers_min": 2, "browsers_max": 2, "sessions_per_browser": 3, "warm": 1, "breaker_crashes": 1_000}
    with with_settings(tmp_path / "state", {"POOLS__DEFAULT__" + k.upper(): str(v) for k, v in pool.items()}) as server:
        yield server
