"""Starting: interrupted at any moment it leaves nothing, and what stands in its way is worked around or named."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cli.running import call, environment

from tabherd.browsers.debug_port import LOOPBACK, RESTRICTED_PORTS
from tabherd.edge.leftovers import end_leftovers

from .conftest import Server, act, is_alive, open_session, with_settings

pytestmark = [pytest.mark.server, pytest.mark.browser]


@pytest.mark.parametrize(("after_ms", "how"), [(50, signal.SIGTERM), (400, signal.SIGINT), (700, signal.SIGTERM)])
def test_interrupting_the_start_leaves_no_process_and_no_profile(tmp_path: Path, after_ms: int, how: int) -> None:
    state = tmp_path / "state"
    starting = subprocess.Popen(
        [sys.executable, "-m", "tabherd", "up"],
        env=environment(state),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        try:
            starting.wait(after_ms / 1000)
        except subprocess.TimeoutExpired:
            starting.send_signal(how)
        starting.wait(120)
    except subprocess.TimeoutExpired:
        starting.kill()
        starting.wait()
        end_leftovers(state)
        raise
    server = Server(state)
    assert [process for process in server.browsers() if is_alive(process)] == []
    assert not (state / "profiles").exists() or server.profiles() == []
    assert not (state / "server.json").exists()


@pytest.fixture
def taken_ports() -> Iterator[list[int]]:
    """Half of the ports that browsers use, taken by somebody else."""
    with ExitStack() as open_sockets:
        taken = []
        for port in RESTRICTED_PORTS[: len(RESTRICTED_PORTS) // 2]:
            listener = open_sockets.enter_context(socket.socket())
            try:
                listener.bind((LOOPBACK, port))
            except OSError:
                continue
            listener.listen()
            taken.append(port)
        yield taken


def test_debug_ports_that_are_taken_are_passed_over(tmp_path: Path, taken_ports: list[int]) -> None:
    with with_settings(tmp_path / "state", {}) as server, server.client() as admin:
        session = open_session(admin, agentId="ada")
        assert act(admin, session["tabs"][0]["tabId"], "evaluate", expression="1").json()["result"] == 1


def test_a_browser_that_cannot_run_is_named_before_anything_starts(tmp_path: Path) -> None:
    refused = call(tmp_path / "state", "up", env={"TABHERD_POOLS__DEFAULT__BROWSER": "/bin/false"})
    assert refused.returncode == 1
    assert "no_browser" in refused.stderr
    assert "false" in refused.stderr
