"""Named locks on several nodes: one holder for a name whatever fails, and none of a node that is over."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from bench.rig.postgres import Postgres
from tests.broker.house import ADA, ADMIN, BOB
from tests.broker.lock_backend import SharedDomain
from tests.sim.virtual_loop import VirtualLoop

from tabherd import config, wire
from tabherd.broker.events import EventBus
from tabherd.broker.ids import Ids
from tabherd.broker.named_locks import NamedLocks
from tabherd.broker.settings import Settings
from tabherd.cluster.elsewhere import Elsewhere
from tabherd.cluster.fenced_store import FencedStore
from tabherd.core.lifecycle import NodeState
from tabherd.core.model import NamedLock, Node, changed
from tabherd.errors import LockLost, LockTimedOut, StoreUnavailable
from tabherd.locks.base import AsyncHold, Holder, LockKey, marker_of, named_key
from tabherd.locks.postgres import AsyncPostgresBackend
from tabherd.metrics import Metrics
from tabherd.store.base import Applied, Insert, Op, Outcome, Store, Update
from tabherd.store.memory import MemoryStore

NAME = "account:x"
LEASE_MS = 30_000
HOLDER = Holder(1, "here", "ada via tabherd")


class Cluster:
    """Nodes that share a store and a backend."""

    def __init__(self) -> None:
        self.store: Store = MemoryStore()
        self.backend = SharedDomain(clock_ms)
        self.nodes: dict[str, LockNode] = {}

    async def join(self, node_id: str) -> LockNode:
        """A node that has begun its life."""
        known = await self.store.get(Node, node_id)
        row = Node(id=node_id, epoch=1, url="", pid=1, started_at=0)
        op: Op = Insert(row) if known is None else Update(changed(row, epoch=known.epoch + 1, version=known.version))
        node = LockNode(self, await self._stored(op))
        self.nodes[node_id] = node
        await node.locks.start()
        return node

    async def declare_dead(self, node_id: str) -> Node:
        known = await self.store.get(Node, node_id)
        assert known is not None
        return await self._stored(Update(changed(known, state=NodeState.DEAD)))

    async def rows(self) -> list[NamedLock]:
        return await self.store.select(NamedLock)

    async def _stored(self, op: Op) -> Node:
        outcome = await self.store.apply(op)
        assert isinstance(outcome, Applied)
        (row,) = outcome.rows
        assert isinstance(row, Node)
        return row


class LockNode:
    """The named locks of one life of one node."""

    def __init__(self, cluster: Cluster, row: Node) -> None:
        self.row = row
        self.events = EventBus(epoch=row.epoch, ring=1_000, clock=clock_ms)
        self.told = self.events.subscribe()
        self.is_fenced = asyncio.Event()
        self.background: set[asyncio.Task[None]] = set()
        # Of the test.
        self.asking: set[asyncio.Task[wire.LockView]] = set()
        # What of the backend this life has; it is gone with the process.
        self.holds: list[AsyncHold] = []
        self.store = Flaky(FencedStore(cluster.store, row, self.is_fenced.set))
        self.locks = NamedLocks(
            settings=Settings(config.parse({})),
            node_id=row.id,
            store=self.store,
            backend=_Part(cluster.backend, self.holds),  # type: ignore[arg-type]
            owners=SimpleNamespace(forget=lambda _: None),  # type: ignore[arg-type]
            events=self.events,
            auditor=SimpleNamespace(note=lambda **_: None),  # type: ignore[arg-type]
            metrics=Metrics(),
            operations=SimpleNamespace(refuse_sessions=self._refuse, refusal=RuntimeError),  # type: ignore[arg-type]
            ids=Ids(clock_ms, _Chance(), row.epoch),  # type: ignore[arg-type]
            clock=clock_ms,
            spawn=self._spawn,
            cluster=SimpleNamespace(membership=SimpleNamespace(is_fenced=self.is_fenced)),  # type: ignore[arg-type]
        )

    async def take(self, caller: Any = ADA, name: str = NAME, **fields: Any) -> wire.LockView:
        fields.setdefault("lease_ms", LEASE_MS)
        connection_id = fields.pop("connection_id", "")
        return await self.locks.acquire(caller, name, wire.AcquireLock(**fields), connection_id=connection_id)

    async def ask(self, caller: Any = BOB, **fields: Any) -> asyncio.Task[wire.LockView]:
        """Somebody who waits by the time this returns."""
        asking = asyncio.ensure_future(self.take(caller, wait_ms=fields.pop("wait_ms", 60_000), **fields))
        self.asking.add(asking)
        await asyncio.sleep(0.1)
        return asking

    def lose_backend(self) -> None:
        """Its connections to the backend break; nothing is said to it."""
        for hold in self.holds:
            hold._domain.free(hold)  # type: ignore[attr-defined]

    def news(self) -> list[tuple[str, Any]]:
        found = []
        while (event := self.told.take()) is not None:
            found.append((event.type, event.fields.get("reason")))
        return found

    async def end(self) -> None:
        """Stop the tasks of the test; nothing is written."""
        for task in (*self.background, *self.asking, self.locks._watching):
            if task is not None:
                task.cancel()
        for competition in list(self.locks._grants._competitions.values()):
            competition.task.cancel()
        for live in self.locks._holds:
            self.locks._holds._unwatch(live)
        await asyncio.gather(*self.asking, return_exceptions=True)

    def _refuse(self) -> None:
        if self.is_fenced.is_set():
            raise StoreUnavailable("Out.", cause="fenced")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)


class Flaky:
    """A store whose next answers to writes can be lost, after they were written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.answers_to_lose = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def apply(self, *ops: Op) -> Outcome:
        outcome = await self._store.apply(*ops)
        if self.answers_to_lose:
            self.answers_to_lose -= 1
            raise StoreUnavailable("The answer was lost.", cause="in_doubt")
        return outcome


