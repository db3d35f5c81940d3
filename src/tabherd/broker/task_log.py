"""Puts tasks on disk, as they come and as they end: those of one moment in one transaction.

Invariants:
- Whoever waits for `insert` hears of it when all of his tasks are on disk, or that none is. What was written is told to
  the scheduler in the same step, whether or not anybody still waits.
- An end is written until the store has taken it, and told after that.

A transaction costs the same for one task as for fifty, and thousands of tasks a second are what this is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import structlog

from ..core.model import Task
from ..errors import InvalidRequest, TabherdError
from ..store.base import Applied, Insert, Op, Store, Update
from .live_task import LiveTask
from .patience import patiently

# What one transaction carries at the most.
BATCH_MAX = 500
# How long an end waits for company: a commit for each would compete with the work itself.
LINGER_S = 0.003

log = structlog.get_logger("scheduler")

_Arrival: TypeAlias = "tuple[list[LiveTask], asyncio.Future[None]]"


class TaskLog:
    """Where the scheduler writes tasks down."""

    def __init__(
        self,
        *,
        store: Store,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        on_inserted: Callable[[LiveTask], None],
        on_refused: Callable[[LiveTask], None],
        on_end: Callable[[Task], tuple[Op, ...]],
        on_saved: Callable[[LiveTask], None],
    ) -> None:
        self._store = store
        self._spawn = spawn
        # Told of every task that is on disk now, and of every one that could not be written.
        self._on_inserted = on_inserted
        self._on_refused = on_refused
        # What else is to be written in the transaction of a task's end, and who is told when that is on disk.
        self._on_end = on_end
        self._on_saved = on_saved
        # What has come in this step of the loop.
        self._arrivals: list[_Arrival] = []
        # What has ended and is not on disk as such; the first ones may be on their way.
        self._ended: list[LiveTask] = []
        self._is_saving = False

    @property
    def unsaved(self) -> int:
        """Tasks that are over but not yet on disk."""
        return len(self._ended)

    def insert(self, tasks: list[LiveTask]) -> asyncio.Future[None]:
        """Settled when all of them are on disk; its exception says why none is."""
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()
        if not tasks:
            written.set_result(None)
            return written
        if not self._arrivals:
            loop.call_soon(self._insert_soon)
        self._arrivals.append((tasks, written))
        return written

    def save(self, task: LiveTask) -> None:
        """Write its end down."""
        self._ended.append(task)
        if not self._is_saving:
            self._is_saving = True
            self._spawn(self._save())

    # --- Parts ----------------------------------------------------------------------------------------------

    def _insert_soon(self) -> None:
        arrivals, self._arrivals = self._arrivals, []
        together: list[_Arrival] = []
        count = 0
        for arrival in arrivals:
            if together and count + len(arrival[0]) > BATCH_MAX:
                self._spawn(self._insert(together))
                together, count = [], 0
            together.append(arrival)
            count += len(arrival[0])
        self._spawn(self._insert(together))

    async def _insert(self, arrivals: list[_Arrival]) -> None:
        tasks = [task for each, _ in arrivals for task in each]
        try:
            outcome = await self._store.apply(*(Insert(task.row) for task in tasks))
        except InvalidRequest as error:
            if len(arrivals) == 1:
                self._refuse(arrivals, error)
                return
            # One of them has something that cannot be stored; the others must not suffer for it.
            for arrival in arrivals:
                await self._insert([arrival])
        except TabherdError as error:
            self._refuse(arrivals, error)
        else:
            assert isinstance(outcome, Applied), f"their ids are new ({outcome})"
            for task, row in zip(tasks, outcome.rows, strict=True):
                assert isinstance(row, Task)
                task.row = row
                self._on_inserted(task)
            for _, written in arrivals:
                if not written.done():
                    written.set_result(None)

    def _refuse(self, arrivals: list[_Arrival], error: TabherdError) -> None:
        for tasks, written in arrivals:
            for task in tasks:
                self._on_refused(task)
            if not written.done():
                written.set_exception(error)
                # Looked at, or asyncio would complain when its caller has left.
                written.exception()

    async def _save(self) -> None:
        try:
            while self._ended:
                if len(self._ended) < BATCH_MAX:
                    await asyncio.sleep(LINGER_S)
                batch = self._ended[:BATCH_MAX]
                try:
                    await self._save_together(batch)
                except (AssertionError, InvalidRequest):
                    for task in batch:
                        await self._save_alone(task)
                del self._ended[: len(batch)]
        finally:
            self._is_saving = False

    async def _save_together(self, batch: list[LiveTask]) -> None:
        ops: list[Op] = []
        for task in batch:
            ops += (Update(task.row), *self._on_end(task.row))
        outcome = await patiently(lambda: self._store.apply(*ops))
        assert isinstance(outcome, Applied), f"nobody else writes them ({outcome})"
        for task in batch:
            self._on_saved(task)

    async def _save_alone(self, task: LiveTask) -> None:
        """A bug of ours in one of them must not keep the others from their end."""
        try:
            await self._save_together([task])
        except (AssertionError, InvalidRequest) as error:
            # On disk it is as it was, and its mark stays: the next life says that nobody knows what became of it.
            log.error("bug: the end of a task cannot be written", taskId=task.row.id, error=repr(error))
