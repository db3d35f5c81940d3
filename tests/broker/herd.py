"""Several nodes on one store and one virtual clock, for tests of what they do together.

What every scene in a herd keeps, without saying so: counters on disk equal a recount of the rows after every single
write; when all is quiet at the end nobody waits in a row, nothing is reserved for anybody, and every node's own counts
are those of its rows; nothing fails unheard.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any

import structlog
from tests.broker.disk import Disk
from tests.broker.house import ADA, ADMIN, Play
from tests.broker.lock_backend import SharedDomain
from tests.sim.fakes import NO_FILES, Life, Process, SimLauncher, SimMarks, SimOwners, SimStore, sim_perform
from tests.sim.virtual_loop import VirtualLoop

from tabherd import config, errors, wire
from tabherd.broker.broker import Broker
from tabherd.broker.caller import Caller
from tabherd.broker.credentials import Credentials
from tabherd.broker.events import EventBus
from tabherd.cluster.cluster import Cluster
from tabherd.cluster.elsewhere import Elsewhere
from tabherd.cluster.fenced_store import FencedStore
from tabherd.cluster.peer import Peer
from tabherd.core.lifecycle import LEASE, LeaseState, NodeState, is_terminal
from tabherd.core.model import Node, Session, Waiter, changed
from tabherd.metrics import Metrics
from tabherd.store.base import IN_DOUBT, Applied, Conflict, Insert, Op, Outcome, Update


class Grapevine:
    """Hints between the nodes of a herd: late by `delay_s`, or lost when `loses` says so."""

    def __init__(self, herd: Herd, node_id: str) -> None:
        self._herd = herd
        self._node_id = node_id
        self._hearers: dict[str, list[Callable[[str], None]]] = defaultdict(list)

    def tell(self, topic: str, text: str = "") -> None:
        if self._herd.loses(topic):
            return
        for member in self._herd.members.values():
            if member.node.id != self._node_id:
                self._herd.loop.call_later(self._herd.delay_s, member.hints.hear, topic, text)

    def listen(self, topic: str, hearer: Callable[[str], None]) -> None:
        self._hearers[topic].append(hearer)

    def hear(self, topic: str, text: str) -> None:
        if self._herd.members[self._node_id].is_alive:
            for hearer in self._hearers[topic]:
                hearer(text)


class FakeMembership:
    """Who is there, as the herd says."""

    def __init__(self, herd: Herd, node: Node) -> None:
        self._herd = herd
        self.node = node
        self.is_trusted = True
        self.load: Any = None
        self.on_gone: Any = None
        self.on_change: list[Any] = []
        self.known: Mapping[str, Any] = {}
        # Nodes that it has not heard of yet.
        self.unknown: set[str] = set()

    @property
    def peers(self) -> dict[str, Peer]:
        return {
            id: Peer(id, member.node.epoch, "")
            for id, member in self._herd.members.items()
            if id != self.node.id and not member.is_gone and id not in self.unknown
        }

    def refuse_untrusted(self) -> None:
        """It always trusts itself."""


class StepStore(SimStore):
    """The store as one node sees it, with moments around each write at which something may happen: before it, when it
    is on disk and nobody knows, and when the answer is there.
    """

    def __init__(self, disk: Disk, life: Life) -> None:
        super().__init__(disk, life, fail_rate=0.0, drop_caps=False)
        self.on_step: Callable[[], None] = lambda: None
        # Says of which writes the answers are lost.
        self.is_doubtful: Callable[[tuple[Op, ...]], bool] = lambda ops: False
        # Writes that lost a race.
        self.conflicts = 0

    async def apply(self, *ops: Op) -> Outcome:
        self.on_step()
        await self._life.step()
        outcome = await self._disk.apply(*ops)
        self.on_step()
        await self._life.step()
        self.on_step()
        self.conflicts += isinstance(outcome, Conflict)
        if self.is_doubtful(ops):
            raise errors.StoreUnavailable("the answer was lost", cause=IN_DOUBT)
        return outcome


class Member:
    """One node of the herd."""

    def __init__(self, herd: Herd, number: int, epoch: int, version: int) -> None:
        # As it is stored when this life begins.
        self.node = Node(id=f"nod_{number}", epoch=epoch, url="", pid=number, started_at=0, version=version)
        self.is_alive = True
        # Declared dead: the others do not see it any more.
        self.is_gone = False
        self.life = Life(herd.chance, lambda _: None)
        self.hints = Grapevine(herd, self.node.id)
        self.store = StepStore(herd.disk, self.life)
        self.processes: dict[str, Process] = {}
        clock = herd.loop.clock_ms
        # What it tells of its beats is nobody's concern here.
        self.membership = FakeMembership(herd, self.node)
        self.events = EventBus(epoch=epoch, ring=10_000, clock=clock)
        self.broker = Broker(
            config=herd.config,
            node=self.node,
            store=FencedStore(self.store, self.node, lambda: None),  # type: ignore[arg-type]
            launcher=SimLauncher(self.processes, self.life, herd.mint, fail_rate=0.0),
            events=self.events,
            metrics=Metrics(),
            credentials=Credentials(self.store),  # type: ignore[arg-type]
            marks=SimMarks({}, self.life),
            task_marks=SimMarks({}, self.life),
            webhook_secret=b"secret",
            files_dir=NO_FILES,
            memory_bytes=1 << 34,
            clock=clock,
            chance=herd.chance,
            perform=herd.perform,
            owners=SimOwners({number}, clock),  # type: ignore[arg-type]
            locks=SharedDomain(clock),
            cluster=Cluster(self.membership, self.hints, herd.claims_of(self)),  # type: ignore[arg-type]
        )

    @property
    def admission(self) -> Any:
        return self.broker._admissions["default"]

    @property
    def waiting(self) -> int:
        return self.broker.operations.stats(ADMIN).pools["default"].waiting


class Herd:
    """The nodes, and everything that they share."""

    def __init__(self, *, nodes: int = 2, seed: int = 1, **settings: Any) -> None:
        self.loop = VirtualLoop()
        self.chance = Random(seed)
        self.disk = Disk()
        self.delay_s = 0.001
        self.loses: Callable[[str], bool] = lambda topic: False
        self.config = config.parse({"pools": {"default": {"browsers_max": 1, "warm": 0, **settings}}})
        self._minted = 0
        self.members: dict[str, Member] = {}
        # Also those of former lives.
        self._lives: list[Life] = []
        self._epochs = 0
        for number in range(1, nodes + 1):
            self._add(number)

    # What a page does with an action.
    perform: Any = staticmethod(sim_perform)

    def claims_of(self, member: Member) -> Any:
        """How that node claims tasks; None: it does not."""
        return None

    def _add(self, number: int) -> Member:
        self._epochs += 1
        former = self.members.get(f"nod_{number}")
        member = Member(self, number, self._epochs, 1 if former is None else former.node.version + 1)
        self.members[member.node.id] = member
        self._lives.append(member.life)
        return member

    def __getitem__(self, number: int) -> Member:
        return self.members[f"nod_{number}"]

    async def start(self) -> None:
        for member in self.members.values():
            assert isinstance(await self.disk.apply(Insert(changed(member.node, version=0))), Applied)
            await member.broker.start()

    # --- Callers ----------------------------------------------------------------------------------------------

    async def open(
        self, at: Member, caller: Caller = ADA, *, wait_ms: int = 60_000, **request: Any
    ) -> wire.SessionView:
        """As a client does it through the front door of that node: passed on at most once."""
        asked = wire.OpenSession(wait_ms=wait_ms, **request)
        try:
            return await at.broker.sessions.open(caller, asked)
        except Elsewhere as elsewhere:
            there = self.members[elsewhere.node_id]
            assert there is not at
            await asyncio.sleep(self.delay_s)
            if not there.is_alive:
                raise errors.StoreUnavailable("connection refused") from None
            return await there.broker.sessions.open(caller, asked, grant=elsewhere.grant)

    async def release(self, session: wire.SessionView, caller: Caller = ADA) -> None:
        there = self.home(session)
        await there.broker.sessions.release(caller, session.session_id)

    def home(self, session: wire.SessionView) -> Member:
        row = next(row for row in self.disk.rows(Session) if row.id == session.session_id)
        return self.members[row.node_id]

    # --- What happens -----------------------------------------------------------------------------------------

    def kill(self, member: Member) -> None:
        """It is gone at once, and nobody knows yet."""
        member.is_alive = False
        member.life.is_dead = True
        for process in member.processes.values():
            process.die("killed")

    async def restart(self, number: int) -> None:
        """It is killed, and starts again before anybody has missed it."""
        former = self[number]
        self.kill(former)
        member = self._add(number)
        outcome = await self.disk.apply(Update(changed(member.node, version=former.node.version)))
        assert isinstance(outcome, Applied)
        await member.broker.start()

    async def declare_dead(self, member: Member) -> None:
        """The others know, and take over what it had."""
        member.is_gone = True
        row = changed(member.node, state=NodeState.DEAD)
        outcome = await self.disk.apply(Update(row))
        assert isinstance(outcome, Applied)
        (gone,) = outcome.rows
        assert isinstance(gone, Node)
        await asyncio.gather(*(other.broker._inherit(gone) for other in self.alive))

    @property
    def alive(self) -> list[Member]:
        return [member for member in self.members.values() if member.is_alive]

    # --- What is there ----------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        return self.loop.clock_ms()

    @property
    def active(self) -> int:
        """Sessions that count, as the rows say."""
        return sum(not is_terminal(LEASE, row.state) for row in self.disk.rows(Session))

    def mint(self, what: str) -> str:
        self._minted += 1
        return f"{what}-{self._minted}"

    async def until(self, is_so: Callable[[], Any], within_s: float = 1_000.0) -> int:
        """Let time pass until something is so; how many milliseconds that took."""
        began = self.now
        while not is_so():
            assert self.now - began < within_s * 1000, "it never comes to be"
            await asyncio.sleep(0.001)
        return self.now - began

    async def quiet(self) -> None:
        """Until nothing goes on behind the callers' backs, what is kept for nobody included."""
        await asyncio.sleep(12)
        await self.until(lambda: not any(member.broker._background for member in self.alive))

    def check(self) -> None:
        """Nobody waits, nothing is reserved, and each node counts what its rows say."""
        assert self.disk.rows(Waiter) == []
        rows = [row for row in self.disk.rows(Session) if not is_terminal(LEASE, row.state)]
        assert [row.id for row in rows if row.state is LeaseState.RESERVED] == []
        for member in self.alive:
            own = [row.id for row in rows if row.node_id == member.node.id and row.state is not LeaseState.POOLED]
            assert sorted(member.admission._claims) == sorted(own)
            seated = [id for slot in member.broker._pools["default"].slots for id in slot.sessions]
            assert sorted(seated) == sorted([*own, *member.admission.stock._tabs])
            assert member.waiting == 0

    async def clear(self) -> None:
        """Nothing of any node may outlast the scene."""
        for life in self._lives:
            life.is_over = True
        leftovers = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in leftovers:
            task.cancel()
        await asyncio.gather(*leftovers, return_exceptions=True)


