"""One simulated history of several nodes: who uses them, and what happens to them.

What is played here is judged by `rules`, `tab_rules`, `verb_rules`, `task_rules`, `webhook_rules` and `lock_rules`. A
history is decided by its seed alone.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Collection, Coroutine, Iterator
from typing import Any, NoReturn, TypeVar

import msgspec
import structlog
from tests.broker.claim_twin import Turns
from tests.sim.fakes import SimTab, Violation, sim_perform
from tests.sim.script import PACE, Script
from tests.sim.webhook_rules import RECEIVER

from tabherd import config, errors, wire
from tabherd.actions.progress import Progress
from tabherd.cluster.fenced_store import is_fenced

from .chance import Choices, Steps, on_behalf
from .clients import Clients
from .database import Database
from .faults import Faults
from .front_door import Call, ConnectionLost, FrontDoor
from .lock_clients import LockClients
from .lock_rules import LockRules
from .lock_server import LockServer
from .machine_loop import MachineLoop
from .node import Machine, NodeLife
from .receiver import Receiver
from .rules import Rules
from .tab_rules import TabRules
from .task_clients import TaskClients
from .task_rules import TaskRules
from .verb_clients import VerbClients
from .verb_rules import VerbRules
from .webhook_rules import WebhookRules

T = TypeVar("T")
# A quarter of the defaults, so that a history is short; what counts is how they relate to each other.
CLUSTER = config.Cluster(beat_s=0.75, pause_after_s=1.75, dead_after_s=2.5)
CONFIG = config.Config(
    pools={
        "default": config.Pool(
            browsers_max=1,
            warm=1,
            max_active=4,
            max_active_per_key=2,
            max_active_per_agent=3,
            max_pooled=3,
            max_pooled_per_key=2,
            pooled_ttl_s=20,
            heartbeat_s=2,
            stale_after_s=8,
            idle_ttl_s=8,
            owner_dead_grace_ms=500,
            deadline_grace_s=10,
        )
    },
    scheduler=config.Scheduler(
        workers=3,
        max_inflight_per_agent=2,
        queue_max=20,
        queue_max_per_agent=10,
        deadline_ms=6_000,
        priority_aging_ms=500,
        result_ttl_s=15,
    ),
    retention=config.Retention(tasks_s=60, rejected_max=3),
    webhooks=config.Webhooks(allow_hosts=(RECEIVER,), retry_ms=500, limit_ms=1_500, max_inflight_per_host=2),
    cluster=CLUSTER,
)
# Nobody acts for longer than this, whatever it waits for.
ACTED_WITHIN_S = 400
# Everybody has left long before the end.
LONG_AFTER_S = 60
# How often it is looked whether anything is left; one history of so many goes on until the end all the same.
LOOK_EVERY_S = 3
LONG_ONE_OF = 10
# How often it is looked for what is left after a history.
CLEARED_WITHIN = 20
CLEARED_S = 1.0


class World:
    def __init__(self, seed: int, *, left_out: Collection[str] = ()) -> None:
        self.seed = seed
        self.script = Script(seed, left_out)
        # Of whoever does something, and of whoever takes a step.
        self.choices = Choices()
        self.pace = Steps()
        self.loop = MachineLoop()
        self.loop.outside.run(PACE.set, self.script.pace("world"))
        self.history: list[str] = []
        weather = self.script.chance("weather")
        scheduler = msgspec.structs.replace(CONFIG.scheduler, attempts_max=weather.choice((1, 2)))
        tries = self.script.chance("webhooks").choice((1, 2, 3, 4))
        webhooks = msgspec.structs.replace(CONFIG.webhooks, attempts_max=tries)
        self.config = msgspec.structs.replace(CONFIG, scheduler=scheduler, webhooks=webhooks)
        self.rules = Rules(self)
        self.task_rules = TaskRules(self)
        self.webhook_rules = WebhookRules(self)
        self.lock_rules = LockRules(self)
        self.tab_rules = TabRules(self)
        self.verb_rules = VerbRules(self)
        self.database = Database(self)
        self.turns = Turns(self.database)
        self.lock_server = LockServer()
        self.front_door = FrontDoor(self)
        self.receiver = Receiver(self)
        # Of all nodes, in the order in which they began.
        self.lives: list[NodeLife] = []
        self._minted = 0
        # What the nodes have logged.
        self.logs: list[Any] = []
        self.steps = 0
        self.machines: dict[str, Machine] = {}
        for number in range(1, weather.choice((2, 2, 2, 3, 3, 4, 5)) + 1):
            machine = Machine(self, number)
            self.machines[machine.node_id] = machine
        # Kept, so that nothing of a killed process is collected in the middle of a history.
        self._kept: list[asyncio.Future[Any]] = []
        self._violation: Violation | None = None
        self._playing: asyncio.Task[None]
        # Everybody who does something in this history.
        self._actors: list[asyncio.Task[None]] = []
        self.clients = Clients(self)
        self.task_clients = TaskClients(self)
        self.lock_clients = LockClients(self)
        self.verb_clients = VerbClients(self)
        self.faults = Faults(self)

    # --- Running --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Play the history; raises `Violation`."""
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(self._task_failed)
        was_collecting = gc.isenabled()
        gc.disable()
        with structlog.testing.capture_logs() as self.logs:
            try:
                self._playing = self.loop.create_task(self._play(), context=self.loop.outside.copy())
                self.loop.run_until_complete(asyncio.wait([self._playing]))
            finally:
                self.steps = self.loop.turns
                self.loop.turns = 0
                self.loop.end_all()
                for life in self.lives:
                    life.touch.is_over = True
                    # Or it would start another task for each that is ended here.
                    life.broker.operations.stop()
                self.loop.run_until_complete(self._clear())
                self.loop.close()
                asyncio.set_event_loop(None)
                if was_collecting:
                    gc.enable()
        if self._violation is not None:
            raise self._violation
        self._playing.result()
        for entry in self.logs:
            if entry["log_level"] == "error" and not _is_end_of_life(entry):
                raise Violation(f"something failed unheard: {entry}")

    def _task_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A task died of an exception that nobody awaited: ours to hear of, unless a violation caused it."""
        error = context.get("exception")
        known = (Violation, errors.TabherdError, ConnectionLost)
        if error is not None and not isinstance(error, known) and not self.loop.is_over:
            self.note_violation(f"a task died of {error!r}")

    async def _play(self) -> None:
        for machine in self.machines.values():
            machine.start()
        self.clients.start()
        self.task_clients.start()
        self.lock_clients.start()
        self.verb_clients.start()
        self.start(self.faults.happen())
        until_s = self.loop.now_s + ACTED_WITHIN_S
        while waiting := [actor for actor in self._actors if not actor.done()]:
            if self.loop.now_s > until_s:
                self.violate(f"somebody waits for ever: {waiting[0].get_coro()}")
            await asyncio.wait(waiting, timeout=10)
        for actor in self._actors:
            actor.result()
        self.tell("everybody leaves; time passes")
        is_long = self.seed % LONG_ONE_OF == 0
        for _ in range(LONG_AFTER_S // LOOK_EVERY_S):
            await asyncio.sleep(LOOK_EVERY_S)
            if not is_long and next(self._complaints(), None) is None:
                break
        for complaint in self._complaints():
            self.violate(complaint)
        await self.rules.check_end()

    def _complaints(self) -> Iterator[str]:
        """What is left in the end, and should not be."""
        yield from self.rules.left()
        yield from self.task_rules.left()
        yield from self.webhook_rules.left()
        yield from self.lock_rules.left()

    async def _clear(self) -> None:
        """Nothing may outlast the history, nor what begins because something was ended."""
        for _ in range(CLEARED_WITHIN):
            leftovers = self.loop.unfinished() - {asyncio.current_task()}
            if not leftovers:
                break
            for task in leftovers:
                task.cancel()
            await asyncio.wait(leftovers, timeout=CLEARED_S)
        for kept in self._kept:
            if kept.done() and not kept.cancelled():
                kept.exception()

    def start(self, actor: Coroutine[Any, Any, None]) -> None:
        """Somebody does something from now on."""
        self._actors.append(self.loop.create_task(actor, context=on_behalf(self.loop.outside)))

    def keep(self, future: asyncio.Future[Any]) -> None:
        self._kept.append(future)

    def tell(self, what: str) -> None:
        """Goes into the history, which ends with the first violation."""
        if self._violation is None:
            self.history.append(f"{self.loop.now_s - 1000:10.4f}s  {what}")

    def violate(self, what: str) -> NoReturn:
        raise self.note_violation(what)

    def note_violation(self, what: str) -> Violation:
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

    def mint(self, what: str) -> str:
        return f"{what}-{self.mint_number()}"

    def mint_number(self) -> int:
        self._minted += 1
        return self._minted

    # --- What clients do ------------------------------------------------------------------------------------

    async def call(self, call: Call, leaves_after_s: float | None = None) -> Any:
        """A caller's request, at whichever node."""
        machine = self.choices.choice(list(self.machines.values()))
        return await self.front_door.ask(machine, call, leaves_after_s)

    async def quietly(self, work: Coroutine[Any, Any, None]) -> None:
        """Whatever somebody hears who does this, it is no news."""
        try:
            await work
        except (errors.TabherdError, ConnectionLost, asyncio.CancelledError) as error:
            self.tell(f"somebody hears {error!r}")

    async def perform(self, life: NodeLife, tab: SimTab, action: wire.AnyAction, progress: Progress) -> Any:
        """A command reaches a page."""
        try:
            reached = self.rules.check_act(life, tab, action) if isinstance(action, wire.Evaluate) else _nothing
            result = await sim_perform(tab, action, progress, reached)
            self.rules.acted(life, tab, action)
            return result
        except Violation as violation:
            self.violate(str(violation))


def _nothing() -> None:
    """Nobody counts it."""


def _is_end_of_life(entry: Any) -> bool:
    """Whether a node says no more than that others have ended it."""
    error = entry.get("exc_info")
    if isinstance(error, errors.StoreUnavailable):
        return is_fenced(error)
    return "declared this one dead" in entry["event"]
