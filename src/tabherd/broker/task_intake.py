"""How tasks come in: counted before they are written, written before they are acknowledged.

Invariants:
- What is on its way to the disk counts as waiting, so that the bound of the queue holds however many come at once. A
  place that was counted is free again when the task is on disk, or never will be.
- A task is told to the scheduler once it is on disk, whether or not its submitter still waits.
- Those who are refused are kept as well, and never wait for a store that is away. If nobody knows whether one is on
  disk, it is looked for until that is known: somebody may have to be told of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from ..core.lifecycle import TaskState
from ..core.model import Task, TaskKey
from ..core.task_queue import TaskQueue
from ..errors import StoreUnavailable, TabherdError
from ..metrics import Metrics
from ..store.base import Conflict, Insert, Op, Put, Require, Store, is_in_doubt
from .events import EventBus
from .live_task import LiveTask
from .patience import patiently, to_the_end
from .task_counts import TaskCounter
from .task_ending import tell_state
from .task_log import TaskLog

log = structlog.get_logger("scheduler")


class TaskIntake:
    """The way in for tasks of this node."""

    def __init__(
        self,
        *,
        queue: TaskQueue,
        task_log: TaskLog,
        store: Store,
        events: EventBus,
        metrics: Metrics,
        counter: TaskCounter,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        enter: Callable[[LiveTask], None],
        on_end: Callable[[Task], tuple[Op, ...]],
        on_saved: Callable[[Task], None],
    ) -> None:
        # Raises `QueueFull` unless one more may wait, besides so many that are arriving, in all and of that agent.
        self.check_room: Callable[[str, int, int], None] = queue.admit
        self._log = task_log
        self._store = store
        self._events = events
        self._metrics = metrics
        self._counter = counter
        self._spawn = spawn
        # The scheduler's: the task waits from now on.
        self._enter = enter
        # What else is to be written with a task that is over from the beginning, and who is told when it is on disk.
        self._on_end = on_end
        self._on_saved = on_saved
        # How many tasks there have been.
        self._tasks = 0
        # Admitted, but not yet on disk: in all, and by agent.
        self._arriving: set[str] = set()
        self._arriving_by_agent: dict[str, int] = {}

    @property
    def arriving(self) -> int:
        """Tasks that are admitted, but not yet on disk."""
        return len(self._arriving)

    def is_arriving(self, task_id: str) -> bool:
        return task_id in self._arriving

    def task_of(self, row: Task) -> LiveTask:
        """The task, at its place: who was asked for first goes first."""
        self._tasks += 1
        return LiveTask(row, self._tasks)

    def admit(self, task: LiveTask) -> None:
        """Count it in, or refuse it. Whoever was admitted has to be submitted, without a pause in between."""
        agent_id = task.row.agent_id
        own = self._arriving_by_agent.get(agent_id, 0)
        self.check_room(agent_id, len(self._arriving), own)
        self._arriving.add(task.row.id)
        self._arriving_by_agent[agent_id] = own + 1

    def submit(self, tasks: list[LiveTask]) -> asyncio.Future[None]:
        """Have admitted tasks wait, durably: all of them, or none. It goes on without whoever waits for it."""
        return self._log.insert(tasks)

    async def submit_keyed(self, task: LiveTask, key: TaskKey) -> str:
        """The same for one that has a key; the id of the task that stands for it, which may be an earlier one."""
        return await to_the_end(self._submit_keyed(task, key), self._spawn)

    async def reject(self, row: Task) -> None:
        """Keep a task that was not admitted, for whoever asks what became of it."""
        await to_the_end(self._reject(row), self._spawn)

    # --- What the log tells ---------------------------------------------------------------------------------

    def inserted(self, task: LiveTask) -> None:
        """It is on disk."""
        self.arrived(task)
        self._counter.submitted(task.row.agent_id)
        self._enter(task)

    def arrived(self, task: LiveTask) -> None:
        """It is on disk, or never will be: from now on it counts as what it is."""
        agent_id = task.row.agent_id
        self._arriving.discard(task.row.id)
        own = self._arriving_by_agent.pop(agent_id) - 1
        if own:
            self._arriving_by_agent[agent_id] = own

    # --- Parts ----------------------------------------------------------------------------------------------

    async def _submit_keyed(self, task: LiveTask, key: TaskKey) -> str:
        try:
            outcome = await self._store.apply(Insert(task.row), Insert(key))
        except TabherdError as error:
            if isinstance(error, StoreUnavailable) and is_in_doubt(error):
                self._spawn(self._log.settle_doubt([task]))
            else:
                self.arrived(task)
            raise
        if isinstance(outcome, Conflict):
            assert isinstance(outcome.row, TaskKey), f"{task.row.id} is new"
            self.arrived(task)
            return outcome.row.task_id
        (stored, _) = outcome.rows
        assert isinstance(stored, Task)
        task.row = stored
        self.inserted(task)
        return stored.id

    async def _reject(self, row: Task) -> None:
        self._counter.submitted(row.agent_id)
        self._counter.ended(row.agent_id, TaskState.REJECTED)
        self._metrics.tasks_total.inc(TaskState.REJECTED)
        told = {"taskId": row.id, "agentId": row.agent_id, "code": row.code}
        tell_state(self._events, TaskState.REJECTED, told)
        try:
            await self._store.apply(Put(row), *self._on_end(row))
        except StoreUnavailable as error:
            # Who is refused must not wait for that.
            if is_in_doubt(error):
                self._spawn(self._find_rejected(row))
            else:
                log.warning("a rejected task is not kept", taskId=row.id, error=error.message)
        else:
            self._on_saved(row)

    async def _find_rejected(self, row: Task) -> None:
        """Whether it is on disk after all."""
        # Asked as a write is, because only what writes knows that nothing of an earlier one is still on its way.
        absent = Require(Task, row.id, 0)
        try:
            if isinstance(await patiently(lambda: self._store.apply(absent)), Conflict):
                self._on_saved(row)
            else:
                log.warning("a rejected task is not kept", taskId=row.id, error="It was lost on its way to the store.")
        except StoreUnavailable as error:
            # What may be there is seen to by others, or by the next life.
            log.info("nobody knows whether a rejected task is on disk", taskId=row.id, error=error.message)
