"""`advisory_lock` and `advisory_lock_or_skip`, on files and on PostgreSQL: one caller, and what it leaves behind."""

from __future__ import annotations

import inspect
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.locks.company import row_of, together

from tabherd.errors import LockReentered, LockTimedOut
from tabherd.locks import (
    AdvisoryLockError,
    LockNamespace,
    advisory_lock,
    advisory_lock_or_skip,
    advisory_locks,
    async_advisory_lock,
)
from tabherd.locks.base import host_name


def is_free(url: str, namespace: int | str, key: int | str | None = None) -> bool:
    """Whether somebody else could have the lock now."""

    def attempt() -> bool:
        with advisory_lock_or_skip(namespace, key, url=url) as acquired:
            return acquired

    (free,) = together(attempt)
    assert isinstance(free, bool), free
    return free


def test_the_lock_is_held_in_the_block_and_released_after_it(url: str, namespace: int) -> None:
    with advisory_lock(namespace, 1, url=url):
        assert not is_free(url, namespace, 1)
    assert is_free(url, namespace, 1)


def test_a_lock_that_is_not_free_in_time_is_an_error(url: str, namespace: int) -> None:
    def wait() -> None:
        with advisory_lock(namespace, 1, timeout=0.05, url=url):
            raise AssertionError

    with advisory_lock(namespace, 1, url=url):
        (error,) = together(wait)
    assert isinstance(error, LockTimedOut)
    assert isinstance(error, AdvisoryLockError)
    assert error.details["lock"] == f"{namespace}:1"


@pytest.mark.parametrize("take", [advisory_lock, async_advisory_lock])
def test_whoever_names_no_timeout_waits_fifteen_seconds(take: Callable[..., object]) -> None:
    assert inspect.signature(take).parameters["timeout"].default == 15.0


def test_a_timeout_of_nothing_takes_a_free_lock_and_waits_for_no_other(url: str, namespace: int) -> None:
    def at_once() -> bool:
        with advisory_lock(namespace, 1, timeout=0, url=url):
            return True

    assert together(at_once) == [True]
    with advisory_lock(namespace, 1, url=url):
        (error,) = together(at_once)
    assert isinstance(error, LockTimedOut)


def test_skipping_yields_true_with_the_lock_and_false_without(url: str, namespace: int) -> None:
    with advisory_lock_or_skip(namespace, 1, url=url) as acquired:
        assert acquired is True
        assert not is_free(url, namespace, 1)
    assert is_free(url, namespace, 1)


def test_an_exception_in_the_block_releases_the_lock_and_goes_on(url: str, namespace: int) -> None:
    with pytest.raises(KeyError, match="mine"), advisory_lock(namespace, 1, url=url):
        raise KeyError("mine")
    with pytest.raises(KeyError, match="mine"), advisory_lock_or_skip(namespace, 1, url=url):
        raise KeyError("mine")
    assert is_free(url, namespace, 1)


def test_blocks_in_blocks_that_fail_release_every_lock(url: str, namespace: int) -> None:
    with pytest.raises(KeyError), advisory_lock(namespace, 1, url=url), advisory_lock(namespace, 2, url=url):
        raise KeyError
    assert is_free(url, namespace, 1)
    assert is_free(url, namespace, 2)


def test_a_nested_acquisition_is_refused_at_once_and_the_outer_one_stays(url: str, namespace: int) -> None:
    with advisory_lock(namespace, 1, url=url):
        # Without the refusal this would be the timeout's error, a quarter of a minute later.
        with pytest.raises(LockReentered), advisory_lock(namespace, 1, url=url):
            pass
        assert not is_free(url, namespace, 1)
    assert is_free(url, namespace, 1)


def test_a_nested_attempt_skips(url: str, namespace: int) -> None:
    with advisory_lock(namespace, 1, url=url), advisory_lock_or_skip(namespace, 1, url=url) as acquired:
        assert acquired is False


def test_after_a_refused_nesting_the_lock_can_be_had_again(url: str, namespace: int) -> None:
    with advisory_lock(namespace, 1, url=url), pytest.raises(LockReentered), advisory_lock(namespace, 1, url=url):
        pass
    with advisory_lock(namespace, 1, url=url):
        pass


def test_a_lock_that_another_thread_releases_leaves_no_trace(url: str, namespace: int) -> None:
    block = advisory_lock(namespace, 1, url=url)
    block.__enter__()
    together(lambda: block.__exit__(None, None, None))
    with advisory_lock(namespace, 1, url=url):
        pass


