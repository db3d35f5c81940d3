"""The events of all nodes as one stream: a cursor into each node's ring, and a place that is good on every node.

Invariants:
- The events of one node come in their order, and none of them is missing without a `reset`. Between nodes there is no
  order.
- A place says how far each node's events were read, by epoch, which no two lives of nodes share. A node that is not in
  it has begun since, and is read from its beginning. One that is in it and is not there any more may have said
  something that nobody will hear: that is a `reset`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from ..broker.events import Event, EventBus, EventId, Subscription

# Nodes in one place; as many as there are in any cluster, and what a header can hold.
NODES_MAX: Final = 100
PLACE_MAX_CHARS: Final = 41 * NODES_MAX

# Opens a cursor with the listener's filter.
Follow = Callable[[EventBus, EventId], Subscription]


class Place(msgspec.Struct, frozen=True):
    """How far the events of all nodes were read."""

    # The last number that was read, by epoch.
    seqs: Mapping[int, int]

    def __str__(self) -> str:
        return ",".join(f"{epoch}-{seq}" for epoch, seq in sorted(self.seqs.items()))

    @staticmethod
    def parse(text: str) -> Place:
        """The place that a `Last-Event-ID` names; nowhere, when it is none of ours."""
        if len(text) > PLACE_MAX_CHARS:
            return NOWHERE
        ids = [EventId.parse(part) for part in text.split(",")]
        known = [id for id in ids if id is not None]
        return Place({id.epoch: id.seq for id in known}) if len(known) == len(ids) <= NODES_MAX else NOWHERE


# Where somebody stands who names a place that is none of ours: with a life that never was.
NOWHERE: Final = Place({0: 0})


class MergedSubscription:
    """One listener to all nodes. Implements `sse.Followed`."""

    def __init__(
        self,
        bus: EventBus,
        follow: Follow,
        after: Place | None,
        on_close: Callable[[MergedSubscription], None],
        epochs: Collection[int],
    ) -> None:
        """`epochs`: the lives of all nodes that are there."""
        # Of this node.
        self._bus = bus
        self._follow = follow
        known = set() if after is None else after.seqs.keys() & set(epochs)
        # Where it goes on from; None: it is new, or as good as that.
        self._after = after if known else None
        self._on_close = on_close
        self._is_open = True
        # By epoch.
        self._sources: dict[int, Subscription] = {}
        # Why it has to be told `reset`; empty: it has not.
        self._loss = "epoch" if after is not None and len(known) < len(after.seqs) else ""
        # Which one is asked first, so that a busy node does not drown the others.
        self._turn = 0
        self.add(bus, is_new=False)

    # --- Nodes ----------------------------------------------------------------------------------------------

    def add(self, bus: EventBus, *, is_new: bool) -> None:
        """Listen to that node from here on; a new one has begun since this listener came."""
        place = {} if self._after is None else self._after.seqs
        seq = bus.last_id.seq if self._after is None and not is_new else place.get(bus.epoch, 0)
        self._sources[bus.epoch] = self._follow(bus, EventId(bus.epoch, seq))

    def add_late(self, bus: EventBus) -> None:
        """Listen to a node that was there and could not be heard: what it said meanwhile is lost to those who are new,
        and known to those who come back.
        """
        if self._after is None or bus.epoch not in self._after.seqs:
            self._loss = "unheard"
            self._sources[bus.epoch] = self._follow(bus, bus.last_id)
        else:
            self.add(bus, is_new=False)

    def drop(self, epoch: int) -> None:
        """That node is over: what it said last may have been missed."""
        source = self._sources.pop(epoch, None)
        if source is not None:
            source.close()
            self._loss = "node_gone"

    # --- Events ---------------------------------------------------------------------------------------------

    @property
    def position(self) -> Place:
        return Place({epoch: source.position.seq for epoch, source in self._sources.items()})

    @property
    def is_ended(self) -> bool:
        """With this node's own events: a server that ends tells nobody of the others."""
        return not self._is_open or self._sources[self._bus.epoch].is_ended

    def take(self) -> Event | None:
        """The next event that matches, of whichever node."""
        if self._loss:
            reason, self._loss = self._loss, ""
            return Event(self._bus.epoch, self._bus.last_id.seq, "reset", self._bus.now(), {"reason": reason})
        sources = list(self._sources.values())
        self._turn += 1
        for number in range(len(sources)):
            event = sources[(self._turn + number) % len(sources)].take()
            if event is not None:
                return event
        return None

    async def wait(self) -> None:
        if self._loss or self.is_ended or any(source.is_behind for source in self._sources.values()):
            # There is something to read: let the others run first.
            await asyncio.sleep(0)
        else:
            await self._bus.news()

    def close(self) -> None:
        """Stop listening. Idempotent."""
        if self._is_open:
            self._is_open = False
            for source in self._sources.values():
                source.close()
            self._on_close(self)
