"""Browsers are cattle: killed, hung or slow, callers notice at most a typed error and a short wait."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .conftest import SPARING, Server, act, browser_pids, is_alive, kill_browser, open_session, with_settings

pytestmark = [pytest.mark.server, pytest.mark.browser]

# How long the killer goes on; the soak goes on for a minute.
KILLING_S = float(os.environ.get("KILLING_S", "3"))
# How much longer, until enough callers have been served.
PATIENCE_S = 60.0
# As many callers tell whether those who come are served.
SERVED_MIN = 20


def test_a_stopped_browser_is_found_out_killed_and_replaced(tmp_path: Path) -> None:
    hasty = SPARING | {"POOLS__DEFAULT__PROBE_LIMIT_MS": "1000"}
    with (
        with_settings(tmp_path / "state", hasty) as server,
        server.client() as admin,
        ThreadPoolExecutor(2) as callers,
    ):
        tab_id = open_session(admin, agentId="ada")["tabs"][0]["tabId"]
        (pid,) = browser_pids(admin)
        os.kill(pid, signal.SIGSTOP)
        patient = {"waitPolicy": "wait_with_timeout", "timeoutMs": 60_000}
        answers = [callers.submit(act, admin, tab_id, "evaluate", expression="1", **patient) for _ in range(2)]
        # Neither waits for its own timeout: one had been sent, the other one waited for its turn.
        codes = sorted(answer.result(timeout=50).json()["code"] for answer in answers)
        assert codes == ["browser_crashed", "outcome_unknown"]
        assert open_session(admin, agentId="ada")["state"] == "active"


def test_callers_are_served_or_refused_while_browsers_are_killed_under_them(own_server_of_two: Server) -> None:
    """50 callers on 2 browsers, which are killed one after the other: nobody hangs, nothing is left, counts agree."""
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

    def kill_one_after_the_other() -> None:
        """One a second; later, where a busy machine takes longer than that to start the next and serve from it."""
        chance, opened_before = random.Random(0), 0
        with server.client() as client:
            while not is_over.wait(1.0):
                if outcomes["opened"] > opened_before and (pids := browser_pids(client)):
                    opened_before = outcomes["opened"]
                    kill_browser(chance.choice(pids))

    with ThreadPoolExecutor(51) as callers:
        killer = callers.submit(kill_one_after_the_other)
        users = [callers.submit(use, number) for number in range(50)]
        over_at = time.monotonic() + KILLING_S
        # On a busy machine it takes as long as it takes until enough have been served to tell.
        while time.monotonic() < over_at or (
            outcomes["opened"] <= SERVED_MIN and time.monotonic() < over_at + PATIENCE_S
        ):
            time.sleep(0.1)
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
        # Its page is being opened again in another browser.
        "tab_busy",
    }
    assert set(outcomes) <= allowed, outcomes
    assert outcomes["opened"] > SERVED_MIN
    with server.client() as admin:
        for state in ("active", "recovering"):
            for session in admin.get("/sessions", params={"state": state, "limit": 500}).json()["sessions"]:
                admin.delete(f"/sessions/{session['sessionId']}")
        # Everything was given back: as many sessions as the cap can be opened again.
        # Kept, or on a busy machine the first would be reaped for its silence before the last is open.
        again = [open_session(admin, agentId="last", keepAlive=True) for _ in range(6)]
        refused = admin.post("/sessions", json={"agentId": "last", "waitMs": 0})
        assert (refused.status_code, refused.json()["details"]["count"]) == (429, 6)
        for session in again:
            admin.delete(f"/sessions/{session['sessionId']}")
        known = set(browser_pids(admin))
        assert {p.pid for p in server.browsers() if is_alive(p) and "--type=" not in " ".join(p.cmdline())} <= known


@pytest.fixture
def own_server_of_two(tmp_path: Path) -> Iterator[Server]:
    # The breaker would, rightly, stop starting browsers that die every second. And a session that its caller forgot
    # outlives its browser: only its silence ends it.
    pool = {"browsers_min": 2, "browsers_max": 2, "sessions_per_browser": 3, "warm": 1, "breaker_crashes": 1_000}
    pool |= {"idle_ttl_s": 1}
    with with_settings(tmp_path / "state", {"POOLS__DEFAULT__" + k.upper(): str(v) for k, v in pool.items()}) as server:
        yield server
