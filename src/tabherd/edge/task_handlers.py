"""What the routes about tasks do: take the request apart, call the verb, hand back its answer."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from .. import wire
from ..broker.task_submission import Trace
from .route import Call, Service


class TasksQuery(wire.Request, frozen=True, kw_only=True):
    # Only tasks of this agent.
    agent_id: wire.Agent | None = None
    # Only tasks in this state.
    state: wire.Name | None = None
    # By when they were submitted: asc for oldest first, desc for newest first.
    order: Literal["asc", "desc"] = "asc"
    # Whether results are told, which may be large; without them each is null.
    results: bool = True
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    # Where the page before ended.
    cursor: Annotated[str, Meta(max_length=200)] = ""


class TaskQuery(wire.Request, frozen=True, kw_only=True):
    # Answer as soon as the task is over, or after so long as it is then.
    wait_ms: Annotated[int, Meta(ge=0, le=120_000)] = 0


async def submit_task(service: Service, call: Call) -> wire.SubmittedTask:
    return await service.broker.tasking.verbs.submit(call.caller, call.body, _trace(call))


async def submit_batch(service: Service, call: Call) -> wire.SubmittedBatch:
    return await service.broker.tasking.verbs.submit_batch(call.caller, call.body, _trace(call))


async def list_tasks(service: Service, call: Call) -> wire.TaskPage:
    query: TasksQuery = call.query
    return await service.broker.tasking.verbs.list(
        call.caller,
        agent_id=query.agent_id,
        state=query.state,
        limit=query.limit,
        cursor=query.cursor,
        newest_first=query.order == "desc",
        with_results=query.results,
    )


async def get_task(service: Service, call: Call) -> wire.TaskView:
    return await service.broker.tasking.verbs.get(call.caller, call.id, call.query.wait_ms)


async def cancel_task(service: Service, call: Call) -> wire.TaskView:
    return await service.broker.tasking.verbs.cancel(call.caller, call.id)


async def show_scheduler(service: Service, call: Call) -> wire.SchedulerStats:
    return await service.broker.tasking.verbs.stats_of_all()


def _trace(call: Call) -> Trace:
    return Trace(call.head.request_id.decode("latin-1"), call.head.traceparent.decode("latin-1"))
