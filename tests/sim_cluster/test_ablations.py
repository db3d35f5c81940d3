"""The simulator of several nodes finds something as soon as a safeguard of the cluster is missing."""

from __future__ import annotations

import pytest

from .ablations import ABLATIONS, search

# The seed that is named shows it; whatever changes the histories may move that to one of the next.
SEEDS_MAX = 60


@pytest.mark.parametrize("safeguard", ABLATIONS)
def test_the_simulator_notices_when_it_is_not_true_that(safeguard: str) -> None:
    seeds = (ABLATIONS[safeguard].seed, *range(SEEDS_MAX))
    assert search(safeguard, seeds) is not None, f"{SEEDS_MAX} histories without a violation"
