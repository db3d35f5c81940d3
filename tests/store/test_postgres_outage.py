"""Lost connections, restarts and outages: nothing acknowledged is lost, nothing happens twice, and it comes back."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Iterator

import psycopg
import pytest
from bench.rig.postgres import Postgres

from tabherd.core.model import Session, Tab
from tabherd.errors import StoreUnavailable
from tabherd.store import postgres_link, postgres_writer
from tabherd.store.base import Add, Applied, Insert, Op
from tabherd.store.evaluate import Writes
from tabherd.store.postgres import PostgresStore
from tabherd.store.postgres_database import PostgresDatabase
from tabherd.store.postgres_rows import change_of, save

from .conftest import SHARED_SCHEMA
from .postgres_proxy import Line, line_to
from .samples import session, tab
from .test_postgres import held
from .test_sqlite_crash import everything

pytestmark = pytest.mark.usefixtures("patient")

SEED = 11
TERMINATIONS = 25
CALLERS = 16
# What never happens is given up after this.
PATIENCE_S = 30


@pytest.fixture
async def line(postgres: Postgres) -> AsyncIterator[Line]:
    async with line_to(postgres.port) as line:
        yield line


@pytest.fixture
async def store(line: Line, postgres: Postgres, postgres_url: Callable[[], str]) -> AsyncIterator[PostgresStore]:
    """On the line, with a counter `n` of 1."""
    store = PostgresStore(PostgresDatabase(f"{postgres.url_through(line.port)}?{postgres_url().partition('?')[2]}"))
    await store.apply(Add("n", 1))
    assert await store.counter("n") == 1
    yield store
    await store.close()


@pytest.fixture
def shell(postgres: Postgres) -> Iterator[psycopg.Connection]:
    with postgres.connect() as shell:
        yield shell


def value(shell: psycopg.Connection) -> int:
    """The counter `n`, past any store."""
    row = shell.execute(f"SELECT value FROM {SHARED_SCHEMA}.counters WHERE name = 'n'".encode()).fetchone()
    assert row is not None
    return int(row[0])


async def waits(shell: psycopg.Connection, statement: str) -> int:
    """The process of the server that waits for a lock in this kind of statement, as soon as there is one."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            row = shell.execute(
                "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s", (f"{statement}%",)
            ).fetchone()
            if row is not None:
                return int(row[0])
            await asyncio.sleep(0.002)


async def refusal(store: PostgresStore, *ops: Op) -> StoreUnavailable:
    with pytest.raises(StoreUnavailable) as refused:
        await store.apply(*ops)
    return refused.value


# --- A connection that is lost during a commit ------------------------------------------------------------------


async def test_a_commit_whose_answer_is_lost_is_found_out_and_not_repeated(
    store: PostgresStore, line: Line, postgres: Postgres, shell: psycopg.Connection
) -> None:
    with held(postgres, "counters") as let_go:
        call = asyncio.create_task(store.apply(Add("n", 1)))
        await waits(shell, "WITH turn")
        line.deafen()
        let_go()
        async with asyncio.timeout(PATIENCE_S):
            while value(shell) == 1:
                await asyncio.sleep(0.002)
        line.cut()
    assert await call == Applied((None,))
    assert value(shell) == 2


async def test_a_commit_that_still_runs_when_its_connection_is_lost_is_waited_for(
    store: PostgresStore, line: Line, postgres: Postgres, shell: psycopg.Connection
) -> None:
    with held(postgres, "counters") as let_go:
        call = asyncio.create_task(store.apply(Add("n", 1)))
        await waits(shell, "WITH turn")
        line.cut()
        # The new connection is there, and asks.
        await waits(shell, "INSERT INTO")
        let_go()
    assert await call == Applied((None,))
    assert value(shell) == 2


async def test_a_commit_that_is_ended_with_its_connection_is_done_again(
    store: PostgresStore, postgres: Postgres, shell: psycopg.Connection
) -> None:
    with held(postgres, "counters") as let_go:
        call = asyncio.create_task(store.apply(Add("n", 1)))
        shell.execute("SELECT pg_terminate_backend(%s)", (await waits(shell, "WITH turn"),))
        await waits(shell, "WITH turn")
        let_go()
    assert await call == Applied((None,))
    assert value(shell) == 2


async def test_a_commit_of_an_earlier_life_never_lands(store: PostgresStore) -> None:
    connection, entry = store._writer._link.present, store._writer._entry
    assert connection is not None
    assert entry is not None
    ops = (Add("n", 4),)
    change = change_of([ops], [Applied((None,))], ({}, {"n": 1}), Writes({}, {"n": 5}))
    (stands, _) = await connection.ask(*save(SHARED_SCHEMA, store._writer._id, entry.life - 1, 99, change))
    assert not stands
    assert await store.counter("n") == 1
    (stands, _) = await connection.ask(*save(SHARED_SCHEMA, store._writer._id, entry.life, 99, change))
    assert stands
    assert await store.counter("n") == 5


