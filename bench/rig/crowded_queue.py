"""A task queue with so many tasks of so many agents in it, kept at that length while its steps are timed."""

from __future__ import annotations

from collections import deque
from random import Random
from time import perf_counter
from typing import Final

import msgspec

from tabherd.core.task_queue import Limits, TaskQueue, Waiting

WORKERS: Final = 20
# In flight at a time while it is measured: as many as an agent may have, and half of what the workers can do.
FLYING: Final = 10
NO_LIMIT: Final = 10_000_000
POOL: Final = "pool:default"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tasks of a queue run."""

    name: str
    # Over how many lanes they are spread.
    lanes: int = 1
    # Whether these are tabs, which run one task at a time.
    is_serial: bool = True
    # How many lanes somebody else has, all the time; only what was there at the beginning waits for these.
    blocked: int = 0


SHAPES: Final = (
    Shape(name="1_tab"),
    Shape(name="8_tabs", lanes=8),
    Shape(name="20_tabs", lanes=20),
    Shape(name="500_tabs", lanes=500),
    Shape(name="pool", is_serial=False),
    Shape(name="all_on_a_busy_tab", lanes=9, blocked=1),
    Shape(name="450_of_500_busy", lanes=500, blocked=450),
)


class Costs(msgspec.Struct, frozen=True):
    """Seconds of each step."""

    submit: list[float]
    # The part of it that asks for the position.
    position: list[float]
    claim: list[float]


class CrowdedQueue:
    """One queue; new tasks are as many as those that are claimed."""

    def __init__(self, shape: Shape, tasks: int, agents: int) -> None:
        self._shape = shape
        self._agents = agents
        self._chance = Random(1)
        self._number = 0
        self._flying: deque[str] = deque()
        self.costs = Costs([], [], [])
        limits = Limits(queue_max=NO_LIMIT, queue_max_per_agent=NO_LIMIT, workers=WORKERS)
        self._queue = TaskQueue(limits)
        for lane in range(shape.blocked):
            self._queue.block(f"tab_{lane}")
        is_all_blocked = shape.blocked == 1
        for _ in range(tasks):
            self._queue.add(self._new(0 if is_all_blocked else self._chance.randrange(shape.lanes)))

    def go_on(self, steps: int) -> None:
        """Submit and claim so many more, and end as many."""
        queue, costs, shape = self._queue, self.costs, self._shape
        for _ in range(steps):
            new = self._new(self._chance.randrange(shape.blocked, shape.lanes))
            began = perf_counter()
            queue.admit(new.agent_id)
            queue.add(new)
            added = perf_counter()
            queue.position(new.id)
            placed = perf_counter()
            taken = queue.take()
            claimed = perf_counter()
            if taken is not None:
                self._flying.append(taken.id)
            ended = 0.0
            if self._flying and (taken is None or len(self._flying) > FLYING):
                id = self._flying.popleft()
                ending = perf_counter()
                queue.finish(id)
                ended = perf_counter() - ending
            costs.submit.append(placed - began)
            costs.position.append(placed - added)
            costs.claim.append(claimed - placed + ended)

    def _new(self, lane: int) -> Waiting:
        self._number += 1
        is_serial = self._shape.is_serial
        return Waiting(
            id=f"tsk_{self._number}",
            agent_id=f"agent-{self._number % self._agents}",
            lane=f"tab_{lane}" if is_serial else POOL,
            is_serial=is_serial,
            created_at=self._number // 10,
            arrival=self._number,
        )
