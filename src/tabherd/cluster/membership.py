"""Who is in the cluster: this node's beats, its trust in itself, and the death of others.

Invariants:
- A life begins with a row of a new epoch, which no other life of any node has ever had, and ends when somebody changes
  that row. Every write of the life requires the row (see `fenced_store`), so nothing of it lands after its end.
- A beat tells the database's time from before it was written, so a node never looks younger than it is.
- A node that has not had a beat acknowledged for `pause_after_s` does not trust itself; that is asked at every use, not
  told by a timer, so that a process which was stopped finds out before it does anything else.
- Others declare it dead no earlier than `dead_after_s` after its last beat, by the database's clock, and only if their
  own beats have been good for as long. So a node has stopped trusting itself by then, and when the database was away
  for everybody, nobody is declared dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import structlog

from ..config import Cluster as ClusterConfig
from ..core.lifecycle import NODE, NodeEvent, NodeState, advance
from ..core.model import Beat, Node, changed
from ..errors import StateConflict, StoreUnavailable
from ..store.base import Applied, Delete, Insert, Op, Put, Require, Store, Update
from .clock import ClusterClock, steady_ms
from .fenced_store import fenced
from .peer import Peer

log = structlog.get_logger("cluster")

# How soon a beat that failed is tried again, as a part of the time between beats.
RETRY_SHARE: Final = 0.2
# How long after a node may be declared dead that is done: clocks are read to the millisecond, and some.
LOOK_MARGIN_S: Final = 0.01
# More nodes than any cluster of ours has.
NODES_MAX: Final = 1_000
# How long a node is remembered of which nothing is left.
FORGET_AFTER_MS: Final = 7 * 24 * 3600 * 1000
# How often a join decides again when others change the row meanwhile.
JOIN_AGAIN_MAX: Final = 10
# How far two clocks may go apart in the life of a node.
AGE_SLACK_MS: Final = 2_000
BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")


class Load(msgspec.Struct, frozen=True):
    """What a node says about itself in each beat."""

    is_draining: bool = False
    sessions: int = 0
    free_seats: int = 0


@cache
def boot_id() -> str:
    """Which machine this is, since its last start; empty where nobody can tell."""
    try:
        return BOOT_ID_FILE.read_text(encoding="ascii").strip()
    except OSError:
        return ""


async def join(store: Store, node: Node, dead_after_s: float, age_ms: Callable[[int], int | None]) -> Node:
    """Begin a life: the node's row as stored, with an epoch that is new in the cluster.

    `age_ms` says how long a process of this machine has been there, if there is one of that number. Raises
    `StateConflict` if a node of this id lives already: its state directory was copied, for instance.
    """
    for _ in range(JOIN_AGAIN_MAX):
        known, beat, now = await asyncio.gather(store.get(Node, node.id), store.get(Beat, node.id), store.now())
        op: Op
        if known is None:
            op = Insert(node, numbered="epoch")
        else:
            if known.state is NodeState.UP and beat is not None and now - beat.at < dead_after_s * 1000:
                _refuse_twin(known, node, now, age_ms(known.pid))
            state = advance(NODE, known.state, NodeEvent.JOIN)
            op = Update(changed(node, state=state, version=known.version), numbered="epoch")
        outcome = await store.apply(op)
        if isinstance(outcome, Applied):
            (stored,) = outcome.rows
            assert isinstance(stored, Node)
            return stored
    raise StateConflict("The row of this node kept changing while it joined the cluster.", nodeId=node.id)


def _refuse_twin(known: Node, node: Node, now: int, age_ms: int | None) -> None:
    """A node that was killed a moment ago still seems to live, and may start again; its twin may not."""
    is_same_machine = known.boot_id == node.boot_id
    if known.pid == node.pid and is_same_machine:
        return
    # Its number may be another process's by now, which was not there yet when that life began.
    is_running = age_ms is not None and age_ms >= now - known.started_at - AGE_SLACK_MS
    if not is_same_machine or is_running:
        raise StateConflict(
            f"Another server at {known.url} is node {node.id} already: it has the same identity.",
            action="Give each server a state directory of its own (TABHERD_STATE); never copy one. If that server was "
            "moved to this machine a moment ago, try again in a few seconds.",
            nodeId=node.id,
        )


class Membership:
    """This life's place in the cluster."""

    def __init__(
        self,
        *,
        config: ClusterConfig,
        store: Store,
        node: Node,
        clock: ClusterClock,
        steady: Callable[[], float] = steady_ms,
    ) -> None:
        # `store` has a connection of its own: what waits for the other one must not hold up a beat.
        self._config = config
        self._store = store
        # As it was stored when this life began.
        self.node = node
        self._clock = clock
        self._steady = steady
        # The other nodes that live, by id.
        self.peers: Mapping[str, Peer] = {}
        # All nodes as last read, with their beats; for people.
        self.known: Mapping[str, tuple[Node, Beat | None]] = {}
        # When the last beat that was acknowledged was begun, and when the first one after the last failure.
        self._beaten_at: float | None = None
        self._good_since: float | None = None
        # Set when others have declared this node dead.
        self.is_fenced = asyncio.Event()
        # Says what a beat tells.
        self.load: Callable[[], Load] = Load
        # Called when other nodes came or went.
        self.on_change: list[Callable[[], None]] = []
        # Called, and waited for, with each node that is over, at every look until nothing is left of it.
        self.on_gone: Callable[[Node], Awaitable[None]] | None = None
        # Nodes that are over and whose things are being taken over.
        self._inheriting: dict[str, asyncio.Task[None]] = {}
        self._beating: asyncio.Task[None] | None = None

    # --- Trust ----------------------------------------------------------------------------------------------

    @property
    def is_trusted(self) -> bool:
        """Whether this node may still act on what it has: nobody else can have been given it."""
        if self.is_fenced.is_set() or self._beaten_at is None:
            return False
        return self._steady() - self._beaten_at < self._config.pause_after_s * 1000

    def refuse_untrusted(self) -> None:
        """Raise `StoreUnavailable` while this node does not trust itself."""
        if self.is_fenced.is_set():
            raise fenced()
        if not self.is_trusted:
            raise StoreUnavailable(
                "This node has not reached the store for a while and takes no commands until it does.",
                cause="paused",
                retry_after_ms=int(self._config.beat_s * 1000),
            )

    def fenced(self) -> None:
        """A write has shown that others have declared this node dead."""
        if not self.is_fenced.is_set():
            log.error("other nodes have declared this one dead", nodeId=self.node.id, epoch=self.node.epoch)
            self.is_fenced.set()

    # --- Life -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Beat once, then for ever. Raises `StoreUnavailable` if that is not possible now."""
        await self._beat()
        await self._look()
        self._beating = asyncio.create_task(self._beat_for_ever(), name="beats")

    async def stop(self) -> None:
        """No more beats."""
        tasks = [task for task in (self._beating, *self._inheriting.values()) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def leave(self) -> None:
        """End this life in order: others take over what is left of it at once, instead of waiting for its death."""
        left = changed(self.node, state=advance(NODE, self.node.state, NodeEvent.LEAVE))
        await self._store.apply(Update(left))

    async def _beat_for_ever(self) -> None:
        was_good = True
        while not self.is_fenced.is_set():
            await asyncio.sleep(min(self._config.beat_s * (1 if was_good else RETRY_SHARE), self._next_death_s()))
            try:
                await self._beat()
                await self._look()
            except StoreUnavailable as error:
                if was_good:
                    log.warning("a beat failed", error=error.message)
                was_good, self._good_since = False, None
            else:
                was_good = True

    async def _beat(self) -> None:
        begun = self._steady()
        now = await self._store.now()
        self._clock.looked(now, begun, self._steady())
        load = self.load()
        beat = Beat(
            id=self.node.id,
            epoch=self.node.epoch,
            at=now,
            is_draining=load.is_draining,
            sessions=load.sessions,
            free_seats=load.free_seats,
        )
        outcome = await self._store.apply(Require(Node, self.node.id, self.node.version), Put(beat))
        if not isinstance(outcome, Applied):
            self.fenced()
            return
        heard = self._steady()
        if self._beaten_at is not None and heard - self._beaten_at >= self._config.pause_after_s * 1000:
            # It did not trust itself meanwhile, because it was stopped or nobody answered. The database may have been
            # away for everybody, and the others have had no time yet to say that they live.
            self._good_since = heard
        self._beaten_at = begun
        if self._good_since is None:
            self._good_since = begun

    # --- Others ---------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """See who is there, who has been silent for too long, and who is over."""
        now, nodes, beats = await asyncio.gather(
            self._store.now(), self._store.select(Node, limit=NODES_MAX), self._store.select(Beat, limit=NODES_MAX)
        )
        beat_of = {beat.id: beat for beat in beats}
        await self._forget(now, [node for node in nodes if node.state is NodeState.GONE], beat_of)
        nodes = [node for node in nodes if node.state is not NodeState.GONE]
        self.known = {node.id: (node, beat_of.get(node.id)) for node in nodes}
        for node in nodes:
            if node.id == self.node.id or node.state is not NodeState.UP:
                continue
            beat = beat_of.get(node.id)
            if self._may_declare(now, node, beat):
                await self._declare_dead(node, beat)
        self._update_peers()
        for node, _ in self.known.values():
            if node.state is not NodeState.UP and node.id not in self._inheriting and self.on_gone is not None:
                inheriting = asyncio.create_task(self._inherit(node), name=f"inherit {node.id}")
                self._inheriting[node.id] = inheriting

    async def _forget(self, now: int, gone: Sequence[Node], beat_of: Mapping[str, Beat]) -> None:
        """Remove the rows of nodes that will hardly come back; by then nothing of their last life is on its way."""
        for node in gone:
            beat = beat_of.get(node.id)
            if now - _heard_at(node, beat) >= FORGET_AFTER_MS:
                beats = () if beat is None else (Delete(Beat, beat.id, beat.version),)
                await self._store.apply(Delete(Node, node.id, node.version), *beats)

    def is_silent(self, node: Node, beat: Beat | None, now: int) -> bool:
        """Whether it has stopped trusting itself by that time."""
        return now - _heard_at(node, beat) >= self._config.pause_after_s * 1000

    def _may_declare(self, now: int, node: Node, beat: Beat | None) -> bool:
        limit_ms = self._config.dead_after_s * 1000
        is_good = self._good_since is not None and self._steady() - self._good_since >= limit_ms
        return is_good and now - _heard_at(node, beat) >= limit_ms

    def _next_death_s(self) -> float:
        """How long until a node can be declared dead that is silent already: then it is looked at, not at some beat."""
        now = self._clock()
        due = (
            _heard_at(node, beat) + self._config.dead_after_s * 1000 - now
            for node, beat in self.known.values()
            if node.state is NodeState.UP and node.id != self.node.id and self.is_silent(node, beat, now)
        )
        # One that is overdue could not be declared dead yet; it is looked at with every beat.
        return min((left_ms / 1000 + LOOK_MARGIN_S for left_ms in due if left_ms > 0), default=self._config.beat_s)

    async def _declare_dead(self, node: Node, beat: Beat | None) -> None:
        dead = changed(node, state=advance(NODE, node.state, NodeEvent.DECLARE_DEAD))
        # If it beats in this very moment, it lives.
        seen = Require(Beat, node.id, 0 if beat is None else beat.version)
        outcome = await self._store.apply(Require(Node, self.node.id, self.node.version), seen, Update(dead))
        if isinstance(outcome, Applied):
            stored = outcome.rows[-1]
            assert isinstance(stored, Node)
            log.warning("a node was silent for too long and is declared dead", nodeId=node.id, url=node.url)
            self.known = {**self.known, node.id: (stored, beat)}

    def _update_peers(self) -> None:
        peers = {
            node.id: Peer(node.id, node.epoch, node.url)
            for node, _ in self.known.values()
            if node.state is NodeState.UP and node.id != self.node.id
        }
        if peers != self.peers:
            self.peers = peers
            for told in self.on_change:
                told()

    async def _inherit(self, node: Node) -> None:
        """See to what a node that is over has left."""
        assert self.on_gone is not None
        try:
            await self.on_gone(node)
        except StoreUnavailable as error:
            log.warning("what a node has left waits for the store", nodeId=node.id, error=error.message)
        except Exception:
            log.exception("bug: what a node has left could not be taken over", nodeId=node.id)
        finally:
            del self._inheriting[node.id]


def _heard_at(node: Node, beat: Beat | None) -> int:
    """When it was last heard of. One that has joined and not beaten yet is as old as its start."""
    return max(node.started_at, 0 if beat is None or beat.epoch != node.epoch else beat.at)
