"""The overview of `top` fits its terminal, whatever there is to show."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from rich.console import Console
from tests.cli.top_crowd import HOLDER, LOCKED, NOW, lock, snapshot, tab

from tabherd import wire
from tabherd.cli.frame import deal, draw, fitting
from tabherd.cli.frame_cells import Column
from tabherd.cli.snapshot import Snapshot, loads


def drawn(shown: Snapshot, width: int = 80, height: int | None = 24) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as frame:
        console.print(draw(shown, NOW, width=None if height is None else width, height=height))
    return [line.rstrip() for line in frame.get().splitlines()]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (200, 60), (80, 3), (80, 2), (20, 5)])
def test_a_crowd_never_exceeds_the_terminal(width: int, height: int) -> None:
    tabs = [tab(n, f"agent-{n}" * 5, url="https://x.test/" + "y" * 500) for n in range(300)]
    lines = drawn(snapshot(tabs, browsers=30), width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_in_80_by_24_every_section_of_a_crowd_is_there_and_says_how_much_is_cut() -> None:
    tabs = [tab(n, f"agent-{n}", holder=LOCKED) for n in range(300)]
    lines = drawn(waited_for(snapshot(tabs, browsers=30)))
    assert len(lines) == 24
    headings = [line for line in lines if line.split()[0] in ("pool", "waits", "browser", "agent", "lock", "tab", "at")]
    assert len(headings) == 7
    shown = sum(line.startswith("tab_") and "https:" in line for line in lines)
    assert f"({300 - shown} more)" in next(line for line in headings if line.startswith("tab"))


def waited_for(shown: Snapshot) -> Snapshot:
    """The same, and zoe waits for a session."""
    zoe = wire.SessionWaiter(
        agent_id="zoe", key="k", position=3, expected_wait_ms=90_000, since="2026-01-01T00:00:01.000Z"
    )
    pools = {name: msgspec.structs.replace(pool, waiters=[zoe]) for name, pool in shown.pools.items()}
    return msgspec.structs.replace(shown, pools=pools)


def test_who_waits_for_a_session_is_shown_with_its_place_and_for_how_long() -> None:
    lines = drawn(waited_for(snapshot([])))
    row = next(line for line in lines if line.startswith("zoe"))
    assert row.split() == ["zoe", "3", "default", "k", "9s", "90s"]


def test_locks_of_tabs_and_named_ones_are_shown_those_waited_for_most_first() -> None:
    lines = drawn(snapshot([tab(1, holder=LOCKED)], locks=[lock("a"), lock("b", waiters=2)]))
    at = next(n for n, line in enumerate(lines) if line.startswith("lock "))
    assert [line.split()[0] for line in lines[at + 1 : at + 4]] == ["b", "a", f"tab_{1:023}"]
    assert lines[at + 3].split()[1:] == ["c", "7s", "60s", "0"]


def test_agents_are_shown_with_their_tasks_also_those_that_have_nothing_else() -> None:
    loaded = loads([tab(1)], {"dave": wire.AgentQueue(queued=4, inflight=2)})
    row = next(line for line in drawn(snapshot([tab(1)], agents=loaded)) if line.startswith("dave"))
    assert row.split() == ["dave", "0", "0", "0", "0", "4", "2"]


def test_without_a_height_everything_is_shown_in_full() -> None:
    url = "https://x.test/" + "y" * 100
    lines = drawn(snapshot([tab(n, url=url) for n in range(100)]), width=1_000, height=None)
    assert sum(line.endswith(url) for line in lines) == 100


def test_ids_are_whole_in_80_columns_and_pages_are_cut() -> None:
    (line,) = [each for each in drawn(snapshot([tab(url="https://x.test/" + "y" * 100)])) if each.startswith("tab_")]
    assert line.split()[0] == f"tab_{1:023}"
    assert line.endswith("…")


def test_the_tab_that_is_waited_for_most_comes_first_with_its_holder_and_since_when() -> None:
    tabs = [tab(1), tab(2, holder=HOLDER), tab(3, holder=HOLDER, waiters=["bob", "bob"])]
    lines = [line for line in drawn(snapshot(tabs)) if line.startswith("tab_")]
    assert [line.split()[0][-1] for line in lines] == ["3", "2", "1"]
    assert lines[0].split()[2:5] == ["click", "7s", "2"]


def test_a_tab_that_is_not_ready_shows_its_state() -> None:
    (line,) = [each for each in drawn(snapshot([tab(state="dead")])) if each.startswith("tab_")]
    assert line.split()[2] == "dead"


def test_agents_are_counted_by_sessions_tabs_and_what_they_wait_for() -> None:
    tabs = [tab(1), tab(1, holder=HOLDER), tab(2), tab(3, "carol", waiters=["bob"])]
    lines = drawn(snapshot(tabs))
    after = lines[next(n for n, line in enumerate(lines) if line.startswith("agent ")) + 1 :]
    assert [line.split()[:5] for line in after[:3]] == [
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
    evil = "\x1b]0;owned\x07\x1b[2J\n"
    held = HOLDER | {"kind": evil}
    shown = snapshot([tab(url=evil, holder=held)], problem=evil, events=[{"type": "x", "reason": evil}])
    assert not any("\x1b" in line or "\x07" in line for line in drawn(shown))


def test_each_section_gets_a_row_before_one_gets_two() -> None:
    assert deal([1, 100, 0, 100], 9) == [1, 3, 0, 2]
    assert deal([5, 5], 3) == [2, 0]
    assert deal([5, 5], 1) == [0, 0]
    assert deal([1, 2], 100) == [1, 2]
    assert deal([3], -1) == [0]


def test_columns_go_in_their_turn_until_the_rest_has_room() -> None:
    columns = (Column("id"), Column("agent", share=1), Column("state", spare=2), Column("pool", spare=1))
    rows = [("x" * 10, "y" * 100, "ready", "default")]
    # One that may be cut needs 12 at the most; there are two blanks between columns.
    assert fitting(columns, rows, 10 + 2 + 12 + 2 + 5 + 2 + 7) == [0, 1, 2, 3]
    assert fitting(columns, rows, 10 + 2 + 12 + 2 + 5 + 2 + 6) == [0, 1, 2]
    assert fitting(columns, rows, 20) == [0, 1]
