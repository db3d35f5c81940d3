"""Which refusals are waited out, for how long, and when that is given up."""

from __future__ import annotations

import pytest

from tabherd import errors
from tabherd.client.patience import HINT_MAX_S, JITTER, LONGEST_WAIT_S, wait_before_retry


def full(**fields: int) -> errors.TabherdError:
    return errors.Capacity("full", **fields)


def test_the_time_that_the_server_names_is_waited_and_never_less() -> None:
    waits = [wait_before_retry(full(retry_after_ms=400), 0, 0.0, 60.0, chance) for chance in (0.0, 0.5, 0.999)]
    assert all(wait is not None and 0.4 <= wait <= 0.4 * (1 + JITTER) for wait in waits)


def test_a_crowd_that_was_refused_together_comes_back_spread() -> None:
    waits = {wait_before_retry(full(retry_after_ms=400), 0, 0.0, 60.0, chance / 10) for chance in range(10)}
    assert len(waits) == 10


def test_without_a_hint_the_waits_grow_up_to_the_longest() -> None:
    waits = [wait_before_retry(full(), attempt, 0.0, 60.0, 0.0) for attempt in range(100)]
    assert waits[:3] == [0.1, 0.2, 0.4]
    assert waits[-1] == LONGEST_WAIT_S


def test_a_hint_far_away_is_cut() -> None:
    assert wait_before_retry(full(retry_after_ms=3_600_000), 0, 0.0, 60.0, 0.0) == HINT_MAX_S


def test_a_wait_that_ends_after_patience_does_is_not_begun() -> None:
    assert wait_before_retry(full(retry_after_ms=2_000), 3, 59.0, 60.0, 0.0) is None


def test_who_has_no_patience_waits_for_nothing() -> None:
    assert wait_before_retry(full(), 0, 0.0, 0.0, 0.0) is None


@pytest.mark.parametrize(
    "error",
    [
        errors.Capacity("x"),
        errors.QueueFull("x"),
        errors.RateLimited("x"),
        errors.TabQueueLimitExceeded("x"),
        errors.Draining("x"),
        errors.NoBrowser("x"),
        errors.StoreUnavailable("x"),
        errors.NodeUnreachable("x"),
        errors.BrowserCrashed("x"),
    ],
    ids=lambda error: error.code,
)
def test_load_and_absence_are_waited_out(error: errors.TabherdError) -> None:
    assert wait_before_retry(error, 0, 0.0, 60.0, 0.0) is not None


@pytest.mark.parametrize(
    "error",
    [
        errors.TabBusy("x"),
        errors.TabLocked("x"),
        errors.QueueWaitTimedOut("x"),
        errors.CommandTimedOut("x"),
        errors.OutcomeUnknown("x"),
        errors.LeaseLost("x"),
        errors.InvalidRequest("x"),
        errors.NodeUnreachable("x", retryable=False),
    ],
    ids=lambda error: error.code,
)
def test_what_waiting_does_not_mend_stands(error: errors.TabherdError) -> None:
    assert wait_before_retry(error, 0, 0.0, 60.0, 0.0) is None
