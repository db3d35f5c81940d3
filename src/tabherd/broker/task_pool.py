"""Tasks that need a place in a pool and that no node has yet, as one node of a cluster sees them.

Invariants:
- A node claims no more than it has free workers for, and places in that pool; and a few more while tasks are so short
  that a worker would wait for the next claim. What it cannot start soon while another node could, it gives back.
- Nothing rests on a hint: it looks by itself once a second. A claim that was not answered is looked for.
- A task of nobody ends once: by a write that requires the row as it was read. Every node keeps the time for all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from ..cluster.hints import Hints
from ..cluster.membership import Membership
from ..config import Config
from ..core.lifecycle import TaskEvent, TaskState
from ..core.model import Task
from ..errors import StoreUnavailable, TabherdError
from ..store.base import Applied, Op, Store, Update
from ..store.task_claims import Bounds, TaskClaims
from .live_task import LiveTask
from .scheduler import Scheduler
from .task_ending import ended_for_others, too_late
from .task_tally import TaskTally

# What nodes tell each other: that there is a task of nobody, and that something has become of this one.
TASKS_TOPIC: Final = "tasks"
TASK_TOPIC: Final = "task"
# How long it goes without looking.
LOOK_S: Final = 1.0
# A look that takes long is taken the less often: no more than this share of the time.
LOOK_SHARE: Final = 0.05
# Tasks that take less than this, on the average, are claimed ahead; so many for each worker.
SHORT_MS: Final = 250
AHEAD_PER_WORKER: Final = 1.0
# What has waited here for so long is given back, if another node says that it has a place.
STALE_MS: Final = 2_000
# For so long after that, it claims no more than it has places for.
MODEST_MS: Final = 5_000
# How many that are overdue are ended in one step.
EXPIRE_MAX: Final = 100
# Claims in a row before others have their turn.
CLAIMS_MAX: Final = 10
# How many may ask for the place of a task at once.
ASKING_MAX: Final = 4
# How long what is given back at the end may take; after that the other nodes find it by themselves.
LEAVE_LIMIT_S: Final = 3.0

log = structlog.get_logger("scheduler")


class TaskPool:
    """What this node has to do with tasks of nobody."""

    def __init__(
        self,
        *,
        config: Config,
        node_id: str,
        claims: TaskClaims,
        membership: Membership,
        hints: Hints,
        store: Store,
        scheduler: Scheduler,
        clock: Callable[[], int],
        seats: Callable[[str], int],
        is_draining: Callable[[], bool],
        on_end: Callable[[Task], tuple[Op, ...]],
        on_saved: Callable[[Task], None],
    ) -> None:
        self._config = config
        self._node_id = node_id
        self._claims = claims
        self._membership = membership
        self._hints = hints
        self._store = store
        self._scheduler = scheduler
        self._clock = clock
        # How many more sessions this node has places for, by pool.
        self._seats = seats
        self._is_draining = is_draining
        self._on_end = on_end
        self._on_saved = on_saved
        self._tally = TaskTally(config=config, claims=claims, queue=scheduler.queue)
        # When to look again, by the loop's clock.
        self._look_at = 0.0
        # Whether there may be something to claim.
        self._may_claim = True
        # Whether a claim was not answered, and may have happened.
        self._is_unsure = False
        # Until when others go first.
        self._modest_until = 0
        # When the next task of nobody must be over, as far as this node knows.
        self._deadline_at: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        # How many ask for the place of a task.
        self._asking = 0
        # Those who wait for news of a task of nobody, by its id.
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._stir = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        scheduler.on_room = self._stir.set
        scheduler.on_unclaimed = self._inserted
        scheduler.intake.check_room = self._tally.check_room
        hints.listen(TASKS_TOPIC, self._hinted)
        hints.listen(TASK_TOPIC, self._told)

    # --- Life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._running = asyncio.create_task(self._run(), name="task-pool")

    async def stop(self) -> None:
        """Claim no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    async def leave(self) -> None:
        """Give back what waits here; once nothing is started any more."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_LIMIT_S):
                await self._scheduler.give_back(self._scheduler.pooled())
        self._hints.tell(TASKS_TOPIC)

    def reconfigure(self, config: Config) -> None:
        self._config = config
        self._tally.reconfigure(config)
        self._stir.set()

    @property
    def waiting(self) -> int:
        """Tasks that wait, on all nodes."""
        return self._tally.waiting

    # --- For those who submit -------------------------------------------------------------------------------

    def home_of(self, agent_id: str, pool: str) -> str:
        """Whose a new task is: this node's if it can start it at once and nobody else could, else nobody's yet."""
        if self._membership.peers or self._tally.may_wait or self._is_unsure:
            return ""
        scheduler, settings = self._scheduler, self._config.scheduler
        if self._room(pool) <= scheduler.intake.arriving:
            return ""
        is_within = scheduler.queue.count_of(agent_id) + scheduler.intake.arriving < settings.max_inflight_per_agent
        return self._node_id if is_within else ""

    async def position(self, row: Task) -> tuple[int | None, int | None]:
        """The place of a task of nobody, and in how many milliseconds it may start. None if that is too far to tell, or
        if so many want to know that they would wait for each other.
        """
        if self._asking >= ASKING_MAX:
            return None, None
        self._asking += 1
        try:
            place = await self._claims.position(row)
        except StoreUnavailable:
            # The task is there all the same.
            return None, None
        finally:
            self._asking -= 1
        if place is None:
            return None, None
        free = max(0, self._bounds.workers - self._tally.seen.in_flight)
        if place <= free:
            return place, 0
        return place, int(-(-place // self._bounds.workers) * self._scheduler.pace.mean_ms)

    async def news(self, task_id: str, limit_s: float) -> None:
        """Returns when something may have become of a task of nobody, or after that time."""
        heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiters.setdefault(task_id, set())
        waiting.add(heard)
        try:
            await asyncio.wait([heard], timeout=limit_s)
        finally:
            waiting.discard(heard)
            if not waiting:
                self._waiters.pop(task_id, None)

    async def end(self, row: Task, event: TaskEvent, error: TabherdError | None = None) -> Task | None:
        """End a task of nobody; None if it is not that any more."""
        ended = ended_for_others(row, self._node_id, event, self._clock(), error)
        outcome = await self._store.apply(Update(ended), *self._on_end(ended))
        if not isinstance(outcome, Applied):
            return None
        stored = outcome.rows[0]
        assert isinstance(stored, Task)
        self._scheduler.was_ended(stored)
        self._on_saved(stored)
        self._tell_of(row.id)
        return stored

    async def by_agent(self) -> Mapping[str, tuple[int, int]]:
        """How many tasks each agent has waiting, and in flight, on all nodes."""
        return await self._claims.by_agent()

    def tell_unclaimed(self) -> None:
        """There are tasks of nobody."""
        self._hinted("")
        self._hints.tell(TASKS_TOPIC)

    def _inserted(self, task: LiveTask) -> None:
        """A task of nobody is on disk."""
        self._tally.moved(task.row.agent_id, 1)
        self._may_claim = True
        self._keep_time(task.row.deadline_at)
        self._hints.tell(TASKS_TOPIC)
        self._stir.set()

    # --- Looking --------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._stir.clear()
            try:
                await self._step()
            except StoreUnavailable as error:
                log.warning("claims of tasks wait for the store", error=error.message)
                self._look_at = loop.time() + LOOK_S
            except Exception as error:
                # A bug of ours must not keep tasks waiting for ever.
                log.error("bug: tasks could not be claimed", error=repr(error), exc_info=error)
                self._look_at = loop.time() + LOOK_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._look_at):
                    await self._stir.wait()

    async def _step(self) -> None:
        if asyncio.get_running_loop().time() >= self._look_at:
            await self._look()
            await self._give_back_stale()
        if self._deadline_at is not None and self._deadline_at <= self._clock():
            await self._expire()
        if self._is_unsure:
            await self._find_claimed()
        if self._may_claim:
            await self._claim()

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        seen = await self._tally.look()
        took_s = loop.time() - began
        self._look_at = loop.time() + max(LOOK_S, took_s / LOOK_SHARE)
        self._may_claim |= seen.unclaimed > 0
        self._deadline_at = None
        if seen.deadline_at is not None:
            self._keep_time(seen.deadline_at)

    def _hinted(self, _: str) -> None:
        self._may_claim = True
        self._stir.set()

    def _told(self, task_id: str) -> None:
        for heard in (*self._waiters.get(task_id, ()),) if task_id else self._everybody():
            if not heard.done():
                heard.set_result(None)

    def _everybody(self) -> Sequence[asyncio.Future[None]]:
        return [heard for waiting in self._waiters.values() for heard in waiting]

    def _tell_of(self, task_id: str) -> None:
        """Whoever waits for it, here or elsewhere."""
        self._told(task_id)
        self._hints.tell(TASK_TOPIC, task_id)

    # --- Claiming -------------------------------------------------------------------------------------------

    @property
    def _ahead(self) -> int:
        mean_ms = self._scheduler.pace.mean_ms
        return max(1, int(self._config.scheduler.workers * AHEAD_PER_WORKER)) if 0 < mean_ms < SHORT_MS else 0

    @property
    def _bounds(self) -> Bounds:
        """All nodes are taken to have as many workers as this one."""
        settings, nodes = self._config.scheduler, 1 + len(self._membership.peers)
        return Bounds(workers=nodes * (settings.workers + self._ahead), max_per_agent=settings.max_inflight_per_agent)

    def _room(self, pool: str) -> int:
        """How many tasks of that pool it could make use of now."""
        settings, queue = self._config.scheduler, self._scheduler.queue
        if not settings.enabled or self._is_draining() or not self._membership.is_trusted:
            return 0
        waiting, is_leasing = queue.standing_in(f"pool:{pool}")
        pooled = sum(queue.standing_in(f"pool:{name}")[0] for name in self._config.pools)
        workers = settings.workers + self._ahead - queue.in_flight - pooled
        # One more than there are places: that somebody waits is what makes a pool grow.
        more = 1 if self._clock() >= self._modest_until else 0
        return min(workers, self._seats(pool) + more - waiting - is_leasing)

    async def _claim(self) -> None:
        self._may_claim = False
        for pool in self._config.pools:
            for _ in range(CLAIMS_MAX):
                most = self._room(pool)
                waiting, _ = self._scheduler.queue.standing_in(f"pool:{pool}")
                if most <= (self._ahead // 2 if waiting else 0):
                    # When there is room, it is asked again; for several at once, as long as there are some here.
                    self._may_claim = True
                    break
                try:
                    rows = await self._claims.claim(pool, most, self._bounds)
                except StoreUnavailable:
                    self._is_unsure = self._may_claim = True
                    raise
                for row in rows:
                    self._tally.moved(row.agent_id, -1)
                    self._scheduler.claimed(row)
                    self._tell_of(row.id)
                if len(rows) < most:
                    # That is all there is; or agents have as many in flight as they may, until one of them ends.
                    self._may_claim |= bool(rows) or self._tally.seen.unclaimed > 0
                    break

    async def _find_claimed(self) -> None:
        """What a claim has given us that was not answered. Whatever else of ours is on disk is known here."""
        scheduler, limit = self._scheduler, self._scheduler.count_live + self._scheduler.intake.arriving + 1_000
        for row in await self._claims.of_node(self._node_id, limit):
            is_known = scheduler.find(row.id) is not None or scheduler.intake.is_arriving(row.id)
            if is_known or row.state is not TaskState.QUEUED:
                continue
            outcome = await self._store.apply(Update(row))
            if isinstance(outcome, Applied):
                stored = outcome.rows[0]
                assert isinstance(stored, Task)
                scheduler.claimed(stored)
        self._is_unsure = False

    async def _give_back_stale(self) -> None:
        """What has waited here for a while, if others have places."""
        if self._is_draining():
            await self._scheduler.give_back(self._scheduler.pooled())
            return
        known = [self._membership.known.get(node_id) for node_id in self._membership.peers]
        beats = [node[1] for node in known if node is not None]
        if not any(beat is not None and beat.free_seats > 0 and not beat.is_draining for beat in beats):
            return
        now = self._clock()
        stale = [live for live in self._scheduler.pooled() if live.entered_at <= now - STALE_MS]
        if stale:
            # Or it would have them again before anybody else has looked.
            self._modest_until = now + MODEST_MS
            await self._scheduler.give_back(stale)
            self._hints.tell(TASKS_TOPIC)

    # --- Deadlines ------------------------------------------------------------------------------------------

    def _keep_time(self, deadline_at: int) -> None:
        if self._deadline_at is not None and self._deadline_at <= deadline_at and self._timer is not None:
            return
        self._deadline_at = deadline_at
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0, deadline_at - self._clock()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._stir.set)

    async def _expire(self) -> None:
        """End what is too late, and find out when the next one is."""
        while rows := await self._claims.expired(self._clock(), EXPIRE_MAX):
            await asyncio.gather(*(self.end(row, TaskEvent.FAIL, too_late(row)) for row in rows))
        self._deadline_at = None
        # The next look tells; soon.
        self._look_at = 0.0
        self._stir.set()