class _Part:
    """One node's view of the shared backend."""

    def __init__(self, domain: SharedDomain, holds: list[AsyncHold]) -> None:
        self._domain = domain
        self._holds = holds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._domain, name)

    async def acquire(self, key: LockKey, timeout_s: float, holder: Holder) -> AsyncHold:
        hold = await self._domain.acquire(key, timeout_s, holder)
        # The database does not count.
        hold.generation = None  # type: ignore[misc]
        self._holds.append(hold)
        return hold

    async def try_acquire(self, key: LockKey, holder: Holder) -> AsyncHold | None:
        hold = await self._domain.try_acquire(key, holder)
        if hold is not None:
            hold.generation = None  # type: ignore[misc]
            self._holds.append(hold)
        return hold


class _Chance:
    def getrandbits(self, bits: int) -> int:
        return 0


def clock_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


def on_nodes(play: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of a scene with a cluster, on virtual time; what else it takes are fixtures."""

    def test(**fixtures: Any) -> None:
        loop = VirtualLoop()

        async def scene() -> None:
            cluster = Cluster()
            try:
                await play(cluster, **fixtures)
            finally:
                for node in cluster.nodes.values():
                    await node.end()

        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(scene())
        finally:
            loop.close()
            asyncio.set_event_loop(None)

    test.__name__, test.__doc__ = play.__name__, play.__doc__
    _, *others = inspect.signature(play).parameters.values()
    test.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
    return test


def ticket_of(lock: wire.LockView) -> str:
    assert lock.ticket is not None
    return lock.ticket


# --- One holder -------------------------------------------------------------------------------------------------


@on_nodes
async def test_who_waits_on_another_node_has_it_when_it_is_given_back_under_a_larger_fence(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    first = await a.take()
    asking = await b.ask()
    assert not asking.done()
    await a.locks.release(ADA, NAME, ticket_of(first))
    second = await asking
    assert second.fence is not None
    assert first.fence is not None
    assert second.fence > first.fence


@on_nodes
async def test_who_finds_it_held_through_another_node_is_told_by_whom(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    await a.take()
    with pytest.raises(LockTimedOut) as refused:
        await b.take(BOB)
    assert refused.value.details["holder"] == "ada"
    assert (await b.take(BOB, skip=True)).holder == "ada"


@on_nodes
async def test_a_lock_that_the_backend_lost_stays_its_holders_until_its_node_says_so(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    await a.take()
    a.lose_backend()
    asking = await b.ask()
    await asyncio.sleep(LEASE_MS / 2000)
    assert not asking.done()
    assert [row.node_id for row in await cluster.rows()] == ["nod_a"]


@on_nodes
async def test_a_holder_whose_backend_was_lost_can_give_the_lock_to_another_node(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    lock = await a.take()
    a.lose_backend()
    asking = await b.ask()
    await a.locks.release(ADA, NAME, ticket_of(lock))
    assert (await asking).acquired


@on_nodes
async def test_who_does_not_wait_is_told_busy_while_another_nodes_row_stands(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    await a.take()
    a.lose_backend()
    assert not (await b.take(BOB, skip=True)).acquired


@on_nodes
async def test_the_row_of_a_node_that_cannot_speak_is_replaced_when_its_lease_is_over(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    first = await a.take(lease_ms=5_000)
    await a.end()
    a.lose_backend()
    second = await (await b.ask())
    assert second.fence is not None
    assert first.fence is not None
    assert second.fence > first.fence
    # Not a moment too early.
    assert second.acquired_at is not None
    assert first.expires_at is not None
    assert second.acquired_at > first.expires_at


@on_nodes
async def test_a_holder_that_was_replaced_is_told_and_does_not_take_it_back(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    first = await a.take(lease_ms=5_000)
    # As if its process had been stopped: no timer rang.
    for live in a.locks._holds:
        a.locks._holds._unwatch(live)
    a.lose_backend()
    second = await (await b.ask())
    with pytest.raises(LockLost):
        await a.locks.renew(ADA, NAME, ticket_of(first))
    (row,) = await cluster.rows()
    assert (row.node_id, row.fence) == ("nod_b", second.fence)
    assert ("lock.lost", "taken_meanwhile") in a.news()


@on_nodes
async def test_a_holder_that_was_replaced_removes_nothing_of_the_next(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    first = await a.take(lease_ms=5_000)
    for live in a.locks._holds:
        a.locks._holds._unwatch(live)
    a.lose_backend()
    await (await b.ask())
    await a.locks.release(ADA, NAME, ticket_of(first))
    assert [row.node_id for row in await cluster.rows()] == ["nod_b"]


@on_nodes
async def test_what_an_unanswered_write_left_is_removed_when_nobody_waits_any_more(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    a.store.answers_to_lose = 1
    # Its time is over before the store has answered again.
    with pytest.raises(StoreUnavailable):
        await a.take(wait_ms=200, connection_id="ws_1", lease_ms=None)
    assert (await (await b.ask())).acquired


# --- Where it is ------------------------------------------------------------------------------------------------


@on_nodes
async def test_a_lock_of_another_node_is_renewed_there(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    lock = await a.take()
    with pytest.raises(Elsewhere) as elsewhere:
        await b.locks.renew(ADA, NAME, ticket_of(lock))
    assert elsewhere.value.node_id == "nod_a"


@on_nodes
async def test_a_lock_of_another_node_is_given_back_there(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    lock = await a.take()
    with pytest.raises(Elsewhere):
        await b.locks.release(ADA, NAME, ticket_of(lock))


@on_nodes
async def test_a_lock_of_another_node_is_forced_there(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    await a.take()
    with pytest.raises(Elsewhere) as elsewhere:
        await b.locks.force(ADMIN, NAME)
    assert elsewhere.value.node_id == "nod_a"
    await a.locks.force(ADMIN, NAME)
    assert await cluster.rows() == []


@on_nodes
async def test_an_acquisition_that_is_repeated_on_another_node_is_answered_where_the_lock_is(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    await a.take(ticket="lck_mine_0123456789")
    with pytest.raises(Elsewhere):
        await b.take(ticket="lck_mine_0123456789")


@on_nodes
async def test_the_ticket_of_nobody_is_lost_on_every_node(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    await a.take()
    with pytest.raises(LockLost):
        await b.locks.renew(ADA, NAME, "lck_of_nobody")


@on_nodes
async def test_every_node_lists_the_locks_of_all(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    await a.take()
    await b.take(BOB, "other")
    for node in (a, b):
        locks = (await node.locks.list(ADA)).locks
        assert [(lock.name, lock.held, lock.agent_id) for lock in locks] == [
            (NAME, True, "ada"),
            ("other", True, None),
        ]


@on_nodes
async def test_monitoring_counts_the_waiters_of_another_node(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    await a.take()
    await b.ask()
    for node in (a, b):
        (lock,) = (await node.locks.advisory(ADA)).advisory_locks
        assert (lock.held, lock.holder, lock.waiters) == (True, "ada", 1)


# --- Death ------------------------------------------------------------------------------------------------------


@on_nodes
async def test_what_a_dead_node_held_is_free_and_is_told_once(cluster: Cluster) -> None:
    a, b, c = [await cluster.join(node_id) for node_id in ("nod_a", "nod_b", "nod_c")]
    await a.take(connection_id="ws_1", lease_ms=None)
    await a.end()
    gone = await cluster.declare_dead("nod_a")
    await asyncio.gather(b.locks.release_node(gone), c.locks.release_node(gone))
    assert await cluster.rows() == []
    assert [*b.news(), *c.news()] == [("lock.lost", "node_died")]
    assert cluster.backend.expelled == [marker_of("nod_a", 1)] * 2


@on_nodes
async def test_who_waits_has_what_a_dead_node_held(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    await a.take(connection_id="ws_1", lease_ms=None)
    await a.end()
    asking = await b.ask()
    gone = await cluster.declare_dead("nod_a")
    a.lose_backend()
    await b.locks.release_node(gone)
    assert (await asking).acquired


@on_nodes
async def test_the_row_of_a_dead_node_holds_nobody_up(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    await a.take(connection_id="ws_1", lease_ms=None)
    await a.end()
    a.lose_backend()
    await cluster.declare_dead("nod_a")
    assert (await b.take(BOB)).acquired


@on_nodes
async def test_a_node_that_is_back_keeps_what_was_not_released_by_then(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    lock = await a.take()
    await a.end()
    a.lose_backend()
    gone = await cluster.declare_dead("nod_a")
    await cluster.join("nod_a")
    await b.locks.release_node(gone)
    assert [row.fence for row in await cluster.rows()] == [lock.fence]


@on_nodes
async def test_a_node_that_starts_again_has_its_locks_although_others_wait_for_them(cluster: Cluster) -> None:
    a, b = await cluster.join("nod_a"), await cluster.join("nod_b")
    lock = await a.take()
    await a.end()
    a.lose_backend()
    asking = await b.ask()
    # It looks just now whether it could have it.
    looking = await b.locks._backend.acquire(named_key(NAME), 60, HOLDER)
    asyncio.get_running_loop().call_later(1, cluster.backend.free, looking)
    again = await cluster.join("nod_a")
    assert (await again.locks.renew(ADA, NAME, ticket_of(lock))).fence == lock.fence
    assert not asking.done()


@on_nodes
async def test_a_node_that_was_declared_dead_tells_its_holders_and_those_who_wait(cluster: Cluster) -> None:
    a = await cluster.join("nod_a")
    lock = await a.take()
    asking = await a.ask()
    await cluster.declare_dead("nod_a")
    with pytest.raises(StoreUnavailable):
        await a.locks.renew(ADA, NAME, ticket_of(lock))
    await asyncio.sleep(0.1)
    assert ("lock.lost", "node_fenced") in a.news()
    assert isinstance(asking.exception(), StoreUnavailable)


@on_nodes
async def test_a_node_that_was_declared_dead_keeps_nothing_of_the_backend(cluster: Cluster) -> None:
    a = await cluster.join("nod_a")
    await a.take()
    await cluster.declare_dead("nod_a")
    # What it is about to be given it cannot write, and must not keep from the others.
    with pytest.raises(StoreUnavailable):
        await a.take(BOB, "other", wait_ms=1_000)
    await asyncio.sleep(10)
    assert cluster.backend.holds == {}
    assert [row.id for row in await cluster.rows()] == [NAME]


# --- PostgreSQL -------------------------------------------------------------------------------------------------


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


def backend(stack: AsyncExitStack, postgres: Postgres, marker: str) -> AsyncPostgresBackend:
    opened = AsyncPostgresBackend(postgres.url, max_connections=5, keepalive_s=10, marker=marker)
    stack.push_async_callback(opened.close)
    return opened


async def test_the_locks_of_a_life_that_is_over_are_free_though_its_process_is_not(
    postgres: Postgres, stack: AsyncExitStack
) -> None:
    dead = backend(stack, postgres, marker_of("nod_dead", 7))
    alive = backend(stack, postgres, marker_of("nod_alive", 8))
    key, is_lost = named_key("held by the dead"), asyncio.Event()
    hold = await dead.acquire(key, 5, HOLDER)
    hold.on_lost(is_lost.set)
    assert await alive.try_acquire(key, HOLDER) is None
    assert await alive.expel(marker_of("nod_dead", 7)) == 1
    async with asyncio.timeout(60):
        await (await alive.acquire(key, 60, HOLDER)).release()
        await is_lost.wait()
    with pytest.raises(LockLost):
        await hold.release()


@pytest.mark.parametrize("other", [marker_of("nod_dead", 70), marker_of("nod_dead", 6), marker_of("nod_deadx", 7), ""])
async def test_nobody_else_is_ended_with_it(postgres: Postgres, stack: AsyncExitStack, other: str) -> None:
    alive = backend(stack, postgres, other)
    hold = await alive.acquire(named_key("held by the living"), 5, HOLDER)
    assert await backend(stack, postgres, "nod_x/1").expel(marker_of("nod_dead", 7)) == 0
    hold.check()
    await hold.release()


async def test_monitoring_reads_who_holds_what_for_a_node(postgres: Postgres, stack: AsyncExitStack) -> None:
    node = backend(stack, postgres, marker_of("nod_0123456789abc", 1_234_567))
    hold = await node.acquire(named_key("seen"), 5, HOLDER)
    row = next(row for row in await node.list() if row.label == "seen")
    assert row.holder is not None
    assert row.holder.pid > 0
    assert row.holder.host
    await hold.release()
