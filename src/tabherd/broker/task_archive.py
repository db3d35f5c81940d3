"""What becomes of tasks that are over: at hand for a while, then in the archive, then gone. All of it bounded.

The order in which they ended is kept in memory, so that nobody has to search for what is due.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import structlog

from ..config import Config
from ..core.lifecycle import TASK, TaskState, is_terminal
from ..core.model import ArchivedTask, Task, TaskKey
from ..errors import StoreUnavailable
from ..store.base import Add, Applied, Conflict, Delete, Op, Put, Store

# What is due is looked for no more and no less often than this.
SWEEP_MIN_S, SWEEP_MAX_S = 1.0, 600.0
# How many are moved in one transaction.
BATCH_MAX = 200

log = structlog.get_logger("scheduler")

# The counter of those in the archive: counting them would mean reading them all.
ARCHIVED = "archived_tasks"
OVER = tuple(state for state in TaskState if is_terminal(TASK, state))


class TaskArchive:
    """The tasks of this node that are over."""

    def __init__(
        self,
        *,
        config: Config,
        store: Store,
        clock: Callable[[], int],
        forgetting: Callable[[list[str]], Awaitable[tuple[Op, ...]]],
        node_id: str | None = None,
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        # What else goes when tasks are deleted for good.
        self._forgetting = forgetting
        # This node, if others share the store: each sees to what it has ended.
        self._node_id = node_id
        # At hand, by when they ended; rejected ones by themselves, because there may be many.
        self._ended: deque[tuple[int, str]] = deque()
        self._rejected: deque[tuple[int, str]] = deque()
        # How many are in the archive.
        self._archived = 0
        self._is_changed = asyncio.Event()

    async def load(self) -> None:
        """Find what an earlier life left at hand."""
        await self.take_up(self._node_id)
        self._archived = await self._store.counter(ARCHIVED)

    async def take_up(self, node_id: str | None) -> None:
        """See to what that node has ended; None: to all there is."""
        after, found = "", list[Task]()
        while page := await self._store.select(Task, {"state": tuple(map(str, OVER))}, after=after):
            found += (row for row in page if node_id in (None, row.node_id))
            after = page[-1].id
        for row in sorted(found, key=lambda row: row.completed_at):
            self.add(row)

    def add(self, row: Task) -> None:
        """A task is over, and on disk."""
        ended = self._rejected if row.state is TaskState.REJECTED else self._ended
        ended.append((row.completed_at, row.id))
        if len(ended) == 1 or len(self._rejected) > self._config.retention.rejected_max:
            self._is_changed.set()

    def reconfigure(self, config: Config) -> None:
        self._config = config
        self._is_changed.set()

    async def run(self) -> None:
        """Sweep for ever."""
        while True:
            self._is_changed.clear()
            try:
                while await self.sweep():
                    pass
            except StoreUnavailable as error:
                log.warning("the archive of tasks waits for the store", error=error.message)
            except Exception as error:
                # A bug of ours must not let tasks pile up for ever.
                log.error("bug: the archive of tasks could not be swept", error=repr(error), exc_info=error)
            await asyncio.sleep(SWEEP_MIN_S)
            try:
                async with asyncio.timeout(self._idle_s()):
                    await self._is_changed.wait()
            except TimeoutError:
                continue

    async def sweep(self) -> bool:
        """Move and delete some of what is due; whether there may be more."""
        moved = await self._move(self._ended, self._due(self._ended))
        # Not into the archive: whoever floods the queue would push everybody's results out of it.
        excess = len(self._rejected) - self._config.retention.rejected_max
        moved += await self._drop(self._rejected, excess)
        moved += await self._move(self._rejected, self._due(self._rejected))
        return bool(moved + await self._delete())

    def _idle_s(self) -> float:
        """Until the next one is due."""
        first = min((ended[0][0] for ended in (self._ended, self._rejected) if ended), default=None)
        if first is None:
            return SWEEP_MAX_S
        due_at = first + self._config.scheduler.result_ttl_s * 1000
        return min(SWEEP_MAX_S, max(0.0, (due_at - self._clock()) / 1000))

    def _due(self, ended: deque[tuple[int, str]]) -> int:
        """How many of the first are over for long enough, a batch at the most."""
        until = self._clock() - self._config.scheduler.result_ttl_s * 1000
        count = 0
        for completed_at, _ in ended:
            if completed_at > until or count >= BATCH_MAX:
                break
            count += 1
        return count

    async def _move(self, ended: deque[tuple[int, str]], count: int) -> int:
        ids = [ended[place][1] for place in range(min(count, BATCH_MAX, len(ended)))]
        rows = [row for row in await asyncio.gather(*(self._store.get(Task, id) for id in ids)) if row is not None]
        if rows and not await self._archive(rows):
            assert self._node_id is not None, "nobody else writes tasks that are over"
            # Another node sees to some of them as well, because theirs is gone.
            for row in rows:
                await self._archive([row])
        for _ in ids:
            ended.popleft()
        return len(ids)

    async def _archive(self, rows: Sequence[Task]) -> bool:
        ops: list[Op] = []
        for row in rows:
            ops += (Delete(Task, row.id, row.version), Put(_archived(row)))
        outcome = await self._store.apply(*ops, Add(ARCHIVED, len(rows)))
        is_done = isinstance(outcome, Applied)
        self._archived += len(rows) if is_done else 0
        return is_done

    async def _drop(self, ended: deque[tuple[int, str]], count: int) -> int:
        """Forget the oldest of them, for good."""
        ids = [ended[place][1] for place in range(max(0, min(count, BATCH_MAX)))]
        rows = [row for row in await asyncio.gather(*(self._store.get(Task, id) for id in ids)) if row is not None]
        if rows:
            gone = (Delete(Task, row.id, row.version) for row in rows)
            outcome = await self._store.apply(*gone, *await self._forgetting([row.id for row in rows]))
            if isinstance(outcome, Conflict):
                # A delivery has changed at this moment: at the next sweep.
                return 0
        for _ in ids:
            ended.popleft()
        return len(ids)

    async def _delete(self) -> int:
        """The oldest of the archive, as far as they are too old or too many."""
        retention = self._config.retention
        if self._node_id is not None:
            self._archived = await self._store.counter(ARCHIVED)
        if not self._archived:
            return 0
        oldest = await self._store.select(ArchivedTask, limit=BATCH_MAX)
        too_many = self._archived - retention.tasks_max
        until = self._clock() - retention.tasks_s * 1000
        gone = [row for place, row in enumerate(oldest) if place < too_many or row.completed_at <= until]
        if gone:
            ops: list[Op] = [Delete(ArchivedTask, row.id, row.version) for row in gone]
            ops += await self._keys_of(gone)
            ops.append(Add(ARCHIVED, -len(gone)))
            outcome = await self._store.apply(*ops, *await self._forgetting([row.id for row in gone]))
            if isinstance(outcome, Conflict):
                # A delivery or a key has changed at this moment: at the next sweep.
                return 0
            self._archived -= len(gone)
        return len(gone)

    async def _keys_of(self, gone: Sequence[Task]) -> list[Op]:
        """The keys that stand for them: with nothing left to answer, the same key may be another task again."""
        found = await asyncio.gather(*(self._store.get(TaskKey, row.key_id) for row in gone if row.key_id))
        ids = {row.id for row in gone}
        # That of a task that was rejected may stand for a later one.
        return [Delete(TaskKey, key.id, key.version) for key in found if key is not None and key.task_id in ids]


def _archived(row: Task) -> ArchivedTask:
    return ArchivedTask(**{name: getattr(row, name) for name in row.__struct_fields__ if name != "version"})
