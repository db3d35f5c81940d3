"""Tasks in a house: submitted, waited for, counted again."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.broker.house import ADA, ADMIN, House

from tabherd import config, wire
from tabherd.broker.caller import Caller
from tabherd.config import Config
from tabherd.core.lifecycle import TaskState
from tabherd.core.model import ArchivedTask, Task


async def submit(house: House, label: str = "one", caller: Caller = ADA, **fields: Any) -> str:
    """A task that evaluates the label; its id."""
    request = wire.SubmitTask(action="evaluate", params={"expression": label}, **fields)
    return (await house.broker.tasking.verbs.submit(caller, request)).task_id


async def get(house: House, task_id: str, caller: Caller = ADA, wait_ms: int = 0) -> wire.TaskView:
    return await house.broker.tasking.verbs.get(caller, task_id, wait_ms)


async def ended(house: House, *task_ids: str) -> list[wire.TaskView]:
    """Until they are over; how they ended."""
    return [await get(house, task_id, ADMIN, wait_ms=120_000) for task_id in task_ids]


def labels(house: House) -> list[str]:
    return [label for _, label in house.sent]


def rows(house: House) -> dict[str, Task]:
    return {row.id: row for row in house.disk.rows(Task)}


def check_counters(house: House) -> None:
    """What is counted is what can be recounted."""
    counts = house.broker.tasking.verbs.stats()
    states = [row.state for row in (*house.disk.rows(Task), *house.disk.rows(ArchivedTask))]
    assert counts.metrics.tasks_submitted == len(states)
    assert counts.metrics.tasks_completed == states.count(TaskState.DONE)
    assert counts.metrics.tasks_failed == states.count(TaskState.FAILED)
    assert counts.metrics.tasks_cancelled == states.count(TaskState.CANCELLED)
    assert counts.metrics.tasks_rejected == states.count(TaskState.REJECTED)
    assert counts.queue.total_queued + counts.queue.total_inflight == states.count(TaskState.QUEUED)


def with_scheduler(house: House, **scheduler: Any) -> Config:
    return msgspec.structs.replace(house.config, scheduler=config.Scheduler(**scheduler))


def with_retention(settings: Config, **retention: Any) -> Config:
    return msgspec.structs.replace(settings, retention=config.Retention(**retention))
