"""How a lease comes to be and how it ends, step by step.

Order of effects, which every path here keeps:
1. *Reserve before create*: one transaction checks every cap and writes the `reserved` row with its fence. A refused
   caller has caused nothing.
2. Only then is a seat taken in a browser: a context with its tab.
3. *Record before bind*: the row says `active` and names the context; only then can commands find the tab.
Ending goes the other way: unbind, dispose, record, give the place back. A crash between any two steps leaves a row
that says what exists, never something that no row knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import structlog

from .. import wire
from ..browsers.pool import Pool
from ..browsers.port import BrowserGone, BrowserPort, CdpFailure, Seat, TabPort
from ..config import Config
from ..core import lease
from ..core.gate import Gate, GateLimits
from ..core.lifecycle import LEASE, LeaseEvent, LeaseState, TabState, advance, is_terminal
from ..core.model import Session, Tab, changed
from ..errors import BrowserCrashed, LeaseLost, NavigationFailed, StateConflict, StoreUnavailable
from ..store.base import Add, Applied, Conflict, Delete, Insert, Op, Store, Update
from .admission import Admission, Claim
from .events import EventBus
from .ids import Ids
from .patience import patiently
from .registry import LiveSession, LiveTab, Registry

log = structlog.get_logger("leases")

# A guarded write that lost its race is decided again this often before the caller hears of it.
DECIDE_AGAIN_MAX = 5
Perform = Callable[[TabPort, wire.AnyAction], Awaitable[Any]]


class Leases:
    """The steps of a lease's life on this node."""

    def __init__(
        self,
        *,
        config: Config,
        node_id: str,
        store: Store,
        admissions: Mapping[str, Admission],
        registry: Registry,
        events: EventBus,
        ids: Ids,
        clock: Callable[[], int],
        perform: Perform,
    ) -> None:
        self._config = config
        self._node_id = node_id
        self._store = store
        self._admissions = admissions
        self._registry = registry
        self._events = events
        self._ids = ids
        self._clock = clock
        self._perform = perform

    # --- Beginning ------------------------------------------------------------------------------------------

    async def make(self, pool: Pool, claim: Claim, request: wire.OpenSession) -> LiveSession:
        """Reserve, create, record, bind. Not to be cancelled half-way: a write under way cannot be taken back."""
        try:
            reserved = await self._reserve(pool, claim, request)
            return await self._create(pool, claim, reserved, request.url)
        except BaseException:
            self._admissions[pool.name].give_back(claim)
            raise

    async def _reserve(self, pool: Pool, claim: Claim, request: wire.OpenSession) -> Session:
        now = self._clock()
        row = Session(
            id=claim.session_id,
            state=LeaseState.RESERVED,
            agent_id=claim.agent_id,
            pool=pool.name,
            key=request.key,
            tier=request.tier,
            node_id=self._node_id,
            keep_alive=request.keep_alive,
            created_at=now,
            heartbeat_at=now,
            deadline_at=lease.deadline_at(self._config.tiers, request.tier, request.deadline_ms, now),
        )
        counters = lease.cap_counters(row.pool, row.key, row.agent_id, self._admissions[pool.name].caps)
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
                raise lease.capacity_refusal(full.reason, value or 0, full.cap or 0, 1, None)

    async def _create(self, pool: Pool, claim: Claim, reserved: Session, url: str | None) -> LiveSession:
        """From a reserved row to a bound session; on failure the row is closed and nothing is left in the browser."""
        browser = claim.slot.browser
        seat: Seat | None = None
        try:
            if browser is None:
                raise BrowserGone("the browser died", was_sent=False)
            seat = await pool.take(claim.slot)
            page = {} if url is None else await self._open_first_page(seat.tab, url)
            session, tab = await self._record_bound(reserved, browser, seat, page)
            if claim.slot.browser is not browser:
                # It died while the row was written: whoever ends its sessions could not find this one yet.
                raise BrowserGone("the browser died", was_sent=False)
        except (BrowserGone, CdpFailure) as error:
            await self._undo(reserved, browser, seat)
            raise BrowserCrashed(f"The browser failed while the session was opened: {error}") from error
        except BaseException:
            await self._undo(reserved, browser, seat)
            raise
        return self.bind(session, browser, claim, [(tab, seat.tab)])

    async def _open_first_page(self, port: TabPort, url: str) -> dict[str, str]:
        timeout_ms = self._config.gate.timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                page = await self._perform(port, wire.Navigate(url=url))
        except TimeoutError:
            raise NavigationFailed(f"The first page did not load within {timeout_ms} ms.", url=url) from None
        return {"url": page["url"], "title": page["title"] or ""}

    async def _record_bound(
        self, reserved: Session, browser: BrowserPort, seat: Seat, page: Mapping[str, str]
    ) -> tuple[Session, Tab]:
        """Write down what was created, before anybody can use it."""
        now = self._clock()
        tab = Tab(
            id=self._ids.mint("tab"),
            session_id=reserved.id,
            node_id=self._node_id,
            browser_id=browser.row.id,
            state=TabState.READY,
            target_id=seat.tab.target_id,
            url=page.get("url", "about:blank"),
            title=page.get("title", ""),
            created_at=now,
        )
        bound = changed(
            reserved,
            state=advance(LEASE, reserved.state, LeaseEvent.BIND),
            browser_id=browser.row.id,
            context_id=seat.context_id,
            heartbeat_at=now,
        )
        outcome = await self._store.apply(Update(bound), Insert(tab))
        if not isinstance(outcome, Applied):
            raise LeaseLost("The session was ended while it was being opened.", sessionId=reserved.id)
        session_row, tab_row = outcome.rows
        assert isinstance(session_row, Session)
        assert isinstance(tab_row, Tab)
        return session_row, tab_row

    def bind(
        self, session: Session, browser: BrowserPort, claim: Claim, tabs: Iterable[tuple[Tab, TabPort]]
    ) -> LiveSession:
        """From here on commands find it. Its row is on disk."""
        live = LiveSession(session, browser, claim)
        limits = GateLimits(
            tickets_per_tab=self._config.gate.tickets_per_tab,
            tickets_per_controller=self._config.gate.tickets_per_controller,
        )
        for tab, port in tabs:
            live.tabs[tab.id] = LiveTab(tab, port, Gate(limits), live)
        self._registry.bind(live)
        claim.state = LeaseState.ACTIVE
        return live

    async def _undo(self, reserved: Session, browser: BrowserPort | None, seat: Seat | None) -> None:
        if browser is not None and seat is not None:
            await self._dispose(browser, seat.context_id, [seat.tab.target_id])
        await patiently(lambda: self._settle_by_id(reserved.id))

    async def _settle_by_id(self, session_id: str) -> None:
        row = await self._store.get(Session, session_id)
        assert row is not None
        await self.settle_leftover(row, "not_created")

    # --- Ending ---------------------------------------------------------------------------------------------

    async def end(self, live: LiveSession, reason: str) -> bool:
        """End a bound session; False when somebody else did. What it had in the browser is gone when this returns."""
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
            self._unbind(live, reason)
            if closing is None:
                return False
            await self._dispose(live.browser, live.row.context_id, [tab.row.target_id for tab in live.tabs.values()])
            await self._record_closed(closing, [tab.row for tab in live.tabs.values()], reason)
            self._admissions[live.row.pool].give_back(live.claim)
            return True

    async def lose(self, live: LiveSession, reason: str) -> None:
        """The browser under it died: nothing is left to dispose of, and its owner is told why."""
        # Before anything can wait: no command must reach its tabs any more.
        live.is_ending = live.is_lost = True
        async with live.mutex:
            if self._registry.session(live.row.id) is not live:
                return
            self._unbind(live, reason)
            await patiently(lambda: self.record_lost(live.row.id, reason))
            self._admissions[live.row.pool].give_back(live.claim)

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
            await self._record_closed(closing, await self._store.select(Tab, {"session_id": row.id}), reason)

    async def record_lost(self, session_id: str, reason: str) -> None:
        """Write that a session could not be kept. Idempotent."""
        row = await self._store.get(Session, session_id)
        if row is None or is_terminal(LEASE, row.state):
            return
        tabs = await self._store.select(Tab, {"session_id": session_id})
        if row.state is LeaseState.CLOSING:
            await self._record_closed(row, tabs, reason)
            return
        broken = row.state if row.state is LeaseState.RECOVERING else advance(LEASE, row.state, LeaseEvent.BREAK)
        lost = changed(row, state=advance(LEASE, broken, LeaseEvent.LOSE), ended_at=self._clock(), end_reason=reason)
        ops = (Update(lost), *self._uncount(row), *(Delete(Tab, tab.id, tab.version) for tab in tabs))
        outcome = await self._store.apply(*ops)
        assert isinstance(outcome, Applied), f"{row.id} has one writer, this node ({outcome})"
        self._publish("session_lost", row, reason)

    # --- Parts ----------------------------------------------------------------------------------------------

    def _unbind(self, live: LiveSession, reason: str) -> None:
        self._registry.unbind(live, reason)
        live.claim.state = LeaseState.CLOSING
        for tab in live.tabs.values():
            detach(tab, reason)

    async def _dispose(self, browser: BrowserPort, context_id: str, target_ids: Iterable[str]) -> None:
        try:
            if context_id:
                await browser.dispose_context(context_id)
            else:
                for target_id in target_ids:
                    await browser.close_tab(target_id)
        except (BrowserGone, CdpFailure) as error:
            # A dead browser took it along; one that refuses to dispose of it does not know it any more.
            log.info("context was gone already", contextId=context_id, error=str(error))

    async def _record_closed(self, row: Session, tabs: Iterable[Tab], reason: str) -> None:
        closed = changed(
            row, state=advance(LEASE, row.state, LeaseEvent.CLOSED), ended_at=self._clock(), end_reason=reason
        )
        ops = (Update(closed), *self._uncount(row), *(Delete(Tab, tab.id, tab.version) for tab in tabs))
        outcome = await patiently(lambda: self._store.apply(*ops))
        assert isinstance(outcome, Applied), f"{row.id} is closing: nobody else writes it ({outcome})"
        self._publish("session.closed", row, reason)

    async def _mark_closing(self, row: Session) -> Session | None:
        """The row as `closing`, or None when it had ended already."""
        for _ in range(DECIDE_AGAIN_MAX):
            if is_terminal(LEASE, row.state) or row.state is LeaseState.CLOSING:
                return None
            closing = changed(row, state=advance(LEASE, row.state, LeaseEvent.CLOSE))
            outcome = await self._store.apply(Update(closing))
            if isinstance(outcome, Applied):
                return changed(closing, version=closing.version + 1)
            assert isinstance(outcome.row, Session), f"session row {row.id} vanished"
            row = outcome.row
        raise StateConflict("The session kept changing while it was being ended.", sessionId=row.id)

    def _uncount(self, row: Session) -> tuple[Op, ...]:
        counters = lease.cap_counters(row.pool, row.key, row.agent_id, lease.Caps())
        return tuple(Add(counter.counter, -1) for counter in counters)

    def _publish(self, event: str, row: Session, reason: str) -> None:
        self._events.publish(event, sessionId=row.id, agentId=row.agent_id, pool=row.pool, reason=reason)


def detach(tab: LiveTab, reason: str) -> None:
    """Turn everybody away who waits for or runs on a tab whose session ends."""
    for waiter in tab.waiting.values():
        if not waiter.done():
            waiter.set_exception(
                BrowserCrashed("The browser died before the command was sent.", tabId=tab.row.id)
                if tab.session.is_lost
                else LeaseLost(f"The session ended: {reason}.", reason=reason)
            )
    if tab.running is not None:
        tab.running.cancel()
