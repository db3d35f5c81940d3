"""What happens on other nodes, for those who listen here: one stream to each of them, as long as somebody listens.

Invariants:
- A node has at most one stream to each life of another, however many listen; it is opened again when it breaks, from
  where it was, and ends when that life is over or nobody has listened for a while.
- What a new listener hears begins when it comes. One that comes back goes on where it was, on whichever node, or is
  told `reset`: see `merged_events`.
- Nobody waits for a node that does not answer for longer than `SYNC_LIMIT_S`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing
from typing import Final, Protocol

from .. import logs
from ..broker.event_mirror import EventMirror
from ..broker.events import Event, EventBus, EventId, Subscription
from ..cluster.peer import Peer
from ..errors import NodeUnreachable
from .merged_events import MergedSubscription, Place
from .peer_events import PATH, read

log = logs.get_logger("events")

# How long a listener waits for what other nodes have, before it is served without it.
SYNC_LIMIT_S: Final = 2.0
# How long streams stay open after the last listener left: a client that was cut off is back by then.
LINGER_S: Final = 30.0
PAUSE_MIN_S: Final = 0.1
PAUSE_MAX_S: Final = 2.0


class Peers(Protocol):
    """Who else is there; `Membership` is one."""

    @property
    def peers(self) -> Mapping[str, Peer]: ...

    # Called when others came or went.
    on_change: list[Callable[[], None]]


# Opens a stream of another node from the place that is given; raises `NodeUnreachable`, also in the middle.
Open = Callable[[Peer, bytes, EventId], AsyncGenerator[bytes]]


class _Link:
    """The stream to one life of another node."""

    def __init__(self, mirror: EventMirror, following: asyncio.Task[None]) -> None:
        self.mirror = mirror
        self.following = following


class ClusterEvents:
    """The events of all nodes, on one of them."""

    def __init__(self, *, bus: EventBus, peers: Peers, open: Open, ring: int, clock: Callable[[], int]) -> None:
        self._bus = bus
        self._peers = peers
        self._open = open
        # Events of each other node that are kept.
        self._ring = ring
        self._clock = clock
        # By epoch, while somebody listens.
        self._links: dict[int, _Link] = {}
        # Who listens, with the nodes that it cannot hear yet: true for one that has come since.
        self._listeners: dict[MergedSubscription, dict[int, bool]] = {}
        # Those who are about to.
        self._coming = 0
        # Ends the streams when nobody has come meanwhile.
        self._lingering: asyncio.TimerHandle | None = None
        self._is_closed = False
        peers.on_change.append(self._follow_peers)

    async def subscribe(
        self,
        types: Collection[str] | None = None,
        agent_id: str | None = None,
        tab_id: str | None = None,
        task_id: str | None = None,
        after: Place | None = None,
    ) -> MergedSubscription:
        """As `EventBus.subscribe`, for all nodes."""

        def follow(bus: EventBus, place: EventId) -> Subscription:
            return bus.subscribe(types=types, agent_id=agent_id, tab_id=tab_id, task_id=task_id, after=place)

        self._coming += 1
        try:
            if self._lingering is not None:
                self._lingering.cancel()
                self._lingering = None
            self._follow_peers()
            await self._synced({} if after is None else after.seqs)
            listener = MergedSubscription(self._bus, follow, after, self._left, (self._bus.epoch, *self._links))
            self._listeners[listener] = unheard = {}
            for epoch, link in self._links.items():
                if link.mirror.is_synced.is_set():
                    listener.add(link.mirror, is_new=False)
                else:
                    unheard[epoch] = False
            return listener
        finally:
            self._coming -= 1
            self._linger()

    async def close(self) -> None:
        """Follow nobody any more. Idempotent."""
        self._is_closed = True
        if self._lingering is not None:
            self._lingering.cancel()
        following = [link.following for link in self._links.values()]
        self._end_links()
        if following:
            await asyncio.wait(following)

    # --- Listeners ------------------------------------------------------------------------------------------

    async def _synced(self, wanted: Mapping[int, int]) -> None:
        """Return when what other nodes had is here, and what the listener has heard of them elsewhere."""

        def is_here(epoch: int, mirror: EventMirror) -> bool:
            return mirror.is_synced.is_set() and mirror.last_id.seq >= wanted.get(epoch, 0)

        try:
            async with asyncio.timeout(SYNC_LIMIT_S):
                while not all(is_here(epoch, link.mirror) for epoch, link in self._links.items()):
                    await self._bus.news()
        except TimeoutError:
            log.info("a listener is served without nodes that do not answer")

    def _left(self, listener: MergedSubscription) -> None:
        del self._listeners[listener]
        self._linger()

    def _linger(self) -> None:
        """Keep the streams for a while, unless somebody listens."""
        if not self._listeners and not self._coming and not self._is_closed:
            self._lingering = asyncio.get_running_loop().call_later(LINGER_S, self._end_links)

    # --- Nodes ----------------------------------------------------------------------------------------------

    def _follow_peers(self) -> None:
        """Have a stream to each node that is there, and none to one that is not."""
        if self._is_closed or not (self._listeners or self._coming or self._links):
            return
        peers = {peer.epoch: peer for peer in self._peers.peers.values()}
        for epoch in self._links.keys() - peers.keys():
            self._links.pop(epoch).following.cancel()
            for listener, unheard in self._listeners.items():
                unheard.pop(epoch, None)
                listener.drop(epoch)
            self._bus.wake()
        for epoch, peer in peers.items():
            if epoch not in self._links:
                mirror = EventMirror(epoch=epoch, ring=self._ring, clock=self._clock, bus=self._bus)
                following = asyncio.get_running_loop().create_task(
                    self._follow(peer, mirror), name=f"events of {epoch}"
                )
                self._links[epoch] = _Link(mirror, following)
                for unheard in self._listeners.values():
                    unheard[epoch] = True

    async def _follow(self, peer: Peer, mirror: EventMirror) -> None:
        pause_s = PAUSE_MIN_S
        while True:
            try:
                async with aclosing(self._open(peer, PATH, mirror.last_id)) as chunks:
                    async for said in read(chunks, mirror.epoch):
                        pause_s = PAUSE_MIN_S
                        self._take_in(mirror, said)
            except NodeUnreachable as error:
                log.debug("the events of a node are away", nodeId=peer.node_id, error=error.message)
            # Not all nodes at once.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    def _take_in(self, mirror: EventMirror, said: Event | EventId) -> None:
        """What a node said; once all that it had is here, those who came before listen to it, too."""
        was_synced = mirror.is_synced.is_set()
        if isinstance(said, EventId):
            mirror.hear_of(said)
        else:
            mirror.accept(said)
        if was_synced or not mirror.is_synced.is_set():
            return
        for listener, unheard in self._listeners.items():
            is_new = unheard.pop(mirror.epoch, None)
            if is_new is not None:
                listener.add(mirror, is_new=True) if is_new else listener.add_late(mirror)

    def _end_links(self) -> None:
        for link in self._links.values():
            link.following.cancel()
        self._links.clear()
