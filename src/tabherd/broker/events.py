"""The event bus: what happened on this node, numbered, kept in a bounded ring, and told to whoever listens.

Invariants:
- Every event has the next sequence number of this epoch; a subscriber gets all that match its filter, in order.
- When that cannot be kept (it resumes from before the ring, from another epoch, or reads slower than the ring turns),
  it gets one explicit `reset` and then everything after it. There is never a silent gap.
- Memory is the ring and nothing else: a subscriber is a cursor into it, so the slowest one costs what the fastest does,
  and publishing starts no task.

Publishing is for the event loop's thread only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from ..errors import QueueFull

# Every event type there is. The reference page is generated from this table; publishing another type is a bug.
EVENT_TYPES: Final[Mapping[str, str]] = {
    "session.opened": "A session was granted and its first tab is ready.",
    "session.pooled": "A session was given back and its tab waits for the next one of its key.",
    "session.closed": "A session ended; reason says why: released, idle, stale, owner_dead, deadline, tab_lost, ...",
    "session.recovering": "The browser under a session died; it keeps its owner and gets another one.",
    "session.phase": "The owner of a session said with a heartbeat that it is doing something else; phase says what.",
    "session.taken_over": "An admin gave a session to another agent; its fence grew.",
    "session.download": "A download of a session ended; name, sizeBytes, state: completed, canceled; reason says why.",
    "session_expiring": "80 % of a session's life is over; expiresAt says when it ends.",
    "session_recovered": "A session whose browser died, or whose server was restarted, can be used again.",
    "session_lost": "A session could not be kept; reason: keeps_crashing, recovery_failed.",
    "tab.opened": "A tab was opened in a session; provenance: created, popup, borrowed.",
    "tab.closed": "A tab is gone, its session goes on; reason: closed, closed_by_page.",
    "tab.crashed": "The page behind a tab died; it is opened again, unless the session does not allow that.",
    "tab.dead": "The page behind a tab died for good.",
    "tab.paused": "A person took the tab over; agents wait.",
    "tab.resumed": "The person gave the tab back.",
    "tab.quarantined": "A command timed out on the tab and is not yet proven stopped; nothing else runs there.",
    "tab.rebuilt": "The page behind the tab was replaced; its generation grew and its id stayed.",
    "lock_acquired": "A controller has a tab's lock; lockExpiresAt says until when, unless it is renewed.",
    "lock_renewed": "The lease of a tab lock started anew.",
    "lock_released": "A tab lock is over; reason: released, disconnected, taken_over, tab_closed, forced (by: who).",
    "lock_expired": "The lease of a tab lock ended before it was renewed.",
    "lock_conflict": "A controller met the tab lock of another, or was refused for the command of another.",
    "task.queued": "A task waits: it was submitted, or is to be run again.",
    "task.assigned": "It is a task's turn.",
    "task.running": "A task was sent to its page.",
    "task.done": "A task is over, and its result is there.",
    "task.failed": "A task failed; code says why.",
    "task.cancelled": "A task was cancelled.",
    "task.rejected": "A task was not admitted; code says why.",
    "lock.acquired": "A caller has a named lock; holder and fence say who, expiresAt until when unless it is renewed.",
    "lock.released": "A named lock is free; reason: released, disconnected, owner_dead, caller_left, server_restarted, "
    "forced (by says who).",
    "lock.expired": "The lease of a named lock ended before it was renewed; it is free.",
    "lock.lost": "A named lock is no longer its holder's, who must stop; reason: backend_lost, taken_meanwhile, "
    "node_died, node_fenced.",
    "browser.ready": "A browser was started, or found again after a restart of the server, and takes sessions.",
    "browser.crashed": "A browser died, hung or could not be started; reason says how. Its sessions are recovered.",
    "browser.draining": "A browser takes nothing new because an operator said so; its replacement starts.",
    "browser.recycled": "A browser takes nothing new and is replaced; reason: sessions, age, memory, private.",
    "browser.stopped": "A browser ended as planned; reason: recycled, drained, idle, restarted.",
    "webhook.delivered": "The receiver at a task's callbackUrl has heard of its end; attempts says at which try.",
    "webhook.failed": "The receiver at a task's callbackUrl was not reached and is not tried again; reason says why.",
    "node.ready": "This node takes new sessions: it has started, or its drain was taken back.",
    "node.draining": "This node admits no new session; with stopping it takes no new command either and then ends.",
    "config_reloaded": "Settings changed; changed and needsRestart name them, cause: file, signal, patch.",
    "config_refused": "The configuration file changed but cannot be used, and nothing else changed; reason says why.",
    "reset": "Events were missed: read the state anew. What follows comes without a gap.",
    "ended": "The last of a stream whose credential was revoked or has expired; `error` says so.",
}
# A limit on every loop: more listeners than this on one node are refused.
SUBSCRIBERS_MAX = 1_000
# How many ring entries one subscriber reads before it lets the others run.
SCAN_MAX = 2_000


class EventId(msgspec.Struct, frozen=True, order=True):
    """A place in the order of events. The epoch makes a restart of the node visible."""

    epoch: int
    seq: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.seq}"

    @staticmethod
    def parse(text: str) -> EventId | None:
        """The place that a `Last-Event-ID` names; None when it is none of ours."""
        epoch, _, seq = text.partition("-")
        is_ours = len(text) <= 40 and epoch.isascii() and epoch.isdigit() and seq.isascii() and seq.isdigit()
        return EventId(int(epoch), int(seq)) if is_ours else None


class Event(msgspec.Struct, frozen=True):
    """Something that happened."""

    epoch: int
    seq: int
    type: str
    # Milliseconds since 1970.
    at_ms: int
    # In wire spelling: agentId, sessionId, tabId, browserId, reason, ...
    fields: dict[str, Any]

    @property
    def id(self) -> EventId:
        """Its place. Made when somebody asks: most events are never read."""
        return EventId(self.epoch, self.seq)

    def to_wire(self) -> dict[str, Any]:
        """The event as JSON shows it."""
        at = datetime.fromtimestamp(self.at_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
        return {"id": str(self.id), "type": self.type, "at": at.replace("+00:00", "Z"), **self.fields}


class EventBus:
    """The events of one life of one node."""

    def __init__(
        self, *, epoch: int, ring: int, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        self.epoch = epoch
        self.is_closed = False
        self._clock = clock
        # The last event's number; 0 before the first.
        self._seq = 0
        # The first event's number that was ever here.
        self._first = 1
        # Event number n is at n % len; None where the ring has not turned yet.
        self._ring: list[Event | None] = [None] * ring
        self._waiting: list[asyncio.Future[None]] = []
        self._subscribers = 0

    @property
    def last_id(self) -> EventId:
        """The place of the newest event."""
        return EventId(self.epoch, self._seq)

    @property
    def oldest_seq(self) -> int:
        """The number of the oldest event that the ring still has, or will have."""
        return max(self._first, self._seq - len(self._ring) + 1)

    def now(self) -> int:
        """Milliseconds since 1970, as events have it."""
        return self._clock()

    def publish(self, type: str, /, **fields: Any) -> Event:
        """Number the event, keep it and wake those who listen. Field names are in wire spelling."""
        return self.tell(type, fields)

    def tell(self, type: str, fields: dict[str, Any]) -> Event:
        """The same, with fields that nobody changes any more."""
        assert type in EVENT_TYPES, f"undeclared event type {type!r}"
        assert type not in ("reset", "ended"), f"{type} is one subscriber's, never everybody's"
        self._seq += 1
        event = Event(self.epoch, self._seq, type, self._clock(), fields)
        self._ring[self._seq % len(self._ring)] = event
        if self._waiting:
            self.wake()
        return event

    def subscribe(
        self,
        types: Collection[str] | None = None,
        agent_id: str | None = None,
        tab_id: str | None = None,
        task_id: str | None = None,
        after: EventId | None = None,
    ) -> Subscription:
        """Events from now on, or after that place. A filter that is None lets everything pass."""
        if self._subscribers >= SUBSCRIBERS_MAX:
            raise QueueFull("Too many event streams are open.", retry_after_ms=5_000, cap=SUBSCRIBERS_MAX)
        self._subscribers += 1
        exact = {"agentId": agent_id, "tabId": tab_id, "taskId": task_id}
        fields = {name: value for name, value in exact.items() if value is not None}
        return Subscription(self, types, fields, self.last_id if after is None else after)

    def close(self) -> None:
        """End every subscription, now and later; they read what is left and stop."""
        self.is_closed = True
        self.wake()

    def wake(self) -> None:
        """Have those who wait look again."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def news(self) -> None:
        """Return when there is something new, or may be."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            # A listener that left must not stay in the list until the next event, which may be long in coming.
            if future in self._waiting:
                self._waiting.remove(future)


class Subscription:
    """One listener: a filter and a cursor. Close it, or use it as a context manager."""

    def __init__(self, bus: EventBus, types: Collection[str] | None, fields: Mapping[str, str], after: EventId) -> None:
        self._bus = bus
        self._types = None if types is None else frozenset(types)
        # What the fields of an event must say.
        self._fields = dict(fields)
        # The last place that was read, whether or not it matched.
        self.position = after
        self._is_open = True

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Event:
        while (event := self.take()) is None:
            if self.is_ended:
                raise StopAsyncIteration
            await self.wait()
        return event

    @property
    def is_ended(self) -> bool:
        """Whether nothing more will come: it was closed, or the bus was and all of it has been read."""
        return not self._is_open or (self._bus.is_closed and self.position == self._bus.last_id)

    @property
    def is_behind(self) -> bool:
        """Whether there is something to read, though it may not match."""
        return self.position != self._bus.last_id

    def take(self) -> Event | None:
        """The next event that matches, if one is there already."""
        bus = self._bus
        newest, oldest = bus._seq, bus.oldest_seq
        if self.position.epoch != bus.epoch or self.position.seq > newest:
            return self._reset("epoch")
        if self.position.seq + 1 < oldest:
            return self._reset("ring")
        until = min(newest, self.position.seq + SCAN_MAX)
        for seq in range(self.position.seq + 1, until + 1):
            event = bus._ring[seq % len(bus._ring)]
            assert event is not None, "the ring holds what its bounds say"
            if self._matches(event):
                self.position = event.id
                return event
        self.position = EventId(bus.epoch, until)
        return None

    async def wait(self) -> None:
        """Return when there may be something to take."""
        if not self.is_behind and not self.is_ended:
            await self._bus.news()
        else:
            # A long scan is under way: let the others run first.
            await asyncio.sleep(0)

    def close(self) -> None:
        """Stop listening. Idempotent."""
        if self._is_open:
            self._is_open = False
            self._bus._subscribers -= 1

    def _matches(self, event: Event) -> bool:
        said = event.fields
        return (self._types is None or event.type in self._types) and all(
            said.get(name) == value for name, value in self._fields.items()
        )

    def _reset(self, reason: str) -> Event:
        """Tell the loss and go on from now: whoever re-reads the state after this misses nothing."""
        self.position = self._bus.last_id
        return Event(self.position.epoch, self.position.seq, "reset", self._bus._clock(), {"reason": reason})
