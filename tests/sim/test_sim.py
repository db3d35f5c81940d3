"""The simulator finds nothing in the broker as it is, and finds something as soon as a safeguard is missing."""

from __future__ import annotations

import pytest

from .ablations import ABLATIONS
from .fakes import Violation
from .task_ablations import TASK_ABLATIONS
from .world import World

# As many as fit into every run of the tests; `make sim` and `make soak` try thousands.
SEEDS, BLOCKS = 100, 4
ABLATION_SEEDS_MAX = 300
SAFEGUARDS = ABLATIONS | TASK_ABLATIONS


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


@pytest.mark.parametrize("safeguard", SAFEGUARDS)
def test_the_simulator_notices_when_it_is_not_true_that(safeguard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_world = SAFEGUARDS[safeguard](monkeypatch)
    for seed in range(ABLATION_SEEDS_MAX):
        try:
            make_world(seed).run()
        except Violation:
            return
        except AssertionError:
            return  # The broker's own assertions noticed first.
    pytest.fail(f"{ABLATION_SEEDS_MAX} histories without a violation", pytrace=False)
