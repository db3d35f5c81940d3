"""One simulated history: agents, faults, and the invariants that must hold at every step of it.

Invariants (checked at every step of the world unless said otherwise):
- no two commands are ever at work in one page, also after a timeout, a cancel or a restart (`sim_perform`);
- no bound target without its lease row (record before bind);
- the cap counters equal a recount of the rows, and no cap is exceeded;
- fences only grow;
- a command with a stale fence, or of another agent, touches nothing;
- commands of one tab start in the order in which they were accepted;
- every accepted command has exactly one outcome, and it is the one its caller was told (at the end);
- nothing lives after its owner: no context, session, browser, place, mark or count is left (at the end);
- nothing of the broker fails unheard.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

import structlog

from tabherd import errors, wire
from tabherd.broker.broker import Broker
from tabherd.broker.caller import AGENT_SCOPES, Caller
from tabherd.broker.credentials import Credentials
from tabherd.broker.events import EventBus
from tabherd.config import Config, Pool
from tabherd.core import lease
from tabherd.core.lifecycle import LEASE, LeaseState, is_terminal
from tabherd.core.model import Node, Session
from tabherd.metrics import Metrics
from tabherd.store.base import Op, Outcome
from tabherd.store.memory import MemoryStore

from .fakes import Life, Process, SimLauncher, SimMarks, SimStore, SimTab, Violation, sim_perform
from .virtual_loop import VirtualLoop

T = TypeVar("T")
AGENTS = ("ada", "bob", "cyd")
# Sessions live this long at the most, and everybody has left long before the end.
DEADLINE_MS = 30_000
LONG_AFTER_S = 200
MAX_ACTIVE = 4
MAX_PER_KEY = 2
MAX_PER_AGENT = 3
CONFIG = Config(
    pools={"default": Pool(max_active=MAX_ACTIVE, max_active_per_key=MAX_PER_KEY, max_active_per_agent=MAX_PER_AGENT)}
)


class Disk(MemoryStore):
    """What survives every kill, and how often it changed."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    async def apply(self, *ops: Op) -> Outcome:
        self.writes += 1
        return await super().apply(*ops)


class ConnectionLost(Exception):
    """The broker was killed under the caller."""


