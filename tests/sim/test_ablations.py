"""The simulator finds something as soon as a safeguard is missing, and the page of ablations says so."""

from __future__ import annotations

import pytest

from .ablation_page import rows
from .safeguards import SAFEGUARDS, SEEDS_MAX, first_failure

KNOWN = rows()


@pytest.mark.parametrize("safeguard", SAFEGUARDS)
def test_the_simulator_notices_when_it_is_not_true_that(safeguard: str) -> None:
    known = [KNOWN[safeguard]] if safeguard in KNOWN else []
    if first_failure(safeguard, [*known, *range(SEEDS_MAX)]) is None:
        pytest.fail(f"{SEEDS_MAX} histories without a violation", pytrace=False)


def test_the_page_has_every_safeguard_and_no_other() -> None:
    assert list(KNOWN) == list(SAFEGUARDS), "write it again: python -m tests.sim --ablations"
