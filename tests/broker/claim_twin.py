"""Claims of tasks on a store in memory: the twin of those in PostgreSQL, for several nodes in one process.

It decides what the function in the database decides, step by step on all rows, as slowly as that is easy to read. Tests
compare the two on random queues.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence

from tabherd.core.fairness import share_limit
from tabherd.core.lifecycle import NodeState, TaskState
from tabherd.core.model import Node, Task, changed
from tabherd.errors import StoreUnavailable
from tabherd.store.memory import MemoryStore
from tabherd.store.task_claims import POSITION_AGENTS_MAX, POSITION_OWN_MAX, TOTALS_MAX, Bounds, Look


class Turns:
    """What all nodes share: who waits, by how long ago it was served."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.turns: dict[tuple[str, str], int] = {}
        self.numbers = itertools.count()

    def rows(self) -> list[Task]:
        return list(self.store._state.rows.get(Task, {}).values())  # type: ignore[arg-type]

    def unclaimed(self) -> list[Task]:
        return sorted(
            (row for row in self.rows() if not row.node_id and row.state is TaskState.QUEUED),
            key=lambda row: (row.rank, row.id),
        )

    def flying(self) -> Counter[str]:
        return Counter(row.agent_id for row in self.rows() if is_flying(row))

    def join(self) -> None:
        """Whoever has a task of nobody has a turn."""
        for place in sorted({(row.pool, row.agent_id) for row in self.unclaimed()} - self.turns.keys()):
            self.turns[place] = next(self.numbers)

    def claim(self, node_id: str, pool: str, most: int, bounds: Bounds) -> list[Task]:
        self.join()
        waiting: dict[str, list[Task]] = {agent_id: [] for its_pool, agent_id in self.turns if its_pool == pool}
        for row in self.unclaimed():
            if row.pool == pool:
                waiting[row.agent_id].append(row)
        flying = self.flying()
        limit = bounds.max_per_agent
        if len(waiting) > 1:
            # No more are counted than matter.
            first = sorted(waiting, key=lambda agent_id: self.turns[pool, agent_id])[: bounds.workers + 1]
            limit = share_limit(bounds.workers, len({*first, *flying}), bounds.max_per_agent)
        lowest = sorted(waiting, key=lambda agent_id: (flying[agent_id], self.turns[pool, agent_id]))
        claimed: list[Task] = []
        order: list[tuple[int, int, int, Task]] = []
        for agent_id in lowest[:most]:
            for number, row in enumerate(waiting[agent_id][: max(0, limit - flying[agent_id])], start=1):
                order.append((flying[agent_id] + number - 1, number, self.turns[pool, agent_id], row))
        for _, _, _, row in sorted(order, key=lambda each: each[:3])[:most]:
            mine = changed(row, node_id=node_id, version=row.version + 1)
            self.store._state.rows[Task][row.id] = mine
            self.turns[pool, row.agent_id] = next(self.numbers)
            claimed.append(mine)
        left = {(row.pool, row.agent_id) for row in self.unclaimed()}
        looked_at = {*lowest[: most + len(flying)], *flying}
        for place in [place for place in self.turns if place[0] == pool and place[1] in looked_at]:
            if place not in left:
                del self.turns[place]
        return claimed

    def before(self, task: Task) -> int | None:
        self.join()
        others = [agent_id for pool, agent_id in self.turns if pool == task.pool]
        of_pool = [row for row in self.unclaimed() if row.pool == task.pool]
        own = sum(row.agent_id == task.agent_id and (row.rank, row.id) < (task.rank, task.id) for row in of_pool)
        if own >= POSITION_OWN_MAX or len(others) >= POSITION_AGENTS_MAX:
            return None
        flying = self.flying()
        numbers: Counter[str] = Counter()
        mine = (flying[task.agent_id] + own, own + 1, self.turns.get((task.pool, task.agent_id), 0))
        before = own
        for row in of_pool:
            numbers[row.agent_id] += 1
            number = numbers[row.agent_id]
            turn = self.turns[row.pool, row.agent_id]
            if row.agent_id != task.agent_id and (flying[row.agent_id] + number - 1, number, turn) < mine:
                before += 1
        return before


