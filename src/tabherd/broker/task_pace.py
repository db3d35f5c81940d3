"""How long tasks take here, and from that, when one that waits may start."""

from __future__ import annotations

from typing import Final

from ..core.task_queue import TaskQueue
from .live_task import LiveTask

# How much the latest task counts in the mean.
SMOOTHING: Final = 0.1
RETRY_MIN_MS, RETRY_MAX_MS = 100, 30_000


class TaskPace:
    """The mean duration of tasks that ran to their end."""

    def __init__(self, queue: TaskQueue) -> None:
        self._queue = queue
        # In milliseconds; 0 before the first one.
        self._mean_ms = 0.0

    @property
    def mean_ms(self) -> float:
        """0 before the first one."""
        return self._mean_ms

    def ran(self, ran_ms: int) -> None:
        self._mean_ms += (SMOOTHING if self._mean_ms else 1.0) * (ran_ms - self._mean_ms)

    def standing(self, task: LiveTask) -> tuple[int | None, int | None]:
        """The position of a task that waits, and in how many milliseconds it may start."""
        queue, task_id = self._queue, task.row.id
        position = queue.position(task_id)
        if position is None:
            return None, None
        workers = queue.limits.workers
        # Those on its own tab go one after the other, however many workers there are.
        ahead = queue.ahead_in_lane(task_id) if task.is_serial else 0
        if position <= workers - queue.in_flight and not ahead:
            return position, 0
        return position, int(max(-(-position // workers), ahead) * self._mean_ms)

    def retry_after_ms(self) -> int:
        """When a place in the queue may be free."""
        return max(RETRY_MIN_MS, min(RETRY_MAX_MS, int(self._mean_ms)))
