"""One simulated history: a broker that is killed and started again, who uses it, and what happens to it.

What is played here is judged elsewhere: `rules` says what must hold of sessions, tabs and commands, `task_rules` and
`task_turns` what must hold of tasks. A history is decided by its seed alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, NoReturn, TypeVar

import msgspec
import structlog

from tabherd import errors, wire
from tabherd.actions.progress import Progress
from tabherd.broker.broker import Broker
from tabherd.broker.credentials import Credentials
from tabherd.broker.events import Event, EventBus
from tabherd.config import Config, Pool, Retention, Scheduler
from tabherd.core.model import Node, RowT
from tabherd.metrics import Metrics
from tabherd.store.base import Op, Outcome
from tabherd.store.memory import MemoryStore

from .clients import Clients, ConnectionLost
from .fakes import (
    NO_FILES,
    Life,
    Process,
    SimLauncher,
    SimMarks,
    SimOwners,
    SimStore,
    SimTab,
    Violation,
    sim_perform,
)
from .faults import Faults
from .rules import Rules
from .task_clients import TaskClients, is_task
from .task_rules import TaskRules
from .virtual_loop import VirtualLoop

T = TypeVar("T")
# Everybody has left long before the end.
LONG_AFTER_S = 200
# The process of the broker in its first life; above those of clients.
BROKER_PID = 1_000_000
# How often it is looked for what is left after a history.
CLEARED_WITHIN = 5
# How often the disk refuses.
STORE_FAIL_RATE = 0.01
CONFIG = Config(
    pools={
        "default": Pool(
            max_active=4,
            max_active_per_key=2,
            max_active_per_agent=3,
            max_pooled=3,
            max_pooled_per_key=2,
            pooled_ttl_s=20,
            max_tabs=6,
            heartbeat_s=2,
            stale_after_s=5,
            idle_ttl_s=5,
            owner_dead_grace_ms=500,
            deadline_grace_s=10,
        )
    },
    scheduler=Scheduler(
        workers=3,
        max_inflight_per_agent=2,
        queue_max=20,
        queue_max_per_agent=10,
        deadline_ms=6_000,
        priority_aging_ms=500,
        result_ttl_s=15,
    ),
    retention=Retention(tasks_s=60, rejected_max=3),
)


class Disk(MemoryStore):
    """What survives every kill, and how often it changed."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    async def apply(self, *ops: Op) -> Outcome:
        self.writes += 1
        return await super().apply(*ops)

    def rows(self, table: type[RowT]) -> dict[str, RowT]:
        """By id."""
        return self._state.rows.get(table, {})  # type: ignore[return-value]

    @property
    def counters(self) -> dict[str, int]:
        return {name: value for name, value in self._state.counters.items() if value and "seq:" not in name}


