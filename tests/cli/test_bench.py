"""`bench` measures what it says, and leaves nothing behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.running import call, running_server
from tests.cli.terminal import on_terminal

from tabherd.cli.bench import RoundTrips, round_trips

SHORT = ("--rounds", "3", "--tabs", "2", "--seconds", "0.2")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_server(tmp_path_factory.mktemp("bench") / "state") as started:
        yield started.state


def open_sessions(state: Path) -> list[object]:
    return list(json.loads(call(state, "session", "ls", "--json").stdout)["sessions"])


@pytest.mark.server
def test_each_figure_is_there_and_no_session_is_left(server: Path) -> None:
    told = json.loads(call(server, "bench", *SHORT, "--agent", "alice", "--json").stdout)
    assert told["plan"] == {"rounds": 3, "tabs": 2, "seconds": 0.2, "agent": "alice", "pool": None}
    assert (told["acquireAndRelease"]["count"], told["evaluate"]["count"]) == (3, 3)
    assert 0 < told["evaluate"]["p50Ms"] <= told["evaluate"]["p95Ms"]
    assert told["throughput"]["tabs"] == 2
    assert told["throughput"]["perSecond"] > 0
    assert open_sessions(server) == []


@pytest.mark.server
def test_a_person_gets_a_table_that_says_what_it_is_not(server: Path) -> None:
    said = call(server, "bench", *SHORT).stdout
    assert said.splitlines()[0].split() == ["what", "count", "p50", "p95", "per", "second"]
    assert "no comparison" in said


@pytest.mark.server
def test_ctrl_c_in_the_middle_leaves_no_session(server: Path) -> None:
    with on_terminal(server, "bench", "--rounds", "1", "--seconds", "600") as terminal:
        terminal.read_until("Driving")
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert open_sessions(server) == []
    assert "Traceback" not in terminal.raw


@pytest.mark.server
def test_a_pool_that_is_not_there_is_a_typed_refusal(server: Path) -> None:
    done = call(server, "bench", *SHORT, "--pool", "nowhere", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["code"] == "invalid_request"


def test_the_percentiles_are_of_the_nearest_rank() -> None:
    assert round_trips([n / 1000 for n in range(100, 0, -1)]) == RoundTrips(count=100, p50_ms=50, p95_ms=95)
    assert round_trips([0.007]) == RoundTrips(count=1, p50_ms=7, p95_ms=7)
