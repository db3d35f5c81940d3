"""What must hold of nodes, sessions, tabs and commands in a simulated cluster.

Invariants (checked at every transaction that lands, and at every command that reaches a page):
- a node that others have ended writes nothing, however late, and reaches no page;
- nobody is declared dead who could beat, and nobody because the database was away for everybody;
- a session is written by the node that has it, and changes nodes only when that one is over; then it does so soon, if
  any other node is well; the same holds of tasks, and of what somebody is to be told;
- a node is forgotten when nothing is left of it;
- fences only grow, and every change of owner has a larger one;
- what is over stays over;
- counters equal a recount of the rows, and no cap is exceeded by all nodes together;
- a command reaches the page that the row names, on the node that the row names, under the agent's own lease and fence;
  none while another is at work in the same tab on another node that lives, or in the same page;
- a command with an idempotency key runs once at the most;
- nobody is reaped who was heard of within the time that the rules give, or whose process lives.
At the end, when everything is healed and everybody has left:
- nothing lives after its owner: no session, tab, waiter, place, context or browser, and no count;
- every node is a member again, and every command has the outcome that its caller was told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from tests.sim.fakes import SimTab

from tabherd import wire
from tabherd.broker.task_archive import ARCHIVED
from tabherd.core import caps, lease
from tabherd.core.lifecycle import LEASE, LeaseState, NodeState, is_terminal
from tabherd.core.model import ArchivedTask, Checkpoint, Delivery, NamedLock, Node, Row, Session, Tab, Task, Waiter
from tabherd.store.base import Add, Applied, Delete, Insert, Op, Outcome, Put, Require, Update

if TYPE_CHECKING:
    from .node import NodeLife
    from .world import World

# How long an answer may be on its way.
ANSWER_MS = 150
# How long after its trouble is over a node may not have beaten yet.
BEATEN_S = 0.7
# How long after the death of a node somebody has taken up what it had.
TAKEN_S = 6.0
# Tables whose rows are counted.
COUNTED = (Session, Tab, Waiter, ArchivedTask)


class Before(msgspec.Struct, frozen=True):
    """What stood before a transaction."""

    rows: dict[tuple[type[Row], str], Row | None]
    # Whether the life that writes was over.
    is_shut_out: bool


class Rules:
    """The judge of nodes, sessions, tabs and commands."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._fence_max = 0
        # When each session's owner was last heard of, and which process of which machine it named.
        self._heard_at: dict[str, int] = {}
        self._pid_of: dict[str, tuple[str, int]] = {}
        # How often each command ran.
        self._runs: Counter[str] = Counter()
        # By tab: whose command is in which page.
        self._acting: dict[str, tuple[NodeLife, SimTab, str]] = {}
        # Commands that callers were told about: id -> the outcome they heard.
        self.told: dict[str, str] = {}

    # --- What it is told ------------------------------------------------------------------------------------

    def hear(self, session_id: str) -> None:
        """The owner of the session gave a sign of life."""
        self._heard_at[session_id] = self._world.loop.clock_ms()

    def named_process(self, session_id: str, node_id: str, pid: int) -> None:
        """The owner of the session is a process on that machine."""
        self._pid_of[session_id] = node_id, pid

    # --- Transactions ---------------------------------------------------------------------------------------

    def before(self, ops: tuple[Op, ...], writer: NodeLife | None) -> Before:
        """What has to be remembered of what stands."""
        rows: dict[tuple[type[Row], str], Row | None] = {}
        for op in ops:
            match op:
                case Insert(row=row) | Update(row=row) | Put(row=row):
                    rows[type(row), row.id] = self._world.database.row(type(row), row.id)
                case Delete(table=table, id=id):
                    rows[table, id] = self._world.database.row(table, id)
                case _:
                    pass
        return Before(rows, writer is not None and writer.is_shut_out)

    def wrote(self, before: Before, ops: tuple[Op, ...], outcome: Outcome, writer: NodeLife | None) -> None:
        """A transaction has landed."""
        world = self._world
        if not isinstance(outcome, Applied) or world.is_violated:
            return
        if before.is_shut_out and not all(isinstance(op, Require) for op in ops):
            assert writer is not None
            world.violate(f"{writer.node.id} (epoch {writer.node.epoch}) writes after its end: {_names(ops)}")
        is_counted = False
        for op, row in zip(ops, outcome.rows, strict=True):
            match op:
                case Add():
                    is_counted = True
                case Delete(table=table, id=id):
                    is_counted = is_counted or table in COUNTED
                    match before.rows[table, id]:
                        case NamedLock() as gone:
                            world.lock_rules.removed(gone, writer)
                        case Delivery() as gone:
                            world.webhook_rules.removed(gone, writer)
                        case _:
                            pass
                case Require():
                    pass
                case _:
                    assert row is not None
                    is_counted = is_counted or type(row) in COUNTED
                    self._check_row(before.rows[type(row), row.id], row, writer)
        world.webhook_rules.wrote(before.rows, [row for row in outcome.rows if row is not None], writer)
        if is_counted:
            self._check_counts()

    def _check_row(self, old: Row | None, new: Row, writer: NodeLife | None) -> None:
        match new:
            case Session():
                assert old is None or isinstance(old, Session)
                self._check_session(old, new, writer)
            case Node(state=NodeState.DEAD) if isinstance(old, Node) and old.state is NodeState.UP:
                self._check_death(new)
            case Node(state=NodeState.GONE) if left := self._left_by(new.id):
                self._world.violate(f"{new.id} is forgotten, and this is still its own: {left}")
            case Task():
                assert old is None or isinstance(old, Task)
                self._world.task_rules.wrote(old, new, writer)
            case NamedLock():
                assert old is None or isinstance(old, NamedLock)
                self._world.lock_rules.wrote(old, new, writer)
            case _:
                pass

    def _check_session(self, old: Session | None, new: Session, writer: NodeLife | None) -> None:
        world = self._world
        if old is None or (old.agent_id, old.fence) != (new.agent_id, new.fence):
            if new.fence <= self._fence_max:
                world.violate(f"{new.id} is {new.agent_id}'s with fence {new.fence} after {self._fence_max}")
            self._fence_max = new.fence
            self._pid_of.pop(new.id, None)
            self.hear(new.id)
            world.verb_rules.owned(new)
        if old is None:
            return
        if is_terminal(LEASE, old.state) and new.state is not old.state:
            world.violate(f"{new.id} was {old.state} and is {new.state}")
        if old.node_id != new.node_id:
            node = world.database.row(Node, old.node_id)
            if node is not None and node.state is NodeState.UP:
                world.violate(f"{new.id} is taken from {old.node_id}, which lives")
            world.tell(f"{new.id} moves from {old.node_id} to {new.node_id}")
        elif writer is not None and writer.node.id != old.node_id:
            world.violate(f"{writer.node.id} writes {new.id}, which {old.node_id} has")
        if new.end_reason and not old.end_reason:
            self._check_reaped(new)

    def _check_reaped(self, row: Session) -> None:
        """Nobody who showed a sign of life is taken for gone."""
        world = self._world
        node_id, pid = self._pid_of.get(row.id, ("", 0))
        is_alive = bool(pid) and pid in world.machines[node_id].alive_pids
        if row.end_reason == lease.ReapReason.OWNER_DEAD and is_alive:
            world.violate(f"{row.id} ends because its owner is dead, but process {pid} on {node_id} lives")
        if row.end_reason in (lease.ReapReason.STALE, lease.ReapReason.IDLE):
            # What was heard is written down after that, and answered later still.
            late_ms = ANSWER_MS + 2_000 * world.database.slowest_s
            silent_ms = int(row.ended_at - self._heard_at.get(row.id, 0) + late_ms)
            if silent_ms < world.config.pools["default"].stale_after_s * 1000:
                world.violate(f"{row.id} was reaped ({row.end_reason}) {silent_ms} ms after its owner was heard")

    def _check_death(self, dead: Node) -> None:
        world = self._world
        world.tell(f"{dead.id} (epoch {dead.epoch}) is declared dead")
        if not world.machines[dead.id].had_trouble(BEATEN_S):
            world.violate(f"{dead.id} is declared dead, and nothing kept it from beating but the database")
        world.loop.call_later(TAKEN_S, self._check_taken, dead, context=world.loop.outside)
        world.task_rules.died(dead)

    def _check_taken(self, dead: Node) -> None:
        """Whoever is well has taken up what a node had that is still over."""
        world = self._world
        is_well = not (world.database.is_away or world.database.slow_s)
        is_well = is_well and world.database.troubled_until_s < world.loop.now_s - TAKEN_S
        well = [
            machine.node_id
            for machine in world.machines.values()
            if machine.current is not None
            and not machine.had_trouble(TAKEN_S)
            and machine.current.membership.is_trusted
        ]
        row = world.database.row(Node, dead.id)
        if not is_well or not well or row is None or row.version != dead.version or world.is_violated:
            return
        if left := self._left_by(dead.id):
            # Noted only: this is nobody's call.
            world.note_violation(f"{left} are still {dead.id}'s, which is over, although {well[0]} is well")

    def _left_by(self, node_id: str) -> list[str]:
        """What a node has that others take up when it is over."""
        sessions = self._world.database.rows(Session).values()
        held = [row.id for row in sessions if row.node_id == node_id and row.state in lease.HELD_STATES]
        return [*held, *self._world.task_rules.live_of(node_id), *self._world.webhook_rules.pending_of(node_id)]

    def _check_counts(self) -> None:
        database = self._world.database
        pages = Counter(tab.session_id for tab in database.rows(Tab).values())
        recount: Counter[str] = Counter({ARCHIVED: len(database.rows(ArchivedTask))})
        open_rows = [row for row in database.rows(Session).values() if not is_terminal(LEASE, row.state)]
        none = caps.Caps()
        for row in open_rows:
            is_pooled = row.state is LeaseState.POOLED
            counters = (
                caps.pooled_counters(row.pool, row.key, none)
                if is_pooled
                else caps.cap_counters(row.pool, row.key, row.agent_id, none)
            )
            for counter in counters:
                recount[counter.counter] += 1
            recount[caps.tab_counter(row.pool, none).counter] += (
                1 if row.state is LeaseState.RESERVED else pages[row.id]
            )
        counters_now = {name: n for name, n in database.counters.items() if n and not name.startswith("seq:")}
        # Those that several nodes share count from one, once any node has begun.
        recount.update({name: caps.WAITING_BASE for name in counters_now if name.startswith("waiting:")})
        recount.update(caps.waiting_counter(row.pool) for row in database.rows(Waiter).values() if not row.granted_by)
        if counters_now != {name: n for name, n in recount.items() if n}:
            self._world.violate(f"counters say {counters_now}, a recount says {dict(recount)}")
        pool = self._world.config.pools["default"]
        active = [row for row in open_rows if row.state is not LeaseState.POOLED]
        for what, count, cap in (
            ("sessions", len(active), pool.max_active),
            ("sessions of a key", _most(row.key for row in active if row.key), pool.max_active_per_key),
            ("sessions of an agent", _most(row.agent_id for row in active), pool.max_active_per_agent),
        ):
            assert cap is not None
            if count > cap:
                self._world.violate(f"there are {count} {what} on all nodes, the cap is {cap}")

    # --- Commands -------------------------------------------------------------------------------------------

    def check_act(self, life: NodeLife, tab: SimTab, action: wire.Evaluate) -> Callable[[], None]:
        """What must be true of a command that is sent to a page; what is returned is called when it got there."""
        world = self._world
        who, label, fence, controller_id = action.expression.split("|")[:4]
        if life.is_shut_out:
            world.violate(f"{life.node.id} (epoch {life.node.epoch}) sends {label} to a page after its end")
        row = world.database.row(Tab, self._tab_id(life, tab))
        session = None if row is None else world.database.row(Session, row.session_id)
        if row is None or session is None or session.state is not LeaseState.ACTIVE:
            world.violate(f"{label} reaches {tab.target_id}, which no active lease covers")
        if session.node_id != life.node.id or row.node_id != life.node.id or row.target_id != tab.target_id:
            world.violate(
                f"{label} reaches {tab.target_id} on {life.node.id}; {row.id} is {row.target_id} on {session.node_id}"
            )
        if session.agent_id != who or (fence != "-" and int(fence) != session.fence):
            world.violate(f"{label} of {who} with fence {fence} reaches {session.agent_id}'s {session.id}")
        world.tab_rules.check_act(life, row, session, label, controller_id)
        other, page, command = self._acting.get(row.id, (life, tab, ""))
        if other is not life and page.target.active is not None and not other.is_over and not other.is_shut_out:
            world.violate(f"{label} starts on {row.id} at {life.node.id} while {command} is at {other.node.id}")
        self._acting[row.id] = life, tab, label
        if label.startswith("task"):
            world.task_rules.check_run(life, label, session)
            return partial(world.task_rules.reached, label)
        return partial(self._reached, label)

    def _reached(self, label: str) -> None:
        self._runs[label] += 1
        if self._runs[label] > 1:
            self._world.violate(f"{label} runs a second time")

    def acted(self, life: NodeLife, tab: SimTab, action: wire.AnyAction) -> None:
        """A command has done its work in the page, which is a sign of life of whoever sent it."""
        row = self._world.database.row(Tab, self._tab_id(life, tab))
        session = None if row is None else self._world.database.row(Session, row.session_id)
        # A node that has lost the session can tell nobody what it heard.
        if session is None or session.node_id != life.node.id or life.is_over or life.is_shut_out:
            return
        if isinstance(action, wire.Evaluate) and action.expression.partition("|")[0] == session.agent_id:
            self.hear(session.id)

    def _tab_id(self, life: NodeLife, tab: SimTab) -> str:
        found = life.broker.registry.on_target(tab.target_id)
        return "" if found is None else found.row.id

    # --- At the end -----------------------------------------------------------------------------------------

    def left(self) -> Iterator[str]:
        """What should not be there after the last client has left, with everything healed."""
        world = self._world
        database = world.database
        open_rows = [row.id for row in database.rows(Session).values() if not is_terminal(LEASE, row.state)]
        left: dict[str, Iterable[Any]] = {
            "sessions": open_rows,
            "tabs": database.rows(Tab),
            "waiters": database.rows(Waiter),
            "checkpoints": database.rows(Checkpoint),
        }
        for what, things in left.items():
            if things:
                yield f"{what} are left: {things}"
        for machine in world.machines.values():
            life = machine.current
            if life is None or life.is_shut_out or not life.membership.is_trusted:
                yield f"{machine.node_id} is no member although everything is healed"
            else:
                yield from self._left_on(life)

    async def check_end(self) -> None:
        """Every command has the outcome that its caller was told."""
        world = self._world
        for command_id, told in self.told.items():
            for life in world.lives:
                stored = None if life.is_over else await life.broker._ledger.find(command_id)
                if stored is not None and stored.state != told:
                    world.violate(f"{command_id}: its caller heard {told}, the ledger says {stored.state}")

    def _left_on(self, life: NodeLife) -> Iterator[str]:
        """What is left on one node."""
        world, broker, name = self._world, life.broker, life.node.id
        peers = {id for id in world.machines if id != name}
        if set(life.membership.peers) != peers:
            yield f"{name} knows {sorted(life.membership.peers)} of {sorted(peers)}"
        stock = {seat.context_id for pool in broker._pools.values() for slot in pool.slots for seat in slot.stock}
        browsers = life.machine.browsers.values()
        contexts = {context_id for process in browsers for context_id in process.contexts}
        if contexts != stock:
            yield f"contexts outlive their sessions on {name}: {sorted(contexts - stock)}"
        running = [process.row.id for process in browsers if process.is_alive]
        supervised = [slot.row.id for pool in broker._pools.values() for slot in pool.slots if slot.browser]
        if sorted(running) != sorted(supervised):
            yield f"browsers run unsupervised on {name}: {sorted(set(running) - set(supervised))}"
        for admission in broker._admissions.values():
            if admission._claims or admission.waiting:
                yield f"places are never given back on {name}: {admission._claims}"
        for what, things in (("tickets", broker.registry.tickets), ("commands", broker.commands._accepted)):
            if things:
                yield f"{what} are left on {name}: {things}"


def _names(ops: tuple[Op, ...]) -> str:
    return ", ".join(type(op).__name__ + " " + type(getattr(op, "row", op)).__name__ for op in ops)


def _most(names: Iterable[str]) -> int:
    return max(Counter(names).values(), default=0)
