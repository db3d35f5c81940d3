"""What must hold of tasks in a simulated cluster.

Invariants (checked at every write of a task, and when one reaches a page):
- a task ends once, and its end never changes; whoever is told of an end is told of that one;
- what a node has claimed is written by that node alone, unless it is over;
- one that reaches a page says so on disk, and is of the node that sends it; it reaches it once, or, if it may be
  repeated, as often as the settings allow, through whatever happens to nodes;
- a key stands for one task;
- one that names a tab or a session acts under no lease that began after it was on disk;
- a task of a node that is over whose deadline has passed is ended, and taken on by nobody; until then it waits for its
  session, but not for one that is over.
At the end: every task that was acknowledged is over, and one that is done has run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tabherd.core.lifecycle import TASK, NodeState, TaskState, is_terminal
from tabherd.core.model import Node, Session, Tab, Task
from tabherd.errors import DeadlineExceeded

from .task_clients import Asked

if TYPE_CHECKING:
    from .node import NodeLife
    from .world import World

# How long it may take until what is to become of a task of a node that is over is on disk, if all is well.
LATE_MS = 500
# How long a node has had no trouble that is.
FAST_S = 3.0


class TaskRules:
    """The judge of tasks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._asked: dict[str, Asked] = {}
        # Tasks that were acknowledged, by label, and how each ended.
        self._ids: dict[str, str] = {}
        self.ends: dict[str, Task] = {}
        # The lease of the session that a task names, when the task was first on disk.
        self._fences: dict[str, int] = {}
        # When each node was last declared dead.
        self._died_at: dict[str, int] = {}
        # How often each step reached a page.
        self._runs: Counter[str] = Counter()

    # --- What callers ask and hear --------------------------------------------------------------------------

    def ask(self, asked: Asked) -> None:
        self._asked[asked.label] = asked

    def acknowledged(self, asked: Asked, task_id: str) -> None:
        world = self._world
        world.tell(f"{asked.label} of {asked.agent} is {task_id}")
        if self._ids.setdefault(asked.label, task_id) != task_id:
            world.violate(f"{asked.label} is {task_id} after it was {self._ids[asked.label]}")
        if task_id not in world.database.rows(Task) and task_id not in self.ends:
            world.violate(f"{task_id} was acknowledged but is not on disk")

    def told(self, task_id: str, state: str) -> None:
        self._world.tell(f"{task_id} is {state}")
        end = self.ends.get(task_id)
        if is_terminal(TASK, TaskState(state)) and (end is None or end.state != state):
            self._world.violate(f"{task_id} is said to be {state}, but on disk it is {end.state if end else 'alive'}")

    # --- Rows -----------------------------------------------------------------------------------------------

    def wrote(self, old: Task | None, new: Task, writer: NodeLife | None) -> None:
        """A row has landed."""
        world = self._world
        if world.is_violated:
            return
        if (end := self.ends.get(new.id)) is not None and end.state is not new.state:
            world.violate(f"{new.id} was {end.state} and is {new.state}")
        if old is not None and old.node_id and writer is not None and old.node_id != writer.node.id:
            node = world.database.row(Node, old.node_id)
            if node is not None and node.state is NodeState.UP:
                world.violate(f"{writer.node.id} writes {new.id}, which {old.node_id} has")
        if is_terminal(TASK, new.state):
            self.ends[new.id] = new
            if old is not None and new.code == DeadlineExceeded.code and new.node_id != old.node_id in self._died_at:
                self._check_waited(old, writer)
        elif old is not None and old.node_id and new.node_id not in ("", old.node_id) and writer is not None:
            late_ms = world.loop.clock_ms() - new.deadline_at
            if late_ms > LATE_MS and self._is_fast(writer):
                world.violate(f"{writer.node.id} takes on {new.id} of {old.node_id} {late_ms} ms after its deadline")
        if old is None and (new.tab_id or new.session_id):
            tab = world.database.row(Tab, new.tab_id)
            named = world.database.row(Session, new.session_id if tab is None else tab.session_id)
            self._fences[new.id] = 0 if named is None else named.fence

    def died(self, dead: Node) -> None:
        """That node is over from now on."""
        self._died_at[dead.id] = self._world.loop.clock_ms()

    def _check_waited(self, row: Task, writer: NodeLife | None) -> None:
        """The deadline of a task ends it whose node is over: there was a session that it could wait for."""
        tab = self._world.database.row(Tab, row.tab_id)
        session = self._world.database.row(Session, row.session_id if tab is None else tab.session_id)
        if session is None or not session.ended_at or writer is None:
            return
        over_ms = row.deadline_at - max(session.ended_at, self._died_at[row.node_id])
        if over_ms > LATE_MS and self._is_fast(writer):
            self._world.violate(
                f"{row.id} of {row.node_id} waits {over_ms} ms for {session.id}, which is {session.state}"
            )

    def _is_fast(self, life: NodeLife) -> bool:
        """Whether nothing has kept that node from writing at once, for a while."""
        database, now_s = self._world.database, self._world.loop.now_s
        is_well = not (database.is_away or database.slow_s) and database.troubled_until_s < now_s - FAST_S
        return is_well and not life.machine.had_trouble(FAST_S)

    def live_of(self, node_id: str) -> list[str]:
        """What that node has claimed or been given, and is not over."""
        rows = self._world.database.rows(Task).values()
        return [row.id for row in rows if row.node_id == node_id and not is_terminal(TASK, row.state)]

    def check_run(self, life: NodeLife, label: str, lease: Session) -> None:
        """It is sent to a page of that lease."""
        world = self._world
        needle = f"|{label}|"
        rows = [row for row in world.database.rows(Task).values() if needle in row.request]
        row = next((row for row in rows if row.state is TaskState.RUNNING), None)
        if row is None or row.node_id != life.node.id:
            world.violate(f"{label} is sent by {life.node.id}, and on disk it is {[str(row.state) for row in rows]}")
        if lease.fence > (fence := self._fences.get(row.id, lease.fence)):
            world.violate(f"{label} acts under fence {lease.fence}, and was submitted under {fence}")

    def reached(self, label: str) -> None:
        """It got there: a browser that dies before that leaves it to be sent again."""
        self._runs[label] += 1
        is_idempotent = self._asked[label.partition(".")[0]].is_idempotent
        most = self._world.config.scheduler.attempts_max if is_idempotent else 1
        if self._runs[label] > most:
            self._world.violate(f"{label} reaches a page {self._runs[label]} times, and may {most} times")

    # --- At the end -----------------------------------------------------------------------------------------

    def left(self) -> Iterator[str]:
        world = self._world
        for label, task_id in self._ids.items():
            end = self.ends.get(task_id)
            if end is None:
                yield f"{task_id} ({label}) was acknowledged and never ended"
            elif end.state is TaskState.DONE and not any(self._runs[name] for name in (label, f"{label}.0")):
                yield f"{task_id} ({label}) is done and has never run"
        left = [row.id for row in world.database.rows(Task).values() if not is_terminal(TASK, row.state)]
        if left:
            yield f"tasks are left: {left}"
        for machine in world.machines.values():
            if machine.current is None:
                continue
            scheduler = machine.current.broker.tasking.scheduler
            if scheduler.count_live or scheduler.queue.waiting or scheduler.queue.in_flight:
                yield f"{machine.node_id} counts tasks that are over: {scheduler.count_live}"
