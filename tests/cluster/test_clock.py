"""The cluster's clock: the database's time, whatever this machine believes, and never backwards."""

from __future__ import annotations

import pytest

from tabherd.cluster.clock import TOLERANCE_MS, ClusterClock


class Steady:
    """A machine's steady clock, moved by hand."""

    def __init__(self) -> None:
        self.ms = 5_000.0

    def __call__(self) -> float:
        return self.ms


@pytest.fixture
def steady() -> Steady:
    return Steady()


def test_it_tells_the_databases_time_and_goes_on_by_itself(steady: Steady) -> None:
    clock = ClusterClock(steady)
    clock.looked(1_000_000, steady.ms, steady.ms)
    steady.ms += 250
    assert clock() == 1_000_250


def test_an_answer_that_took_a_while_is_taken_for_its_middle(steady: Steady) -> None:
    clock = ClusterClock(steady)
    clock.looked(1_000_000, steady.ms, steady.ms + 100)
    steady.ms += 100
    assert clock() == 1_000_050


def test_a_look_that_may_be_as_wrong_as_what_is_known_changes_nothing(steady: Steady) -> None:
    clock = ClusterClock(steady)
    clock.looked(1_000_000, steady.ms, steady.ms)
    clock.looked(1_000_000 + TOLERANCE_MS + 90, steady.ms, steady.ms + 200)
    assert clock() == 1_000_000


def test_a_difference_that_the_answer_cannot_explain_moves_it(steady: Steady) -> None:
    clock = ClusterClock(steady)
    clock.looked(1_000_000, steady.ms, steady.ms)
    clock.looked(1_060_000, steady.ms, steady.ms + 2)
    assert clock() == pytest.approx(1_060_000, abs=2)


def test_it_stands_still_instead_of_going_back(steady: Steady) -> None:
    clock = ClusterClock(steady)
    clock.looked(1_000_000, steady.ms, steady.ms)
    assert clock() == 1_000_000
    clock.looked(400_000, steady.ms, steady.ms)
    assert clock() == 1_000_000
    steady.ms += 700_000
    assert clock() == 1_100_000
