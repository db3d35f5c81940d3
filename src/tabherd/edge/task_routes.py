"""The part of the route table that is about tasks."""

from __future__ import annotations

from .. import errors as e
from .. import wire
from . import task_handlers as t
from .passed_tasks import PATH, submit_passed
from .route import Route

_SUBMITTING = (
    e.QueueFull,
    e.UnknownAction,
    e.TabNotFound,
    e.SessionNotFound,
    e.LeaseLost,
    e.NotOwner,
    e.PolicyDenied,
    e.IdempotencyConflict,
    e.Draining,
    e.SchedulerDisabled,
    e.StoreUnavailable,
)

TASK_ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path="/tasks",
        summary="Submit a task: an action, or steps, that is run in its turn. It is on disk when this answers.",
        handler=t.submit_task,
        scope="tasks",
        body=wire.SubmitTask,
        answer=wire.SubmittedTask,
        status=202,
        errors=_SUBMITTING,
    ),
    Route(
        method="POST",
        path="/tasks/batch",
        summary="Submit up to 50 tasks; each is admitted or refused by itself.",
        handler=t.submit_batch,
        scope="tasks",
        body=wire.SubmitBatch,
        answer=wire.SubmittedBatch,
        status=202,
        errors=(e.BatchTooLarge, e.StoreUnavailable),
    ),
    Route(
        method="POST",
        path=PATH,
        summary="Tasks whose tabs are on this node; for other nodes of the cluster only.",
        handler=submit_passed,
        scope=None,
        body=wire.PassedBatch,
        answer=wire.SubmittedBatch,
        status=202,
        errors=(e.ResourceNotFound, e.BatchTooLarge, e.StoreUnavailable, e.Draining),
    ),
    Route(
        method="GET",
        path="/tasks",
        summary="The tasks you may see that wait, run, or were over a short while ago, in the order of submission.",
        handler=t.list_tasks,
        scope="tasks",
        query=t.TasksQuery,
        answer=wire.TaskPage,
        errors=(e.StoreUnavailable,),
    ),
    Route(
        method="GET",
        path="/tasks/{taskId}",
        summary="One task; with waitMs, as soon as it is over.",
        handler=t.get_task,
        scope="tasks",
        query=t.TaskQuery,
        answer=wire.TaskView,
        errors=(e.TaskNotFound, e.StoreUnavailable),
        waits=True,
    ),
    Route(
        method="POST",
        path="/tasks/{taskId}/cancel",
        summary="End a task that waits or runs.",
        handler=t.cancel_task,
        scope="tasks",
        answer=wire.TaskView,
        errors=(e.TaskNotFound, e.StateConflict, e.StoreUnavailable),
    ),
    Route(
        method="GET",
        path="/scheduler/stats",
        summary="What waits and runs, what became of tasks since the server started, and the settings.",
        handler=t.show_scheduler,
        scope="tasks",
        answer=wire.SchedulerStats,
    ),
)
