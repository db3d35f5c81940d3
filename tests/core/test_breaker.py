"""The circuit breaker: at once after one crash, patient after many, and trusting again only after proof."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tabherd.core.breaker import Breaker, BreakerPolicy, BreakerState

T0 = 1_000_000


def crash(breaker: Breaker, *times: int) -> Breaker:
    for at in times:
        breaker = breaker.crashed(at)
    return breaker


def test_a_fresh_slot_may_start() -> None:
    assert Breaker().may_start(T0)


def test_after_the_first_crash_the_replacement_starts_at_once() -> None:
    assert crash(Breaker(), T0).may_start(T0)


def test_after_the_second_crash_in_a_window_the_restart_waits_a_little() -> None:
    breaker = crash(Breaker(), T0, T0 + 1_000)
    assert not breaker.may_start(T0 + 1_249)
    assert breaker.may_start(T0 + 1_250)


def test_the_backoff_doubles_while_the_breaker_stays_closed() -> None:
    breaker = crash(Breaker(policy=BreakerPolicy(crashes_max=9)), T0, T0, T0, T0)
    assert breaker.retry_at == T0 + 1_000


def test_three_crashes_in_the_window_open_it_for_thirty_seconds() -> None:
    breaker = crash(Breaker(), T0, T0 + 10_000, T0 + 59_999)
    assert breaker.state(T0 + 60_000) is BreakerState.OPEN
    assert breaker.retry_at == T0 + 59_999 + 30_000
    assert not breaker.may_start(breaker.retry_at - 1)
    assert breaker.may_start(breaker.retry_at)


def test_three_crashes_spread_wider_than_the_window_leave_it_closed() -> None:
    breaker = crash(Breaker(), T0, T0 + 30_000, T0 + 60_000)
    assert breaker.state(T0 + 60_000) is BreakerState.CLOSED


def test_a_crash_long_after_the_last_one_counts_as_a_first_one() -> None:
    breaker = crash(Breaker(), T0, T0 + 1, T0 + 3_600_000)
    assert breaker.may_start(T0 + 3_600_000)


def test_half_open_admits_one_start_only() -> None:
    opened = crash(Breaker(), T0, T0, T0)
    at = opened.retry_at
    assert opened.state(at) is BreakerState.HALF_OPEN
    trying = opened.started(at)
    assert not trying.may_start(at)
    assert not trying.may_start(at + 59_999)


def test_a_crash_on_trial_opens_it_for_twice_as_long() -> None:
    opened = crash(Breaker(), T0, T0, T0)
    at = opened.retry_at
    again = opened.started(at).crashed(at + 59_999)
    assert again.state(at + 59_999) is BreakerState.OPEN
    assert again.retry_at == at + 59_999 + 60_000


def test_the_open_time_doubles_up_to_five_minutes() -> None:
    breaker = crash(Breaker(), T0, T0, T0)
    now, pauses = T0, []
    for _ in range(7):
        pauses.append(breaker.retry_at - now)
        now = breaker.retry_at
        breaker = breaker.started(now).crashed(now)
    assert pauses == [30_000, 60_000, 120_000, 240_000, 300_000, 300_000, 300_000]


def test_a_trial_that_survives_the_window_closes_it() -> None:
    opened = crash(Breaker(), T0, T0, T0)
    trying = opened.started(opened.retry_at)
    assert trying.state(opened.retry_at + 59_999) is BreakerState.HALF_OPEN
    assert trying.state(opened.retry_at + 60_000) is BreakerState.CLOSED


def test_after_a_survived_trial_a_crash_is_a_first_one_again() -> None:
    opened = crash(Breaker(), T0, T0, T0)
    later = opened.retry_at + 60_000
    breaker = opened.started(opened.retry_at).crashed(later)
    assert breaker.state(later) is BreakerState.CLOSED
    assert breaker.may_start(later)


def test_after_a_survived_trial_the_open_time_starts_over() -> None:
    opened = crash(Breaker(), T0, T0, T0)
    later = opened.retry_at + 60_000
    reopened = crash(opened.started(opened.retry_at), later, later, later)
    assert reopened.retry_at == later + 30_000


def test_a_start_while_closed_changes_nothing() -> None:
    breaker = crash(Breaker(), T0)
    assert breaker.started(T0) == breaker


def test_a_start_a_moment_too_early_is_on_trial_like_any_other() -> None:
    opened = crash(Breaker(), T0, T0, T0)
    trying = opened.started(opened.retry_at - 1)
    assert trying.state(opened.retry_at) is BreakerState.HALF_OPEN
    assert not trying.may_start(opened.retry_at)


def test_a_start_after_a_survived_trial_forgets_the_past() -> None:
    opened = crash(Breaker(), T0, T0, T0)
    trying = opened.started(opened.retry_at)
    assert trying.started(trying.retry_at) == Breaker()


@given(steps=st.lists(st.tuples(st.integers(0, 400_000), st.booleans()), max_size=60))
@settings(max_examples=80, deadline=None)
def test_any_history_keeps_the_bounds(steps: list[tuple[int, bool]]) -> None:
    breaker, now = Breaker(), T0
    for wait_ms, is_crash in steps:
        now += wait_ms
        if is_crash:
            breaker = breaker.crashed(now)
        elif breaker.may_start(now):
            breaker = breaker.started(now)
        assert breaker.retry_at <= now + breaker.policy.open_max_ms
        assert len(breaker.crashes) < breaker.policy.crashes_max
        if breaker.state(now) is BreakerState.OPEN:
            assert not breaker.may_start(now)
