"""One machine of a simulated cluster: the server process that runs on it now, its lives as a node, and its browsers.

The way of a life is that of `tabherd.edge.server` and `tabherd.edge.joining`, without sockets: join, beat, start the
broker, serve until others declare it dead or it is told to stop, end in order, and begin again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tests.broker.claim_twin import ClaimTwin
from tests.sim.fakes import NO_FILES, SimLauncher, SimMarks, SimOwners, SimTab
from tests.sim.fakes import Process as Chromium
from tests.sim.script import PACE
from tests.sim.webhook_rules import SECRET

from tabherd import errors, wire
from tabherd.actions.progress import Progress
from tabherd.broker.broker import Broker
from tabherd.broker.credentials import Credentials
from tabherd.broker.events import EventBus
from tabherd.cluster.clock import ClusterClock
from tabherd.cluster.cluster import Cluster
from tabherd.cluster.fenced_store import FencedStore
from tabherd.cluster.membership import Membership, join
from tabherd.core.lifecycle import NodeState
from tabherd.core.model import Node, Task, changed
from tabherd.edge.joining import Joined
from tabherd.edge.routing import Routing, routing_of
from tabherd.locks.base import marker_of
from tabherd.metrics import Metrics
from tabherd.store.task_claims import Bounds

from .chance import Touch
from .database import Line
from .hearsay import Hearsay
from .lock_server import LockLink
from .machine_loop import Process

if TYPE_CHECKING:
    from .world import World

RETRY_S = 0.3
# What callers get to hear their last answers, once a life is over.
CLOSE_GRACE_S = 0.5
# By how much the clock of a machine may go wrong.
DRIFT = 0.02
# How often a browser does not start.
LAUNCH_FAIL_RATE = 0.05
# How often it is not heard what became of a claim or a write of tasks.
LOST_RATE = 0.01


class FencedClaims(ClaimTwin):
    """Claims of one life; it hears when others have ended it."""

    def __init__(self, life: NodeLife) -> None:
        super().__init__(life.world.turns, life.node, life.line.pause)
        self._life = life
        self._world = life.world

    async def claim(self, pool: str, most: int, bounds: Bounds) -> list[Task]:
        await self._pause()
        self._refuse_fenced()
        before = dict(self._world.database.rows(Task))
        claimed = self._turns.claim(self._node.id, pool, most, bounds)
        for row in claimed:
            self._wrote(before[row.id], row)
        await self._answer("claim")
        return claimed

    async def write(self, rows: Sequence[Task]) -> set[str]:
        await self._pause()
        self._refuse_fenced()
        standing = self._world.database.rows(Task)
        written = {row.id for row in rows if row.id in standing and standing[row.id].version == row.version}
        for row in rows:
            if row.id in written:
                before, standing[row.id] = standing[row.id], changed(row, version=row.version + 1)
                self._wrote(before, standing[row.id])
        await self._answer("write of tasks")
        return written

    async def _answer(self, what: str) -> None:
        """What was done is heard of, or not."""
        await self._pause()
        if self._world.pace.strikes(f"answer to a {what} is lost", LOST_RATE):
            self._world.tell(f"  the answer to a {what} of {self._node.id} is lost")
            raise errors.StoreUnavailable("The database does not answer.", cause="away")

    def _wrote(self, before: Task, row: Task) -> None:
        if self._life.is_shut_out:
            self._world.violate(f"{self._node.id} (epoch {self._node.epoch}) writes {row.id} after its end")
        self._world.task_rules.wrote(before, row, self._life)
        self._world.webhook_rules.wrote({(Task, row.id): before}, (row,), self._life)

    def _refuse_fenced(self) -> None:
        try:
            super()._refuse_fenced()
        except errors.StoreUnavailable:
            self._life.membership.fenced()
            raise


class NodeLife:
    """One life of a node, between its joining and its end."""

    broker: Broker
    routing: Routing

    def __init__(self, machine: Machine, node: Node) -> None:
        self.machine = machine
        self.world = machine.world
        self.process = machine.process
        self.line = machine.line
        # Through which its browsers are touched.
        self.touch = machine.touch
        # As it was stored when this life began.
        self.node = node
        # It serves nobody any more.
        self.is_over = False
        self.has_ended = asyncio.Event()
        # What is being answered.
        self.requests: set[asyncio.Task[Any]] = set()
        self.clock = ClusterClock(machine.steady)
        self.membership = Membership(
            config=self.world.config.cluster, store=self.line, node=node, clock=self.clock, steady=machine.steady
        )
        self.hints = Hearsay(self.world, self)
        self.owners = SimOwners(machine.alive_pids, self.world.loop.clock_ms)
        self.locks = LockLink(self.world, self, marker_of(node.id, node.epoch))

    def make_broker(self) -> None:
        """Once the clock has been looked at."""
        world, machine = self.world, self.machine
        store = FencedStore(self.line, self.node, self.membership.fenced, self.membership.refuse_untrusted)
        cluster = Cluster(self.membership, self.hints, FencedClaims(self))
        self.broker = Broker(
            config=world.config,
            node=self.node,
            store=store,
            launcher=SimLauncher(machine.browsers, self.touch, world.mint, fail_rate=LAUNCH_FAIL_RATE),
            events=EventBus(epoch=self.node.epoch, ring=1_000, clock=self.clock),
            metrics=Metrics(),
            credentials=Credentials(store),
            marks=SimMarks(machine.marks, self.touch),
            task_marks=SimMarks(machine.task_marks, self.touch),
            webhook_secret=SECRET,
            files_dir=NO_FILES,
            memory_bytes=1 << 34,
            clock=self.clock,
            chance=world.script.chance(f"ids {self.node.id} {self.node.epoch}"),
            perform=self._perform,
            owners=self.owners,  # type: ignore[arg-type]
            locks=self.locks,
            cluster=cluster,
        )
        world.receiver.listen(self)
        place = Joined(
            cluster=cluster,
            store=store,
            clock=self.clock,
            links=None,  # type: ignore[arg-type]
            hop_key=b"",
            ticket_key=b"",
            webhook_key=b"",
        )
        self.routing = routing_of(place, self.broker)

    async def _perform(self, tab: SimTab, action: wire.AnyAction, progress: Progress) -> Any:
        return await self.world.perform(self, tab, action, progress)

    @property
    def is_shut_out(self) -> bool:
        """Whether somebody has ended it, as the database knows."""
        row = self.world.database.row(Node, self.node.id)
        return row is None or row.version != self.node.version or row.state is not NodeState.UP


class Machine:
    """Where a node runs, and runs again."""

    process: Process
    line: Line

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.node_id = f"nod_{number}"
        self.boot_id = f"boot-{number}"
        # Its clock began at some time of its own, and is not quite right.
        chance = world.script.chance(self.node_id)
        self._began_s = chance.random() * 1_000
        self._rate = 1 + (chance.random() * 2 - 1) * DRIFT
        # What outlives the server: its browsers, its files, and the clients beside it.
        self.browsers: dict[str, Chromium] = {}
        self.marks: dict[int, tuple[str, str]] = {}
        self.task_marks: dict[int, tuple[str, str]] = {}
        self.alive_pids: set[int] = set()
        self.touch: Touch
        # How often its server was started.
        self._starts = 0
        self.current: NodeLife | None = None
        self.pid = 0
        self._running: asyncio.Task[None]
        self._is_told = asyncio.Event()
        self._is_new = True
        # What keeps it from beating that is its own, and not everybody's, and until when something did.
        self._troubles = 1
        self._troubled_until_s = 0.0

    def troubled(self) -> None:
        """Something keeps it from beating that is its own, and not everybody's."""
        self._troubles += 1

    def untroubled(self) -> None:
        self._troubles -= 1
        self._troubled_until_s = self.world.loop.now_s

    def had_trouble(self, within_s: float) -> bool:
        """Whether that was so lately."""
        since_s = self.world.loop.now_s - within_s
        return self._troubles > 0 or self._troubled_until_s > since_s or self.line.hung_until_s > since_s

    def steady(self) -> float:
        return (self.world.loop.now_s - self._began_s) * 1000 * self._rate

    @property
    def is_up(self) -> bool:
        return not self.process.is_killed and not self.process.is_stopped

    # --- What is done to it ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the server."""
        self._starts += 1
        self.process = Process(self.world.loop)
        self.process.context.run(PACE.set, self.world.script.pace(f"{self.node_id} {self._starts}"))
        self.line = Line(self.world, self.process)
        self.touch = Touch(self.world.pace, self.world.tell, self.world.verb_rules.check_cookies)
        # Until it has joined the cluster.
        self._is_new = True
        self.pid = self.world.mint_number()
        self.alive_pids.add(self.pid)
        self._is_told = asyncio.Event()
        self._running = self.process.spawn(self._run())
        self.world.keep(self._running)

    def kill(self) -> None:
        """The server is gone at once; its browsers run on."""
        self.world.tell(f"{self.node_id} is killed")
        if not self._is_new:
            self.troubled()
        self.touch.is_dead = True
        self.alive_pids.discard(self.pid)
        self.process.kill()
        if self.current is not None:
            self.current.is_over = True
            self.world.lock_server.end(self.current.locks)
        # What it had sent may still arrive.
        self.line.mend()

    def tell_to_stop(self) -> None:
        self._is_told.set()

    async def stopped(self) -> None:
        """Until it has ended in order, or was killed."""
        await asyncio.wait([self._running, self.process.death], return_when=asyncio.FIRST_COMPLETED)

    # --- What it does ---------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._is_told.is_set():
            await self._live()
        self.alive_pids.discard(self.pid)
        self.troubled()

    async def _live(self) -> None:
        """One life."""
        world = self.world
        self.line.life = None
        try:
            node = await self._join()
            life = self.line.life = NodeLife(self, node)
            await life.membership.start()
        except errors.StoreUnavailable:
            await asyncio.sleep(RETRY_S)
            return
        if self._is_new:
            self._is_new = False
            self.untroubled()
        life.make_broker()
        self.current = life
        world.lives.append(life)
        world.tell(f"{self.node_id} begins a life, epoch {node.epoch}")
        starting = asyncio.ensure_future(life.broker.start())
        world.keep(starting)
        try:
            await self._until_over(life, starting)
        except errors.StoreUnavailable as error:
            # Such a server ends with an error, and whoever runs it starts it again.
            world.tell(f"{self.node_id} cannot start: {error!r}")
        finally:
            if not world.loop.is_over:
                await self._end(life, starting)

    async def _join(self) -> Node:
        node = Node(
            id=self.node_id,
            epoch=0,
            url=f"http://{self.node_id}",
            pid=self.pid,
            started_at=await self.line.now(),
            boot_id=self.boot_id,
        )
        dead_after_s = self.world.config.cluster.dead_after_s
        # Whoever has a number here has had it from the start: none is used again.
        return await join(self.line, node, dead_after_s, lambda pid: 1 << 40 if pid in self.alive_pids else None)

    async def _until_over(self, life: NodeLife, starting: asyncio.Future[None]) -> None:
        told = asyncio.ensure_future(self._is_told.wait())
        fenced = asyncio.ensure_future(life.membership.is_fenced.wait())
        try:
            await asyncio.wait((starting, told, fenced), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
                await asyncio.wait((told, fenced), return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            fenced.cancel()

    async def _end(self, life: NodeLife, starting: asyncio.Future[None]) -> None:
        """In order, as far as that is possible."""
        self.world.tell(f"{self.node_id} ends its life, epoch {life.node.epoch}")
        life.broker.operations.stop()
        starting.cancel()
        await asyncio.wait([starting])
        if life.requests:
            _, left = await asyncio.wait(life.requests, timeout=CLOSE_GRACE_S)
            for request in left:
                request.cancel()
        life.is_over = True
        life.has_ended.set()
        await life.broker.stop()
        await life.membership.stop()
        if not life.membership.is_fenced.is_set():
            try:
                await life.membership.leave()
            except errors.StoreUnavailable:
                self.world.tell(f"{self.node_id} cannot say that it leaves")
        self.world.lock_server.end(life.locks)
        self.current = None
