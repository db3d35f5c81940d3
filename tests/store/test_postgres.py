"""How the PostgreSQL store shares commits, keeps bugs apart, and what several nodes make of one database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import psycopg
import pytest
from bench.rig.postgres import Postgres

from tabherd.core.model import Node, Session, Tab, Task, changed
from tabherd.errors import StoreUnavailable
from tabherd.store import postgres_database, postgres_rows, postgres_writer
from tabherd.store.base import PENDING_MAX, Add, Applied, Conflict, Insert, Op, Put, Require, Store, Update
from tabherd.store.evaluate import Footprint
from tabherd.store.lane import BATCH_MAX
from tabherd.store.postgres import PostgresStore
from tabherd.store.postgres_database import PostgresDatabase
from tabherd.store.postgres_rows import load
from tabherd.store.postgres_writer import Care

from .conftest import SHARED_SCHEMA
from .postgres_proxy import pooler_to
from .samples import only_row, session, tab, task

pytestmark = pytest.mark.usefixtures("patient")


@pytest.fixture
def commits() -> list[int]:
    """The sizes of the batches that were committed."""
    return []


@pytest.fixture
async def store(postgres_url: Callable[[], str], commits: list[int]) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(PostgresDatabase(postgres_url()), on_commit=lambda _, size: commits.append(size))
    await store.apply(Add("open", 1))
    commits.clear()
    yield store
    await store.close()


@pytest.fixture
async def nodes(postgres_url: Callable[[], str]) -> AsyncIterator[list[PostgresStore]]:
    """Four stores on one database."""
    async with AsyncExitStack() as open:
        stores = [PostgresStore(PostgresDatabase(postgres_url())) for _ in range(4)]
        for store in stores:
            open.push_async_callback(store.close)
        yield stores


@contextmanager
def held(postgres: Postgres, rows: str) -> Iterator[Callable[[], Any]]:
    """Somebody's shell has these rows locked until the yielded function is called."""
    with psycopg.connect(postgres.url) as shell:
        shell.execute(f"SELECT * FROM {SHARED_SCHEMA}.{rows} FOR UPDATE".encode())
        yield shell.rollback


async def first_batch_taken(store: PostgresStore) -> None:
    while store._writes._waiting:
        await asyncio.sleep(0)


def round_trips(store: PostgresStore) -> list[str]:
    """Gets the text of everything that the writing connection is asked from now on."""
    asked: list[str] = []
    connection = store._writer._link.present
    assert connection is not None
    connection._driver.add_query_logger(lambda record: asked.append(record.query))
    return asked


# --- Sharing a commit -------------------------------------------------------------------------------------------


async def test_transactions_that_arrive_during_a_commit_share_the_next(
    store: PostgresStore, postgres: Postgres, commits: list[int]
) -> None:
    with held(postgres, "writers") as let_go:
        first = asyncio.create_task(store.apply(Add("n", 1)))
        await asyncio.sleep(0)
        await first_batch_taken(store)
        others = [asyncio.create_task(store.apply(Add("n", 1))) for _ in range(99)]
        await asyncio.sleep(0)
        let_go()
        await asyncio.gather(first, *others)
    assert commits == [1, 99]


async def test_a_batch_of_any_size_takes_two_round_trips(store: PostgresStore) -> None:
    for size in (1, 64):
        # Kinds of statement that were never sent before are prepared first.
        await store.apply(Insert(session(f"first-{size}"), numbered="fence"), Add("n", 1))
        asked = round_trips(store)
        ops = [Insert(session(f"{size}-{n}"), numbered="fence") for n in range(size)]
        await store.apply(*ops, Add("n", size))
        assert [query.split()[0] for query in asked] == ["SELECT", "WITH"]


async def test_a_batch_that_changes_nothing_takes_one_round_trip(store: PostgresStore) -> None:
    asked = round_trips(store)
    assert await store.apply(Require(Session, "none", 1)) == Conflict(0, "missing")
    assert len(asked) == 1


