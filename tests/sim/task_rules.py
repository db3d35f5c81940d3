"""What must hold of tasks in a simulated history.

Invariants (checked at every step of the world unless said otherwise):
- a task that was acknowledged is on disk from then on, until its result has been kept as long as it should;
- it ends once: on disk its end never changes, nobody is told of another, and one event tells it, after that;
- what is told of it follows the table of states, in every life of the broker;
- it reaches its page once at the most, and if it may be repeated, as often as the settings allow; through any kill;
- one that reached its page is never said not to have run, and one that is done has reached it;
- it acts for its agent on a lease that the agent has, never under somebody else's tab lock or command; its steps
  follow each other in one page;
- one that names a tab or a session acts under no lease that began after it was on disk;
- it ends at its deadline;
- a key stands for one task;
- counts of the scheduler, of its queue and of sessions equal a recount;
- what is on disk as waiting is known to the scheduler, and what was leased for a task is given back with it;
- nothing of it is left in the end: no mark, no row, no count (at the end).
The order in which tasks start is judged by `task_turns`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from tabherd.broker.task_ending import LATE_QUEUED
from tabherd.core.lease import HELD_STATES
from tabherd.core.lifecycle import TASK, TaskState, is_terminal
from tabherd.core.model import ArchivedTask, Session, Tab, Task, TaskKey
from tabherd.core.task_queue import TaskQueue

from .fakes import SimTab
from .tally import tally
from .task_clients import Asked, parse
from .task_turns import TaskTurns

if TYPE_CHECKING:
    from .world import World

# How late the end of a task may be.
LATE_MS = 50
# How long a task may be on disk before the scheduler has it, or after it has ended there.
UNKNOWN_MS = 50
# How long a session may outlive the task that it was leased for, also if the broker did not survive it.
GIVEN_BACK_MS = 2_000
_TOLD = {state: frozenset(moves.values()) for state, moves in TASK.items()}


class TaskRules:
    """The judge of tasks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._asked: dict[str, Asked] = {}
        # Tasks that were acknowledged or rejected, by label; a key has one of the former.
        self._ids: dict[str, str] = {}
        # Everything that was ever on disk, as it was there last, and how it ended there.
        self._rows: dict[str, Task] = {}
        self._ends: dict[str, Task] = {}
        # Which task a label became; rejected ones do not count.
        self._task_of: dict[str, str] = {}
        # The lease of the session that a task names, when the task was first on disk.
        self._fences: dict[str, int] = {}
        # How often each reached its page, and what a page was last reached by.
        self._runs: Counter[str] = Counter()
        self._last_in: dict[str, tuple[str, int]] = {}
        # What had been written when it was looked at last: anything, and tasks.
        self._checked_writes = 0
        self._checked_changes = 0
        # What was told of each in this life, and how often its end was told, ever.
        self._told: dict[str, TaskState] = {}
        self._ends_told: Counter[str] = Counter()
        self._heard = 0
        self._ends_here: Counter[TaskState] = Counter()
        # Since when something has been as it may be for a moment only.
        self._unknown_since: dict[str, int] = {}
        self._idle_since: dict[str, int] = {}
        # Sessions that were leased for tasks, and their fences: one that was given away is somebody's own.
        self._leased: dict[str, int] = {}
        # What was there when it was last looked at, and last counted.
        self._there: tuple[int, ...] = ()
        self._counted_tasks: tuple[int, ...] = ()
        self._counted_sessions = 0
        # Which session every tab has been in, as far as this life of the broker knows.
        self._session_of: dict[str, str] = {}
        # When the broker had taken up what was left; 0: not yet.
        self._settled_at = 0
        # Of this life.
        self._turns: TaskTurns
        self._queue: TaskQueue

    def begin_life(self) -> None:
        """Another broker: it has told nothing yet."""
        self._told.clear()
        self._ends_here.clear()
        self._unknown_since.clear()
        self._idle_since.clear()
        self._settled_at = 0
        # Whatever was counted, this one has not.
        self._there = self._counted_tasks = ()
        self._turns = TaskTurns(self._world)
        self._queue = self._world.broker.tasking.scheduler.queue
        self._session_of.clear()

    # --- What callers hear ----------------------------------------------------------------------------------

    def ask(self, asked: Asked) -> None:
        """Somebody is about to submit this."""
        self._asked[asked.label] = asked

    def id_of(self, asked: Asked) -> str | None:
        return self._ids.get(asked.label)

    def acknowledged(self, asked: Asked, task_id: str) -> None:
        self._world.tell(f"{asked.label} of {asked.agent} is {task_id}")
        self._look()
        if task_id not in self._rows:
            self._world.violate(f"{task_id} was acknowledged but is not on disk")
        if self._task_of.get(asked.label) != task_id:
            self._world.violate(f"{asked.label} is {task_id} after it was {self._task_of.get(asked.label)}")
        self._ids[asked.label] = task_id

    def rejected(self, asked: Asked, task_id: str) -> None:
        self._world.tell(f"{asked.label} of {asked.agent} is rejected ({task_id})")

    def told(self, task_id: str, state: str, how: str) -> None:
        """Somebody was told what a task is."""
        self._look()
        self._world.tell(f"{task_id} is {state} ({how})")
        end = self._ends.get(task_id)
        if is_terminal(TASK, TaskState(state)) and (end is None or end.state != state):
            self._world.violate(f"{task_id} is said to be {state}, but on disk it is {end.state if end else 'queued'}")
        if not self._world.life.is_dead:
            self._turns.check_positions()

    def hear(self, state: str, task_id: str) -> None:
        """An event of a task is told."""
        self._look()
        self._heard += 1
        told, last = TaskState(state), self._told.get(task_id)
        if last is None:
            # Of one that waited already in an earlier life, waiting is not told again.
            is_legal = told in (TaskState.QUEUED, TaskState.REJECTED) or told in _TOLD[TaskState.QUEUED]
        else:
            is_legal = told in _TOLD[last]
        if not is_legal:
            self._world.violate(f"{task_id} is told to be {told} after {last}")
        self._told[task_id] = told
        self._world.tell(f"{task_id}: {told}")
        if is_terminal(TASK, told):
            self._ends_told[task_id] += 1
            self._ends_here[told] += 1
            if self._ends_told[task_id] > 1:
                self._world.violate(f"the end of {task_id} is told a second time")
            if told is not TaskState.REJECTED and (task_id not in self._ends or self._ends[task_id].state is not told):
                self._world.violate(f"{task_id} is told to be {told} before it is on disk")

    # --- What pages see -------------------------------------------------------------------------------------

    def check_run(self, tab: SimTab, expression: str) -> Callable[[], None]:
        """What must be true of a task that is sent to a page; what is returned is called when it got there."""
        label, step = parse(expression)
        asked = self._asked[label]
        late_ms = self._world.clock_ms() - self._rows[self._task_of[label]].deadline_at
        if not step and late_ms > 0:
            self._world.violate(f"{label} is sent to {tab.target_id} {late_ms} ms after its deadline")
        if not step:
            lease = self._world.rules.check_holder(tab, asked.agent, label, f"task/{label}")
            if not asked.tab_id and not asked.session_id:
                self._leased[lease.id] = lease.fence
            elif lease.fence > (fence := self._fences[self._task_of[label]]):
                self._world.violate(f"{label} acts under fence {lease.fence}, and was submitted under {fence}")
        elif self._last_in.get(tab.target_id) != (label, step - 1):
            self._world.violate(f"step {step} of {label} does not follow the one before")

        def acted() -> None:
            self._last_in[tab.target_id] = label, step
            if step:
                return
            self._runs[label] += 1
            most = self._world.config.scheduler.attempts_max if asked.is_idempotent else 1
            if self._runs[label] > most:
                self._world.violate(f"{label} reaches a page {self._runs[label]} times")

        return acted

    # --- What is on disk ------------------------------------------------------------------------------------

    @property
    def ends(self) -> dict[str, Task]:
        """How each ended on disk, of those that did."""
        return self._ends

    def row(self, task_id: str) -> Task:
        """As it was on disk last."""
        self._look()
        return self._rows[task_id]

    def _look(self) -> None:
        """See what has changed on disk."""
        disk = self._world.disk
        if disk.writes == self._checked_writes:
            return
        self._checked_writes = disk.writes
        changes = disk.changes(Task, ArchivedTask)
        if changes == self._checked_changes or self._world.is_violated:
            return
        self._checked_changes = changes
        hot, archived = disk.rows(Task), disk.rows(ArchivedTask)
        for row in (*hot.values(), *archived.values()):
            known = self._rows.get(row.id)
            if known is None:
                self._first_seen(row)
            if known is not row:
                self._rows[row.id] = row
                self._check_row(row)
        now, config = self._world.clock_ms(), self._world.config
        for task_id, end in self._ends.items():
            age_s = (now - end.completed_at) / 1000
            if task_id in archived:
                if task_id in hot or age_s < config.scheduler.result_ttl_s:
                    self._world.violate(f"{task_id} is in the archive {age_s} s after its end")
            elif task_id not in hot and age_s < config.retention.tasks_s and not self._may_be_dropped(end):
                self._world.violate(f"the end of {task_id} is forgotten after {age_s} s")
        for task_id in self._rows.keys() - self._ends.keys() - hot.keys():
            self._world.violate(f"{task_id} is lost")

    def _may_be_dropped(self, end: Task) -> bool:
        """Of those that were refused only the latest are kept."""
        refused = [other for other in self._ends.values() if other.state is TaskState.REJECTED]
        # Those that were refused at nearly the same time may have been written in another order, and a clock that is
        # set makes the later ones look earlier.
        not_long_before = end.completed_at - LATE_MS - self._world.set_ms
        later = sum(other.completed_at >= not_long_before for other in refused) - 1
        return end.state is TaskState.REJECTED and later >= self._world.config.retention.rejected_max

    def _first_seen(self, row: Task) -> None:
        label = _label_of(row)
        if row.state is TaskState.REJECTED:
            return
        if label in self._task_of:
            self._world.violate(f"{label} became {row.id} after it was {self._task_of[label]}")
        self._task_of[label] = row.id
        tab, sessions = self._world.disk.rows(Tab).get(row.tab_id), self._world.disk.rows(Session)
        named = sessions.get(row.session_id if tab is None else tab.session_id)
        self._fences[row.id] = 0 if named is None else named.fence

    def _check_row(self, row: Task) -> None:
        end = self._ends.get(row.id)
        if end is not None:
            if (row.state, row.result, row.code, row.completed_at) != (
                end.state,
                end.result,
                end.code,
                end.completed_at,
            ):
                self._world.violate(f"{row.id} ended as {end.state}, and then as {row.state}")
        elif is_terminal(TASK, row.state):
            self._ends[row.id] = row
            self._check_end_of(row)
        elif row.state is not TaskState.QUEUED:
            self._world.violate(f"{row.id} is {row.state} on disk, where it is either queued or over")

    def _check_end_of(self, row: Task) -> None:
        """What is said of a task that is over is what its page has seen."""
        label = _label_of(row)
        runs = self._runs[label] if row.state is not TaskState.REJECTED else 0
        self._world.tell(f"{label} ({row.id}) is {row.state} {row.code}: {row.error} ({runs} of {row.attempts} runs)")
        if row.attempts < runs or (runs and row.error == LATE_QUEUED):
            self._world.violate(
                f"{label} reached a page {runs} times, but is said to have run {row.attempts}: {row.error}"
            )
        if row.state is TaskState.DONE and (not runs or label not in row.result):
            self._world.violate(f"{label} is done with {row.result!r}, but was run {runs} times")

    # --- At every step --------------------------------------------------------------------------------------

    def check(self) -> None:
        """What must hold whenever anything looks at the world."""
        if self._world.disk.writes != self._checked_writes:
            self._look()
        if self._world.life.is_dead or not self._world.life.is_settled:
            return
        queue = self._queue
        there = (self._checked_writes, self._heard, len(queue._waiting), len(queue._in_flight))
        if there != self._there:
            self._there = there
            self._check_changes(*there[1:])
        elif self._unknown_since or self._idle_since:
            self._check_known()
            self._check_leases()

    def _check_changes(self, *there: int) -> None:
        """Something was written, or told, or is in the queue, or not any more."""
        disk = self._world.disk
        tasks, sessions = (disk.changes(Task), *there), disk.changes(Session, Tab)
        if tasks != self._counted_tasks:
            self._check_counts()
        if (tasks, sessions) != (self._counted_tasks, self._counted_sessions):
            self._counted_tasks, self._counted_sessions = tasks, sessions
            self._check_counts_of_sessions()
        elif not self._unknown_since and not self._idle_since:
            return
        self._check_known()
        self._check_leases()

    def check_idle(self) -> None:
        """What must hold when nothing is left to do but to wait."""
        if self._world.life.is_settled:
            self._settled_at = self._settled_at or self._world.clock_ms()
            if self._queue._waiting or self._queue._in_flight:
                self._turns.check_idle()
                self._check_deadlines()

    def _check_deadlines(self) -> None:
        now, queue, scheduler = self._world.clock_ms(), self._queue, self._world.broker.tasking.scheduler
        for task_id in (*queue._waiting, *queue._in_flight):
            late_ms = now - max(self._rows[task_id].deadline_at, self._settled_at) - self._world.set_ms
            if late_ms <= LATE_MS:
                continue
            live = scheduler.find(task_id)
            # One whose first try is being written down ends when that is on disk, which may have refused it once.
            if live is None or not live.is_being_updated:
                self._world.violate(f"{task_id} is not over {late_ms} ms after its deadline")

    def _check_counts(self) -> None:
        queue, stats = self._queue, self._world.broker.tasking.verbs.stats()
        waiting = tally([task.agent_id for task in queue._waiting.values()])
        flying = tally([task.agent_id for task in queue._in_flight.values()])
        agents, total = waiting.keys() | flying.keys(), (len(queue._waiting), len(queue._in_flight))
        for agent, counts in (("", stats.metrics), *stats.metrics.agents.items()):
            there = waiting[agent] + flying[agent] if agent else sum(total)
            over = counts.tasks_completed + counts.tasks_failed + counts.tasks_cancelled + counts.tasks_rejected
            if counts.tasks_submitted != over + there:
                self._world.violate(f"{agent or 'all'}: {counts.tasks_submitted} came, {over} ended, {there} are there")
        counted = {agent: (each.queued, each.inflight) for agent, each in stats.queue.agents.items()}
        if counted != {agent: (waiting[agent], flying[agent]) for agent in agents}:
            self._world.violate(f"the queue says {counted}, a recount says {dict(waiting)} and {dict(flying)}")
        if (stats.queue.total_queued, stats.queue.total_inflight) != total:
            self._world.violate(f"the queue says {stats.queue}, a recount {dict(waiting)} and {dict(flying)}")

    def _check_counts_of_sessions(self) -> None:
        broker, queue = self._world.broker, self._queue
        self._session_of |= {tab_id: live.row.id for live in broker.registry for tab_id in live.tabs}
        of_session = tally()
        for task_id in (*queue._waiting, *queue._in_flight):
            row = self._rows[task_id]
            # One whose tab is gone ends a little later.
            of_session[self._session_of.get(row.tab_id, row.session_id)] += 1
        for live in broker.registry:
            if live.tasks != of_session[live.row.id]:
                self._world.violate(f"{live.row.id} counts {live.tasks} tasks, there are {of_session[live.row.id]}")

    def _check_known(self) -> None:
        """The scheduler has everything that waits on disk."""
        # In truth, and not by a clock that may be set meanwhile.
        now, scheduler = self._world.loop.clock_ms(), self._world.broker.tasking.scheduler
        unknown = {
            row.id
            for row in self._world.disk.rows(Task).values()
            if row.state is TaskState.QUEUED and scheduler.find(row.id) is None
        }
        self._unknown_since = {task_id: self._unknown_since.get(task_id, now) for task_id in unknown}
        for task_id, since in self._unknown_since.items():
            if now - since > UNKNOWN_MS:
                self._world.violate(f"{task_id} is on disk, but the scheduler does not know it")

    def _check_leases(self) -> None:
        """A session that was leased for a task does not outlive it."""
        now, queue = self._world.clock_ms(), self._queue
        places = tally([task.agent_id for task in queue._in_flight.values() if not task.is_serial])
        idle: set[str] = set()
        sessions, processes = self._world.disk.rows(Session), self._world.processes
        for session_id, fence in self._leased.items():
            row = sessions[session_id]
            # One whose browser hangs is given back when that has been noticed.
            is_stuck = row.browser_id in processes and processes[row.browser_id].is_hung
            if row.state in HELD_STATES and row.fence == fence and not is_stuck:
                places[row.agent_id] -= 1
                if places[row.agent_id] < 0:
                    idle.add(row.agent_id)
        self._idle_since = {agent: self._idle_since.get(agent, now) for agent in idle}
        limit_ms = GIVEN_BACK_MS
        if self._world.set_ms:
            # Its last beat may be later than the death of the broker that leased it, as the clock has it: then it is
            # its silence that ends it.
            limit_ms += self._world.set_ms + self._world.config.pools["default"].stale_after_s * 1000
        for agent, since in self._idle_since.items():
            if now - since > limit_ms:
                self._world.violate(f"{agent} has more sessions for tasks than tasks for {now - since} ms")

    # --- At the end -----------------------------------------------------------------------------------------

    def left(self) -> Iterator[str]:
        """What outlives everybody who left."""
        world, broker = self._world, self._world.broker
        if open_ids := self._rows.keys() - self._ends.keys():
            yield f"tasks never end: {sorted(open_ids)}"
        left = {
            "marks": world.task_marks,
            "rows": world.disk.rows(Task),
            "lanes": broker.tasking.scheduler.queue._lanes,
        }
        for what, things in left.items():
            if things:
                yield f"{what} of tasks are left: {things}"

    def check_end(self) -> None:
        """What was counted is what was told."""
        world, broker = self._world, self._world.broker
        counter = broker.tasking.scheduler.counter.all.by_end
        ended = {state: count for state, count in counter.items() if count}
        if ended != {state: count for state, count in self._ends_here.items() if count}:
            world.violate(f"the ends of {ended} tasks were counted, but those of {self._ends_here} were told")
        for state, count in counter.items():
            if broker.metrics.tasks_total.by_last_label().get(state, 0) != count:
                world.violate(f"the metric of {state} tasks does not say {count}")
        strays = {key.task_id for key in world.disk.rows(TaskKey).values()} - world.disk.rows(ArchivedTask).keys()
        if strays:
            world.violate(f"keys stand for tasks that are gone: {strays}")


def _label_of(row: Task) -> str:
    asked = msgspec.json.decode(row.request)
    return parse(asked["steps"][0]["expression"] if asked.get("steps") else asked["params"]["expression"])[0]
