"""A whole broker on virtual time, with fake browsers, for tests of its verbs.

What every scene in a house keeps, without saying so: counters on disk equal a recount of the rows after every single
write; when all is quiet at the end, the node's own counts, the rows and what is in the browsers are the same; nothing
fails unheard; after the broker has stopped no browser runs.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import Any

import structlog
from tests.broker.disk import Disk
from tests.broker.lock_backend import SharedDomain
from tests.sim.fakes import (
    NO_FILES,
    Life,
    Process,
    SimLauncher,
    SimMarks,
    SimOwners,
    SimStore,
    SimTab,
    Target,
    sim_perform,
)
from tests.sim.virtual_loop import VirtualLoop

from tabherd import config, errors, wire
from tabherd.actions.progress import Progress
from tabherd.broker.broker import Broker
from tabherd.broker.caller import AGENT_SCOPES, Caller
from tabherd.broker.credentials import Credentials
from tabherd.broker.events import EventBus
from tabherd.broker.registry import LiveSession, LiveTab
from tabherd.browsers.port import BrowserGone, TabGone
from tabherd.core.lifecycle import LEASE, LeaseState, is_terminal
from tabherd.core.model import Node, Session, Tab
from tabherd.metrics import Metrics


def agent(name: str, controller_id: str = "") -> Caller:
    """A caller with an agent's usual scopes."""
    return Caller(agent_id=name, scopes=AGENT_SCOPES, controller_id=controller_id or name)


# Above those of clients.
BROKER_PID = 1_000_000
ADMIN = Caller(agent_id="root", scopes=frozenset({"admin"}), controller_id="root")
ADA, BOB, CYD = agent("ada"), agent("bob"), agent("cyd")


class Socket:
    """A connection as a session knows it; remembers that it was detached, and why."""

    def __init__(self) -> None:
        self.detached: list[errors.TabherdError] = []

    def detach(self, error: errors.TabherdError) -> None:
        self.detached.append(error)

    async def wait_detached(self) -> None:
        """At once: it sends nothing."""


