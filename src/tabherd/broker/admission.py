"""Who gets a session of a pool next, and what the others are told.

A caller claims a place: within the caps of its key, its agent and the pool, and with a seat in a browser. If there is
none it waits, up to its time, in a queue that is fair across agents; a waiter that cannot be admitted blocks nobody
else. Waiting costs nothing: a future that is settled when something is given back. Whoever stops waiting is taken out
before anything else can happen, so a place is never granted to a caller that has left.

The counts here are this node's own and exact; the store's counters are checked again when the session is reserved.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from ..browsers.pool import Pool
from ..browsers.slot import Slot
from ..core.fairness import Waiter, WaitQueue
from ..core.lease import CapReason, Caps, HoldTimes, capacity_refusal
from ..core.lifecycle import LeaseState
from ..errors import QueueFull, TabherdError


class Claim:
    """A place in the pool: counted until it is given back."""

    def __init__(self, session_id: str, agent_id: str, key: str, slot: Slot) -> None:
        self.session_id = session_id
        self.agent_id = agent_id
        self.key = key
        # Where its seat is.
        self.slot = slot
        # What the place is taken for: a session that is being opened, is open, or is being ended.
        self.state = LeaseState.RESERVED
        self.claimed_at = 0


class Admission:
    """The places of one pool."""

    def __init__(self, pool: Pool, caps: Caps, *, max_waiters: int, clock: Callable[[], int]) -> None:
        self.caps = caps
        self._pool = pool
        self._clock = clock
        self._queue = WaitQueue(max_waiters)
        self._turns: dict[str, asyncio.Future[Claim]] = {}
        self._claims: dict[str, Claim] = {}
        self._by_agent: Counter[str] = Counter()
        self._by_key: Counter[str] = Counter()
        self._hold_times = HoldTimes()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def active(self) -> int:
        """Places that are taken, also by sessions that are being opened or ended."""
        return len(self._claims)

    def count(self, state: LeaseState) -> int:
        """Places that are taken by sessions in that state."""
        return sum(claim.state is state for claim in self._claims.values())

    async def claim(self, session_id: str, agent_id: str, key: str, wait_ms: int) -> Claim:
        """A place for this session, now or within `wait_ms`; else the refusal that says why and when to come back."""
        waiter = self._enter(session_id, agent_id, key)
        turn: asyncio.Future[Claim] = asyncio.get_running_loop().create_future()
        self._turns[session_id] = turn
        try:
            self.pump()
            if not turn.done():
                self._pool.need(len(self._queue))
                async with asyncio.timeout(wait_ms / 1000):
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
                self.give_back(turn.result())
            raise
        finally:
            turn.cancel()
            del self._turns[session_id]
            self._queue.withdraw(session_id)

    def adopt(self, session_id: str, agent_id: str, key: str, slot: Slot) -> Claim:
        """Count a session that exists already: it was open when an earlier life of this node ended."""
        slot.sessions.add(session_id)
        return self._count(Claim(session_id, agent_id, key, slot))

    def give_back(self, claim: Claim) -> None:
        """The place is free again: the session is over, or never came to be."""
        if self._claims.pop(claim.session_id, None) is None:
            return
        self._by_agent[claim.agent_id] -= 1
        self._by_key[claim.key] -= 1
        if not self._by_agent[claim.agent_id]:
            del self._by_agent[claim.agent_id]
        if not self._by_key[claim.key]:
            del self._by_key[claim.key]
        self._hold_times.record(self._clock() - claim.claimed_at)
        claim.slot.unseat(claim.session_id)
        self.pump()

    def turn_away(self, refusal: Callable[[], TabherdError]) -> None:
        """Refuse everybody who waits now."""
        for session_id, turn in self._turns.items():
            if self._queue.withdraw(session_id) is not None and not turn.done():
                turn.set_exception(refusal())

    def pump(self) -> None:
        """Grant whatever can be granted. Called whenever a place may have become free."""
        while self._queue and self._pool.free_seats > 0:
            waiter = self._queue.pick(self._by_agent, lambda waiter: self._full(waiter.agent_id, waiter.key) is None)
            if waiter is None:
                return
            slot = self._pool.seat(waiter.id)
            assert slot is not None
            claim = self._count(Claim(waiter.id, waiter.agent_id, waiter.key, slot))
            self._turns[waiter.id].set_result(claim)
        if self._queue:
            self._pool.need(len(self._queue))

    # --- Parts ----------------------------------------------------------------------------------------------

    def _enter(self, session_id: str, agent_id: str, key: str) -> Waiter:
        try:
            return self._queue.enter(session_id, agent_id, key, retry_after_ms=self._retry_after_ms(len(self._queue)))
        except QueueFull as error:
            # For tasks a full queue is 429; a caller of a session hears that the service is not available.
            error.status = 503
            raise

    def _count(self, claim: Claim) -> Claim:
        claim.claimed_at = self._clock()
        self._claims[claim.session_id] = claim
        self._by_agent[claim.agent_id] += 1
        self._by_key[claim.key] += 1
        return claim

    def _full(self, agent_id: str, key: str) -> tuple[CapReason, int, int] | None:
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
        full = self._full(waiter.agent_id, waiter.key)
        if full is None and not self._pool.is_ready:
            return self._pool.refusal()
        # Within the caps, yet every browser is full: more of them are on their way, or cannot be had.
        reason, count, cap = full or ("pool_cap", len(self._claims), len(self._claims))
        return capacity_refusal(reason, count, cap, position, self._retry_after_ms(position, cap))

    def _retry_after_ms(self, position: int, capacity: int | None = None) -> int:
        return self._hold_times.retry_after_ms(position, capacity or len(self._claims))


def _is_granted(turn: asyncio.Future[Claim]) -> bool:
    return turn.done() and not turn.cancelled() and turn.exception() is None
