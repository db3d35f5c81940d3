"""The simulator finds nothing in the broker as it is."""

from __future__ import annotations

import pytest

from .fakes import Violation
from .world import World

# As many as fit into every run of the tests; `make sim` and `make soak` try thousands.
SEEDS, BLOCKS = 100, 4


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_history_violates_an_invariant(block: int) -> None:
    for seed in range(block, SEEDS, BLOCKS):
        world = World(seed)
        try:
            world.run()
        except Violation as violation:
            story = "\n".join(world.history)
            pytest.fail(f"{story}\nseed {seed}: {violation}\nreplay it with: make sim SEED={seed}", pytrace=False)


def test_a_seed_replays_the_same_history() -> None:
    first, second = World(7), World(7)
    first.run()
    second.run()
    assert first.history == second.history
