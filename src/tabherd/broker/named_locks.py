"""Named locks: mutual exclusion by name among callers of all nodes, and with programs that use `tabherd.locks`.

The verbs. Who waits is served first come, first served (`core.lock_queue`); `lock_grants` brings a lock to the first in
line, `lock_holds` keeps it and ends it. What is checked here, each time:

- The ticket is the secret of whoever has the lock: without it, or for another agent, nothing is renewed or given back.
  Only an operator frees a lock without it (`force`).
- After a wait everything is decided again: a lock that was over as soon as it was granted is not handed out.
- A lock that is held through another node is renewed and given back there: that is `Elsewhere`.
- While the server drains no lock is granted; those that are held stay held, and can be renewed and given back.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from .. import wire
from ..cluster.cluster import Cluster
from ..cluster.elsewhere import Elsewhere
from ..cluster.fenced_store import fenced
from ..config import Config
from ..core.lock_queue import LockLimits, LockQueue, Wish
from ..core.model import NamedLock, Node
from ..errors import Capacity, InvalidRequest, LockNotFound, LockReentered, LockTimedOut, NotOwner, StateConflict
from ..locks.base import AsyncBackend, Counts, LockRow, named_key
from ..metrics import Metrics
from ..store.base import Store
from .audit import Auditor
from .caller import Caller
from .events import EventBus
from .ids import Ids
from .lock_contention import Contention
from .lock_domain import LoneDomain
from .lock_grants import Asked, Grants
from .lock_holds import Holds, LiveLock, hash_of, holder_of, party_of
from .lock_rows import LockRows, lock_lost
from .lock_views import OUTSIDE, advisory_view, granted_view, listed_view, moment, skipped_view
from .operations import Operations
from .owners import Owners
from .patience import to_the_end
from .settings import Settings
from .views import rfc3339

log = structlog.get_logger("locks")

# When to come again once as many locks are held as may be.
RETRY_FULL_MS = 1_000


class NamedLocks:
    """The verbs of named locks."""

    def __init__(
        self,
        *,
        settings: Settings,
        node_id: str,
        store: Store,
        backend: AsyncBackend | None,
        owners: Owners,
        events: EventBus,
        auditor: Auditor,
        metrics: Metrics,
        operations: Operations,
        ids: Ids,
        clock: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        cluster: Cluster | None = None,
    ) -> None:
        self._settings = settings
        # The other nodes, which share the store; None: there are none.
        self._cluster = cluster
        # Waits for the end of this life, if others may end it.
        self._watching: asyncio.Task[None] | None = None
        self._owners = owners
        self._metrics = metrics
        self._operations = operations
        self._ids = ids
        self._clock = clock
        self._spawn = spawn
        # Without a backend no other program shares these locks.
        self._backend: AsyncBackend = LoneDomain(clock) if backend is None else backend
        self._queue = LockQueue(_limits(settings.current))
        self._rows = LockRows(node_id=node_id, store=store, is_shared=cluster is not None, clock=clock)
        self._holds = Holds(
            node_id=node_id,
            store=store,
            rows=self._rows,
            backend=self._backend,
            queue=self._queue,
            owners=owners,
            events=events,
            auditor=auditor,
            clock=clock,
            spawn=spawn,
        )
        self._grants = Grants(
            node_id=node_id,
            rows=self._rows,
            backend=self._backend,
            queue=self._queue,
            holds=self._holds,
            clock=clock,
        )
        self._contention = Contention()
        settings.subscribe(self._follow)
        operations.on_draining = self._turn_away
        metrics.locks_held.set_function(lambda: len(self._holds))

    # --- Life -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take up the locks of an earlier life, before anybody is served."""
        await self._holds.adopt()
        if self._cluster is not None:
            self._watching = asyncio.create_task(self._give_up_when_fenced(self._cluster), name="locks of this life")

    async def stop(self) -> None:
        """Grant nothing more; what is held stays on disk, for the next start."""
        if self._watching is not None:
            self._watching.cancel()
        self._turn_away()
        await self._grants.stop()
        await self._holds.stop()
        await self._backend.close()

    async def release_node(self, gone: Node) -> None:
        """Free what was held through another node, which is over. Every node that is left may do so, at once."""
        await self._holds.release_node(gone)

    async def _give_up_when_fenced(self, cluster: Cluster) -> None:
        await cluster.membership.is_fenced.wait()
        self._grants.turn_away(fenced)
        self._holds.forfeit()

    # --- Verbs ----------------------------------------------------------------------------------------------

    async def acquire(
        self, caller: Caller, name: str, request: wire.AcquireLock, *, controller: str = "", connection_id: str = ""
    ) -> wire.LockView:
        """Have the lock, in turn. `controller` is the name that the caller gave itself, if it did.

        With a connection it lives by that, and has no lease unless one was asked for.
        """
        caller.require("locks")
        named_key(name)
        if request.skip and request.wait_ms:
            raise InvalidRequest("Who skips does not wait: skip goes without waitMs.", field="skip")
        if request.ticket is not None:
            if (live := self._held_with(name, request.ticket)) is not None:
                # Asked for again, because the answer was lost.
                return await self._renewed(caller, live, request.ticket, request.lease_ms)
            await self._refer(name, request.ticket)
        self._operations.refuse_sessions()
        ticket = request.ticket or self._ids.mint("lck")
        asked = self._asked(caller, name, request, controller, connection_id, ticket)
        if not request.wait_ms and not self._is_free(name):
            if self._queue.has_or_wants(asked.wish.party, name) and not request.skip:
                raise LockReentered("This controller holds the lock, or waits for it, already.", name=name)
            return await self._missed(name, request, self._queue.waiters(name) + 1)
        began = self._clock()
        position = self._queue.enter(asked.wish)
        if request.wait_ms and (position > 1 or self._queue.is_held(name)):
            self._contention.waited(name)
        live = await self._grants.wait(asked)
        if live is None:
            return await self._missed(name, request, position)
        if live.is_over:
            raise lock_lost(name)
        self._metrics.lock_wait_seconds.observe((self._clock() - began) / 1000)
        if request.skip:
            self._contention.not_skipped(name)
        return granted_view(live, ticket)

    async def renew(self, caller: Caller, name: str, ticket: str, lease_ms: int | None = None) -> wire.LockView:
        """Start the lease anew; `LockLost` if the ticket is not that of whoever has the lock."""
        caller.require("locks")
        live = self._held_with(name, ticket)
        if live is None:
            await self._refer(name, ticket)
            raise lock_lost(name)
        return await self._renewed(caller, live, ticket, lease_ms)

    async def release(self, caller: Caller, name: str, ticket: str, reason: str = "released") -> None:
        """Give the lock back; `LockNotFound` if it is not held with that ticket."""
        caller.require("locks")
        live = self._held_with(name, ticket)
        if live is not None:
            _check_holder(caller, live)
            if await to_the_end(self._holds.release(live, reason), self._spawn):
                return
        await self._refer(name, ticket)
        raise LockNotFound("The lock is not held with this ticket.", name=name)

    async def force(self, caller: Caller, name: str, fence: int | None = None) -> None:
        """Free the lock for an operator, who has no ticket; from here on its holder's is worth nothing.

        With `fence` only if the lock is still at it: an operator decides on what was on the screen a moment ago.
        """
        caller.require("admin")
        live = self._holds.get(name)
        if live is None:
            if (row := await self._rows.of_another(name)) is not None:
                raise Elsewhere(row.node_id)
        elif fence is not None and fence != live.row.fence:
            raise StateConflict("The lock is somebody else's by now.", name=name, holder=holder_of(live.row))
        elif await to_the_end(self._holds.release(live, "forced", by=caller), self._spawn):
            return
        raise LockNotFound("Nobody holds the lock through a server.", name=name)

    async def list(self, caller: Caller) -> wire.LockPage:
        """Names that callers of any node hold, or callers of this one wait for; see `lock_views` for who sees what."""
        caller.require("locks")
        held = {name: (row, row.expires_at) for name, row in (await self._rows.of_all_others()).items()}
        held |= {live.name: (live.row, live.expires_at) for live in self._holds if not live.is_over}
        names = sorted({*held, *self._queue.names_waited_for()})
        return wire.LockPage(
            locks=[listed_view(caller, name, held.get(name), self._queue.waiters(name)) for name in names]
        )

    async def advisory(self, caller: Caller) -> wire.AdvisoryLocks:
        """Every lock of the backend that is held or waited for, also by programs of their own."""
        caller.require("locks")
        rows = await self._backend.list()
        named = {row.label for row in rows if row.pair is None}
        held = await self._rows.of_all_others()
        held |= {live.name: live.row for live in self._holds if not live.is_over}
        # A lock that is just being handed over in our own line may be nobody's in the backend.
        absent = sorted(set(self._queue.names_waited_for()) - named)
        coming = [LockRow(label=name, holder=None, acquired_at=None) for name in absent]
        views = [self._advisory_view(caller, row, held.get(row.label)) for row in (*rows, *coming)]
        # The one that is held longest first; last those that nobody holds, or nobody knows since when.
        views.sort(key=lambda view: (view.acquired_at is None, view.acquired_at, view.label))
        return wire.AdvisoryLocks(advisory_locks=views, count=len(views))

    def _advisory_view(self, caller: Caller, row: LockRow, ours: NamedLock | None) -> wire.AdvisoryLock:
        now = self._clock()
        if row.pair is not None:
            # Callers of servers have names only, whatever they look like.
            return advisory_view(caller, row, None, len(row.waiters), Counts(), now)
        # The first of the line competes in the backend on behalf of all of them.
        waiters = self._queue.waiters(row.label)
        outside = len(row.waiters) - (1 if waiters and self._holds.get(row.label) is None else 0)
        return advisory_view(caller, row, ours, max(0, outside) + waiters, self._contention[row.label], now)

    def drop_connection(self, connection_id: str) -> None:
        """A connection has ended: what it held is free. What it waited for was withdrawn with its requests."""
        for live in self._holds:
            if live.connection_id == connection_id:
                self._holds.end(live, "lock.released", "disconnected")

    # --- Parts ----------------------------------------------------------------------------------------------

    def _asked(
        self, caller: Caller, name: str, request: wire.AcquireLock, controller: str, connection_id: str, ticket: str
    ) -> Asked:
        settings, owner = self._settings.current.locks, request.owner
        if not self._queue.is_held(name) and len(self._holds) + self._grants.competing >= settings.held_max:
            raise Capacity(
                "As many locks are held as may be.",
                action="Give locks back that are not needed, or raise [locks] held_max.",
                retry_after_ms=RETRY_FULL_MS,
                reason="lock_cap",
                cap=settings.held_max,
            )
        return Asked(
            wish=Wish(id=self._ids.mint("wsh"), name=name, party=party_of(caller.agent_id, controller)),
            agent_id=caller.agent_id,
            controller=controller,
            ticket_hash=hash_of(ticket),
            wait_ms=request.wait_ms,
            lease_ms=request.lease_ms or (0 if connection_id else settings.lease_ms),
            owner_pid=0 if owner is None else owner.pid,
            owner_started=0 if owner is None else self._owners.identify(owner.pid, owner.start_time),
            connection_id=connection_id,
        )

    def _held_with(self, name: str, ticket: str) -> LiveLock | None:
        live = self._holds.get(name)
        if live is None or not hmac.compare_digest(live.row.ticket_hash, hash_of(ticket)):
            return None
        return live

    async def _renewed(self, caller: Caller, live: LiveLock, ticket: str, lease_ms: int | None) -> wire.LockView:
        _check_holder(caller, live)
        if asked_ms := lease_ms or live.row.lease_ms:
            await to_the_end(self._holds.renew(live, asked_ms), self._spawn)
        return granted_view(live, ticket)

    async def _refer(self, name: str, ticket: str) -> None:
        """Raise `Elsewhere` if it is held with that ticket through another node."""
        row = await self._rows.of_another(name)
        if row is not None and hmac.compare_digest(row.ticket_hash, hash_of(ticket)):
            raise Elsewhere(row.node_id)

    def _is_free(self, name: str) -> bool:
        """Nobody here has it or waits for it; whether another program has it, only the backend knows."""
        return not self._queue.is_held(name) and self._queue.first(name) is None

    async def _missed(self, name: str, request: wire.AcquireLock, position: int) -> wire.LockView:
        """What somebody hears who did not get it."""
        live = self._holds.get(name)
        row = await self._rows.of_another(name) if live is None else live.row
        expires_at = live.expires_at if live is not None else 0 if row is None else row.expires_at
        if request.skip:
            self._metrics.lock_skips_total.inc()
            self._contention.skipped(name)
            log.debug("lock skipped", lock=name)
            return skipped_view(name, row, expires_at)
        self._metrics.lock_timeouts_total.inc()
        self._contention.timed_out(name)
        log.warning("lock timed out", lock=name, waitMs=request.wait_ms)
        raise LockTimedOut(
            f"The lock was not free within {request.wait_ms} ms." if request.wait_ms else "The lock is held.",
            name=name,
            holder=OUTSIDE if row is None else holder_of(row),
            since=None if row is None else rfc3339(row.acquired_at),
            expiresAt=moment(expires_at),
            position=position,
        )

    def _turn_away(self) -> None:
        self._grants.turn_away(self._operations.refusal)

    def _follow(self, _: Config, new: Config) -> None:
        self._queue.limits = _limits(new)


def _limits(config: Config) -> LockLimits:
    return LockLimits(waiters_per_name=config.locks.waiters_per_name, waiters_max=config.locks.waiters_max)


def _check_holder(caller: Caller, live: LiveLock) -> None:
    """The ticket proves which lock is meant; that it is the caller's own, its credential does."""
    if not caller.may_see(live.row.agent_id):
        raise NotOwner("Another agent holds this lock.", name=live.name)
