"""Estimates of the next wait, from how long things were held."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tabherd.core.hold_times import RETRY_AFTER_MAX_MS, RETRY_AFTER_MIN_MS, HoldTimes


def test_without_samples_the_estimate_is_the_default() -> None:
    assert HoldTimes(default_ms=700).retry_after_ms() == 700


def test_the_estimate_is_the_mean_of_recent_holds() -> None:
    holds = HoldTimes()
    for held_ms in (1_000, 2_000, 6_000):
        holds.record(held_ms)
    assert holds.retry_after_ms(position=1, capacity=1) == 3_000


def test_one_very_long_hold_does_not_spoil_the_estimate() -> None:
    holds = HoldTimes()
    for held_ms in (*[1_000] * 9, 3_600_000):
        holds.record(held_ms)
    assert holds.retry_after_ms(position=1, capacity=1) == (9 * 1_000 + 10_000) // 10


def test_the_estimate_grows_with_the_position_and_shrinks_with_the_capacity() -> None:
    holds = HoldTimes(default_ms=1_000)
    assert holds.retry_after_ms(position=6, capacity=3) == 2_000


def test_only_recent_holds_count() -> None:
    holds = HoldTimes(samples_max=3)
    for held_ms in (9_000, 9_000, 9_000, 100, 100, 100):
        holds.record(held_ms)
    assert holds.retry_after_ms() == 100


@given(
    held=st.lists(st.integers(-5, 10**9), max_size=100), position=st.integers(-1, 10_000), capacity=st.integers(-1, 9)
)
@settings(max_examples=100, deadline=None)
def test_the_estimate_stays_within_its_bounds(held: list[int], position: int, capacity: int) -> None:
    holds = HoldTimes()
    for held_ms in held:
        holds.record(held_ms)
    assert RETRY_AFTER_MIN_MS <= holds.retry_after_ms(position, capacity) <= RETRY_AFTER_MAX_MS
