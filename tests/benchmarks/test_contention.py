"""The judge of the pages' logs finds each way in which commands may fail to take turns."""

from __future__ import annotations

from random import SystemRandom

import pytest
from bench.rig.contention import Entry, Judgement, arrived_ms, judge

from tabherd.broker.ids import Ids


def log_of(*entries: str) -> list[Entry]:
    """`a+` is the beginning of command a, `a-` its end; the page's clock goes on by one each time."""
    return [(entry[0], "begin" if entry[1] == "+" else "end", float(at)) for at, entry in enumerate(entries)]


def test_commands_that_took_turns_as_they_came_are_not_blamed() -> None:
    assert judge(log_of("a+", "a-", "b+", "b-"), {"a": 10, "b": 11}) == Judgement()


def test_a_command_that_begins_while_another_is_at_work_is_an_overlap() -> None:
    assert judge(log_of("a+", "b+", "a-", "b-"), {"a": 10, "b": 11}).overlaps == 1


def test_a_command_that_begins_before_one_that_came_earlier_is_out_of_order() -> None:
    assert judge(log_of("b+", "b-", "a+", "a-"), {"a": 10, "b": 11}).out_of_order == 1


def test_two_that_came_in_the_same_millisecond_are_counted_and_not_judged() -> None:
    found = judge(log_of("b+", "b-", "a+", "a-"), {"a": 10, "b": 10})
    assert (found.out_of_order, found.undecided) == (0, 1)


@pytest.mark.parametrize(
    ("log", "what"),
    [
        (log_of("a+", "a-"), "was answered and never ran"),
        (log_of("a+", "a-", "b+", "b-", "b+", "b-"), "ran twice"),
        (log_of("a+", "a-", "b+"), "was answered before it had ended"),
        (log_of("a+", "a-", "b+", "b-", "c+", "c-"), "ran although nobody was told"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_what_did_not_run_exactly_once_is_counted(log: list[Entry], what: str) -> None:
    assert judge(log, {"a": 10, "b": 11}).not_once == 1, what


def test_a_command_says_in_its_id_when_it_came() -> None:
    ids = Ids(lambda: 1_700_000_000_123, SystemRandom(), epoch=7)
    assert arrived_ms(ids.mint_command()) == 1_700_000_000_123
