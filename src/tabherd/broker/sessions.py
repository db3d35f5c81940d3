"""The session verbs: opening, reading, renewing, handing on and ending, for whoever may."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from .. import wire
from ..browsers.pool import Pool
from ..browsers.port import BrowserGone, CdpFailure
from ..core import lease
from ..core.caps import cap_counters, capacity_refusal
from ..core.lifecycle import LeaseState
from ..core.model import Session, Tab, changed
from ..errors import BrowserCrashed, Forbidden, InvalidRequest, LeaseLost, StateConflict
from ..metrics import Metrics
from ..store.base import Add, Applied, Store, Update
from .access import Access
from .admission import Admission
from .audit import Auditor
from .caller import Caller
from .checkpoints import Checkpoints
from .entering import Entering
from .events import EventBus
from .leases import DECIDE_AGAIN_MAX, Leases, turn_away, wait_detached
from .opening import Opening, origins_of, put_state
from .patience import to_the_end
from .pooling import Pooling
from .recovery import Recovery
from .registry import Connection, LiveSession, Registry
from .settings import Settings
from .tab_locks import TabLocks
from .views import rfc3339, session_view

STATES = tuple(str(state) for state in LeaseState)
# Those in which a session has tabs that somebody may use.
_OPEN = (LeaseState.ACTIVE, LeaseState.RECOVERING)
# Of sessions on other nodes that are listed: more are left out.
TABS_MAX = 10_000
# How long callers may ask to wait for a session, at the most.
WAIT_MAX_MS = 120_000
Spawn = Callable[[Coroutine[Any, Any, None]], None]


class Sessions:
    """The session verbs."""

    def __init__(
        self,
        *,
        settings: Settings,
        store: Store,
        pools: Mapping[str, Pool],
        admissions: Mapping[str, Admission],
        leases: Leases,
        opening: Opening,
        entering: Entering,
        pooling: Pooling,
        recovery: Recovery,
        checkpoints: Checkpoints,
        registry: Registry,
        access: Access,
        tab_locks: TabLocks,
        auditor: Auditor,
        events: EventBus,
        metrics: Metrics,
        clock: Callable[[], int],
        spawn: Spawn,
    ) -> None:
        self._settings = settings
        self._store = store
        self._pools = pools
        self._admissions = admissions
        self._leases = leases
        self._opening = opening
        self._entering = entering
        self._pooling = pooling
        self._recovery = recovery
        self._checkpoints = checkpoints
        self._registry = registry
        self._access = access
        self._tab_locks = tab_locks
        self._auditor = auditor
        self._events = events
        self._metrics = metrics
        self._clock = clock
        # Runs work that must end even if the caller leaves.
        self._spawn = spawn

    # --- Verbs ----------------------------------------------------------------------------------------------

    async def open(self, caller: Caller, request: wire.OpenSession, *, grant: str = "") -> wire.SessionView:
        """Lease a session with one blank tab. Whoever leaves before the answer leaves nothing behind.

        Raises `Elsewhere` when another node has a place for it; there `grant` says which.
        """
        return self._view((await self.lease(caller, request, grant=grant)).row)

    async def lease(
        self,
        caller: Caller,
        request: wire.OpenSession,
        on_place: Callable[[], None] = lambda: None,
        *,
        grant: str = "",
        is_local: bool = False,
    ) -> LiveSession:
        """The same, for who is about to use it. `on_place` hears when it need not wait for others any more.

        A local caller cannot be passed on to another node, and is never told to go elsewhere.
        """
        caller.require("browse")
        agent_id = self._agent_for(caller, request.agent_id)
        pool = self._pool(request.pool)
        self._opening.check(pool, request)
        began = self._clock()
        wait_ms = self._settings.current.pools[pool.name].wait_ms if request.wait_ms is None else request.wait_ms
        # A request is passed on once: what comes too late for its grant waits here.
        is_local = is_local or bool(grant)
        claim = await self._entering.kept(pool, grant, agent_id, request.key)
        while True:
            if claim is None:
                self._entering.refuse(pool, is_local=is_local)
            try:
                if claim is not None:
                    granted, claim = claim, None
                    live = await self._entering.take_up(pool, granted, request, on_place)
                else:
                    left_ms = began + wait_ms - self._clock()
                    live = await self._entering.enter(pool, agent_id, request, left_ms, on_place, is_local=is_local)
                break
            except BrowserCrashed:
                # Its browser died under the opening: who still has time is served by another one.
                if self._clock() >= began + wait_ms:
                    raise
        self._metrics.acquire_seconds.observe((self._clock() - began) / 1000)
        self._events.publish("session.opened", sessionId=live.row.id, agentId=agent_id, pool=pool.name)
        self._note(caller, "open", live.row.id)
        return live

    async def get(self, caller: Caller, session_id: str) -> wire.SessionView:
        """One session, also after it ended. That its owner reads it counts as activity."""
        row = await self._access.seen(caller, session_id)
        live = self._registry.session(session_id)
        if live is not None:
            live.read_by(caller, self._clock())
        return self._view(row)

    async def list(
        self,
        caller: Caller,
        *,
        agent_id: str | None = None,
        state: str | None = None,
        limit: int = 100,
        cursor: str = "",
        newest_first: bool = False,
    ) -> wire.SessionPage:
        """The caller's own sessions, in the order of their beginning; an admin's are those of everybody.

        `state` may be several, separated by commas.
        """
        where: dict[str, str | tuple[str, ...]] = {}
        if not caller.is_admin:
            if agent_id not in (None, caller.agent_id):
                return wire.SessionPage(sessions=[])
            agent_id = caller.agent_id
        if agent_id is not None:
            where["agent_id"] = agent_id
        if state is not None:
            states = tuple(state.split(","))
            if wrong := next((one for one in states if one not in STATES), None):
                raise InvalidRequest(f"state: '{wrong}' is none of {', '.join(STATES)}.", field="state")
            where["state"] = states
        rows = await self._store.select(Session, where, after=cursor, limit=limit + 1, newest_first=newest_first)
        tabs = await self._tabs_elsewhere(rows[:limit])
        views = [self._view(row, tabs.get(row.id, ())) for row in rows[:limit]]
        return wire.SessionPage(sessions=views, next_cursor=rows[limit - 1].id if len(rows) > limit else None)

    async def heartbeat(self, caller: Caller, session_id: str, beat: wire.Heartbeat) -> wire.HeartbeatAnswer:
        """Say that the owner lives, and hear which commands it need not wait for. Never moves the deadline."""
        live = await self._access.owned(caller, session_id)
        lease.check_fence(live.row, beat.fence)
        await to_the_end(self._beat(live, beat), self._spawn)
        cancelled = list(live.cancelled)
        live.cancelled.clear()
        return wire.HeartbeatAnswer(expires_at=rfc3339(live.row.deadline_at), fence=live.row.fence, cancel=cancelled)

    async def release(
        self, caller: Caller, session_id: str, fence: int | None = None, disposition: str | None = None
    ) -> None:
        """Give the session back. With a stale fence nothing happens and the caller learns that it is not theirs."""
        live = await self._access.owned(caller, session_id)
        lease.check_fence(live.row, fence)
        is_shared = self._settings.current.pools[live.row.pool].isolation == "shared"
        wanted = disposition or ("pool" if is_shared else "close")
        # Whatever the fence is when its turn comes, it must be the one that the caller had or named.
        held = live.row.fence if fence is None else fence
        ending = self._pooling.put(live, held) if wanted == "pool" else self._leases.end(live, "released", fence=held)
        if not await to_the_end(ending, self._spawn):
            raise LeaseLost("The session ended meanwhile.", sessionId=session_id)
        self._note(caller, "release", session_id, wanted)

    async def take_over(self, caller: Caller, session_id: str, agent_id: str) -> wire.SessionView:
        """Give the session to somebody else: a larger fence, and nothing of the old holder reaches it any more."""
        caller.require("admin")
        live = await self._access.owned(caller, session_id)
        former = await to_the_end(self._hand_over(live, agent_id), self._spawn)
        self._note(caller, "takeover", session_id, f"{former} -> {agent_id}")
        return self._view(live.row)

    async def _hand_over(self, live: LiveSession, agent_id: str) -> str:
        """Answers whose it was."""
        session_id, admission = live.row.id, self._admissions[live.row.pool]
        async with live.mutex:
            self._still_bound(live)
            former = live.row.agent_id
            if agent_id != former:
                admission.refuse_agent(agent_id)
            # From here on nobody's commands are let in, and those of the old holder are turned away before the new
            # one can begin.
            live.is_changing_hands = True
            try:
                live.row = await self._change_owner(live, agent_id)
            finally:
                live.is_changing_hands = False
            admission.change_agent(live.claim, agent_id)
            self._leases.change_evidence(live)
            turn_away(live, lambda: LeaseLost("The session was given to somebody else.", sessionId=session_id))
            await wait_detached(live)
            self._tab_locks.drop_all(live, "taken_over")
            for tab in live.tabs.values():
                if tab.is_tainted:
                    # What its old holder left in the page must not act under the new one's name.
                    self._recovery.quarantine(tab)
                # Tasks of the old holder wait for it outside of its gate.
                tab.gate.tell()
            live.last_connection_closed_at = None
        self._events.publish(
            "session.taken_over",
            sessionId=session_id,
            agentId=agent_id,
            formerAgentId=former,
            fence=live.row.fence,
        )
        return former

    # --- State ----------------------------------------------------------------------------------------------

    async def state(self, caller: Caller, session_id: str) -> wire.StorageState:
        """Cookies and localStorage as they are now, in Playwright's shape."""
        live = await self._access.owned(caller, session_id)
        fence = live.row.fence
        live.read_by(caller, self._clock())
        await self._checkpoints.take(live, is_wanted=True)
        try:
            cookies = await live.require_browser().cookies(live.row.context_id)
        except (BrowserGone, CdpFailure) as error:
            raise BrowserCrashed(f"The browser failed while its state was read: {error}") from error
        # What was read after it changed hands is its next owner's.
        lease.check_fence(live.row, fence)
        return wire.StorageState(
            cookies=cookies,
            origins=[
                wire.OriginStorage(
                    origin=origin,
                    local_storage=[wire.StorageItem(name=name, value=value) for name, value in items.items()],
                )
                for origin, items in self._checkpoints.origins(live).items()
            ],
        )

    async def put_state(self, caller: Caller, session_id: str, state: wire.StorageState) -> None:
        """Add these to what the session has, and overwrite what has the same name."""
        live = await self._access.owned(caller, session_id)
        fence = live.row.fence
        live.heard(self._clock())
        async with live.mutex:
            self._still_bound(live)
            lease.check_fence(live.row, fence)
            try:
                await put_state(live.require_browser(), live.row.context_id, state)
            except BrowserGone as error:
                raise BrowserCrashed(f"The browser died while the state was written: {error}") from error
        live.seen_at = self._clock()
        await self._checkpoints.remember(live, origins_of(state))

    # --- Connections ----------------------------------------------------------------------------------------

    async def join(self, caller: Caller, tab_id: str, connection_id: str, connection: Connection) -> LiveSession | None:
        """Connect the session of a tab that the caller uses; None when it is somebody else's.

        A guest in a shared session, or an admin who looks in, must not take it along when leaving.
        """
        live = self._access.tab(caller, tab_id).session
        if live.row.agent_id != caller.agent_id:
            return None
        await self.connect(live, connection_id, connection)
        return live

    async def find(self, caller: Caller, session_id: str, fence: int | None) -> LiveSession:
        """A session that the caller may drive: its own, or one that is shared. Under that fence, if it names one."""
        row = await self._access.seen(caller, session_id)
        live = self._registry.session(session_id)
        if live is None:
            raise LeaseLost("The session has ended.", sessionId=session_id, reason=row.end_reason)
        self.check(live, fence)
        return live

    def check(self, live: LiveSession, fence: int | None) -> None:
        """Raise `LeaseLost` unless the session is held under that fence, and is to stay so."""
        if not self._registry.is_bound(live) or live.is_ending or live.is_changing_hands:
            raise LeaseLost("The session has ended or changes hands.", sessionId=live.row.id)
        lease.check_fence(live.row, fence, self._clock())

    async def connect(self, live: LiveSession, connection_id: str, connection: Connection) -> None:
        """An open socket is evidence that somebody is there; from now on the session lives and dies by its sockets."""
        live.connections[connection_id] = connection
        live.heard(self._clock())
        if not live.row.is_connection_bound:
            await to_the_end(self._bind_to_connections(live, connection_id, connection), self._spawn)

    def disconnect(self, live: LiveSession, connection_id: str) -> None:
        """The socket is closed. Idempotent."""
        if live.connections.pop(connection_id, None) is not None and not live.connections:
            live.last_connection_closed_at = self._clock()
            self._registry.tell(live)

    # --- Parts ----------------------------------------------------------------------------------------------

    async def _beat(self, live: LiveSession, beat: wire.Heartbeat) -> None:
        async with live.mutex:
            self._still_bound(live)
            lease.check_fence(live.row, beat.fence)
            live.heard(self._clock())
            former = live.row.phase
            phase = former if beat.phase is None else beat.phase
            live.row = await self._update(
                live, changed(live.row, heartbeat_at=self._clock(), is_beating=True, phase=phase)
            )
            # The store may have taken long, and whoever has waited for it was there until now. Said before the next
            # one has the session, who may be about to end it for its silence.
            live.seen_at = self._clock()
            if phase != former:
                self._events.publish("session.phase", sessionId=live.row.id, agentId=live.row.agent_id, phase=phase)

    async def _bind_to_connections(self, live: LiveSession, connection_id: str, connection: Connection) -> None:
        async with live.mutex:
            self._still_bound(live)
            if live.connections.get(connection_id) is not connection:
                raise LeaseLost("The session was given to somebody else.", sessionId=live.row.id)
            live.row = await self._update(live, changed(live.row, is_connection_bound=True))

    async def _change_owner(self, live: LiveSession, agent_id: str) -> Session:
        """The one write that makes it somebody else's. Evidence of the old owner's life does not count for the new."""
        row, caps = live.row, self._admissions[live.row.pool].caps
        taken = changed(
            row,
            agent_id=agent_id,
            taken_from=row.agent_id if row.agent_id != agent_id else row.taken_from,
            is_beating=False,
            is_connection_bound=False,
            owner_pid=0,
            owner_started=0,
            phase="",
            heartbeat_at=self._clock(),
        )
        before, after = (
            next(c for c in cap_counters(row.pool, row.key, agent, caps) if c.reason == "agent_cap")
            for agent in (row.agent_id, agent_id)
        )
        moves = (Add(after.counter, 1, after.cap), Add(before.counter, -1)) if before != after else ()
        outcome = await self._store.apply(*moves, Update(taken, numbered="fence"))
        if not isinstance(outcome, Applied):
            if outcome.reason == "cap":
                raise capacity_refusal("agent_cap", outcome.value or 0, after.cap or 0, None, None)
            raise StateConflict("The session changed under the takeover.", sessionId=row.id)
        stored = outcome.rows[-1]
        assert isinstance(stored, Session)
        return stored

    async def _update(self, live: LiveSession, row: Session) -> Session:
        """Write the row of a session whose mutex is held; somebody else's write in between is kept."""
        for _ in range(DECIDE_AGAIN_MAX):
            outcome = await self._store.apply(Update(row))
            if isinstance(outcome, Applied):
                return changed(row, version=row.version + 1)
            assert isinstance(outcome.row, Session), f"session row {row.id} vanished"
            lease.check_fence(outcome.row, live.row.fence)
            row = changed(row, version=outcome.row.version)
        raise StateConflict("The session kept changing under the write.", sessionId=row.id)

    def _note(self, caller: Caller, verb: str, session_id: str, detail: str = "") -> None:
        self._auditor.note(
            agent_id=caller.agent_id,
            controller_id=caller.controller_id,
            verb=verb,
            session_id=session_id,
            detail=detail,
        )

    def _still_bound(self, live: LiveSession) -> None:
        if not self._registry.is_bound(live):
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

    async def _tabs_elsewhere(self, rows: Sequence[Session]) -> dict[str, Sequence[Tab]]:
        """The tabs of open sessions that other nodes have."""
        ids = tuple(row.id for row in rows if row.state in _OPEN and self._registry.session(row.id) is None)
        found = await self._store.select(Tab, {"session_id": ids}, limit=TABS_MAX) if ids else ()
        return {id: [tab for tab in found if tab.session_id == id] for id in ids}

    def _view(self, row: Session, tabs: Iterable[Tab] = ()) -> wire.SessionView:
        live = self._registry.session(row.id)
        times = self._leases.times_of(row.pool)
        if live is None:
            return session_view(row, tabs, times)
        return session_view(live.row, [tab.row for tab in live.tabs.values()], times, live.seen_at)