def test_a_name_is_one_lock_however_it_is_spelled(url: str, namespace: int) -> None:
    with advisory_lock(f"account-{namespace}", "x", url=url):
        assert not is_free(url, f"account-{namespace}:x")
        assert is_free(url, f"account-{namespace}", "y")


def test_the_namespace_of_agents_is_the_number_one(url: str) -> None:
    with advisory_lock(LockNamespace.AGENT, 42, url=url):
        assert not is_free(url, 1, 42)
        assert is_free(url, LockNamespace.CONFIG, 42)


def test_check_says_nothing_while_the_lock_is_held(url: str, namespace: int) -> None:
    with advisory_lock(namespace, 1, url=url) as lock:
        lock.check()
        assert lock.label == f"{namespace}:1"


def test_monitoring_shows_who_has_the_lock_and_since_when(url: str, namespace: int) -> None:
    with advisory_lock(f"shown-{namespace}", url=url, label="ada at work") as lock:
        row = row_of(url, f"shown-{namespace}")
        assert row is not None
        assert row.holder is not None
        assert (row.holder.pid, row.holder.host, row.holder.label) == (os.getpid(), host_name(), "ada at work")
        assert row.acquired_at is not None
        # The moment of the grant, by the clocks of two processes of this machine.
        assert abs(row.acquired_at - lock.acquired_at) < 60_000
        assert row.waiters == ()
    assert row_of(url, f"shown-{namespace}") is None


def test_monitoring_tells_any_name(url: str, namespace: int) -> None:
    for name in ("a */ SELECT 1; /* b", "50 % off", "größe", "'; --", 'q"uote', "/../x"):
        with advisory_lock(f"{namespace}{name}", url=url):
            assert row_of(url, f"{namespace}{name}") is not None


def test_monitoring_tells_two_numbers_from_the_name_that_looks_like_them(url: str, namespace: int) -> None:
    with advisory_lock(namespace, -1, url=url), advisory_lock(f"{namespace}:-1", url=url):
        rows = [row for row in advisory_locks(url) if row.label == f"{namespace}:-1"]
        assert {row.pair for row in rows} == {(namespace, -1), None}


def test_contention_is_counted(url: str, namespace: int) -> None:
    def wait() -> None:
        with advisory_lock(namespace, 1, timeout=0.01, url=url):
            raise AssertionError

    with advisory_lock(namespace, 1, url=url):
        together(wait)
        assert not is_free(url, namespace, 1)
        assert not is_free(url, namespace, 1)
        row = row_of(url, f"{namespace}:1")
        assert row is not None
        counts = row.counts
        assert (counts.waits, counts.timeouts, counts.skips, counts.consecutive_skips) == (1, 1, 2, 2)
    assert is_free(url, namespace, 1)
    with advisory_lock(namespace, 1, url=url):
        row = row_of(url, f"{namespace}:1")
        assert row is not None
        assert (row.counts.skips, row.counts.consecutive_skips) == (2, 0)


def test_timeouts_are_logged_as_warnings_and_the_rest_for_who_looks(
    url: str, namespace: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tabherd.locks")
    with advisory_lock(namespace, 1, url=url):
        assert not is_free(url, namespace, 1)

        def wait() -> None:
            with advisory_lock(namespace, 1, timeout=0.01, url=url):
                raise AssertionError

        together(wait)
    said = [(record.levelname, record.message.partition(": ")[2].partition(" ")[0]) for record in caplog.records]
    assert said == [("DEBUG", "acquired"), ("DEBUG", "busy,"), ("WARNING", "not"), ("DEBUG", "released")]


def test_the_default_is_a_directory_of_the_state_directory(tmp_path: Path) -> None:
    with advisory_lock("agent", 42):
        assert not is_free((tmp_path / "state" / "locks").as_uri(), "agent:42")


def test_it_also_decorates_a_function(url: str, namespace: int) -> None:
    @advisory_lock(namespace, 1, url=url)
    def work() -> bool:
        return is_free(url, namespace, 1)

    assert work() is False
    assert is_free(url, namespace, 1)


def test_threads_that_end_do_not_hand_their_identity_to_the_next(url: str, namespace: int) -> None:
    block = advisory_lock(namespace, 1, url=url)
    together(block.__enter__)
    # A new thread, which may have the number of the one that has ended with the lock still held.
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            with advisory_lock(namespace, 1, timeout=0.01, url=url):
                raise AssertionError
        except AdvisoryLockError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    block.__exit__(None, None, None)
    assert isinstance(errors[0], LockTimedOut)