class World:
    def __init__(self, seed: int, *, drop_caps: bool = False) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.loop = VirtualLoop()
        self.history: list[str] = []
        self.disk = Disk()
        self.processes: dict[str, Process] = {}
        self.marks: dict[int, tuple[str, str]] = {}
        self.epoch = 0
        self.life: Life
        self.broker: Broker
        self.lives: list[Life] = []
        self.steps = 0
        self._drop_caps = drop_caps
        self._death: asyncio.Future[None]
        self._minted = 0
        self._checked_writes = 0
        # Every request ever made: those of killed brokers are never answered, but must not be collected either.
        self._requests: list[asyncio.Future[Any]] = []
        # The fence of every session ever seen, and the largest of them.
        self._fences: dict[str, int] = {}
        self._fence_max = 0
        self._violation: Violation | None = None
        # Commands that callers were told about: id -> the outcome they heard.
        self._told: dict[str, str] = {}
        # Per tab, how many commands arrived before each; those that start must start in that order.
        self._arrivals: dict[str, int] = {}
        self._arrived: Counter[str] = Counter()
        self._last_started: dict[str, int] = {}

    # --- Running --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Play the history; raises `Violation`."""
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(self._task_failed)
        with structlog.testing.capture_logs() as logs:
            try:
                self.loop.run_until_complete(self._play())
            finally:
                for life in self.lives:
                    life.is_over = True
                self.loop.run_until_complete(self._clear())
                self.loop.close()
                asyncio.set_event_loop(None)
        if self._violation is not None:
            raise self._violation
        for entry in logs:
            if entry["log_level"] == "error":
                raise Violation(f"something failed unheard: {entry}")

    def _task_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A task died of an exception that nobody awaited: ours to hear of, unless a violation caused it."""
        error = context.get("exception")
        if error is not None and not isinstance(error, Violation | errors.TabherdError):
            self.tell(f"VIOLATION: a task died of {error!r}")
            self._violation = self._violation or Violation(f"a task died of {error!r}")

    async def _play(self) -> None:
        await self._start_life()
        actors = [asyncio.create_task(self._agent(agent, n)) for agent in AGENTS for n in (1, 2)]
        actors.append(asyncio.create_task(self._faults()))
        done, _ = await asyncio.wait(actors)
        for actor in done:
            actor.result()
        self.tell("everybody leaves; time passes")
        await asyncio.sleep(LONG_AFTER_S)
        await self._check_end()

    async def _clear(self) -> None:
        leftovers = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in leftovers:
            task.cancel()
        await asyncio.gather(*leftovers, *self._requests, return_exceptions=True)

    def tell(self, what: str) -> None:
        self.history.append(f"{self.loop.now_s - 1000:10.4f}s  {what}")

    def violate(self, what: str) -> None:
        self.tell(f"VIOLATION: {what}")
        if self._violation is None:
            self._violation = Violation(what)
        raise self._violation

    # --- Lives of the broker --------------------------------------------------------------------------------

    async def _start_life(self) -> None:
        self.epoch += 1
        life = SteppedLife(self)
        self.life = life
        self.lives.append(life)
        self._death = self.loop.create_future()
        store = SimStore(self.disk, life, fail_rate=0.01, drop_caps=self._drop_caps)
        self.broker = Broker(
            config=CONFIG,
            node=Node(id="nod_1", epoch=self.epoch, url="", pid=self.epoch, started_at=self.loop.clock_ms()),
            store=store,
            launcher=SimLauncher(self.processes, life, self._mint, fail_rate=0.1),
            events=EventBus(epoch=self.epoch, ring=1_000, clock=self.loop.clock_ms),
            metrics=Metrics(),
            credentials=Credentials(store),
            marks=SimMarks(self.marks, life),
            memory_bytes=1 << 34,
            clock=self.loop.clock_ms,
            chance=self.chance,
            perform=self._perform,
        )
        self.tell(f"broker starts, epoch {self.epoch}")
        await self.broker.start()

    async def _restart(self) -> None:
        self.tell("broker is killed")
        self.life.is_dead = True
        self._death.set_result(None)
        await asyncio.sleep(self.chance.random())
        await self._start_life()

    def _mint(self, what: str) -> str:
        self._minted += 1
        return f"{what}-{self._minted}"

    async def _perform(self, tab: SimTab, action: wire.AnyAction) -> Any:
        assert isinstance(action, wire.Evaluate)
        who, label, fence = action.expression.split("|")[:3]
        row = self._session_of(tab.target_id)
        if row is None or row.state is not LeaseState.ACTIVE:
            self.violate(f"{label} reaches {tab.target_id}, which no active lease covers")
        elif row.agent_id != who:
            self.violate(f"{label} of {who} reaches {tab.target_id}, which {row.agent_id} holds")
        elif fence != "-" and int(fence) != row.fence:
            self.violate(f"{label} with fence {fence} reaches {tab.target_id}, whose fence is {row.fence}")
        else:
            self._check_order(row.id, label)
        try:
            return await sim_perform(tab, action)
        except Violation as violation:
            self.violate(str(violation))

    # --- Actors ---------------------------------------------------------------------------------------------

    async def _faults(self) -> None:
        for _ in range(self.chance.randrange(5)):
            await asyncio.sleep(self.chance.random() * 1.5)
            if self.chance.random() < 0.5:
                await self._restart()
            else:
                alive = [process for process in self.processes.values() if process.is_alive]
                if alive:
                    victim = self.chance.choice(alive)
                    if self.chance.random() < 0.3:
                        self.tell(f"browser {victim.row.id} hangs")
                        victim.is_hung = True
                    else:
                        self.tell(f"browser {victim.row.id} is killed")
                        victim.die("killed")

    async def _agent(self, agent: str, number: int) -> None:
        """One client of an agent: opens, acts, beats, releases, or just goes away."""
        for _ in range(self.chance.randrange(1, 4)):
            await asyncio.sleep(self.chance.random())
            try:
                view = await self._open(agent, number)
                if view is None:
                    continue
                for _ in range(self.chance.randrange(1, 6)):
                    await self._use(agent, view)
                if self.chance.random() < 0.8:
                    await self._release(agent, view)
                else:
                    self.tell(f"{agent} walks away from {view.session_id}")
            except ConnectionLost:
                self.tell(f"{agent} lost the connection")
            except (errors.LeaseLost, errors.SessionNotFound, errors.StoreUnavailable) as error:
                self.tell(f"{agent} hears {error.code}")

    async def _open(self, agent: str, number: int) -> wire.SessionView | None:
        caller = _caller(agent, number)
        request = wire.OpenSession(
            key=self.chance.choice(("", "shop", "bank")),
            wait_ms=self.chance.choice((0, 50, 1_000, 5_000)),
            deadline_ms=DEADLINE_MS,
        )
        leaves_after = self.chance.random() * 0.03 if self.chance.random() < 0.15 else None
        try:
            view = await self._call(lambda broker: broker.sessions.open(caller, request), leaves_after)
        except (errors.Capacity, errors.NoBrowser, errors.BrowserCrashed, errors.StoreUnavailable) as error:
            self.tell(f"{agent} is refused a session: {error.code}")
            return None
        except asyncio.CancelledError:
            self.tell(f"{agent} left before the session was there")
            return None
        self.tell(f"{agent} has {view.session_id}, fence {view.fence}")
        return view

    async def _use(self, agent: str, view: wire.SessionView) -> None:
        """Several commands at once on one tab, some of which hang, carry a stale fence, or are somebody else's."""
        if self.chance.random() < 0.3:
            beat = wire.Heartbeat(fence=view.fence)
            await self._call(lambda broker: broker.sessions.heartbeat(_caller(agent, 0), view.session_id, beat))
        commands = [self._command(agent, n, view) for n in range(self.chance.randrange(1, 5))]
        await asyncio.gather(*commands)

    async def _command(self, agent: str, number: int, view: wire.SessionView) -> None:
        await asyncio.sleep(self.chance.random() * 0.02)
        who = agent if self.chance.random() < 0.9 else self.chance.choice([a for a in AGENTS if a != agent])
        fence = self.chance.choice((None, view.fence, view.fence, view.fence - 1))
        label = self._mint("command") + ("-hang" if self.chance.random() < 0.15 else "")
        action = wire.Evaluate(
            expression=f"{who}|{label}|{'-' if fence is None else fence}|{'hang' if 'hang' in label else ''}",
            fence=fence,
            wait_policy=self.chance.choice(("fail_fast", "wait_with_timeout", "wait_with_timeout")),
            timeout_ms=self.chance.choice((100, 200, 1_000)),
        )
        leaves_after = self.chance.random() * 0.05 if self.chance.random() < 0.1 else None
        tab_id = view.tabs[0].tab_id
        broker = self.broker

        async def arrive(broker: Broker) -> wire.CommandView:
            self._arrived[tab_id] += 1
            self._arrivals[label] = self._arrived[tab_id]
            return await broker.commands.run(_caller(who, number), tab_id, action)

        try:
            answer = await self._call(arrive, leaves_after)
            self._told[answer.command_id] = answer.outcome
            self.tell(f"{label} of {who} on {tab_id}: {answer.outcome}")
        except errors.TabherdError as error:
            command_id = error.details.get("commandId")
            self.tell(f"{label} of {who} on {tab_id}: {error.code}")
            if command_id is not None and broker is self.broker:
                self._told[command_id] = (await self._outcome(command_id, who)).outcome
        except (ConnectionLost, asyncio.CancelledError):
            self.tell(f"{label} of {who} on {tab_id}: its caller heard nothing")

    async def _release(self, agent: str, view: wire.SessionView) -> None:
        fence = self.chance.choice((None, view.fence, view.fence - 1))
        is_stale = fence == view.fence - 1
        try:
            await self._call(lambda broker: broker.sessions.release(_caller(agent, 0), view.session_id, fence))
        except errors.LeaseLost:
            self.tell(f"{agent} cannot release {view.session_id} with fence {fence}")
            return
        if is_stale:
            self.violate(f"{agent} released {view.session_id} with the stale fence {fence}")
        self.tell(f"{agent} released {view.session_id}")

    async def _call(self, verb: Callable[[Broker], Awaitable[T]], leaves_after_s: float | None = None) -> T:
        """A caller's request: it is lost when the broker is killed, and cancelled when the caller leaves."""
        death = self._death
        request = asyncio.ensure_future(verb(self.broker))
        self._requests.append(request)
        await asyncio.wait([request, death], timeout=leaves_after_s, return_when=asyncio.FIRST_COMPLETED)
        if request.done():
            return request.result()
        if death.done():
            raise ConnectionLost
        request.cancel()
        await asyncio.wait([request, death], return_when=asyncio.FIRST_COMPLETED)
        if not request.done():
            raise ConnectionLost
        return request.result()

    # --- Invariants -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """What must hold whenever anything looks at the world."""
        self.steps += 1
        rows = self._sessions()
        if self.disk.writes != self._checked_writes:
            self._checked_writes = self.disk.writes
            self._check_fences(rows)
            self._check_caps([row for row in rows.values() if not is_terminal(LEASE, row.state)])
        if self.life.is_dead:
            return
        for live in self.broker._registry:
            row = rows.get(live.row.id)
            if row is None or row.state not in (LeaseState.ACTIVE, LeaseState.CLOSING):
                self.violate(f"{live.row.id} is bound but its lease row says {row.state if row else 'nothing'}")
            elif row.context_id != live.row.context_id:
                self.violate(f"{live.row.id} is bound to a context its row does not name")

    def _check_fences(self, rows: dict[str, Session]) -> None:
        fresh = [row for row in rows.values() if row.id not in self._fences]
        for row in fresh:
            if row.fence <= self._fence_max:
                self.violate(f"{row.id} was granted fence {row.fence} after {self._fence_max}")
            self._fences[row.id] = row.fence
        self._fence_max = max([self._fence_max, *(row.fence for row in fresh)])

    def _check_caps(self, open_rows: list[Session]) -> None:
        recount: Counter[str] = Counter()
        for row in open_rows:
            for counter in lease.cap_counters(row.pool, row.key, row.agent_id, lease.Caps()):
                recount[counter.counter] += 1
        counted = {
            name: value for name, value in self.disk._state.counters.items() if value and name.startswith("active:")
        }
        if counted != dict(recount):
            self.violate(f"counters say {counted}, a recount says {dict(recount)}")
        if len(open_rows) > MAX_ACTIVE:
            self.violate(f"{len(open_rows)} sessions are open, the cap is {MAX_ACTIVE}")
        for (_, most), cap in (
            (
                max(Counter(row.key for row in open_rows if row.key).items(), key=lambda i: i[1], default=("", 0)),
                MAX_PER_KEY,
            ),
            (
                max(Counter(row.agent_id for row in open_rows).items(), key=lambda i: i[1], default=("", 0)),
                MAX_PER_AGENT,
            ),
        ):
            if most > cap:
                self.violate(f"{most} sessions of one key or agent are open, the cap is {cap}")

    def _check_order(self, session_id: str, label: str) -> None:
        arrival = self._arrivals[label]
        if arrival < self._last_started.get(session_id, 0):
            self.violate(f"{label} starts in {session_id} after a command that arrived later")
        self._last_started[session_id] = arrival

    async def _check_end(self) -> None:
        """Long after the last client left."""
        self.check()
        open_rows = [row.id for row in self._sessions().values() if not is_terminal(LEASE, row.state)]
        if open_rows:
            self.violate(f"sessions outlive their owners: {open_rows}")
        stock = {seat.context_id for pool in self.broker._pools.values() for slot in pool.slots for seat in slot.stock}
        contexts = {context_id for process in self.processes.values() for context_id in process.contexts}
        if contexts != stock:
            self.violate(f"contexts outlive their sessions: {sorted(contexts - stock)}")
        running = [process.row.id for process in self.processes.values() if process.is_alive]
        supervised = [slot.row.id for pool in self.broker._pools.values() for slot in pool.slots if slot.browser]
        if sorted(running) != sorted(supervised):
            self.violate(f"browsers run unsupervised: {sorted(set(running) - set(supervised))}")
        for name, admission in self.broker._admissions.items():
            if admission._claims or admission.waiting or self.marks:
                self.violate(f"places or marks are never given back in {name}: {admission._claims} {self.marks}")
        for command_id, told in self._told.items():
            stored = await self.broker._ledger.find(command_id)
            if stored is not None and stored.state != told:
                self.violate(f"{command_id}: its caller heard {told}, the ledger says {stored.state}")

    async def _outcome(self, command_id: str, agent: str) -> wire.CommandView:
        return await self._call(lambda broker: broker.commands.get(_caller(agent, 0), command_id))

    def _sessions(self) -> dict[str, Session]:
        return self.disk._state.rows.get(Session, {})  # type: ignore[return-value]

    def _session_of(self, target_id: str) -> Session | None:
        for live in self.broker._registry:
            if any(tab.port.target_id == target_id for tab in live.tabs.values()):
                return self._sessions().get(live.row.id)
        return None


class SteppedLife(Life):
    """A life that checks the world whenever it touches it."""

    def __init__(self, world: World) -> None:
        super().__init__(world.chance, world.tell)
        self._world = world

    async def step(self, most_ms: float = 3.0) -> None:
        await super().step(most_ms)
        if not self.is_over:
            self._world.check()


def _caller(agent: str, number: int) -> Caller:
    return Caller(agent_id=agent, scopes=AGENT_SCOPES, controller_id=f"{agent}-{number}")
