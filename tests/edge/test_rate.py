"""Token buckets: a burst passes, then the rate holds, per key, in bounded memory."""

from __future__ import annotations

import pytest

from tabherd.edge import rate
from tabherd.edge.rate import TokenBuckets


def test_a_burst_passes_and_the_next_waits() -> None:
    buckets = TokenBuckets(rate_per_s=4, burst=3)
    assert [buckets.take("a", 0.0) for _ in range(4)] == [0, 0, 0, 250]


def test_whoever_waits_as_told_is_admitted() -> None:
    buckets = TokenBuckets(rate_per_s=7, burst=1)
    buckets.take("a", 0.0)
    wait_ms = buckets.take("a", 0.0)
    assert buckets.take("a", wait_ms / 1000) == 0


def test_being_refused_does_not_push_the_next_token_away() -> None:
    buckets = TokenBuckets(rate_per_s=1, burst=1)
    buckets.take("a", 0.0)
    for now in (0.1, 0.5, 0.9):
        assert buckets.take("a", now) > 0
    assert buckets.take("a", 1.0) == 0


def test_silence_never_earns_more_than_a_burst() -> None:
    buckets = TokenBuckets(rate_per_s=100, burst=2)
    buckets.take("a", 0.0)
    assert [buckets.take("a", 1_000.0) > 0 for _ in range(3)] == [False, False, True]


def test_keys_have_buckets_of_their_own() -> None:
    buckets = TokenBuckets(rate_per_s=1, burst=1)
    assert buckets.take("a", 0.0) == 0
    assert buckets.take("b", 0.0) == 0


def test_memory_is_bounded_by_dropping_buckets_that_are_full_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate, "BUCKETS_MAX", 10)
    buckets = TokenBuckets(rate_per_s=1, burst=5)
    for number in range(10):
        buckets.take(str(number), 0.0)
    buckets.take("late", 5.0)
    assert set(buckets._buckets) == {"late"}


def test_memory_is_bounded_when_every_bucket_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate, "BUCKETS_MAX", 10)
    buckets = TokenBuckets(rate_per_s=1, burst=5)
    for number in range(50):
        buckets.take(str(number), 0.0)
    assert len(buckets._buckets) == 10