class World:
    def __init__(self, seed: int, *, drop_caps: bool = False) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.loop = VirtualLoop()
        self.history: list[str] = []
        self.disk = Disk()
        # What the configuration file says; it survives, too.
        scheduler = msgspec.structs.replace(CONFIG.scheduler, attempts_max=self.chance.choice((1, 2)))
        self.config = msgspec.structs.replace(CONFIG, scheduler=scheduler)
        self.processes: dict[str, Process] = {}
        self.marks: dict[int, tuple[str, str]] = {}
        self.task_marks: dict[int, tuple[str, str]] = {}
        # Processes that run: of clients, and the broker's own.
        self.alive_pids: set[int] = set()
        self.epoch = 0
        self.life: SteppedLife
        self.broker: Broker
        self.lives: list[SteppedLife] = []
        self.steps = 0
        self._drop_caps = drop_caps
        self._death: asyncio.Future[None]
        self._minted = 0
        # Every request ever made: those of killed brokers are never answered, but must not be collected either.
        self._requests: list[asyncio.Future[Any]] = []
        self._violation: Violation | None = None
        self._playing: asyncio.Task[None]
        # Everybody who does something in this history.
        self._actors: list[asyncio.Task[None]] = []
        self.rules = Rules(self)
        self.task_rules = TaskRules(self)
        self.clients = Clients(self)
        self.task_clients = TaskClients(self)

    # --- Running --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Play the history; raises `Violation`."""
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(self._task_failed)
        self.loop.on_idle = self._check_idle
        with structlog.testing.capture_logs() as logs:
            try:
                self._playing = self.loop.create_task(self._play())
                self.loop.run_until_complete(asyncio.wait([self._playing]))
            finally:
                self.loop.on_idle = None
                for life in self.lives:
                    life.is_over = True
                    # Or it would start another task for each that is ended here.
                    life.broker.operations.stop()
                self.loop.run_until_complete(self._clear())
                self.loop.close()
                asyncio.set_event_loop(None)
        if self._violation is not None:
            raise self._violation
        self._playing.result()
        for entry in logs:
            if entry["log_level"] == "error":
                raise Violation(f"something failed unheard: {entry}")

    def _task_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A task died of an exception that nobody awaited: ours to hear of, unless a violation caused it."""
        error = context.get("exception")
        if error is not None and not isinstance(error, Violation | errors.TabherdError):
            self._note_violation(f"a task died of {error!r}")

    async def _play(self) -> None:
        await self._start_life()
        self.clients.start()
        self.task_clients.start()
        self.start(Faults(self).happen())
        while not all(actor.done() for actor in self._actors):
            await asyncio.wait(self._actors)
        for actor in self._actors:
            actor.result()
        self.tell("everybody leaves; time passes")
        await asyncio.sleep(LONG_AFTER_S)
        self.check()
        await self.rules.check_end()
        self.task_rules.check_end()

    async def _clear(self) -> None:
        """Nothing may outlast the history, nor what begins because something was ended."""
        for _ in range(CLEARED_WITHIN):
            leftovers = asyncio.all_tasks() - {asyncio.current_task()}
            for task in leftovers:
                task.cancel()
            await asyncio.gather(*leftovers, *self._requests, return_exceptions=True)
            self._requests.clear()

    def start(self, actor: Coroutine[Any, Any, None]) -> None:
        """Somebody does something from now on."""
        self._actors.append(asyncio.create_task(actor))

    def tell(self, what: str) -> None:
        """Goes into the history, which ends with the first violation."""
        if self._violation is None:
            self.history.append(f"{self.loop.now_s - 1000:10.4f}s  {what}")

    def violate(self, what: str) -> NoReturn:
        raise self._note_violation(what)

    def _note_violation(self, what: str) -> Violation:
        """The first one ends the history."""
        self.tell(f"VIOLATION: {what}")
        if self._violation is None:
            self._violation = Violation(what)
            self._playing.cancel()
        return self._violation

    @property
    def is_violated(self) -> bool:
        """Whether nothing is as it should be any more."""
        return self._violation is not None

    def check(self) -> None:
        """What must hold whenever anything looks at the world."""
        self.steps += 1
        if not self.is_violated:
            self.rules.check()
            self.task_rules.check()

    def _check_idle(self) -> None:
        """What must hold when nothing is left to do but to wait."""
        if not self.is_violated and not self.life.is_dead:
            try:
                self.task_rules.check_idle()
            except Violation:
                # The loop itself called this; what was noted fails the history.
                self.loop.on_idle = None

    # --- Lives of the broker --------------------------------------------------------------------------------

    async def _start_life(self, limit_s: float | None = None) -> bool:
        """Start the broker on what the last one left; False if that is not done within the time."""
        self.epoch += 1
        life = SteppedLife(self)
        life.owners = SimOwners(self.alive_pids, self.loop.clock_ms)
        self.life = life
        self.lives.append(life)
        self.alive_pids.add(BROKER_PID + self.epoch)
        self._death = self.loop.create_future()
        store = SimStore(self.disk, life, fail_rate=STORE_FAIL_RATE, drop_caps=self._drop_caps)
        self.broker = Broker(
            config=self.config,
            node=Node(
                id="nod_1", epoch=self.epoch, url="", pid=BROKER_PID + self.epoch, started_at=self.loop.clock_ms()
            ),
            store=store,
            launcher=SimLauncher(self.processes, life, self.mint, fail_rate=0.1),
            events=HeardEvents(self, life),
            metrics=Metrics(),
            credentials=Credentials(store),
            marks=SimMarks(self.marks, life),
            task_marks=SimMarks(self.task_marks, life),
            webhook_secret=b"secret",
            files_dir=NO_FILES,
            memory_bytes=1 << 34,
            clock=self.loop.clock_ms,
            chance=self.chance,
            perform=self._perform,
            owners=life.owners,
        )
        life.broker = self.broker
        self.task_rules.begin_life()
        self.tell(f"broker starts, epoch {self.epoch}")
        starting = asyncio.ensure_future(self.broker.start())
        self._requests.append(starting)
        await asyncio.wait([starting], timeout=limit_s)
        if starting.done():
            starting.result()
            life.is_settled = True
        return starting.done()

    async def restart(self) -> None:
        """Kill the broker, and sometimes the next one in the middle of its start."""
        is_up = False
        while not is_up:
            self.tell("broker is killed")
            self.rules.forget_locks()
            self.life.is_dead = True
            self.alive_pids.discard(BROKER_PID + self.epoch)
            self._death.set_result(None)
            await asyncio.sleep(self.chance.random())
            is_up = await self._start_life(self.chance.random() * 0.05 if self.chance.random() < 0.2 else None)

    def mint(self, what: str) -> str:
        self._minted += 1
        return f"{what}-{self._minted}"

    def mint_pid(self) -> int:
        """A client's process that runs."""
        self._minted += 1
        self.alive_pids.add(self._minted)
        return self._minted

    async def _perform(self, tab: SimTab, action: wire.AnyAction, progress: Progress) -> Any:
        # Timers of a dead life still fire here, but nothing that it does reaches the world.
        await tab.browser._life.alive()
        try:
            if isinstance(action, wire.Evaluate):
                if is_task(action.expression):
                    acted = self.task_rules.check_run(tab, action.expression)
                    return await sim_perform(tab, action, progress, acted)
                self.rules.check_command(tab, action)
            return await sim_perform(tab, action, progress)
        except Violation as violation:
            self.violate(str(violation))

    # --- Requests -------------------------------------------------------------------------------------------

    async def call(self, verb: Callable[[Broker], Awaitable[T]], leaves_after_s: float | None = None) -> T:
        """A caller's request: it is lost when the broker is killed, and cancelled when the caller leaves."""
        death = self._death
        if death.done():
            # Nobody listens: what answers from memory alone would answer even so.
            raise ConnectionLost
        request = asyncio.ensure_future(self._serve(verb, self.broker))
        self._requests.append(request)
        await asyncio.wait([request, death], timeout=leaves_after_s, return_when=asyncio.FIRST_COMPLETED)
        if death.done():
            raise ConnectionLost
        if request.done():
            return request.result()
        request.cancel()
        await asyncio.wait([request, death], return_when=asyncio.FIRST_COMPLETED)
        if not request.done():
            raise ConnectionLost
        return request.result()

    async def _serve(self, verb: Callable[[Broker], Awaitable[T]], broker: Broker) -> T:
        """Whoever comes while the broker starts waits until it knows what it is asked for."""
        await broker.has_settled.wait()
        return await verb(broker)

    async def quietly(self, work: Coroutine[Any, Any, None]) -> None:
        """Whatever somebody hears who does this, it is no news."""
        try:
            await work
        except (errors.TabherdError, ConnectionLost) as error:
            self.tell(f"somebody hears {error!r}")


class SteppedLife(Life):
    """A life that checks the world whenever it touches it."""

    owners: SimOwners
    broker: Broker

    def __init__(self, world: World) -> None:
        super().__init__(world.chance, world.tell)
        self._world = world
        # Whether the broker has taken up what was left to it.
        self.is_settled = False

    async def step(self, most_ms: float = 3.0) -> None:
        await super().step(most_ms)
        if not self.is_over:
            self._world.check()


class HeardEvents(EventBus):
    """The events of one life, each of which is looked at in the moment in which it is told."""

    def __init__(self, world: World, life: Life) -> None:
        super().__init__(epoch=world.epoch, ring=1_000, clock=world.loop.clock_ms)
        self._world = world
        self._life = life

    def tell(self, type: str, fields: dict[str, Any]) -> Event:
        is_heard = not self._life.is_dead and not self._life.is_over and not self._world.is_violated
        if is_heard and type.startswith("task."):
            self._world.task_rules.hear(type.removeprefix("task."), fields["taskId"])
        return super().tell(type, fields)
