"""A pool: as many browsers as are needed, a stock of warm seats, and the choice of where a session goes.

What it keeps: between `browsers_min` and `browsers_max` browsers that take sessions (those that only finish what they
have come on top), and while there are sessions, seats for the stock: another browser starts before they run out; a
stock of `warm` seats, refilled one at a time, never faster than half of the time and not at all while a caller waits
for a cold one; a browser that is recycled is replaced before it is gone.

This layer knows neither the store nor sessions: it is given functions to write a row down and to tell what happened.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable

import msgspec
import structlog

from ..core.model import Browser
from ..errors import NoBrowser
from .port import BrowserGone, BrowserPort, CdpFailure, Launcher, PageListener, Seat
from .slot import Slot, SlotPolicy

log = structlog.get_logger("browsers")

# Retry hint while nothing better is known.
RETRY_AFTER_MIN_MS = 250
STOP_LIMIT_S = 15.0
# When a session comes the stock is not refilled at once: its opening and its first commands go first. Those that come
# meanwhile do not prolong it, so that a steady stream still finds the stock refilled.
REFILL_AFTER_S = 0.05
# How soon another slot takes the place of one that failed.
FAILED_PAUSE_S = 1.0


class PoolPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How many browsers and warm seats a pool has."""

    browsers_min: int = 1
    browsers_max: int = 4
    warm: int = 4
    # A browser above the minimum is ended after so long without a session.
    shrink_after_ms: int = 60_000
    slot: SlotPolicy = msgspec.field(default_factory=SlotPolicy)

    @property
    def seats_max(self) -> int:
        return self.browsers_max * self.slot.sessions_per_browser


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a pool tells."""

    # Write a row down; remove it.
    record: Callable[[Browser], Awaitable[None]]
    forget: Callable[[Browser], Awaitable[None]]
    # Whom that browser tells about its pages.
    listen_on: Callable[[Browser], PageListener]
    on_ready: Callable[[Browser], None]
    # The browser and everything in it is gone; the reason.
    on_gone: Callable[[Browser, str], None]
    # It has done its part and is being replaced; why.
    on_recycled: Callable[[Browser, str], None]
    # It ended as planned, also when a restart took its sessions along; why.
    on_stopped: Callable[[Browser, str], None]
    # There may be a free seat now.
    on_capacity: Callable[[], None]


class Pool:
    """The browsers of one pool."""

    def __init__(
        self,
        name: str,
        *,
        policy: PoolPolicy,
        launcher: Launcher,
        listener: Listener,
        new_row: Callable[[], Browser],
        clock: Callable[[], int],
    ) -> None:
        self.name = name
        self.launcher = launcher
        self.clock = clock
        self.new_row = new_row
        self.slots: list[Slot] = []
        self._pool_policy = policy
        self._listener = listener
        self._tasks: dict[Slot, asyncio.Task[None]] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._nudge = asyncio.Event()
        # Seats being made for callers who wait; while there are any, the stock is not refilled.
        self._cold = 0
        # The stock is not refilled before, by the loop's clock.
        self._refill_at = 0.0
        # Seats made under settings that no longer hold; disposed of by the keeper.
        self._outdated: list[tuple[Slot, Seat]] = []
        self._is_stopping = False

    # --- What the broker asks -------------------------------------------------------------------------------

    @property
    def policy(self) -> SlotPolicy:
        return self._pool_policy.slot

    @property
    def is_ready(self) -> bool:
        return any(slot.is_ready for slot in self.slots)

    @property
    def is_idle(self) -> bool:
        """Whether it has no browser because it needs none, and starts one for the first caller."""
        has_failed = any(slot.last_failure for slot in self._staying())
        return self._pool_policy.browsers_min == 0 and not self.is_ready and not has_failed

    @property
    def free_seats(self) -> int:
        return sum(slot.free_seats for slot in self.slots)

    @property
    def stock_size(self) -> int:
        return sum(len(slot.stock) for slot in self.slots)

    def seat(self, session_id: str) -> Slot | None:
        """Count the session against the best browser: one with a warm seat, else the one with the fewest sessions."""
        open_slots = [slot for slot in self.slots if slot.free_seats > 0]
        if not open_slots:
            self.need(1)
            return None
        slot = min(open_slots, key=lambda slot: (not slot.stock, len(slot.sessions)))
        slot.seat(session_id)
        now = asyncio.get_running_loop().time()
        if self._refill_at <= now:
            self._refill_at = now + REFILL_AFTER_S
        self._nudge.set()
        return slot

    async def take(self, slot: Slot) -> Seat:
        """The seat that was counted; from the stock at once, else made now."""
        is_cold = not slot.stock
        self._cold += is_cold
        try:
            return await slot.take()
        finally:
            self._cold -= is_cold
            self._nudge.set()

    def slot_of(self, browser_id: str) -> Slot | None:
        """The slot in which that browser lives."""
        return next((s for s in self.slots if s.row.id == browser_id and s.browser is not None), None)

    def need(self, callers: int) -> None:
        """So many callers find no seat: start browsers for them, up to the maximum."""
        coming = sum(slot.is_coming for slot in self._staying())
        wanted = -(-callers // self.policy.sessions_per_browser) - coming
        room = self._pool_policy.browsers_max - len(self._staying())
        for _ in range(max(0, min(wanted, room))):
            self._add_slot()

    def stay_ahead(self, callers_max: int | None) -> None:
        """Start a browser before the stock runs out for want of seats, unless there can be too few callers for it.

        `callers_max`: so many more can come at the most; None: as many as like.
        """
        wanted = self._stock_in_use if callers_max is None else min(self._stock_in_use, callers_max)
        if self._spare_seats() < wanted and len(self._staying()) < self._pool_policy.browsers_max:
            self._add_slot()

    def refusal(self) -> NoBrowser:
        """Why no session can be had here although the caps would allow one."""
        failures = [slot.last_failure for slot in self.slots if slot.last_failure]
        reason = failures[0] if failures else "it is starting"
        retry_at = min((slot.breaker.retry_at for slot in self.slots), default=0)
        return NoBrowser(
            f"No browser of pool '{self.name}' is ready: {reason}",
            retry_after_ms=max(RETRY_AFTER_MIN_MS, retry_at - self.clock()),
            pool=self.name,
            reason=reason,
        )

    # --- Life -----------------------------------------------------------------------------------------------

    def start(self, adopted: Iterable[BrowserPort] = ()) -> list[Slot]:
        """Start with the browsers that an earlier life left, whose slots are returned, and what the minimum asks for.

        The stock is not filled before `keep`: in an adopted browser, what no session claims is still to be cleared.
        """
        slots = [self._add_slot(browser) for browser in adopted]
        while len(self.slots) < self._pool_policy.browsers_min:
            self._add_slot()
        return slots

    def keep(self) -> None:
        """From now on keep the stock filled and the number of browsers right."""
        self._keeper = asyncio.create_task(self._keep(), name=f"pool {self.name}")

    async def wait_tried(self) -> None:
        """Returns once every slot has either a browser or a failure to show."""
        await asyncio.gather(*(slot.tried.wait() for slot in self.slots))

    async def stop(self) -> None:
        """End every browser of the pool."""
        self._is_stopping = True
        tasks = [*self._tasks.values(), *([self._keeper] if self._keeper else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            # Bounded: browsers are ended first of all; a row that cannot be removed is settled at the next start.
            await asyncio.wait(tasks, timeout=STOP_LIMIT_S)

    def reconfigure(self, policy: PoolPolicy) -> None:
        """Follow other settings from now on. Seats made under the old ones are not handed out any more."""
        self._pool_policy = policy
        for slot in self.slots:
            slot.follow(policy.slot.breaker)
            self._outdated += [(slot, seat) for seat in slot.stock]
            slot.stock.clear()
        while len(self._staying()) < policy.browsers_min:
            self._add_slot()
        self._nudge.set()

    def page_ended(self, target_id: str) -> None:
        """That page is gone; if it was kept warm for somebody, nobody gets it."""
        for slot in self.slots:
            dead = next((seat for seat in slot.stock if seat.tab.target_id == target_id), None)
            if dead is not None:
                slot.stock.remove(dead)
                self._outdated.append((slot, dead))
                self._nudge.set()

    # --- What slots tell ------------------------------------------------------------------------------------

    async def record(self, row: Browser) -> None:
        await self._listener.record(row)

    async def forget(self, row: Browser) -> None:
        await self._listener.forget(row)

    def listen_on(self, row: Browser) -> PageListener:
        return self._listener.listen_on(row)

    def slot_ready(self, slot: Slot) -> None:
        self._listener.on_ready(slot.row)
        self.slot_changed(slot)

    def slot_gone(self, slot: Slot, row: Browser, reason: str) -> None:
        self._listener.on_gone(row, reason)

    def slot_recycled(self, slot: Slot, reason: str) -> None:
        self._listener.on_recycled(slot.row, reason)

    def slot_stopped(self, slot: Slot, row: Browser, reason: str) -> None:
        self._listener.on_stopped(row, reason)

    def slot_changed(self, slot: Slot) -> None:
        if slot.is_draining and not (slot.is_leaving or self.policy.is_single or self._is_stopping):
            # Its replacement starts now, not when the last session has left the old one.
            slot.is_leaving = True
            # Unless there are more than there may be now.
            if len(self._staying()) < self._pool_policy.browsers_max:
                self._add_slot()
        self._nudge.set()
        self._listener.on_capacity()

    # --- Parts ----------------------------------------------------------------------------------------------

    def _staying(self) -> list[Slot]:
        return [slot for slot in self.slots if not slot.is_leaving]

    @property
    def _stock_in_use(self) -> int:
        """Seats that are kept free while there are sessions: the stock, or what one browser holds of it."""
        is_in_use = any(slot.sessions for slot in self.slots)
        return min(self._pool_policy.warm, self.policy.sessions_per_browser) if is_in_use else 0

    def _spare_seats(self) -> int:
        """Free seats, also in browsers that are on their way or have missed a probe."""
        per_browser = self.policy.sessions_per_browser
        return sum(
            max(0, per_browser - len(slot.sessions))
            for slot in self._staying()
            if slot.is_coming or slot.browser is not None
        )

    def _add_slot(self, adopted: BrowserPort | None = None) -> Slot:
        slot = Slot(self, adopted)
        self.slots.append(slot)
        task = asyncio.create_task(slot.run(), name=f"slot of {self.name}")
        self._tasks[slot] = task
        task.add_done_callback(lambda task: self._slot_ended(slot, task))
        return slot

    def _slot_ended(self, slot: Slot, task: asyncio.Task[None]) -> None:
        self.slots.remove(slot)
        del self._tasks[slot]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a slot failed", pool=self.name, exc_info=error)
            # Not at once: what made it fail may be there still, such as a store that takes nothing from this node.
            asyncio.get_running_loop().call_later(FAILED_PAUSE_S, self._replace)

    def _replace(self) -> None:
        if not self._is_stopping and len(self._staying()) < self._pool_policy.browsers_max:
            self._add_slot()

    async def _keep(self) -> None:
        """Refill the stock and give back what is not needed, until cancelled."""
        while True:
            self._nudge.clear()
            while self._outdated:
                await self._dispose(*self._outdated.pop())
            self._shrink()
            pause_s = await self._refill_one()
            if pause_s is not None:
                await asyncio.sleep(pause_s)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pool_policy.shrink_after_ms / 1000):
                    await self._nudge.wait()

    async def _refill_one(self) -> float | None:
        """Make one warm seat if one is missing, unless it is better made later; how long to pause, or None."""
        if self._cold or self.stock_size >= self._pool_policy.warm:
            return None
        roomy = [slot for slot in self.slots if slot.free_seats > len(slot.stock)]
        if not roomy:
            return None
        slot = min(roomy, key=lambda slot: len(slot.stock) + len(slot.sessions))
        loop = asyncio.get_running_loop()
        began = loop.time()
        if began < self._refill_at:
            return self._refill_at - began
        browser = slot.browser
        try:
            seat = await slot.make_seat()
        except (BrowserGone, CdpFailure) as error:
            log.info("a warm seat could not be made", pool=self.name, error=str(error))
            return 1.0
        if slot.browser is browser and slot.free_seats > len(slot.stock):
            slot.stock.append(seat)
        else:
            await self._dispose(slot, seat)
        # As long a pause as the work took: half of a core's time at the very most.
        return loop.time() - began

    async def _dispose(self, slot: Slot, seat: Seat) -> None:
        if slot.browser is None:
            return
        with contextlib.suppress(BrowserGone, CdpFailure):
            if seat.context_id:
                await slot.browser.dispose_context(seat.context_id)
            else:
                await slot.browser.close_tab(seat.tab.target_id)

    def _shrink(self) -> None:
        spare = len(self._staying()) - self._pool_policy.browsers_min
        now = self.clock()
        for slot in self._staying():
            is_idle = not slot.sessions and now - slot.idle_since >= self._pool_policy.shrink_after_ms
            # Or it would be started again for the next caller's sake.
            is_kept = self._spare_seats() - self.policy.sessions_per_browser < self._stock_in_use
            if spare > 0 and is_idle and slot.is_ready and not is_kept:
                spare -= 1
                slot.drain("idle", leave=True)
