"""Keeps one browser in one place: starts it, watches it, replaces it when it dies, and ends it when it is old.

A slot is a place for a browser. It remembers, in its circuit breaker, how often browsers died in it. Death is never
polled for: the process exit and the socket's close each end `wait_gone`. A browser that lives but does not answer is
found by a cheap probe: the first miss stops new sessions from going there, the second kills it, or the fifth if its
processor time shows that it is at work.

What it keeps: every state change is on disk before anybody relies on it, except death, which is told at once; a
browser is never ended under a live session unless it died, hung or somebody asked for it by name.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Final, Protocol

import msgspec
import structlog

from ..core.breaker import DEFAULT_POLICY, Breaker, BreakerPolicy, BreakerState
from ..core.lifecycle import BROWSER, BrowserEvent, BrowserState, advance
from ..core.model import Browser, changed
from .port import BrowserGone, BrowserPort, CdpFailure, Launcher, LaunchFailed, PageListener, Seat, Usage

log = structlog.get_logger("browsers")


# Probes in a row that a browser misses before it is killed, and how many when its processor time shows that it works.
MISSES_MAX: Final = 2
MISSES_MAX_AT_WORK: Final = 5
# It works if it had this much of a processor since the miss before.
AT_WORK_SHARE: Final = 0.05


class SlotPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a pool's settings that one slot follows."""

    sessions_per_browser: int = 25
    # How often a browser is asked whether it answers, and how long it may take.
    probe_every_ms: int = 1_000
    probe_limit_ms: int = 1_000
    # A browser is replaced after so many sessions, so long a life, or so much memory.
    recycle_sessions: int = 500
    recycle_age_ms: int = 6 * 3_600_000
    recycle_pss_bytes: int = 4 << 30
    breaker: BreakerPolicy = DEFAULT_POLICY
    # One session and one browser belong together: the browser ends with its session.
    is_private: bool = False
    # Sessions share the browser's own profile instead of having a context each.
    is_shared: bool = False
    # There cannot be two at a time (they would need the same profile): its successor starts when it is gone.
    is_single: bool = False


class Owner(Protocol):
    """What a slot needs of its pool."""

    @property
    def launcher(self) -> Launcher: ...
    @property
    def policy(self) -> SlotPolicy: ...
    @property
    def clock(self) -> Callable[[], int]: ...
    @property
    def new_row(self) -> Callable[[], Browser]: ...
    async def record(self, row: Browser) -> None: ...
    async def forget(self, row: Browser) -> None: ...
    def listen_on(self, row: Browser) -> PageListener: ...
    def slot_ready(self, slot: Slot) -> None: ...
    def slot_gone(self, slot: Slot, row: Browser, reason: str) -> None: ...
    def slot_recycled(self, slot: Slot, reason: str) -> None: ...
    def slot_stopped(self, slot: Slot, row: Browser, reason: str) -> None: ...
    def slot_changed(self, slot: Slot) -> None: ...


