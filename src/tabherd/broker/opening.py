"""How a lease comes to be, step by step.

Order of effects, which every path here keeps:
1. *Reserve before create*: one transaction checks every cap and writes the `reserved` row with its fence; a pooled tab
   changes hands in the same one. A refused caller has caused nothing.
2. Only then is a seat taken in a browser: a context with its tab.
3. *Record before bind*: the row says `active` and names the context; only then can commands find the tab.
A crash between any two steps leaves a row that says what exists, never something that no row knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec

from .. import wire
from ..actions.progress import Progress
from ..browsers.pool import Pool
from ..browsers.port import BrowserGone, BrowserPort, CdpFailure, Seat, TabPort
from ..core import lease
from ..core.caps import Caps, cap_counters, capacity_refusal, pooled_counters, tab_counter
from ..core.lifecycle import LEASE, LeaseEvent, LeaseState, TabState, advance
from ..core.model import Session, Tab, changed
from ..errors import BrowserCrashed, InvalidRequest, LeaseLost, NavigationFailed, StoreUnavailable
from ..store.base import Add, Applied, Conflict, Delete, Insert, Op, Require, Store, Update, is_in_doubt
from .admission import Admission
from .checkpoints import Checkpoints
from .claim import Claim
from .files import Files
from .ids import Ids
from .leases import Leases, Perform, viewport_of
from .order import Rank, held
from .owners import Owners
from .patience import patiently
from .registry import LiveSession
from .settings import Settings
from .stock import PooledTab

# Sees to it that a pooled tab that comes with a place in that pool is alive.
Choose = Callable[[Claim, str], Awaitable[None]]


class Contended(Exception):
    """Others were first, on this node or another: whoever wanted the place decides again. It was given back."""


class Opening:
    """The way from a place in the pool to a bound session."""

    def __init__(
        self,
        *,
        settings: Settings,
        node_id: str,
        store: Store,
        admissions: Mapping[str, Admission],
        leases: Leases,
        checkpoints: Checkpoints,
        files: Files,
        owners: Owners,
        ids: Ids,
        clock: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        perform: Perform,
    ) -> None:
        self._settings = settings
        self._node_id = node_id
        self._store = store
        self._admissions = admissions
        self._leases = leases
        self._checkpoints = checkpoints
        self._files = files
        self._owners = owners
        self._ids = ids
        self._clock = clock
        self._spawn = spawn
        self._perform = perform

    def check(self, pool: Pool, request: wire.OpenSession) -> None:
        """Refuse what could never be granted, before anybody waits for it."""
        lease.deadline_at(self._settings.current.tiers, request.tier, request.deadline_ms, self._clock())
        if request.reuse == "any" and self._settings.current.pools[pool.name].isolation != "shared":
            raise InvalidRequest("reuse: any is for pools that share a profile; this one does not.", field="reuse")
        if request.owner is not None:
            self._owners.identify(request.owner.pid, request.owner.start_time)

    async def make(self, pool: Pool, claim: Claim, request: wire.OpenSession, choose: Choose) -> LiveSession:
        """Reserve, create, record, bind. Not to be cancelled half-way: a write under way cannot be taken back.

        `choose` sees to it that a pooled tab that comes with the place is alive.
        """
        await self.reserve(pool, claim, request, choose)
        return await self.create(pool, claim, request)

    async def reserve(
        self, pool: Pool, claim: Claim, request: wire.OpenSession, choose: Choose, guards: tuple[Op, ...] = ()
    ) -> None:
        """Write the row of a session that has a place; if that fails the place is given back.

        The guards are part of the transaction. With any, `Contended` is raised when one of them or a cap is in the way.
        """
        try:
            await choose(claim, pool.name)
            claim.reserved = await self._reserve(pool, claim, request, guards)
        except BaseException as error:
            if isinstance(error, StoreUnavailable) and is_in_doubt(error):
                # Whose the place is, and the pooled tab that comes with it, is known later.
                self._spawn(self._settle_doubt(claim, pool.name))
            else:
                self._admissions[pool.name].abandon(claim)
            raise

    async def create(self, pool: Pool, claim: Claim, request: wire.OpenSession) -> LiveSession:
        """Make what was reserved."""
        reserved, pooled = self._reserved(claim), claim.pooled
        claim.reserved = claim.pooled = None
        try:
            return await self._create(pool, claim, reserved, pooled, request)
        except BaseException:
            self._admissions[pool.name].give_back(claim)
            raise

    async def take_up(self, pool: Pool, claim: Claim, request: wire.OpenSession) -> LiveSession:
        """The same for a caller of whom no more than agent and key was known when the place was reserved for it."""
        reserved = self._reserved(claim)
        try:
            asked = self._new_row(pool, claim, request)
        except BaseException:
            await self.abandon(claim)
            raise
        claim.reserved = changed(
            asked,
            version=reserved.version,
            fence=reserved.fence,
            browser_id=reserved.browser_id,
            context_id=reserved.context_id,
        )
        return await self.create(pool, claim, request)

    async def abandon(self, claim: Claim) -> None:
        """Nobody wants what was reserved: settle its row, and give the place back."""
        reserved, pooled = self._reserved(claim), claim.pooled
        claim.reserved = claim.pooled = None
        try:
            # A pooled tab that came with it changed hands with the row, and has nobody to go back to.
            seat = None if pooled is None else Seat(pooled.row.context_id, pooled.port)
            await self._undo(reserved, None if pooled is None else pooled.browser, seat)
        finally:
            self._admissions[reserved.pool].give_back(claim)

    async def _reserve(self, pool: Pool, claim: Claim, request: wire.OpenSession, guards: tuple[Op, ...]) -> Session:
        row, caps = self._new_row(pool, claim, request), self._admissions[pool.name].store_caps
        counters = list(cap_counters(row.pool, row.key, row.agent_id, caps))
        ops: list[Op] = []
        if claim.pooled is None:
            counters.append(tab_counter(row.pool, caps))
        else:
            # The tab and its place in the count of tabs pass on to the new lease.
            row = changed(row, browser_id=claim.pooled.row.browser_id, context_id=claim.pooled.row.context_id)
            ops += self._check_out(claim.pooled)
        counting = tuple(Add(counter.counter, 1, counter.cap) for counter in counters)
        with held(Rank.LEASE, row.id):
            outcome = await self._store.apply(*guards, *counting, *ops, Insert(row, numbered="fence"))
        match outcome:
            case Applied(rows=rows):
                reserved = rows[-1]
                assert isinstance(reserved, Session)
                return reserved
            case Conflict(index=index) if index < len(guards):
                raise Contended
            case Conflict(index=index, value=value):
                index -= len(guards)
                assert index < len(counters), f"a pooled tab and a new id have one writer, this node ({outcome})"
                if guards:
                    raise Contended
                full = counters[index]
                raise capacity_refusal(full.reason, value or 0, full.cap or 0, 1, None)

    @staticmethod
    def _reserved(claim: Claim) -> Session:
        assert claim.reserved is not None, f"{claim.session_id} was never reserved"
        return claim.reserved

    def _new_row(self, pool: Pool, claim: Claim, request: wire.OpenSession) -> Session:
        now = self._clock()
        is_shared = self._settings.current.pools[pool.name].isolation == "shared"
        owner = request.owner
        return Session(
            id=claim.session_id,
            state=LeaseState.RESERVED,
            agent_id=claim.agent_id,
            pool=pool.name,
            key=request.key,
            tier=request.tier,
            node_id=self._node_id,
            access=request.access,
            reuse=request.reuse or ("any" if is_shared else "never"),
            keep_alive=request.keep_alive,
            allow_navigate=request.allow_navigate,
            owner_pid=0 if owner is None else owner.pid,
            owner_started=0 if owner is None else self._owners.identify(owner.pid, owner.start_time),
            created_at=now,
            heartbeat_at=now,
            deadline_at=lease.deadline_at(self._settings.current.tiers, request.tier, request.deadline_ms, now),
            viewport="" if request.viewport is None else msgspec.json.encode(request.viewport).decode(),
        )

    def _check_out(self, pooled: PooledTab) -> list[Op]:
        """The lease that gave the tab back is over; compare-and-set, so that the tab has one taker."""
        over = changed(
            pooled.row,
            state=advance(LEASE, pooled.row.state, LeaseEvent.DROP),
            ended_at=self._clock(),
            end_reason="checked_out",
        )
        counters = pooled_counters(over.pool, over.key, Caps())
        return [
            Update(over),
            Delete(Tab, pooled.tab.id, pooled.tab.version),
            *(Add(counter.counter, -1) for counter in counters),
        ]

    async def _create(
        self, pool: Pool, claim: Claim, reserved: Session, pooled: PooledTab | None, request: wire.OpenSession
    ) -> LiveSession:
        """From a reserved row to a bound session; on failure the row is closed and nothing is left in the browser."""
        assert claim.slot is not None
        browser = claim.slot.browser
        seat = None if pooled is None else Seat(pooled.row.context_id, pooled.port)
        try:
            if browser is None:
                raise BrowserGone("the browser died", was_sent=False)
            if seat is None:
                seat = await pool.take(claim.slot)
            live = LiveSession(reserved, browser, claim)
            self._files.allow(reserved, browser, seat.context_id)
            page = {} if pooled is None else {"url": pooled.tab.url, "title": pooled.tab.title}
            page |= await self._prepare(live, browser, seat, request)
            session, tab = await self._record_bound(reserved, browser, seat, page)
            if claim.slot.browser is not browser:
                # It died while the row was written: whoever looks after its sessions could not find this one yet.
                raise BrowserGone("the browser died", was_sent=False)
        except (BrowserGone, CdpFailure) as error:
            await self._undo(reserved, browser, seat)
            raise BrowserCrashed(f"The browser failed while the session was opened: {error}") from error
        except BaseException:
            await self._undo(reserved, browser, seat)
            raise
        self._checkpoints.begin(session.id)
        live = self._leases.bind(session, browser, claim, [(tab, seat.tab)])
        # Not when it was written down: the store may have taken long over that, and its owner hears of it only now.
        live.seen_at = self._clock()
        if page or request.storage_state is not None:
            # It begins with something to lose.
            self._checkpoints.note(live, origins_of(request.storage_state or wire.StorageState()))
        return live

    async def _prepare(
        self, live: LiveSession, browser: BrowserPort, seat: Seat, request: wire.OpenSession
    ) -> dict[str, str]:
        """What the caller wants to find: size, cookies, storage, first page."""
        if request.viewport is not None:
            await seat.tab.set_viewport(viewport_of(live.row))
        if request.storage_state is not None:
            await put_state(browser, seat.context_id, request.storage_state)
        return {} if request.url is None else await self._open_first_page(seat.tab, request.url)

    async def _open_first_page(self, port: TabPort, url: str) -> dict[str, str]:
        timeout_ms = self._settings.current.gate.timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                page = await self._perform(port, wire.Navigate(url=url), Progress())
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
        with held(Rank.LEASE, bound.id):
            outcome = await self._store.apply(Update(bound), Insert(tab))
        if not isinstance(outcome, Applied):
            raise LeaseLost("The session was ended while it was being opened.", sessionId=reserved.id)
        session_row, tab_row = outcome.rows
        assert isinstance(session_row, Session)
        assert isinstance(tab_row, Tab)
        return session_row, tab_row

    async def _undo(self, reserved: Session, browser: BrowserPort | None, seat: Seat | None) -> None:
        if browser is not None and seat is not None:
            await self._leases.dispose(browser, seat.context_id, [("created", seat.tab.target_id)])
        await patiently(lambda: self._settle_by_id(reserved.id))

    async def _settle_doubt(self, claim: Claim, pool: str) -> None:
        """Nobody knows whether it was reserved, and nobody wants it any more."""
        # Asked as a write is, because only what writes knows that nothing of an earlier one is still on its way.
        absent = Require(Session, claim.session_id, 0)
        if isinstance(await patiently(lambda: self._store.apply(absent)), Applied):
            self._admissions[pool].abandon(claim)
            return
        claim.reserved = await patiently(lambda: self._store.get(Session, claim.session_id))
        await self.abandon(claim)

    async def _settle_by_id(self, session_id: str) -> None:
        row = await self._store.get(Session, session_id)
        assert row is not None
        await self._leases.settle_leftover(row, "not_created")


async def put_state(browser: BrowserPort, context_id: str, state: wire.StorageState) -> None:
    """Write cookies and localStorage into a context."""
    try:
        await browser.set_cookies(context_id, state.cookies)
        await browser.put_local_storage(context_id, origins_of(state))
    except CdpFailure as failure:
        raise InvalidRequest(f"storageState: {failure.message}", field="storageState") from failure


def origins_of(state: wire.StorageState) -> dict[str, dict[str, str]]:
    return {origin.origin: {item.name: item.value for item in origin.local_storage} for origin in state.origins}
