"""A frame of `top` fits its terminal, whatever there is to show."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from rich.console import Console
from tests.client.canned import BROWSER, STATS

from tabherd import wire
from tabherd.cli.frame import deal, draw
from tabherd.cli.snapshot import Snapshot, loads

NOW = datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)
HOLDER = {"reason": "command", "controllerId": "c", "since": "2026-01-01T00:00:03.000Z", "kind": "click"}


def tab(number: int = 1, agent: str = "alice", waiters: int = 0, **changes: Any) -> wire.TabView:
    waiting = {"controllerId": "c", "agentId": "bob", "kind": "text", "position": 1, "since": ""}
    return msgspec.convert(
        {
            "tabId": f"tab_{number:023}",
            "sessionId": f"ses_{number}",
            "agentId": agent,
            "state": "ready",
            "url": "https://x.test/",
            "title": "",
            "generation": 1,
            "provenance": "created",
            "openerTabId": None,
            "createdAt": "2026-01-01T00:00:00.000Z",
            "holder": None,
            "waiters": [waiting] * waiters,
            "expectedWaitMs": 0,
        }
        | changes,
        wire.TabView,
    )


def snapshot(tabs: list[wire.TabView], browsers: int = 1, **changes: Any) -> Snapshot:
    pools = msgspec.convert(STATS["pools"], dict[str, wire.PoolStats])
    found = Snapshot(
        url="http://127.0.0.1:1",
        is_connected=True,
        version="9.9",
        node="nod_1",
        is_ready=True,
        is_draining=False,
        pools=pools,
        browsers=[msgspec.convert(BROWSER | {"browserId": f"brw_{n:023}"}, wire.BrowserView) for n in range(browsers)],
        agents=loads(tabs),
        tabs=tabs,
        events=[{"id": f"1-{n}", "type": "tab.opened", "at": f"2026-01-01T00:00:{n:02}.000Z"} for n in range(20)],
    )
    return msgspec.structs.replace(found, **changes)


def drawn(shown: Snapshot, width: int = 80, height: int | None = 24) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as frame:
        console.print(draw(shown, NOW, height=height, is_cut=height is not None))
    return [line.rstrip() for line in frame.get().splitlines()]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (200, 60), (80, 3), (80, 2), (20, 5)])
def test_a_crowd_never_exceeds_the_terminal(width: int, height: int) -> None:
    tabs = [tab(n, f"agent-{n}" * 5, url="https://x.test/" + "y" * 500) for n in range(300)]
    lines = drawn(snapshot(tabs, browsers=30), width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_in_80_by_24_every_section_of_a_crowd_is_there_and_says_how_much_is_cut() -> None:
    lines = drawn(snapshot([tab(n, f"agent-{n}") for n in range(300)], browsers=30))
    assert len(lines) == 24
    headings = [line for line in lines if line.split()[0] in ("pool", "browser", "agent", "tab", "at")]
    assert len(headings) == 5
    shown = sum(line.startswith("tab_") for line in lines)
    assert f"({300 - shown} more)" in next(line for line in headings if line.startswith("tab"))


def test_without_a_height_everything_is_shown_in_full() -> None:
    url = "https://x.test/" + "y" * 100
    lines = drawn(snapshot([tab(n, url=url) for n in range(100)]), width=1_000, height=None)
    assert sum(line.endswith(url) for line in lines) == 100


def test_ids_are_whole_in_80_columns_and_pages_are_cut() -> None:
    (line,) = [each for each in drawn(snapshot([tab(url="https://x.test/" + "y" * 100)])) if each.startswith("tab_")]
    assert line.split()[0] == f"tab_{1:023}"
    assert line.endswith("…")


def test_the_tab_that_is_waited_for_most_comes_first_with_its_holder_and_since_when() -> None:
    tabs = [tab(1), tab(2, holder=HOLDER), tab(3, holder=HOLDER, waiters=2)]
    lines = [line for line in drawn(snapshot(tabs)) if line.startswith("tab_")]
    assert [line.split()[0][-1] for line in lines] == ["3", "2", "1"]
    assert lines[0].split()[2:5] == ["click", "7s", "2"]


def test_a_tab_that_is_not_ready_shows_its_state() -> None:
    (line,) = [each for each in drawn(snapshot([tab(state="dead")])) if each.startswith("tab_")]
    assert line.split()[2] == "dead"


def test_agents_are_counted_by_sessions_tabs_and_what_they_wait_for() -> None:
    tabs = [tab(1), tab(1, holder=HOLDER), tab(2), tab(3, "carol", waiters=1)]
    lines = drawn(snapshot(tabs))
    after = lines[next(n for n, line in enumerate(lines) if line.startswith("agent ")) + 1 :]
    assert [line.split() for line in after[:3]] == [
        ["bob", "0", "0", "0", "1"],
        ["alice", "2", "3", "1", "0"],
        ["carol", "1", "1", "0", "0"],
    ]


def test_the_newest_event_is_the_first() -> None:
    lines = drawn(snapshot([]))
    at = next(n for n, line in enumerate(lines) if line.startswith("at "))
    assert lines[at + 1].split()[:2] == ["00:00:19", "tab.opened"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "ready"),
        ({"is_draining": True}, "draining"),
        ({"is_ready": False}, "no browser is ready"),
        ({"is_connected": False}, "no answer"),
    ],
)
def test_the_condition_of_the_server_is_in_the_first_line(changes: dict[str, Any], said: str) -> None:
    assert f"  {said}  " in drawn(snapshot([], **changes))[0]


def test_while_there_is_no_answer_it_says_that_what_is_shown_is_from_before() -> None:
    lines = drawn(snapshot([tab()], is_connected=False, problem="No answer."))
    assert lines[1] == "What is shown is from before; trying again. No answer."
    assert any(line.startswith("tab_") for line in lines)


def test_what_an_agent_wrote_cannot_command_the_terminal() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J"
    held = HOLDER | {"kind": evil}
    shown = snapshot([tab(url=evil, holder=held)], problem=evil, events=[{"type": "x", "reason": evil}])
    assert not any("\x1b" in line or "\x07" in line for line in drawn(shown))


def test_each_section_gets_a_row_before_one_gets_two() -> None:
    assert deal([1, 100, 0, 100], 9) == [1, 3, 0, 2]
    assert deal([5, 5], 3) == [2, 0]
    assert deal([5, 5], 1) == [0, 0]
    assert deal([1, 2], 100) == [1, 2]
    assert deal([3], -1) == [0]
