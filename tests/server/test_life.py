"""What the server leaves behind when it stops, is killed, or loses its browser: nothing."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from tests.cli.running import call

from .conftest import Server, act, is_alive, open_session, value_of
from .login_site import LoginSite

pytestmark = [pytest.mark.server, pytest.mark.browser]


def test_stopping_leaves_no_process_and_no_profile(ending_server: Server) -> None:
    with ending_server.client() as admin:
        session = open_session(admin, agentId="ada")
        act(admin, session["tabs"][0]["tabId"], "navigate", url="data:text/html,hello")
    broker = psutil.Process(ending_server.record["pid"])
    assert ending_server.browsers()
    assert call(ending_server.state, "down").returncode == 0
    assert not is_alive(broker)
    assert ending_server.browsers() == []
    assert ending_server.profiles() == []
    assert not (ending_server.state / "server.json").exists()


def test_down_also_ends_the_browsers_of_a_server_that_was_killed(ending_server: Server, login_site: LoginSite) -> None:
    with ending_server.client() as admin:
        session = open_session(admin, agentId="ada", url=login_site.url("/login/ada"))
        ending_server.wait_kept([session["sessionId"]], "secret-of-ada")
    orphans = ending_server.browsers()
    ending_server.kill()
    assert any(is_alive(orphan) for orphan in orphans)
    said = call(ending_server.state, "down")
    assert (said.returncode, "Ended 1 browser" in said.stdout) == (0, True)
    assert not any(is_alive(orphan) for orphan in orphans)
    assert ending_server.profiles() == []
    # The session was its owner's, not the browser's: the next server has it.
    ending_server.start()
    with ending_server.client() as admin:
        assert value_of(admin, session["tabs"][0]["tabId"], "document.body.innerText") == "Hello, ada"


def test_a_command_that_runs_when_the_browser_dies_hears_so_at_once(ending_server: Server) -> None:
    with ending_server.client() as admin, ThreadPoolExecutor(1) as callers:
        tab_id = open_session(admin, agentId="ada")["tabs"][0]["tabId"]
        patient = {"waitPolicy": "wait_with_timeout", "timeoutMs": 60_000}
        running = callers.submit(act, admin, tab_id, "evaluate", expression="new Promise(() => {})", **patient)
        while act(admin, tab_id, "evaluate", expression="1").status_code == 200:
            pass
        os.killpg(admin.get("/browsers").json()["browsers"][0]["pid"], signal.SIGKILL)
        answer = running.result(timeout=30)
        assert (answer.status_code, answer.json()["code"]) == (502, "outcome_unknown")


def test_a_second_server_on_the_same_state_names_the_first(ending_server: Server) -> None:
    second = call(ending_server.state, "up", "--json")
    assert second.returncode == 1
    assert str(ending_server.record["pid"]) in second.stdout + second.stderr
    assert "state_dir_in_use" in second.stdout + second.stderr
