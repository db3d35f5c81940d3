"""What nodes that share a store ask of it about tasks, beyond guarded writes: who is next, and how many there are.

Unlike `apply` these are questions about rows that nobody has read yet: which tasks of nobody come next under the rules
of fairness. The answer to `claim` is a decision that has been written; all else only looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from ..core.model import Task

# Of how many tasks of its own agent, and among how many agents, the position of a task is found out.
POSITION_OWN_MAX: Final = 500
POSITION_AGENTS_MAX: Final = 500
# How many tasks are looked at to say how many each agent has.
TOTALS_MAX: Final = 100_000


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What claims are held to."""

    # Of all nodes together: while several agents wait, none has more in flight than its share of these.
    workers: int
    # How many of one agent may be in flight on all nodes together.
    max_per_agent: int


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks there are, on all nodes together, at one moment. Counted up to a bound, and no further."""

    # Nobody's.
    unclaimed: int = 0
    # Those that wait: nobody's, or for their tab.
    waiting: int = 0
    # Claimed or running.
    in_flight: int = 0
    # When the next one of nobody must be over; None: there is none.
    deadline_at: int | None = None
    # Those of each agent that was asked for, that wait.
    by_agent: dict[str, int] = msgspec.field(default_factory=dict)


class TaskClaims(Protocol):
    """Implemented by PostgreSQL, and by a twin in memory for tests.

    Raises `StoreUnavailable` when the engine cannot be asked; a claim that was not answered may have happened.
    """

    async def claim(self, pool: str, most: int, bounds: Bounds) -> list[Task]:
        """Give this node up to so many tasks of nobody that need a place in that pool, in the order of their turns.

        The agent with the fewest in flight goes first, ties to who was served longest ago; of one agent by rank. Raises
        `StoreUnavailable` (fenced) if others have declared this node dead.
        """
        ...

    async def write(self, rows: Sequence[Task]) -> set[str]:
        """Write down what has become of tasks of this node: the ids of those that still had their versions, which grow
        by one. Only what the life of a task changes is written. Raises `StoreUnavailable` (fenced) as `claim` does.
        """
        ...

    async def look(self, pools: Sequence[str], agents: Sequence[str], most: int, most_per_agent: int) -> Look:
        """Count, no further than that, in all and of each agent: what waits in those pools, or for tabs."""
        ...

    async def expired(self, now: int, most: int) -> list[Task]:
        """Tasks of nobody whose deadline has passed, the longest overdue first."""
        ...

    async def of_node(self, node_id: str, most: int, *, after: tuple[str, str] = ("", "")) -> list[Task]:
        """A page of a node's tasks that are not over, by agent and id, after those."""
        ...

    async def position(self, task: Task) -> int | None:
        """The place of a task of nobody in the order in which they start, 1 first; None if that is too far to count."""
        ...

    async def by_agent(self) -> dict[str, tuple[int, int]]:
        """How many tasks each agent has waiting, and in flight; of no more than `TOTALS_MAX` tasks."""
        ...

    async def await_others(self) -> None:
        """Returns when every claim and write has landed that had begun before; a node that was declared dead by then
        makes none any more.
        """
        ...
