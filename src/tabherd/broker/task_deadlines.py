"""When tasks must be over: one timer for the soonest of them.

Invariant: `expired` is called for every task that was added, at its deadline, unless it is over by then. A deadline of
a task that is over is dropped when it comes up, or when there are many of them: memory is bounded by what waits.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable

# Fewer than these are not worth looking through.
SWEEP_MIN = 1_000


class TaskDeadlines:
    """The deadlines of this node's tasks, by id."""

    def __init__(
        self, *, clock: Callable[[], int], is_waited_for: Callable[[str], bool], expired: Callable[[str], None]
    ) -> None:
        self._clock = clock
        # Whether a task is not over yet.
        self._is_waited_for = is_waited_for
        self._expired = expired
        # (deadline, id), soonest first.
        self._heap: list[tuple[int, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        # The deadline that the timer is set to.
        self._set_to = 0
        # How many there may be before those of tasks that are over are dropped.
        self._sweep_at = SWEEP_MIN

    def add(self, deadline_at: int, task_id: str) -> None:
        if len(self._heap) >= self._sweep_at:
            self._sweep()
        heapq.heappush(self._heap, (deadline_at, task_id))
        if self._timer is None or deadline_at < self._set_to:
            self._set()

    def add_all(self, due: Iterable[tuple[int, str]]) -> None:
        """The same for many at once."""
        self._heap += due
        heapq.heapify(self._heap)
        self._sweep_at = max(self._sweep_at, 2 * len(self._heap))
        self._set()

    def stop(self) -> None:
        """No more of them come up."""
        if self._timer is not None:
            self._timer.cancel()

    def _set(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._heap and not self._is_waited_for(self._heap[0][1]):
            heapq.heappop(self._heap)
        if self._heap:
            self._set_to = self._heap[0][0]
            delay_s = max(0, self._set_to - self._clock()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.come_up)

    def _sweep(self) -> None:
        self._heap = [due for due in self._heap if self._is_waited_for(due[1])]
        heapq.heapify(self._heap)
        # Twice what is left: each deadline is looked at a constant number of times, however many there are.
        self._sweep_at = max(SWEEP_MIN, 2 * len(self._heap))

    def come_up(self) -> None:
        """Tell of those that have passed."""
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            _, task_id = heapq.heappop(self._heap)
            if self._is_waited_for(task_id):
                self._expired(task_id)
        self._set()
