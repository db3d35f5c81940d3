"""The broker: puts the verbs together, brings the world in order at start, and leaves nothing behind at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random, SystemRandom
from typing import Any

import structlog

from .. import config
from ..actions.engine import perform as perform_on_page
from ..browsers.pool import Listener, Pool, PoolPolicy
from ..browsers.port import Launcher
from ..browsers.slot import Slot, SlotPolicy
from ..config import Config
from ..core import lease
from ..core.breaker import BreakerPolicy, BreakerState
from ..core.lifecycle import BrowserState, LeaseState
from ..core.model import Browser, Node
from ..metrics import Metrics
from ..store.base import Delete, Put, Store
from .admission import Admission
from .adoption import Adoption
from .commands import Commands
from .credentials import Credentials
from .events import EventBus
from .ids import Ids
from .leases import Leases, Perform
from .ledger import Ledger
from .marks import Marks
from .operations import Operations
from .patience import patiently
from .reaper import Reaper
from .registry import Registry
from .sessions import Sessions

log = structlog.get_logger("broker")

# How long work that goes on after its caller left may delay a stop.
STOP_LIMIT_S = 5.0


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
        marks: Marks,
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
        self._store = store
        self._launcher = launcher
        self._clock = clock
        self._ids = Ids(clock, chance or SystemRandom(), node.epoch)
        self._registry = Registry()
        self._ledger = Ledger(store)
        # Work that goes on after its caller left; bounded by the callers that were admitted.
        self._background: set[asyncio.Task[None]] = set()
        self._services: list[asyncio.Task[None]] = []
        self._pools = {name: self._make_pool(name, settings) for name, settings in config.pools.items()}
        self._admissions = {
            name: Admission(
                self._pools[name],
                _caps_of(settings, memory_bytes),
                max_waiters=settings.max_waiters,
                clock=clock,
            )
            for name, settings in config.pools.items()
        }
        self.operations = Operations(
            node_id=node.id,
            pools=self._pools,
            admissions=self._admissions,
            registry=self._registry,
            events=events,
            clock=clock,
        )
        self.leases = Leases(
            config=config,
            node_id=node.id,
            store=store,
            admissions=self._admissions,
            registry=self._registry,
            events=events,
            ids=self._ids,
            clock=clock,
            perform=perform,
        )
        self.sessions = Sessions(
            config=config,
            store=store,
            pools=self._pools,
            admissions=self._admissions,
            leases=self.leases,
            registry=self._registry,
            events=events,
            metrics=metrics,
            ids=self._ids,
            clock=clock,
            refuse_when_draining=self.operations.refuse_sessions,
            spawn=self._spawn,
        )
        self.commands = Commands(
            config=config,
            node_id=node.id,
            epoch=node.epoch,
            store=store,
            registry=self._registry,
            leases=self.leases,
            ledger=self._ledger,
            marks=marks,
            events=events,
            metrics=metrics,
            ids=self._ids,
            clock=clock,
            refuse_when_draining=self.operations.refuse_commands,
            spawn=self._spawn,
            perform=perform,
        )
        self.reaper = Reaper(
            store=store,
            registry=self._registry,
            leases=self.leases,
            metrics=metrics,
            times_of=lambda pool: lease.LeaseTimes(idle_ttl_ms=config.pools[pool].idle_ttl_s * 1000),
            clock=clock,
        )

        self._adoption = Adoption(
            node_id=node.id,
            store=store,
            launcher=launcher,
            pools=self._pools,
            admissions=self._admissions,
            leases=self.leases,
            commands=self.commands,
            marks=marks,
        )
        self._feed_gauges()

    # --- Life -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Settle what an earlier life left, then start the browsers and the services."""
        await self._adoption.run()
        self._ledger.start()
        self._services = [
            asyncio.create_task(self.reaper.run(), name="reaper"),
            asyncio.create_task(self.reaper.forget_forever(), name="forget"),
        ]
        await asyncio.gather(*(pool.wait_tried() for pool in self._pools.values()))

    async def stop(self) -> None:
        """End every session and browser; afterwards no process, context or unfinished row of this node is left."""
        self.operations.stop()
        for service in self._services:
            service.cancel()
        if self._services:
            await asyncio.wait(self._services)
        ended = await asyncio.gather(
            *(self.leases.end(live, "server_stopped") for live in self._registry), return_exceptions=True
        )
        # A store that is away must not keep browsers alive: the next start settles what could not be written.
        for error in (error for error in ended if isinstance(error, Exception)):
            log.warning("a session could not be ended in order", error=str(error))
        if self._background:
            _, unfinished = await asyncio.wait(self._background, timeout=STOP_LIMIT_S)
            for task in unfinished:
                task.cancel()
        await asyncio.gather(*(pool.stop() for pool in self._pools.values()))
        await self._ledger.stop()

    async def drain(self) -> None:
        """Take nothing new, for good, and wait until no command runs."""
        self.operations.stop()
        await self._registry.idle.wait()

    @property
    def is_draining(self) -> bool:
        """Whether no session is admitted."""
        return self.operations.is_draining

    @property
    def is_ready(self) -> bool:
        """Whether a session could be opened now."""
        return not self.is_draining and all(pool.is_ready for pool in self._pools.values())

    # --- Parts ----------------------------------------------------------------------------------------------

    def _make_pool(self, name: str, settings: config.Pool) -> Pool:
        return Pool(
            name,
            policy=_policy_of(settings),
            launcher=self._launcher,
            listener=Listener(
                record=self._record_browser,
                forget=self._forget_browser,
                on_ready=lambda row: self._publish_browser("browser.ready", row),
                on_gone=self._browser_gone,
                on_recycled=lambda row, reason: self._publish_browser("browser.recycled", row, reason=reason),
                on_stopped=self._browser_stopped,
                on_capacity=lambda: self._admissions[name].pump(),
            ),
            new_row=lambda: Browser(
                id=self._ids.mint("brw"),
                node_id=self.node.id,
                pool=name,
                state=BrowserState.STARTING,
                started_at=self._clock(),
            ),
            clock=self._clock,
        )

    def _feed_gauges(self) -> None:
        """Gauges are read off the state when somebody scrapes, so they cannot drift."""
        metrics = self.metrics
        for name in self._pools:
            admission = self._admissions[name]
            for lease_state in (LeaseState.RESERVED, LeaseState.ACTIVE, LeaseState.CLOSING):
                metrics.sessions.labels(name, lease_state).set_function(partial(admission.count, lease_state))
            metrics.acquire_waiters.labels(name).set_function(partial(getattr, admission, "waiting"))
            metrics.pool_capacity.labels(name).set(admission.caps.max_active)
        for state in BrowserState:
            metrics.browsers.labels(state).set_function(partial(self._count_browsers, state))
        for circuit in BreakerState:
            metrics.browser_circuit.labels(circuit).set_function(partial(self._count_circuits, circuit))
        metrics.gate_depth.set_function(
            lambda: sum(len(tab.waiting) for live in self._registry for tab in live.tabs.values())
        )

    def _count_browsers(self, state: BrowserState) -> int:
        return sum(slot.row.state is state for slot in self._slots())

    def _count_circuits(self, state: BreakerState) -> int:
        now = self._clock()
        return sum(slot.breaker.state(now) is state for slot in self._slots())

    def _slots(self) -> list[Slot]:
        return [slot for pool in self._pools.values() for slot in pool.slots]

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
            self._spawn(self.leases.lose(live, "browser_crashed"))

    def _browser_stopped(self, row: Browser, reason: str) -> None:
        """A planned end. Only a restart takes sessions along; otherwise the last one had left."""
        self._publish_browser("browser.stopped", row, reason=reason)
        log.info("browser stopped", browserId=row.id, pool=row.pool, reason=reason)
        for live in self._registry.on_browser(row.id):
            self._spawn(self.leases.lose(live, "browser_restarted"))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background work failed", exc_info=error)


