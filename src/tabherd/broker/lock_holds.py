"""Named locks that are held: how long, by whose life, how each ends, and what of them a restart finds.

What it keeps:

- A lock that is held is a row and a hold of the backend, for as long as it is held. The row is written first and
  removed first: after a crash there is never a lock that somebody was told of and no row knows.
- It ends in exactly one way: given back, expired by its timer, with its owner process, with its connection, freed by
  an operator, or lost with the backend. For its holder it is over at that moment; somebody else gets it only once its
  row is gone.
- A renewal moves the end in memory before it is on disk, so a store that is away takes no lock from anybody; the
  holder hears of the new end only when it is on disk, so no restart frees a lock earlier than its holder was told.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Final

import structlog

from ..core.lease import OwnerProcess
from ..core.lock_queue import LockQueue
from ..core.model import NamedLock, Node, changed
from ..errors import LockLost, LockTimedOut, StoreUnavailable
from ..locks.base import AsyncBackend, AsyncHold, marker_of, named_key, this_process
from ..store.base import Store
from .audit import Auditor
from .caller import Caller
from .events import EventBus
from .lock_rows import LockRows, lock_lost
from .owners import Owners
from .patience import patiently
from .views import rfc3339

log = structlog.get_logger("locks")

# Rows of an earlier life that are looked at side by side.
ADOPT_BATCH: Final = 25
# For so long a lock of an earlier life may be in the hands of another node that looks whether it could have it.
ADOPT_WAIT_S: Final = 2.0


class LiveLock:
    """One lock that is held through this server."""

    def __init__(self, row: NamedLock, hold: AsyncHold, connection_id: str = "") -> None:
        # As it is on disk.
        self.row = row
        self.hold = hold
        # The connection that it lives by; empty: none.
        self.connection_id = connection_id
        # When its lease ends, in milliseconds since 1970; never before what is on disk. 0: it has none.
        self.expires_at = row.expires_at
        # Its holder has it no longer, though its row may be there for a moment.
        self.is_over = False
        # Makes what is written of it serial.
        self.mutex = asyncio.Lock()
        # Its expiry.
        self.timer: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        return self.row.id


class Holds:
    """The locks that callers of this server hold."""

    def __init__(
        self,
        *,
        node_id: str,
        store: Store,
        rows: LockRows,
        backend: AsyncBackend,
        queue: LockQueue,
        owners: Owners,
        events: EventBus,
        auditor: Auditor,
        clock: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._rows = rows
        self._backend = backend
        self._queue = queue
        self._owners = owners
        self._events = events
        self._auditor = auditor
        self._clock = clock
        self._spawn = spawn
        self._held: dict[str, LiveLock] = {}
        # Called with each name that becomes free.
        self.on_free: Callable[[str], None] = lambda _: None

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[LiveLock]:
        return iter(list(self._held.values()))

    def get(self, name: str) -> LiveLock | None:
        """The lock, unless it is over for its holder."""
        live = self._held.get(name)
        return None if live is None or live.is_over else live

    # --- Beginning ------------------------------------------------------------------------------------------

    def bind(self, live: LiveLock) -> None:
        """Its holder has it from now on. Its row is on disk, and it has left the line."""
        self._held[live.name] = live
        self._tell("lock.acquired", live)
        self._watch(live)

    async def adopt(self) -> None:
        """Take up what an earlier life left, before anybody is served."""
        after = ""
        while True:
            rows = await self._store.select(NamedLock, {"node_id": self._node_id}, after=after, limit=ADOPT_BATCH)
            if not rows:
                return
            await asyncio.gather(*(self._adopt(row) for row in rows))
            after = rows[-1].id

    # --- Life -----------------------------------------------------------------------------------------------

    async def renew(self, live: LiveLock, lease_ms: int) -> None:
        """Start the lease anew. `LockLost` if it is over; `StoreUnavailable` leaves it held, but promises nothing."""
        async with live.mutex:
            if live.is_over:
                raise lock_lost(live.name)
            expires_at = self._clock() + lease_ms
            live.expires_at = max(live.expires_at, expires_at)
            self._arm(live)
            try:
                live.row = await self._rows.save(changed(live.row, lease_ms=lease_ms, expires_at=expires_at))
            except LockLost:
                self.end(live, "lock.lost", "taken_meanwhile")
                raise
            if not live.is_over:
                live.expires_at = expires_at
                self._arm(live)

    async def release(self, live: LiveLock, reason: str, by: Caller | None = None) -> bool:
        """Free it at its holder's wish, or at that of `by`; False when it was over.

        `StoreUnavailable`: nothing has happened.
        """
        async with live.mutex:
            if live.is_over:
                return False
            await self._rows.remove(live.row)
            if not live.is_over:
                self._over(live, "lock.released", reason, by)
            await self._let_go(live)
            return True

    def end(self, live: LiveLock, event: str, reason: str) -> None:
        """It is over for its holder at once, and free as soon as the store has taken that. Idempotent."""
        if not live.is_over:
            self._over(live, event, reason)
            self._spawn(self._clear(live))

    async def give_back(self, hold: AsyncHold) -> None:
        """Let the backend have that lock, whether or not it has lost it meanwhile."""
        try:
            await hold.release()
        except (LockLost, StoreUnavailable) as error:
            # Then it is free already: the backend keeps no lock of a connection that is gone.
            log.info("the backend had lost the lock already", lock=hold.key.label, error=error.message)

    def forfeit(self) -> None:
        """Others have declared this node dead: what it has is theirs to give, and every holder must stop."""
        self._rows.is_forfeited = True
        for live in self:
            self.end(live, "lock.lost", "node_fenced")

    async def release_node(self, gone: Node) -> None:
        """Free what was held through a node that is over: first the rows, then what the backend still keeps for it."""
        async for row in self._rows.release_node(gone):
            self._publish("lock.lost", row, row.expires_at, "node_died")
        if ended := await self._backend.expel(marker_of(gone.id, gone.epoch)):
            log.info("connections of a node that is over were ended", nodeId=gone.id, connections=ended)

    async def stop(self) -> None:
        """Let the backend have its locks back; the rows stay, for the next life to take them up again."""
        for live in self:
            self._unwatch(live)
            await self.give_back(live.hold)

    # --- Parts ----------------------------------------------------------------------------------------------

    async def _adopt(self, row: NamedLock) -> None:
        """Go on with a lock of an earlier life, if it is certain that nobody else has had it since."""
        now = self._clock()
        if row.is_connection_bound:
            return await self._bury(row, "lock.released", "server_restarted")
        if row.expires_at <= now:
            return await self._bury(row, "lock.expired", "expired")
        hold = await self._taken_again(row)
        if hold is None:
            return await self._bury(row, "lock.lost", "taken_meanwhile")
        generation = hold.generation or 0
        if row.generation and generation != row.generation + 1:
            await self.give_back(hold)
            return await self._bury(row, "lock.lost", "taken_meanwhile")
        live = LiveLock(await self._rows.save(changed(row, generation=generation)), hold)
        self._queue.keep(row.id, party_of(row.agent_id, row.controller))
        self._held[row.id] = live
        self._watch(live)
        log.info("lock kept", lock=row.id, agentId=row.agent_id, fence=row.fence)
        return None

    async def _taken_again(self, row: NamedLock) -> AsyncHold | None:
        """The backend's lock of an earlier life; None if it cannot be had."""
        key, holder = named_key(row.id), this_process(f"{holder_of(row)} via tabherd")
        try:
            if self._rows.is_shared:
                return await self._backend.acquire(key, ADOPT_WAIT_S, holder)
            return await self._backend.try_acquire(key, holder)
        except LockTimedOut:
            return None
        except StoreUnavailable as error:
            log.warning("a lock of an earlier life cannot be taken again", lock=row.id, error=error.message)
            return None

    async def _bury(self, row: NamedLock, event: str, reason: str) -> None:
        await self._rows.remove(row)
        self._publish(event, row, row.expires_at, reason)

    def _watch(self, live: LiveLock) -> None:
        self._arm(live)
        live.hold.on_lost(partial(self.end, live, "lock.lost", "backend_lost"))
        if live.row.owner_pid:
            died = partial(self.end, live, "lock.released", "owner_dead")
            key = _owner_key(live.name)
            self._owners.watch(key, live.row.owner_pid, live.row.owner_started, died)
            if self._owners.state(key) is OwnerProcess.DEAD:
                died()

    def _unwatch(self, live: LiveLock) -> None:
        self._owners.forget(_owner_key(live.name))
        if live.timer is not None:
            live.timer.cancel()
            live.timer = None

    def _arm(self, live: LiveLock) -> None:
        if live.timer is not None:
            live.timer.cancel()
            live.timer = None
        if live.expires_at:
            delay_s = max(0, live.expires_at - self._clock()) / 1000
            live.timer = asyncio.get_running_loop().call_later(delay_s, self._expired, live)

    def _expired(self, live: LiveLock) -> None:
        if live.expires_at > self._clock():
            # The timer came a moment early, as clocks may.
            self._arm(live)
        else:
            self.end(live, "lock.expired", "expired")

    def _over(self, live: LiveLock, event: str, reason: str, by: Caller | None = None) -> None:
        live.is_over = True
        self._unwatch(live)
        self._tell(event, live, reason, by)

    async def _clear(self, live: LiveLock) -> None:
        async with live.mutex:
            await patiently(lambda: self._rows.remove(live.row))
            await self._let_go(live)

    async def _let_go(self, live: LiveLock) -> None:
        """Its row is gone: the next one may have it."""
        if self._held.get(live.name) is not live:
            return
        await self.give_back(live.hold)
        del self._held[live.name]
        self._queue.free(live.name)
        self.on_free(live.name)

    def _tell(self, event: str, live: LiveLock, reason: str = "", by: Caller | None = None) -> None:
        """`by` is who did it, if that was not the holder."""
        row = live.row
        log.debug(event, lock=row.id, agentId=row.agent_id, fence=row.fence, reason=reason)
        self._publish(event, row, live.expires_at, reason, by)
        words = f"{row.id}: {reason}" if reason else row.id
        self._auditor.note(
            agent_id=row.agent_id if by is None else by.agent_id,
            controller_id=row.controller if by is None else by.controller_id,
            verb=event,
            detail=words if by is None else f"{words}, held by {holder_of(row)}",
        )

    def _publish(self, event: str, row: NamedLock, expires_at: int, reason: str, by: Caller | None = None) -> None:
        fields: dict[str, Any] = {"expiresAt": rfc3339(expires_at)} if expires_at else {}
        if reason:
            fields["reason"] = reason
        if by is not None:
            fields["by"] = by.agent_id
        self._events.publish(event, name=row.id, agentId=row.agent_id, holder=holder_of(row), fence=row.fence, **fields)


def hash_of(ticket: str) -> str:
    """How a ticket is kept: whoever reads the store must not be able to use it."""
    return hashlib.sha256(ticket.encode("utf-8", "surrogatepass")).hexdigest()


def party_of(agent_id: str, controller: str) -> str:
    """Who would be waiting for himself; empty for a caller that gave no name of its own."""
    return f"{agent_id}/{controller}" if controller else ""


def holder_of(row: NamedLock) -> str:
    """The holder as people see it."""
    return party_of(row.agent_id, row.controller) or row.agent_id


def _owner_key(name: str) -> str:
    return f"lock:{name}"
