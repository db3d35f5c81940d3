"""Whose turn it is, worked out the slow way: every task that the scheduler takes, or leaves, is judged by this.

Invariants:
- never more tasks are taken than there are workers, nor more of one agent than its limit; while another agent waits,
  that is at most its share of the workers;
- no agent whose task could run is passed over for one that has more in flight, nor, among equals, for one that was
  served since it began to wait;
- of one agent's tasks that could run, the one with the lowest aged priority is taken, and the older of equals;
- a task that could run is not left waiting for one moment while a worker is free, and none keeps a worker while it
  waits for its tab;
- the position that a task is told is the number of tasks that would start before it if agents took turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tabherd.broker.registry import LiveTab
from tabherd.core.lifecycle import TaskState
from tabherd.core.task_queue import Waiting

from .tally import tally

if TYPE_CHECKING:
    from .world import World


class TaskTurns:
    """The judge of one life of the scheduler."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._queue = queue = world.broker.tasking.scheduler.queue
        # How many were taken before; for each agent, when it was served last and since when it has been waiting.
        self._taken = 0
        self._served: dict[str, int] = {}
        self._since: dict[str, int] = {}
        take = queue.take

        def watched() -> Waiting | None:
            if world.is_violated:
                return take()
            waiting, flying = list(queue._waiting.values()), list(queue._in_flight.values())
            free = [task for task in waiting if queue._lanes[task.lane].is_free]
            positions = {task.id: queue.position(task.id) for task in waiting}
            taken = take()
            able = self._able(free, waiting, flying)
            if taken is not None:
                self._judge(taken, able, waiting, flying)
            elif able:
                world.violate(f"{able[0].id} of {able[0].agent_id} is left waiting although a worker is free")
            if taken is not None and len(able) == len(waiting) and positions[taken.id] != 1:
                world.violate(f"{taken.id} goes first, but was told to be number {positions[taken.id]}")
            return taken

        add, put_back = queue.add, queue.put_back

        def watched_add(task: Waiting) -> None:
            if task.agent_id not in queue._agents:
                # Nothing of it was left: it begins to wait anew.
                self._since.pop(task.agent_id, None)
            add(task)

        def watched_put_back(task_id: str) -> None:
            # Something of it was.
            since = dict(self._since)
            put_back(task_id)
            self._since = since

        queue.take, queue.add, queue.put_back = watched, watched_add, watched_put_back  # type: ignore[method-assign]

    # --- Taking ---------------------------------------------------------------------------------------------

    def _judge(self, taken: Waiting, able: list[Waiting], waiting: list[Waiting], flying: list[Waiting]) -> None:
        self._taken += 1
        agents = {task.agent_id for task in waiting}
        self._since = {agent: self._since.get(agent, self._taken) for agent in agents}
        load = tally([task.agent_id for task in flying])
        if taken not in able or any(task.lane == taken.lane and task.is_serial for task in flying):
            self._world.violate(f"{taken.id} of {taken.agent_id} is taken over a limit: {dict(load)} {self._limits}")
        for other in able:
            if load[other.agent_id] < load[taken.agent_id]:
                self._world.violate(f"{other.agent_id}, who has fewer in flight, is passed over for {taken.id}")
            if load[other.agent_id] == load[taken.agent_id] and self._is_longer_unserved(other, taken):
                self._world.violate(f"{other.agent_id} is passed over for {taken.agent_id}, who was served since")
            if other.agent_id == taken.agent_id and self._rank(other) < self._rank(taken):
                self._world.violate(f"{taken.id} is taken before {other.id} of the same agent")
        self._served[taken.agent_id] = self._taken

    def _is_longer_unserved(self, other: Waiting, taken: Waiting) -> bool:
        last = self._served.get(taken.agent_id, 0)
        is_waiting_since = other.agent_id != taken.agent_id and self._since[other.agent_id] < last
        return is_waiting_since and self._served.get(other.agent_id, 0) < last

    def _able(self, free: list[Waiting], waiting: list[Waiting], flying: list[Waiting]) -> list[Waiting]:
        """Those that could be taken, of those whose lane is free."""
        limits, load = self._queue.limits, tally([task.agent_id for task in flying])
        if len(flying) >= limits.workers:
            return []
        agents = {task.agent_id for task in (*waiting, *flying)}
        share = min(limits.max_per_agent, -(-limits.workers // max(1, len(agents))))
        lonely = {agent for agent in agents if all(task.agent_id == agent for task in waiting)}
        return [
            task
            for task in free
            if load[task.agent_id] < (limits.max_per_agent if task.agent_id in lonely else max(1, share))
        ]

    def _rank(self, task: Waiting) -> tuple[int, int]:
        """Those that came in the same millisecond may run in either order."""
        aging_ms = self._queue.limits.priority_aging_ms
        row = self._world.task_rules.row(task.id)
        if aging_ms:
            return (0, row.created_at + row.priority * aging_ms)
        return (row.priority, row.created_at)

    @property
    def _limits(self) -> str:
        limits = self._queue.limits
        return f"{limits.workers} workers, {limits.max_per_agent} for each agent"

    # --- Leaving --------------------------------------------------------------------------------------------

    def check_idle(self) -> None:
        """Nothing is left to do at this moment: then no task waits that could run."""
        queue, broker = self._queue, self._world.broker
        for task in queue._in_flight.values():
            live = broker.tasking.scheduler.find(task.id)
            if task.is_serial and live is not None and live.state is TaskState.ASSIGNED:
                self._world.violate(f"{task.id} keeps a worker while it waits for its tab")
        if not queue.waiting or not broker.settings.current.scheduler.enabled:
            return
        waiting, flying = list(queue._waiting.values()), list(queue._in_flight.values())
        free = [task for task in waiting if self._has_free_tab(task, flying)]
        if able := self._able(free, waiting, flying):
            self._world.violate(f"{able[0].id} of {able[0].agent_id} waits although nothing keeps it from its tab")

    def _has_free_tab(self, task: Waiting, flying: list[Waiting]) -> bool:
        """What the tab itself says, whatever the queue believes; without a tab, whether nobody else looks for one."""
        in_lane = [other for other in flying if other.lane == task.lane]
        if not task.is_serial:
            scheduler = self._world.broker.tasking.scheduler
            states = [live.state for other in in_lane if (live := scheduler.find(other.id)) is not None]
            return TaskState.ASSIGNED not in states
        tab = self._tab_of(task)
        return not in_lane and (tab is None or tab.gate.hold_for(f"task/{task.id}") is None)

    def _tab_of(self, task: Waiting) -> LiveTab | None:
        """A task that names a session is for the first tab that it has by now; its lane is that of when it came."""
        broker = self._world.broker
        live = broker.tasking.scheduler.find(task.id)
        if live is None or not live.row.session_id or live.row.tab_id:
            return broker.registry.tab(task.lane)
        session = broker.registry.session(live.row.session_id)
        return None if session is None else next(iter(session.tabs.values()), None)

    # --- Positions ------------------------------------------------------------------------------------------

    def check_positions(self) -> None:
        """Nobody is told a place that cannot be, nor one before another task of the same agent that goes first."""
        last: dict[str, int] = {}
        for task in sorted(self._queue._waiting.values(), key=lambda task: (self._rank(task), task.arrival)):
            position = self._queue.position(task.id)
            if position is None or not last.get(task.agent_id, 0) < position <= self._queue.waiting:
                self._world.violate(f"{task.id} is told to be number {position} of {self._queue.waiting}")
            last[task.agent_id] = position or 0