def _caps_of(settings: config.Pool, memory_bytes: int) -> lease.Caps:
    """The pool's caps; never more sessions than its browsers have seats."""
    return lease.Caps(
        max_active=min(settings.max_active or lease.derive_max_active(memory_bytes), _policy_of(settings).seats_max),
        max_active_per_key=settings.max_active_per_key,
        max_active_per_agent=settings.max_active_per_agent,
    )


def _policy_of(settings: config.Pool) -> PoolPolicy:
    return PoolPolicy(
        browsers_min=settings.browsers_min,
        browsers_max=settings.browsers_max,
        warm=settings.warm,
        shrink_after_ms=settings.shrink_after_s * 1000,
        slot=SlotPolicy(
            sessions_per_browser=settings.sessions_per_browser,
            probe_every_ms=settings.probe_every_ms,
            probe_limit_ms=settings.probe_limit_ms,
            recycle_sessions=settings.recycle_sessions,
            recycle_age_ms=settings.recycle_age_s * 1000,
            recycle_pss_bytes=settings.recycle_pss_mb << 20,
            breaker=BreakerPolicy(
                crashes_max=settings.breaker_crashes,
                window_ms=settings.breaker_window_s * 1000,
                open_ms=settings.breaker_open_s * 1000,
                open_max_ms=settings.breaker_open_max_s * 1000,
            ),
            is_private=settings.isolation == "browser",
            is_shared=settings.isolation == "shared",
            is_single=settings.is_single,
        ),
    )
