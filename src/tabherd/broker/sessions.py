"""The session verbs: opening, reading, renewing and ending, for whoever may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from .. import wire
from ..browsers.pool import Pool
from ..config import Config
from ..core import lease
from ..core.lifecycle import LeaseState
from ..core.model import Session, changed
from ..errors import BrowserCrashed, Forbidden, InvalidRequest, LeaseLost, SessionNotFound, StateConflict
from ..metrics import Metrics
from ..store.base import Applied, Store, Update
from .admission import Admission
from .caller import Caller
from .events import EventBus
from .ids import Ids
from .leases import DECIDE_AGAIN_MAX, Leases
from .patience import patiently
from .registry import LiveSession, Registry
from .views import rfc3339, session_view, tab_brief

STATES = tuple(str(state) for state in LeaseState)
# How long callers may ask to wait for a session, at the most.
WAIT_MAX_MS = 120_000
Spawn = Callable[[Coroutine[Any, Any, None]], None]


class Sessions:
    """The session verbs."""

    def __init__(
        self,
        *,
        config: Config,
        store: Store,
        pools: Mapping[str, Pool],
        admissions: Mapping[str, Admission],
        leases: Leases,
        registry: Registry,
        events: EventBus,
        metrics: Metrics,
        ids: Ids,
        clock: Callable[[], int],
        refuse_when_draining: Callable[[], None],
        spawn: Spawn,
    ) -> None:
        self._config = config
        self._store = store
        self._pools = pools
        self._admissions = admissions
        self._leases = leases
        self._registry = registry
        self._events = events
        self._metrics = metrics
        self._ids = ids
        self._clock = clock
        self._refuse_when_draining = refuse_when_draining
        # Runs work that must end even if the caller leaves.
        self._spawn = spawn

    # --- Verbs ----------------------------------------------------------------------------------------------

    async def open(self, caller: Caller, request: wire.OpenSession) -> wire.SessionView:
        """Lease a session with one blank tab. Whoever leaves before the answer leaves nothing behind."""
        caller.require("browse")
        agent_id = self._agent_for(caller, request.agent_id)
        pool = self._pool(request.pool)
        began = self._clock()
        wait_ms = self._config.pools[pool.name].wait_ms if request.wait_ms is None else request.wait_ms
        while True:
            self._refuse_when_draining()
            try:
                live = await self._open_once(pool, agent_id, request, began + wait_ms - self._clock())
                break
            except BrowserCrashed:
                # Its browser died under the opening: who still has time is served by another one.
                if self._clock() >= began + wait_ms:
                    raise
        self._metrics.acquire_seconds.observe((self._clock() - began) / 1000)
        self._events.publish("session.opened", sessionId=live.row.id, agentId=agent_id, pool=pool.name)
        return self._view(live)

    async def get(self, caller: Caller, session_id: str) -> wire.SessionView:
        """One session, also after it ended. Reading it counts as activity."""
        live = self._registry.session(session_id)
        if live is not None:
            self._see(caller, live.row)
            live.seen_at = self._clock()
            return self._view(live)
        row = await self._store.get(Session, session_id)
        return session_view(self._see(caller, row), [])

    async def list(
        self,
        caller: Caller,
        *,
        agent_id: str | None = None,
        state: str | None = None,
        limit: int = 100,
        cursor: str = "",
    ) -> wire.SessionPage:
        """Sessions that the caller may see, oldest first."""
        where: dict[str, str] = {}
        if not caller.is_admin:
            if agent_id not in (None, caller.agent_id):
                return wire.SessionPage(sessions=[])
            agent_id = caller.agent_id
        if agent_id is not None:
            where["agent_id"] = agent_id
        if state is not None:
            if state not in STATES:
                raise InvalidRequest(f"state: '{state}' is none of {', '.join(STATES)}.", field="state")
            where["state"] = state
        rows = await self._store.select(Session, where, after=cursor, limit=limit + 1)
        views = [self._view_of(row) for row in rows[:limit]]
        return wire.SessionPage(sessions=views, next_cursor=rows[limit - 1].id if len(rows) > limit else None)

    async def heartbeat(self, caller: Caller, session_id: str, beat: wire.Heartbeat) -> wire.HeartbeatAnswer:
        """Say that the owner lives. Never moves the deadline."""
        live = await self._owned(caller, session_id)
        lease.check_fence(live.row, beat.fence)
        async with live.mutex:
            for _ in range(DECIDE_AGAIN_MAX):
                self._still_bound(live)
                lease.check_fence(live.row, beat.fence)
                beaten = changed(
                    live.row,
                    heartbeat_at=self._clock(),
                    is_beating=True,
                    phase=live.row.phase if beat.phase is None else beat.phase,
                )
                outcome = await self._store.apply(Update(beaten))
                if isinstance(outcome, Applied):
                    live.row = changed(beaten, version=beaten.version + 1)
                    live.seen_at = live.row.heartbeat_at
                    return wire.HeartbeatAnswer(
                        expires_at=rfc3339(live.row.deadline_at), fence=live.row.fence, cancel=[]
                    )
                assert isinstance(outcome.row, Session), f"session row {session_id} vanished"
                live.row = outcome.row
        raise StateConflict("The session kept changing under the heartbeat.", sessionId=session_id)

    async def release(self, caller: Caller, session_id: str, fence: int | None = None) -> None:
        """Give the session back. With a stale fence nothing happens and the caller learns that it is not theirs."""
        live = await self._owned(caller, session_id)
        if fence is not None:
            lease.check_fence(live.row, fence)
        ending = asyncio.ensure_future(self._leases.end(live, "released"))
        # Once begun it goes on, also for a caller that does not wait for the answer.
        self._spawn(_outcome_of(ending))
        if not await asyncio.shield(ending):
            raise LeaseLost("The session ended meanwhile.", sessionId=session_id)

    async def tabs(self, caller: Caller, session_id: str) -> wire.TabPage:
        live = await self._owned(caller, session_id)
        live.seen_at = self._clock()
        return wire.TabPage(tabs=[tab_brief(tab.row) for tab in live.tabs.values()])

    # --- Parts ----------------------------------------------------------------------------------------------

    async def _open_once(self, pool: Pool, agent_id: str, request: wire.OpenSession, wait_ms: int) -> LiveSession:
        """One place, one browser. Waiting can be given up; what comes after it ends by itself."""
        claim = await self._admissions[pool.name].claim(self._ids.mint("ses"), agent_id, request.key, max(0, wait_ms))
        making = asyncio.ensure_future(self._leases.make(pool, claim, request))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            self._spawn(self._end_unwanted(making))
            raise

    async def _end_unwanted(self, making: asyncio.Future[LiveSession]) -> None:
        await asyncio.wait([making])
        if making.exception() is None:
            live = making.result()
            await patiently(lambda: self._leases.end(live, "caller_left"))

    async def _owned(self, caller: Caller, session_id: str) -> LiveSession:
        """The bound session, if it is the caller's."""
        live = self._registry.session(session_id)
        if live is not None:
            self._see(caller, live.row)
            return live
        row = self._see(caller, await self._store.get(Session, session_id))
        raise LeaseLost(
            f"The session has ended: {row.end_reason or row.state}.", sessionId=session_id, reason=row.end_reason
        )

    def _see(self, caller: Caller, row: Session | None) -> Session:
        if row is None or not caller.may_see(row.agent_id):
            raise SessionNotFound("No such session.")
        return row

    def _still_bound(self, live: LiveSession) -> None:
        if self._registry.session(live.row.id) is not live:
            raise LeaseLost("The session has ended.", sessionId=live.row.id)

    @staticmethod
    def _agent_for(caller: Caller, named: str | None) -> str:
        if named is None or named == caller.agent_id:
            return caller.agent_id
        if not caller.is_admin:
            raise Forbidden(f"This credential acts for '{caller.agent_id}' only.", field="agentId")
        return named

    def _pool(self, name: str) -> Pool:
        if name not in self._pools:
            raise InvalidRequest(f"pool: there is no pool '{name}'.", field="pool", pools=sorted(self._pools))
        return self._pools[name]

    def _view(self, live: LiveSession) -> wire.SessionView:
        return session_view(live.row, [t.row for t in live.tabs.values()])

    def _view_of(self, row: Session) -> wire.SessionView:
        live = self._registry.session(row.id)
        return self._view(live) if live is not None else session_view(row, [])


async def _outcome_of(future: asyncio.Future[bool]) -> None:
    await asyncio.wait([future])
