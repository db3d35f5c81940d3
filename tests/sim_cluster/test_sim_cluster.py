"""The simulator of several nodes finds nothing in the cluster as it is."""

from __future__ import annotations

import pytest

from .__main__ import play
from .world import World

# Some in every run of the tests; more with `python -m tests.sim_cluster --seeds N`.
SEEDS, BLOCKS = 24, 4


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_history_of_several_nodes_violates_an_invariant(block: int) -> None:
    for seed in range(block, SEEDS, BLOCKS):
        played = play(seed)
        if played.violation:
            story = "\n".join(played.history)
            replay = f"replay it with: make sim CLUSTER=1 SEED={seed}"
            pytest.fail(f"{story}\nseed {seed}: {played.violation}\n{replay}", pytrace=False)


def test_a_seed_replays_the_same_history() -> None:
    first, second = World(7), World(7)
    first.run()
    second.run()
    assert first.history == second.history