def in_herd(**settings: Any) -> Callable[[Play], Callable[..., None]]:
    """Make a test of a scene that is played by a herd with these settings; what else it takes are fixtures."""

    def as_test(play: Play) -> Callable[..., None]:
        def test(**fixtures: Any) -> None:
            run_in_herd(lambda herd: play(herd, **fixtures), **settings)

        test.__name__, test.__doc__, test.__module__ = play.__name__, play.__doc__, play.__module__
        _, *others = inspect.signature(play).parameters.values()
        test.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
        return test

    return as_test


def run_in_herd(play: Callable[[Any], Coroutine[Any, Any, None]], *, kind: type[Herd] = Herd, **settings: Any) -> None:
    """Play a scene to its end on virtual time."""
    herd = kind(**settings)
    unheard: list[Any] = []

    async def scene() -> None:
        await herd.start()
        await play(herd)
        await herd.quiet()
        herd.check()
        for member in herd.alive:
            await member.broker.stop()

    asyncio.set_event_loop(herd.loop)
    herd.loop.set_exception_handler(lambda _, context: unheard.append(context))
    try:
        with structlog.testing.capture_logs() as logs:
            herd.loop.run_until_complete(scene())
    finally:
        herd.loop.watches.clear()
        herd.loop.run_until_complete(herd.clear())
        herd.loop.close()
        asyncio.set_event_loop(None)
    failures = [entry for entry in logs if entry["log_level"] == "error"]
    assert not failures, failures
    ours = [context for context in unheard if not isinstance(context.get("exception"), errors.TabherdError)]
    assert not ours, ours
