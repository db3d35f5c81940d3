"""Puts tasks on disk, as they come, as they are sent, and as they end: those of one moment in one transaction.

Invariants:
- Whoever waits for `insert` hears of it when all of his tasks are on disk, or that none is, or that nobody knows. What
  was written is told to the scheduler in the same step, whether or not anybody still waits.
- Tasks of which nobody knows are looked for until it is known: what is there is run, and none lies there that no node
  has in its memory.
- What a task that is on disk has become is written in the order in which it became so, one write of it at a time, until
  the store has taken it, and told after that. Several changes of one task in one moment are one write. What it becomes
  after it was chosen to be written is another write, however long the first one takes.
- Where nodes share the store, a task may be another's by then: then nothing is written, and the scheduler is told.

A transaction costs the same for one task as for fifty, and thousands of tasks a second are what this is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeAlias

import structlog

from ..core.lifecycle import TASK, is_terminal
from ..core.model import Task, changed
from ..errors import InvalidRequest, StoreUnavailable, TabherdError
from ..store.base import Applied, Insert, Op, Require, Store, Update, is_in_doubt
from ..store.task_claims import TaskClaims
from .live_task import LiveTask
from .patience import patiently

# What one transaction carries at the most.
BATCH_MAX = 500
# How long an end waits for company: a commit for each would compete with the work itself.
LINGER_S = 0.003
# The same in steps of the loop, where somebody waits for it: from the end of one task to the start of the next.
LINGER_STEPS = 2

log = structlog.get_logger("scheduler")

_Arrival: TypeAlias = "tuple[list[LiveTask], asyncio.Future[None]]"
# A task, and the row that is to be written: it may become something else before that is on disk.
_Change: TypeAlias = "tuple[LiveTask, Task]"


class Taken(Exception):
    """The task is another node's, or over, by the doing of another node."""


