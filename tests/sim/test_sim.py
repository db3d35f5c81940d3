"""The simulator finds nothing in the broker as it is."""

from __future__ import annotations

import pytest

from .campaign import campaign, play_all
from .coverage import Coverage
from .minimise import minimise
from .world import World

# As many as fit into every run of the tests; `make sim` and `make soak` try more. The first 200 are those of
# `test_coverage`.
SEEDS, BLOCKS = range(200, 300), 2


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_history_violates_an_invariant(block: int) -> None:
    played = play_all(SEEDS[block::BLOCKS])
    if played.failures:
        pytest.fail(minimise(World, played.failures[0]).story(), pytrace=False)


def test_a_seed_replays_the_same_history() -> None:
    for seed in range(3):
        first, second = World(seed), World(seed)
        first.run()
        second.run()
        assert first.history == second.history


def test_it_does_not_matter_which_process_plays_a_seed() -> None:
    apart, here = Coverage(), Coverage()
    for played in campaign(range(8), workers=2):
        apart.add(played.coverage)
    here.add(play_all(range(8)).coverage)
    assert apart.both == here.both
    assert apart.verbs == here.verbs
