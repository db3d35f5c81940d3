"""Connections that break under a lock, and what may stand between a program and its database."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from bench.rig.postgres import Postgres
from tests.locks.company import LIMIT_S, is_awaited, together, until
from tests.locks.proxies import pooler_before, wire_to

from tabherd.errors import InvalidRequest, LockLost, LockTimedOut, StoreUnavailable
from tabherd.locks import advisory_lock, advisory_lock_or_skip
from tabherd.locks import postgres as postgres_locks
from tabherd.locks.base import key_of, named_key, this_process
from tabherd.locks.link_opening import Opener
from tabherd.locks.links import Statement, TaskLink
from tabherd.locks.open import open_async_backend, open_backend
from tabherd.locks.postgres import AsyncPostgresBackend, PostgresBackend

ME = this_process()


@pytest.fixture
def backend(postgres: Postgres) -> Iterator[PostgresBackend]:
    opened = PostgresBackend(postgres.url, max_connections=3, keepalive_s=10)
    yield opened
    opened.close()


def terminate(operator: psycopg.Connection, namespace: int) -> None:
    operator.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s",
        [namespace],
    )


def test_a_holder_whose_session_was_ended_is_told_when_it_asks_and_when_it_leaves(
    postgres: Postgres, operator: psycopg.Connection, namespace: int
) -> None:
    block = advisory_lock(namespace, 1, url=postgres.url)
    lock = block.__enter__()
    terminate(operator, namespace)
    with pytest.raises(LockLost):
        lock.check()
    with pytest.raises(LockLost):
        block.__exit__(None, None, None)
    with advisory_lock(namespace, 1, timeout=0, url=postgres.url):
        pass


def test_an_exception_of_the_block_is_not_hidden_by_the_loss_of_the_lock(
    postgres: Postgres, operator: psycopg.Connection, namespace: int, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        terminate(operator, namespace)
        raise KeyError

    with pytest.raises(KeyError), advisory_lock(namespace, 1, url=postgres.url):
        fail()
    (line,) = caplog.records
    assert line.levelname == "WARNING"
    assert f"lock {namespace}:1: Lock '{namespace}:1' is lost" in line.getMessage()


def test_an_unlocking_that_fails_is_a_warning_and_the_end_of_the_connection(
    backend: PostgresBackend,
    postgres: Postgres,
    operator: psycopg.Connection,
    namespace: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    statement = postgres_locks._statement

    def broken(function: bytes, *of: Any) -> Statement:
        return Statement(b"SELECT nonsense") if b"unlock" in function else statement(function, *of)

    with advisory_lock(namespace, 1, url=postgres.url), monkeypatch.context() as during:
        during.setattr(postgres_locks, "_statement", broken)
        with pytest.raises(LockTimedOut):
            # Long enough to be connected by then, or there is nothing to unlock.
            backend.acquire(key_of(namespace, 1), 1, this_process("in vain"))
    until(lambda: bool(caplog.records))
    (line,) = caplog.records
    assert line.levelname == "WARNING"
    assert line.getMessage().startswith(f"lock {namespace}:1: the connection was ended: ")
    is_there = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE '%in vain%'"
    until(lambda: operator.execute(is_there).fetchone() == (0,))


def test_a_lock_that_somebody_else_unlocked_on_the_session_is_lost(backend: PostgresBackend, namespace: int) -> None:
    hold = backend.acquire(key_of(namespace, 1), LIMIT_S, ME)

    async def unlock_all() -> None:
        await hold.link.ask(Statement(b"SELECT pg_advisory_unlock_all()"), LIMIT_S)

    with pytest.raises(StopIteration):
        unlock_all().send(None)
    with pytest.raises(LockLost):
        hold.release()


async def test_a_link_that_was_lost_leaves_the_number_of_its_socket_to_whoever_has_it_next(
    postgres: Postgres, operator: psycopg.Connection
) -> None:
    link = await Opener(postgres.url, keepalive_s=10).open_for_task(LIMIT_S)
    assert isinstance(link, TaskLink)
    lost = asyncio.Event()
    link.watch(lost.set)
    number = link._socket
    operator.execute("SELECT pg_terminate_backend(%s, 5000)", [link.told_pid])
    async with asyncio.timeout(LIMIT_S):
        await lost.wait()
    # libpq has closed it: numbers are given anew from the lowest that is free.
    ours, theirs = zip(*(socket.socketpair() for _ in range(20)), strict=True)
    (stranger,) = [one for one in (*ours, *theirs) if one.fileno() == number]
    reader, writer = await asyncio.open_connection(sock=stranger)
    link.close()
    partner = theirs[ours.index(stranger)] if stranger in ours else ours[theirs.index(stranger)]
    partner.send(b"heard\n")
    assert await reader.readline() == b"heard\n"
    writer.close()
    for one in (*ours, *theirs):
        one.close()


async def test_a_task_is_told_of_the_loss_without_asking(
    postgres: Postgres, operator: psycopg.Connection, namespace: int
) -> None:
    backend = open_async_backend(postgres.url)
    hold = await backend.acquire(key_of(namespace, 1), LIMIT_S, ME)
    told = asyncio.Event()
    hold.on_lost(told.set)
    await asyncio.to_thread(terminate, operator, namespace)
    await asyncio.wait_for(told.wait(), LIMIT_S)
    with pytest.raises(LockLost):
        hold.check()
    with pytest.raises(LockLost):
        await hold.release()
    await backend.close()


async def test_a_lock_that_was_released_is_not_reported_lost(
    postgres: Postgres, operator: psycopg.Connection, namespace: int
) -> None:
    backend = open_async_backend(postgres.url)
    hold = await backend.acquire(key_of(namespace, 1), LIMIT_S, ME)
    told: list[str] = []
    hold.on_lost(lambda: told.append("lost"))
    await hold.release()
    await hold.release()
    operator.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name LIKE 'tab%'")
    again = await backend.acquire(key_of(namespace, 1), LIMIT_S, ME)
    assert told == []
    await again.release()
    await backend.close()


def test_a_waiter_whose_session_is_ended_gets_an_error_and_not_the_lock(
    postgres: Postgres, operator: psycopg.Connection, namespace: int
) -> None:
    operator.execute("SELECT pg_advisory_lock(%s, 1)", [namespace])
    backend = open_backend(postgres.url)

    def end() -> None:
        until(lambda: is_awaited(postgres.url, f"{namespace}:1"))
        with postgres.connect() as other:
            other.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            )

    error, _ = together(lambda: backend.acquire(key_of(namespace, 1), LIMIT_S, ME), end)
    operator.execute("SELECT pg_advisory_unlock(%s, 1)", [namespace])
    assert isinstance(error, StoreUnavailable)
    backend.close()


def test_a_database_that_is_not_there_is_an_error_for_waiting_and_for_skipping() -> None:
    url = "postgresql://postgres@127.0.0.1:1/postgres"
    with pytest.raises(StoreUnavailable), advisory_lock(1, 1, url=url):
        pass
    with pytest.raises(StoreUnavailable), advisory_lock_or_skip(1, 1, url=url):
        pass


def test_an_address_that_is_none_is_refused_without_repeating_it() -> None:
    with pytest.raises(InvalidRequest) as refused:
        open_backend("postgresql://ann:secret@host/db?nonsense=1")
    assert "secret" not in str(refused.value.to_wire())


def test_a_line_that_goes_silent_frees_the_lock_and_tells_the_holder(postgres: Postgres, namespace: int) -> None:
    with wire_to(postgres.port) as wire:
        backend = PostgresBackend(postgres.url_through(wire.port), max_connections=2, keepalive_s=1)
        hold = backend.acquire(key_of(namespace, 1), LIMIT_S, ME)
        wire.go_silent()
        # Nothing but the probes of the server's side can tell it.
        with advisory_lock(namespace, 1, timeout=LIMIT_S, url=postgres.url):
            pass

        def is_lost() -> bool:
            try:
                hold.check()
            except LockLost:
                return True
            return False

        until(is_lost)
        backend.close()


def test_a_wait_on_a_silent_line_ends(postgres: Postgres, namespace: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tabherd.locks.postgres.GRACE_S", 0.1)
    with wire_to(postgres.port) as wire, advisory_lock(namespace, 1, url=postgres.url):
        backend = PostgresBackend(postgres.url_through(wire.port), max_connections=2, keepalive_s=1)

        def cut() -> None:
            until(lambda: is_awaited(postgres.url, f"{namespace}:1"))
            wire.go_silent()

        error, _ = together(lambda: backend.acquire(key_of(namespace, 1), 4, ME), cut)
        assert isinstance(error, StoreUnavailable)
        backend.close()


# --- Poolers ---


def test_a_pooler_that_lends_sessions_by_the_transaction_is_refused(postgres: Postgres, namespace: int) -> None:
    with pooler_before(postgres.port) as pooler:
        with pytest.raises(StoreUnavailable, match="pooler") as refused:
            open_backend(postgres.url_through(pooler.port)).acquire(key_of(namespace, 1), LIMIT_S, ME)
        assert "session mode" in refused.value.action


async def test_the_same_is_refused_for_tasks(postgres: Postgres, namespace: int) -> None:
    with pooler_before(postgres.port) as pooler:
        backend = AsyncPostgresBackend(postgres.url_through(pooler.port), max_connections=3, keepalive_s=10)
        with pytest.raises(StoreUnavailable, match="pooler"):
            await backend.acquire(named_key(f"{namespace}"), LIMIT_S, ME)
