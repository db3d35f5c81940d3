"""What only a database can do to a lock: its connections, how many there are, and waits that fail."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from bench.rig.postgres import Postgres
from tests.locks.company import LIMIT_S, is_awaited, row_of, together, until

from tabherd.errors import LockTimedOut, StoreUnavailable
from tabherd.locks import advisory_lock, advisory_lock_or_skip, advisory_locks, async_advisory_lock
from tabherd.locks.base import key_of, lock_key_from_string, this_process
from tabherd.locks.links import Link, Rejected, Row, Statement
from tabherd.locks.postgres import AsyncPostgresBackend, PostgresBackend

ME = this_process()


@pytest.fixture
def backend(postgres: Postgres) -> Iterator[PostgresBackend]:
    opened = PostgresBackend(postgres.url, max_connections=3, keepalive_s=10)
    yield opened
    opened.close()


def sessions(operator: psycopg.Connection, namespace: int | None = None) -> list[int]:
    """The server's processes that have a lock of that namespace, or all that are there for locks."""
    if namespace is None:
        rows = operator.execute("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'tabherd %'")
    else:
        rows = operator.execute("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = %s", [namespace])
    return [pid for (pid,) in rows.fetchall()]


# --- Connections ---


def test_a_connection_is_used_for_one_lock_after_the_other(
    backend: PostgresBackend, operator: psycopg.Connection, namespace: int
) -> None:
    seen = set()
    for key in range(5):
        hold = backend.acquire(key_of(namespace, key), LIMIT_S, ME)
        seen.update(sessions(operator, namespace))
        hold.release()
    assert len(seen) == 1


def test_nothing_is_locked_on_a_connection_that_is_kept(
    backend: PostgresBackend, operator: psycopg.Connection, namespace: int
) -> None:
    backend.acquire(key_of(namespace, 1), LIMIT_S, ME).release()
    assert sessions(operator)
    assert sessions(operator, namespace) == []


def test_closing_ends_the_connections_that_are_idle_and_later_the_others(
    backend: PostgresBackend, operator: psycopg.Connection, namespace: int
) -> None:
    held = backend.acquire(key_of(namespace, 1), LIMIT_S, ME)
    backend.acquire(key_of(namespace, 2), LIMIT_S, ME).release()
    backend.close()
    until(lambda: len(sessions(operator)) == 1)
    held.check()
    held.release()
    until(lambda: not sessions(operator))


def test_a_connection_that_died_while_it_was_idle_is_replaced(
    backend: PostgresBackend, operator: psycopg.Connection, namespace: int
) -> None:
    backend.acquire(key_of(namespace, 1), LIMIT_S, ME).release()
    operator.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name LIKE 'tab%'")
    backend.acquire(key_of(namespace, 1), LIMIT_S, ME).release()


