"""The verbs about tasks: submit, look, list, cancel, count."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence

import msgspec

from .. import wire
from ..config import Config
from ..core.lifecycle import TASK, TaskState, is_terminal
from ..core.model import ArchivedTask, Task, TaskKey
from ..errors import (
    BatchTooLarge,
    Draining,
    Forbidden,
    IdempotencyConflict,
    InvalidRequest,
    QueueFull,
    StateConflict,
    TabherdError,
    TaskNotFound,
)
from ..store.base import Store
from .caller import Caller
from .ids import Ids
from .live_task import LiveTask
from .scheduler import Scheduler
from .task_rows import asked_text, check_action, moment_ms, task_view
from .task_runs import TaskRuns
from .views import rfc3339
from .webhooks import Webhooks

PAST_DEADLINE = "deadline: this moment is over."
STATES = tuple(map(str, TaskState))
# How often memory and disk are looked at before a task that is between the two is told as it is on disk.
LOOKS_MAX = 3


class Trace(msgspec.Struct, frozen=True):
    """By what the request is known elsewhere that submitted a task."""

    request_id: str
    traceparent: str


UNTRACED = Trace("", "")


class Tasks:
    """The task verbs."""

    def __init__(
        self,
        *,
        config: Config,
        node_id: str,
        store: Store,
        scheduler: Scheduler,
        runs: TaskRuns,
        ids: Ids,
        clock: Callable[[], int],
        webhooks: Webhooks,
        refuse_when_draining: Callable[[], None],
    ) -> None:
        self._config = config
        self._node_id = node_id
        self._store = store
        self._scheduler = scheduler
        self._intake = scheduler.intake
        self._runs = runs
        self._ids = ids
        self._clock = clock
        self._webhooks = webhooks
        self._refuse_when_draining = refuse_when_draining

    # --- Verbs ----------------------------------------------------------------------------------------------

    async def submit(self, caller: Caller, request: wire.SubmitTask, trace: Trace = UNTRACED) -> wire.SubmittedTask:
        """Have a task wait for its turn; it is on disk when this returns. One that is not admitted is kept, too."""
        return await self._submit(self._as_agent(caller, request.agent_id), request, trace)

    async def submit_batch(
        self, caller: Caller, request: wire.SubmitBatch, trace: Trace = UNTRACED
    ) -> wire.SubmittedBatch:
        """The same for several; each is admitted or refused by itself."""
        if len(request.tasks) > wire.BATCH_MAX:
            raise BatchTooLarge(
                f"{len(request.tasks)} tasks are more than a batch may have.",
                count=len(request.tasks),
                cap=wire.BATCH_MAX,
            )
        caller = self._as_agent(caller, request.agent_id)
        answers = await self._submit_all(caller, request, trace)
        refused = sum(answer.error is not None for answer in answers)
        return wire.SubmittedBatch(tasks=[*answers], submitted=len(answers) - refused, rejected=refused)

    async def get(self, caller: Caller, task_id: str, wait_ms: int = 0) -> wire.TaskView:
        """One task; with a time, as soon as it is over, or after that time as it is then."""
        for _ in range(LOOKS_MAX):
            live = self._scheduler.find(task_id)
            if live is not None and caller.may_see(live.row.agent_id):
                if wait_ms:
                    await asyncio.wait([live.ended], timeout=wait_ms / 1000)
                if not live.is_over or not live.ended.done():
                    return self._live_view(live)
            row = await self._row(caller, task_id)
            if is_terminal(TASK, row.state):
                break
            # It waits on disk: it came in, or ended, between the two looks.
        return await self._view(row)

    async def list(
        self,
        caller: Caller,
        *,
        agent_id: str | None = None,
        state: str | None = None,
        limit: int = 100,
        cursor: str = "",
        newest_first: bool = False,
    ) -> wire.TaskPage:
        """The caller's own tasks that are at hand, in the order of submission; an admin's are those of everybody."""
        if state is not None and state not in STATES:
            raise InvalidRequest(f"state: '{state}' is none of {', '.join(STATES)}.", field="state")
        where: dict[str, str] = {}
        if not caller.is_admin:
            if agent_id not in (None, caller.agent_id):
                return wire.TaskPage(tasks=[])
            agent_id = caller.agent_id
        if agent_id is not None:
            where["agent_id"] = agent_id
        if state in (TaskState.ASSIGNED, TaskState.RUNNING):
            return self._flying(agent_id, state, limit, cursor, newest_first=newest_first)
        if state is not None:
            where["state"] = state
        rows = await self._store.select(Task, where, after=cursor, limit=limit + 1, newest_first=newest_first)
        views = [
            self._live_view(live) if (live := self._scheduler.find(row.id)) is not None else await self._view(row)
            for row in rows[:limit]
        ]
        # On disk a task is queued until it is over; what it is now, memory knows.
        shown = [view for view in views if state is None or view.state == state]
        return wire.TaskPage(tasks=shown, next_cursor=rows[limit - 1].id if len(rows) > limit else None)

    async def cancel(self, caller: Caller, task_id: str) -> wire.TaskView:
        """End a task that waits or runs; answers with what it became."""
        live = self._scheduler.find(task_id)
        if live is None or not caller.may_see(live.row.agent_id):
            row = await self._row(caller, task_id)
            raise StateConflict(f"The task is over: {row.state}.", taskId=task_id, state=row.state)
        self._scheduler.cancel(live)
        await asyncio.wait([live.ended])
        if live.state is not TaskState.CANCELLED:
            raise StateConflict(f"The task is over: {live.state}.", taskId=task_id, state=live.state)
        return await self._view(live.row)

    def stats(self) -> wire.SchedulerStats:
        """What waits and runs, what became of the rest, and the settings."""
        queue, settings = self._scheduler.queue, self._config.scheduler
        agents = {
            agent_id: wire.AgentQueue(queued=waiting, inflight=flying)
            for agent_id, (waiting, flying) in queue.by_agent().items()
        }
        return wire.SchedulerStats(
            queue=wire.QueueStats(total_queued=queue.waiting, total_inflight=queue.in_flight, agents=agents),
            metrics=self._scheduler.counter.view(),
            config={
                "enabled": settings.enabled,
                "maxQueueSize": settings.queue_max,
                "maxPerAgent": settings.queue_max_per_agent,
                "maxInflight": settings.workers,
                "maxPerAgentInflight": settings.max_inflight_per_agent,
                "workerCount": settings.workers,
                "resultTTLSec": settings.result_ttl_s,
                "priorityAgingMs": settings.priority_aging_ms,
                "defaultDeadlineMs": settings.deadline_ms,
            },
        )

    def reconfigure(self, config: Config) -> None:
        """Answer by other settings from now on."""
        self._config = config

    # --- Submitting -----------------------------------------------------------------------------------------

    def _as_agent(self, caller: Caller, agent_id: str | None) -> Caller:
        caller.require("tasks")
        if agent_id is None or agent_id == caller.agent_id:
            return caller
        if not caller.is_admin:
            raise Forbidden("Only an admin may submit for another agent.", field="agentId")
        return msgspec.structs.replace(caller, agent_id=agent_id)

    async def _submit_all(self, caller: Caller, request: wire.SubmitBatch, trace: Trace) -> Sequence[wire.BatchItem]:
        """Each by itself, in their order; but those without a key, which cannot be there already, in one write."""
        answers: dict[int, wire.BatchItem] = {}
        admitted: dict[int, LiveTask] = {}
        keyed: dict[int, tuple[LiveTask, wire.TaskFields]] = {}
        too_many: dict[int, tuple[LiveTask, QueueFull]] = {}
        for index, fields in enumerate(request.tasks):
            if fields.callback_url is None and request.callback_url is not None:
                fields = msgspec.structs.replace(fields, callback_url=request.callback_url)
            try:
                task = self._intake.task_of(self._row_of(caller, fields, trace))
                if fields.idempotency_key is not None:
                    keyed[index] = task, fields
                    continue
                self._intake.admit(task)
                admitted[index] = task
            except QueueFull as error:
                too_many[index] = task, error
            except TabherdError as error:
                answers[index] = _refused(error)
        # Before anything is waited for: whoever was admitted is counted until this is over.
        written = self._intake.submit(list(admitted.values()))
        for index, (task, fields) in keyed.items():
            try:
                done = await self._submit_keyed(caller, task, fields)
                answers[index] = wire.BatchItem(
                    task_id=done.task_id, state=done.state, position=done.position, eta_ms=done.eta_ms
                )
            except TabherdError as error:
                answers[index] = _refused(error)
        for index, (task, full) in too_many.items():
            await self._reject(task, full)
            answers[index] = _refused(full)
        try:
            await written
            answers |= {index: self._admitted(task) for index, task in admitted.items()}
        except TabherdError as error:
            answers |= dict.fromkeys(admitted, _refused(error))
        return [answers[index] for index in range(len(request.tasks))]

    async def _submit(self, caller: Caller, fields: wire.TaskFields, trace: Trace) -> wire.SubmittedTask:
        task = self._intake.task_of(self._row_of(caller, fields, trace))
        if fields.idempotency_key is not None:
            return await self._submit_keyed(caller, task, fields)
        try:
            self._intake.admit(task)
        except QueueFull as full:
            await self._reject(task, full)
            raise
        await self._intake.submit([task])
        return self._submitted(task)

    async def _submit_keyed(self, caller: Caller, task: LiveTask, fields: wire.TaskFields) -> wire.SubmittedTask:
        asked = self._key_of(caller.agent_id, fields, task.row)
        if (earlier := await self._store.get(TaskKey, asked.id)) is not None:
            return await self._answer_again(caller, asked, earlier)
        task.row = msgspec.structs.replace(task.row, key_id=asked.id)
        try:
            self._intake.admit(task)
        except QueueFull as full:
            await self._reject(task, full)
            raise
        if await self._intake.submit_keyed(task, asked) != task.row.id:
            return await self._answer_again(caller, asked, await self._store.get(TaskKey, asked.id))
        return self._submitted(task)

    async def _reject(self, task: LiveTask, full: QueueFull) -> None:
        """Keep it all the same, and say which one it is."""
        full.retry_after_ms = self._scheduler.pace.retry_after_ms()
        full.details["taskId"] = task.row.id
        await self._intake.reject(
            msgspec.structs.replace(
                task.row,
                state=TaskState.REJECTED,
                completed_at=task.row.created_at,
                error=full.message,
                code=full.code,
            )
        )

    def _admitted(self, task: LiveTask) -> wire.BatchItem:
        position, eta_ms = self._scheduler.pace.standing(task)
        return wire.BatchItem(task_id=task.row.id, state=task.shown_state, position=position, eta_ms=eta_ms)

    def _submitted(self, task: LiveTask) -> wire.SubmittedTask:
        """The answer to who submitted it; it may have run already."""
        position, eta_ms = self._scheduler.pace.standing(task)
        return wire.SubmittedTask(
            task_id=task.row.id,
            state=task.shown_state,
            position=position,
            eta_ms=eta_ms,
            created_at=rfc3339(task.row.created_at),
        )

    def _row_of(self, caller: Caller, fields: wire.TaskFields, trace: Trace) -> Task:
        """The task as it is kept; raises for one that could never be run, and when none are taken."""
        self._refuse_when_draining()
        if not self._config.scheduler.enabled:
            raise Draining("Tasks are not taken here ([scheduler] enabled).", retry_after_ms=5_000)
        now, settings = self._clock(), self._config.scheduler
        action = check_action(fields)
        deadline_at = now + settings.deadline_ms if fields.deadline is None else moment_ms(fields.deadline, "deadline")
        if deadline_at <= now:
            raise InvalidRequest(PAST_DEADLINE, field="deadline")
        if fields.callback_url is not None:
            self._webhooks.check(fields.callback_url)
        if fields.pool not in self._config.pools:
            raise InvalidRequest(f"pool: there is no pool '{fields.pool}'.", field="pool")
        row = Task(
            id=self._ids.mint_ordered("tsk"),
            node_id=self._node_id,
            agent_id=caller.agent_id,
            state=TaskState.QUEUED,
            action=action,
            tab_id=fields.tab_id or "",
            session_id=fields.session_id or "",
            pool=fields.pool,
            request=asked_text(fields),
            priority=fields.priority,
            created_at=now,
            deadline_at=deadline_at,
            is_idempotent=fields.idempotent,
            scopes=tuple(sorted(caller.scopes)),
            callback_url=fields.callback_url or "",
            request_id=trace.request_id if fields.callback_url else "",
            traceparent=trace.traceparent if fields.callback_url else "",
        )
        if row.tab_id or row.session_id:
            # Whose it is, is asked again when it runs.
            self._runs.tab_of(caller, row)
        return row

    def _key_of(self, agent_id: str, fields: wire.TaskFields, row: Task) -> TaskKey:
        body = msgspec.json.encode(msgspec.structs.replace(fields, idempotency_key=None))
        # Hashed: a key may have any characters, and must not be able to look like another agent's.
        pair = msgspec.json.encode((agent_id, fields.idempotency_key))
        return TaskKey(
            id=hashlib.sha256(pair).hexdigest(),
            task_id=row.id,
            body_hash=hashlib.sha256(body).hexdigest(),
            created_at=row.created_at,
        )

    async def _answer_again(self, caller: Caller, asked: TaskKey, earlier: TaskKey | None) -> wire.SubmittedTask:
        if earlier is None:
            # It went with its task, days old as that was, between two looks.
            raise StateConflict("The task of this key has just been forgotten.", action="Submit it again.")
        if earlier.body_hash != asked.body_hash:
            raise IdempotencyConflict("This idempotency key was used for another task.", taskId=earlier.task_id)
        view = await self.get(caller, earlier.task_id)
        return wire.SubmittedTask(
            task_id=view.task_id,
            state=view.state,
            position=view.position,
            eta_ms=view.eta_ms,
            created_at=view.created_at,
        )

    # --- Looking --------------------------------------------------------------------------------------------

    async def _row(self, caller: Caller, task_id: str) -> Task:
        row: Task | None = await self._store.get(Task, task_id) or await self._store.get(ArchivedTask, task_id)
        if row is None or not caller.may_see(row.agent_id):
            raise TaskNotFound("No such task.")
        return row

    def _live_view(self, live: LiveTask) -> wire.TaskView:
        row = msgspec.structs.replace(live.row, result="", error="", code="") if live.is_over else live.row
        position, eta_ms = self._scheduler.pace.standing(live)
        return task_view(row, live.shown_state, position=position, eta_ms=eta_ms)

    async def _view(self, row: Task) -> wire.TaskView:
        return task_view(row, row.state, webhook=await self._webhooks.view(row.id) if row.callback_url else None)

    def _flying(
        self, agent_id: str | None, state: str, limit: int, cursor: str, *, newest_first: bool
    ) -> wire.TaskPage:
        def is_after(task_id: str) -> bool:
            return not cursor or (task_id < cursor if newest_first else task_id > cursor)

        found = sorted(
            (
                live
                for live in self._scheduler.in_flight()
                if live.state == state and is_after(live.row.id) and agent_id in (None, live.row.agent_id)
            ),
            key=lambda live: live.row.id,
            reverse=newest_first,
        )
        page = found[:limit]
        next_cursor = page[-1].row.id if len(found) > limit else None
        return wire.TaskPage(tasks=[self._live_view(live) for live in page], next_cursor=next_cursor)


def _refused(error: TabherdError) -> wire.BatchItem:
    task_id = str(error.details.get("taskId", ""))
    return wire.BatchItem(task_id=task_id, state=TaskState.REJECTED, error=error.to_wire())
