"""How tasks are submitted: what is asked for is checked, given its row, admitted or refused, and answered.

Invariants: a task is on disk when its submitter hears of it; one that is not admitted is kept, too. The same key and
body of the same agent is answered with the first task, whichever node it came to. A task that names a tab or a session
is for the lease that its submitter found there. Where nodes share the store, it is submitted to the node that has it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from .. import wire
from ..cluster.elsewhere import Elsewhere
from ..config import Config
from ..core.lifecycle import TaskState
from ..core.model import Task, TaskKey
from ..core.task_rank import rank_of
from ..errors import (
    Forbidden,
    IdempotencyConflict,
    InvalidRequest,
    NodeUnreachable,
    QueueFull,
    SchedulerDisabled,
    StateConflict,
    TabherdError,
)
from ..store.base import Store
from .caller import Caller
from .ids import Ids
from .live_task import LiveTask
from .scheduler import Scheduler
from .task_places import TaskPlaces
from .task_pool import TaskPool
from .task_rows import asked_text, check_action, moment_ms
from .task_runs import TaskRuns
from .views import rfc3339
from .webhooks import Webhooks

PAST_DEADLINE = "deadline: this moment is over."


class Trace(msgspec.Struct, frozen=True):
    """By what the request is known elsewhere that submitted a task."""

    request_id: str
    traceparent: str


UNTRACED = Trace("", "")

# Submits a part of a batch at another node, for that caller.
SubmitAt: TypeAlias = "Callable[[str, Caller, wire.SubmitBatch, Trace], Awaitable[wire.SubmittedBatch]]"


async def _nowhere(node_id: str, caller: Caller, part: wire.SubmitBatch, trace: Trace) -> wire.SubmittedBatch:
    raise NodeUnreachable("The node that has the tab cannot be reached from here.", nodeId=node_id)


class TaskSubmission:
    """The way from a request to a task that waits."""

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
        view_of: Callable[[Caller, str], Awaitable[wire.TaskView]],
        pool: TaskPool | None,
        places: TaskPlaces | None,
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
        # The task of that id as that caller sees it.
        self._view_of = view_of
        # Tasks of nobody, and where the others are; None where no nodes share the store.
        self._pool = pool
        self._places = places
        # Set by who can speak with other nodes.
        self.submit_at: SubmitAt = _nowhere

    def reconfigure(self, config: Config) -> None:
        self._config = config

    async def submit(self, caller: Caller, request: wire.SubmitTask, trace: Trace) -> wire.SubmittedTask:
        """Have it wait for its turn. Raises `Elsewhere` if its tab is on another node."""
        caller = _as_agent(caller, request.agent_id)
        if self._places is not None:
            (home,) = await self._places.homes_of([request])
            if home != self._node_id:
                raise Elsewhere(home)
        return await self._submit(caller, request, trace)

    async def submit_batch(self, caller: Caller, request: wire.SubmitBatch, trace: Trace) -> Sequence[wire.BatchItem]:
        """The same for several, each where it belongs; in their order."""
        caller = _as_agent(caller, request.agent_id)
        if self._places is None:
            return await self._submit_all(caller, request, trace)
        homes = await self._places.homes_of(request.tasks)
        match set(homes) - {self._node_id}:
            case others if not others:
                return await self._submit_all(caller, request, trace)
            case others if len(others) == 1 and self._node_id not in homes:
                raise Elsewhere(homes[0])
        parts: dict[str, list[int]] = {}
        for index, home in enumerate(homes):
            parts.setdefault(home, []).append(index)
        answers = await asyncio.gather(
            *(
                self._submit_part(caller, home, _part(caller, request, indexes), trace)
                for home, indexes in parts.items()
            )
        )
        by_index = {
            index: answer
            for indexes, answered in zip(parts.values(), answers, strict=True)
            for index, answer in zip(indexes, answered, strict=True)
        }
        return [by_index[index] for index in range(len(homes))]

    # --- Parts ----------------------------------------------------------------------------------------------

    async def _submit_part(
        self, caller: Caller, home: str, part: wire.SubmitBatch, trace: Trace
    ) -> Sequence[wire.BatchItem]:
        if home == self._node_id:
            return await self._submit_all(caller, part, trace)
        try:
            return (await self.submit_at(home, caller, part, trace)).tasks
        except TabherdError as error:
            # What became of the others has to be said all the same.
            return [refused(error)] * len(part.tasks)

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
                answers[index] = refused(error)
        # Before anything is waited for: whoever was admitted is counted until this is over.
        written = self._intake.submit(list(admitted.values()))
        for index, (task, fields) in keyed.items():
            try:
                done = await self._submit_keyed(caller, task, fields)
                answers[index] = wire.BatchItem(
                    task_id=done.task_id, state=done.state, position=done.position, eta_ms=done.eta_ms
                )
            except TabherdError as error:
                answers[index] = refused(error)
        for index, (task, full) in too_many.items():
            await self._reject(task, full)
            answers[index] = refused(full)
        try:
            await written
            answers |= {index: self._admitted(task) for index, task in admitted.items()}
        except TabherdError as error:
            answers |= dict.fromkeys(admitted, refused(error))
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
        return await self._submitted(task)

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
        return await self._submitted(task)

    async def _reject(self, task: LiveTask, full: QueueFull) -> None:
        """Keep it all the same, and say which one it is."""
        full.retry_after_ms = self._scheduler.pace.retry_after_ms()
        full.details["taskId"] = task.row.id
        await self._intake.reject(
            msgspec.structs.replace(
                task.row,
                # Who has refused it sees to what is left to do.
                node_id=self._node_id,
                state=TaskState.REJECTED,
                completed_at=task.row.created_at,
                error=full.message,
                code=full.code,
            )
        )

    def _admitted(self, task: LiveTask) -> wire.BatchItem:
        # Of those that are nobody's yet it takes a question each, so that is left to who wants to know.
        position, eta_ms = self._scheduler.pace.standing(task)
        return wire.BatchItem(task_id=task.row.id, state=task.shown_state, position=position, eta_ms=eta_ms)

    async def _submitted(self, task: LiveTask) -> wire.SubmittedTask:
        """The answer to who submitted it; it may have run already."""
        if task.row.node_id or self._pool is None:
            position, eta_ms = self._scheduler.pace.standing(task)
        else:
            position, eta_ms = await self._pool.position(task.row)
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
            raise SchedulerDisabled("Tasks are switched off on this server.")
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
            node_id=self._home_of(caller, fields),
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
            rank=0 if self._pool is None else rank_of(fields.priority, now, settings.priority_aging_ms),
        )
        if not row.tab_id and not row.session_id:
            return row
        # It is for this lease, and for none after it; that is looked at again when it runs.
        return msgspec.structs.replace(row, fence=self._runs.tab_of(caller, row).session.row.fence)

    def _home_of(self, caller: Caller, fields: wire.TaskFields) -> str:
        """Whose the task is; empty: nobody's yet."""
        if self._pool is None or fields.tab_id or fields.session_id:
            return self._node_id
        return self._pool.home_of(caller.agent_id, fields.pool)

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
        view = await self._view_of(caller, earlier.task_id)
        return wire.SubmittedTask(
            task_id=view.task_id,
            state=view.state,
            position=view.position,
            eta_ms=view.eta_ms,
            created_at=view.created_at,
        )


def refused(error: TabherdError) -> wire.BatchItem:
    task_id = str(error.details.get("taskId", ""))
    return wire.BatchItem(task_id=task_id, state=TaskState.REJECTED, error=error.to_wire())


def _as_agent(caller: Caller, agent_id: str | None) -> Caller:
    caller.require("tasks")
    if agent_id is None or agent_id == caller.agent_id:
        return caller
    if not caller.is_admin:
        raise Forbidden("Only an admin may submit for another agent.", field="agentId")
    return msgspec.structs.replace(caller, agent_id=agent_id)


def _part(caller: Caller, request: wire.SubmitBatch, indexes: Sequence[int]) -> wire.SubmitBatch:
    tasks = [request.tasks[index] for index in indexes]
    return msgspec.structs.replace(request, agent_id=caller.agent_id, tasks=tasks)
