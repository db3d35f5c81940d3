"""Places of several nodes on a real PostgreSQL: caps are exact, shares are fair, and nothing stays counted."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bench.rig.instant import InstantLauncher, agent
from bench.rig.postgres import Postgres

from tabherd import config, wire
from tabherd.broker.broker import Broker, wall_clock_ms
from tabherd.broker.credentials import Credentials
from tabherd.broker.events import EventBus
from tabherd.broker.marks import FileMarks
from tabherd.cluster.cluster import Cluster
from tabherd.cluster.elsewhere import Elsewhere
from tabherd.cluster.fenced_store import FencedStore
from tabherd.cluster.peer import Peer
from tabherd.cluster.postgres_hints import PostgresHints
from tabherd.core.caps import WAITING_BASE, waiting_counter
from tabherd.core.fairness import jain_index
from tabherd.core.model import Node, Session, Waiter
from tabherd.metrics import Metrics
from tabherd.store.base import Applied, Insert
from tabherd.store.postgres import PostgresStore
from tabherd.store.postgres_database import PostgresDatabase

_schemas = itertools.count()


class AllThere:
    """A membership in which nobody ever comes or goes."""

    def __init__(self, node: Node, ids: list[str]) -> None:
        self.node = node
        self.is_trusted = True
        self.peers: Mapping[str, Peer] = {id: Peer(id, 1, "") for id in ids if id != node.id}
        self.known: Mapping[str, Any] = {}
        self.on_change: list[Any] = []
        self.on_gone: Any = None
        self.load: Any = None

    def refuse_untrusted(self) -> None:
        """It always trusts itself."""


class Nodes:
    """Brokers on one database, in one process, whose browsers take no time."""

    def __init__(self, brokers: dict[str, Broker], store: PostgresStore) -> None:
        self.brokers = brokers
        # Nobody's own.
        self.store = store

    def __getitem__(self, number: int) -> Broker:
        return list(self.brokers.values())[number % len(self.brokers)]

    async def open(self, number: int, name: str, wait_ms: int = 60_000) -> tuple[Broker, wire.SessionView]:
        """As through the front door of that node: passed on at most once. The broker that has it."""
        request = wire.OpenSession(wait_ms=wait_ms)
        try:
            return self[number], await self[number].sessions.open(agent(name), request)
        except Elsewhere as elsewhere:
            there = self.brokers[elsewhere.node_id]
            return there, await there.sessions.open(agent(name), request, grant=elsewhere.grant)


@asynccontextmanager
async def nodes_on(postgres: Postgres, directory: Path, count: int, **pool: Any) -> AsyncIterator[Nodes]:
    """So many nodes, in a schema of their own."""
    schema = f"admission_{next(_schemas)}"
    url = f"{postgres.url}&options=-csearch_path%3D{schema}"
    settings = config.parse({"store": url, "pools": {"default": {"browsers_max": 1, "warm": 0, **pool}}})
    ids = [f"nod_{number}" for number in range(count)]
    async with AsyncExitStack() as stack:
        shared = PostgresStore(PostgresDatabase(url))
        stack.push_async_callback(shared.close)
        brokers: dict[str, Broker] = {}
        for epoch, id in enumerate(ids, start=1):
            row = Node(id=id, epoch=epoch, url="", pid=epoch, started_at=wall_clock_ms())
            outcome = await shared.apply(Insert(row))
            assert isinstance(outcome, Applied)
            (node,) = outcome.rows
            assert isinstance(node, Node)
            store = PostgresStore(PostgresDatabase(url))
            stack.push_async_callback(store.close)
            hints = PostgresHints(url, schema, id)
            hints.start()
            stack.push_async_callback(hints.close)
            marks = [FileMarks(directory / f"{schema}-{id}-{kind}.marks") for kind in ("running", "tasks")]
            for file in marks:
                stack.callback(file.close)
            brokers[id] = Broker(
                config=settings,
                node=node,
                store=FencedStore(store, node, lambda: None),
                launcher=InstantLauncher(),
                events=EventBus(epoch=epoch, ring=1_000),
                metrics=Metrics(),
                credentials=Credentials(store),
                marks=marks[0],
                task_marks=marks[1],
                webhook_secret=b"secret",
                files_dir=directory / "files" / id,
                memory_bytes=1 << 34,
                cluster=Cluster(AllThere(node, ids), hints),  # type: ignore[arg-type]
            )
            await brokers[id].start()
            stack.push_async_callback(brokers[id].stop)
            await hints.is_connected.wait()
        yield Nodes(brokers, shared)


async def settle(nodes: Nodes) -> None:
    """Until nothing goes on behind the callers' backs."""
    async with asyncio.timeout(60):
        while any(broker._background for broker in nodes.brokers.values()):
            await asyncio.sleep(0.01)


