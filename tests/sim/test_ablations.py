"""The simulator finds something as soon as a safeguard is missing."""

from __future__ import annotations

import pytest

from .ablations import ABLATIONS
from .task_ablations import TASK_ABLATIONS

SAFEGUARDS = ABLATIONS | TASK_ABLATIONS
SEEDS_MAX = 300


@pytest.mark.parametrize("safeguard", SAFEGUARDS)
def test_the_simulator_notices_when_it_is_not_true_that(safeguard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_world = SAFEGUARDS[safeguard](monkeypatch)
    for seed in range(SEEDS_MAX):
        try:
            make_world(seed).run()
        except AssertionError:
            # A violation, or the broker's own assertions noticed first.
            return
    pytest.fail(f"{SEEDS_MAX} histories without a violation", pytrace=False)
