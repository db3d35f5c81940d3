"""Tasks: what is submitted to be run in its turn, and what becomes of it."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from .actions import AnyAction, Ref, Selector
from .base import Agent, Answer, Identifier, Name, Request

BATCH_MAX = 50

# RFC 3339, or milliseconds since 1970.
Moment: TypeAlias = Annotated[str, Meta(max_length=40)] | Annotated[int, Meta(ge=0, le=1 << 50)]


class TaskFields(Request, frozen=True, kw_only=True):
    """What a task is, however it is submitted: `action` with its parameters, or `steps`."""

    # The kind of an action; absent when there are steps.
    action: Annotated[str, Meta(max_length=100)] | None = None
    # Where it runs: on this tab, or on the first tab of this session. Neither: on one that is leased for it.
    tab_id: Identifier | None = None
    session_id: Identifier | None = None
    selector: Selector | None = None
    ref: Ref | None = None
    # The action's other parameters, spelt as in POST /tabs/{tabId}/action.
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    # Several actions on one turn.
    steps: Annotated[list[AnyAction], Meta(min_length=1, max_length=100)] | None = None
    # Lower goes first, among the tasks of one agent.
    priority: Annotated[int, Meta(ge=-1_000, le=1_000)] = 0
    # When it must be over; [scheduler] deadline_ms from now when absent.
    deadline: Moment | None = None
    # The pool that it leases from, if it names neither tab nor session.
    pool: Name = "default"
    # The same key and body of the same agent: answered with the first task instead of a second one.
    idempotency_key: Identifier | None = None
    # Doing it twice is the same as doing it once: it may be run again when nobody knows whether it took effect.
    idempotent: bool = False
    # Hears of its end.
    callback_url: Annotated[str, Meta(max_length=2_000)] | None = None


class SubmitTask(TaskFields, frozen=True, kw_only=True):
    # Whose task; an admin may name anybody, an agent only itself.
    agent_id: Agent | None = None


class SubmitBatch(Request, frozen=True, kw_only=True):
    # Whose tasks.
    agent_id: Agent | None = None
    # Of those that name none themselves.
    callback_url: Annotated[str, Meta(max_length=2_000)] | None = None
    # Each is admitted or refused by itself. At most 50; checked by the verb, which has an error of its own for it.
    tasks: Annotated[list[TaskFields], Meta(min_length=1)]


class PassedBatch(Request, frozen=True, kw_only=True):
    """Tasks that one node passes on to another, and whose they are."""

    agent_id: Agent
    scopes: list[str]
    controller_id: str
    request_id: str
    traceparent: str
    batch: SubmitBatch


class WebhookView(Answer, frozen=True, kw_only=True):
    """How far the delivery to the callback URL is."""

    # pending, delivered or failed.
    state: str
    attempts: int
    # Why the last attempt failed; empty if it did not.
    error: str
    # RFC 3339; absent when no more are made.
    next_attempt_at: str | None = None


class TaskView(Answer, frozen=True, kw_only=True):
    task_id: str
    agent_id: str
    action: str
    tab_id: str | None
    session_id: str | None
    selector: str | None
    ref: str | None
    params: dict[str, Any]
    steps: list[Any] | None
    priority: int
    # queued, assigned, running, done, failed, cancelled or rejected.
    state: str
    # While it is queued: its place in the order in which tasks start, and when that may be.
    position: int | None
    eta_ms: int | None
    # RFC 3339.
    deadline: str
    created_at: str
    started_at: str | None
    completed_at: str | None
    # From submission to end.
    latency_ms: int | None
    result: Any
    error: str | None
    code: str | None
    attempts: int
    callback_url: str | None
    webhook: WebhookView | None


class SubmittedTask(Answer, frozen=True, kw_only=True):
    task_id: str
    state: str
    position: int | None
    eta_ms: int | None
    created_at: str


class BatchItem(Answer, frozen=True, kw_only=True):
    """One task of a batch: admitted, or refused with its error."""

    # Empty if it was refused before it had one.
    task_id: str
    state: str
    position: int | None = None
    eta_ms: int | None = None
    error: dict[str, Any] | None = None


class SubmittedBatch(Answer, frozen=True, kw_only=True):
    # In the order in which they were given.
    tasks: list[BatchItem]
    submitted: int
    rejected: int


class TaskPage(Answer, frozen=True, kw_only=True):
    tasks: list[TaskView]
    # Pass it as `cursor` to read on; absent on the last page.
    next_cursor: str | None = None


class AgentQueue(Answer, frozen=True, kw_only=True):
    queued: int
    inflight: int


class QueueStats(Answer, frozen=True, kw_only=True):
    total_queued: int
    total_inflight: int
    agents: dict[str, AgentQueue]


class TaskCounts(Answer, frozen=True, kw_only=True):
    """Since the server started."""

    tasks_submitted: int
    tasks_completed: int
    tasks_failed: int
    tasks_cancelled: int
    tasks_rejected: int
    # Of those that failed: because their deadline passed.
    tasks_expired: int
    dispatch_total: int
    avg_dispatch_latency_ms: float


class TaskMetrics(TaskCounts, frozen=True, kw_only=True):
    agents: dict[str, TaskCounts]


class SchedulerStats(Answer, frozen=True, kw_only=True):
    queue: QueueStats
    metrics: TaskMetrics
    # The settings in force.
    config: dict[str, int | bool]
