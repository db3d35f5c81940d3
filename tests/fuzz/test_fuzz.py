"""A few thousand cases for every reader of foreign input: each is taken or refused, and none ends in anything else."""

from __future__ import annotations

import pytest

from .campaign import case_of, run
from .targets import TARGETS, Target

# The first of these seeds; `make soak` begins elsewhere.
FIRST = 10_000_000
CASES_PER_TARGET = 150


@pytest.mark.parametrize("number", range(len(TARGETS)), ids=[target.name for target in TARGETS])
def test_every_case_is_taken_or_refused(number: int) -> None:
    # The target of a seed is its remainder.
    start = FIRST - FIRST % len(TARGETS) + number
    tally = run(range(start, start + CASES_PER_TARGET * len(TARGETS), len(TARGETS)))
    assert not tally.crashes, tally.crashes[0].told
    # What refuses everything, or nothing, was never looked into.
    assert tally.taken.total() > 0
    assert tally.cases == CASES_PER_TARGET


def test_a_case_is_the_same_whenever_its_seed_is() -> None:
    for seed in range(200):
        assert case_of(seed) == case_of(seed)


def test_what_is_no_refusal_is_a_crash_with_the_command_that_replays_it() -> None:
    def trip(data: bytes) -> None:
        raise (ValueError if b"\x00" in data else KeyError)("tripped")

    tally = run(range(500), (Target("clumsy", trip, (b"abc",), (KeyError,)),), crashes_max=3)
    assert len(tally.crashes) == 3
    crash = tally.crashes[0]
    assert b"\x00" in crash.case
    assert f"--seed {crash.seed}" in crash.told
    assert "ValueError: tripped" in crash.told
