"""`bench` measures what it says, and leaves nothing behind."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Tabherd
from tests.cli.terminal import on_terminal
from tests.server.conftest import Server

from tabherd.cli.bench import RoundTrips, round_trips

SHORT = ("--rounds", "3", "--tabs", "2", "--seconds", "0.2")


def open_sessions(server: Server) -> list[object]:
    with server.client() as admin:
        listed = admin.get("/sessions").json()["sessions"]
    return [each for each in listed if each["state"] == "active"]


@pytest.mark.server
def test_each_figure_is_there_and_no_session_is_left(shared_server: Server, real: Tabherd) -> None:
    told = json.loads(real("bench", *SHORT, "--agent", "alice", "--json").stdout)
    assert told["plan"] == {"rounds": 3, "tabs": 2, "seconds": 0.2, "agent": "alice", "pool": None}
    assert (told["acquireAndRelease"]["count"], told["evaluate"]["count"]) == (3, 3)
    assert 0 < told["evaluate"]["p50Ms"] <= told["evaluate"]["p95Ms"]
    assert told["throughput"]["tabs"] == 2
    assert told["throughput"]["perSecond"] > 0
    said = real("bench", *SHORT).stdout
    assert said.splitlines()[0].split() == ["what", "count", "p50", "p95", "per", "second"]
    assert "no comparison" in said
    refused = real("bench", *SHORT, "--pool", "nowhere", "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["code"]) == (1, "invalid_request")
    assert open_sessions(shared_server) == []


@pytest.mark.server
def test_ctrl_c_in_the_middle_leaves_no_session(shared_server: Server) -> None:
    with on_terminal(shared_server.state, "bench", "--rounds", "1", "--seconds", "600") as terminal:
        terminal.read_until("Driving")
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert open_sessions(shared_server) == []
    assert "Traceback" not in terminal.raw


def test_the_percentiles_are_of_the_nearest_rank() -> None:
    assert round_trips([n / 1000 for n in range(100, 0, -1)]) == RoundTrips(count=100, p50_ms=50, p95_ms=95)
    assert round_trips([0.007]) == RoundTrips(count=1, p50_ms=7, p95_ms=7)
