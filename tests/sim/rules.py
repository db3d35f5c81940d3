"""What must hold of sessions, tabs and direct commands in a simulated history.

Invariants (checked at every step of the world unless said otherwise):
- no two commands are ever at work in one page, also after a timeout, a cancel or a restart (`sim_perform`);
- no bound target without its lease row (record before bind);
- the counters of sessions, pooled tabs and tabs equal a recount of the rows, and no cap is exceeded;
- fences only grow, and every change of owner has a larger one;
- a command with a stale fence, or of another agent, touches nothing, also when it had waited; a release neither;
- commands of one tab start in the order in which they were accepted, and none of another controller under a tab lock;
- a command with an idempotency key runs once at the most, however often and after whatever it is repeated;
- a page that died is replaced within a moment, whenever and wherever it died;
- for one death of a page there is one new page, and a generation is never used twice;
- no command starts on a tab that a person has;
- no session is given to whoever asks for one while the broker drains;
- nobody finds in a session what another agent left in its context, also after pooling and recovery;
- nobody is reaped who was heard of within the time that the rules give;
- every accepted command has exactly one outcome, and it is the one its caller was told (at the end);
- nothing lives after its owner: no context, session, browser, place, mark or count is left (at the end);
- nothing of the broker fails unheard.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from tabherd import wire
from tabherd.broker.task_archive import ARCHIVED
from tabherd.core import caps, lease
from tabherd.core.lifecycle import LEASE, LeaseState, is_terminal
from tabherd.core.model import ArchivedTask, Checkpoint, Session, Tab
from tabherd.store.base import Add

from .fakes import SimTab, Target
from .tally import tally

if TYPE_CHECKING:
    from .world import World

# How long a session may be without a browser, whatever happens to those that it is given.
RECOVERED_S = 8
# How long a page that died may be left in its tab.
REBUILT_MS = 2_000
# How long an answer may be on its way.
ANSWER_MS = 100
# What the row of a session says whose page the broker has.
_BOUND_STATES = frozenset((*lease.HELD_STATES, LeaseState.CLOSING))


class Rules:
    """The judge of sessions, tabs and commands."""

    def __init__(self, world: World) -> None:
        self._world = world
        # What is on disk.
        self._sessions, self._tabs = world.disk.rows(Session), world.disk.rows(Tab)
        # What had been written when it was looked at last: anything, and what is judged here.
        self._checked_writes = 0
        self._checked_changes = 0
        # When each session's owner was last heard of, by the clock and in truth, and which process it named.
        self._heard_at: dict[str, tuple[int, int]] = {}
        self.pid_of: dict[str, int] = {}
        # The fence of every session ever seen, and the largest of them.
        self._fences: dict[str, tuple[int, str]] = {}
        self._fence_max = 0
        # Commands that callers were told about: id -> the outcome they heard.
        self.told: dict[str, str] = {}
        # Per tab, how many commands arrived before each; those that start must start in that order.
        self._arrivals: dict[str, int] = {}
        self._arrived: Counter[str] = Counter()
        self._last_started: dict[str, int] = {}
        # Who has ever held a session, or one whose page it was given with consent.
        self._owners_of: defaultdict[str, set[str]] = defaultdict(set)
        # How often each command ran.
        self._runs: Counter[str] = Counter()
        # By tab: whose session it is in, which controller was told that it has the lock, and until when.
        self._locks: dict[str, tuple[str, str, int]] = {}
        self._ever_locked: set[str] = set()
        # Tabs that a person drives, and how many commands may still begin there: the one that had its turn already.
        self._handed_off: dict[str, int] = {}
        # Since when the page of each tab has been dead.
        self._dead_since: dict[str, int] = {}
        # The drain under way that an operator was told of; another one is another object.
        self.drain: object | None = None
        # Sessions without a browser: since when, and when that was last seen.
        self._homeless: dict[str, tuple[int, int]] = {}
        # The page and generation that each tab had last.
        self._generations: dict[str, tuple[int, str]] = {}
        # Sessions whose end has been looked at.
        self._reaped: set[str] = set()

    # --- What it is told ------------------------------------------------------------------------------------

    def hear(self, session_id: str) -> None:
        """The owner of the session gave a sign of life."""
        self._heard_at[session_id] = self._world.clock_ms(), self._world.loop.clock_ms()

    def arrive(self, tab_id: str, label: str) -> None:
        """A command was accepted."""
        self._arrived[tab_id] += 1
        self._arrivals[label] = self._arrived[tab_id]

    def wants_lock(self, tab_id: str) -> None:
        """Somebody asks for the lock of the tab: from now on its commands may overtake others."""
        self._ever_locked.add(tab_id)

    def lock(self, session_id: str, tab_id: str, controller_id: str, lease_ms: int) -> None:
        """A controller was told that it has the lock."""
        # A little less than the broker says: it began to count before the answer was here.
        self._locks[tab_id] = session_id, controller_id, self._world.clock_ms() + lease_ms - ANSWER_MS

    def unlock(self, tab_id: str) -> None:
        self._locks.pop(tab_id, None)

    def unlock_all(self, controller_id: str) -> None:
        """That controller gives up everything."""
        self._locks = {tab_id: lock for tab_id, lock in self._locks.items() if lock[1] != controller_id}

    def hand_off(self, tab_id: str) -> None:
        """A person was told that the tab is theirs."""
        self._handed_off[tab_id] = 1

    def resume(self, tab_id: str) -> None:
        """The person is about to give it back."""
        self._handed_off.pop(tab_id, None)

    def owners_of(self, session_id: str) -> frozenset[str]:
        """Whose things may be in that session by now."""
        return frozenset(self._owners_of[session_id])

    def forget_life(self) -> None:
        """What a broker that was killed had promised for its own life."""
        self._locks.clear()
        self.drain = None

    # --- Commands -------------------------------------------------------------------------------------------

    def check_command(self, tab: SimTab, action: wire.Evaluate) -> None:
        """What must be true of a command that reaches a page."""
        who, label, fence, controller_id = action.expression.split("|")[:4]
        row = self.check_holder(tab, who, label, controller_id)
        if fence != "-" and int(fence) != row.fence:
            self._world.violate(f"{label} with fence {fence} reaches {tab.target_id}, whose fence is {row.fence}")
        # Under a lock the commands of its owner come first, but those of one controller keep their order.
        tab_id = self._tab_id(tab)
        self._check_order(f"{tab_id}/{controller_id}" if tab_id in self._ever_locked else tab_id, label)
        self._runs[label] += 1
        if self._runs[label] > 1:
            self._world.violate(f"{label} runs a second time")

    def check_holder(self, tab: SimTab, who: str, label: str, controller_id: str) -> Session:
        """Whoever acts on a page holds its lease, and finds nothing of others in it; returns the lease."""
        row = self._session_of(tab.target_id)
        if row is None or row.state is not LeaseState.ACTIVE:
            self._world.violate(f"{label} reaches {tab.target_id}, which no active lease covers")
        assert row is not None
        if row.agent_id != who:
            self._world.violate(f"{label} of {who} reaches {tab.target_id}, which {row.agent_id} holds")
        _, controller, expires_at = self._locks.get(self._tab_id(tab), ("", "", 0))
        if expires_at - self._world.set_ms > self._world.clock_ms() and controller != controller_id:
            self._world.violate(f"{label} runs on {tab.target_id} while {controller} has its lock")
        if (may_begin := self._handed_off.get(self._tab_id(tab))) is not None:
            if not may_begin:
                self._world.violate(f"{label} runs on {tab.target_id} while a person has it")
            self._handed_off[self._tab_id(tab)] -= 1
        cookies = tab.target.context.cookies
        strangers = [cookie["name"] for cookie in cookies if cookie["name"] not in self._owners_of[row.id]]
        if strangers:
            self._world.violate(f"{label} of {who} finds the cookies of {strangers} in {tab.target_id}")
        if {"name": who} not in cookies:
            cookies.append({"name": who})
        return row

    def _check_order(self, queue: str, label: str) -> None:
        arrival = self._arrivals[label]
        if arrival < self._last_started.get(queue, 0):
            self._world.violate(f"{label} starts in {queue} after a command that arrived later")
        self._last_started[queue] = arrival

    # --- At every step --------------------------------------------------------------------------------------

    def check(self) -> None:
        """What must hold whenever anything looks at the world."""
        world = self._world
        if world.disk.writes != self._checked_writes:
            self._checked_writes = world.disk.writes
            self._check_disk()
        if world.life.is_dead:
            return
        rows, stored_tabs = self._sessions, self._tabs
        for live in world.broker.registry._sessions.values():
            row = rows.get(live.row.id)
            if row is None or row.state not in _BOUND_STATES:
                world.violate(f"{live.row.id} is bound but its lease row says {row.state if row else 'nothing'}")
            elif live.browser is None and self._is_long_homeless(live.row.id):
                world.violate(f"{live.row.id} has had no browser for {RECOVERED_S} s")
            elif live.browser is not None and row.context_id != live.row.context_id:
                world.violate(f"{live.row.id} is bound to a context its row does not name")
            for tab in live.tabs.values():
                if tab.port is not None and tab.row.id not in stored_tabs:
                    world.violate(f"{tab.row.id} is bound but has no row")
                # One whose browser hangs is replaced when that has been noticed, one whose browser is gone with all of
                # its session.
                is_page_dead = live.browser is not None and tab.port is not None and tab.port.target.is_crashed
                if is_page_dead and not tab.port.browser.process.is_hung:
                    self._check_dead(tab.row.id)
                else:
                    self._dead_since.pop(tab.row.id, None)

    def _check_disk(self) -> None:
        """What must hold of rows and counters, after something was written."""
        changes = self._world.disk.changes(Session, Tab, ArchivedTask, Add)
        if changes == self._checked_changes:
            return
        self._checked_changes = changes
        rows = self._world.disk.rows(Session)
        self._check_fences(rows)
        self._check_generations()
        self._check_reaped(rows)
        self._check_caps([row for row in rows.values() if not is_terminal(LEASE, row.state)])

    def _check_dead(self, tab_id: str) -> None:
        now = self._world.loop.clock_ms()
        if now - self._dead_since.setdefault(tab_id, now) > REBUILT_MS:
            self._world.violate(f"the page of {tab_id} has been dead for {REBUILT_MS} ms, and nobody replaces it")

    def _is_long_homeless(self, session_id: str) -> bool:
        now = self._world.loop.clock_ms()
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
                    self._world.violate(
                        f"{row.id} was granted to {row.agent_id} with fence {row.fence} after {self._fence_max}"
                    )
                self._fences[row.id] = row.fence, row.agent_id
                self._fence_max = row.fence
                self._owners_of[row.id].add(row.agent_id)
                self.pid_of.pop(row.id, None)
                self._locks = {tab_id: lock for tab_id, lock in self._locks.items() if lock[0] != row.id}
                self.hear(row.id)
                self._inherit(row, rows)

    def _inherit(self, row: Session, rows: dict[str, Session]) -> None:
        """A page that was given back for the same agent brings along what is in it."""
        for other in rows.values():
            is_page_kept = other.context_id == row.context_id and other.reuse == "same-agent"
            if row.context_id and is_page_kept and other.agent_id == row.agent_id:
                self._owners_of[row.id] |= self._owners_of[other.id]

    def _check_generations(self) -> None:
        """A page is replaced once, and only if it died or something may still be at work in it."""
        rows = self._world.disk.rows(Session)
        for tab in self._world.disk.rows(Tab).values():
            generation, target_id = self._generations.get(tab.id, (tab.generation, tab.target_id))
            self._generations[tab.id] = tab.generation, tab.target_id
            if (tab.generation, tab.target_id) == (generation, target_id):
                continue
            if tab.generation != generation + 1 or tab.target_id == target_id:
                self._world.violate(
                    f"{tab.id} went from {generation} ({target_id}) to {tab.generation} ({tab.target_id})"
                )
            old = None if rows[tab.session_id].state is LeaseState.POOLED else self._target(target_id)
            is_doubted = target_id in self._world.closed_before or tab.id in self._world.marked_before
            if old is not None and not (old.is_crashed or old.is_touched or is_doubted):
                self._world.violate(f"{target_id} of {tab.id} was replaced although it was alive and well")

    def _target(self, target_id: str) -> Target | None:
        """The page, if its browser answers and its context is still there."""
        for process in self._world.processes.values():
            target = process.made.get(target_id)
            if target is not None and process.is_alive and not process.is_hung:
                return target if target.context in process.contexts.values() else None
        return None

    def _check_reaped(self, rows: dict[str, Session]) -> None:
        """Nobody who showed a sign of life is taken for gone."""
        stale_ms = self._world.config.pools["default"].stale_after_s * 1000
        for row in rows.values():
            if not row.end_reason or row.id in self._reaped:
                continue
            self._reaped.add(row.id)
            if row.end_reason not in (lease.ReapReason.STALE, lease.ReapReason.IDLE):
                continue
            # The broker heard of it a little before its client had the answer.
            by_clock, in_truth = self._heard_at.get(row.id, (0, 0))
            # By a clock that was set meanwhile it may be less than it was, or more.
            silent_ms = max(row.ended_at - by_clock, self._world.loop.clock_ms() - in_truth) + ANSWER_MS
            if silent_ms < stale_ms or self.pid_of.get(row.id) in self._world.alive_pids:
                self._world.violate(f"{row.id} was reaped ({row.end_reason}) {silent_ms} ms after its owner was heard")

    def _check_caps(self, open_rows: list[Session]) -> None:
        recount = tally()
        recount[ARCHIVED] = len(self._world.disk.rows(ArchivedTask))
        tabs = tally([tab.session_id for tab in self._tabs.values()])
        for row in open_rows:
            agent_id = "" if row.state is LeaseState.POOLED else row.agent_id
            for counter in _counters_of(row.pool, row.key, agent_id):
                recount[counter] += 1
            pages = 1 if row.state is LeaseState.RESERVED else tabs[row.id]
            recount[caps.tab_counter(row.pool, caps.Caps()).counter] += pages
        counted = self._world.disk.counters
        if counted != {name: value for name, value in recount.items() if value}:
            self._world.violate(f"counters say {counted}, a recount says {dict(recount)}")
        pool = self._world.config.pools["default"]
        pooled = [row for row in open_rows if row.state is LeaseState.POOLED]
        active = [row for row in open_rows if row.state is not LeaseState.POOLED]
        for what, count, cap in (
            ("sessions", len(active), pool.max_active),
            ("sessions of a key", _most(row.key for row in active if row.key), pool.max_active_per_key),
            ("sessions of an agent", _most(row.agent_id for row in active), pool.max_active_per_agent),
            ("pooled tabs", len(pooled), pool.max_pooled),
            ("pooled tabs of a key", _most(row.key for row in pooled if row.key), pool.max_pooled_per_key),
            ("tabs", sum(tabs.values()), pool.max_tabs),
        ):
            assert cap is not None
            if count > cap:
                self._world.violate(f"there are {count} {what}, the cap is {cap}")

    # --- At the end -----------------------------------------------------------------------------------------

    def left(self) -> Iterator[str]:
        """What outlives everybody who left."""
        world, broker = self._world, self._world.broker
        open_rows = [row.id for row in world.disk.rows(Session).values() if not is_terminal(LEASE, row.state)]
        if open_rows:
            yield f"sessions outlive their owners: {open_rows}"
        stock = {seat.context_id for pool in broker._pools.values() for slot in pool.slots for seat in slot.stock}
        contexts = {context_id for process in world.processes.values() for context_id in process.contexts}
        if contexts != stock:
            yield f"contexts outlive their sessions: {sorted(contexts - stock)}"
        running = [process.row.id for process in world.processes.values() if process.is_alive]
        supervised = [slot.row.id for pool in broker._pools.values() for slot in pool.slots if slot.browser]
        if sorted(running) != sorted(supervised):
            yield f"browsers run unsupervised: {sorted(set(running) - set(supervised))}"
        for name, admission in broker._admissions.items():
            if admission._claims or admission.waiting or world.marks:
                yield f"places or marks are never given back in {name}: {admission._claims} {world.marks}"
        left = {
            "tabs": world.disk.rows(Tab),
            "checkpoints": world.disk.rows(Checkpoint),
            "drafts of checkpoints": broker._checkpoints._drafts,
            "tickets": broker.registry.tickets,
            "commands": broker.commands._accepted,
        }
        for what, things in left.items():
            if things:
                yield f"{what} are left: {things}"

    async def check_end(self) -> None:
        """What was said in the end is what was said before."""
        for command_id, told in self.told.items():
            stored = await self._world.broker._ledger.find(command_id)
            if stored is not None and stored.state != told:
                self._world.violate(f"{command_id}: its caller heard {told}, the ledger says {stored.state}")

    def _tab_id(self, tab: SimTab) -> str:
        live = self._world.broker.registry.on_target(tab.target_id)
        return "" if live is None else live.row.id

    def _session_of(self, target_id: str) -> Session | None:
        tab = self._world.broker.registry.on_target(target_id)
        return None if tab is None else self._world.disk.rows(Session).get(tab.session.row.id)


@cache
def _counters_of(pool: str, key: str, agent_id: str) -> tuple[str, ...]:
    """In which counters such a session counts; without an agent, a tab that was given back."""
    none = caps.Caps()
    counters = caps.cap_counters(pool, key, agent_id, none) if agent_id else caps.pooled_counters(pool, key, none)
    return tuple(counter.counter for counter in counters)


def _most(names: Iterable[str]) -> int:
    return max(tally(names).values(), default=0)