class House:
    """One node: its broker in its present life, and everything that the broker touches."""

    def __init__(
        self,
        *,
        seed: int = 1,
        pools: dict[str, dict[str, Any]] | None = None,
        tiers: dict[str, int] | None = None,
        **settings: Any,
    ) -> None:
        self.loop = VirtualLoop()
        self.chance = Random(seed)
        self.disk = Disk()
        # Named locks, which programs of their own share.
        self.locks = SharedDomain(self.loop.clock_ms)
        self.processes: dict[str, Process] = {}
        # Processes of clients that run.
        self.pids: set[int] = set()
        # Every command that was sent to a page: target id and label.
        self.sent: list[tuple[str, str]] = []
        # Labels of commands that may end; see `act`.
        self.finished: set[str] = set()
        # Whether counts are compared at the end; a test that tampers with them says that they are not.
        self.is_counted = True
        self.config = config.parse(
            {
                "pools": {"default": {"browsers_max": 1, "warm": 0, **settings}, **(pools or {})},
                "tiers": tiers or {},
            }
        )
        self._marks: dict[int, tuple[str, str]] = {}
        self._task_marks: dict[int, tuple[str, str]] = {}
        self._lives: list[Life] = []
        self._minted = 0
        self._begin()

    # --- Lives of the broker --------------------------------------------------------------------------------

    def _begin(self) -> None:
        life = Life(self.chance, lambda _: None)
        self._lives.append(life)
        epoch = len(self._lives)
        # The broker's own process; of its former lives none is left.
        self.pids -= {BROKER_PID + former for former in range(epoch)}
        self.pids.add(BROKER_PID + epoch)
        store = SimStore(self.disk, life, fail_rate=0.0, drop_caps=False)
        self.store = store
        self.launcher = SimLauncher(self.processes, life, self._mint, fail_rate=0.0)
        self.owners = SimOwners(self.pids, self.loop.clock_ms)
        self.events = EventBus(epoch=epoch, ring=10_000, clock=self.loop.clock_ms)
        self.told = self.events.subscribe()
        self.broker = Broker(
            config=self.config,
            node=Node(id="nod_1", epoch=epoch, url="", pid=BROKER_PID + epoch, started_at=self.now),
            store=store,
            launcher=self.launcher,
            events=self.events,
            metrics=Metrics(),
            credentials=Credentials(store),
            marks=SimMarks(self._marks, life),
            task_marks=SimMarks(self._task_marks, life),
            webhook_secret=b"secret",
            files_dir=NO_FILES,
            memory_bytes=1 << 34,
            clock=self.loop.clock_ms,
            chance=self.chance,
            perform=self._perform,  # type: ignore[arg-type]
            owners=self.owners,  # type: ignore[arg-type]
            locks=self.locks,
        )
        self.operations = self.broker.operations

    async def kill(self) -> None:
        """The broker is killed, and started again on the same disk beside the same browsers."""
        self._lives[-1].is_dead = True
        self.locks.die()
        self._begin()
        await self.broker.start()

    async def restart(self) -> None:
        """The broker is stopped in order, and started again."""
        await self.broker.stop()
        self._begin()
        await self.broker.start()

    async def clear(self) -> None:
        """Nothing of any life may outlast the scene."""
        for life in self._lives:
            life.is_over = True
        leftovers = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in leftovers:
            task.cancel()
        await asyncio.gather(*leftovers, return_exceptions=True)

    # --- Verbs ----------------------------------------------------------------------------------------------

    async def open(self, caller: Caller = ADA, *, wait_ms: int = 5_000, **request: Any) -> wire.SessionView:
        return await self.broker.sessions.open(caller, wire.OpenSession(wait_ms=wait_ms, **request))

    async def act(
        self, session: wire.SessionView, label: str = "one", caller: Caller = ADA, **fields: Any
    ) -> wire.CommandView:
        """A command on the session's first tab. `...held` runs until `finish`; `...hang` for ever, whoever gives up."""
        action = wire.Evaluate(expression=label, **fields)
        return await self.broker.commands.run(caller, session.tabs[0].tab_id, action)

    async def goto(self, session: wire.SessionView, url: str, caller: Caller = ADA) -> wire.CommandView:
        return await self.broker.commands.run(caller, session.tabs[0].tab_id, wire.Navigate(url=url))

    async def beat(
        self, session: wire.SessionView, caller: Caller = ADA, fence: int | None = None
    ) -> wire.HeartbeatAnswer:
        beat = wire.Heartbeat(fence=session.fence if fence is None else fence)
        return await self.broker.sessions.heartbeat(caller, session.session_id, beat)

    async def release(self, session: wire.SessionView, caller: Caller = ADA, **how: Any) -> None:
        await self.broker.sessions.release(caller, session.session_id, **how)

    async def state(self, session: wire.SessionView) -> str:
        return (await self.broker.sessions.get(ADMIN, session.session_id)).state

    # --- What is there --------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        return self.loop.clock_ms()

    @property
    def browsers(self) -> list[wire.BrowserView]:
        return self.operations.browsers(ADMIN).browsers

    @property
    def ready_id(self) -> str:
        return next(browser.browser_id for browser in self.browsers if browser.state == "ready")

    @property
    def is_ready(self) -> bool:
        """Whether a session could be opened at once, in every pool."""
        return not self.broker.is_draining and all(pool.is_ready for pool in self.broker._pools.values())

    def stats(self, pool: str = "default") -> wire.PoolStats:
        return self.operations.stats(ADMIN).pools[pool]

    def live(self, session: wire.SessionView) -> LiveSession:
        live = self.broker._registry.session(session.session_id)
        assert live is not None, f"{session.session_id} is not bound"
        return live

    def is_bound(self, session: wire.SessionView) -> bool:
        return self.broker._registry.session(session.session_id) is not None

    def tab(self, session: wire.SessionView) -> LiveTab:
        return self.live(session).tabs[session.tabs[0].tab_id]

    def row(self, session: wire.SessionView) -> Session:
        """As it is on disk."""
        return next(row for row in self.disk.rows(Session) if row.id == session.session_id)

    def process(self, session: wire.SessionView) -> Process:
        return self.processes[self.live(session).row.browser_id]

    def page(self, session: wire.SessionView) -> Target:
        """The page behind the session's first tab."""
        return self.process(session).targets[self.tab(session).row.target_id]

    @property
    def pages(self) -> list[Target]:
        return [target for process in self.processes.values() for target in process.targets.values()]

    def metric(self, name: str, **labels: str) -> float | None:
        return self.broker.metrics.registry.get_sample_value(f"tabherd_{name}", labels)

    def news(self) -> Iterator[tuple[str, Any]]:
        """What was told since the last look: the type and the reason."""
        while (event := self.told.take()) is not None:
            yield event.type, event.fields.get("reason")

    # --- What happens ---------------------------------------------------------------------------------------

    def new_pid(self) -> int:
        """A client's process that runs."""
        self._minted += 1
        self.pids.add(self._minted)
        return self._minted

    def end_process(self, pid: int) -> None:
        self.pids.discard(pid)
        self.owners.die(pid)

    def crash(self, session: wire.SessionView) -> None:
        """The page behind the session's first tab dies."""
        self.process(session).crash_page(self.page(session))

    async def lose_browser(self, session: wire.SessionView) -> None:
        """The session's browser dies, and the broker knows."""
        self.process(session).die("killed")
        await self.until(lambda: self.live(session).browser is None)

    async def recovered(self, session: wire.SessionView) -> None:
        """Until the session is in a browser again."""
        await self.until(lambda: self.row(session).state is LeaseState.ACTIVE and self.live(session).browser)
        await self.quiet()

    def popup(self, session: wire.SessionView, url: str = "https://shop.test/pop") -> Target:
        """A script of the session's first page opens another one."""
        opener = self.page(session)
        return self.process(session).open_page(self._mint("popup"), opener.context, url, opener.target_id)

    def finish(self, label: str) -> None:
        """Let the command of that label end."""
        self.finished.add(label)

    async def until(self, is_so: Callable[[], Any], within_s: float = 1_000.0) -> int:
        """Let time pass until something is so; how many milliseconds that took."""
        began = self.now
        if is_so():
            return 0
        come: asyncio.Future[None] = self.loop.create_future()

        def look() -> bool:
            if not come.done() and is_so():
                come.set_result(None)
                return True
            return False

        self.loop.watches.append(look)
        try:
            async with asyncio.timeout(within_s):
                await come
        except TimeoutError:
            raise AssertionError("it never comes to be") from None
        finally:
            self.loop.watches.remove(look)
        return self.now - began

    async def quiet(self) -> None:
        """Until nothing goes on behind the callers' backs."""
        evictions = [admission._evictions for admission in self.broker._admissions.values()]
        # What is on disk is acknowledged a moment later, and may lead to more.
        for _ in range(2):
            await self.until(lambda: not self.broker._background and not any(evictions))
            await asyncio.sleep(0.02)

    async def replaced(self, browser_id: str) -> None:
        """Until that browser is gone and another one is ready."""
        await self.until(lambda: self.is_ready and browser_id not in [browser.browser_id for browser in self.browsers])

    def check_counts(self) -> None:
        """What the node counts in memory, what is on disk and what is in the browsers: all the same, when quiet."""
        contexts = {context_id for process in self.processes.values() for context_id in process.contexts}
        for name, admission in self.broker._admissions.items():
            rows = [row for row in self.disk.rows(Session) if row.pool == name and not is_terminal(LEASE, row.state)]
            pooled = [row.id for row in rows if row.state is LeaseState.POOLED]
            assert sorted(admission.stock._tabs) == sorted(pooled)
            assert sorted(admission._claims) == sorted(row.id for row in rows if row.id not in pooled)
            ids = {row.id for row in rows}
            assert admission.tabs == sum(tab.session_id in ids for tab in self.disk.rows(Tab))
            seated = [id for slot in self.broker._pools[name].slots for id in slot.sessions]
            assert sorted(seated) == sorted(row.id for row in rows if row.state is not LeaseState.RECOVERING)
            contexts -= {row.context_id for row in rows}
            contexts -= {seat.context_id for slot in self.broker._pools[name].slots for seat in slot.stock}
        assert not contexts, "contexts that nobody has"

    # --- Parts ----------------------------------------------------------------------------------------------

    async def _perform(self, tab: SimTab, action: wire.AnyAction, progress: Progress) -> Any:
        target, process = tab.target, tab.browser.process
        is_idle = target.active is None or target.is_crashed or not process.is_alive
        assert is_idle, f"{action} starts while {target.active} is at work"
        if not isinstance(action, wire.Evaluate):
            return await sim_perform(tab, action, progress)
        self.sent.append((target.target_id, action.expression))
        if not action.expression.endswith("held"):
            return await sim_perform(tab, action, progress)
        progress.acts()
        target.active = label = action.expression
        await self.until(lambda: label in self.finished or target.is_crashed or not process.is_alive, 100_000)
        if not process.is_alive:
            raise BrowserGone("the process died", was_sent=True)
        if target.is_crashed:
            raise TabGone("the page died", was_sent=True)
        target.active = None
        return label

    def _mint(self, what: str) -> str:
        self._minted += 1
        return f"{what}-{self._minted}"


