"""`status`: one screen for a person, one document for a program."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from rich.console import Console
from tests.cli.conftest import Tabherd
from tests.cli.top_crowd import NOW, snapshot, tab
from tests.client.canned import BROWSER, NODE, SESSION, STATS, CannedServer

from tabherd import wire
from tabherd.cli.frame import draw

HEALTH = {"status": "ok", "version": "9.9", "node": "nod_1"}
DRAINING = {"code": "draining", "message": "", "retryable": True, "action": "", "details": {}}


@pytest.fixture
def status(canned: CannedServer, tabherd: Tabherd) -> Any:
    """Ask for the status of a server with such browsers and such stats."""

    def ask(
        *words: str,
        browser: dict[str, Any] | None = None,
        stats: dict[str, Any] | None = None,
        nodes: tuple[dict[str, Any], ...] = (NODE,),
    ) -> str:
        canned.answer("GET", "/health", HEALTH)
        is_draining = (stats or {}).get("draining", False)
        canned.answer("GET", "/ready", DRAINING if is_draining else HEALTH, 503 if is_draining else 200)
        canned.answer("GET", "/stats", STATS | (stats or {}))
        canned.answer("GET", "/nodes", {"nodes": nodes})
        canned.answer("GET", "/browsers", {"browsers": [BROWSER | (browser or {})]})
        canned.answer("GET", "/sessions", {"sessions": [SESSION, SESSION]})
        result = tabherd("status", *words)
        assert result.exit_code == 0
        return result.stdout

    return ask


def test_a_program_gets_everything_as_one_document(canned: CannedServer, status: Any) -> None:
    assert json.loads(status("--json")) == {
        "url": canned.url,
        "version": "9.9",
        "node": "nod_1",
        "ready": True,
        "draining": False,
        "nodes": [NODE],
        "pools": {"default": STATS["pools"]["default"] | {"sharedCap": 0, "waiters": [], "waitingSince": None}},
        "browsers": [BROWSER],
        "sessions": {"alice": 2},
    }


def test_the_sessions_are_as_many_as_the_pools_have_and_as_top_says(status: Any) -> None:
    pools = {"default": STATS["pools"]["default"] | {"active": 11}, "work": STATS["pools"]["default"] | {"active": 4}}
    assert status(stats={"pools": pools}).splitlines()[1] == "Active sessions: 15 (alice 2)."
    console = Console(width=100, color_system=None)
    with console.capture() as frame:
        top = snapshot([tab()], pools=msgspec.convert(pools, dict[str, wire.PoolStats]))
        console.print(draw(top, NOW, width=100, height=24))
    assert frame.get().splitlines()[1].startswith("sessions 15 (")


def test_a_person_sees_the_node_the_pools_and_the_browsers(status: Any) -> None:
    lines = status().splitlines()
    assert lines[0].startswith("tabherd 9.9 at ")
    assert lines[0].endswith("node nod_1: ready.")
    assert lines[1] == "Active sessions: 2 (alice 2)."
    pool = next(line for line in lines if line.startswith("default"))
    assert pool.split() == ["default", "2", "100", "1", "3", "5", "1", "4", "24"]
    browser = next(line for line in lines if line.startswith("brw_1"))
    assert browser.split() == [
        *("brw_1", "default", "ready", "42", "1", "3", "4"),
        *("200", "MB", "2", "%", "closed", "Chromium/1"),
    ]


def test_one_node_is_not_worth_a_table(status: Any) -> None:
    assert "(this)" not in status()


def test_several_nodes_are_shown_with_their_state(status: Any) -> None:
    other = NODE | {"nodeId": "nod_2", "isSelf": False, "state": "silent", "beatAgeMs": 8_000}
    lines = status(nodes=(NODE, other)).splitlines()
    assert next(line for line in lines if line.startswith("nod_1")).split()[:3] == ["nod_1", "(this)", "up"]
    assert next(line for line in lines if line.startswith("nod_2")).split()[1] == "silent"


def test_what_was_not_measured_yet_is_a_dash(status: Any) -> None:
    shown = status(browser={"memoryBytes": None, "cpuPercent": None})
    browser = next(line for line in shown.splitlines() if line.startswith("brw_1"))
    assert browser.split()[7:9] == ["-", "-"]


def test_a_draining_server_says_how_to_take_that_back(status: Any) -> None:
    assert "draining" in (first := status(stats={"draining": True}).splitlines()[0])
    assert "tabherd drain --resume" in first


def test_a_browser_that_cannot_start_is_shown_with_the_reason(status: Any) -> None:
    shown = status(browser={"state": "broken", "circuit": "open", "lastFailure": "It exits at once."})
    assert "open" in shown
    assert "brw_1: the last one in its place failed: It exits at once." in shown


def test_a_suspect_browser_is_shown_as_one(status: Any) -> None:
    assert "ready, suspect" in status(browser={"suspect": True})
