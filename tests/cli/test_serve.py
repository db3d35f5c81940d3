"""Starting and stopping: ready means ready, and repeating either changes nothing."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import psutil
import pytest
from tests.cli.conftest import Tabherd
from tests.cli.running import call
from tests.client.canned import BUSY, STATS, CannedServer
from tests.server.conftest import Server
from tests.shared_server import unique

from tabherd.cli import serve
from tabherd.cli.process import ServerProcess
from tabherd.client.discovery import ServerRecord
from tabherd.errors import StateConflict


@pytest.mark.server
@pytest.mark.browser
def test_up_starts_one_server_that_is_ready_and_down_ends_all_of_it_and_both_may_be_repeated(tmp_path: Path) -> None:
    state = tmp_path / "state"
    started = call(state, "up", "--detach")
    try:
        assert started.returncode == 0, started.stdout + started.stderr
        process = psutil.Process(pid_of(state))
        family = [process, *process.children(recursive=True)]
        assert len(family) > 1
        with Server(state).client() as admin:
            assert admin.get("/ready").status_code == 200
        again = call(state, "up", "--detach")
        assert (again.returncode, again.stdout, pid_of(state)) == (0, started.stdout, process.pid)
        refused = call(state, "up", "--json")
        assert (refused.returncode, json.loads(refused.stdout)["code"]) == (1, "state_dir_in_use")
        assert welcomed(started.stdout, state) == "Hello, herd"
        assert programs_are_offered_the_token_of_an_agent_alone(started.stdout, state)
    finally:
        ended = call(state, "down")
    assert ended.stdout == f"Stopped (pid {process.pid}).\n"
    assert [each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE] == []
    again = call(state, "down")
    assert (again.returncode, again.stdout) == (0, "No server is running.\n")


def pid_of(state: Path) -> int:
    return int(json.loads((state / "server.json").read_text())["pid"])


def programs_are_offered_the_token_of_an_agent_alone(said: str, state: Path) -> bool:
    """What the address for Playwright may do, which is no admin's; and that others cannot read it."""
    (url, token) = re.findall(r"CDP +(\S+)\?token=(\S+)", said)[0]
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as offered:
        version = offered.get("/json/version")
        me = offered.get("/login").json()
    assert (version.status_code, me["agentId"], me["isAdmin"]) == (200, "me", False)
    return (state / "me.token").stat().st_mode & 0o077 == 0


def welcomed(said: str, state: Path) -> str:
    """The last line of what the example of the welcome prints when it is pasted."""
    example = said.partition("Try it:\n")[2]
    assert len(example.splitlines()) == 3
    words = ["bash", "-euo", "pipefail", "-c", example]
    environ = os.environ | {"TABHERD_STATE": str(state)}
    return subprocess.run(
        words, env=environ, capture_output=True, text=True, timeout=60, check=True
    ).stdout.splitlines()[-1]