async def test_a_counter_at_zero_leaves_no_row(store: PostgresStore, postgres: Postgres) -> None:
    await store.apply(Add("open", -1))
    await store.apply(Add("at-once", 1), Add("at-once", -1))
    with postgres.connect() as shell:
        assert shell.execute(f"SELECT * FROM {SHARED_SCHEMA}.counters".encode()).fetchall() == []


async def test_a_store_that_closes_leaves_no_writer(postgres_url: Callable[[], str], postgres: Postgres) -> None:
    store = PostgresStore(PostgresDatabase(postgres_url()))
    await store.apply(Add("n", 1))
    count = f"SELECT count(*) FROM {SHARED_SCHEMA}.writers".encode()
    with postgres.connect() as shell:
        assert shell.execute(count).fetchone() == (1,)
        await store.close()
        assert shell.execute(count).fetchone() == (0,)


@pytest.mark.parametrize(("setting", "used"), [("off", "on"), ("remote_apply", "remote_apply")])
async def test_commits_wait_for_the_disk_even_where_the_database_would_not(
    store: PostgresStore, postgres: Postgres, setting: str, used: str
) -> None:
    with postgres.connect() as shell:
        shell.execute("CREATE TABLE IF NOT EXISTS seen (setting TEXT)")
        shell.execute(
            "CREATE OR REPLACE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN INSERT INTO public.seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$"
        )
        shell.execute(
            f"CREATE CONSTRAINT TRIGGER see AFTER INSERT ON {SHARED_SCHEMA}.tabs"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see()".encode()
        )
        try:
            connection = store._writer._link.present
            assert connection is not None
            await connection.run(f"SET synchronous_commit = {setting}")
            await store.apply(Insert(tab("t")))
            assert shell.execute("SELECT * FROM seen").fetchall() == [(used,)]
        finally:
            shell.execute(f"DROP TRIGGER see ON {SHARED_SCHEMA}.tabs; DROP TABLE seen; DROP FUNCTION see".encode())


# --- A transaction that has a bug -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "poison",
    [session("bad", state="no such state"), session("bad", deadline_at=2**63), session("bad", created_at="soon")],
    ids=["state", "overflow", "type"],
)
async def test_a_poisoned_transaction_fails_alone(
    store: PostgresStore, postgres: Postgres, commits: list[int], poison: Session
) -> None:
    with held(postgres, "writers") as let_go:
        first = asyncio.create_task(store.apply(Add("n", 1)))
        await asyncio.sleep(0)
        await first_batch_taken(store)
        batch = [
            asyncio.create_task(store.apply(Insert(poison if n == 5 else session(f"s{n}")), Add("n", 1)))
            for n in range(10)
        ]
        await asyncio.sleep(0)
        let_go()
        answers = await asyncio.gather(first, *batch, return_exceptions=True)
    # They did share a batch; otherwise this would prove nothing.
    assert commits == [1, 10]
    failed = answers.pop(6)
    assert isinstance(failed, Exception)
    assert not isinstance(failed, StoreUnavailable)
    assert all(isinstance(answer, Applied) for answer in answers)
    assert await store.get(Session, "bad") is None
    assert await store.counter("n") == 10 == len(await store.select(Session)) + 1


async def test_a_read_that_has_a_bug_fails_alone(store: PostgresStore) -> None:
    await store.apply(Insert(session("s")))
    good, bad, other = await asyncio.gather(
        store.get(Session, "s"), store.get(Session, "\ud800"), store.counter("n"), return_exceptions=True
    )
    assert isinstance(good, Session)
    assert isinstance(bad, Exception)
    assert not isinstance(bad, StoreUnavailable)
    assert other == 0


