"""Keeps a pool's browsers running: starts them, notices their death by push, and starts the next one.

A pool has slots; a slot holds one browser at a time and remembers, in its circuit breaker, how often browsers died in
it. Death is never polled for: `wait_gone` returns when the process exits or its control socket closes. Every state
change is recorded before it is acted on, so that a restarted broker finds what an earlier life had started.

This layer knows neither the store nor sessions: it is given `record` to write a row down and `on_gone` to tell
whoever had something in a browser that died.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from ..core.breaker import Breaker, BreakerState
from ..core.lifecycle import BROWSER, BrowserEvent, BrowserState, advance
from ..core.model import Browser, changed
from ..errors import NoBrowser
from .port import BrowserPort, Launcher, LaunchFailed

Record = Callable[[Browser], Awaitable[None]]
OnGone = Callable[[Browser, str], None]
OnReady = Callable[[Browser], None]


class Slot:
    """One place for a browser."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.breaker = Breaker()
        # The browser in it; None unless its state is ready or draining.
        self.browser: BrowserPort | None = None
        self.row = pool.new_row()
        # Why the last browser here died or could not start.
        self.last_failure = ""
        # Set once the first start has ended, well or not.
        self.tried = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        return self.browser is not None and self.row.state is BrowserState.READY

    async def run(self) -> None:
        """Keep a browser here until cancelled; the one that runs then is stopped."""
        try:
            while True:
                await self._wait_for_breaker()
                await self._serve_one_browser()
        finally:
            await self._stop()

    async def _wait_for_breaker(self) -> None:
        await asyncio.sleep(max(0, self.breaker.retry_at - self._pool.clock()) / 1000)

    async def _serve_one_browser(self) -> None:
        """One browser from start to death."""
        self.row = self._pool.new_row()
        self.breaker = self.breaker.started(self._pool.clock())
        await self._pool.record(self.row)
        try:
            browser = await self._pool.launcher.launch(self.row)
        except LaunchFailed as failure:
            await self._died(str(failure))
            return
        self.browser = browser
        self.row = browser.row
        await self._move(BrowserEvent.LAUNCHED)
        self.tried.set()
        self._pool.on_ready(self.row)
        reason = await browser.wait_gone()
        await self._died(reason)

    async def _died(self, reason: str) -> None:
        self.last_failure = reason
        self.tried.set()
        self.breaker = self.breaker.crashed(self._pool.clock())
        dead, self.browser = self.browser, None
        # Told before it is written: callers must not wait for the disk to hear that their browser is gone.
        self._pool.on_gone(self.row, reason)
        await self._move(BrowserEvent.DIED)
        if dead is not None:
            # The control socket may have closed under a process that still lives: end it before its successor starts.
            await dead.stop()
        is_open = self.breaker.state(self._pool.clock()) is BreakerState.OPEN
        await self._move(BrowserEvent.TRIP if is_open else BrowserEvent.RETRY)
        await self._pool.forget(self.row)

    async def _move(self, event: BrowserEvent) -> None:
        self.row = changed(self.row, state=advance(BROWSER, self.row.state, event))
        await self._pool.record(self.row)

    async def _stop(self) -> None:
        browser, self.browser = self.browser, None
        if browser is not None:
            await browser.stop()
        await self._pool.forget(self.row)


class Pool:
    """The browsers of one pool."""

    def __init__(
        self,
        name: str,
        *,
        launcher: Launcher,
        new_row: Callable[[], Browser],
        record: Record,
        forget: Record,
        on_ready: OnReady,
        on_gone: OnGone,
        clock: Callable[[], int],
        size: int = 1,
    ) -> None:
        self.name = name
        self.launcher = launcher
        self.new_row = new_row
        self.record = record
        self.forget = forget
        self.on_gone = on_gone
        self.clock = clock
        self.on_ready = on_ready
        self.slots = [Slot(self) for _ in range(size)]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start every slot; returns at once."""
        self._tasks = [asyncio.create_task(slot.run(), name=f"slot {self.name}") for slot in self.slots]

    async def stop(self) -> None:
        """End every browser of the pool."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def wait_tried(self) -> None:
        """Returns once every slot has either a browser or a failure to show."""
        await asyncio.gather(*(slot.tried.wait() for slot in self.slots))

    @property
    def is_ready(self) -> bool:
        return any(slot.is_ready for slot in self.slots)

    def browser(self, browser_id: str) -> BrowserPort | None:
        """The live browser of that id."""
        return next((s.browser for s in self.slots if s.browser is not None and s.row.id == browser_id), None)

    def pick(self) -> BrowserPort:
        """A browser that takes new sessions, or the typed refusal."""
        for slot in self.slots:
            if slot.is_ready and slot.browser is not None:
                return slot.browser
        now = self.clock()
        reason = next((slot.last_failure for slot in self.slots if slot.last_failure), "it is starting")
        raise NoBrowser(
            f"No browser of pool '{self.name}' is ready: {reason}.",
            retry_after_ms=max(250, min(slot.breaker.retry_at - now for slot in self.slots)),
            pool=self.name,
            reason=reason,
        )
