"""The simulator of several nodes finds something as soon as a safeguard is missing, and the page says so."""

from __future__ import annotations

import pytest

from .ablation_page import rows
from .ablations import SAFEGUARDS, first_failure

# The seed that is named shows it; whatever changes the histories may move that to one of the next.
SEEDS_MAX = 60
KNOWN = rows()


@pytest.mark.parametrize("safeguard", SAFEGUARDS)
def test_the_simulator_notices_when_it_is_not_true_that(safeguard: str) -> None:
    known = [KNOWN[safeguard]] if safeguard in KNOWN else []
    if first_failure(safeguard, [*known, *range(SEEDS_MAX)]) is None:
        pytest.fail(f"{SEEDS_MAX} histories without a violation", pytrace=False)


def test_the_page_has_every_safeguard_and_no_other() -> None:
    assert list(KNOWN) == list(SAFEGUARDS), "write it again: python -m tests.sim_cluster --ablations"
