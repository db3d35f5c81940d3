"""The broker: puts the verbs together, brings the world in order at start, and leaves nothing behind at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import structlog

from .. import config, wire
from ..actions.engine import perform as perform_on_page
from ..browsers.pool import Listener, Pool
from ..browsers.port import BrowserPort, Launcher, Page, PageEnd, PageListener
from ..browsers.slot import Slot
from ..cluster.cluster import Cluster
from ..cluster.membership import Load
from ..config import Config
from ..core.breaker import BreakerState
from ..core.lifecycle import LEASE, NODE, BrowserState, NodeEvent, advance, is_terminal
from ..core.model import Browser, Node, changed
from ..errors import Draining, InvalidRequest, NoBrowser
from ..locks.base import AsyncBackend
from ..metrics import Metrics
from ..store.base import Delete, Put, Require, Store, Update
from .access import Access
from .admission import Admission
from .adoption import Adoption
from .audit import Auditor
from .checkpoints import Checkpoints
from .commands import Commands
from .credentials import Credentials
from .entering import Entering
from .events import EventBus
from .files import Files
from .history import History
from .idempotency import Keys
from .ids import Ids
from .leases import SERVER_STOPPED, Leases, Perform
from .ledger import Ledger
from .live import LiveViews
from .marks import Marks
from .named_locks import NamedLocks
from .node_views import lone_view, node_views
from .opening import Opening
from .operations import Operations
from .order import ordered
from .owners import Owners
from .patience import patiently
from .policies import PoolFollower, caps_of, policy_of, shared_caps_of
from .pooling import Pooling
from .readiness import Readiness
from .reaper import Reaper
from .recovery import Recovery
from .registry import LiveSession, Registry
from .sessions import Sessions
from .settings import Settings
from .shared_admission import SharedAdmission
from .tab_locks import TabLocks
from .tabs import Tabs
from .takeover import Takeover
from .tasking import Tasking
from .turns import Turns
from .waiting_rows import forget_node

log = structlog.get_logger("broker")

# How long work that goes on after its caller left may delay a stop.
STOP_LIMIT_S = 5.0
# When to ask again whether sessions are admitted.
RETRY_READY_MS = 1_000
# Lease states that are worth a gauge: those that hold something.
COUNTED_STATES = tuple(state for state in LEASE if not is_terminal(LEASE, state))


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
        task_marks: Marks,
        webhook_secret: bytes,
        files_dir: Path,
        memory_bytes: int,
        clock: Callable[[], int] = wall_clock_ms,
        chance: Random | None = None,
        perform: Perform = perform_on_page,
        owners: Owners | None = None,
        locks: AsyncBackend | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        # What is in force; it may change.
        self.settings = Settings(config)
        self.node = node
        # The other nodes; None: there are none, and never will be.
        self.cluster = cluster
        self.events = events
        self.metrics = metrics
        self.credentials = credentials
        self._launcher = launcher
        self.clock = self._clock = clock
        self._ids = Ids(clock, chance or SystemRandom(), node.epoch)
        self.registry = self._registry = Registry()
        self._ledger = Ledger(store)
        # Work that goes on after its caller left; bounded by the callers that were admitted.
        self._background: set[asyncio.Task[None]] = set()
        self._services: list[asyncio.Task[None]] = []
        self._store = store = ordered(store)
        self._readiness = Readiness(store)
        self._owners = owners or Owners(clock)
        self._pools = {name: self._make_pool(name, settings) for name, settings in config.pools.items()}
        self._admissions = {
            name: Admission(
                self._pools[name],
                caps_of(settings, memory_bytes),
                store_caps=None if cluster is None else shared_caps_of(settings),
                max_waiters=settings.max_waiters,
                clock=clock,
                close=lambda pooled: self._pooling.close(pooled),
            )
            for name, settings in config.pools.items()
        }
        self.settings.subscribe(
            PoolFollower(
                pools=self._pools,
                admissions=self._admissions,
                metrics=metrics,
                memory_bytes=memory_bytes,
                is_shared=cluster is not None,
            )
        )
        self.operations = Operations(
            node_id=node.id,
            pools=self._pools,
            admissions=self._admissions,
            registry=self._registry,
            events=events,
            clock=clock,
            evict_on=lambda browser_id: self._pooling.evict_on(browser_id),
        )
        if cluster is not None:
            self.operations.refuse_untrusted = cluster.membership.refuse_untrusted
        access = Access(
            store=store,
            registry=self._registry,
            clock=clock,
            refuse_untrusted=self.operations.refuse_untrusted,
        )
        turns = Turns(registry=self._registry, events=events, clock=clock)
        self.auditor = Auditor(store=store, ledger=self._ledger, ids=self._ids, clock=clock)
        self.tab_locks = TabLocks(
            settings=self.settings,
            registry=self._registry,
            access=access,
            turns=turns,
            events=events,
            auditor=self.auditor,
            ids=self._ids,
            clock=clock,
            refuse_when_draining=self.operations.refuse_commands,
        )
        self.named_locks = NamedLocks(
            settings=self.settings,
            node_id=node.id,
            store=store,
            backend=locks,
            owners=self._owners,
            events=events,
            auditor=self.auditor,
            metrics=metrics,
            operations=self.operations,
            ids=self._ids,
            clock=clock,
            spawn=self._spawn,
            cluster=cluster,
        )
        self._checkpoints = Checkpoints(
            node_id=node.id,
            store=store,
            registry=self._registry,
            keeps_cookies=lambda pool: not self.settings.current.pools[pool].is_single,
            clock=clock,
            spawn=self._spawn,
        )
        self.files = Files(
            root=files_dir,
            settings=self.settings,
            registry=self._registry,
            access=access,
            events=events,
            clock=clock,
            spawn=self._spawn,
        )
        self.leases = Leases(
            settings=self.settings,
            store=store,
            admissions=self._admissions,
            registry=self._registry,
            checkpoints=self._checkpoints,
            files=self.files,
            owners=self._owners,
            events=events,
            clock=clock,
        )
        self.opening = Opening(
            settings=self.settings,
            node_id=node.id,
            store=store,
            admissions=self._admissions,
            leases=self.leases,
            checkpoints=self._checkpoints,
            files=self.files,
            owners=self._owners,
            ids=self._ids,
            clock=clock,
            spawn=self._spawn,
            perform=perform,
        )
        self._pooling = Pooling(
            store=store,
            admissions=self._admissions,
            registry=self._registry,
            leases=self.leases,
            checkpoints=self._checkpoints,
            files=self.files,
            events=events,
            clock=clock,
        )
        self._recovery = Recovery(
            store=store,
            admissions=self._admissions,
            registry=self._registry,
            leases=self.leases,
            checkpoints=self._checkpoints,
            files=self.files,
            events=events,
            clock=clock,
            spawn=self._spawn,
            perform=perform,
        )
        # Where callers wait for places of all nodes, by pool; empty: there are no others.
        self._shared: dict[str, SharedAdmission] = {}
        if cluster is not None:
            self._shared = {
                name: SharedAdmission(
                    pool=pool,
                    admission=self._admissions[name],
                    store=store,
                    cluster=cluster,
                    operations=self.operations,
                    opening=self.opening,
                    choose=self._pooling.choose,
                    ids=self._ids,
                    clock=clock,
                    spawn=self._spawn,
                )
                for name, pool in self._pools.items()
            }
        entering = Entering(
            admissions=self._admissions,
            shared=self._shared,
            leases=self.leases,
            opening=self.opening,
            pooling=self._pooling,
            ids=self._ids,
            refuse_when_draining=self.operations.refuse_sessions,
            spawn=self._spawn,
        )
        self.sessions = Sessions(
            settings=self.settings,
            store=store,
            pools=self._pools,
            admissions=self._admissions,
            leases=self.leases,
            opening=self.opening,
            entering=entering,
            pooling=self._pooling,
            recovery=self._recovery,
            checkpoints=self._checkpoints,
            registry=self._registry,
            access=access,
            tab_locks=self.tab_locks,
            auditor=self.auditor,
            events=events,
            metrics=metrics,
            clock=clock,
            spawn=self._spawn,
        )
        self.tabs = Tabs(
            settings=self.settings,
            node_id=node.id,
            store=store,
            admissions=self._admissions,
            registry=self._registry,
            access=access,
            leases=self.leases,
            recovery=self._recovery,
            checkpoints=self._checkpoints,
            events=events,
            auditor=self.auditor,
            ids=self._ids,
            clock=clock,
            spawn=self._spawn,
        )
        self.live = LiveViews(
            settings=self.settings,
            registry=self._registry,
            access=access,
            tabs=self.tabs,
            auditor=self.auditor,
            metrics=metrics,
            clock=clock,
        )
        self.commands = Commands(
            settings=self.settings,
            node_id=node.id,
            epoch=node.epoch,
            registry=self._registry,
            access=access,
            turns=turns,
            tabs=self.tabs,
            recovery=self._recovery,
            checkpoints=self._checkpoints,
            files=self.files,
            keys=Keys(store=store, clock=clock),
            ledger=self._ledger,
            auditor=self.auditor,
            marks=marks,
            metrics=metrics,
            ids=self._ids,
            clock=clock,
            refuse_when_draining=self.operations.refuse_commands,
            spawn=self._spawn,
            perform=perform,
        )
        self.tasking = Tasking(
            config=config,
            node=node,
            store=store,
            registry=self._registry,
            access=access,
            commands=self.commands,
            sessions=self.sessions,
            marks=task_marks,
            webhook_secret=webhook_secret,
            chance=chance or SystemRandom(),
            events=events,
            metrics=metrics,
            ids=self._ids,
            clock=clock,
            operations=self.operations,
            spawn=self._spawn,
            cluster=cluster,
            seats=lambda pool: self._pools[pool].free_seats,
        )
        self.settings.subscribe(lambda _, new: self.tasking.reconfigure(new))
        self.reaper = Reaper(
            store=store,
            registry=self._registry,
            leases=self.leases,
            pooling=self._pooling,
            owners=self._owners,
            events=events,
            metrics=metrics,
            clock=clock,
        )
        self._adoption = Adoption(
            node_id=node.id,
            store=store,
            launcher=launcher,
            pools=self._pools,
            admissions=self._admissions,
            leases=self.leases,
            pooling=self._pooling,
            recovery=self._recovery,
            checkpoints=self._checkpoints,
            files=self.files,
            marks=marks,
            events=events,
            clock=clock,
            listen=self._listen_on,
        )
        if cluster is not None:
            self._takeover = Takeover(
                node_id=node.id,
                store=store,
                pools=self._pools,
                adoption=self._adoption,
                membership=cluster.membership,
                chance=chance or SystemRandom(),
                is_draining=lambda: self.is_draining,
            )
            cluster.membership.load = self._load
        self.history = History(
            metrics=metrics,
            registry=self._registry,
            pools=self._pools,
            admissions=self._admissions,
            tasking=self.tasking,
            clock=clock,
        )
        # Set once it knows what an earlier life left; before that, sessions that live are unknown to it.
        self.has_settled = asyncio.Event()
        # Every browser that it starts with has been tried.
        self._has_started = False
        self._feed_gauges()

    # --- Life -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Settle what an earlier life left, then start the browsers and the services."""
        await self._adoption.run()
        await self.named_locks.start()
        self._ledger.start()
        await asyncio.gather(*(shared.start() for shared in self._shared.values()))
        await self.tasking.start()
        self.has_settled.set()
        self._services = [
            asyncio.create_task(self.reaper.run(), name="reaper"),
            asyncio.create_task(self.reaper.forget_forever(), name="forget"),
            asyncio.create_task(self.history.run(), name="history"),
            *(asyncio.create_task(shared.run(), name=f"waiters of {name}") for name, shared in self._shared.items()),
        ]
        await asyncio.gather(*(pool.wait_tried() for pool in self._pools.values()))
        self._has_started = True
        if self.cluster is not None:
            # Not before it has browsers to put sessions into.
            self.cluster.membership.on_gone = self._inherit

    async def stop(self) -> None:
        """End every browser. Sessions that are open are kept on disk with their state, for the next start."""
        self.operations.stop()
        for service in self._services:
            service.cancel()
        if self._services:
            await asyncio.wait(self._services)
        if self._shared:
            await self._take_back_places()
        await self.tasking.stop()
        await self.named_locks.stop()
        kept = await asyncio.gather(*(self._keep(live) for live in self._registry), return_exceptions=True)
        # A store that is away must not keep browsers alive: the next start settles what could not be written.
        for error in (error for error in kept if isinstance(error, Exception)):
            log.warning("a session could not be kept in order", error=str(error))
        if self._background:
            _, unfinished = await asyncio.wait(self._background, timeout=STOP_LIMIT_S)
            for task in unfinished:
                task.cancel()
        await self.tasking.stop_telling()
        await asyncio.gather(*(pool.stop() for pool in self._pools.values()))
        self._owners.close()
        await self._ledger.stop()

    async def _take_back_places(self) -> None:
        """What is kept for callers of other nodes. Whatever cannot be written now, others see to."""
        stopping = [asyncio.ensure_future(shared.stop()) for shared in self._shared.values()]
        done, unfinished = await asyncio.wait(stopping, timeout=STOP_LIMIT_S)
        for task in unfinished:
            task.cancel()
        for error in (task.exception() for task in done):
            if error is not None:
                log.warning("a place could not be taken back", error=str(error))

    async def _keep(self, live: LiveSession) -> None:
        """A session that outlives this server: the next one finds it as if its browser had died."""
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                await self._checkpoints.take(live, is_wanted=True)
        except TimeoutError:
            log.warning("a session is kept as it was written down last", sessionId=live.row.id)
        self.leases.unbind(live, SERVER_STOPPED)
        for tab in live.tabs.values():
            if tab.row.provenance == "borrowed" and live.browser is not None:
                # What is not ours must not end with us.
                await live.browser.let_go(tab.row.target_id)

    async def drain(self) -> None:
        """Take nothing new, for good, and wait until no command runs."""
        self.operations.stop()
        await self._registry.idle.wait()

    async def _inherit(self, gone: Node) -> None:
        """Take over, together with the other nodes, what a node has left that is over; then forget it."""
        await self.named_locks.release_node(gone)
        await forget_node(self._store, gone.id, Require(Node, gone.id, gone.version))
        # Tasks that need no session of it do not wait for those that do.
        await asyncio.gather(self._takeover.run(gone), self.tasking.settle_node(gone))
        # Nothing is left of it. Its row stays, so that no later life of it can be taken for that one.
        await self._store.apply(Update(changed(gone, state=advance(NODE, gone.state, NodeEvent.INHERIT))))

    def _load(self) -> Load:
        return Load(
            is_draining=self.is_draining,
            sessions=len(self._registry),
            free_seats=sum(pool.free_seats for pool in self._pools.values()),
        )

    def drop_controller(self, controller_id: str) -> None:
        """A controller's connection is closed: its queued and running commands end, and so do its tab locks."""
        self.commands.drop_controller(controller_id)
        self.tab_locks.drop_controller(controller_id)

    def any_browser(self) -> BrowserPort | None:
        """A browser that runs, to be asked what browsers here are."""
        return next((slot.browser for slot in self._slots() if slot.browser is not None), None)

    def nodes(self) -> wire.NodePage:
        """All nodes that share the store."""
        if self.cluster is None:
            load = self._load()
            return wire.NodePage(nodes=[lone_view(self.node, load)])
        return wire.NodePage(nodes=node_views(self.cluster.membership, self._load(), self._clock()))

    @property
    def is_draining(self) -> bool:
        """Whether no session is admitted."""
        return self.operations.is_draining

    async def readiness(self, pool: str | None = None) -> dict[str, wire.PoolReadiness]:
        """How ready each pool is, or that one alone; raises while no session could be opened in any of them.

        A pool that fails says nothing about its neighbours: the node is ready while one of them admits sessions.
        """
        if self.is_draining:
            raise Draining("The server admits no new session.", retry_after_ms=RETRY_READY_MS)
        self.operations.refuse_untrusted()
        await self._readiness.refuse_unwritable()
        if pool is not None and pool not in self._pools:
            raise InvalidRequest(f"pool: there is no pool '{pool}'.", field="pool", pools=sorted(self._pools))
        pools = {name: _readiness(each) for name, each in self._pools.items() if pool in (None, name)}
        if not self._has_started or all(state == "unready" for state in pools.values()):
            # Why is the operator's to know: strangers may ask.
            raise NoBrowser("No browser is ready yet.", retry_after_ms=RETRY_READY_MS, pools=pools)
        return pools

    # --- Parts ----------------------------------------------------------------------------------------------

    def _make_pool(self, name: str, settings: config.Pool) -> Pool:
        return Pool(
            name,
            policy=policy_of(settings),
            launcher=self._launcher,
            listener=Listener(
                record=self._record_browser,
                listen_on=self._listen_on,
                forget=self._forget_browser,
                on_ready=lambda row: self._publish_browser("browser.ready", row),
                on_gone=self._browser_gone,
                on_recycled=self._browser_recycled,
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
            for lease_state in COUNTED_STATES:
                metrics.sessions.labels(name, lease_state).set_function(partial(admission.count, lease_state))
            metrics.acquire_waiters.labels(name).set_function(partial(getattr, admission, "waiting"))
            metrics.pool_capacity.labels(name).set(admission.caps.max_active)
        for state in BrowserState:
            metrics.browsers.labels(state).set_function(partial(self._count_browsers, state))
        for circuit in BreakerState:
            metrics.browser_circuit.labels(circuit).set_function(partial(self._count_circuits, circuit))
        metrics.count_tasks(self.tasking.scheduler.count)
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

    def _listen_on(self, row: Browser) -> PageListener:
        return _Pages(row, self.settings, self._pools[row.pool], self.tabs, self._pooling, self._registry)

    def _browser_gone(self, row: Browser, reason: str) -> None:
        """Its contexts died with it: the sessions that were in it get another one."""
        self.metrics.browser_crashes_total.inc()
        self._publish_browser("browser.crashed", row, reason=reason)
        log.warning("browser gone", browserId=row.id, pool=row.pool, reason=reason)
        self._recover_all(row, "browser_crashed")

    def _browser_recycled(self, row: Browser, reason: str) -> None:
        self._publish_browser("browser.recycled", row, reason=reason)
        self._pooling.evict_on(row.id)

    def _browser_stopped(self, row: Browser, reason: str) -> None:
        """A planned end. Only a restart takes sessions along; otherwise the last one had left."""
        self._publish_browser("browser.stopped", row, reason=reason)
        log.info("browser stopped", browserId=row.id, pool=row.pool, reason=reason)
        self._recover_all(row, "browser_restarted")

    def _recover_all(self, row: Browser, reason: str) -> None:
        self._pooling.evict_on(row.id)
        for live in self._registry.on_browser(row.id):
            self._recovery.browser_died(live, reason)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background work failed", exc_info=error)


def _readiness(pool: Pool) -> wire.PoolReadiness:
    if pool.is_ready:
        return "ready"
    return "idle" if pool.is_idle else "unready"


class _Pages:
    """Tells one browser's news about pages to whom they concern."""

    def __init__(
        self, browser: Browser, settings: Settings, pool: Pool, tabs: Tabs, pooling: Pooling, registry: Registry
    ) -> None:
        self._registry = registry
        self._stock = pool
        self._browser_id = browser.id
        self._pool = browser.pool
        self._settings = settings
        self._tabs = tabs
        self._pooling = pooling

    def page_opened(self, page: Page) -> None:
        self._tabs.page_opened(self._browser_id, page)

    def page_ended(self, target_id: str, how: PageEnd) -> None:
        self._stock.page_ended(target_id)
        self._tabs.page_ended(target_id, how)
        self._pooling.page_ended(target_id)

    def page_moved(self, target_id: str, url: str, title: str) -> None:
        self._tabs.page_moved(target_id, url, title)

    def answers_dialogs(self, target_id: str) -> bool:
        return self._registry.answers_dialogs(target_id)

    def accepts_dialogs(self) -> bool:
        return self._settings.current.pools[self._pool].dialogs == "accept"