async def test_text_that_cannot_be_stored_is_not_found_and_has_its_place_among_ids(store: PostgresStore) -> None:
    await store.apply(*(Insert(session(id, agent_id="x")) for id in ("a", "ab", "b")))
    assert await store.get(Session, "a\0") is None
    assert await store.counter("a\0") == 0
    assert await store.select(Session, {"agent_id": "x\0"}) == []
    assert [row.id for row in await store.select(Session, {"agent_id": ("x", "x\0")})] == ["a", "ab", "b"]
    assert [row.id for row in await store.select(Session, after="a\0z")] == ["ab", "b"]
    assert [row.id for row in await store.select(Session, after="a\0z", newest_first=True)] == ["a"]


# --- Somebody else's locks --------------------------------------------------------------------------------------


async def test_rows_that_are_locked_for_too_long_refuse_the_batch_and_the_store_goes_on(
    store: PostgresStore, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.apply(Add("n", 1))
    monkeypatch.setattr(postgres_rows, "LOCK_WAIT_MS", 50)
    postgres_rows._save_sql.cache_clear()
    with held(postgres, "counters"):
        answers = await asyncio.gather(*(store.apply(Add("n", 1)) for _ in range(5)), return_exceptions=True)
        # Reading goes on meanwhile.
        assert await store.counter("n") == 1
    for answer in answers:
        assert isinstance(answer, StoreUnavailable)
        assert (answer.details["cause"], answer.retryable) == ("locked", True)
    assert len({id(answer) for answer in answers}) == 5
    assert isinstance(await store.apply(Add("n", 1)), Applied)
    assert await store.counter("n") == 2


async def test_a_database_that_does_not_move_refuses_callers_past_the_bound(
    store: PostgresStore, postgres: Postgres
) -> None:
    with held(postgres, "writers") as let_go:
        first = asyncio.create_task(store.apply(Put(session("s"))))
        await asyncio.sleep(0)
        await first_batch_taken(store)
        tasks = [asyncio.create_task(store.apply(Put(session("s")))) for _ in range(PENDING_MAX + 1)]
        await asyncio.sleep(0)
        let_go()
        answers = await asyncio.gather(first, *tasks, return_exceptions=True)
    (refused,) = (answer for answer in answers if isinstance(answer, Exception))
    assert isinstance(refused, StoreUnavailable)
    assert refused.details["cause"] == "overloaded"
    row = await store.get(Session, "s")
    assert row is not None
    assert row.version == PENDING_MAX + 1
    assert PENDING_MAX > BATCH_MAX


# --- Several nodes ----------------------------------------------------------------------------------------------


async def test_nodes_that_start_at_once_on_an_empty_database_make_one_schema(postgres: Postgres) -> None:
    url = f"{postgres.tcp_url}?options=-csearch_path%3Dstarted_at_once"
    stores = [PostgresStore(PostgresDatabase(url)) for _ in range(4)]
    try:
        await asyncio.gather(*(store.apply(Add("n", 1)) for store in stores))
        assert await stores[0].counter("n") == 4
    finally:
        for store in stores:
            await store.close()
        with postgres.connect() as shell:
            shell.execute("SET client_min_messages = warning; DROP SCHEMA started_at_once CASCADE")


async def test_nodes_fill_a_cap_exactly_and_number_without_repeating(nodes: list[PostgresStore]) -> None:
    outcomes = await asyncio.gather(
        *(
            store.apply(Insert(session(f"{place}-{n}"), numbered="fence"), Add("live", 1, cap=100))
            for n in range(60)
            for place, store in enumerate(nodes)
        )
    )
    fences = [only_row(outcome).fence for outcome in outcomes if isinstance(outcome, Applied)]
    assert sorted(fences) == list(range(1, 101))
    assert await nodes[0].counter("live") == 100 == len(await nodes[1].select(Session))


async def test_of_the_nodes_that_insert_one_row_exactly_one_wins(nodes: list[PostgresStore]) -> None:
    for round in range(20):
        outcomes = await asyncio.gather(
            *(store.apply(Insert(session(f"s{round}", agent_id=str(n)))) for n, store in enumerate(nodes))
        )
        (won,) = (outcome for outcome in outcomes if isinstance(outcome, Applied))
        assert [outcome for outcome in outcomes if outcome != won] == [Conflict(0, "exists", row=only_row(won))] * 3


async def test_nodes_that_decide_again_on_conflict_lose_nothing(nodes: list[PostgresStore]) -> None:
    await nodes[0].apply(Insert(Node(id="n", epoch=0, url="", pid=0, started_at=0)))

    async def grow(store: Store) -> None:
        row = await store.get(Node, "n")
        assert row is not None
        while isinstance(outcome := await store.apply(Update(changed(row, epoch=row.epoch + 1))), Conflict):
            assert isinstance(outcome.row, Node)
            row = outcome.row

    await asyncio.gather(*(grow(store) for store in nodes for _ in range(10)))
    row = await nodes[0].get(Node, "n")
    assert row is not None
    assert (row.epoch, row.version) == (40, 41)


async def test_counters_that_come_and_go_are_counted_right_by_all_nodes(nodes: list[PostgresStore]) -> None:
    async def up_and_down(store: Store) -> None:
        for _ in range(10):
            assert await store.apply(Add("live", 1)) == Applied((None,))
            assert await store.apply(Add("live", -1)) == Applied((None,))

    await asyncio.gather(*(up_and_down(store) for store in nodes))
    assert await nodes[0].counter("live") == 0


async def test_two_that_require_the_absence_of_what_the_other_inserts_do_not_both_succeed(
    nodes: list[PostgresStore],
) -> None:
    one, other, *_ = nodes
    for round in range(20):
        x, y = f"x{round}", f"y{round}"
        outcomes = await asyncio.gather(
            one.apply(Require(Session, x, 0), Insert(session(y))),
            other.apply(Require(Session, y, 0), Insert(session(x))),
        )
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Applied", "Conflict"]


async def test_rows_in_opposite_orders_are_locked_in_one(nodes: list[PostgresStore], postgres: Postgres) -> None:
    """Otherwise nodes would wait for each other until PostgreSQL ends one of them, after a second."""
    ids = [f"s{n}" for n in range(20)]
    await nodes[0].apply(*(Insert(session(id)) for id in ids), *(Insert(tab(id)) for id in ids))
    with postgres.connect() as shell:
        deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"
        before = shell.execute(deadlocks).fetchone()

        async def rewrite(store: Store, *ops: Op) -> None:
            for _ in range(15):
                assert isinstance(await store.apply(*ops), Applied)

        there = [Put(session(id)) for id in ids] + [Put(tab(id)) for id in ids] + [Add("a", 1), Add("b", 1)]
        await asyncio.gather(*(rewrite(node, *there[:: 1 if n % 2 else -1]) for n, node in enumerate(nodes)))
        shell.execute("SELECT pg_stat_clear_snapshot()")
        assert shell.execute(deadlocks).fetchone() == before
    row = await nodes[0].get(Tab, "s0")
    assert row is not None
    assert row.version == 61


async def test_a_node_that_stops_in_the_middle_of_a_transaction_does_not_hold_up_the_others(
    nodes: list[PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, other, *_ = nodes
    await stopped.apply(Add("n", 1))
    monkeypatch.setattr(postgres_database, "IDLE_LIMIT_MS", 50)
    connection = stopped._writer._link.present
    assert connection is not None
    await connection.begin(1_000)
    await connection.ask(*load(SHARED_SCHEMA, Footprint({}, {"n"}), is_locking=True))
    assert await other.apply(Add("n", 1)) == Applied((None,))
    # When it goes on, it notices, and starts anew.
    assert await stopped.apply(Add("n", 1)) == Applied((None,))
    assert await other.counter("n") == 3


async def test_a_batch_that_never_has_a_turn_gives_up(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def met(*_: object) -> None:
        raise postgres_writer._Met(Care.LOCK)

    monkeypatch.setattr(store._writer, "_save", met)
    with pytest.raises(StoreUnavailable) as refused:
        await store.apply(Add("n", 1))
    assert refused.value.details["cause"] == "contended"
    monkeypatch.undo()
    assert await store.apply(Add("n", 1, cap=1)) == Applied((None,))


# --- What is presumed ---------------------------------------------------------------------------------------------


@pytest.fixture
async def node(store: PostgresStore) -> Node:
    """The row of a life, as it was rewritten once."""
    first = only_row(await store.apply(Insert(Node(id="node", epoch=1, url="", pid=1, started_at=1))))
    row = only_row(await store.apply(Update(changed(first, epoch=2))))
    assert isinstance(row, Node)
    return row


async def test_new_tasks_of_a_node_are_written_in_one_round_trip(store: PostgresStore, node: Node) -> None:
    asked = round_trips(store)
    is_ours = Require(Node, node.id, node.version)
    written = await asyncio.gather(*(store.apply(is_ours, Insert(task(f"t{n}"))) for n in range(3)))
    assert all(isinstance(outcome, Applied) for outcome in written)
    assert len(asked) == 1
    assert await store.get(Task, "t2") == task("t2", version=1)


async def test_a_task_that_is_there_already_is_refused_with_what_stands_there(store: PostgresStore, node: Node) -> None:
    await store.apply(Insert(task("t", action="fill")))
    is_ours = Require(Node, node.id, node.version)
    again, other = await asyncio.gather(
        store.apply(is_ours, Insert(task("t"))), store.apply(is_ours, Insert(task("other")))
    )
    assert again == Conflict(1, "exists", row=task("t", action="fill", version=1))
    assert isinstance(other, Applied)


async def test_a_life_that_is_over_gets_no_task_in(store: PostgresStore, node: Node) -> None:
    refused = await store.apply(Require(Node, node.id, node.version - 1), Insert(task("t")))
    assert refused == Conflict(0, "version", row=node)
    assert await store.get(Task, "t") is None


async def test_of_two_lives_in_one_batch_each_gets_what_is_true_for_it(store: PostgresStore, node: Node) -> None:
    old, new = await asyncio.gather(
        store.apply(Require(Node, node.id, node.version - 1), Insert(task("old"))),
        store.apply(Require(Node, node.id, node.version), Insert(task("new"))),
    )
    assert old == Conflict(0, "version", row=node)
    assert isinstance(new, Applied)


async def test_who_only_asks_whether_a_row_stands_is_told_what_does(store: PostgresStore, node: Node) -> None:
    assert await store.apply(Require(Node, node.id, 7)) == Conflict(0, "version", row=node)


# --- A pooler ---------------------------------------------------------------------------------------------------


async def test_it_works_behind_a_pooler_that_changes_connections_after_every_transaction(
    postgres: Postgres, postgres_url: Callable[[], str]
) -> None:
    query = postgres_url().partition("?")[2]
    async with pooler_to(postgres.port) as pooler:
        stores = [PostgresStore(PostgresDatabase(f"{postgres.url_through(pooler.port)}?{query}")) for _ in range(2)]
        try:
            outcomes = await asyncio.gather(
                *(
                    store.apply(Insert(session(f"{place}-{n}"), numbered="fence"), Add("live", 1, cap=30))
                    for n in range(20)
                    for place, store in enumerate(stores)
                )
            )
            assert sum(isinstance(outcome, Applied) for outcome in outcomes) == 30
            assert await stores[0].counter("live") == 30
            assert len(await stores[1].select(Session, {"agent_id": "agent"})) == 30
            with pytest.raises(Exception, match="no such state"):
                await stores[0].apply(Insert(session("bad", state="no such state")))
            assert isinstance(await stores[0].apply(Require(Session, "none", 0), Add("n", 1)), Applied)
            assert all(store.database._is_pooled for store in stores)
        finally:
            for store in stores:
                await store.close()
    assert pooler.transactions > 10
