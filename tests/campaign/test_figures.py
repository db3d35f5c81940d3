"""The arithmetic of a soak."""

from __future__ import annotations

from random import Random

import pytest

from .figures import jain, percentile, slope_of

HOUR = [10.0 * n for n in range(361)]


def test_a_line_has_its_slope_and_no_doubt() -> None:
    slope = slope_of(HOUR, [100 + at / 360 for at in HOUR])
    assert (slope.per_h, slope.low, slope.high) == pytest.approx((10, 10, 10))
    assert slope.is_growth


def test_noise_is_no_growth() -> None:
    chance = Random(1)
    slope = slope_of(HOUR, [100 + chance.gauss(0, 5) for _ in HOUR])
    assert slope.low < 0 < slope.high
    assert not slope.is_growth


def test_few_samples_are_doubted() -> None:
    chance = Random(2)
    slope = slope_of(HOUR[:12], [100 + chance.gauss(0, 5) for _ in HOUR[:12]])
    assert slope.low < slope.per_h < slope.high
    assert not slope.is_growth


def test_percentiles_are_values_that_occurred() -> None:
    assert percentile([], 0.5) is None
    assert percentile([1, 2, 3, 4], 0.5) == 3
    assert percentile(list(range(1, 101)), 0.99) == 100


def test_fairness_is_one_for_equals_and_a_share_for_one_who_has_all() -> None:
    assert jain([5, 5, 5]) == 1
    assert jain([1, 0, 0, 0]) == 0.25