async def test_three_nodes_give_exactly_the_cap_in_equal_shares_and_leave_no_count_behind(
    postgres: Postgres, tmp_path: Path
) -> None:
    crowd = {"ada": (0, 12), "bob": (1, 6), "cyd": (2, 4)}
    cap, wanted = 6, 300
    served: Counter[str] = Counter()
    held = most = 0
    is_full = asyncio.Event()
    async with nodes_on(postgres, tmp_path, 3, max_active=cap) as nodes:

        async def use(name: str, at: int) -> None:
            nonlocal held, most
            while served.total() < wanted:
                broker, session = await nodes.open(at, name)
                held += 1
                most = max(most, held)
                if held == cap:
                    is_full.set()
                # Until all places were taken for once, and then long enough for others to be there first.
                await is_full.wait()
                await asyncio.sleep(0.02)
                served[name] += 1
                held -= 1
                await broker.sessions.release(agent(name), session.session_id)

        async with asyncio.timeout(200):
            await asyncio.gather(*(use(name, at) for name, (at, count) in crowd.items() for _ in range(count)))
        await settle(nodes)
        assert most == cap
        assert jain_index(list(served.values())) >= 0.98, served
        assert await nodes.store.select(Waiter) == []
        assert await nodes.store.counter(waiting_counter("default")) == WAITING_BASE
        assert [await nodes.store.counter(name) for name in ("active:default", "tabs:default")] == [0, 0]
        assert await nodes.store.select(Session, {"state": ("reserved", "active")}) == []


async def test_callers_who_leave_while_nodes_compete_leave_no_count_behind(postgres: Postgres, tmp_path: Path) -> None:
    async with nodes_on(postgres, tmp_path, 3, max_active=4) as nodes:

        async def come_and_go(number: int) -> None:
            for turn in range(5):
                asking = asyncio.create_task(nodes.open(number, f"a{number % 4}"))
                if (number + turn) % 3 == 0:
                    # A caller's patience has nothing to do with what the nodes are at.
                    await asyncio.sleep(0.003 * turn * (1 + number % 5))
                    asking.cancel()
                (answer,) = await asyncio.gather(asking, return_exceptions=True)
                if not isinstance(answer, BaseException):
                    broker, session = answer
                    await broker.sessions.release(agent(f"a{number % 4}"), session.session_id)
                else:
                    assert isinstance(answer, asyncio.CancelledError), answer

        async with asyncio.timeout(200):
            await asyncio.gather(*(come_and_go(number) for number in range(16)))
        await settle(nodes)
        # What was kept for callers that never came is taken back in a few seconds.
        async with asyncio.timeout(60):
            while await nodes.store.counter("active:default") or await nodes.store.select(Waiter):
                await asyncio.sleep(0.1)
        assert await nodes.store.counter(waiting_counter("default")) == WAITING_BASE
        assert all(broker._admissions["default"].active == 0 for broker in nodes.brokers.values())


async def test_a_caller_of_a_full_node_is_passed_on_to_one_that_has_a_place(postgres: Postgres, tmp_path: Path) -> None:
    async with nodes_on(postgres, tmp_path, 2, sessions_per_browser=1) as nodes:
        # Not where she asked, if the other one's browser was there first.
        first, _ = await nodes.open(0, "ada")
        full = [*nodes.brokers.values()].index(first)
        broker, session = await nodes.open(full, "bob")
        assert broker is nodes[1 - full]
        assert session.agent_id == "bob"
