"""Ends sessions whose owners are gone, by the rules of `core.lease`, and forgets what has been over for long.

Each verdict says when it could change at the earliest, and the reaper sleeps until then; a session that is bound
meanwhile wakes it. The decision and the mark on the lease happen in one step of the event loop, so a heartbeat that
races it wins or loses cleanly.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import structlog

from ..core.lease import Evidence, Keep, LeaseTimes, Reap, verdict
from ..core.lifecycle import LeaseState
from ..core.model import Command, Session, changed
from ..errors import StoreUnavailable
from ..metrics import Metrics
from ..store.base import Delete, Store
from .leases import Leases
from .registry import LiveSession, Registry

log = structlog.get_logger("reaper")

# A session whose work ends does not wake the reaper, so its silence is noticed this much late at the most.
LOOK_AGAIN_MS = 30_000
RETRY_MS = 1_000
# Ended sessions and outcomes stay readable this long.
KEEP_ENDED_MS = 3_600_000
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
        metrics: Metrics,
        times_of: Callable[[str], LeaseTimes],
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._registry = registry
        self._leases = leases
        self._metrics = metrics
        # The lease times of a pool.
        self._times_of = times_of
        self._clock = clock

    async def run(self) -> None:
        """Reap until cancelled."""
        while True:
            self._registry.bound.clear()
            check_at = await self.sweep()
            sleep_s = None if check_at is None else max(0, min(check_at - self._clock(), LOOK_AGAIN_MS)) / 1000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(sleep_s):
                    await self._registry.bound.wait()

    async def sweep(self) -> int | None:
        """End what must end now; answers when the next verdict could change."""
        checks: list[int] = []
        for live in self._registry:
            if live.is_ending:
                continue
            match self._verdict(live):
                case Keep(check_at=check_at):
                    checks.append(check_at)
                case Reap(reason=reason):
                    if not await self._reap(live, reason):
                        checks.append(self._clock() + RETRY_MS)
        return min(checks, default=None)

    def _verdict(self, live: LiveSession) -> Keep | Reap:
        seen = changed(live.row, heartbeat_at=max(live.row.heartbeat_at, live.seen_at))
        return verdict(seen, Evidence(has_work=live.has_work), self._clock(), self._times_of(live.row.pool))

    async def _reap(self, live: LiveSession, reason: str) -> bool:
        """End it; False when the store cannot take that now."""
        try:
            if await self._leases.end(live, reason):
                self._metrics.lease_reaped_total.labels(reason).inc()
                log.info("session reaped", sessionId=live.row.id, agentId=live.row.agent_id, reason=reason)
        except StoreUnavailable as error:
            log.warning("reaping waits for the store", sessionId=live.row.id, error=error.message)
            return False
        return True

    async def forget_forever(self) -> None:
        """Remove what ended long ago, until cancelled."""
        while True:
            try:
                await self.forget()
            except StoreUnavailable as error:
                log.warning("forgetting waits for the store", error=error.message)
            await asyncio.sleep(FORGET_EVERY_S)

    async def forget(self) -> None:
        """Remove ended sessions and outcomes past their time, a bounded number of each."""
        horizon = self._clock() - KEEP_ENDED_MS
        ended = (LeaseState.CLOSED.value, LeaseState.LOST.value)
        sessions = await self._store.select(Session, {"state": ended}, limit=FORGET_BATCH)
        commands = await self._store.select(Command, limit=FORGET_BATCH)
        stale = [
            *(Delete(Session, row.id, row.version) for row in sessions if row.ended_at < horizon),
            *(Delete(Command, row.id, row.version) for row in commands if row.ended_at < horizon),
        ]
        if stale:
            await self._store.apply(*stale)