def test_more_callers_than_connections_end_in_timeouts_and_not_in_a_deadlock(
    backend: PostgresBackend, operator: psycopg.Connection, namespace: int
) -> None:
    most = 0

    def attempt() -> None:
        backend.acquire(key_of(namespace, 1), 1, ME)

    hold = backend.acquire(key_of(namespace, 1), LIMIT_S, ME)
    watching = threading.Event()

    def watch() -> None:
        nonlocal most
        while not watching.is_set():
            most = max(most, len(sessions(operator)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    errors = together(*[attempt] * 15)
    watching.set()
    watcher.join()
    assert {type(error) for error in errors} == {LockTimedOut}
    assert most <= 3
    hold.release()
    backend.acquire(key_of(namespace, 1), 0, ME).release()


def test_who_waits_for_a_connection_gets_it_in_turn_and_within_its_time(
    backend: PostgresBackend, namespace: int
) -> None:
    holds = [backend.acquire(key_of(namespace, key), LIMIT_S, ME) for key in range(3)]
    with pytest.raises(LockTimedOut):
        backend.acquire(key_of(namespace, 9), 0.05, ME)
    waiting = threading.Thread(target=lambda: backend.acquire(key_of(namespace, 9), LIMIT_S, ME).release())
    waiting.start()
    holds.pop().release()
    waiting.join(LIMIT_S)
    assert not waiting.is_alive()
    for hold in holds:
        hold.release()


def test_without_a_free_connection_an_attempt_is_an_error_and_not_busy(
    backend: PostgresBackend, namespace: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tabherd.locks.postgres.OPEN_MAX_S", 0.05)
    holds = [backend.acquire(key_of(namespace, key), LIMIT_S, ME) for key in range(3)]
    with pytest.raises(StoreUnavailable, match="all 3 connections"):
        backend.try_acquire(key_of(namespace, 9), ME)
    for hold in holds:
        hold.release()


def test_working_through_many_items_takes_one_connection_for_the_lock_and_one_for_the_work(
    postgres: Postgres, operator: psycopg.Connection, namespace: int
) -> None:
    most = 0
    with postgres.connect() as work:
        for item in range(20):
            with advisory_lock(namespace, item, url=postgres.url):
                work.execute("SELECT 1")
                most = max(most, len(sessions(operator)))
    assert most == 1


def test_a_holder_of_several_locks_has_one_connection(
    postgres: Postgres, operator: psycopg.Connection, namespace: int
) -> None:
    with (
        advisory_lock(namespace, 1, url=postgres.url),
        advisory_lock(f"another-{namespace}", url=postgres.url),
        advisory_lock_or_skip(namespace, 3, url=postgres.url) as acquired,
    ):
        assert acquired
        assert len(sessions(operator)) == 1


async def test_a_task_that_holds_several_locks_has_one_connection_and_its_neighbour_another(
    postgres: Postgres, operator: psycopg.Connection, namespace: int
) -> None:
    async def hold_two(first: int, both: asyncio.Barrier) -> None:
        async with (
            async_advisory_lock(namespace, first, url=postgres.url),
            async_advisory_lock(namespace, first + 1, url=postgres.url),
        ):
            await both.wait()
            assert len(sessions(operator)) == 2
            await both.wait()

    both = asyncio.Barrier(2)
    await asyncio.gather(hold_two(1, both), hold_two(3, both))


def test_commits_and_rollbacks_of_the_work_do_not_touch_the_lock(postgres: Postgres, namespace: int) -> None:
    with postgres.connect() as work, advisory_lock(namespace, 1, url=postgres.url) as lock:
        for end in ("COMMIT", "ROLLBACK", "COMMIT"):
            work.execute("BEGIN")
            work.execute("SELECT 1")
            work.execute(end)
        work.execute("DISCARD ALL")
        lock.check()
        assert row_of(postgres.url, f"{namespace}:1") is not None


def test_a_limit_of_the_database_on_statements_ends_no_wait_and_no_lock(postgres: Postgres, namespace: int) -> None:
    url = f"{postgres.url}&options=-c%20statement_timeout%3D500%20-c%20idle_session_timeout%3D500"

    def wait() -> bool:
        with advisory_lock(namespace, 1, timeout=LIMIT_S, url=url) as lock:
            time.sleep(0.7)
            lock.check()
            return True

    with postgres.connect() as other, ThreadPoolExecutor(1) as callers:
        other.execute("SELECT pg_advisory_lock(%s, 1)", [namespace])
        waiting = callers.submit(wait)
        until(lambda: is_awaited(postgres.url, f"{namespace}:1"))
        # Longer than the limit on statements.
        time.sleep(0.7)
        assert is_awaited(postgres.url, f"{namespace}:1")
        other.execute("SELECT pg_advisory_unlock(%s, 1)", [namespace])
        assert waiting.result(LIMIT_S)


def test_sql_of_ones_own_and_the_library_exclude_each_other(
    postgres: Postgres, operator: psycopg.Connection, namespace: int
) -> None:
    number = lock_key_from_string(f"account-{namespace}")
    operator.execute("SELECT pg_advisory_lock(%s)", [number])
    with advisory_lock_or_skip(f"account-{namespace}", url=postgres.url) as acquired:
        assert not acquired
    row = row_of(postgres.url, f"#{number}")
    assert row is not None
    assert row.holder is not None
    assert row.acquired_at is None
    operator.execute("SELECT pg_advisory_unlock(%s)", [number])


def test_monitoring_tells_the_time_and_name_of_every_lock_of_a_holder(postgres: Postgres, namespace: int) -> None:
    outer, inner = f"outer-{namespace}", f"inner-{namespace}"
    with advisory_lock(outer, url=postgres.url) as first, advisory_lock(namespace, 1, url=postgres.url) as second:
        with advisory_lock(inner, url=postgres.url) as third:
            since = {row.label: row.acquired_at for row in advisory_locks(postgres.url)}
            assert since[outer] == first.acquired_at
            assert since[f"{namespace}:1"] == second.acquired_at
            assert abs((since[inner] or 0) - third.acquired_at) < 60_000
        since = {row.label: row.acquired_at for row in advisory_locks(postgres.url)}
        assert since[outer] == first.acquired_at
        assert inner not in since


async def test_a_cancellation_at_any_moment_leaves_no_connection(
    postgres: Postgres, operator: psycopg.Connection, namespace: int
) -> None:
    async def use(backend: AsyncPostgresBackend) -> None:
        await (await backend.acquire(key_of(namespace, 1), LIMIT_S, ME)).release()

    # What is only closed when the garbage is collected is left behind.
    gc.disable()
    try:
        for turns in range(0, 60, 6):
            backend = AsyncPostgresBackend(postgres.url, max_connections=3, keepalive_s=10)
            task = asyncio.create_task(use(backend))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait((task,))
            await backend.close()
            await asyncio.to_thread(until, lambda: not sessions(operator))
    finally:
        gc.enable()


async def test_a_connection_that_was_handed_to_a_cancelled_task_goes_to_the_next(
    postgres: Postgres, namespace: int
) -> None:
    backend = AsyncPostgresBackend(postgres.url, max_connections=1, keepalive_s=10)
    for _ in range(3):
        hold = await backend.acquire(key_of(namespace, 1), LIMIT_S, ME)
        waiting = asyncio.create_task(backend.acquire(key_of(namespace, 2), LIMIT_S, ME))
        await asyncio.sleep(0)
        await hold.release()
        # It has the connection, and has not been told yet.
        waiting.cancel()
        await asyncio.wait((waiting,))
    await (await backend.acquire(key_of(namespace, 2), LIMIT_S, ME)).release()
    await backend.close()


# --- Failed waits ---


class Phantom:
    """A server with bug 17686: the wait is granted, and reported as timed out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, backend: PostgresBackend) -> None:
        self.asked: list[bytes] = []
        self._original = Link._ask
        phantom = self

        async def ask(link: Link, statement: Statement, limit_s: float) -> list[Row]:
            phantom.asked.append(statement.text)
            if b"pg_try_advisory_lock" in statement.text:
                return [(b"f",)]
            rows = await phantom._original(link, statement, limit_s)
            if b"lock_timeout" in statement.text:
                raise Rejected("55P03", "canceling statement due to lock timeout")
            return rows

        monkeypatch.setattr(Link, "_ask", ask)


def test_a_lock_that_was_granted_although_the_timeout_was_reported_is_unlocked(
    backend: PostgresBackend, operator: psycopg.Connection, namespace: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        phantom = Phantom(patch, backend)
        with pytest.raises(LockTimedOut):
            backend.acquire(key_of(namespace, 1), LIMIT_S, ME)
        assert any(b"lock_timeout" in text for text in phantom.asked)
    assert sessions(operator, namespace) == []


def test_such_a_lock_takes_no_other_lock_of_the_holder_with_it(
    backend: PostgresBackend, operator: psycopg.Connection, namespace: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = backend.acquire(key_of(namespace, 1), LIMIT_S, ME)
    with monkeypatch.context() as patch:
        Phantom(patch, backend)
        with pytest.raises(LockTimedOut):
            backend.acquire(key_of(namespace, 2), LIMIT_S, ME, beside=outer)
    assert len(sessions(operator, namespace)) == 1
    outer.release()


def test_unlocking_after_a_timeout_is_harmless_where_nothing_was_granted(
    backend: PostgresBackend, operator: psycopg.Connection, namespace: int
) -> None:
    operator.execute("SELECT pg_advisory_lock(%s, 1)", [namespace])
    before = None
    for _ in range(3):
        with pytest.raises(LockTimedOut):
            backend.acquire(key_of(namespace, 1), 0.01, ME)
        # The connection is as good as before, and kept.
        assert len(sessions(operator)) == 1
        assert before in (None, sessions(operator))
        before = sessions(operator)
    operator.execute("SELECT pg_advisory_unlock(%s, 1)", [namespace])
    backend.acquire(key_of(namespace, 1), 0, ME).release()


def test_a_timeout_of_an_inner_lock_leaves_the_outer_one(postgres: Postgres, namespace: int) -> None:
    with postgres.connect() as other, advisory_lock(namespace, 1, url=postgres.url) as outer:
        other.execute("SELECT pg_advisory_lock(%s, 2)", [namespace])
        with pytest.raises(LockTimedOut), advisory_lock(namespace, 2, timeout=0.01, url=postgres.url):
            pass
        outer.check()
        assert row_of(postgres.url, f"{namespace}:1") is not None


async def test_a_cancelled_wait_for_an_inner_lock_leaves_the_outer_one(postgres: Postgres, namespace: int) -> None:
    with postgres.connect() as other:
        other.execute("SELECT pg_advisory_lock(%s, 2)", [namespace])
        async with async_advisory_lock(namespace, 1, url=postgres.url) as outer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), async_advisory_lock(namespace, 2, url=postgres.url):
                    pass
            outer.check()
        rows = other.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s", [namespace])
        assert rows.fetchone() == (1,)