async def test_a_save_that_finds_others_does_not_count_as_landed(
    store: PostgresStore, shell: psycopg.Connection
) -> None:
    """Otherwise, with its answer lost, it would be taken for one that happened."""
    connection, entry = store._writer._link.present, store._writer._entry
    assert connection is not None
    assert entry is not None
    change = change_of([(Add("n", 4),)], [Applied((None,))], ({}, {"n": 3}), Writes({}, {"n": 7}))
    (stands, _) = await connection.ask(*save(SHARED_SCHEMA, store._writer._id, entry.life, 99, change))
    assert not stands
    assert shell.execute(f"SELECT batch FROM {SHARED_SCHEMA}.writers".encode()).fetchall() == [(1,)]
    assert value(shell) == 1


async def test_a_commit_that_nobody_can_be_asked_about_is_in_doubt(
    store: PostgresStore, line: Line, postgres: Postgres, shell: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_writer, "DOUBT_LIMIT_S", 0.0)
    with held(postgres, "counters"):
        call = asyncio.create_task(store.apply(Add("n", 1)))
        await waits(shell, "WITH turn")
        await line.stop()
        with pytest.raises(StoreUnavailable) as refused:
            await call
    assert (refused.value.details["cause"], refused.value.retryable) == ("in_doubt", True)
    await line.start()


async def test_a_commit_is_in_doubt_when_the_row_that_would_tell_is_gone(
    store: PostgresStore, postgres: Postgres, shell: psycopg.Connection
) -> None:
    with held(postgres, "counters") as let_go:
        call = asyncio.create_task(store.apply(Add("n", 1)))
        pid = await waits(shell, "WITH turn")
        with psycopg.connect(postgres.url) as other:
            other.execute("SET deadlock_timeout = '10s'")
            ended = asyncio.to_thread(other.execute, f"DELETE FROM {SHARED_SCHEMA}.writers".encode())
            ending = asyncio.create_task(ended)
            await waits(shell, "DELETE FROM")
            shell.execute("SELECT pg_terminate_backend(%s)", (pid,))
            await ending
            other.commit()
        with pytest.raises(StoreUnavailable) as refused:
            await call
        let_go()
    assert refused.value.details["cause"] == "in_doubt"
    assert isinstance(await store.apply(Add("n", 1)), Applied)


async def test_a_writer_whose_row_was_removed_as_forgotten_writes_on(
    store: PostgresStore, shell: psycopg.Connection
) -> None:
    shell.execute(f"DELETE FROM {SHARED_SCHEMA}.writers".encode())
    assert await store.apply(Add("n", 1)) == Applied((None,))
    assert value(shell) == 2


async def test_a_save_that_is_refused_because_writes_are_is_not_in_doubt(store: PostgresStore) -> None:
    connection = store._writer._link.present
    assert connection is not None
    await connection.run("SET default_transaction_read_only = on")
    # A new connection takes writes, as after a failover.
    assert await store.apply(Add("n", 1)) == Applied((None,))
    assert await store.counter("n") == 2


# --- Outages ----------------------------------------------------------------------------------------------------


async def test_an_outage_refuses_calls_at_once_and_ends_without_a_restart(store: PostgresStore, line: Line) -> None:
    await line.stop()
    first = await refusal(store, Add("n", 1))
    assert (first.details["cause"], first.retryable) == ("unreachable", True)
    assert first.retry_after_ms is not None
    # From now on nobody waits for the network: all of these are refused between two attempts to connect.
    link = store._writer._link
    attempts = link._attempts
    refusals = [await refusal(store, Add("n", 1)) for _ in range(20)]
    assert {error.details["cause"] for error in refusals} == {"unreachable"}
    with pytest.raises(StoreUnavailable):
        await store.counter("n")
    assert link._attempts is attempts
    await line.start()
    await link.connection(patience_s=PATIENCE_S)
    assert isinstance(await store.apply(Add("n", 1)), Applied)
    assert await store.counter("n") == 2


