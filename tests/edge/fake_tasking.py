"""Tasks that are never run: enough behind the edge for their routes to be tested alone."""

from __future__ import annotations

from typing import Any

from tabherd import wire
from tabherd.broker.caller import Caller
from tabherd.errors import TaskNotFound

AT = "2025-01-01T00:00:00.000Z"
NONE_YET = {
    "tasks_submitted": 0,
    "tasks_completed": 0,
    "tasks_failed": 0,
    "tasks_cancelled": 0,
    "tasks_rejected": 0,
    "tasks_expired": 0,
    "dispatch_total": 0,
    "avg_dispatch_latency_ms": 0.0,
}


class FakeTasks:
    def __init__(self) -> None:
        self.views: dict[str, wire.TaskView] = {}

    async def submit(self, caller: Caller, request: wire.TaskFields, *_: Any) -> wire.SubmittedTask:
        number = len(self.views) + 1
        view = wire.TaskView(
            task_id=f"tsk_{number}",
            agent_id=caller.agent_id,
            action=request.action or "steps",
            tab_id=request.tab_id,
            session_id=request.session_id,
            selector=request.selector,
            ref=request.ref,
            params=request.params,
            steps=request.steps,
            priority=request.priority,
            state="queued",
            position=number,
            eta_ms=0,
            deadline=AT,
            created_at=AT,
            started_at=None,
            completed_at=None,
            latency_ms=None,
            result=None,
            error=None,
            code=None,
            attempts=0,
            callback_url=request.callback_url,
            webhook=None,
        )
        self.views[view.task_id] = view
        return wire.SubmittedTask(task_id=view.task_id, state="queued", position=number, eta_ms=0, created_at=AT)

    async def submit_batch(self, caller: Caller, request: wire.SubmitBatch, *_: Any) -> wire.SubmittedBatch:
        done = [await self.submit(caller, task) for task in request.tasks]
        items = [wire.BatchItem(task_id=each.task_id, state=each.state, position=each.position) for each in done]
        return wire.SubmittedBatch(tasks=items, submitted=len(items), rejected=0)

    async def get(self, caller: Caller, task_id: str, wait_ms: int = 0) -> wire.TaskView:
        view = self.views.get(task_id)
        if view is None or not caller.may_see(view.agent_id):
            raise TaskNotFound("No such task.")
        return view

    async def list(self, caller: Caller, **filters: Any) -> wire.TaskPage:
        return wire.TaskPage(tasks=[view for view in self.views.values() if caller.may_see(view.agent_id)])

    async def cancel(self, caller: Caller, task_id: str) -> wire.TaskView:
        return await self.get(caller, task_id)

    async def stats_of_all(self) -> wire.SchedulerStats:
        queue = wire.QueueStats(total_queued=len(self.views), total_inflight=0, agents={})
        return wire.SchedulerStats(queue=queue, metrics=wire.TaskMetrics(**NONE_YET, agents={}), config={})


class FakeTasking:
    def __init__(self) -> None:
        self.verbs = FakeTasks()