class ClaimTwin:
    """Implements `TaskClaims` for one node. `step` is every moment at which the world may move in between."""

    def __init__(self, turns: Turns, node: Node, step: Callable[[], object]) -> None:
        self._turns = turns
        self._node = node
        self._step = step
        # Says of which claims the answers are lost.
        self.is_doubtful: Callable[[], bool] = lambda: False

    async def claim(self, pool: str, most: int, bounds: Bounds) -> list[Task]:
        await self._pause()
        self._refuse_fenced()
        claimed = self._turns.claim(self._node.id, pool, most, bounds)
        await self._pause()
        if self.is_doubtful():
            raise StoreUnavailable("the answer was lost")
        return claimed

    async def write(self, rows: Sequence[Task]) -> set[str]:
        await self._pause()
        self._refuse_fenced()
        standing = self._turns.store._state.rows.setdefault(Task, {})
        written = {row.id for row in rows if row.id in standing and standing[row.id].version == row.version}
        for row in rows:
            if row.id in written:
                standing[row.id] = changed(row, version=row.version + 1)
        await self._pause()
        if self.is_doubtful():
            raise StoreUnavailable("the answer was lost")
        return written

    async def look(self, pools: Sequence[str], agents: Sequence[str], most: int, most_per_agent: int) -> Look:
        await self._pause()
        self._turns.join()
        rows, unclaimed = self._turns.rows(), self._turns.unclaimed()
        claimed = [row for row in rows if row.node_id and row.state in (TaskState.QUEUED, TaskState.RUNNING)]
        flying = sum(self._turns.flying().values())
        waits = [row for row in (*unclaimed, *claimed) if not is_flying(row)]
        return Look(
            unclaimed=min(most, len(unclaimed)),
            waiting=min(most, len(unclaimed)) + max(0, min(most, len(claimed)) - flying),
            in_flight=flying,
            deadline_at=min((row.deadline_at for row in unclaimed), default=None),
            by_agent={agent: min(most_per_agent, sum(row.agent_id == agent for row in waits)) for agent in agents},
        )

    async def expired(self, now: int, most: int) -> list[Task]:
        await self._pause()
        late = [row for row in self._turns.unclaimed() if row.deadline_at <= now]
        return sorted(late, key=lambda row: row.deadline_at)[:most]

    async def of_node(self, node_id: str, most: int, *, after: tuple[str, str] = ("", "")) -> list[Task]:
        await self._pause()
        rows = (
            row
            for row in self._turns.rows()
            if row.node_id == node_id
            and row.state in (TaskState.QUEUED, TaskState.RUNNING)
            and (row.agent_id, row.id) > after
        )
        return sorted(rows, key=lambda row: (row.agent_id, row.id))[:most]

    async def position(self, task: Task) -> int | None:
        await self._pause()
        before = self._turns.before(task)
        return None if before is None else before + 1

    async def by_agent(self) -> dict[str, tuple[int, int]]:
        await self._pause()
        counts: dict[str, tuple[int, int]] = {}
        for row in self._turns.rows()[:TOTALS_MAX]:
            if row.state in (TaskState.QUEUED, TaskState.RUNNING):
                waiting, flying = counts.get(row.agent_id, (0, 0))
                counts[row.agent_id] = (waiting + (not is_flying(row)), flying + is_flying(row))
        return counts

    async def await_others(self) -> None:
        await self._pause()

    def _refuse_fenced(self) -> None:
        node = self._turns.store._state.row(Node, self._node.id)
        assert isinstance(node, Node)
        if node.version != self._node.version or node.state is not NodeState.UP:
            raise StoreUnavailable("declared dead", cause="fenced")

    async def _pause(self) -> None:
        awaited = self._step()
        if awaited is not None:
            await awaited  # type: ignore[misc]


def is_flying(row: Task) -> bool:
    """Whether it counts for its agent: it runs, or some node has it that is about to run it."""
    is_pooled = not row.tab_id and not row.session_id
    return bool(row.node_id) and (row.state is TaskState.RUNNING or (row.state is TaskState.QUEUED and is_pooled))