Play = Callable[..., Coroutine[Any, Any, None]]


def in_house(**settings: Any) -> Callable[[Play], Callable[..., None]]:
    """Make a test of a scene that is played in a house with these settings; what else it takes are fixtures."""

    def as_test(play: Play) -> Callable[..., None]:
        def test(**fixtures: Any) -> None:
            run_in_house(lambda house: play(house, **fixtures), **settings)

        test.__name__, test.__doc__, test.__module__ = play.__name__, play.__doc__, play.__module__
        _, *others = inspect.signature(play).parameters.values()
        test.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
        return test

    return as_test


def run_in_house(play: Callable[[House], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Play a scene to its end on virtual time."""
    house = House(**settings)
    unheard: list[Any] = []

    async def scene() -> None:
        await house.broker.start()
        list(house.news())
        try:
            await play(house)
            if house.is_counted and not house.operations.is_stopping:
                await house.quiet()
                house.check_counts()
        finally:
            await house.broker.stop()

    asyncio.set_event_loop(house.loop)
    house.loop.set_exception_handler(lambda _, context: unheard.append(context))
    try:
        with structlog.testing.capture_logs() as logs:
            house.loop.run_until_complete(scene())
        assert not any(process.is_alive for process in house.processes.values())
    finally:
        # One that failed would fail again while the scene is cleared away.
        house.loop.watches.clear()
        house.loop.run_until_complete(house.clear())
        house.loop.close()
        asyncio.set_event_loop(None)
    failures = [entry for entry in logs if entry["log_level"] == "error"]
    assert not failures, failures
    # A request whose caller never looked at the answer is the test's own business; anything else is not.
    ours = [context for context in unheard if not isinstance(context.get("exception"), errors.TabherdError)]
    assert not ours, ours
