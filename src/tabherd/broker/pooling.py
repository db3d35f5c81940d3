"""What becomes of a session that is given back into its pool, and of the tab until somebody takes it.

In a pool that shares a profile the page stays as it is, for the next one of its key. Elsewhere a pooled tab is clean: a
fresh context takes the place of the used one before anybody can have it, unless its holder said `same-agent`; then it
stays as it is, for that agent alone. What does not fit, is too old or found dead is closed, the oldest first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from ..browsers.port import BrowserGone, BrowserPort, CdpFailure, Seat, TabGone
from ..core import lease
from ..core.caps import cap_counters, pooled_counters, tab_counter
from ..core.lifecycle import LEASE, LeaseEvent, TabState, advance
from ..core.model import Session, Tab, changed
from ..store.base import Add, Applied, Conflict, Delete, Op, Store, Update
from .admission import Admission
from .checkpoints import Checkpoints
from .claim import Claim
from .events import EventBus
from .files import Files
from .leases import Leases, wait_detached
from .patience import patiently
from .registry import LiveSession, LiveTab, Registry
from .stock import PooledTab

log = structlog.get_logger("pooling")

# How long a pooled page may take to show that it lives.
ALIVE_LIMIT_S = 1.0


class Pooling:
    """The pooled tabs of this node."""

    def __init__(
        self,
        *,
        store: Store,
        admissions: Mapping[str, Admission],
        registry: Registry,
        leases: Leases,
        checkpoints: Checkpoints,
        files: Files,
        events: EventBus,
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._admissions = admissions
        self._registry = registry
        self._leases = leases
        self._checkpoints = checkpoints
        self._files = files
        self._events = events
        self._clock = clock

    # --- In -------------------------------------------------------------------------------------------------

    async def put(self, live: LiveSession, fence: int | None) -> bool:
        """Give a session back and keep its tab; one that cannot be kept is closed. False when it had ended already."""
        async with live.mutex:
            if not self._registry.is_bound(live):
                return False
            lease.check_fence(live.row, fence)
            kept = self._keepable(live)
            if kept is None:
                return await self._leases.end_held(live, "released")
            live.is_ending = True
            self._leases.unbind(live, "released")
            await wait_detached(live)
            if kept.is_tainted:
                # A client that was cut off had begun something there.
                return await patiently(lambda: self._leases.end_held(live, "released"))
            try:
                await self._files.forbid(live.row.id)
                seat = await self._seat_to_keep(live, kept)
            except (BrowserGone, CdpFailure) as error:
                log.info("a tab could not be pooled", sessionId=live.row.id, error=str(error))
                return await patiently(lambda: self._leases.end_held(live, "released"))
            await self._record(live, kept, seat)
            return True

    def _keepable(self, live: LiveSession) -> LiveTab | None:
        """The tab that stays; none of a session at work, because nobody knows what its page will still do."""
        slot = live.claim.slot
        if live.browser is None or live.has_work or slot is None or slot.is_draining:
            return None
        own = (tab for tab in live.tabs.values() if tab.row.provenance == "created")
        return next((tab for tab in own if tab.row.state is TabState.READY and is_at_rest(tab)), None)

    async def _seat_to_keep(self, live: LiveSession, kept: LiveTab) -> Seat:
        """What goes into the stock; everything else that the session had is gone afterwards."""
        browser, slot = live.require_browser(), live.claim.slot
        assert slot is not None
        assert kept.port is not None
        if live.row.reuse == "never" and live.row.context_id:
            seat = await slot.spare_seat()
            await self._dispose(browser, live.row.context_id, kept.row.target_id)
            return seat
        for tab in live.tabs.values():
            if tab is not kept:
                away = browser.let_go if tab.row.provenance == "borrowed" else browser.close_tab
                await away(tab.row.target_id)
        return Seat(live.row.context_id, kept.port)

    async def _record(self, live: LiveSession, kept: LiveTab, seat: Seat) -> None:
        """Write it down as pooled, making room by closing older ones, and only then put it where takers look."""
        now, admission = self._clock(), self._admissions[live.row.pool]
        is_clean = seat.context_id != live.row.context_id
        row = changed(
            live.row,
            state=advance(LEASE, live.row.state, LeaseEvent.POOL),
            context_id=seat.context_id,
            pooled_at=now,
            ended_at=now,
            end_reason="released",
        )
        tab = kept.row
        if is_clean:
            generation = tab.generation + 1
            tab = changed(tab, target_id=seat.tab.target_id, generation=generation, url="about:blank", title="")
        others = [other.row for other in live.tabs.values() if other is not kept]
        # Whoever takes the tab finds the page, not what its last holder kept beside it.
        await self._files.discard(row.id)
        forgetting = await self._checkpoints.forgetting(row.id)
        counters = pooled_counters(row.pool, row.key, admission.store_caps)
        ops: tuple[Op, ...] = (
            *(Add(counter.counter, 1, counter.cap) for counter in counters),
            *(Add(counter.counter, -1) for counter in cap_counters(row.pool, row.key, row.agent_id, admission.caps)),
            *((Add(tab_counter(row.pool, admission.caps).counter, -len(others)),) if others else ()),
            *(Delete(Tab, other.id, other.version) for other in others),
            *forgetting,
            Update(tab),
            Update(row),
        )
        while isinstance(outcome := await patiently(lambda: self._store.apply(*ops)), Conflict):
            assert outcome.index < len(counters), f"{row.id} is ending: nobody else writes it ({outcome})"
            is_key = counters[outcome.index].reason == "key_cap"
            oldest = admission.stock.take_oldest(row.key if is_key else None)
            if oldest is None:
                # The room is taken by tabs that are being closed or checked out at this moment.
                await self._close_instead(live, seat)
                return
            await admission.evict(oldest)
        assert isinstance(outcome, Applied)
        *_, tab_row, session_row = outcome.rows
        assert isinstance(tab_row, Tab)
        assert isinstance(session_row, Session)
        self._checkpoints.forget(row.id)
        slot = live.claim.slot
        assert slot is not None
        pooled = PooledTab(session_row, tab_row, live.require_browser(), seat.tab, slot)
        self._events.publish("session.pooled", sessionId=row.id, agentId=row.agent_id, pool=row.pool, key=row.key)
        if slot.browser is live.browser and not slot.is_draining:
            admission.give_to_stock(live.claim, pooled)
            # The reaper sleeps until something can change, and this tab has a time of its own.
            self._registry.changed.set()
        else:
            # It died or was wanted gone while the row was written: whoever sees to its tabs could not find this one.
            await self.close(pooled)
            admission.give_back(live.claim)

    async def _close_instead(self, live: LiveSession, seat: Seat) -> None:
        await self._dispose(live.require_browser(), seat.context_id, seat.tab.target_id)
        await patiently(lambda: self._leases.settle_leftover(live.row, "released"))
        self._admissions[live.row.pool].give_back(live.claim)

    def adopt(self, pooled: PooledTab) -> None:
        """A tab that was pooled in an earlier life of this node and is still there."""
        pooled.slot.sessions.add(pooled.row.id)
        self._admissions[pooled.row.pool].stock.put(pooled)

    # --- Out ------------------------------------------------------------------------------------------------

    async def choose(self, claim: Claim, pool: str) -> None:
        """See to it that a pooled tab that comes with a place is alive: dead ones are dropped and the next is tried."""
        while claim.pooled is not None and not await _is_alive(claim.pooled):
            dead = claim.pooled
            log.info("a pooled tab was dead", sessionId=dead.row.id)
            await self.close(dead, "dead")
            self._admissions[pool].next_pooled(claim)

    async def close(self, pooled: PooledTab, reason: str = "evicted") -> None:
        """End a tab that was taken out of the stock."""
        await self._dispose(pooled.browser, pooled.row.context_id, pooled.tab.target_id)
        await self._record_gone(pooled, reason)

    def expire(self) -> int | None:
        """Close what nobody has wanted for too long; answers when the next will be due."""
        now, due = self._clock(), []
        for name, admission in self._admissions.items():
            ttl_ms = self._leases.times_of(name).pooled_ttl_ms
            for pooled in admission.stock.take_before(now - ttl_ms):
                admission.evict(pooled)
            if (oldest_at := admission.stock.oldest_at) is not None:
                due.append(oldest_at + ttl_ms)
        return min(due, default=None)

    def evict_on(self, browser_id: str) -> None:
        """That browser is wanted gone: nothing may wait in it."""
        for admission in self._admissions.values():
            for pooled in admission.stock.take_on(browser_id):
                admission.evict(pooled)

    def page_ended(self, target_id: str) -> None:
        """That page is gone; if it was pooled, nobody can have it any more."""
        for admission in self._admissions.values():
            pooled = admission.stock.take_on_target(target_id)
            if pooled is not None:
                admission.evict(pooled)

    # --- Parts ----------------------------------------------------------------------------------------------

    async def _record_gone(self, pooled: PooledTab, reason: str) -> None:
        await patiently(lambda: self._leases.settle_leftover(pooled.row, reason))

    async def _dispose(self, browser: BrowserPort, context_id: str, target_id: str) -> None:
        try:
            await (browser.dispose_context(context_id) if context_id else browser.close_tab(target_id))
        except (BrowserGone, CdpFailure) as error:
            log.info("a pooled tab was gone already", targetId=target_id, error=str(error))


def is_at_rest(tab: LiveTab) -> bool:
    """Whether nothing of any command can go on in its page."""
    return tab.clear_mark is None and not tab.is_tainted


async def _is_alive(pooled: PooledTab) -> bool:
    if pooled.slot.browser is not pooled.browser:
        return False
    try:
        async with asyncio.timeout(ALIVE_LIMIT_S):
            await pooled.port.ping()
    except (TimeoutError, BrowserGone, TabGone, CdpFailure):
        return False
    return True
