"""The simulator of several nodes finds nothing in the cluster as it is, and tells what it finds in few words."""

from __future__ import annotations

import re

import pytest
from tests.sim.minimise import kind_of, minimise, play

from .__main__ import play_one, story
from .ablations import SAFEGUARDS
from .world import World

# As many as fit into every run of the tests; `make sim CLUSTER=1` and `make soak` try more.
SEEDS, BLOCKS = 48, 4
SHORT_S = 60.0


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_history_of_several_nodes_violates_an_invariant(block: int) -> None:
    for seed in range(block, SEEDS, BLOCKS):
        failure = play_one(seed)
        if failure is not None:
            pytest.fail(story(failure, SHORT_S), pytrace=False)


def test_a_seed_replays_the_same_history() -> None:
    first, second = World(7), World(7)
    first.run()
    second.run()
    assert first.history == second.history


def test_a_violation_is_told_in_few_deeds_and_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    SAFEGUARDS["the fence is checked at the node that has the tab"](monkeypatch)
    failure = next(failure for failure in map(play_one, range(20)) if failure is not None)
    short = minimise(World, failure, 300.0)  # type: ignore[arg-type]
    assert kind_of(short.what) == kind_of(failure.what)
    # A session, a takeover or a stale fence, and a command: not much more is needed.
    assert len(short.deeds) <= short.before // 4
    # What is left out does not change what is left in.
    again = play(World, failure.seed, frozenset(short.left_out))  # type: ignore[arg-type]
    assert again is not None
    assert (again.what, again.history) == (short.what, short.history)
    told = story(short, 0.0)
    assert told.endswith(f"replay it with: make sim CLUSTER=1 SEED={failure.seed}")
    assert not re.search(r"\b(ses|tab|tsk|brw|cmd)_[0-9a-z]{8,}", told), "ids are no plain words"
