"""Ends sessions whose owners are gone, by the rules of `core.lease`, and forgets what has been over for long.

Each verdict says when it could change at the earliest, and the reaper sleeps until then; a session that is bound, a
socket that closes or an owner that dies meanwhile wakes it. The verdict is taken again when the session's mutex is
held, and the write that follows is guarded by the row that it was taken from, so a heartbeat that races it wins or
loses cleanly, never both.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Callable, Mapping

import structlog

from ..core.lease import Evidence, Keep, Reap, expiring_at, verdict
from ..core.lifecycle import LeaseState
from ..core.model import Audit, Command, Idempotency, RowT, Session, changed
from ..errors import StoreUnavailable
from ..metrics import Metrics
from ..store.base import Delete, Store
from .events import EventBus
from .idempotency import KEPT_MS
from .leases import Leases
from .owners import Owners
from .pooling import Pooling
from .registry import LiveSession, Registry
from .views import rfc3339

log = structlog.get_logger("reaper")

# A session whose work ends does not wake the reaper, so its silence is noticed this much late at the most.
LOOK_AGAIN_MS = 30_000
RETRY_MS = 1_000
# Ended sessions and outcomes stay readable this long.
KEEP_ENDED_MS = 3_600_000
KEEP_AUDIT_MS = 24 * 3_600_000
FORGET_EVERY_S = 60.0
FORGET_BATCH = 500


class Reaper:
    """Watches the sessions of this node."""

    def __init__(
        self,
        *,
        store: Store,
        registry: Registry,
        leases: Leases,
        pooling: Pooling,
        owners: Owners,
        events: EventBus,
        metrics: Metrics,
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._registry = registry
        self._leases = leases
        self._pooling = pooling
        self._owners = owners
        self._events = events
        self._metrics = metrics
        self._clock = clock
        # When to look at which session, the earliest first; an entry counts only if it is the last one of its session.
        self._queue: list[tuple[int, int, LiveSession]] = []
        self._due: dict[str, int] = {}
        # Tells entries of the same moment apart.
        self._order = 0

    async def run(self) -> None:
        """Reap until cancelled."""
        while True:
            self._registry.changed.clear()
            check_at = await self.sweep()
            sleep_s = None if check_at is None else max(0, min(check_at - self._clock(), LOOK_AGAIN_MS)) / 1000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(sleep_s):
                    await self._registry.changed.wait()

    async def sweep(self) -> int | None:
        """End what must end now; answers when the next verdict could change.

        Only those sessions are looked at that something is new about, or whose time has come.
        """
        due = self._registry.take_changed()
        while self._queue and self._queue[0][0] <= self._clock():
            at, _, live = heapq.heappop(self._queue)
            if self._due.get(live.row.id) == at:
                due[live] = None
        # Side by side: one whose mutex is held for long must not delay the others.
        await asyncio.gather(*(self._look(live) for live in due))
        expire_at = self._pooling.expire()
        checks = [] if expire_at is None else [expire_at]
        return min([*checks, *(at for at, _, _ in self._queue[:1])], default=None)

    async def _look(self, live: LiveSession) -> None:
        """Decide about one session, and when to do so again."""
        if not self._registry.is_bound(live):
            self._due.pop(live.row.id, None)
            return
        check_at = self._clock() + LOOK_AGAIN_MS
        match self._verdict(live):
            case Keep(check_at=next_at):
                check_at = min([check_at, next_at, *self._warn(live)])
            case Reap(reason=reason):
                if await self._reap(live, reason):
                    self._due.pop(live.row.id, None)
                    return
                check_at = self._clock() + RETRY_MS
        self._due[live.row.id] = check_at
        self._order += 1
        heapq.heappush(self._queue, (check_at, self._order, live))

    def _verdict(self, live: LiveSession) -> Keep | Reap:
        seen = changed(live.row, heartbeat_at=max(live.row.heartbeat_at, live.seen_at))
        evidence = Evidence(
            open_connections=len(live.connections),
            last_connection_closed_at=live.last_connection_closed_at,
            owner=self._owners.state(live.row.id),
            owner_died_at=self._owners.died_at(live.row.id),
            is_owner_followed=live.is_owner_followed,
            has_work=live.has_work,
            worked_at=live.worked_at,
            in_handoff=live.is_in_handoff,
        )
        return verdict(seen, evidence, self._clock(), self._leases.times_of(live.row.pool))

    def _warn(self, live: LiveSession) -> list[int]:
        """Tell the owner once that the deadline is near; answers when that is due if it is not yet."""
        if live.is_expiry_told:
            return []
        due_at = expiring_at(live.row)
        if self._clock() < due_at:
            return [due_at]
        live.is_expiry_told = True
        self._events.publish(
            "session_expiring",
            sessionId=live.row.id,
            agentId=live.row.agent_id,
            pool=live.row.pool,
            expiresAt=rfc3339(live.row.deadline_at),
        )
        return []

    async def _reap(self, live: LiveSession, reason: str) -> bool:
        """End it; False when the store cannot take that now, or a sign of life came before its turn did."""

        def is_still_due() -> bool:
            return isinstance(self._verdict(live), Reap)

        try:
            if await self._leases.end(live, reason, is_still_due=is_still_due):
                self._metrics.lease_reaped_total.inc(reason)
                log.info("session reaped", sessionId=live.row.id, agentId=live.row.agent_id, reason=reason)
        except StoreUnavailable as error:
            log.warning("reaping waits for the store", sessionId=live.row.id, error=error.message)
            return False
        return not self._registry.is_bound(live)

    async def forget_forever(self) -> None:
        """Remove what ended long ago, until cancelled."""
        while True:
            try:
                await self.forget()
            except StoreUnavailable as error:
                log.warning("forgetting waits for the store", error=error.message)
            await asyncio.sleep(FORGET_EVERY_S)

    async def forget(self) -> None:
        """Remove ended sessions, outcomes, keys and the audit trail past their time."""
        now = self._clock()
        ended = {"state": (LeaseState.CLOSED.value, LeaseState.LOST.value)}
        await self._forget_all(Session, ended, lambda row: row.ended_at < now - KEEP_ENDED_MS)
        await self._forget_all(Command, None, lambda row: row.ended_at < now - KEEP_ENDED_MS)
        await self._forget_all(Idempotency, None, lambda row: row.created_at < now - KEPT_MS)
        await self._forget_all(Audit, None, lambda row: row.at < now - KEEP_AUDIT_MS)

    async def _forget_all(
        self, table: type[RowT], where: Mapping[str, tuple[str, ...]] | None, is_over: Callable[[RowT], bool]
    ) -> None:
        """Batch after batch from the oldest on, as ids are made of time, until one has something to keep."""
        while True:
            rows = await self._store.select(table, where, limit=FORGET_BATCH)
            over = [row for row in rows if is_over(row)]
            if over:
                await self._store.apply(*(Delete(table, row.id, row.version) for row in over))
            if len(over) < FORGET_BATCH:
                return
