"""How many tasks came and what became of them, since the server started; in all, and of each agent.

Invariant: what was submitted, without what was rejected, is what completed, failed or was cancelled, plus what is still
there. Every move of a task is counted in the same step in which it happens, so that nothing can come in between.
"""

from __future__ import annotations

from typing import Any

from .. import wire
from ..core.lifecycle import TaskState

# Agents that are counted by themselves; beyond it the one that was counted least lately is no longer.
AGENTS_MAX = 10_000


class Counts:
    """The counts of everybody, or of one agent."""

    __slots__ = ("by_end", "dispatch_ms", "dispatched", "expired", "submitted")

    def __init__(self) -> None:
        self.submitted = 0
        self.by_end: dict[TaskState, int] = dict.fromkeys(
            (TaskState.DONE, TaskState.FAILED, TaskState.CANCELLED, TaskState.REJECTED), 0
        )
        # Of those that failed: because their deadline passed.
        self.expired = 0
        # Those that were started, and how long they had waited, added up.
        self.dispatched = 0
        self.dispatch_ms = 0

    def view(self) -> wire.TaskCounts:
        return wire.TaskCounts(**self._fields())

    def view_with(self, agents: dict[str, wire.TaskCounts]) -> wire.TaskMetrics:
        return wire.TaskMetrics(**self._fields(), agents=agents)

    def _fields(self) -> dict[str, Any]:
        return {
            "tasks_submitted": self.submitted,
            "tasks_completed": self.by_end[TaskState.DONE],
            "tasks_failed": self.by_end[TaskState.FAILED],
            "tasks_cancelled": self.by_end[TaskState.CANCELLED],
            "tasks_rejected": self.by_end[TaskState.REJECTED],
            "tasks_expired": self.expired,
            "dispatch_total": self.dispatched,
            "avg_dispatch_latency_ms": self.dispatch_ms / self.dispatched if self.dispatched else 0.0,
        }


class TaskCounter:
    """Counts for everybody and for each agent."""

    def __init__(self) -> None:
        self.all = Counts()
        # The one that was counted last is last.
        self._agents: dict[str, Counts] = {}

    def submitted(self, agent_id: str, count: int = 1) -> None:
        for counts in self._of(agent_id):
            counts.submitted += count

    def started(self, agent_id: str, waited_ms: int) -> None:
        for counts in self._of(agent_id):
            counts.dispatched += 1
            counts.dispatch_ms += waited_ms

    def ended(self, agent_id: str, state: TaskState, *, is_expired: bool = False) -> None:
        for counts in self._of(agent_id):
            counts.by_end[state] += 1
            counts.expired += is_expired

    def view(self) -> wire.TaskMetrics:
        return self.all.view_with({agent_id: counts.view() for agent_id, counts in self._agents.items()})

    def _of(self, agent_id: str) -> tuple[Counts, Counts]:
        own = self._agents.pop(agent_id, None) or Counts()
        self._agents[agent_id] = own
        if len(self._agents) > AGENTS_MAX:
            del self._agents[next(iter(self._agents))]
        return self.all, own
