"""Every pair of state and event of every lifecycle, against the legal moves written down a second time as text."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from tabherd.core import lifecycle
from tabherd.core.lifecycle import (
    BrowserEvent,
    BrowserState,
    CommandEvent,
    CommandState,
    IllegalMove,
    LeaseEvent,
    LeaseState,
    TabEvent,
    TabState,
    TaskEvent,
    TaskState,
    advance,
    is_terminal,
)


class Machine:
    """One lifecycle and what is expected of it."""

    def __init__(
        self,
        table: dict[Any, dict[Any, Any]],
        states: type[StrEnum],
        events: type[StrEnum],
        *,
        starts: str,
        ends: str,
        moves: str,
    ) -> None:
        self.table = table
        self.states = states
        self.events = events
        self.starts = {states(word) for word in starts.split()}
        self.ends = {states(word) for word in ends.split()}
        self.moves: dict[tuple[StrEnum, StrEnum], StrEnum] = {}
        for line in moves.strip().splitlines():
            source, event, target = line.split()
            self.moves[states(source), events(event)] = states(target)


MACHINES = {
    "browser": Machine(
        lifecycle.BROWSER,
        BrowserState,
        BrowserEvent,
        starts="starting",
        ends="stopped",
        moves="""
            starting launched  ready
            starting died      crashed
            starting stop      stopped
            ready    drain     draining
            ready    died      crashed
            draining stop      stopped
            draining died      crashed
            crashed  retry     starting
            crashed  trip      broken
            broken   half_open starting
            broken   stop      stopped
        """,
    ),
    "lease": Machine(
        lifecycle.LEASE,
        LeaseState,
        LeaseEvent,
        starts="reserved",
        ends="closed lost",
        moves="""
            reserved   bind     active
            reserved   abandon  closed
            active     pool     pooled
            active     break    recovering
            active     close    closing
            recovering recover  active
            recovering lose     lost
            recovering close    closing
            pooled     checkout active
            pooled     drop     closed
            pooled     close    closing
            closing    closed   closed
        """,
    ),
    "tab": Machine(
        lifecycle.TAB,
        TabState,
        TabEvent,
        starts="opening",
        ends="closed",
        moves="""
            opening     opened     ready
            opening     fail       closed
            ready       quarantine quarantined
            ready       die        dead
            ready       pause      paused
            ready       close      closing
            quarantined prove      ready
            quarantined rebuild    rebuilding
            quarantined die        dead
            quarantined close      closing
            paused      resume     ready
            paused      die        dead
            paused      close      closing
            dead        rebuild    rebuilding
            dead        close      closing
            rebuilding  rebuilt    ready
            rebuilding  fail       closed
            rebuilding  close      closing
            closing     closed     closed
        """,
    ),
    "command": Machine(
        lifecycle.COMMAND,
        CommandState,
        CommandEvent,
        starts="queued",
        ends="completed failed timed_out cancelled outcome_unknown",
        moves="""
            queued  grant    running
            queued  time_out timed_out
            queued  cancel   cancelled
            queued  fail     failed
            running complete completed
            running fail     failed
            running time_out timed_out
            running cancel   cancelled
            running lose     outcome_unknown
        """,
    ),
    "task": Machine(
        lifecycle.TASK,
        TaskState,
        TaskEvent,
        starts="queued rejected",
        ends="done failed cancelled rejected",
        moves="""
            queued   assign  assigned
            queued   cancel  cancelled
            queued   fail    failed
            assigned send    running
            assigned requeue queued
            assigned fail    failed
            assigned cancel  cancelled
            running  finish  done
            running  fail    failed
            running  cancel  cancelled
            running  requeue queued
        """,
    ),
}

ALL_PAIRS = [
    pytest.param(machine, state, event, id=f"{name}-{state}-{event}")
    for name, machine in MACHINES.items()
    for state in machine.states
    for event in machine.events
]
EACH_MACHINE = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES.keys())


@pytest.mark.parametrize(("machine", "state", "event"), ALL_PAIRS)
def test_a_pair_moves_as_written_or_is_illegal_and_changes_nothing(
    machine: Machine, state: StrEnum, event: StrEnum
) -> None:
    expected = machine.moves.get((state, event))
    if expected is not None:
        assert advance(machine.table, state, event) is expected
        return
    before = {row: dict(moves) for row, moves in machine.table.items()}
    with pytest.raises(IllegalMove) as caught:
        advance(machine.table, state, event)
    assert (caught.value.state, caught.value.event) == (state, event)
    assert machine.table == before


@EACH_MACHINE
def test_the_table_has_a_row_for_every_state(machine: Machine) -> None:
    assert set(machine.table) == set(machine.states)


@EACH_MACHINE
def test_every_event_is_used(machine: Machine) -> None:
    assert {event for moves in machine.table.values() for event in moves} == set(machine.events)


@EACH_MACHINE
def test_every_state_is_reached_from_a_start(machine: Machine) -> None:
    reached, frontier = set(machine.starts), set(machine.starts)
    while frontier:
        frontier = {target for state in frontier for target in machine.table[state].values()} - reached
        reached |= frontier
    assert reached == set(machine.states)


@EACH_MACHINE
def test_the_terminal_states_are_the_named_ones(machine: Machine) -> None:
    assert {state for state in machine.states if is_terminal(machine.table, state)} == machine.ends


@EACH_MACHINE
def test_an_end_can_be_reached_from_every_state(machine: Machine) -> None:
    ending = set(machine.ends)
    for _ in machine.states:
        ending |= {state for state, moves in machine.table.items() if ending & set(moves.values())}
    assert ending == set(machine.states)


def test_an_illegal_move_says_what_was_tried() -> None:
    with pytest.raises(IllegalMove, match="LeaseState: closed does not take bind"):
        advance(lifecycle.LEASE, LeaseState.CLOSED, LeaseEvent.BIND)
