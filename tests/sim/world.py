"""One simulated history: agents, faults, and the invariants that must hold at every step of it.

Invariants (checked at every step of the world unless said otherwise):
- no two commands are ever at work in one page, also after a timeout, a cancel or a restart (`sim_perform`);
- no bound target without its lease row (record before bind);
- the counters of sessions, pooled tabs and tabs equal a recount of the rows, and no cap is exceeded;
- fences only grow, and every change of owner has a larger one;
- a command with a stale fence, or of another agent, touches nothing, also when it had waited; a release neither;
- commands of one tab start in the order in which they were accepted, and none of another controller under a tab lock;
- a command with an idempotency key runs once at the most, however often and after whatever it is repeated;
- for one death of a page there is one new page, and a generation is never used twice;
- nobody finds in a session what another agent left in its context, also after pooling and recovery;
- nobody is reaped who was heard of within the time that the rules give;
- every accepted command has exactly one outcome, and it is the one its caller was told (at the end);
- nothing lives after its owner: no context, session, browser, place, mark or count is left (at the end);
- nothing of the broker fails unheard.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from random import Random
from typing import Any, TypeVar

import structlog

from tabherd import errors, wire
from tabherd.actions.progress import Progress
from tabherd.broker.broker import Broker
from tabherd.broker.caller import AGENT_SCOPES, Caller
from tabherd.broker.credentials import Credentials
from tabherd.broker.events import EventBus
from tabherd.config import Config, Pool
from tabherd.core import caps, lease
from tabherd.core.lifecycle import LEASE, LeaseState, is_terminal
from tabherd.core.model import Checkpoint, Node, Session, Tab
from tabherd.metrics import Metrics
from tabherd.store.base import Op, Outcome
from tabherd.store.memory import MemoryStore

from .fakes import (
    NO_FILES,
    Life,
    Process,
    SimLauncher,
    SimMarks,
    SimOwners,
    SimStore,
    SimTab,
    Target,
    Violation,
    sim_perform,
)
from .virtual_loop import VirtualLoop

T = TypeVar("T")
AGENTS = ("ada", "bob", "cyd")
# Sessions live this long at the most, and everybody has left long before the end.
DEADLINE_MS = 30_000
LONG_AFTER_S = 200
MAX_ACTIVE = 4
MAX_PER_KEY = 2
MAX_PER_AGENT = 3
MAX_POOLED = 3
MAX_POOLED_PER_KEY = 2
MAX_TABS = 6
POOLED_TTL_S = 20
# How long an owner may be silent.
STALE_S = 5
# How long a session may be without a browser, whatever happens to those that it is given.
RECOVERED_S = 8
# How long an answer may be on its way.
ANSWER_MS = 100
CONFIG = Config(
    pools={
        "default": Pool(
            max_active=MAX_ACTIVE,
            max_active_per_key=MAX_PER_KEY,
            max_active_per_agent=MAX_PER_AGENT,
            max_pooled=MAX_POOLED,
            max_pooled_per_key=MAX_POOLED_PER_KEY,
            pooled_ttl_s=POOLED_TTL_S,
            max_tabs=MAX_TABS,
            heartbeat_s=2,
            stale_after_s=STALE_S,
            idle_ttl_s=STALE_S,
            owner_dead_grace_ms=500,
            deadline_grace_s=10,
        )
    }
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
        self.task_marks: dict[int, tuple[str, str]] = {}
        # Processes of clients that run, and which of them each session's owner named.
        self.alive_pids: set[int] = set()
        self._pid_of: dict[str, int] = {}
        # When each session's owner was last heard of.
        self._heard_at: dict[str, int] = {}
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
        self._fences: dict[str, tuple[int, str]] = {}
        self._fence_max = 0
        self._violation: Violation | None = None
        # Everybody who does something in this history.
        self._actors: list[asyncio.Task[None]] = []
        # Commands that callers were told about: id -> the outcome they heard.
        self._told: dict[str, str] = {}
        # Per tab, how many commands arrived before each; those that start must start in that order.
        self._arrivals: dict[str, int] = {}
        self._arrived: Counter[str] = Counter()
        self._last_started: dict[str, int] = {}
        # Who has ever held a session, or one whose page it was given with consent.
        self._owners_of: defaultdict[str, set[str]] = defaultdict(set)
        # How often each command ran.
        self._runs: Counter[str] = Counter()
        # By session: which controller was told that it has the tab's lock, and until when.
        self._locks: dict[str, tuple[str, int]] = {}
        self._ever_locked: set[str] = set()
        # Sessions without a browser: since when, and when that was last seen.
        self._homeless: dict[str, tuple[int, int]] = {}
        # The page and generation that each tab had last.
        self._generations: dict[str, tuple[int, str]] = {}
        # Sessions whose end has been looked at.
        self._reaped: set[str] = set()

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
        for agent in AGENTS:
            for number in (1, 2):
                self.start(self._agent(agent, number))
        self.start(self._faults())
        while not all(actor.done() for actor in self._actors):
            await asyncio.wait(self._actors)
        for actor in self._actors:
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
        life.owners = SimOwners(self.alive_pids, self.loop.clock_ms)
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
            task_marks=SimMarks(self.task_marks, life),
            webhook_secret=b"secret",
            files_dir=NO_FILES,
            memory_bytes=1 << 34,
            clock=self.loop.clock_ms,
            chance=self.chance,
            perform=self._perform,
            owners=life.owners,
        )
        self.tell(f"broker starts, epoch {self.epoch}")
        await self.broker.start()

    async def _restart(self) -> None:
        self.tell("broker is killed")
        self._locks.clear()
        self.life.is_dead = True
        self._death.set_result(None)
        await asyncio.sleep(self.chance.random())
        await self._start_life()

    def _mint(self, what: str) -> str:
        self._minted += 1
        return f"{what}-{self._minted}"

    async def _perform(self, tab: SimTab, action: wire.AnyAction, progress: Progress) -> Any:
        # Timers of a dead life still fire here, but nothing that it does reaches the world.
        await tab.browser._life.alive()
        if isinstance(action, wire.Evaluate):
            self._check_command(tab, action)
        try:
            return await sim_perform(tab, action, progress)
        except Violation as violation:
            self.violate(str(violation))

    def _check_command(self, tab: SimTab, action: wire.Evaluate) -> None:
        """What must be true of a command that reaches a page."""
        who, label, fence = action.expression.split("|")[:3]
        row = self._session_of(tab.target_id)
        if row is None or row.state is not LeaseState.ACTIVE:
            self.violate(f"{label} reaches {tab.target_id}, which no active lease covers")
            return
        if row.agent_id != who:
            self.violate(f"{label} of {who} reaches {tab.target_id}, which {row.agent_id} holds")
        if fence != "-" and int(fence) != row.fence:
            self.violate(f"{label} with fence {fence} reaches {tab.target_id}, whose fence is {row.fence}")
        controller_id = action.expression.split("|")[3]
        # Under a lock the commands of its owner come first, but those of one controller keep their order.
        self._check_order(f"{row.id}/{controller_id}" if row.id in self._ever_locked else row.id, label)
        self._runs[label] += 1
        if self._runs[label] > 1:
            self.violate(f"{label} runs a second time")
        controller, expires_at = self._locks.get(row.id, ("", 0))
        if expires_at > self.loop.clock_ms() and controller != controller_id:
            self.violate(f"{label} runs on {tab.target_id} while {controller} has its lock")
        cookies = tab.target.context.cookies
        strangers = [cookie["name"] for cookie in cookies if cookie["name"] not in self._owners_of[row.id]]
        if strangers:
            self.violate(f"{label} of {who} finds the cookies of {strangers} in {tab.target_id}")
        if {"name": who} not in cookies:
            cookies.append({"name": who})

    # --- Actors ---------------------------------------------------------------------------------------------

    async def _faults(self) -> None:
        for _ in range(self.chance.randrange(8)):
            await asyncio.sleep(self.chance.random() * 1.2)
            dice = self.chance.random()
            if dice < 0.3:
                await self._restart()
            elif dice < 0.55:
                self._crash_page()
            elif dice < 0.75:
                await self._take_over()
            else:
                self._hurt_browser()

    def _hurt_browser(self) -> None:
        alive = [process for process in self.processes.values() if process.is_alive]
        if alive:
            victim = self.chance.choice(alive)
            if self.chance.random() < 0.3:
                self.tell(f"browser {victim.row.id} hangs")
                victim.is_hung = True
            else:
                self.tell(f"browser {victim.row.id} is killed")
                victim.die("killed")

    def _crash_page(self) -> None:
        pages = [
            (process, target)
            for process in self.processes.values()
            for target in process.targets.values()
            if process.is_alive and not target.is_crashed
        ]
        if pages:
            process, target = self.chance.choice(pages)
            self.tell(f"page {target.target_id} crashes")
            process.crash_page(target)

    async def _take_over(self, session_id: str | None = None) -> None:
        """An admin gives somebody's session to somebody else, who uses it; the old holder goes on in good faith."""
        held = [row.id for row in self._sessions().values() if row.state in lease.HELD_STATES]
        if not held:
            return
        session_id, agent = session_id or self.chance.choice(held), self.chance.choice(AGENTS)
        admin = Caller(agent_id="root", scopes=AGENT_SCOPES | {"admin"}, controller_id="root")
        try:
            view = await self._call(lambda broker: broker.sessions.take_over(admin, session_id, agent))
        except (errors.TabherdError, ConnectionLost) as error:
            self.tell(f"{session_id} is not taken over: {error!r}")
            return
        self.tell(f"{session_id} is {agent}'s from now on, fence {view.fence}")
        self.start(self._guest(agent, view))

    async def _guest(self, agent: str, view: wire.SessionView) -> None:
        try:
            await self._use(agent, view)
            await self._release(agent, view)
        except (errors.TabherdError, ConnectionLost) as error:
            self.tell(f"{agent} hears {error!r}")

    def start(self, actor: Coroutine[Any, Any, None]) -> None:
        self._actors.append(asyncio.create_task(actor))

    async def _agent(self, agent: str, number: int) -> None:
        """One client of an agent: opens, acts, beats, releases, or just goes away."""
        for _ in range(self.chance.randrange(1, 4)):
            await asyncio.sleep(self.chance.random())
            pid = self._mint_pid() if self.chance.random() < 0.3 else None
            try:
                view = await self._open(agent, number, pid)
                if view is None:
                    continue
                for _ in range(self.chance.randrange(1, 6)):
                    await self._use(agent, view)
                if self.chance.random() < 0.2:
                    await self._think(agent, view, pid)
                if self.chance.random() < 0.8:
                    await self._release(agent, view)
                else:
                    self.tell(f"{agent} walks away from {view.session_id}")
            except ConnectionLost:
                self.tell(f"{agent} lost the connection")
            except (errors.LeaseLost, errors.SessionNotFound, errors.StoreUnavailable) as error:
                self.tell(f"{agent} hears {error.code}")
            finally:
                if pid is not None:
                    self.tell(f"process {pid} of {agent} ends")
                    self.alive_pids.discard(pid)
                    self.life.owners.die(pid)

    def _mint_pid(self) -> int:
        self._minted += 1
        self.alive_pids.add(self._minted)
        return self._minted

    async def _think(self, agent: str, view: wire.SessionView, pid: int | None) -> None:
        """Long, legitimate silence: with heartbeats, or with a process that lives."""
        self.tell(f"{agent} thinks about {view.session_id}")
        beat = wire.Heartbeat(fence=view.fence)
        for _ in range(self.chance.randrange(3, 8)):
            await asyncio.sleep(2)
            if pid is None:
                await self._call(lambda broker: broker.sessions.heartbeat(_caller(agent, 0), view.session_id, beat))
                self._hear(view.session_id)

    def _hear(self, session_id: str) -> None:
        self._heard_at[session_id] = self.loop.clock_ms()

    async def _open(self, agent: str, number: int, pid: int | None) -> wire.SessionView | None:
        caller = _caller(agent, number)
        request = wire.OpenSession(
            key=self.chance.choice(("", "shop", "bank")),
            wait_ms=self.chance.choice((0, 50, 1_000, 5_000)),
            deadline_ms=DEADLINE_MS,
            reuse=self.chance.choice((None, "never", "same-agent")),
            owner=None if pid is None else wire.Owner(pid=pid),
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
        self._hear(view.session_id)
        if pid is not None:
            self._pid_of[view.session_id] = pid
        return view

    async def _use(self, agent: str, view: wire.SessionView) -> None:
        """Several commands at once on one tab, some of which hang, carry a stale fence, or are somebody else's."""
        if self.chance.random() < 0.3:
            beat = wire.Heartbeat(fence=view.fence)
            await self._call(lambda broker: broker.sessions.heartbeat(_caller(agent, 0), view.session_id, beat))
        works = [self._command(agent, n, view) for n in range(self.chance.randrange(1, 5))]
        if self.chance.random() < 0.2:
            works.append(self._quietly(self._hold(agent, self.chance.randrange(5), view)))
        if self.chance.random() < 0.2:
            works.append(self._quietly(self._cancel_something()))
        await asyncio.gather(*works)

    async def _quietly(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (errors.TabherdError, ConnectionLost) as error:
            self.tell(f"somebody hears {error!r}")

    async def _command(self, agent: str, number: int, view: wire.SessionView) -> None:
        await asyncio.sleep(self.chance.random() * 0.02)
        who = agent if self.chance.random() < 0.9 else self.chance.choice([a for a in AGENTS if a != agent])
        fence = self.chance.choice((None, view.fence, view.fence, view.fence - 1))
        label = self._mint("command") + ("-hang" if self.chance.random() < 0.15 else "")
        action = wire.Evaluate(
            expression="|".join((who, label, str(fence or "-"), f"{who}-{number}", "hang" if "hang" in label else "")),
            fence=fence,
            idempotency_key=label if self.chance.random() < 0.3 else None,
            wait_policy=self.chance.choice(("fail_fast", "wait_with_timeout", "wait_with_timeout")),
            timeout_ms=self.chance.choice((100, 200, 1_000)),
        )
        leaves_after = self.chance.random() * 0.05 if self.chance.random() < 0.1 else None
        tab_id = view.tabs[0].tab_id
        broker = self.broker

        def accepted(command_id: str, position: int) -> None:
            self._arrived[tab_id] += 1
            self._arrivals[label] = self._arrived[tab_id]

        async def arrive(broker: Broker) -> wire.CommandView:
            return await broker.commands.run(_caller(who, number), tab_id, action, accepted)

        try:
            answer = await self._call(arrive, leaves_after)
            self._told[answer.command_id] = answer.outcome
            self._hear(view.session_id)
            self.tell(f"{label} of {who} on {tab_id}: {answer.outcome}")
            if action.idempotency_key is not None:
                await self._repeat(who, number, tab_id, action, answer, accepted)
        except errors.TabherdError as error:
            command_id = error.details.get("commandId")
            self.tell(f"{label} of {who} on {tab_id}: {error.code}")
            if command_id is not None and broker is self.broker:
                self._told[command_id] = (await self._outcome(command_id, who)).outcome
        except (ConnectionLost, asyncio.CancelledError):
            self.tell(f"{label} of {who} on {tab_id}: its caller heard nothing")
            if action.idempotency_key is not None:
                await self._repeat(who, number, tab_id, action, None, accepted)

    async def _repeat(
        self,
        who: str,
        number: int,
        tab_id: str,
        action: wire.Evaluate,
        first: wire.CommandView | None,
        accepted: Callable[[str, int], None],
    ) -> None:
        """The same key again, as a client does that heard nothing: the outcome is the first one's."""
        await asyncio.sleep(self.chance.random() * 0.2)
        try:
            caller = _caller(who, number)
            again = await self._call(lambda broker: broker.commands.run(caller, tab_id, action, accepted))
        except (errors.TabherdError, ConnectionLost) as error:
            self.tell(f"the key of {action.idempotency_key} is answered with {error!r}")
            return
        self.tell(f"the key of {action.idempotency_key} is answered with {again.outcome} of {again.command_id}")
        if first is not None and again.command_id != first.command_id:
            self.violate(f"{action.idempotency_key} became {again.command_id} after {first.command_id}")

    async def _hold(self, agent: str, number: int, view: wire.SessionView) -> None:
        """Take the tab lock, do something under it, give it back or let it expire."""
        controller, tab_id = f"{agent}-{number}", view.tabs[0].tab_id
        self._ever_locked.add(view.session_id)
        request = wire.LockTab(lock_lease_ms=300, wait_policy="wait_with_timeout", timeout_ms=500)
        caller = _caller(agent, number)
        held = await self._call(lambda broker: broker.tab_locks.lock(caller, tab_id, request))
        # A little less than the broker says: it began to count before the answer was here.
        self._locks[view.session_id] = controller, self.loop.clock_ms() + 300 - ANSWER_MS
        self.tell(f"{controller} has the lock of {tab_id}")
        await self._command(agent, number, view)
        self._locks.pop(view.session_id, None)
        if self.chance.random() < 0.7:
            await self._unlock(caller, tab_id, held.ticket)

    async def _unlock(self, caller: Caller, tab_id: str, ticket: str) -> None:
        async def unlock(broker: Broker) -> None:
            broker.tab_locks.unlock(caller, tab_id, ticket)

        await self._call(unlock)

    async def _cancel_something(self) -> None:
        """Its sender thinks better of a command."""
        accepted = list(self.broker.commands._accepted.values())
        if accepted:
            command = self.chance.choice(accepted).command
            caller = _caller(command.agent_id, 0)
            view = await self._call(lambda broker: broker.commands.cancel(caller, command.id))
            self.tell(f"{command.id} was cancelled: {view.outcome}")

    async def _release(self, agent: str, view: wire.SessionView) -> None:
        if self.chance.random() < 0.1:
            # At the same moment it is given to somebody else.
            self.start(self._take_over(view.session_id))
            await asyncio.sleep(self.chance.random() * 0.008)
        fence = self.chance.choice((None, view.fence, view.fence - 1))
        disposition = self.chance.choice((None, "close", "pool", "pool"))
        is_stale = fence == view.fence - 1
        try:
            await self._call(
                lambda broker: broker.sessions.release(_caller(agent, 0), view.session_id, fence, disposition)
            )
        except errors.LeaseLost:
            self.tell(f"{agent} cannot release {view.session_id} with fence {fence}")
            return
        ended = self._sessions()[view.session_id]
        if is_stale or (fence is not None and ended.fence != fence) or ended.agent_id != agent:
            self.violate(f"{agent} released {view.session_id} of {ended.agent_id} at {ended.fence} with fence {fence}")
        self.tell(f"{agent} released {view.session_id} ({disposition})")

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
        if self._violation is not None:
            return  # What was interrupted by it is not as it should be.
        rows = self._sessions()
        if self.disk.writes != self._checked_writes:
            self._checked_writes = self.disk.writes
            self._check_fences(rows)
            self._check_generations()
            self._check_reaped(rows)
            self._check_caps([row for row in rows.values() if not is_terminal(LEASE, row.state)])
        if self.life.is_dead:
            return
        for live in self.broker._registry:
            row = rows.get(live.row.id)
            if row is None or row.state not in (*lease.HELD_STATES, LeaseState.CLOSING):
                self.violate(f"{live.row.id} is bound but its lease row says {row.state if row else 'nothing'}")
            elif live.browser is None and self._is_long_homeless(live.row.id):
                self.violate(f"{live.row.id} has had no browser for {RECOVERED_S} s")
            elif live.browser is not None and row.context_id != live.row.context_id:
                self.violate(f"{live.row.id} is bound to a context its row does not name")
            for tab in live.tabs.values():
                stored = self._tabs().get(tab.row.id)
                if tab.port is not None and stored is None:
                    self.violate(f"{tab.row.id} is bound but has no row")

    def _is_long_homeless(self, session_id: str) -> bool:
        now = self.loop.clock_ms()
        since, last = self._homeless.get(session_id, (now, now))
        # Looked at in every step of the world: after a longer pause it had a home in between.
        since = since if now - last < 1_000 else now
        self._homeless[session_id] = since, now
        return now - since > RECOVERED_S * 1000

    def _check_fences(self, rows: dict[str, Session]) -> None:
        """Every change of ownership has a fence larger than any before."""
        for row in sorted(rows.values(), key=lambda row: row.fence):
            fence, agent_id = self._fences.get(row.id, (0, ""))
            if row.agent_id != agent_id or row.fence != fence:
                if row.fence <= self._fence_max:
                    self.violate(
                        f"{row.id} was granted to {row.agent_id} with fence {row.fence} after {self._fence_max}"
                    )
                self._fences[row.id] = row.fence, row.agent_id
                self._fence_max = row.fence
                self._owners_of[row.id].add(row.agent_id)
                self._pid_of.pop(row.id, None)
                self._locks.pop(row.id, None)
                self._hear(row.id)
                self._inherit(row, rows)

    def _inherit(self, row: Session, rows: dict[str, Session]) -> None:
        """A page that was given back for the same agent brings along what is in it."""
        for other in rows.values():
            is_page_kept = other.context_id == row.context_id and other.reuse == "same-agent"
            if row.context_id and is_page_kept and other.agent_id == row.agent_id:
                self._owners_of[row.id] |= self._owners_of[other.id]

    def _check_generations(self) -> None:
        """A page is replaced once, and only if it died or something may still be at work in it."""
        for tab in self._tabs().values():
            generation, target_id = self._generations.get(tab.id, (tab.generation, tab.target_id))
            self._generations[tab.id] = tab.generation, tab.target_id
            if (tab.generation, tab.target_id) == (generation, target_id):
                continue
            if tab.generation != generation + 1 or tab.target_id == target_id:
                self.violate(f"{tab.id} went from {generation} ({target_id}) to {tab.generation} ({tab.target_id})")
            old = None if self._sessions()[tab.session_id].state is LeaseState.POOLED else self._target(target_id)
            if old is not None and not (old.is_crashed or old.is_touched):
                self.violate(f"{target_id} of {tab.id} was replaced although it was alive and well")

    def _target(self, target_id: str) -> Target | None:
        """The page, if its browser answers and its context is still there."""
        for process in self.processes.values():
            target = process.made.get(target_id)
            if target is not None and process.is_alive and not process.is_hung:
                return target if target.context in process.contexts.values() else None
        return None

    def _check_reaped(self, rows: dict[str, Session]) -> None:
        """Nobody who showed a sign of life is taken for gone."""
        for row in rows.values():
            if not row.end_reason or row.id in self._reaped:
                continue
            self._reaped.add(row.id)
            if row.end_reason not in (lease.ReapReason.STALE, lease.ReapReason.IDLE):
                continue
            # The broker heard of it a little before its client had the answer.
            silent_ms = row.ended_at - self._heard_at.get(row.id, 0) + ANSWER_MS
            if silent_ms < STALE_S * 1000 or self._pid_of.get(row.id) in self.alive_pids:
                self.violate(f"{row.id} was reaped ({row.end_reason}) {silent_ms} ms after its owner was heard of")

    def _check_caps(self, open_rows: list[Session]) -> None:
        recount: Counter[str] = Counter()
        tabs = Counter(tab.session_id for tab in self._tabs().values())
        for row in open_rows:
            is_pooled = row.state is LeaseState.POOLED
            counters = (
                caps.pooled_counters(row.pool, row.key, caps.Caps())
                if is_pooled
                else caps.cap_counters(row.pool, row.key, row.agent_id, caps.Caps())
            )
            for counter in counters:
                recount[counter.counter] += 1
            pages = 1 if row.state is LeaseState.RESERVED else tabs[row.id]
            recount[caps.tab_counter(row.pool, caps.Caps()).counter] += pages
        counted = {name: value for name, value in self.disk._state.counters.items() if value and "seq:" not in name}
        if counted != {name: value for name, value in recount.items() if value}:
            self.violate(f"counters say {counted}, a recount says {dict(recount)}")
        pooled = [row for row in open_rows if row.state is LeaseState.POOLED]
        active = [row for row in open_rows if row.state is not LeaseState.POOLED]
        for what, count, cap in (
            ("sessions", len(active), MAX_ACTIVE),
            ("sessions of a key", _most(row.key for row in active if row.key), MAX_PER_KEY),
            ("sessions of an agent", _most(row.agent_id for row in active), MAX_PER_AGENT),
            ("pooled tabs", len(pooled), MAX_POOLED),
            ("pooled tabs of a key", _most(row.key for row in pooled if row.key), MAX_POOLED_PER_KEY),
            ("tabs", sum(tabs.values()), MAX_TABS),
        ):
            if count > cap:
                self.violate(f"there are {count} {what}, the cap is {cap}")

    def _check_order(self, queue: str, label: str) -> None:
        arrival = self._arrivals[label]
        if arrival < self._last_started.get(queue, 0):
            self.violate(f"{label} starts in {queue} after a command that arrived later")
        self._last_started[queue] = arrival

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
        left = {
            "tabs": self._tabs(),
            "checkpoints": self.disk._state.rows.get(Checkpoint, {}),
            "drafts of checkpoints": self.broker._checkpoints._drafts,
            "tickets": self.broker._registry.tickets,
            "commands": self.broker.commands._accepted,
        }
        for what, things in left.items():
            if things:
                self.violate(f"{what} are left: {things}")
        for command_id, told in self._told.items():
            stored = await self.broker._ledger.find(command_id)
            if stored is not None and stored.state != told:
                self.violate(f"{command_id}: its caller heard {told}, the ledger says {stored.state}")

    async def _outcome(self, command_id: str, agent: str) -> wire.CommandView:
        return await self._call(lambda broker: broker.commands.get(_caller(agent, 0), command_id))

    def _tabs(self) -> dict[str, Tab]:
        return self.disk._state.rows.get(Tab, {})  # type: ignore[return-value]

    def _sessions(self) -> dict[str, Session]:
        return self.disk._state.rows.get(Session, {})  # type: ignore[return-value]

    def _session_of(self, target_id: str) -> Session | None:
        for live in self.broker._registry:
            if any(tab.row.target_id == target_id for tab in live.tabs.values()):
                return self._sessions().get(live.row.id)
        return None


class SteppedLife(Life):
    """A life that checks the world whenever it touches it."""

    owners: SimOwners

    def __init__(self, world: World) -> None:
        super().__init__(world.chance, world.tell)
        self._world = world

    async def step(self, most_ms: float = 3.0) -> None:
        await super().step(most_ms)
        if not self.is_over:
            self._world.check()


def _most(names: Iterable[str]) -> int:
    return max(Counter(names).values(), default=0)


def _caller(agent: str, number: int) -> Caller:
    return Caller(agent_id=agent, scopes=AGENT_SCOPES, controller_id=f"{agent}-{number}")