@pytest.fixture
def endless_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was refused once does not try again by itself within any test."""
    monkeypatch.setattr(postgres_link, "PAUSE_MIN_S", 10_000.0)
    monkeypatch.setattr(postgres_link, "PAUSE_MAX_S", 10_000.0)


async def test_the_first_connection_that_is_back_brings_all_others_of_its_database(
    endless_pauses: None, store: PostgresStore, line: Line
) -> None:
    beside = PostgresStore(store.database)
    await line.stop()
    for refused in (store, beside):
        await refusal(refused, Add("n", 1))
    await line.start()
    # The readers have not met the outage, so they look for themselves.
    assert await store.counter("n") == 1
    for back in (store, beside):
        assert isinstance(await back.apply(Add("n", 1)), Applied)
    await beside.close()


async def test_a_store_that_is_opened_during_an_outage_works_after_it(
    line: Line, postgres: Postgres, postgres_url: Callable[[], str]
) -> None:
    await line.stop()
    store = PostgresStore(PostgresDatabase(f"{postgres.url_through(line.port)}?{postgres_url().partition('?')[2]}"))
    assert (await refusal(store, Add("n", 1))).retryable
    await line.start()
    await store._writer._link.connection(patience_s=PATIENCE_S)
    assert isinstance(await store.apply(Add("n", 1)), Applied)
    await store.close()


async def test_closing_during_an_outage_ends(store: PostgresStore, line: Line) -> None:
    await line.stop()
    await refusal(store, Add("n", 1))
    await store.close()
    assert (await refusal(store, Add("n", 1))).details["cause"] == "closed"
    await line.start()


async def test_idle_connections_that_were_lost_are_not_noticed(store: PostgresStore, line: Line) -> None:
    line.cut()
    assert await store.counter("n") == 1
    assert isinstance(await store.apply(Add("n", 1)), Applied)


async def test_a_crash_of_the_server_loses_nothing_that_was_acknowledged(
    store: PostgresStore, shell: psycopg.Connection
) -> None:
    """PostgreSQL ends all sessions and recovers from its log when one of its processes is killed."""
    assert isinstance(await store.apply(Insert(session("before")), Add("n", 1)), Applied)
    connection = store._writer._link.present
    assert connection is not None
    os.kill(shell.info.backend_pid, signal.SIGKILL)
    # The server has to notice first; until then it works as before.
    async with asyncio.timeout(PATIENCE_S):
        while connection.is_usable:
            await asyncio.sleep(0.002)
    refusals: list[StoreUnavailable] = []
    while len(refusals) < PATIENCE_S * 100:
        try:
            # If it happened and nobody could tell, the next one meets it.
            await store.apply(Insert(session("after")), Add("n", 1))
            break
        except StoreUnavailable as error:
            refusals.append(error)
            await asyncio.sleep(0.01)
    assert all(error.retryable for error in refusals)
    assert {error.details["cause"] for error in refusals} <= {"starting", "unreachable", "in_doubt"}
    assert [row.id for row in await store.select(Session)] == ["after", "before"]
    assert await store.counter("n") == 3


async def test_connections_ended_at_random_under_load_lose_nothing_and_repeat_nothing(
    postgres_url: Callable[[], str], shell: psycopg.Connection
) -> None:
    chance = random.Random(SEED)
    stores = [PostgresStore(PostgresDatabase(postgres_url())) for _ in range(2)]
    acknowledged: set[str] = set()
    unhappened: set[str] = set()
    is_over = False

    async def caller(name: str, store: PostgresStore) -> None:
        number = 0
        while not is_over:
            number += 1
            id = f"{name}-{number:06d}"
            try:
                outcome = await store.apply(Insert(session(id), numbered="fence"), Add("live", 1), Insert(tab(id)))
            except StoreUnavailable as error:
                if error.details["cause"] != "in_doubt":
                    unhappened.add(id)
                await asyncio.sleep(0.001)
            else:
                assert isinstance(outcome, Applied), outcome
                acknowledged.add(id)

    async def terminate() -> None:
        nonlocal is_over
        for _ in range(TERMINATIONS):
            # Some progress between two of them, and a moment of its commits that is not always the same.
            seen = len(acknowledged)
            async with asyncio.timeout(PATIENCE_S):
                while len(acknowledged) <= seen + CALLERS:
                    await asyncio.sleep(0.001)
            await asyncio.sleep(chance.random() * 0.01)
            shell.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                " AND backend_type = 'client backend'"
            )
        is_over = True

    callers = [caller(f"{place}-{n}", store) for place, store in enumerate(stores) for n in range(CALLERS)]
    await asyncio.gather(terminate(), *callers)
    (survivor, *_) = stores
    sessions = await everything(survivor, Session)
    assert acknowledged <= sessions.keys(), f"lost: {sorted(acknowledged - sessions.keys())}"
    assert not unhappened & sessions.keys()
    assert sessions.keys() == (await everything(survivor, Tab)).keys()
    assert await survivor.counter("live") == len(sessions)
    fences = [row.fence for row in sessions.values()]
    assert sorted(fences) == list(range(1, len(fences) + 1))
    for store in stores:
        await store.close()
