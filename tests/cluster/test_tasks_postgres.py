"""Claims of tasks on a real PostgreSQL: as fair as their twin says, exact beside each other, and shut to the dead."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from bench.rig.instant import InstantLauncher, agent
from bench.rig.postgres import Postgres
from tests.broker.claim_twin import ClaimTwin, Turns
from tests.store.conftest import in_schema

from tabherd import config, wire
from tabherd.broker.broker import Broker, wall_clock_ms
from tabherd.broker.credentials import Credentials
from tabherd.broker.events import EventBus
from tabherd.broker.marks import FileMarks
from tabherd.cluster.cluster import Cluster
from tabherd.cluster.fenced_store import FencedStore
from tabherd.cluster.peer import Peer
from tabherd.cluster.postgres_hints import PostgresHints
from tabherd.core.fairness import jain_index
from tabherd.core.lifecycle import NodeState, TaskState
from tabherd.core.model import Node, Task, changed
from tabherd.core.task_rank import rank_of
from tabherd.errors import StoreUnavailable
from tabherd.metrics import Metrics
from tabherd.store.base import Applied, Insert, Update
from tabherd.store.memory import MemoryStore
from tabherd.store.postgres import PostgresStore
from tabherd.store.postgres_database import PostgresDatabase
from tabherd.store.postgres_tasks import PostgresTaskClaims
from tabherd.store.task_claims import Bounds, TaskClaims

_schemas = itertools.count()
WIDE = Bounds(workers=100, max_per_agent=100)


class Shared:
    """A database, and nodes that claim from it."""

    def __init__(self, postgres: Postgres) -> None:
        self.schema = f"tasks_{next(_schemas)}"
        self.url = in_schema(postgres.tcp_url, self.schema)
        self.store = PostgresStore(PostgresDatabase(self.url))
        # Nodes that have found themselves to be over.
        self.fenced: list[str] = []
        self._claims: list[PostgresTaskClaims] = []

    async def join(self, node_id: str) -> tuple[Node, PostgresTaskClaims]:
        outcome = await self.store.apply(Insert(Node(id=node_id, epoch=1, url="", pid=1, started_at=0)))
        assert isinstance(outcome, Applied)
        (node,) = outcome.rows
        assert isinstance(node, Node)
        claims = PostgresTaskClaims(PostgresDatabase(self.url), node, lambda: self.fenced.append(node_id))
        self._claims.append(claims)
        return node, claims

    async def insert(self, *rows: Task) -> None:
        assert isinstance(await self.store.apply(*map(Insert, rows)), Applied)

    async def close(self) -> None:
        for claims in self._claims:
            await claims.close()
        await self.store.close()


@asynccontextmanager
async def shared_on(postgres: Postgres) -> AsyncIterator[Shared]:
    shared = Shared(postgres)
    try:
        yield shared
    finally:
        await shared.close()


def task(number: int, agent_id: str, *, node_id: str = "", priority: int = 0, **fields: object) -> Task:
    row = Task(
        id=f"tsk_{number:023d}",
        node_id=node_id,
        agent_id=agent_id,
        state=TaskState.QUEUED,
        action="evaluate",
        priority=priority,
        created_at=number,
        rank=rank_of(priority, number, 10),
        deadline_at=10_000 + number,
    )
    return changed(row, **fields)


# --- The twin -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.soak if seed >= 2 else ()) for seed in range(20)]
)
async def test_random_queues_are_served_in_the_order_of_the_twin(postgres: Postgres, seed: int) -> None:
    chance, numbers = Random(seed), itertools.count()
    async with shared_on(postgres) as shared:
        memory = MemoryStore()
        turns = Turns(memory)
        pairs: list[tuple[TaskClaims, TaskClaims]] = []
        for node_id in ("n1", "n2"):
            node, claims = await shared.join(node_id)
            assert isinstance(await memory.apply(Insert(changed(node, version=0))), Applied)
            pairs.append((claims, ClaimTwin(turns, node, lambda: None)))
        claimed: list[Task] = []
        for _ in range(40):
            claims, twin = chance.choice(pairs)
            match chance.randrange(6):
                case 0 | 1:
                    rows = [
                        task(
                            next(numbers),
                            f"agent{chance.randrange(5)}",
                            priority=chance.randrange(-2, 3),
                            pool=chance.choice(("default", "other")),
                        )
                        for _ in range(chance.randrange(1, 8))
                    ]
                    await shared.insert(*rows)
                    assert isinstance(await memory.apply(*map(Insert, rows)), Applied)
                    turns.join()
                case 2 | 3:
                    pool, most = chance.choice(("default", "other")), chance.randrange(1, 7)
                    bounds = Bounds(workers=chance.randrange(1, 10), max_per_agent=chance.randrange(1, 6))
                    ours, expected = await claims.claim(pool, most, bounds), await twin.claim(pool, most, bounds)
                    assert ours == expected
                    claimed += ours
                case 4 if claimed:
                    row = claimed.pop(chance.randrange(len(claimed)))
                    ended = changed(row, state=TaskState.DONE, completed_at=1, result="1")
                    assert await claims.write([ended]) == await twin.write([ended]) == {row.id}
                case 5 if claimed:
                    row = changed(claimed.pop(chance.randrange(len(claimed))), node_id="")
                    assert await claims.write([row]) == await twin.write([row]) == {row.id}
                    turns.join()
            agents = [f"agent{number}" for number in range(6)]
            seen = (("default", "other"), agents, 1_000, 1_000)
            assert await claims.look(*seen) == await twin.look(*seen)
            assert await claims.by_agent() == await twin.by_agent()
            for row in turns.unclaimed()[:3]:
                assert await claims.position(row) == await twin.position(row)
            assert await claims.of_node("n1", 4) == await twin.of_node("n1", 4)
            assert await claims.expired(10_010, 5) == await twin.expired(10_010, 5)


# --- Beside each other ----------------------------------------------------------------------------------------------


async def test_nodes_that_claim_at_once_share_the_tasks_and_keep_to_the_bound_of_each_agent(postgres: Postgres) -> None:
    async with shared_on(postgres) as shared:
        nodes = [(await shared.join(f"n{number}"))[1] for number in range(4)]
        await shared.insert(*(task(number, f"agent{number % 3}") for number in range(200)))
        bounds = Bounds(workers=60, max_per_agent=7)
        answers = await asyncio.gather(*(claims.claim("default", 5, bounds) for claims in nodes * 5))
        ids = [row.id for rows in answers for row in rows]
        assert len(ids) == len(set(ids))
        assert Counter(row.agent_id for rows in answers for row in rows) == dict.fromkeys(
            ("agent0", "agent1", "agent2"), 7
        )


async def test_no_task_is_stranded_however_inserts_and_claims_meet(postgres: Postgres) -> None:
    async with shared_on(postgres) as shared:
        nodes = [(await shared.join(f"n{number}"))[1] for number in range(2)]
        others = PostgresStore(PostgresDatabase(shared.url))
        numbers, found, is_over = itertools.count(), list[str](), False

        async def insert(store: PostgresStore) -> None:
            # One at a time, so that each agent's queue is empty again and again.
            for place in range(40):
                row = task(next(numbers), f"agent{place % 2}")
                assert isinstance(await store.apply(Insert(row)), Applied)

        async def claim(claims: PostgresTaskClaims) -> None:
            while not is_over:
                rows = await claims.claim("default", 3, WIDE)
                await claims.write([changed(row, state=TaskState.DONE) for row in rows])
                found.extend(row.id for row in rows)

        claiming = [asyncio.ensure_future(claim(claims)) for claims in nodes]
        await asyncio.gather(insert(shared.store), insert(others))
        for _ in range(1_200):
            if len(found) == 80:
                break
            await asyncio.sleep(0.05)
        is_over = True
        await asyncio.gather(*claiming)
        await others.close()
        assert len(found) == len(set(found)) == 80


async def test_a_task_that_is_being_inserted_while_its_agent_has_no_other_is_claimed_later(postgres: Postgres) -> None:
    async with shared_on(postgres) as shared:
        _, claims = await shared.join("n1")
        await shared.insert(task(0, "ada"))
        later = msgspec.json.encode([changed(task(1, "ada"), version=1)]).decode()
        with postgres.connect() as other, other.transaction():
            tasks = f"{shared.schema}.tasks"
            other.execute(
                f"INSERT INTO {tasks} SELECT * FROM json_populate_recordset(NULL::{tasks}, %s)".encode(), [later]
            )
            # By what it can see, the agent has nothing left after this.
            assert [row.id for row in await claims.claim("default", 2, WIDE)] == [task(0, "ada").id]
        assert [row.id for row in await claims.claim("default", 2, WIDE)] == [task(1, "ada").id]


async def test_a_task_that_is_being_cancelled_is_passed_over_and_does_not_hold_up_a_claim(postgres: Postgres) -> None:
    async with shared_on(postgres) as shared:
        _, claims = await shared.join("n1")
        await shared.insert(*(task(number, "ada") for number in range(3)))
        with postgres.connect() as other, other.transaction():
            other.execute(f"SELECT FROM {shared.schema}.tasks WHERE id = %s FOR UPDATE".encode(), [task(0, "ada").id])
            rows = await claims.claim("default", 2, WIDE)
        assert [row.id for row in rows] == [task(1, "ada").id]
        assert [row.id for row in await claims.claim("default", 2, WIDE)] == [task(0, "ada").id, task(2, "ada").id]


# --- Whole nodes ----------------------------------------------------------------------------------------------------


class AllThere:
    """A membership in which nobody ever comes or goes."""

    def __init__(self, node: Node, ids: Sequence[str]) -> None:
        self.node = node
        self.is_trusted = True
        self.peers = {id: Peer(id, 1, "") for id in ids if id != node.id}
        self.known: Mapping[str, Any] = {}
        self.on_change: list[Any] = []
        self.on_gone: Any = None
        self.load: Any = None

    def refuse_untrusted(self) -> None:
        """It always trusts itself."""


@asynccontextmanager
async def brokers_on(shared: Shared, directory: Path, count: int, perform: Any) -> AsyncIterator[list[Broker]]:
    """So many nodes, in one process, whose browsers take no time."""
    settings = config.parse({"pools": {"default": {"browsers_max": 1, "warm": 0}}, "scheduler": {"workers": 4}})
    ids = [f"nod_{number}" for number in range(count)]
    async with AsyncExitStack() as stack:
        brokers: list[Broker] = []
        for epoch, id in enumerate(ids, start=1):
            node, claims = await shared.join(id)
            hints = PostgresHints(shared.url, shared.schema, id)
            hints.start()
            stack.push_async_callback(hints.close)
            marks = [FileMarks(directory / f"{id}-{kind}.marks") for kind in ("running", "tasks")]
            for file in marks:
                stack.callback(file.close)
            broker = Broker(
                config=settings,
                node=node,
                store=FencedStore(shared.store, node, lambda: None),
                launcher=InstantLauncher(),
                events=EventBus(epoch=epoch, ring=1_000),
                metrics=Metrics(),
                credentials=Credentials(shared.store),
                marks=marks[0],
                task_marks=marks[1],
                webhook_secret=b"secret",
                files_dir=directory / "files" / id,
                memory_bytes=1 << 34,
                perform=perform,
                cluster=Cluster(AllThere(node, ids), hints, claims),  # type: ignore[arg-type]
            )
            await broker.start()
            stack.push_async_callback(broker.stop)
            brokers.append(broker)
        yield brokers


async def test_tasks_that_come_to_all_nodes_at_once_are_each_run_once_and_shared_evenly(
    postgres: Postgres, tmp_path: Path
) -> None:
    ran: list[str] = []

    async def perform(page: Any, action: wire.Evaluate, progress: Any) -> str:
        ran.append(action.expression)
        await asyncio.sleep(0.01)
        return action.expression

    async with shared_on(postgres) as shared, brokers_on(shared, tmp_path, 2, perform) as brokers:

        async def submit(name: str, number: int) -> str:
            fields = wire.SubmitTask(
                action="evaluate",
                params={"expression": f"{name}/{number}"},
                idempotency_key=f"{name} {number}",
                deadline=wall_clock_ms() + 600_000,
            )
            # The same at both nodes.
            answers = await asyncio.gather(*(broker.tasking.verbs.submit(agent(name), fields) for broker in brokers))
            assert answers[0].task_id == answers[1].task_id
            return answers[0].task_id

        names = ("ada", "bob", "cyd")
        submitted = await asyncio.gather(*(submit(name, number) for number in range(20) for name in names))
        for task_id in submitted:
            while (row := await shared.store.get(Task, task_id)) is None or row.state is not TaskState.DONE:
                assert row is not None
                assert row.state in (TaskState.QUEUED, TaskState.RUNNING), row
                await asyncio.sleep(0.01)
        assert sorted(ran) == sorted(f"{name}/{number}" for name in names for number in range(20))
        by_node = Counter(row.node_id for row in await shared.store.select(Task))
        assert set(by_node) == {"nod_0", "nod_1"}
        half = Counter(label.partition("/")[0] for label in ran[:30])
        assert jain_index([half[name] for name in names]) > 0.95


# --- The dead -------------------------------------------------------------------------------------------------------


async def test_a_node_that_was_declared_dead_claims_and_writes_nothing(postgres: Postgres) -> None:
    async with shared_on(postgres) as shared:
        node, claims = await shared.join("n1")
        await shared.insert(task(0, "ada"), task(1, "ada"))
        (row,) = await claims.claim("default", 1, WIDE)
        assert isinstance(await shared.store.apply(Update(changed(node, state=NodeState.DEAD))), Applied)
        for attempt in (claims.claim("default", 1, WIDE), claims.write([changed(row, state=TaskState.RUNNING)])):
            with pytest.raises(StoreUnavailable) as refused:
                await attempt
            assert refused.value.details["cause"] == "fenced"
        assert shared.fenced == ["n1", "n1"]
        assert await shared.store.get(Task, row.id) == row


async def test_whoever_settles_a_dead_node_waits_for_what_it_had_under_way(postgres: Postgres) -> None:
    async with shared_on(postgres) as shared:
        _, claims = await shared.join("n1")
        await claims.look((), (), 1, 1)
        with postgres.connect() as other:
            # As a claim that has begun and not landed.
            with other.transaction():
                other.execute("SELECT pg_advisory_xact_lock(x'7461626865726403'::bigint)")
                waiting = asyncio.ensure_future(claims.await_others())
                done, _ = await asyncio.wait([waiting], timeout=0.3)
                assert not done
            await waiting


async def test_only_what_still_has_its_version_is_written(postgres: Postgres) -> None:
    async with shared_on(postgres) as shared:
        _, claims = await shared.join("n1")
        await shared.insert(*(task(number, "ada", node_id="n1") for number in range(2)))
        first, second = await claims.of_node("n1", 2)
        stale = changed(second, version=second.version + 1, state=TaskState.DONE)
        assert await claims.write([changed(first, state=TaskState.RUNNING, attempts=1), stale]) == {first.id}
        stored = await shared.store.get(Task, first.id)
        assert stored == changed(first, state=TaskState.RUNNING, attempts=1, version=first.version + 1)
