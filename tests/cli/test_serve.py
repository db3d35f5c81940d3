"""Starting and stopping: ready means ready, and repeating either changes nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.cli.running import call, running_server

from tabherd.cli import serve
from tabherd.client.discovery import ServerRecord
from tabherd.errors import StateConflict


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    state = tmp_path_factory.mktemp("serve") / "state"
    started = call(state, "up", "--detach")
    try:
        assert started.returncode == 0, started.stdout + started.stderr
        yield state
    finally:
        call(state, "down")


def pid_of(state: Path) -> int:
    return int(json.loads((state / "server.json").read_text())["pid"])


@pytest.mark.server
def test_a_detached_server_is_ready_when_the_command_returns(server: Path) -> None:
    told = json.loads(call(server, "status", "--json").stdout)
    assert told["ready"] is True
    assert told["browsers"][0]["state"] == "ready"


@pytest.mark.server
def test_starting_again_leaves_the_running_server_and_says_the_same(server: Path) -> None:
    pid = pid_of(server)
    first, second = call(server, "up", "--detach"), call(server, "up", "--detach")
    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stdout == second.stdout
    assert pid_of(server) == pid


@pytest.mark.server
def test_the_welcome_is_an_example_that_runs(server: Path) -> None:
    said = call(server, "up", "--detach").stdout
    example = said.partition("Try it:\n")[2]
    assert len(example.splitlines()) == 3
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", example],
        env=os.environ | {"TABHERD_STATE": str(server)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "Hello, herd"


@pytest.mark.server
def test_a_foreground_server_is_refused_where_another_runs(server: Path) -> None:
    result = call(server, "up", "--json")
    assert result.returncode == 1
    assert json.loads(result.stdout)["code"] == "state_dir_in_use"


@pytest.mark.server
def test_a_session_can_be_used_and_given_back_through_the_command_line(server: Path) -> None:
    session = json.loads(call(server, "session", "new", "--agent", "alice", "--json").stdout)
    tab = session["tabs"][0]["tabId"]
    assert call(server, "act", tab, "evaluate", "expression=6*7").stdout == "42\n"
    ended = call(server, "session", "end", session["sessionId"], "--fence", str(session["fence"]))
    assert ended.returncode == 0
    late = call(server, "act", tab, "text", "--json")
    assert late.returncode == 1
    assert json.loads(late.stdout)["code"] in ("lease_lost", "tab_not_found")


@pytest.mark.server
def test_what_happened_can_be_read_afterwards(server: Path) -> None:
    call(server, "session", "new", "--agent", "eve")
    kinds = [json.loads(line)["type"] for line in call(server, "events", "--json").stdout.splitlines()]
    assert "node.ready" in kinds
    assert kinds[-1] == "session.opened"


@pytest.mark.server
def test_an_agents_token_is_that_agent_and_no_other(server: Path) -> None:
    token = call(server, "token", "new", "--agent", "alice").stdout.strip()
    result = call(server, "session", "new", "--agent", "bob", "--json", env={"TABHERD_TOKEN": token})
    assert json.loads(result.stdout)["code"] == "forbidden"


@pytest.mark.server
def test_stopping_ends_the_server_and_its_browsers_and_may_be_repeated(tmp_path: Path) -> None:
    with running_server(tmp_path / "state") as started:
        state = started.state
        process = psutil.Process(pid_of(state))
        family = [process, *process.children(recursive=True)]
        assert len(family) > 1
        assert call(state, "down").stdout == f"Stopped (pid {process.pid}).\n"
        assert [each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE] == []
        again = call(state, "down")
        assert (again.returncode, again.stdout) == (0, "No server is running.\n")


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


@pytest.mark.parametrize("words", [["up"], ["up", "--detach"]])
def test_a_server_that_could_never_start_a_browser_is_refused_before_it_starts(
    tmp_path: Path, words: list[str]
) -> None:
    result = call(tmp_path / "state", *words, "--json", env={"TABHERD_BROWSER": "/nowhere/chrome"})
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


# Says when it is ready, holds its lock, and ends at the SIGTERM with the given number.
STUBBORN = """
import os, signal, sys
lock = open(sys.argv[1], "w")
lock.write(str(os.getpid()))
lock.flush()
left = [int(sys.argv[2])]
def told(*_):
    left[0] -= 1
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


def test_a_server_that_does_not_end_after_its_drain_is_told_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "CLOSE_LIMIT_S", 4.0)
    with stubborn(tmp_path, signals=2) as child:
        assert serve.stop(tmp_path, drain_s=0) == child.pid


def test_a_server_that_will_not_end_is_a_conflict_that_names_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "CLOSE_LIMIT_S", 0.1)
    with stubborn(tmp_path, signals=3) as child, pytest.raises(StateConflict) as caught:
        serve.stop(tmp_path, drain_s=0)
    assert f"kill -9 {child.pid}" in caught.value.action


def test_the_log_of_the_life_before_is_kept_once(tmp_path: Path) -> None:
    for text in ("first", "second", "third"):
        serve._fresh_log(tmp_path).write_text(text)
    assert (tmp_path / "server.log").read_text() == "third"
    assert (tmp_path / "server.log.1").read_text() == "second"


def test_the_log_is_for_its_owner_alone(tmp_path: Path) -> None:
    assert serve._fresh_log(tmp_path / "state").stat().st_mode & 0o077 == 0


def test_a_server_without_auth_is_welcomed_without_a_token(tmp_path: Path) -> None:
    said = serve.welcome(ServerRecord(url="http://127.0.0.1:1", pid=1, node_id="nod_1"), tmp_path)
    assert "token=" not in said


def test_flags_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABHERD_SERVER__PORT", "1000")
    settings = serve.layers_of(None, serve.Flags(port=2000, no_auth=True)).read()
    assert (settings.server.port, settings.auth.enabled) == (2000, False)
