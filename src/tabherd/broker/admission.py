"""Who gets a session of a pool next, and what the others are told.

A caller claims a place: within the caps of its key, its agent and the pool, and with a pooled tab that suits it or a
seat in a browser. If there is none it waits, up to its time, in a queue that is fair across agents; a waiter that
cannot be admitted blocks nobody else. Waiting costs nothing: a future that is settled when something is given back.
Whoever stops waiting is taken out before anything else can happen, so a place is never granted to a caller that has
left. Pooled tabs make room for callers that find none, the oldest first. Sessions whose browser died have a place
already and need only a seat: they come before everybody else.

The counts here are this node's own and exact; the store's counters are checked again when the session is reserved.
Where several nodes share the store, callers wait for all of them at once (see `shared_admission`): then the queue here
stays empty, and what is left to this file is what the node itself has to give.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence

from ..browsers.pool import Pool
from ..browsers.slot import Slot
from ..core.caps import CapReason, Caps, capacity_refusal
from ..core.fairness import Waiter, WaitQueue
from ..core.hold_times import HoldTimes
from ..core.lifecycle import LeaseState
from ..errors import QueueFull, TabherdError
from .claim import Claim, Place, Shared
from .stock import PooledTab, Stock

# How long a caller that does not want to wait waits all the same for a pooled tab that is being closed for it.
EVICTION_LIMIT_MS = 2_000
# Of how many callers it is told where they stand.
PLACES_SHOWN = 20


class Admission:
    """The places of one pool on this node."""

    def __init__(
        self,
        pool: Pool,
        caps: Caps,
        *,
        store_caps: Caps | None = None,
        max_waiters: int,
        clock: Callable[[], int],
        close: Callable[[PooledTab], Awaitable[None]],
    ) -> None:
        self.caps = caps
        # What the store's counters may reach; other than `caps` only where other nodes count in them as well.
        self.store_caps = store_caps or caps
        # Other nodes' callers and places; None: there are none.
        self.shared: Shared | None = None
        # Tabs that nobody holds.
        self.stock = Stock()
        self._pool = pool
        self._clock = clock
        # Closes a tab that was taken out of the stock.
        self._close = close
        # Pooled tabs that are being closed to make room; they exist until then.
        self._evictions: set[asyncio.Future[None]] = set()
        self._queue = WaitQueue(max_waiters)
        self._turns: dict[str, asyncio.Future[Claim]] = {}
        # Those who wait for a seat to be recovered in.
        self._reseats: deque[tuple[Claim, asyncio.Future[Slot]]] = deque()
        self._claims: dict[str, Claim] = {}
        # Real tabs of all of them.
        self._claimed_tabs = 0
        self._by_agent: Counter[str] = Counter()
        self._by_key: Counter[str] = Counter()
        self._hold_times = HoldTimes()

    @property
    def waiting(self) -> int:
        return len(self._queue) if self.shared is None else self.shared.waiting

    @property
    def max_waiters(self) -> int:
        return self._queue.max_waiters

    @property
    def active(self) -> int:
        """Places that are taken, also by sessions that are being opened or ended."""
        return len(self._claims)

    @property
    def tabs(self) -> int:
        """Real tabs of the pool on this node, pooled ones and those that are being closed for room included."""
        return self._claimed_tabs + len(self.stock) + len(self._evictions)

    @property
    def is_exhausted(self) -> bool:
        """Whether there is no place for anybody until one is given back."""
        return 0 < self.caps.max_active <= len(self._claims)

    @property
    def is_evicting(self) -> bool:
        """Whether a pooled tab is being closed to make room."""
        return bool(self._evictions)

    def count(self, state: LeaseState) -> int:
        """Places that are taken by sessions in that state."""
        if state is LeaseState.POOLED:
            return len(self.stock)
        return sum(claim.state is state for claim in self._claims.values())

    @property
    def waiting_since(self) -> int | None:
        """When the caller came that has waited longest; None: nobody waits."""
        if self.shared is not None:
            return self.shared.waiting_since
        return None if (oldest := self._queue.oldest) is None else oldest.arrived_at

    def places_of(self, agent_id: str | None) -> list[Place]:
        """Where that agent's callers stand in the queue, or all agents', the next one first. Costs O(agents) for each
        of them.
        """
        if self.shared is not None:
            return self.shared.places_of(agent_id)
        if agent_id is None:
            first: Sequence[Waiter] = self._queue.first(PLACES_SHOWN, self._by_agent)
        else:
            first = self._queue.of_agent(agent_id)[:PLACES_SHOWN]
        positions = [(waiter, self._queue.position(waiter.id, self._by_agent) or 1) for waiter in first]
        return [Place(waiter, position, self.retry_after_ms(position)) for waiter, position in positions]

    # --- Getting in -----------------------------------------------------------------------------------------

    async def claim(self, session_id: str, agent_id: str, key: str, wait_ms: int) -> Claim:
        """A place for this session, now or within `wait_ms`; else the refusal that says why and when to come back."""
        waiter = self._enter(session_id, agent_id, key)
        turn: asyncio.Future[Claim] = asyncio.get_running_loop().create_future()
        self._turns[session_id] = turn
        try:
            self.pump()
            if not turn.done():
                limit_ms = max(wait_ms, EVICTION_LIMIT_MS) if self._evictions else wait_ms
                async with asyncio.timeout(limit_ms / 1000):
                    return await asyncio.shield(turn)
            return turn.result()
        except TimeoutError:
            # The grant and the end of the time may meet in one turn of the loop: then the grant counts.
            if _is_granted(turn):
                return turn.result()
            raise self._refusal(waiter) from None
        except asyncio.CancelledError:
            # The same for the grant and the caller's leaving: then the place goes back.
            if _is_granted(turn):
                self.abandon(turn.result())
            raise
        finally:
            turn.cancel()
            del self._turns[session_id]
            self._queue.withdraw(session_id)

    def take(self, session_id: str, agent_id: str, key: str) -> Claim | None:
        """A place for this session now, or none; for who keeps the order of those who wait."""
        if not self.has_place(agent_id, key):
            return None
        claim = Claim(session_id, agent_id, key, None)
        pooled = self.stock.take(agent_id, key)
        if pooled is not None:
            self._give_pooled(claim, pooled)
        else:
            claim.slot = self._pool.seat(session_id)
            assert claim.slot is not None
        return self._count(claim)

    def adopt(self, session_id: str, agent_id: str, key: str, slot: Slot | None, tabs: int) -> Claim:
        """Count a session that exists already: it was open when an earlier life of this node ended."""
        if slot is not None:
            slot.sessions.add(session_id)
        claim = Claim(session_id, agent_id, key, slot)
        claim.tabs = tabs
        return self._count(claim)

    async def claim_tab(self, claim: Claim) -> None:
        """Room for one more tab of that session, for which pooled ones give way; else the refusal."""
        while not self._has_tab_room:
            oldest = self.stock.take_oldest()
            if oldest is None:
                cap = self.caps.max_tabs
                raise capacity_refusal("tab_cap", self.tabs, cap, None, self.retry_after_ms(1, cap))
            await asyncio.shield(self.evict(oldest))
        claim.tabs += 1
        self._claimed_tabs += 1

    async def reseat(self, claim: Claim) -> Slot:
        """A seat in a live browser for a session that lost its own; before all who wait for a session."""
        turn: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        claim.slot = None
        self._reseats.append((claim, turn))
        self.pump()
        try:
            return await asyncio.shield(turn)
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                turn.result().unseat(claim.session_id)
            raise
        finally:
            turn.cancel()

    def next_pooled(self, claim: Claim) -> None:
        """Its pooled tab was found dead: another that suits, or else the seat of the dead one for a new tab."""
        claim.pooled = None
        other = self.stock.take(claim.agent_id, claim.key)
        if other is not None:
            assert claim.slot is not None
            claim.slot.unseat(claim.session_id)
            self._give_pooled(claim, other)

    def has_place(self, agent_id: str, key: str) -> bool:
        """Whether such a caller could have a place now."""
        if self.full(agent_id, key) is not None:
            return False
        if self.stock.find(agent_id, key) is not None:
            return True
        return self._pool.free_seats > 0 and self._has_tab_room

    # --- Giving back ----------------------------------------------------------------------------------------

    def give_back(self, claim: Claim) -> None:
        """The place and the seat are free again: the session is over, or never came to be."""
        if self._uncount(claim):
            if claim.slot is not None:
                claim.slot.unseat(claim.session_id)
            self.pump()

    def abandon(self, claim: Claim) -> None:
        """Give back a place that nothing was done with; a pooled tab that came with it goes back as well."""
        if claim.pooled is not None:
            self._uncount(claim)
            self._put_back(claim.pooled, claim)
            self.pump()
        else:
            self.give_back(claim)

    def give_to_stock(self, claim: Claim, pooled: PooledTab) -> None:
        """The place is free again, while its seat stays with the tab that was pooled."""
        self._uncount(claim)
        self.stock.put(pooled)
        # None where the store's counters have these caps: then room was made before it was written down.
        for excess in self.stock.take_excess(self.caps):
            self.evict(excess)
        self.pump()

    def evict(self, pooled: PooledTab) -> asyncio.Future[None]:
        """Close a tab that was taken out of the stock; its seat is free afterwards."""
        closing = asyncio.ensure_future(self._close(pooled))
        self._evictions.add(closing)
        closing.add_done_callback(lambda closing: self._evicted(pooled, closing))
        return closing

    def drop_tabs(self, claim: Claim, count: int = 1) -> None:
        """So many tabs of that session are gone."""
        claim.tabs -= count
        if claim.session_id in self._claims:
            self._claimed_tabs -= count
        self.pump()

    def change_agent(self, claim: Claim, agent_id: str) -> None:
        """The session has another owner."""
        self._shift(self._by_agent, claim.agent_id, -1)
        claim.agent_id = agent_id
        self._shift(self._by_agent, agent_id, 1)

    def refuse_agent(self, agent_id: str) -> None:
        """Raise the refusal if that agent can have no session more."""
        cap = self.caps.max_active_per_agent
        if cap and self._by_agent[agent_id] >= cap:
            raise capacity_refusal("agent_cap", self._by_agent[agent_id], cap, None, self.retry_after_ms(1, cap))

    def reconfigure(self, caps: Caps, max_waiters: int, store_caps: Caps | None = None) -> None:
        """Follow other caps from now on. What is above a lower one stays until it is given back."""
        self.caps, self.store_caps = caps, store_caps or caps
        self._queue.max_waiters = max_waiters
        self.pump()

    def turn_away(self, refusal: Callable[[], TabherdError]) -> None:
        """Refuse everybody who waits now for a place on this node."""
        if self.shared is not None:
            self.shared.turn_away(refusal)
        for session_id, turn in self._turns.items():
            if self._queue.withdraw(session_id) is not None and not turn.done():
                turn.set_exception(refusal())

    def pump(self) -> None:
        """Grant whatever can be granted. Called whenever a place may have become free."""
        self._reseat_all()
        while self._queue:
            waiter = self._queue.pick(self._by_agent, lambda waiter: self.has_place(waiter.agent_id, waiter.key))
            if waiter is None:
                break
            claim = self.take(waiter.id, waiter.agent_id, waiter.key)
            assert claim is not None
            self._turns[waiter.id].set_result(claim)
        self._make_room()
        if self.shared is not None:
            self.shared.has_room()

    # --- Parts ----------------------------------------------------------------------------------------------

    @property
    def _has_tab_room(self) -> bool:
        return not self.caps.max_tabs or self.tabs < self.caps.max_tabs

    def _reseat_all(self) -> None:
        while self._reseats and self._pool.free_seats > 0:
            claim, turn = self._reseats.popleft()
            if turn.done():
                continue
            claim.slot = self._pool.seat(claim.session_id)
            assert claim.slot is not None
            turn.set_result(claim.slot)

    def _make_room(self) -> None:
        """For those who could be admitted if only there were room: more browsers, or the oldest pooled tab."""
        lacking = sum(not turn.done() for _, turn in self._reseats) + len(self._queue)
        self.make_room(lacking, self._lacks_only_room)

    def make_room(self, lacking: int, lacks_only_room: Callable[[], bool]) -> None:
        """The same for so many callers; room is made at the cost of a pooled tab only if they lack nothing else."""
        if lacking and self._pool.free_seats == 0:
            self._pool.need(lacking)
        has_room = self._pool.free_seats > 0 and self._has_tab_room
        if has_room or self._evictions or not lacks_only_room():
            return
        oldest = self.stock.take_oldest()
        if oldest is not None:
            self.evict(oldest)

    def _lacks_only_room(self) -> bool:
        """Whether somebody within all caps waits for a seat or a tab."""
        if any(not turn.done() for _, turn in self._reseats):
            return True
        first = self._queue.find(self._by_agent, lambda waiter: self.full(waiter.agent_id, waiter.key) is None)
        return first is not None

    def _evicted(self, pooled: PooledTab, closing: asyncio.Future[None]) -> None:
        self._evictions.discard(closing)
        pooled.slot.unseat(pooled.row.id)
        self.pump()
        if not closing.cancelled():
            closing.result()

    def _give_pooled(self, claim: Claim, pooled: PooledTab) -> None:
        """The seat of the pooled tab becomes the claim's."""
        pooled.slot.sessions.discard(pooled.row.id)
        pooled.slot.sessions.add(claim.session_id)
        claim.slot, claim.pooled = pooled.slot, pooled

    def _put_back(self, pooled: PooledTab, claim: Claim) -> None:
        pooled.slot.sessions.discard(claim.session_id)
        pooled.slot.sessions.add(pooled.row.id)
        self.stock.put(pooled)

    def _enter(self, session_id: str, agent_id: str, key: str) -> Waiter:
        try:
            return self._queue.enter(session_id, agent_id, key, now=self._clock())
        except QueueFull as error:
            error.retry_after_ms = self.retry_after_ms(len(self._queue))
            # For tasks a full queue is 429; a caller of a session hears that the service is not available.
            error.status = 503
            raise

    def _count(self, claim: Claim) -> Claim:
        claim.claimed_at = self._clock()
        self._claims[claim.session_id] = claim
        self._claimed_tabs += claim.tabs
        self._shift(self._by_agent, claim.agent_id, 1)
        self._shift(self._by_key, claim.key, 1)
        cap = self.caps.max_active
        self._pool.stay_ahead(cap - len(self._claims) if cap else None)
        return claim

    def _uncount(self, claim: Claim) -> bool:
        if self._claims.pop(claim.session_id, None) is None:
            return False
        self._claimed_tabs -= claim.tabs
        self._shift(self._by_agent, claim.agent_id, -1)
        self._shift(self._by_key, claim.key, -1)
        self._hold_times.record(self._clock() - claim.claimed_at)
        return True

    @staticmethod
    def _shift(counts: Counter[str], name: str, delta: int) -> None:
        counts[name] += delta
        if not counts[name]:
            del counts[name]

    def full(self, agent_id: str, key: str) -> tuple[CapReason, int, int] | None:
        """The first cap that leaves no room, with its count and bound."""
        caps = self.caps
        if key and caps.max_active_per_key and self._by_key[key] >= caps.max_active_per_key:
            return "key_cap", self._by_key[key], caps.max_active_per_key
        if caps.max_active_per_agent and self._by_agent[agent_id] >= caps.max_active_per_agent:
            return "agent_cap", self._by_agent[agent_id], caps.max_active_per_agent
        if caps.max_active and len(self._claims) >= caps.max_active:
            return "pool_cap", len(self._claims), caps.max_active
        return None

    def _refusal(self, waiter: Waiter) -> TabherdError:
        position = self._queue.position(waiter.id, self._by_agent) or 1
        full = self.full(waiter.agent_id, waiter.key)
        if full is None and not self._has_tab_room:
            full = ("tab_cap", self.tabs, self.caps.max_tabs)
        if full is None and not self._pool.is_ready:
            return self._pool.refusal()
        # Within the caps, yet every browser is full: more of them are on their way, or cannot be had.
        reason, count, cap = full or ("pool_cap", len(self._claims), len(self._claims))
        return capacity_refusal(reason, count, cap, position, self.retry_after_ms(position, cap))

    def retry_after_ms(self, position: int, capacity: int | None = None) -> int:
        return self._hold_times.retry_after_ms(position, capacity or len(self._claims))


def _is_granted(turn: asyncio.Future[Claim]) -> bool:
    return turn.done() and not turn.cancelled() and turn.exception() is None