class Slot:
    """One place for a browser."""

    def __init__(self, owner: Owner, adopted: BrowserPort | None = None) -> None:
        self._owner = owner
        # A browser of an earlier life, with which the slot begins.
        self._adopted = adopted
        self.breaker = Breaker(policy=owner.policy.breaker)
        # The live browser; None while none runs here.
        self.browser: BrowserPort | None = adopted
        # The browser whose process is not proven gone: also one that is dead or retired, until it has been ended.
        self._unended: BrowserPort | None = adopted
        self.row = adopted.row if adopted is not None else owner.new_row()
        # Sessions that have, or are being given, a seat in this browser.
        self.sessions: set[str] = set()
        # Seats made in advance.
        self.stock: deque[Seat] = deque()
        # An adopted browser takes nothing new before it is known which of its contexts still belong to somebody.
        self.is_sorting = adopted is not None
        # It missed a probe: it gets no new sessions until it answers again.
        self.is_suspect = False
        # It finishes what it has and is then ended; with `is_leaving` the slot goes too.
        self.is_draining = False
        self.is_leaving = False
        # Somebody asked for another browser in its place, now.
        self.is_restarting = False
        self._killing: asyncio.Future[None] | None = None
        # Why the browser here is wanted gone: recycled, drained, idle.
        self._end_reason = ""
        # Why the last browser here died or could not start.
        self.last_failure = ""
        self.usage: Usage | None = None
        # Processor time per time between the last two measurements, in percent of one core.
        self.cpu_percent: float | None = None
        self._measured_at = 0
        # When it last had a session.
        self.idle_since = owner.clock()
        # Set once the first start has ended, well or not.
        self.tried = asyncio.Event()
        self._nudge = asyncio.Event()

    # --- What others ask ------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether new sessions may go here."""
        is_held_back = self.is_suspect or self.is_sorting
        return self.row.state is BrowserState.READY and not is_held_back and self.browser is not None

    @property
    def is_coming(self) -> bool:
        """Whether a browser is on its way: a second start beside one after a crash would only make both slower."""
        is_tripped = self.breaker.state(self._owner.clock()) is BreakerState.OPEN
        return self.row.state is BrowserState.STARTING or (self.row.state is BrowserState.CRASHED and not is_tripped)

    @property
    def free_seats(self) -> int:
        # A browser may carry more than it would be given today: the limit was lowered under it.
        return max(0, self._owner.policy.sessions_per_browser - len(self.sessions)) if self.is_ready else 0

    def seat(self, session_id: str) -> None:
        """Count a session against this browser; it is given its context with `take`."""
        assert self.free_seats > 0
        self.sessions.add(session_id)

    def unseat(self, session_id: str) -> None:
        """The session is over, and what it had here is gone."""
        self.sessions.discard(session_id)
        if not self.sessions:
            self.idle_since = self._owner.clock()
            self._nudge.set()
        self._owner.slot_changed(self)

    def doubt(self) -> None:
        """A call found the browser gone: nobody is sent here until the watch has seen it dead or had an answer."""
        self.is_suspect = True

    def follow(self, policy: BreakerPolicy) -> None:
        """Count crashes by other rules from now on; those that were counted stay counted."""
        self.breaker = msgspec.structs.replace(self.breaker, policy=policy)
        self._nudge.set()

    def sorted_out(self) -> None:
        """What nobody claimed in the adopted browser is gone: new sessions may come."""
        self.is_sorting = False
        self._owner.slot_changed(self)

    async def take(self) -> Seat:
        """A seat from the stock, or a fresh one. Raises `BrowserGone` or `CdpFailure`."""
        self.row = changed(self.row, sessions_served=self.row.sessions_served + 1)
        return await self.spare_seat()

    async def spare_seat(self) -> Seat:
        """A seat for a session that has been counted already: from the stock, or a fresh one."""
        return self.stock.popleft() if self.stock else await self.make_seat()

    async def make_seat(self) -> Seat:
        """A fresh context with a blank, attached tab."""
        browser = self.browser
        if browser is None:
            raise BrowserGone("The browser is gone.", was_sent=False)
        context_id = "" if self._owner.policy.is_shared else await browser.new_context()
        try:
            return Seat(context_id, await browser.new_tab(context_id))
        except BaseException:
            if context_id:
                with contextlib.suppress(BrowserGone, CdpFailure):
                    await asyncio.shield(browser.dispose_context(context_id))
            raise

    def drain(self, reason: str, *, leave: bool = False) -> None:
        """Take nothing new; end the browser when its last session is over, and with `leave` the slot as well."""
        self.is_leaving = self.is_leaving or leave
        if not self.is_draining:
            self.is_draining = True
            self._end_reason = reason
            self._take_nothing_new()
        self._nudge.set()

    def restart(self) -> None:
        """End the browser now, whoever uses it; the slot starts another at once.

        It was asked for, so it is no crash, and it closes the circuit: whoever repaired what kept failing need not
        wait for the breaker.
        """
        self.breaker = Breaker(policy=self._owner.policy.breaker)
        self._nudge.set()
        if self.browser is not None:
            self.is_restarting = True
            self._take_nothing_new()
            # Not by way of the watch, which may be waiting for a browser that hangs to answer.
            self._killing = asyncio.ensure_future(self.browser.stop())

    # --- Life -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep a browser here until the slot leaves or is cancelled; nothing of it runs afterwards."""
        try:
            if self._adopted is not None:
                await self._serve(self._adopted)
            while not self.is_leaving:
                await self._wait_for_circuit()
                browser = await self._start()
                if browser is not None:
                    await self._serve(browser)
        finally:
            await asyncio.shield(self._end())

    async def _wait_for_circuit(self) -> None:
        """Until the breaker admits a start; a restart by hand closes it meanwhile."""
        while (pause_ms := self.breaker.retry_at - self._owner.clock()) > 0:
            self._nudge.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_ms / 1000):
                    await self._nudge.wait()

    async def _start(self) -> BrowserPort | None:
        self.row = self._owner.new_row()
        self.breaker = self.breaker.started(self._owner.clock())
        await self._owner.record(self.row)
        try:
            return await self._owner.launcher.launch(self.row)
        except LaunchFailed as failure:
            await self._died(str(failure))
            return None

    async def _serve(self, browser: BrowserPort) -> None:
        """From the first answer of a browser to its end."""
        self.browser, self._unended, self.row = browser, browser, browser.row
        self.is_suspect = self.is_restarting = False
        self.is_sorting = self.is_sorting and browser is self._adopted
        self.is_draining = self.row.state is BrowserState.DRAINING
        self._end_reason = "drained" if self.is_draining else ""
        # What the one before cost says nothing about this one.
        self.usage = self.cpu_percent = None
        if self.row.state is BrowserState.STARTING:
            if not await self._listen(browser):
                await self._died("It did not answer when it had started.")
                return
            await self._move(BrowserEvent.LAUNCHED)
        self.tried.set()
        self._owner.slot_ready(self)
        gone = asyncio.ensure_future(browser.wait_gone())
        try:
            hung = await self._watch(browser, gone)
            if self.is_restarting:
                await self._retire("restarted")
            elif self.is_draining and not gone.done() and hung is None:
                await self._retire(self._end_reason)
            else:
                await self._died(hung if hung is not None else gone.result())
        finally:
            gone.cancel()

    async def _listen(self, browser: BrowserPort) -> bool:
        """Have the browser tell about its pages; False when it dies or hangs before that."""
        try:
            async with asyncio.timeout(2 * self._owner.policy.probe_limit_ms / 1000):
                await browser.watch_pages(self._owner.listen_on(self.row))
        except (TimeoutError, BrowserGone, CdpFailure) as error:
            log.warning("browser failed when it had started", browserId=self.row.id, error=str(error))
            return False
        return True

    async def _watch(self, browser: BrowserPort, gone: asyncio.Future[str]) -> str | None:
        """Returns when the browser is dead, is empty and wanted gone, or has to be killed (then with the reason)."""
        misses, worked_ms = 0, 0
        while True:
            # Asked each time: it may have changed.
            policy = self._owner.policy
            # After a miss it is asked again at once: two misses are two seconds, not three.
            await self._pause(gone, 0 if self.is_suspect else policy.probe_every_ms / 1000)
            if gone.done():
                return None
            self._recycle_if_due()
            if self.is_draining and not self.sessions:
                return None
            usage = await self._probe(browser, gone)
            if gone.done():
                return None
            if usage is not None:
                self._note(usage)
                if self.is_suspect:
                    self.is_suspect = False
                    self._owner.slot_changed(self)
                continue
            misses = misses + 1 if self.is_suspect else 1
            worked_ms, before_ms = browser.worked_ms(), worked_ms
            # One that works is not stuck: it is starved, or has a huge message in hand. It is given more time.
            is_at_work = worked_ms - before_ms >= policy.probe_limit_ms * AT_WORK_SHARE
            if misses >= (MISSES_MAX_AT_WORK if is_at_work else MISSES_MAX):
                return f"It did not answer for {misses * policy.probe_limit_ms} ms."
            self.is_suspect = True
            log.warning("browser missed a probe", browserId=self.row.id, misses=misses)

    async def _pause(self, gone: asyncio.Future[str], pause_s: float) -> None:
        """Until it is time, somebody nudges, or the browser dies."""
        nudged = asyncio.ensure_future(self._nudge.wait())
        try:
            await _first_of([gone, nudged], pause_s)
        finally:
            nudged.cancel()
        self._nudge.clear()

    async def _probe(self, browser: BrowserPort, gone: asyncio.Future[str]) -> Usage | None:
        """What it costs, if it answers in time."""
        probe = asyncio.ensure_future(browser.probe())
        try:
            await _first_of([gone, probe], self._owner.policy.probe_limit_ms / 1000)
            return probe.result() if probe.done() and probe.exception() is None else None
        finally:
            probe.cancel()
            # Looked at, so that a late failure of a probe nobody waits for is not reported as unheard.
            probe.add_done_callback(lambda probe: probe.cancelled() or probe.exception())

    def _note(self, usage: Usage) -> None:
        """A probe tells the latest measurement, which is the same one until there is a newer."""
        if usage is self.usage:
            return
        now = self._owner.clock()
        # All of it was used since the start, if there is nothing to compare with.
        since, used_ms = (self._measured_at, self.usage.cpu_ms) if self.usage else (self.row.started_at, 0)
        if usage.processes:
            # A process that ends takes its past along.
            self.cpu_percent = 100 * max(0, usage.cpu_ms - used_ms) / max(1, now - since)
        self.usage, self._measured_at = usage, now

    def _recycle_if_due(self) -> None:
        reason = None if self.is_draining else self._recycle_reason()
        if reason is not None:
            log.info("browser is recycled", browserId=self.row.id, reason=reason, served=self.row.sessions_served)
            self._owner.slot_recycled(self, reason)
            self.drain("recycled")
            self._owner.slot_changed(self)

    def _recycle_reason(self) -> str | None:
        """Why the browser has done its part; None while it has not."""
        policy = self._owner.policy
        if policy.is_single and self.sessions:
            # Nobody could be served until its last session has left: better to go on with it.
            return None
        if self.row.sessions_served >= policy.recycle_sessions:
            return "sessions"
        if self._owner.clock() - self.row.started_at >= policy.recycle_age_ms:
            return "age"
        if self.usage is not None and self.usage.pss_bytes > policy.recycle_pss_bytes:
            return "memory"
        if policy.is_private and self.row.sessions_served > 0 and not self.sessions:
            return "private"
        return None

    def _take_nothing_new(self) -> None:
        if self.row.state is BrowserState.READY:
            self.row = changed(self.row, state=advance(BROWSER, self.row.state, BrowserEvent.DRAIN))

    async def _retire(self, reason: str) -> None:
        """A planned end. Nobody is in it, unless a restart was asked for; then its sessions hear it before the disk."""
        self.browser = None
        self.stock.clear()
        self.sessions.clear()
        self._take_nothing_new()
        self._owner.slot_stopped(self, self.row, reason)
        await self._move(BrowserEvent.STOP)
        await self._end_process()
        await self._owner.forget(self.row)

    async def _died(self, reason: str) -> None:
        self.last_failure = reason
        self.tried.set()
        self.breaker = self.breaker.crashed(self._owner.clock())
        self.browser = None
        self.stock.clear()
        self.sessions.clear()
        row = self.row
        # Told before it is written: callers must not wait for the disk to hear that their browser is gone.
        self._owner.slot_gone(self, row, reason)
        await self._move(BrowserEvent.DIED)
        # The socket may have closed under a process that still lives: end it before its successor starts.
        await self._end_process()
        is_open = self.breaker.state(self._owner.clock()) is BreakerState.OPEN
        await self._move(BrowserEvent.TRIP if is_open else BrowserEvent.RETRY)
        await self._owner.forget(row)

    async def _move(self, event: BrowserEvent) -> None:
        self.row = changed(self.row, state=advance(BROWSER, self.row.state, event))
        await self._owner.record(self.row)

    async def _end_process(self) -> None:
        if self._unended is not None:
            await self._unended.stop()
            self._unended = None

    async def _end(self) -> None:
        self.browser = None
        self.stock.clear()
        await self._end_process()
        await self._owner.forget(self.row)


async def _first_of(futures: Collection[asyncio.Future[Any]], timeout_s: float) -> None:
    await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
