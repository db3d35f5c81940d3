"""How a lease is bound to what it has in a browser, and how it ends, step by step.

Ending goes the opposite way of opening (see `opening`): unbind, dispose, record, give the place back. A crash between
any two steps leaves a row that says what exists, never something that no row knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
import structlog

from .. import wire
from ..actions.progress import Progress
from ..browsers.port import BrowserGone, BrowserPort, CdpFailure, TabPort, Viewport
from ..core import lease
from ..core.caps import Caps, cap_counters, pooled_counters, tab_counter
from ..core.gate import Gate, GateLimits
from ..core.lifecycle import LEASE, LeaseEvent, LeaseState, advance, is_terminal
from ..core.model import Session, Tab, changed
from ..errors import (
    Draining,
    LeaseLost,
    StateConflict,
    TabherdError,
)
from ..store.base import Add, Applied, Delete, Op, Store, Update
from .admission import Admission
from .checkpoints import Checkpoints
from .claim import Claim
from .events import EventBus
from .files import Files
from .order import Rank, held
from .owners import Owners
from .patience import patiently
from .registry import LiveSession, LiveTab, Registry
from .settings import Settings

log = structlog.get_logger("leases")

# A guarded write that lost its race is decided again this often before the caller hears of it.
DECIDE_AGAIN_MAX = 5
# Why a session left this server that has not ended: the next one finds it on disk.
SERVER_STOPPED = "server_stopped"
Perform = Callable[[TabPort, wire.AnyAction, Progress], Awaitable[Any]]


class Leases:
    """The steps of a lease's life on this node."""

    def __init__(
        self,
        *,
        settings: Settings,
        store: Store,
        admissions: Mapping[str, Admission],
        registry: Registry,
        checkpoints: Checkpoints,
        files: Files,
        owners: Owners,
        events: EventBus,
        clock: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._store = store
        self._admissions = admissions
        self._registry = registry
        self._checkpoints = checkpoints
        self._files = files
        self._owners = owners
        self._events = events
        self._clock = clock

    # --- Beginning ------------------------------------------------------------------------------------------

    def bind(
        self, session: Session, browser: BrowserPort | None, claim: Claim, tabs: Iterable[tuple[Tab, TabPort | None]]
    ) -> LiveSession:
        """From here on commands find it. Its row is on disk."""
        live = LiveSession(session, browser, claim)
        for tab, port in tabs:
            live.tabs[tab.id] = self.new_tab(live, tab, port)
        self._registry.bind(live)
        claim.state = session.state
        if session.owner_pid:
            told = partial(self._registry.tell, live)
            self._owners.watch(session.id, session.owner_pid, session.owner_started, told)
            live.is_owner_dead = partial(self._is_dead, session.id)
        return live

    def _is_dead(self, session_id: str) -> bool:
        return self._owners.state(session_id) is lease.OwnerProcess.DEAD

    def change_evidence(self, live: LiveSession) -> None:
        """The session has another owner: what was known about the life of the old one does not count."""
        self._owners.forget(live.row.id)
        # Not when it was asked for: the store may have taken long over it, and the new owner hears of it only now.
        live.seen_at = self._clock()
        live.is_owner_followed = False
        live.cancelled.clear()
        self._registry.tell(live)

    def times_of(self, pool: str) -> lease.LeaseTimes:
        """How long each kind of silence may last in that pool."""
        settings = self._settings.current.pools[pool]
        return lease.LeaseTimes(
            heartbeat_ms=settings.heartbeat_s * 1000,
            stale_after_ms=settings.stale_after_s * 1000,
            idle_ttl_ms=settings.idle_ttl_s * 1000,
            disconnect_grace_ms=settings.disconnect_grace_s * 1000,
            owner_dead_grace_ms=settings.owner_dead_grace_ms,
            deadline_grace_ms=settings.deadline_grace_s * 1000,
            pooled_ttl_ms=settings.pooled_ttl_s * 1000,
        )

    def new_tab(self, live: LiveSession, row: Tab, port: TabPort | None) -> LiveTab:
        """The tab with its gate, not yet bound."""
        limits = GateLimits(
            tickets_per_tab=self._settings.current.gate.tickets_per_tab,
            tickets_per_controller=self._settings.current.gate.tickets_per_controller,
        )
        return LiveTab(row, port, Gate(limits), live)

    # --- Ending ---------------------------------------------------------------------------------------------

    async def end(
        self,
        live: LiveSession,
        reason: str,
        *,
        fence: int | None = None,
        is_still_due: Callable[[], bool] = lambda: True,
    ) -> bool:
        """End a bound session; False when somebody else did. What it had in the browser is gone when this returns.

        It may have waited for its turn: the fence and whether it is due are looked at again when that has come.
        """
        async with live.mutex:
            if not self._registry.is_bound(live):
                return False
            lease.check_fence(live.row, fence)
            return is_still_due() and await self.end_held(live, reason)

    async def end_held(self, live: LiveSession, reason: str) -> bool:
        """The same for whoever holds the session's mutex already."""
        live.is_ending = True
        try:
            closing = await self._mark_closing(live.row)
        except TabherdError:
            # Nothing has happened yet: it stays the owner's until the store takes the first step.
            live.is_ending = False
            raise
        self.unbind(live, reason)
        if closing is None:
            return False
        tabs = [tab.row for tab in live.tabs.values()]
        if live.browser is not None:
            await self.dispose(live.browser, live.row.context_id, [(tab.provenance, tab.target_id) for tab in tabs])
        self._registry.forget_ends(tab.target_id for tab in tabs)
        await self._record_closed(closing, tabs, reason)
        self._admissions[live.row.pool].give_back(live.claim)
        return True

    async def lose_held(self, live: LiveSession, reason: str) -> None:
        """It cannot be kept; its owner is told why. For whoever holds its mutex; nothing of it is in a browser."""
        live.is_ending = True
        self.unbind(live, reason)
        await patiently(lambda: self.record_lost(live.row.id, reason))
        self._admissions[live.row.pool].give_back(live.claim)

    async def settle_leftover(self, row: Session, reason: str) -> None:
        """End a session whose context is known to be gone: what an earlier life of this node left behind."""
        if is_terminal(LEASE, row.state):
            return
        if row.state in (LeaseState.RESERVED, LeaseState.POOLED):
            event = LeaseEvent.ABANDON if row.state is LeaseState.RESERVED else LeaseEvent.DROP
            over = changed(row, state=advance(LEASE, row.state, event), ended_at=self._clock(), end_reason=reason)
            tabs = await self._store.select(Tab, {"session_id": row.id})
            await self._files.discard(row.id)
            outcome = await self._store.apply(Update(over), *self.uncounting(row, tabs), *_deleting(tabs))
            assert isinstance(outcome, Applied), f"{row.id} has one writer, this node ({outcome})"
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
        await self._record_over(lost, row, tabs)
        self._publish("session_lost", row, reason)

    # --- Parts ----------------------------------------------------------------------------------------------

    def unbind(self, live: LiveSession, reason: str) -> None:
        """From here on no command reaches it, and whoever waits for it or is connected to it is turned away."""

        def refusal() -> TabherdError:
            if reason == SERVER_STOPPED:
                return Draining("The server is stopping.", retry_after_ms=1_000)
            return LeaseLost(f"The session ended: {reason}.", sessionId=live.row.id, reason=reason)

        self._registry.unbind(live, reason)
        self._owners.forget(live.row.id)
        live.claim.state = LeaseState.CLOSING
        for tab in live.tabs.values():
            # What is still at work in a page ends with the page, also if this server does not live to see that.
            tab.unmark()
        turn_away(live, refusal)

    async def dispose(self, browser: BrowserPort, context_id: str, pages: Iterable[tuple[str, str]]) -> None:
        """End what a session had; `pages` are (provenance, target id)."""
        try:
            if context_id:
                await browser.dispose_context(context_id)
            else:
                for provenance, target_id in pages:
                    await (browser.let_go(target_id) if provenance == "borrowed" else browser.close_tab(target_id))
        except (BrowserGone, CdpFailure) as error:
            # A dead browser took it along; one that refuses to dispose of it does not know it any more.
            log.info("context was gone already", contextId=context_id, error=str(error))

    async def _record_closed(self, row: Session, tabs: Iterable[Tab], reason: str) -> None:
        closed = changed(
            row, state=advance(LEASE, row.state, LeaseEvent.CLOSED), ended_at=self._clock(), end_reason=reason
        )
        await self._record_over(closed, row, list(tabs))
        self._publish("session.closed", row, reason)

    async def _record_over(self, over: Session, row: Session, tabs: list[Tab]) -> None:
        """The last write: the row, what it was counted in, and all that hung on it."""
        # Before the row says that it is over: whoever finds it unfinished does this again.
        await self._files.discard(row.id)
        forgetting = await self._checkpoints.forgetting(row.id)
        ops = (Update(over), *self.uncounting(row, tabs), *_deleting(tabs), *forgetting)
        with held(Rank.LEASE, row.id):
            outcome = await patiently(lambda: self._store.apply(*ops))
        assert isinstance(outcome, Applied), f"{row.id} is ending: nobody else writes it ({outcome})"
        self._checkpoints.forget(row.id)

    async def _mark_closing(self, row: Session) -> Session | None:
        """The row as `closing`, or None when it had ended already."""
        for _ in range(DECIDE_AGAIN_MAX):
            if is_terminal(LEASE, row.state) or row.state is LeaseState.CLOSING:
                return None
            closing = changed(row, state=advance(LEASE, row.state, LeaseEvent.CLOSE))
            with held(Rank.LEASE, row.id):
                outcome = await self._store.apply(Update(closing))
            if isinstance(outcome, Applied):
                return changed(closing, version=closing.version + 1)
            assert isinstance(outcome.row, Session), f"session row {row.id} vanished"
            row = outcome.row
        raise StateConflict("The session kept changing while it was being ended.", sessionId=row.id)

    def uncounting(self, row: Session, tabs: Iterable[Tab]) -> tuple[Op, ...]:
        """What takes a lease and its tabs out of every count. A reserved one has no tab yet, but a place for one."""
        none = Caps()
        counters = (
            pooled_counters(row.pool, row.key, none)
            if row.state is LeaseState.POOLED
            else cap_counters(row.pool, row.key, row.agent_id, none)
        )
        pages = 1 if row.state is LeaseState.RESERVED else sum(1 for _ in tabs)
        fewer_tabs = (Add(tab_counter(row.pool, none).counter, -pages),) if pages else ()
        return (*(Add(counter.counter, -1) for counter in counters), *fewer_tabs)

    def _publish(self, event: str, row: Session, reason: str) -> None:
        self._events.publish(event, sessionId=row.id, agentId=row.agent_id, pool=row.pool, reason=reason)


def turn_away(live: LiveSession, refusal: Callable[[], TabherdError]) -> None:
    """Refuse everybody who waits for, runs on or is connected to a session that is no longer theirs."""
    for connection in (*live.connections.values(), *live.guests.values()):
        connection.detach(refusal())
    for tab in live.tabs.values():
        for waiter in tab.waiting.values():
            if not waiter.done():
                waiter.set_exception(refusal())
        if tab.running is not None:
            tab.running.cancel()


async def wait_detached(live: LiveSession) -> None:
    """After `turn_away`: returns when nothing that its sockets had sent can begin in its pages any more."""
    connections = (*live.connections.values(), *live.guests.values())
    live.connections.clear()
    live.guests.clear()
    if connections:
        await asyncio.gather(*(connection.wait_detached() for connection in connections))


def viewport_of(row: Session) -> Viewport:
    """The size that the session's pages have."""
    asked = msgspec.json.decode(row.viewport, type=wire.Viewport)
    return Viewport(width=asked.width, height=asked.height, device_scale_factor=asked.device_scale_factor)


def _deleting(tabs: Iterable[Tab]) -> tuple[Op, ...]:
    return tuple(Delete(Tab, tab.id, tab.version) for tab in tabs)
