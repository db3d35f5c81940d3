"""One simulated history: a broker that is killed and started again, who uses it, and what happens to it.

What is played here is judged elsewhere: `rules` says what must hold of sessions, tabs and commands, `verb_rules` of
what else is done to these, `task_rules` and `task_turns` of tasks, `webhook_rules` of what is told about them,
`lock_rules` of named locks. A history is decided by its seed alone, and by what is left out of it (`script`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextvars import copy_context
from typing import Any, NoReturn, TypeVar

import structlog

from tabherd import errors, wire
from tabherd.actions.progress import Progress
from tabherd.broker.broker import Broker
from tabherd.broker.credentials import Credentials
from tabherd.core.model import Node, RowT
from tabherd.metrics import Metrics
from tabherd.store.base import Add, Delete, Insert, Op, Outcome, Put, Update
from tabherd.store.memory import MemoryStore

from .clients import Clients, ConnectionLost
from .coverage import Coverage
from .fakes import Process, SimLauncher, SimMarks, SimOwners, SimStore, SimTab, Violation, sim_perform
from .faults import Faults
from .file_clients import FileDir
from .lives import LIFE, VERB, HeardEvents, SteppedLife
from .lock_clients import LockClients
from .lock_rules import LockRules
from .operator import Operator
from .rules import Rules
from .script import PACE, Script
from .task_clients import TaskClients, is_task
from .task_rules import TaskRules
from .verb_rules import VerbRules
from .virtual_loop import VirtualLoop
from .weather import Weather
from .webhook_rules import Receiver

T = TypeVar("T")
# Everybody has left long before the end; how often it is looked whether all is over before that.
LONG_AFTER_S = 120
LOOK_EVERY_S = 2
# One history of so many is watched to the very end, over or not.
LONG_ONE_OF = 16
# The process of the broker in its first life; above those of clients.
BROKER_PID = 1_000_000
# How often it is looked for what is left after a history.
CLEARED_WITHIN = 5


class Disk(MemoryStore):
    """What survives every kill, and how often it changed: judges look only at what has."""

    def __init__(self) -> None:
        super().__init__()
        # How often something was written at all, and into each table.
        self.writes = 0
        self._writes_of: Counter[type] = Counter()
        # Who looks at what is about to be written.
        self.judge: Callable[[Sequence[Op]], None] | None = None

    def write(self, *ops: Op) -> Outcome:
        if self.judge is not None:
            self.judge(ops)
        self.writes += 1
        writes_of = self._writes_of
        for op in ops:
            if isinstance(op, Add):
                writes_of[Add] += 1
            elif isinstance(op, Insert | Update | Put):
                writes_of[type(op.row)] += 1
            elif isinstance(op, Delete):
                writes_of[op.table] += 1
        return super().write(*ops)

    def changes(self, *tables: type) -> int:
        """How often any of these was written; counters are the table `Add`."""
        writes, total = self._writes_of, 0
        for table in tables:
            total += writes.get(table, 0)
        return total

    def rows(self, table: type[RowT]) -> dict[str, RowT]:
        """By id; the same dictionary from the first row to the last."""
        return self._state.rows.setdefault(table, {})  # type: ignore[return-value]

    @property
    def counters(self) -> dict[str, int]:
        return {name: value for name, value in self._state.counters.items() if value and "seq:" not in name}


class World:
    def __init__(self, seed: int, *, left_out: Collection[str] = (), drop_caps: bool = False) -> None:
        self.seed = seed
        self.script = Script(seed, left_out)
        self.weather = Weather(self.script.chance("weather"))
        self.loop = VirtualLoop()
        self.history: list[str] = []
        self.disk = Disk()
        # What the configuration file says; it survives, too.
        self.config = self.weather.config
        self.processes: dict[str, Process] = {}
        self.marks: dict[int, tuple[str, str]] = {}
        self.task_marks: dict[int, tuple[str, str]] = {}
        # Processes that run: of clients, and the broker's own.
        self.alive_pids: set[int] = set()
        # How far the machine's clock is from where it would be if nobody had set it, and how much it was set in all.
        self.skew_ms = 0
        self.set_ms = 0
        self.epoch = 0
        # Pages that were closed when the broker started. If their rows outlived them, they look to it like pages that
        # died, and are opened again.
        self.closed_before: set[str] = set()
        # Tabs that were at work then, as far as the broker can know: the last one may have died before the page was.
        self.marked_before: set[str] = set()
        self.life: SteppedLife
        self.broker: Broker
        self.lives: list[SteppedLife] = []
        self.steps = 0
        self.coverage = Coverage()
        # What had been written when locks were looked at last.
        self._judged_writes = 0
        # Where files of sessions are; absent in histories without files, which are cheaper.
        self.file_dir = FileDir(self.script)
        self.loop.on_thread = self._check_thread
        self._drop_caps = drop_caps
        self._minted = 0
        # Every request ever made: those of killed brokers are never answered, but must not be collected either.
        self._requests: list[asyncio.Future[Any]] = []
        self._violation: Violation | None = None
        self._playing: asyncio.Task[None]
        # Everybody who does something in this history.
        self._actors: list[asyncio.Task[None]] = []
        self.rules = Rules(self)
        self.verb_rules = VerbRules(self)
        self.disk.judge = self.verb_rules.check_write
        self.task_rules = TaskRules(self)
        self.lock_rules = LockRules(self)
        self.receiver = Receiver(self)
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
                self.file_dir.remove()
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
        PACE.set(self.script.pace("world"))
        while not await self._start_life():
            self.life.kill()
        self.clients.start()
        self.task_clients.start()
        LockClients(self).start()
        Operator(self).start()
        self.start(Faults(self).happen())
        while not all(actor.done() for actor in self._actors):
            await asyncio.wait(self._actors)
        for actor in self._actors:
            actor.result()
        self.tell("everybody leaves; time passes")
        is_long = self.seed % LONG_ONE_OF == 0
        for _ in range(LONG_AFTER_S // LOOK_EVERY_S):
            await asyncio.sleep(LOOK_EVERY_S)
            if not is_long and not any(self._complaints()):
                break
        self.check()
        for complaint in self._complaints():
            self.violate(complaint)
        await self.rules.check_end()
        self.task_rules.check_end()

    def _check_thread(self, work: Callable[..., Any]) -> None:
        self.file_dir.note_thread(work)
        self.verb_rules.check_thread(work)

    def _complaints(self) -> list[str]:
        """What is left in the end, and should not be."""
        return [
            *self.rules.left(),
            *self.task_rules.left(),
            *self.lock_rules.left(),
            *self.receiver.left(),
            *self.file_dir.left(),
        ]

    async def _clear(self) -> None:
        """Nothing may outlast the history, nor what begins because something was ended."""
        for _ in range(CLEARED_WITHIN):
            leftovers = self.loop.unfinished() - {asyncio.current_task()}
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
            self.history.append(f"{self.loop.now_s - 1000:9.4f}s  {what}")

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

    def clock_ms(self) -> int:
        """What the machine's clock says."""
        return int(self.loop.now_s * 1000) + self.skew_ms

    def check(self) -> None:
        """What must hold whenever anything looks at the world."""
        self.steps += 1
        if self._violation is None:
            self.rules.check()
            self.task_rules.check()
            if self.disk.writes != self._judged_writes:
                self._judged_writes = self.disk.writes
                self.lock_rules.check()

    def _check_idle(self) -> None:
        """What must hold when nothing is left to do but to wait."""
        if self._violation is None and not self.life.is_dead:
            try:
                self.task_rules.check_idle()
            except Violation:
                # The loop itself called this; what was noted fails the history.
                self.loop.on_idle = None

    # --- Lives of the broker --------------------------------------------------------------------------------

    async def _start_life(self, limit_s: float | None = None) -> bool:
        """Start the broker on what the last one left; False if that is not done within the time."""
        self.epoch += 1
        self.closed_before = {
            target_id
            for process in self.processes.values()
            for target_id, target in process.made.items()
            if target.is_closed
        }
        self.marked_before = {tab_id for tab_id, _ in self.marks.values()}
        self.life = life = SteppedLife(self)
        self.lives.append(life)
        life.owners = SimOwners(self.alive_pids, self.clock_ms)
        self.alive_pids.add(BROKER_PID + self.epoch)
        life.broker = self.broker = life.context.copy().run(self._make_broker, life)
        self.task_rules.begin_life()
        self.lock_rules.begin_life()
        self.tell(f"broker starts, epoch {self.epoch}")
        context = life.context.copy()
        context.run(VERB.set, "start")
        self.coverage.verbs["start"] += 1
        starting = self.loop.create_task(self.broker.start(), context=context)
        self._requests.append(starting)
        await asyncio.wait([starting, life.death], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            return False
        if isinstance(starting.exception(), errors.StoreUnavailable):
            # Such a server ends with an error, and whoever runs it starts it again.
            self.tell(f"the broker cannot start: {starting.exception()!r}")
            return False
        starting.result()
        life.is_settled = True
        return True

    def _make_broker(self, life: SteppedLife) -> Broker:
        weather = self.weather
        store = SimStore(
            self.disk,
            life,
            fail_rate=weather.store_fail_rate,
            lose_rate=weather.store_lose_rate,
            drop_caps=self._drop_caps,
        )
        broker = Broker(
            config=self.config,
            node=Node(id="nod_1", epoch=self.epoch, url="", pid=BROKER_PID + self.epoch, started_at=self.clock_ms()),
            store=store,
            launcher=SimLauncher(
                self.processes, life, self.mint, fail_rate=weather.launch_fail_rate, late_rate=weather.late_rate
            ),
            events=HeardEvents(self, life),
            metrics=Metrics(),
            credentials=Credentials(store),
            marks=SimMarks(self.marks, life),
            task_marks=SimMarks(self.task_marks, life),
            webhook_secret=b"secret",
            files_dir=self.file_dir.path,
            memory_bytes=1 << 34,
            clock=self.clock_ms,
            chance=self.script.chance(f"ids {self.epoch}"),
            perform=self._perform,
            owners=life.owners,
        )
        self.receiver.listen(broker, life)
        return broker

    async def restart(self, limit_s: float | None, down_s: float) -> bool:
        """Kill the broker, and start it again after a while; False if that is not done within the time."""
        self.life.kill()
        await asyncio.sleep(down_s)
        return await self._start_life(limit_s)

    def killed(self, life: SteppedLife) -> None:
        """That life has just ended."""
        self.coverage.strike("broker is killed")
        if not life.is_settled:
            self.coverage.both["start", "broker is killed"] += 1
        self.tell("broker is killed")
        self.rules.forget_life()
        self.lock_rules.forget_life()
        self.alive_pids.discard(BROKER_PID + self.epoch)

    def mint(self, what: str) -> str:
        self._minted += 1
        return f"{what}-{self._minted}"

    def mint_pid(self) -> int:
        """A client's process that runs."""
        self._minted += 1
        self.alive_pids.add(self._minted)
        return self._minted

    def end_process(self, pid: int) -> None:
        """A client's process ends."""
        self.tell(f"process {pid} ends")
        self.alive_pids.discard(pid)
        self.life.hears(self.life.owners.die, pid)

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

    async def call(self, name: str, verb: Callable[[Broker], Awaitable[T]], leaves_after_s: float | None = None) -> T:
        """A caller's request: it is lost when the broker is killed, and cancelled when the caller leaves."""
        death = self.life.death
        if death.done():
            # Nobody listens: what answers from memory alone would answer even so.
            raise ConnectionLost
        context = copy_context()
        context.run(_begin_request, self.life, name)
        request = self.loop.create_task(_serve(verb, self.broker), context=context)
        self._requests.append(request)
        with self.coverage.call(name):
            await asyncio.wait([request, death], timeout=leaves_after_s, return_when=asyncio.FIRST_COMPLETED)
            if not death.done() and not request.done():
                self.coverage.strike("caller leaves")
                request.cancel()
                await asyncio.wait([request, death], return_when=asyncio.FIRST_COMPLETED)
        if death.done():
            raise ConnectionLost
        return request.result()

    async def quietly(self, work: Coroutine[Any, Any, None]) -> None:
        """Whatever somebody hears who does this, it is no news."""
        try:
            await work
        except (errors.TabherdError, ConnectionLost) as error:
            self.tell(f"somebody hears {error!r}")


def _begin_request(life: SteppedLife, name: str) -> None:
    LIFE.set(life)
    VERB.set(name)


async def _serve(verb: Callable[[Broker], Awaitable[T]], broker: Broker) -> T:
    """Whoever comes while the broker starts waits until it knows what it is asked for."""
    if not broker.has_settled.is_set():
        await broker.has_settled.wait()
    return await verb(broker)
