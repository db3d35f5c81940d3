"""A store in which many tasks wait, as a server left it that was ended."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from tabherd.broker.broker import wall_clock_ms
from tabherd.broker.caller import AGENT_SCOPES
from tabherd.core.lifecycle import TaskState
from tabherd.core.model import Task
from tabherd.store.base import Applied, Insert, Store

# Written in one transaction.
CHUNK: Final = 2_000
# Longer than any benchmark.
DEADLINE_MS: Final = 3_600_000


async def fill(store: Store, node_id: str, count: int, agents: int) -> None:
    """Have so many tasks of so many agents wait there for a tab of the pool."""
    rows = _rows(node_id, count, agents)
    while chunk := [Insert(row) for row in islice(rows, CHUNK)]:
        outcome = await store.apply(*chunk)
        assert isinstance(outcome, Applied)


def _rows(node_id: str, count: int, agents: int) -> Iterator[Task]:
    now = wall_clock_ms()
    for number in range(count):
        yield Task(
            # Below every id that a server makes, which begin with the time.
            id=f"tsk_{number:026d}",
            node_id=node_id,
            agent_id=f"agent-{number % agents}",
            state=TaskState.QUEUED,
            action="evaluate",
            request='{"params":{"expression":"1 + 1"}}',
            created_at=now,
            deadline_at=now + DEADLINE_MS,
            scopes=tuple(sorted(AGENT_SCOPES)),
        )
