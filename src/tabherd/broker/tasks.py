"""The verbs about tasks: submit, look, list, cancel, count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from .. import wire
from ..cluster.elsewhere import Elsewhere
from ..config import Config
from ..core.lifecycle import TASK, TaskEvent, TaskState, is_terminal
from ..core.model import ArchivedTask, Task
from ..errors import BatchTooLarge, InvalidRequest, NodeUnreachable, StateConflict, TaskNotFound
from ..store.base import Store
from .caller import Caller
from .ids import Ids
from .live_task import LiveTask
from .scheduler import Scheduler
from .task_places import TaskPlaces
from .task_pool import LOOK_S, TaskPool
from .task_rows import task_view
from .task_runs import TaskRuns
from .task_submission import UNTRACED, TaskSubmission, Trace
from .webhooks import Webhooks

STATES = tuple(map(str, TaskState))
# How often a task is looked for that leaves just when it is to be cancelled.
CANCELS_MAX = 20
# How often memory and disk are looked at before a task that is between the two is told as it is on disk.
LOOKS_MAX = 3


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
        pool: TaskPool | None = None,
        places: TaskPlaces | None = None,
    ) -> None:
        self._config = config
        self._node_id = node_id
        self._store = store
        self._scheduler = scheduler
        self._webhooks = webhooks
        # Tasks of nobody, and where the others are; None where no nodes share the store.
        self._pool = pool
        self._places = places
        self.submission = TaskSubmission(
            config=config,
            node_id=node_id,
            store=store,
            scheduler=scheduler,
            runs=runs,
            ids=ids,
            clock=clock,
            webhooks=webhooks,
            refuse_when_draining=refuse_when_draining,
            view_of=self.show,
            pool=pool,
            places=places,
        )

    # --- Verbs ----------------------------------------------------------------------------------------------

    async def submit(self, caller: Caller, request: wire.SubmitTask, trace: Trace = UNTRACED) -> wire.SubmittedTask:
        """Have a task wait for its turn; it is on disk when this returns. One that is not admitted is kept, too."""
        return await self.submission.submit(caller, request, trace)

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
        answers = await self.submission.submit_batch(caller, request, trace)
        refused = sum(answer.error is not None for answer in answers)
        return wire.SubmittedBatch(tasks=[*answers], submitted=len(answers) - refused, rejected=refused)

    async def get(self, caller: Caller, task_id: str, wait_ms: int = 0) -> wire.TaskView:
        """One task; with a time, as soon as it is over, or after that time as it is then.

        Raises `Elsewhere` for one that another node has.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_ms / 1000
        looks = 0
        while True:
            live = self._scheduler.find(task_id)
            if live is not None and caller.may_see(live.row.agent_id):
                if wait_ms:
                    await asyncio.wait([live.ended], timeout=max(0.0, until_s - loop.time()))
                if not live.ended.done():
                    return self._live_view(live)
            row = await self._row(caller, task_id)
            left_s = until_s - loop.time()
            if is_terminal(TASK, row.state):
                return await self._view(row)
            if self._pool is not None and row.node_id != self._node_id:
                if row.node_id and self._places is not None:
                    self._places.hand_over(row)
                if left_s <= 0:
                    return await self._view(row)
                await self._pool.news(task_id, min(LOOK_S, left_s))
                continue
            # It waits on disk: it came in, or ended, between the two looks.
            looks += 1
            if looks == LOOKS_MAX:
                return await self._view(row)

    async def show(self, caller: Caller, task_id: str) -> wire.TaskView:
        """The same at once, from here, wherever it is."""
        try:
            return await self.get(caller, task_id)
        except Elsewhere:
            return await self._view(await self._row(caller, task_id))

    async def list(
        self,
        caller: Caller,
        *,
        agent_id: str | None = None,
        state: str | None = None,
        limit: int = 100,
        cursor: str = "",
        newest_first: bool = False,
        with_results: bool = True,
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
        # Where nodes share the store, that a task runs is on disk; that it is about to, only its own node knows.
        if state == TaskState.ASSIGNED or (state == TaskState.RUNNING and self._pool is None):
            return self._flying(agent_id, state, limit, cursor, newest_first=newest_first)
        if state is not None:
            where["state"] = state
        rows = await self._store.select(Task, where, after=cursor, limit=limit + 1, newest_first=newest_first)
        views = [
            self._live_view(live)
            if (live := self._scheduler.find(row.id)) is not None
            else await self._view(row if with_results else msgspec.structs.replace(row, result=""))
            for row in rows[:limit]
        ]
        # On disk a task is queued until it is over; what it is now, memory knows.
        shown = [view for view in views if state is None or view.state == state]
        return wire.TaskPage(tasks=shown, next_cursor=rows[limit - 1].id if len(rows) > limit else None)

    async def cancel(self, caller: Caller, task_id: str) -> wire.TaskView:
        """End a task that waits or runs; answers with what it became. Raises `Elsewhere` for one of another node."""
        for _ in range(CANCELS_MAX):
            live = self._scheduler.find(task_id)
            if live is not None and caller.may_see(live.row.agent_id):
                self._scheduler.cancel(live)
                await asyncio.wait([live.ended])
                if live.state is TaskState.CANCELLED:
                    return await self._view(live.row)
                if live.is_over:
                    raise _over(task_id, live.state)
                # It has left this node meanwhile.
                continue
            row = await self._row(caller, task_id)
            if self._pool is None or is_terminal(TASK, row.state):
                raise _over(task_id, row.state)
            if not row.node_id:
                if (ended := await self._pool.end(row, TaskEvent.CANCEL)) is not None:
                    return await self._view(ended)
            elif row.node_id != self._node_id and self._places is not None:
                self._places.hand_over(row)
                raise NodeUnreachable("The node that has the task is gone.", retry_after_ms=1_000, taskId=task_id)
        raise StateConflict("The task keeps changing hands.", action="Try again.", taskId=task_id)

    async def stats_of_all(self) -> wire.SchedulerStats:
        """The same, with what waits and runs on all nodes that share the store; what became of the rest is this
        node's.
        """
        return self.stats(None if self._pool is None else await self._pool.by_agent())

    def stats(self, counts: Mapping[str, tuple[int, int]] | None = None) -> wire.SchedulerStats:
        """What waits and runs, what became of the rest, and the settings."""
        settings = self._config.scheduler
        agents = {
            agent_id: wire.AgentQueue(queued=waiting, inflight=flying)
            for agent_id, (waiting, flying) in (self._scheduler.queue.by_agent() if counts is None else counts).items()
        }
        return wire.SchedulerStats(
            queue=wire.QueueStats(
                total_queued=sum(agent.queued for agent in agents.values()),
                total_inflight=sum(agent.inflight for agent in agents.values()),
                agents=agents,
            ),
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
        self.submission.reconfigure(config)

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
        position: int | None = None
        eta_ms: int | None = None
        if self._pool is not None and not row.node_id and row.state is TaskState.QUEUED:
            position, eta_ms = await self._pool.position(row)
        webhook = await self._webhooks.view(row.id) if row.callback_url else None
        return task_view(row, row.state, position=position, eta_ms=eta_ms, webhook=webhook)

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


def _over(task_id: str, state: TaskState) -> StateConflict:
    return StateConflict(f"The task is over: {state}.", taskId=task_id, state=state)
