"""What the server leaves behind when it stops, is killed, or loses its browser: nothing."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from tests.cli.running import call

from .conftest import Server, act, is_alive, open_session

pytestmark = [pytest.mark.server, pytest.mark.browser]


def test_stopping_leaves_no_process_no_profile_and_no_open_session(own_server: Server) -> None:
    with own_server.client() as admin:
        session = open_session(admin, agentId="ada")
        act(admin, session["tabs"][0]["tabId"], "navigate", url="data:text/html,hello")
    broker = psutil.Process(own_server.record["pid"])
    assert own_server.browsers()
    assert call(own_server.state, "down").returncode == 0
    assert not is_alive(broker)
    assert own_server.browsers() == []
    assert own_server.profiles() == []
    assert not (own_server.state / "server.json").exists()


def test_after_kill_9_the_next_start_settles_everything(own_server: Server) -> None:
    with own_server.client() as admin:
        session = open_session(admin, agentId="ada")
        command = act(admin, session["tabs"][0]["tabId"], "evaluate", expression="1").json()["commandId"]
    orphans = own_server.browsers()
    assert orphans
    broker = psutil.Process(own_server.record["pid"])
    broker.kill()
    broker.wait()
    assert call(own_server.state, "up", "--detach").returncode == 0
    with own_server.client() as admin:
        assert not any(is_alive(orphan) for orphan in orphans)
        assert admin.get(f"/sessions/{session['sessionId']}").json()["state"] == "closed"
        lost = act(admin, session["tabs"][0]["tabId"], "text")
        assert lost.json()["code"] == "tab_not_found"
        assert admin.get(f"/commands/{command}").json()["outcome"] in ("completed", "outcome_unknown")
        fresh = open_session(admin, agentId="ada")
        assert fresh["fence"] > session["fence"]
    assert len(own_server.profiles()) == 1


def test_a_command_that_runs_when_the_browser_dies_hears_so_at_once(own_server: Server) -> None:
    with own_server.client() as admin, ThreadPoolExecutor(1) as callers:
        tab_id = open_session(admin, agentId="ada")["tabs"][0]["tabId"]
        patient = {"waitPolicy": "wait_with_timeout", "timeoutMs": 60_000}
        running = callers.submit(act, admin, tab_id, "evaluate", expression="new Promise(() => {})", **patient)
        while act(admin, tab_id, "evaluate", expression="1").status_code == 200:
            pass
        os.killpg(admin.get("/browsers").json()["browsers"][0]["pid"], signal.SIGKILL)
        answer = running.result(timeout=30)
        assert (answer.status_code, answer.json()["code"]) == (502, "outcome_unknown")


def test_a_dead_browser_is_replaced_and_its_sessions_end(own_server: Server) -> None:
    with own_server.client() as admin:
        session = open_session(admin, agentId="ada")
        first = admin.get("/browsers").json()["browsers"][0]
        os.killpg(first["pid"], signal.SIGKILL)
        while (answer := admin.post("/sessions", json={"agentId": "ada"})).status_code != 201:
            assert answer.json()["code"] in ("no_browser", "browser_crashed")
        assert admin.get("/browsers").json()["browsers"][0]["browserId"] != first["browserId"]
        assert admin.get(f"/sessions/{session['sessionId']}").json()["state"] == "closed"


def test_a_second_server_on_the_same_state_names_the_first(own_server: Server) -> None:
    second = call(own_server.state, "up", "--json")
    assert second.returncode == 1
    assert str(own_server.record["pid"]) in second.stdout + second.stderr
    assert "state_dir_in_use" in second.stdout + second.stderr