class _Conflicting(Exception):
    """Something of a transaction does not stand as it was read, and nothing of it was written."""


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
        claims: TaskClaims | None = None,
        on_taken: Callable[[LiveTask], None] = lambda task: None,
    ) -> None:
        self._store = store
        self._spawn = spawn
        # Told of every task that is on disk now, and of every one that could not be written.
        self._on_inserted = on_inserted
        self._on_refused = on_refused
        # What else is to be written in the transaction of a task's end, and who is told when that is on disk.
        self._on_end = on_end
        self._on_saved = on_saved
        # How tasks are written where nodes share the store; None where they do not.
        self._claims = claims
        # Told of a task that others have.
        self._on_taken = on_taken
        # What has come in this step of the loop.
        self._arrivals: list[_Arrival] = []
        # What has changed and is not on its way to the disk as it is now, in that order; and what is on its way.
        self._changed: dict[LiveTask, None] = {}
        self._writing: set[LiveTask] = set()
        # Those that write, and how many there may be: while one waits for the disk, the other is told of the next.
        self._writers = 0
        self._writers_max = 1 if claims is None else 2

    @property
    def unsaved(self) -> int:
        """Tasks that are not on disk as they are."""
        return len(self._changed) + len(self._writing)

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
        self._changed[task] = None
        if self._writers < self._writers_max:
            self._writers += 1
            self._spawn(self._save())

    def update(self, task: LiveTask) -> asyncio.Future[None]:
        """Write down what its row has become, without being over. Settled when that is on disk; `Taken` if it cannot
        be, because others have the task.
        """
        if task.written is None:
            task.written = asyncio.get_running_loop().create_future()
        self.save(task)
        return task.written

    # --- Arrivals -------------------------------------------------------------------------------------------

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
            if isinstance(error, StoreUnavailable) and is_in_doubt(error):
                self._spawn(self.settle_doubt(tasks))
                _fail([written for _, written in arrivals], error)
            else:
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
        for tasks, _ in arrivals:
            for task in tasks:
                self._on_refused(task)
        _fail([written for _, written in arrivals], error)

    async def settle_doubt(self, tasks: list[LiveTask]) -> None:
        """Find out about tasks that were written together, all or none, and whose writing was not answered."""
        # Asked as a write is, because only what writes knows that nothing of an earlier one is still on its way.
        absent = Require(Task, tasks[0].row.id, 0)
        try:
            has_landed = not isinstance(await patiently(lambda: self._store.apply(absent)), Applied)
            for task in tasks:
                standing = await patiently(partial(self._store.get, Task, task.row.id))
                if has_landed and standing is not None and standing.node_id == task.row.node_id:
                    task.row = standing
                    self._on_inserted(task)
                else:
                    # Or another node has had it meanwhile.
                    self._on_refused(task)
        except StoreUnavailable as error:
            # What may be there is seen to by others, or by the next life.
            log.info("nobody knows whether tasks are on disk", count=len(tasks), error=error.message)

    # --- Changes --------------------------------------------------------------------------------------------

    async def _save(self) -> None:
        try:
            while self._changed:
                if len(self._changed) < BATCH_MAX:
                    await self._linger()
                # What is on its way comes after that has arrived.
                tasks = [task for task in self._changed if task not in self._writing][:BATCH_MAX]
                if not tasks:
                    # Whoever writes them sees to it.
                    return
                for task in tasks:
                    del self._changed[task]
                self._writing.update(tasks)
                batch = [(task, task.row) for task in tasks]
                try:
                    await self._save_together(batch)
                except (_Conflicting, InvalidRequest):
                    for task, row in batch:
                        await self._save_alone(task, row)
                finally:
                    self._writing.difference_update(tasks)
        finally:
            self._writers -= 1

    async def _linger(self) -> None:
        """Wait for company."""
        if self._claims is None:
            await asyncio.sleep(LINGER_S)
            return
        # Somebody waits to send one of them, so no longer than it takes those to come that are just free to.
        for _ in range(LINGER_STEPS):
            await asyncio.sleep(0)

    async def _save_together(self, batch: list[_Change]) -> None:
        if self._claims is None:
            await self._apply(batch)
            return
        # The end of one that somebody is to be told of is written together with that.
        told: list[_Change] = []
        others: list[_Change] = []
        for task, row in batch:
            (told if row.callback_url and is_terminal(TASK, row.state) else others).append((task, row))
        if told:
            await self._apply(told)
        if others:
            await self._write(self._claims, others)

    async def _apply(self, batch: list[_Change]) -> None:
        ops: list[Op] = []
        places: list[int] = []
        for _, row in batch:
            places.append(len(ops))
            ops.append(Update(row))
            if is_terminal(TASK, row.state):
                ops += self._on_end(row)
        outcome = await patiently(lambda: self._store.apply(*ops))
        if not isinstance(outcome, Applied):
            raise _Conflicting(str(outcome))
        for (task, row), place in zip(batch, places, strict=True):
            stored = outcome.rows[place]
            assert isinstance(stored, Task)
            self._landed(task, row, stored)

    async def _write(self, claims: TaskClaims, batch: list[_Change]) -> None:
        rows = [row for _, row in batch]
        landed = await patiently(lambda: claims.write(rows))
        for task, row in batch:
            if row.id in landed:
                self._landed(task, row, changed(row, version=row.version + 1))
            else:
                await self._look_at(task, row)

    async def _save_alone(self, task: LiveTask, row: Task) -> None:
        """A bug of ours in one of them must not keep the others from their end; nor must one that others have."""
        try:
            await self._save_together([(task, row)])
        except InvalidRequest as error:
            self._give_up(task, error)
        except _Conflicting:
            await self._look_at(task, row)

    async def _look_at(self, task: LiveTask, written: Task) -> None:
        """Why it could not be written."""
        standing = await patiently(lambda: self._store.get(Task, written.id))
        if standing is not None and standing == changed(written, version=written.version + 1):
            # An attempt that was not heard of has landed after all.
            self._landed(task, written, standing)
        elif self._claims is None:
            self._give_up(task, _Conflicting(str(standing)))
        else:
            self._on_taken(task)
            if task.written is not None:
                task.written.set_exception(Taken(written.id))
                # Looked at, or asyncio would complain when nobody waits.
                task.written.exception()
                task.written = None

    def _landed(self, task: LiveTask, written: Task, stored: Task) -> None:
        if task.row is not written:
            # It has become something else meanwhile, which is written next.
            task.row = changed(task.row, version=stored.version)
            return
        task.row = stored
        if task.written is not None:
            task.written.set_result(None)
            task.written = None
        if is_terminal(TASK, stored.state):
            self._on_saved(task)

    def _give_up(self, task: LiveTask, error: Exception) -> None:
        # On disk it is as it was, and its mark stays: the next life says that nobody knows what became of it.
        log.error("bug: what became of a task cannot be written", taskId=task.row.id, error=repr(error))


def _fail(waiting: Iterable[asyncio.Future[None]], error: TabherdError) -> None:
    for written in waiting:
        if not written.done():
            written.set_exception(error)
            # Looked at, or asyncio would complain when its caller has left.
            written.exception()
