"""Everything about tasks of one node, put together: verbs, scheduler, webhooks, archive, and their common life."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import msgspec

from ..cluster.cluster import Cluster
from ..config import Config
from ..core.lifecycle import TaskState
from ..core.model import Node, Task
from ..metrics import Metrics
from ..store.base import Insert, Op, Store
from ..store.task_claims import TaskClaims
from .access import Access
from .commands import Commands
from .events import EventBus
from .ids import Ids
from .marks import Marks
from .operations import Operations
from .registry import Registry
from .scheduler import Scheduler
from .sessions import Sessions
from .task_archive import TaskArchive
from .task_places import TaskPlaces
from .task_pool import TaskPool
from .task_rows import task_view
from .task_runs import TaskRuns
from .task_takeover import TaskTakeover
from .tasks import Tasks
from .webhooks import Webhooks

# How many tasks are read at once when the server starts.
PAGE = 2_000


class Tasking:
    """The tasks of this node."""

    def __init__(
        self,
        *,
        config: Config,
        node: Node,
        store: Store,
        registry: Registry,
        access: Access,
        commands: Commands,
        sessions: Sessions,
        marks: Marks,
        webhook_secret: bytes,
        chance: Random,
        events: EventBus,
        metrics: Metrics,
        ids: Ids,
        clock: Callable[[], int],
        operations: Operations,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        cluster: Cluster | None = None,
        seats: Callable[[str], int] = lambda pool: 0,
    ) -> None:
        self._node_id = node.id
        self._store = store
        self._marks = marks
        # What nodes that share the store ask of it; None where they do not.
        claims = self._claims = None if cluster is None else cluster.claims
        runs = TaskRuns(
            own_pid=node.pid,
            registry=registry,
            access=access,
            commands=commands,
            sessions=sessions,
            clock=clock,
            spawn=spawn,
        )
        self.webhooks = Webhooks(
            settings=config.webhooks,
            secret=config.webhooks.secret.encode() or webhook_secret,
            node_id=node.id,
            store=store,
            events=events,
            metrics=metrics,
            clock=clock,
            chance=chance,
        )
        self._archive = TaskArchive(
            config=config,
            store=store,
            clock=clock,
            forgetting=self.webhooks.forget,
            node_id=None if claims is None else node.id,
        )
        self.scheduler = Scheduler(
            config=config,
            store=store,
            registry=registry,
            runs=runs,
            marks=marks,
            events=events,
            metrics=metrics,
            clock=clock,
            spawn=spawn,
            is_stopping=lambda: operations.is_stopping,
            on_end=self._on_end,
            on_saved=self._on_saved,
            claims=claims,
        )
        self._pool: TaskPool | None = None
        self._takeover: TaskTakeover | None = None
        places: TaskPlaces | None = None
        if cluster is not None and claims is not None:
            self._pool = TaskPool(
                config=config,
                node_id=node.id,
                claims=claims,
                membership=cluster.membership,
                hints=cluster.hints,
                store=store,
                scheduler=self.scheduler,
                clock=clock,
                seats=seats,
                is_draining=lambda: operations.is_draining,
                on_end=self._on_end,
                on_saved=self._on_saved,
            )
            places = TaskPlaces(node_id=node.id, store=store, registry=registry, membership=cluster.membership)
            self._takeover = TaskTakeover(
                node_id=node.id,
                claims=claims,
                store=store,
                registry=registry,
                scheduler=self.scheduler,
                archive=self._archive,
                webhooks=self.webhooks,
                clock=clock,
                on_end=self._on_end,
                on_saved=self._on_saved,
                tell_unclaimed=self._pool.tell_unclaimed,
            )
        self.verbs = Tasks(
            config=config,
            node_id=node.id,
            store=store,
            scheduler=self.scheduler,
            runs=runs,
            ids=ids,
            clock=clock,
            webhooks=self.webhooks,
            refuse_when_draining=operations.refuse_commands,
            pool=self._pool,
            places=places,
        )
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take up what an earlier life left, and go on."""
        # Before any task can end in this life, so that none is found twice.
        await self._archive.load()
        await self._take_up(self._marks.left())
        self.scheduler.start()
        if self._pool is not None:
            self._pool.start()
        await self.webhooks.start()
        self._sweeping = asyncio.create_task(self._archive.run(), name="task-archive")

    async def stop(self) -> None:
        """End what runs; what waits stays on disk."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
        if self._pool is not None:
            await self._pool.stop()
        await self.scheduler.stop()
        if self._pool is not None:
            await self._pool.leave()

    async def stop_telling(self) -> None:
        """Deliver no more; what is left is delivered by the next life. Once everything that ended is on disk."""
        await self.webhooks.stop()

    async def settle_node(self, gone: Node) -> None:
        """See to the tasks and webhooks of a node that is over, together with the other nodes; returns when nothing of
        it is left that is not over, or it is back. Its sessions have been taken up, or are being.
        """
        if self._takeover is not None:
            await self._takeover.run(gone)

    @property
    def waiting(self) -> int:
        """Tasks that wait for their turn; where nodes share the store, those of all of them, as of the last look."""
        return self.scheduler.queue.waiting if self._pool is None else self._pool.waiting

    def reconfigure(self, config: Config) -> None:
        """Go by other settings from now on."""
        self.scheduler.reconfigure(config)
        if self._pool is not None:
            self._pool.reconfigure(config)
        self.verbs.reconfigure(config)
        self._archive.reconfigure(config)
        self.webhooks.reconfigure(config.webhooks)

    def _on_end(self, row: Task) -> tuple[Op, ...]:
        """What is written in the transaction that ends a task."""
        if not row.callback_url:
            return ()
        body = msgspec.json.encode(task_view(row, row.state))
        return (Insert(self.webhooks.delivery_for(row, f"task.{row.state}", body)),)

    def _on_saved(self, row: Task) -> None:
        self._archive.add(row)
        if row.callback_url:
            self.webhooks.ended(row)

    async def _take_up(self, sent: dict[str, int]) -> None:
        """Go on with what waits on disk. A page is read while the one before is taken up."""
        if self._claims is not None:
            await self._take_up_own(self._claims)
            return
        reading = self._read("")
        while page := await reading:
            reading = self._read(page[-1].id)
            # So that it is on its way before this thread is busy.
            await asyncio.sleep(0)
            await self.scheduler.take_up([row for row in page if row.node_id == self._node_id], sent)
        for mark in sent.values():
            # Of tasks whose end had reached the disk.
            self._marks.clear(mark)

    async def _take_up_own(self, claims: TaskClaims) -> None:
        """The same of a node that shares the store. Marks say nothing here: that a task was sent is in its row."""
        after: tuple[str, str] = ("", "")
        while page := await claims.of_node(self._node_id, PAGE, after=after):
            after = page[-1].agent_id, page[-1].id
            await self.scheduler.take_up(page, {})

    def _read(self, after: str) -> asyncio.Future[list[Task]]:
        where = {"state": str(TaskState.QUEUED)}
        return asyncio.ensure_future(self._store.select(Task, where, after=after, limit=PAGE))