@pytest.mark.server
def test_a_session_can_be_used_given_back_and_read_about_through_the_command_line(
    real: Tabherd, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = unique("alice")
    session = json.loads(real("session", "new", "--agent", agent, "--json").stdout)
    tab = session["tabs"][0]["tabId"]
    assert real("act", tab, "evaluate", "expression=6*7").stdout == "42\n"
    assert real("session", "end", session["sessionId"], "--fence", str(session["fence"])).exit_code == 0
    late = real("act", tab, "text", "--json")
    assert (late.exit_code, json.loads(late.stdout)["code"] in ("lease_lost", "tab_not_found")) == (1, True)
    told = [json.loads(line) for line in real("events", "--json").stdout.splitlines()]
    mine = [event["type"] for event in told if event.get("sessionId") == session["sessionId"]]
    assert (mine[0], mine[-1]) == ("session.opened", "session.closed")
    monkeypatch.setenv("TABHERD_TOKEN", real("token", "new", "--agent", agent).stdout.strip())
    assert json.loads(real("session", "new", "--agent", "bob", "--json").stdout)["code"] == "forbidden"


def test_the_pool_size_is_the_least_and_the_most_that_the_default_pool_has() -> None:
    settings = serve.layers_of(None, serve.Flags(pool_size=7)).read()
    assert (settings.pools["default"].browsers_min, settings.pools["default"].browsers_max) == (7, 7)


def test_a_start_that_is_refused_brings_its_typed_error_back(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = call(tmp_path, "up", "--detach", "--json", "--port", port)
    assert result.returncode == 1
    told = json.loads(result.stdout)
    assert (told["code"], told["details"]) == ("conflict", {"port": int(port)})


def test_a_server_that_could_never_start_a_browser_is_refused_before_it_starts(tmp_path: Path) -> None:
    result = call(tmp_path / "state", "up", "--detach", "--json", env={"TABHERD_BROWSER": "/nowhere/chrome"})
    assert result.returncode == 1
    assert json.loads(result.stdout)["code"] == "no_browser"
    assert not (tmp_path / "state").exists()


def test_a_server_that_dies_while_starting_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    # A file in place of Python's own module makes any start of the child fail early.
    (tmp_path / "uvloop.py").write_text("raise SystemExit('no loop today')")
    result = call(tmp_path / "state", "up", "--detach", env={"PYTHONPATH": str(tmp_path)})
    assert result.returncode == 1
    assert "no loop today" in result.stderr
    assert "server.log" in result.stderr


# Says when it is ready, holds its lock, ends at the SIGTERM with the given number, and says what it makes of each.
STUBBORN = """
import os, signal, sys
lock = open(sys.argv[1], "w")
lock.write(str(os.getpid()))
lock.flush()
left = [int(sys.argv[2])]
def told(*_):
    left[0] -= 1
    print("stays" if left[0] else "ends", flush=True)
    if left[0] == 0: sys.exit()
signal.signal(signal.SIGTERM, told)
print("ready", flush=True)
while True: signal.pause()
"""


@contextmanager
def stubborn(state: Path, signals: int) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", STUBBORN, str(state / "lock"), str(signals), "tabherd"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize("signals", [2, 3])
def test_a_server_that_does_not_end_is_told_a_second_time_and_after_that_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals: int
) -> None:
    ends = ServerProcess.wait
    with stubborn(tmp_path, signals) as child:
        assert child.stdout is not None
        told = child.stdout

        def wait(self: ServerProcess, limit_s: float) -> bool:
            """The limit is over as soon as the server has ignored the signal."""
            return ends(self, limit_s) if told.readline() == "ends\n" else False

        monkeypatch.setattr(ServerProcess, "wait", wait)
        if signals == 2:
            assert serve.stop(tmp_path, drain_s=0) == child.pid
        else:
            with pytest.raises(StateConflict) as caught:
                serve.stop(tmp_path, drain_s=0)
            assert f"kill -9 {child.pid}" in caught.value.action


def test_the_log_of_the_life_before_is_kept_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    for text in ("first", "second", "third"):
        serve._fresh_log(tmp_path).write_text(text)
    assert (tmp_path / "server.log").read_text() == "third"
    assert (tmp_path / "server.log.1").read_text() == "second"
    assert serve._fresh_log(tmp_path / "state").stat().st_mode & 0o077 == 0


def test_a_server_without_auth_is_welcomed_without_a_token(tmp_path: Path) -> None:
    said = serve.welcome(RECORD, tmp_path)
    assert "token=" not in said


RECORD = ServerRecord(url="http://127.0.0.1:1", pid=1, node_id="nod_1")


def test_an_agents_token_is_kept_from_start_to_start_and_replaced_once_it_is_no_longer_good(
    canned: CannedServer, tmp_path: Path
) -> None:
    record = msgspec.structs.replace(RECORD, url=canned.url)
    (tmp_path / "admin.token").write_text("admins")
    canned.answer("POST", "/agents", {"agentId": "me", "scopes": [], "token": "first"}, 201)
    canned.answer("POST", "/agents", {"agentId": "me", "scopes": [], "token": "second"}, 201)
    canned.answer("GET", "/stats", STATS)
    canned.answer("GET", "/stats", BUSY | {"code": "unauthenticated"}, 401)
    assert [serve.agent_token(record, tmp_path) for _ in range(3)] == ["first", "first", "second"]
    used = [(asked.path, asked.headers["authorization"].split()[1]) for asked in canned.asked]
    assert used == [("/agents", "admins"), ("/stats", "first"), ("/stats", "first"), ("/agents", "admins")]
    assert (tmp_path / "me.token").read_text() == "second"


def test_flags_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABHERD_SERVER__PORT", "1000")
    settings = serve.layers_of(None, serve.Flags(port=2000, no_auth=True)).read()
    assert (settings.server.port, settings.auth.enabled) == (2000, False)
