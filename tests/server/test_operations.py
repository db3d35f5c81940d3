"""What an operator can do to a running server, seen from outside, with real browsers."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.cli.running import call

from .conftest import Server, act, events_of, is_alive, open_session, value_of, with_settings
from .login_site import LoginSite

pytestmark = [pytest.mark.server, pytest.mark.browser]

# How often, every twentieth of a second, the history is looked at before what should be in it is missed.
HISTORY_TRIES = 1_200


def ready_browser(client: httpx.Client) -> dict[str, Any]:
    return next(b for b in client.get("/browsers").json()["browsers"] if b["state"] == "ready")


def test_the_sessions_of_a_restarted_browser_go_on_in_its_replacement(
    own_server: Server, login_site: LoginSite
) -> None:
    with own_server.client() as admin, events_of(own_server, "session_recovered,browser.*") as events:
        session = open_session(admin, agentId="ada", url=login_site.url("/login/ada"))
        own_server.wait_kept([session["sessionId"]], "secret-of-ada")
        old = ready_browser(admin)
        process = psutil.Process(old["pid"])
        answer = admin.post(f"/browsers/{old['browserId']}/restart")
        assert (answer.status_code, answer.json()["sessions"]) == (202, 1)
        by_type: dict[str, Any] = {}
        while "session_recovered" not in by_type:
            event = next(events)
            by_type[event["type"]] = event
        assert by_type["browser.stopped"]["reason"] == "restarted"
        assert by_type["browser.stopped"]["browserId"] == old["browserId"]
        assert by_type["browser.ready"]["browserId"] != old["browserId"]
        recovered = by_type["session_recovered"]
        assert (recovered["sessionId"], recovered["agentId"]) == (session["sessionId"], "ada")
        assert recovered["reason"] == "browser_restarted"
        assert value_of(admin, session["tabs"][0]["tabId"], "document.body.innerText") == "Hello, ada"
        assert not is_alive(process)
        assert "tabherd_browser_crashes_total 0.0" in admin.get("/metrics").text


def test_a_command_that_runs_in_a_restarted_browser_ends_at_once_with_an_unknown_outcome(own_server: Server) -> None:
    with own_server.client() as admin, ThreadPoolExecutor(1) as callers:
        tab_id = open_session(admin, agentId="ada")["tabs"][0]["tabId"]
        patient = {"waitPolicy": "wait_with_timeout", "timeoutMs": 600_000}
        running = callers.submit(act, admin, tab_id, "evaluate", expression="new Promise(() => {})", **patient)
        while act(admin, tab_id, "evaluate", expression="1").status_code == 200:
            pass
        admin.post(f"/browsers/{ready_browser(admin)['browserId']}/restart")
        answer = running.result(timeout=30)
        assert (answer.status_code, answer.json()["code"]) == (502, "outcome_unknown")


def test_a_drained_browser_serves_its_session_to_the_end_while_new_ones_go_to_its_replacement(
    own_server: Server,
) -> None:
    with own_server.client() as admin, events_of(own_server, "browser.*") as events:
        session = open_session(admin, agentId="ada")
        old = ready_browser(admin)
        process = psutil.Process(old["pid"])
        assert admin.post(f"/browsers/{old['browserId']}/drain").status_code == 202
        assert next(events)["type"] == "browser.draining"
        assert next(events)["type"] == "browser.ready"
        open_session(admin, agentId="bob")
        shown = {b["browserId"]: b for b in admin.get("/browsers").json()["browsers"]}
        assert (shown[old["browserId"]]["state"], shown[old["browserId"]]["sessions"]) == ("draining", 1)
        assert act(admin, session["tabs"][0]["tabId"], "evaluate", expression="2").json()["result"] == 2
        assert admin.delete(f"/sessions/{session['sessionId']}").status_code == 204
        ended = next(events)
        assert (ended["type"], ended["reason"], ended["browserId"]) == ("browser.stopped", "drained", old["browserId"])
        process.wait(30)
        assert not is_alive(process)


def test_a_drained_node_refuses_sessions_serves_those_it_has_and_can_be_resumed(own_server: Server) -> None:
    with own_server.client() as admin:
        session = open_session(admin, agentId="ada")
        assert admin.post("/drain").json() == {"draining": True, "sessions": 1}
        refused = admin.post("/sessions", json={"agentId": "bob"})
        assert (refused.status_code, refused.json()["code"]) == (503, "draining")
        assert refused.headers["retry-after"]
        assert admin.get("/ready").status_code == 503
        assert act(admin, session["tabs"][0]["tabId"], "evaluate", expression="3").json()["result"] == 3
        assert admin.delete("/drain").json() == {"draining": False, "sessions": 1}
        assert admin.get("/ready").status_code == 200
        open_session(admin, agentId="bob")


def test_who_waits_for_a_session_hears_of_the_drain_at_once(tmp_path: Path) -> None:
    with with_settings(tmp_path / "state", {"POOLS__DEFAULT__MAX_ACTIVE": "1"}) as server, server.client() as admin:
        open_session(admin, agentId="ada")
        with ThreadPoolExecutor(1) as callers:
            waiting = callers.submit(admin.post, "/sessions", json={"agentId": "bob", "waitMs": 120_000})
            while not admin.get("/stats").json()["pools"]["default"]["waiting"]:
                pass
            admin.post("/drain")
            answer = waiting.result(timeout=60)
        assert (answer.status_code, answer.json()["code"]) == (503, "draining")


def test_a_drained_server_can_be_stopped_from_another_shell(own_server: Server) -> None:
    broker = psutil.Process(own_server.record["pid"])
    drained = call(own_server.state, "drain")
    assert drained.stdout == "Draining: no new session is admitted; open sessions: 0.\n"
    assert json.loads(call(own_server.state, "status", "--json").stdout)["draining"] is True
    assert call(own_server.state, "down").returncode == 0
    assert not is_alive(broker)
    assert own_server.browsers() == []


def test_a_drain_ends_with_the_life_of_the_server(own_server: Server) -> None:
    call(own_server.state, "drain")
    call(own_server.state, "down")
    assert call(own_server.state, "up", "--detach").returncode == 0
    with own_server.client() as admin:
        open_session(admin, agentId="ada")


def test_status_shows_pools_and_browsers_with_what_they_cost(own_server: Server) -> None:
    with own_server.client() as admin:
        open_session(admin, agentId="ada")
        # The first measurement comes a little after the start.
        while ready_browser(admin)["memoryBytes"] is None:
            threading.Event().wait(0.05)
        browser = ready_browser(admin)
    assert browser["memoryBytes"] > 10 << 20
    assert browser["cpuMs"] > 0
    assert browser["processes"] > 1
    told = json.loads(call(own_server.state, "status", "--json").stdout)
    assert told["pools"]["default"]["active"] == 1
    assert told["browsers"][0]["memoryBytes"] > 0
    shown = call(own_server.state, "status").stdout
    assert "Active sessions: 1 (ada 1)." in shown
    assert browser["browserId"] in shown
    assert " MB" in shown
    assert " %" in shown


def test_what_is_done_is_seen_in_the_history_a_moment_later(own_server: Server) -> None:
    with own_server.client() as admin:
        session = open_session(admin, agentId="ada")
        for expression in ("1", "missing()", "2"):
            act(admin, session["tabs"][0]["tabId"], "evaluate", expression=expression)
        for _ in range(HISTORY_TRIES):
            series = admin.get("/history").json()["series"]
            # An interval in which nobody could look is null.
            known = {name: [number for number in numbers if number is not None] for name, numbers in series.items()}
            if sum(known["commandsFailed"]) and known["memoryBytes"]:
                break
            time.sleep(0.05)
        assert 0 < sum(known["commandsFailed"]) < sum(known["commands"])
        assert 0 < known["commandP50Ms"][-1] <= known["commandP95Ms"][-1]
        assert (known["sessions"][-1], known["sessionsWaiting"][-1]) == (1, 0)
        assert known["memoryBytes"][-1] > 10_000_000


def test_the_pool_size_of_the_command_line_is_how_many_browsers_there_are(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert call(state, "up", "--detach", "--pool-size", "2").returncode == 0
    try:
        with Server(state).client() as admin:
            assert [b["state"] for b in admin.get("/browsers").json()["browsers"]] == ["ready", "ready"]
    finally:
        call(state, "down")
