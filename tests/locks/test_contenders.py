"""The crowd that the benchmark of locks lets loose."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.rig.contenders import Contention, contend

pytestmark = pytest.mark.release


@pytest.mark.parametrize(("shares", "factor"), [([5, 5, 5], 1.0), ([2, 4, 6], 2.0), ([1, 1, 10], 4.0), ([0, 10], 5.0)])
def test_the_share_that_is_furthest_from_fair_is_told_as_a_factor(shares: list[int], factor: float) -> None:
    assert Contention([], shares).furthest_from_fair == factor


@pytest.mark.parametrize("are_processes", [False, True])
def test_every_handover_is_noted_and_every_turn_counted(tmp_path: Path, are_processes: bool) -> None:
    found = contend(tmp_path.as_uri(), 3, 0.1, are_processes=are_processes)
    assert min(found.shares) >= 1
    assert len(found.handovers_ms) == sum(found.shares) - 1
    assert min(found.handovers_ms) >= 0
