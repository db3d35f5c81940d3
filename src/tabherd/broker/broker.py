"""The broker: puts the verbs together, brings the world in order at start, and leaves nothing behind at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random, SystemRandom
from typing import Any

import structlog

from .. import wire
from ..actions.engine import perform as perform_on_page
from ..browsers.port import Launcher
from ..browsers.supervisor import Pool
from ..config import Config
from ..core import lease
from ..core.lifecycle import LEASE, BrowserState, LeaseState, is_terminal
from ..core.model import Browser, Node, Session
from ..errors import Draining
from ..metrics import Metrics
from ..store.base import Delete, Put, Store
from .caller import Caller
from .commands import Commands
from .credentials import Credentials
from .events import EventBus
from .ids import Ids
from .ledger import Ledger
from .patience import patiently
from .reaper import Reaper
from .registry import LiveSession, Registry
from .sessions import Perform, Sessions
from .views import browser_view

log = structlog.get_logger("broker")


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Broker:
    """One node's verbs and the state behind them."""

    def __init__(
        self,
        *,
        config: Config,
        node: Node,
        store: Store,
        launcher: Launcher,
        events: EventBus,
        metrics: Metrics,
        credentials: Credentials,
        memory_bytes: int,
        clock: Callable[[], int] = wall_clock_ms,
        chance: Random | None = None,
        perform: Perform = perform_on_page,
    ) -> None:
        self.config = config
        self.node = node
        self.events = events
        self.metrics = metrics
        self.credentials = credentials
        self.is_draining = False
        self._store = store
        self._launcher = launcher
        self._clock = clock
        self._ids = Ids(clock, chance or SystemRandom(), node.epoch)
        self._registry = Registry()
        self._ledger = Ledger(store)
        # Work that goes on after its caller left; bounded by the callers that were admitted.
        self._background: set[asyncio.Task[None]] = set()
        self._services: list[asyncio.Task[None]] = []
        self._pools = {name: self._make_pool(name) for name in config.pools}
        caps = {
            name: lease.Caps(
                max_active=pool.max_active or lease.derive_max_active(memory_bytes),
                max_active_per_key=pool.max_active_per_key,
                max_active_per_agent=pool.max_active_per_agent,
            )
            for name, pool in config.pools.items()
        }
        self.sessions = Sessions(
            config=config,
            node_id=node.id,
            store=store,
            pools=self._pools,
            caps=caps,
            registry=self._registry,
            events=events,
            metrics=metrics,
            ids=self._ids,
            clock=clock,
            refuse_when_draining=self._refuse_when_draining,
            spawn=self._spawn,
            perform=perform,
        )
        self.commands = Commands(
            config=config,
            node_id=node.id,
            epoch=node.epoch,
            store=store,
            registry=self._registry,
            sessions=self.sessions,
            ledger=self._ledger,
            events=events,
            metrics=metrics,
            ids=self._ids,
            clock=clock,
            refuse_when_draining=self._refuse_when_draining,
            spawn=self._spawn,
            perform=perform,
        )
        self.reaper = Reaper(
            store=store,
            registry=self._registry,
            sessions=self.sessions,
            metrics=metrics,
            times_of=lambda pool: lease.LeaseTimes(idle_ttl_ms=config.pools[pool].idle_ttl_s * 1000),
            clock=clock,
        )

        self._feed_gauges()

    # --- Life -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Settle what an earlier life left, then start the browsers and the services."""
        await self._settle_leftovers()
        self._ledger.start()
        for pool in self._pools.values():
            pool.start()
        self._services = [
            asyncio.create_task(self.reaper.run(), name="reaper"),
            asyncio.create_task(self.reaper.forget_forever(), name="forget"),
        ]
        await asyncio.gather(*(pool.wait_tried() for pool in self._pools.values()))

    async def stop(self) -> None:
        """End every session and browser; afterwards no process, context or unfinished row of this node is left."""
        self.is_draining = True
        for service in self._services:
            service.cancel()
        if self._services:
            await asyncio.wait(self._services)
        for live in self._registry:
            await self.sessions.end(live, "server_stopped")
        while self._background:
            await asyncio.wait(self._background)
        for pool in self._pools.values():
            await pool.stop()
        await self._ledger.stop()

    async def drain(self) -> None:
        """Admit nothing new and wait until no command runs."""
        self.is_draining = True
        await self._registry.idle.wait()

    @property
    def is_ready(self) -> bool:
        """Whether a session could be opened now."""
        return not self.is_draining and all(pool.is_ready for pool in self._pools.values())

    # --- Reads ----------------------------------------------------------------------------------------------

    def browsers(self, caller: Caller) -> wire.BrowserPage:
        """Every browser of this node."""
        caller.require("browse")
        rows = [slot.row for pool in self._pools.values() for slot in pool.slots]
        return wire.BrowserPage(browsers=[browser_view(row, len(self._registry.on_browser(row.id))) for row in rows])

    # --- Parts ----------------------------------------------------------------------------------------------

    def _refuse_when_draining(self) -> None:
        if self.is_draining:
            raise Draining("The server is stopping.", retry_after_ms=1_000)

    def _make_pool(self, name: str) -> Pool:
        return Pool(
            name,
            launcher=self._launcher,
            new_row=lambda: Browser(
                id=self._ids.mint("brw"),
                node_id=self.node.id,
                pool=name,
                state=BrowserState.STARTING,
                started_at=self._clock(),
            ),
            record=self._record_browser,
            forget=self._forget_browser,
            on_ready=lambda row: self._publish_browser("browser.ready", row),
            on_gone=self._browser_gone,
            clock=self._clock,
        )

    def _feed_gauges(self) -> None:
        """Gauges are read off the state when somebody scrapes, so they cannot drift."""
        for name in self._pools:
            self.metrics.sessions.labels(name, LeaseState.ACTIVE).set_function(partial(self._count_sessions, name))
        for state in BrowserState:
            self.metrics.browsers.labels(state).set_function(partial(self._count_browsers, state))
        self.metrics.gate_depth.set_function(
            lambda: sum(len(tab.waiting) for live in self._registry for tab in live.tabs.values())
        )

    def _count_sessions(self, pool: str) -> int:
        return sum(live.row.pool == pool for live in self._registry)

    def _count_browsers(self, state: BrowserState) -> int:
        return sum(row.state is state for row in self._browser_rows())

    def _browser_rows(self) -> list[Browser]:
        return [slot.row for pool in self._pools.values() for slot in pool.slots]

    async def _record_browser(self, row: Browser) -> None:
        await patiently(lambda: self._store.apply(Put(row)))

    async def _forget_browser(self, row: Browser) -> None:
        async def forget() -> None:
            stored = await self._store.get(Browser, row.id)
            if stored is not None:
                await self._store.apply(Delete(Browser, row.id, stored.version))

        await patiently(forget)

    def _publish_browser(self, event: str, row: Browser, **fields: Any) -> None:
        self.events.publish(event, browserId=row.id, pool=row.pool, **fields)

    def _browser_gone(self, row: Browser, reason: str) -> None:
        """Its contexts died with it: end the sessions that were in it."""
        self.metrics.browser_crashes_total.inc()
        self._publish_browser("browser.crashed", row, reason=reason)
        log.warning("browser gone", browserId=row.id, pool=row.pool, reason=reason)
        for live in self._registry.on_browser(row.id):
            self._spawn(self._lose(live))

    async def _lose(self, live: LiveSession) -> None:
        await patiently(lambda: self.sessions.end(live, "browser_crashed"))

    async def _settle_leftovers(self) -> None:
        """What an earlier life of this node left: its browsers are ended, its sessions closed and uncounted."""
        for row in await self._store.select(Browser, {"node_id": self.node.id}):
            await self._launcher.reap(row)
            await self._store.apply(Delete(Browser, row.id, row.version))
        for state in (state for state in LEASE if not is_terminal(LEASE, state)):
            for session in await self._store.select(Session, {"node_id": self.node.id, "state": state.value}):
                await self.sessions.settle_leftover(session, "broker_restarted")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background work failed", exc_info=error)
