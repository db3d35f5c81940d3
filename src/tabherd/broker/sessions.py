"""Opening, reading, renewing and ending sessions.

Order of effects, which every path here keeps:
1. *Reserve before create*: one transaction checks every cap and writes the `reserved` row with its fence. A refused
   caller has caused nothing.
2. Only then is a context with its tab created.
3. *Record before bind*: the row says `active` and names the context; only then can commands find the tab.
Ending goes the other way: unbind, dispose, record. A crash between any two steps leaves a row that says what exists,
never something that no row knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any

import structlog

from .. import wire
from ..browsers.port import BrowserGone, BrowserPort, CdpFailure, TabPort
from ..browsers.supervisor import Pool
from ..config import Config
from ..core import lease
from ..core.gate import Gate, GateLimits
from ..core.lifecycle import LEASE, LeaseEvent, LeaseState, TabState, advance, is_terminal
from ..core.model import Session, Tab, changed
from ..errors import (
    BrowserCrashed,
    Forbidden,
    InvalidRequest,
    LeaseLost,
    NavigationFailed,
    SessionNotFound,
    StateConflict,
    StoreUnavailable,
)
from ..metrics import Metrics
from ..store.base import Add, Applied, Conflict, Delete, Insert, Op, Store, Update
from .caller import Caller
from .events import EventBus
from .ids import Ids
from .patience import patiently
from .registry import LiveSession, LiveTab, Registry
from .views import rfc3339, session_view, tab_brief

log = structlog.get_logger("sessions")

# A guarded write that lost its race is decided again this often before the caller hears of it.
DECIDE_AGAIN_MAX = 5
STATES = tuple(str(state) for state in LeaseState)
Spawn = Callable[[Coroutine[Any, Any, None]], None]
Perform = Callable[[TabPort, wire.AnyAction], Awaitable[Any]]


class Sessions:
    """The session verbs."""

    def __init__(
        self,
        *,
        config: Config,
        node_id: str,
        store: Store,
        pools: Mapping[str, Pool],
        caps: Mapping[str, lease.Caps],
        registry: Registry,
        events: EventBus,
        metrics: Metrics,
        ids: Ids,
        clock: Callable[[], int],
        refuse_when_draining: Callable[[], None],
        spawn: Spawn,
        perform: Perform,
    ) -> None:
        self._config = config
        self._node_id = node_id
        self._store = store
        self._pools = pools
        self._caps = caps
        self._registry = registry
        self._events = events
        self._metrics = metrics
        self._ids = ids
        self._clock = clock
        self._refuse_when_draining = refuse_when_draining
        # Runs work that must end even if the caller leaves.
        self._spawn = spawn
        self._perform = perform
        self._hold_times = {name: lease.HoldTimes() for name in pools}

    # --- Verbs ----------------------------------------------------------------------------------------------

    async def open(self, caller: Caller, request: wire.OpenSession) -> wire.SessionView:
        """Lease a session with one blank tab. Whoever leaves before the answer leaves nothing behind."""
        self._refuse_when_draining()
        caller.require("browse")
        agent_id = self._agent_for(caller, request.agent_id)
        pool = self._pool(request.pool)
        began = self._clock()
        making = asyncio.ensure_future(self._make(pool, agent_id, request))
        try:
            live = await asyncio.shield(making)
        except asyncio.CancelledError:
            self._spawn(self._end_unwanted(making))
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
                live.row = self._standing(outcome, live.row)
        raise StateConflict("The session kept changing under the heartbeat.", sessionId=session_id)

    async def release(self, caller: Caller, session_id: str, fence: int | None = None) -> None:
        """Give the session back. With a stale fence nothing happens and the caller learns that it is not theirs."""
        live = await self._owned(caller, session_id)
        if fence is not None:
            lease.check_fence(live.row, fence)
        ending = asyncio.ensure_future(self.end(live, "released"))
        # Once begun it goes on, also for a caller that does not wait for the answer.
        self._spawn(_outcome_of(ending))
        if not await asyncio.shield(ending):
            raise LeaseLost("The session ended meanwhile.", sessionId=session_id)

    async def tabs(self, caller: Caller, session_id: str) -> wire.TabPage:
        live = await self._owned(caller, session_id)
        live.seen_at = self._clock()
        return wire.TabPage(tabs=[tab_brief(tab.row) for tab in live.tabs.values()])

    # --- Steps, also used by the reaper and at start --------------------------------------------------------

    async def end(self, live: LiveSession, reason: str) -> bool:
        """End a bound session; False when somebody else did. Its context is gone when this returns."""
        async with live.mutex:
            if self._registry.session(live.row.id) is not live:
                return False
            live.is_ending = True
            try:
                closing = await self._mark_closing(live.row)
            except StoreUnavailable:
                # Nothing has happened yet: it stays the owner's until the store takes the first step.
                live.is_ending = False
                raise
            self._registry.unbind(live)
            for tab in live.tabs.values():
                detach(tab, reason)
            if closing is None:
                return False
            try:
                await live.browser.dispose_context(live.row.context_id)
            except (BrowserGone, CdpFailure) as error:
                # A dead browser took the context with it; one that refuses to dispose it does not know it any more.
                log.info("context was gone already", sessionId=live.row.id, error=str(error))
            await self.record_end(closing, [tab.row for tab in live.tabs.values()], reason)
            return True

    async def record_end(self, row: Session, tabs: Iterable[Tab], reason: str) -> None:
        """Write that a `closing` session is closed, and give back what it counted against the caps."""
        closed = changed(
            row, state=advance(LEASE, row.state, LeaseEvent.CLOSED), ended_at=self._clock(), end_reason=reason
        )
        ops = (Update(closed), *self._uncount(row), *(Delete(Tab, tab.id, tab.version) for tab in tabs))
        outcome = await patiently(lambda: self._store.apply(*ops))
        assert isinstance(outcome, Applied), f"{row.id} is closing: nobody else writes it ({outcome})"
        if row.pool in self._hold_times:
            self._hold_times[row.pool].record(closed.ended_at - row.created_at)
        self._events.publish("session.closed", sessionId=row.id, agentId=row.agent_id, pool=row.pool, reason=reason)

    async def settle_leftover(self, row: Session, reason: str) -> None:
        """End a session whose context is known to be gone: what an earlier life of this node left behind."""
        if is_terminal(LEASE, row.state):
            return
        if row.state is LeaseState.RESERVED:
            abandoned = changed(row, state=advance(LEASE, row.state, LeaseEvent.ABANDON), ended_at=self._clock())
            await self._store.apply(Update(changed(abandoned, end_reason=reason)), *self._uncount(row))
            return
        closing = row if row.state is LeaseState.CLOSING else await self._mark_closing(row)
        if closing is not None:
            await self.record_end(closing, await self._store.select(Tab, {"session_id": row.id}), reason)

    # --- Parts ----------------------------------------------------------------------------------------------

    async def _make(self, pool: Pool, agent_id: str, request: wire.OpenSession) -> LiveSession:
        """Reserve, create, record, bind. Never cancelled half-way: a reservation in flight could not be taken back."""
        return await self._create(pool, await self._reserve(pool, agent_id, request), request.url)

    async def _reserve(self, pool: Pool, agent_id: str, request: wire.OpenSession) -> Session:
        now = self._clock()
        row = Session(
            id=self._ids.mint("ses"),
            state=LeaseState.RESERVED,
            agent_id=agent_id,
            pool=pool.name,
            key=request.key,
            tier=request.tier,
            node_id=self._node_id,
            keep_alive=request.keep_alive,
            created_at=now,
            heartbeat_at=now,
            deadline_at=lease.deadline_at(self._config.tiers, request.tier, request.deadline_ms, now),
        )
        counters = lease.cap_counters(row.pool, row.key, row.agent_id, self._caps[pool.name])
        outcome = await self._store.apply(
            *(Add(counter.counter, 1, counter.cap) for counter in counters), Insert(row, numbered="fence")
        )
        match outcome:
            case Applied(rows=rows):
                reserved = rows[-1]
                assert isinstance(reserved, Session)
                return reserved
            case Conflict(index=index, value=value):
                full = counters[index]
                cap = full.cap or 0
                raise lease.capacity_refusal(
                    full.reason, value or 0, cap, 1, self._hold_times[pool.name].retry_after_ms(1, cap)
                )

    async def _create(self, pool: Pool, reserved: Session, url: str | None) -> LiveSession:
        """From a reserved row to a bound session; on failure the row is closed and nothing is left in the browser."""
        context: tuple[BrowserPort, str] | None = None
        try:
            browser = pool.pick()
            context_id = await browser.new_context()
            context = (browser, context_id)
            port = await browser.new_tab(context_id)
            page = {} if url is None else await self._open_first_page(port, url)
            session, tab = await self._record_bound(reserved, browser, context_id, port, page)
            if pool.browser(browser.row.id) is not browser:
                # It died while the row was written: whoever ends its sessions could not find this one yet.
                raise BrowserGone("the browser died", was_sent=False)
        except (BrowserGone, CdpFailure) as error:
            await self._undo(reserved, context)
            raise BrowserCrashed(f"The browser failed while the session was opened: {error}.") from error
        except BaseException:
            await self._undo(reserved, context)
            raise
        return self._bind(session, tab, browser, port)

    async def _open_first_page(self, port: TabPort, url: str) -> dict[str, str]:
        timeout_ms = self._config.gate.timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                page = await self._perform(port, wire.Navigate(url=url))
        except TimeoutError:
            raise NavigationFailed(f"The first page did not load within {timeout_ms} ms.", url=url) from None
        return {"url": page["url"], "title": page["title"] or ""}

    async def _record_bound(
        self, reserved: Session, browser: BrowserPort, context_id: str, port: TabPort, page: Mapping[str, str]
    ) -> tuple[Session, Tab]:
        """Write down what was created, before anybody can use it."""
        now = self._clock()
        tab = Tab(
            id=self._ids.mint("tab"),
            session_id=reserved.id,
            node_id=self._node_id,
            browser_id=browser.row.id,
            state=TabState.READY,
            target_id=port.target_id,
            url=page.get("url", "about:blank"),
            title=page.get("title", ""),
            created_at=now,
        )
        bound = changed(
            reserved,
            state=advance(LEASE, reserved.state, LeaseEvent.BIND),
            browser_id=browser.row.id,
            context_id=context_id,
            heartbeat_at=now,
        )
        outcome = await self._store.apply(Update(bound), Insert(tab))
        if not isinstance(outcome, Applied):
            raise LeaseLost("The session was ended while it was being opened.", sessionId=reserved.id)
        session_row, tab_row = outcome.rows
        assert isinstance(session_row, Session)
        assert isinstance(tab_row, Tab)
        return session_row, tab_row

    def _bind(self, session: Session, tab: Tab, browser: BrowserPort, port: TabPort) -> LiveSession:
        live = LiveSession(session, browser)
        limits = GateLimits(
            tickets_per_tab=self._config.gate.tickets_per_tab,
            tickets_per_controller=self._config.gate.tickets_per_controller,
        )
        live.tabs[tab.id] = LiveTab(tab, port, Gate(limits), live)
        self._registry.bind(live)
        return live

    async def _undo(self, reserved: Session, context: tuple[BrowserPort, str] | None) -> None:
        if context is not None:
            browser, context_id = context
            try:
                await browser.dispose_context(context_id)
            except (BrowserGone, CdpFailure) as error:
                log.info("context was gone already", sessionId=reserved.id, error=str(error))
        await patiently(lambda: self._settle_by_id(reserved.id))

    async def _settle_by_id(self, session_id: str) -> None:
        row = await self._store.get(Session, session_id)
        assert row is not None
        await self.settle_leftover(row, "not_created")

    async def _end_unwanted(self, making: asyncio.Future[LiveSession]) -> None:
        await asyncio.wait([making])
        if making.exception() is None:
            await self.end(making.result(), "caller_left")

    async def _mark_closing(self, row: Session) -> Session | None:
        """The row as `closing`, or None when it had ended already."""
        for _ in range(DECIDE_AGAIN_MAX):
            if is_terminal(LEASE, row.state) or row.state is LeaseState.CLOSING:
                return None
            closing = changed(row, state=advance(LEASE, row.state, LeaseEvent.CLOSE))
            outcome = await self._store.apply(Update(closing))
            if isinstance(outcome, Applied):
                return changed(closing, version=closing.version + 1)
            row = self._standing(outcome, row)
        raise StateConflict("The session kept changing while it was being ended.", sessionId=row.id)

    def _uncount(self, row: Session) -> tuple[Op, ...]:
        counters = lease.cap_counters(row.pool, row.key, row.agent_id, lease.Caps())
        return tuple(Add(counter.counter, -1) for counter in counters)

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
    def _standing(outcome: Conflict, row: Session) -> Session:
        assert isinstance(outcome.row, Session), f"session row {row.id} vanished"
        return outcome.row

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


def detach(tab: LiveTab, reason: str) -> None:
    """Turn everybody away who waits for or runs on a tab whose session ends."""
    for waiter in tab.waiting.values():
        if not waiter.done():
            waiter.set_exception(LeaseLost(f"The session ended: {reason}.", reason=reason))
    if tab.running is not None:
        tab.running.cancel()
