"""The scheduler: keeps tasks that wait, starts them in their turn, and settles each exactly once.

Invariants:
- A task that was acknowledged is on disk, as queued until it is over. While it waits or runs, what it is doing is known
  here alone; that it was sent to a page is marked where it survives `kill -9`. Where nodes share the store, that is in
  its row: it is written there before anything is sent, and needs that the task still is this node's.
- A task ends once: whatever finds it ended already does nothing, and whoever ends it counts it in the same step.
- What a task has become is told to nobody before it is on disk.
- A worker is never kept by a task that waits for its tab; one at a time may wait for a place in each pool.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from ..cluster.fenced_store import is_fenced
from ..config import Config
from ..core.lifecycle import TASK, TaskEvent, TaskState, advance
from ..core.model import Task, changed
from ..core.task_queue import Limits, TaskQueue, Waiting
from ..errors import (
    BrowserCrashed,
    CommandTimedOut,
    DeadlineExceeded,
    Draining,
    OutcomeUnknown,
    StoreUnavailable,
    TabherdError,
)
from ..metrics import Metrics
from ..store.base import Op, Store
from ..store.task_claims import TaskClaims
from .events import EventBus
from .live_task import LiveTask
from .marks import Marks
from .patience import RETRY_S
from .registry import LiveSession, LiveTab, Registry
from .task_counts import TaskCounter
from .task_deadlines import TaskDeadlines
from .task_ending import ended_row, tell_state, too_late
from .task_intake import TaskIntake
from .task_log import Taken, TaskLog
from .task_pace import TaskPace
from .task_runs import Blocked, TaskRuns, Withdrawn

# Tasks that are over but not yet on disk; beyond it no more are started until the store has caught up.
UNSAVED_MAX = 1_000
# How often a task is put back that was never sent, before it is taken for one that cannot be run.
PUT_BACK_MAX = 20
# How long after its deadline a task that runs is given to end by its own time.
OVERDUE_S = 0.02

log = structlog.get_logger("scheduler")


class Scheduler:
    """The tasks of this node."""

    def __init__(
        self,
        *,
        config: Config,
        store: Store,
        registry: Registry,
        runs: TaskRuns,
        marks: Marks,
        events: EventBus,
        metrics: Metrics,
        clock: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        is_stopping: Callable[[], bool],
        on_end: Callable[[Task], tuple[Op, ...]],
        on_saved: Callable[[Task], None],
        claims: TaskClaims | None = None,
    ) -> None:
        self._settings = config.scheduler
        self._registry = registry
        self._runs = runs
        self._marks = marks
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self._spawn = spawn
        self._is_stopping = is_stopping
        self._on_saved = on_saved
        # Whether other nodes may have tasks of this store.
        self._is_shared = claims is not None
        # Called when a worker may be free for a task of nobody, and with each that came in as nobody's.
        self.on_room: Callable[[], None] = lambda: None
        self.on_unclaimed: Callable[[LiveTask], None] = lambda task: None
        self._queue = TaskQueue(limits_of(config))
        self._live: dict[str, LiveTask] = {}
        self._log = TaskLog(
            store=store,
            spawn=spawn,
            on_inserted=lambda task: self.intake.inserted(task),
            on_refused=lambda task: self.intake.arrived(task),
            on_end=on_end,
            on_saved=self._saved,
            claims=claims,
            on_taken=self._lost_to_others,
        )
        self.pace = TaskPace(self._queue)
        self.counter = TaskCounter()
        self.intake = TaskIntake(
            queue=self._queue,
            task_log=self._log,
            store=store,
            events=events,
            metrics=metrics,
            counter=self.counter,
            spawn=spawn,
            enter=self._begin,
            on_end=on_end,
            on_saved=on_saved,
        )
        self._deadlines = TaskDeadlines(clock=clock, is_waited_for=self._is_waited_for, expired=self._expire)
        # Everything that an earlier life left is here, so that turns can be decided.
        self._has_started = False
        self._is_dispatching = False

    # --- In -------------------------------------------------------------------------------------------------

    async def take_up(self, rows: list[Task], sent: dict[str, int]) -> None:
        """Go on with what an earlier life of this node left: tasks that were waiting wait, those that were sent to a
        page are run again if that does no harm, and else have failed. Nothing is started before `start`.

        `sent` has the marks of those that were; what is taken up is taken out of it.
        """
        for agent_id, count in Counter(row.agent_id for row in rows).items():
            self.counter.submitted(agent_id, count)
        for row in rows:
            task = self.intake.task_of(row)
            task.mark = sent.pop(row.id, None)
            if task.mark is None and row.state is TaskState.QUEUED:
                self._enter(task)
                continue
            if row.state is TaskState.RUNNING:
                # The attempt was counted when that was written.
                task.state = TaskState.QUEUED
                task.row = changed(row, state=TaskState.QUEUED)
            else:
                task.row = changed(row, attempts=row.attempts + 1)
            if self.may_repeat(task.row):
                await self._log.update(task)
                self._clear_mark(task)
                self._enter(task)
            else:
                self._enter(task)
                # Its mark goes when that is on disk: this life may be as short as the one before.
                self._finish(task, TaskEvent.FAIL, error=OutcomeUnknown("The server ended while the task ran."))

    def start(self) -> None:
        """Start what may start, from now on."""
        self._has_started = True
        self._deadlines.add_all((task.row.deadline_at, task_id) for task_id, task in self._live.items())
        # Those that passed meanwhile, before anybody has a turn.
        self._deadlines.come_up()
        self._wake()

    def claimed(self, row: Task) -> None:
        """A task of nobody is this node's from now on, and waits here."""
        if (stale := self._live.get(row.id)) is not None:
            # It was not, meanwhile.
            self._lost_to_others(stale)
        live = self.intake.task_of(row)
        self._enter(live)
        self._deadlines.add(row.deadline_at, row.id)
        self._wake()

    # --- Out ------------------------------------------------------------------------------------------------

    async def give_back(self, tasks: list[LiveTask]) -> None:
        """Let other nodes have tasks that need a place in a pool, and wait here for their turn or for that place."""
        left: list[asyncio.Future[None]] = []
        for live in tasks:
            if live.is_leasing:
                live.is_unwanted = True
                self._cut(live)
            elif live.state is TaskState.QUEUED and not live.is_leaving:
                left.append(self._leave(live))
        if left:
            await asyncio.wait(left)

    def cancel(self, live: LiveTask) -> bool:
        """Have it end as cancelled, wherever it is; False if it has ended already. Its end is told as ever."""
        if live.is_over or live.is_leaving:
            return False
        if live.state is TaskState.QUEUED:
            self._finish(live, TaskEvent.CANCEL)
        else:
            live.is_cancelled = True
            self._cut(live)
        return True

    def find(self, task_id: str) -> LiveTask | None:
        """A task that is not over, or not on disk as such."""
        return self._live.get(task_id)

    def count(self) -> dict[str, int]:
        """How many are in each state, and not over."""
        flying = [live.state for live in self.in_flight()]
        counts = {str(state): flying.count(state) for state in (TaskState.ASSIGNED, TaskState.RUNNING)}
        return {str(TaskState.QUEUED): self._queue.waiting, **counts}

    def in_flight(self) -> list[LiveTask]:
        return [live for id in self._queue.flying if not (live := self._live[id]).is_over]

    def pooled(self) -> list[LiveTask]:
        """Those that need a place in a pool and have none yet, and may have it elsewhere."""
        return [
            live
            for live in self._live.values()
            if not live.is_serial and not live.is_leaving and (live.state is TaskState.QUEUED or live.is_leasing)
        ]

    @property
    def count_live(self) -> int:
        """Tasks of this node that are not over, or not on disk as such."""
        return len(self._live)

    @property
    def queue(self) -> TaskQueue:
        return self._queue

    def reconfigure(self, config: Config) -> None:
        """Hold it to other settings from now on; nothing that was accepted is dropped."""
        self._settings = config.scheduler
        self._queue.set_limits(limits_of(config))
        self._wake()

    async def stop(self) -> None:
        """Start no more, and end what runs: what was not sent waits on disk, the rest is settled by the next life."""
        self._deadlines.stop()
        working = [live for live in self._live.values() if live.work is not None]
        for live in working:
            self._cut(live)
        if works := [live.work for live in working if live.work is not None]:
            await asyncio.wait(works)

    # --- Waiting --------------------------------------------------------------------------------------------

    def _begin(self, live: LiveTask) -> None:
        """A task has come in."""
        if not live.row.node_id:
            self._tell(live)
            self.on_unclaimed(live)
            return
        self._enter(live)
        self._deadlines.add(live.row.deadline_at, live.row.id)
        self._tell(live)
        self._wake()

    def _enter(self, live: LiveTask) -> None:
        row = live.row
        self._live[row.id] = live
        live.entered_at = self._clock()
        live.lane = self._lane_of(row)
        self._queue.add(
            Waiting(
                id=row.id,
                agent_id=row.agent_id,
                lane=live.lane,
                is_serial=live.is_serial,
                priority=row.priority,
                created_at=row.created_at,
                arrival=live.arrival,
            )
        )
        if live.is_serial:
            live.session = self._session_of(row)
            if live.session is not None:
                live.session.tasks += 1

    def _lane_of(self, row: Task) -> str:
        """What runs one task at a time: its tab. All that need a place in a pool share one that runs any number."""
        if row.tab_id:
            return row.tab_id
        if row.session_id:
            live = self._registry.session(row.session_id)
            return row.session_id if live is None else next(iter(live.tabs), row.session_id)
        return f"pool:{row.pool}"

    def _session_of(self, row: Task) -> LiveSession | None:
        tab = self._registry.tab(row.tab_id) if row.tab_id else None
        return self._registry.session(row.session_id) if tab is None else tab.session

    def _is_waited_for(self, task_id: str) -> bool:
        live = self._live.get(task_id)
        return live is not None and not live.is_over and not live.is_leaving

    def _expire(self, task_id: str) -> None:
        """End what is too late. A command that runs ends by its own time, which is the same, unless something hangs."""
        live = self._live[task_id]
        live.is_late = True
        if live.state is TaskState.QUEUED:
            self._finish(live, TaskEvent.FAIL, error=too_late(live.row))
            return
        if live.state is TaskState.ASSIGNED:
            self._cut(live)
        asyncio.get_running_loop().call_later(OVERDUE_S, self._end_overdue, live)

    def _end_overdue(self, live: LiveTask) -> None:
        """Its end is told now; what is still to be done for it goes on by itself."""
        is_here = self._live.get(live.row.id) is live and not live.is_leaving
        if is_here and not live.is_over and not live.is_being_updated:
            self._finish(live, TaskEvent.FAIL, error=too_late(live.row))
            self._cut(live)

    def _cut(self, live: LiveTask) -> None:
        """Have its work end, which then looks why. Work that has not taken its first step looks before it does."""
        if live.work is not None and live.has_begun:
            live.work.cancel()

    # --- Running --------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Start what may start, once for everything that has changed in this step of the loop."""
        if not self._is_dispatching and self._has_started:
            self._is_dispatching = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._is_dispatching = False
        while self._settings.enabled and not self._is_stopping() and self._log.unsaved < UNSAVED_MAX:
            taken = self._queue.take()
            if taken is None:
                return
            live = self._live[taken.id]
            live.state = advance(TASK, live.state, TaskEvent.ASSIGN)
            live.assigned_at, live.has_begun = self._clock(), False
            if not taken.is_serial:
                live.is_leasing = True
                # Until it has a place: others of this pool would only stand behind it, each with a worker.
                self._queue.block(taken.lane)
            self._tell(live)
            live.work = asyncio.get_running_loop().create_task(self._run(live))

    async def _run(self, live: LiveTask) -> None:
        """From its turn to its end, or back into the queue."""
        result: Any = None
        failed: Exception | asyncio.CancelledError | None = None
        live.has_begun = True
        try:
            if live.is_cancelled or live.is_late or self._is_stopping():
                raise asyncio.CancelledError
            result = await self._result(live)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - none is lost: each is how the task ends
            failed = error
        live.work = None
        self._placed(live)
        if not live.is_over and self._live.get(live.row.id) is live:
            self._settle(live, result, failed)
        self._wake()

    async def _result(self, live: LiveTask) -> Any:
        """What running it gives. It was accepted for good, so a store that is away before it is sent is waited out."""
        while True:
            try:
                return await self._runs.run(
                    live.row,
                    lambda command_id: self._sent(live, command_id),
                    lambda: self._placed(live),
                    *((lambda: self._write_sent(live),) if self._is_shared else ()),
                )
            except StoreUnavailable as error:
                is_unsent = live.state is TaskState.ASSIGNED and live.unsent is None
                if not is_unsent or not error.retryable or is_fenced(error):
                    raise
                log.warning("a task waits for the store", taskId=live.row.id, error=error.message)
            await asyncio.sleep(RETRY_S)

    def _settle(self, live: LiveTask, result: Any, failed: Exception | asyncio.CancelledError | None) -> None:
        """What its run means for the task."""
        if live.unsent is not None:
            # It was about to be sent, and was not.
            live.row, live.unsent = changed(live.unsent, version=live.row.version), None
            self._log.update(live)
        match failed:
            case None:
                self._finish(live, TaskEvent.FINISH, result=result)
            case asyncio.CancelledError():
                self._cut_off(live)
            case Blocked(tab=tab):
                self._block(live, tab)
            case Withdrawn():
                self._finish(live, TaskEvent.CANCEL)
            case OutcomeUnknown():
                self._lost(live, failed)
            case Draining() if self._is_shared and not live.is_serial:
                self._requeue(live)
                self._leave(live)
            case BrowserCrashed() | Draining():
                self._put_back(live, failed)
            case CommandTimedOut():
                is_late = self._clock() >= live.row.deadline_at - 1
                self._finish(live, TaskEvent.FAIL, error=too_late(live.row) if is_late else failed)
            case TabherdError():
                self._finish(live, TaskEvent.FAIL, error=failed, result=failed.details.get("steps"))
            case _:
                # A bug of ours must not keep a worker, or a task, for ever.
                log.error("bug: a task could not be run", taskId=live.row.id, error=repr(failed), exc_info=failed)
                error = OutcomeUnknown("The server had a fault while the task ran.")
                self._finish(live, TaskEvent.FAIL, error=error)

    def _placed(self, live: LiveTask) -> None:
        """It has its place, or wants none any more: the next task of its pool may wait for one."""
        if live.is_leasing:
            live.is_leasing = False
            self._unblock(live.lane)

    async def _write_sent(self, live: LiveTask) -> None:
        """Have it on disk that it is sent, before it is: other nodes have to know if this one dies."""
        live.unsent = live.row
        live.row = changed(live.row, state=TaskState.RUNNING, started_at=self._clock(), attempts=live.row.attempts + 1)
        await asyncio.shield(self._log.update(live))

    def _sent(self, live: LiveTask, command_id: str) -> None:
        """From here on it may have taken effect."""
        now = self._clock()
        if live.unsent is None:
            live.mark = self._marks.set(live.row.id, command_id)
            self._count_start(live.row, now)
            live.row = changed(live.row, started_at=now, attempts=live.row.attempts + 1)
        else:
            self._count_start(live.unsent, now)
            live.unsent = None
        live.state = advance(TASK, live.state, TaskEvent.SEND)
        self._metrics.dispatch_seconds.observe((now - live.assigned_at) / 1000)
        self._tell(live)

    def _count_start(self, row: Task, now: int) -> None:
        """The first one, that is."""
        if not row.started_at:
            waited_ms = now - row.created_at
            self.counter.started(row.agent_id, waited_ms)
            self._metrics.task_wait_seconds.observe(waited_ms / 1000)

    def _cut_off(self, live: LiveTask) -> None:
        """Its work was cancelled: by whoever may, by its deadline, or because the server stops."""
        if live.is_cancelled:
            self._finish(live, TaskEvent.CANCEL)
        elif live.is_late:
            self._finish(live, TaskEvent.FAIL, error=too_late(live.row))
        elif live.state is TaskState.RUNNING:
            self._lost(live, OutcomeUnknown("The server stopped while the task ran."))
        else:
            self._requeue(live)
            if live.is_unwanted:
                self._leave(live)

    def _lost(self, live: LiveTask, error: OutcomeUnknown) -> None:
        """Nobody knows whether it took effect: again, if its submitter said that this does no harm."""
        if self.may_repeat(live.row):
            self._spawn(self._try_again(live))
        else:
            self._finish(live, TaskEvent.FAIL, error=error)

    def may_repeat(self, row: Task) -> bool:
        """Whether it may be run again although it may have taken effect."""
        return row.is_idempotent and row.attempts < self._settings.attempts_max

    async def _try_again(self, live: LiveTask) -> None:
        """That it was tried is on disk before it is tried again, or a server that keeps dying would try for ever."""
        live.is_being_updated = True
        live.row = changed(live.row, state=TaskState.QUEUED)
        try:
            await self._log.update(live)
        except Taken:
            return
        live.is_being_updated = False
        if live.is_cancelled or live.is_late:
            self._cut_off(live)
        else:
            self._requeue(live)

    def _put_back(self, live: LiveTask, error: TabherdError) -> None:
        """It was not sent: it waits again, unless it never gets anywhere."""
        live.put_back += 1
        if live.put_back > PUT_BACK_MAX:
            self._finish(live, TaskEvent.FAIL, error=error)
            return
        if live.row.state is not TaskState.QUEUED:
            live.row = changed(live.row, state=TaskState.QUEUED)
            self._log.update(live)
        self._requeue(live)

    def _block(self, live: LiveTask, tab: LiveTab) -> None:
        """Its tab is somebody else's just now."""
        loop, controller_id = asyncio.get_running_loop(), f"task/{live.row.id}"
        self._requeue(live)
        self._queue.block(live.lane)

        def look() -> None:
            is_gone = self._registry.tab(tab.row.id) is not tab
            # One whose lease is over waits for nobody: it ends as soon as it has its turn.
            is_over = live.row.fence not in (0, tab.session.row.fence)
            if is_gone or is_over or tab.gate.hold_for(controller_id) is None:
                tab.gate.unwatch(look_soon)
                self._unblock(live.lane)

        def look_soon() -> None:
            loop.call_soon(look)

        tab.gate.watch(look_soon)
        # It may have become free in between.
        look()

    def _unblock(self, lane: str) -> None:
        self._queue.unblock(lane)
        self._wake()

    def _requeue(self, live: LiveTask) -> None:
        """It waits again, at its old place."""
        live.state = advance(TASK, live.state, TaskEvent.REQUEUE)
        self._clear_mark(live)
        self._queue.put_back(live.row.id)
        live.entered_at = self._clock()
        self._tell(live)
        self._wake()

    # --- Ending ---------------------------------------------------------------------------------------------

    def _finish(
        self, live: LiveTask, event: TaskEvent, *, result: Any = None, error: TabherdError | None = None
    ) -> None:
        """The one end of a task."""
        was_waiting = live.state is TaskState.QUEUED
        live.state = advance(TASK, live.state, event)
        if was_waiting:
            self._queue.remove(live.row.id)
        else:
            self._queue.finish(live.row.id)
        if live.session is not None:
            # Of the one that was counted, whatever has become of the tab.
            live.session.tasks -= 1
        is_expired = isinstance(error, DeadlineExceeded)
        self.counter.ended(live.row.agent_id, live.state, is_expired=is_expired)
        self._metrics.tasks_total.inc(live.state)
        now = self._clock()
        if live.row.started_at:
            ran_ms = now - live.row.started_at
            self._metrics.task_run_seconds.observe(ran_ms / 1000)
            self.pace.ran(ran_ms)
        live.row = ended_row(live.row, live.state, now, result=result, error=error)
        self._log.save(live)
        # A worker is free, or one that was kept for it.
        self._wake()

    def _saved(self, live: LiveTask) -> None:
        """Its end is on disk."""
        self._clear_mark(live)
        del self._live[live.row.id]
        live.ended.set_result(None)
        self._tell(live)
        self._on_saved(live.row)
        self._wake()
        self.on_room()

    # --- Other nodes ----------------------------------------------------------------------------------------

    def was_ended(self, row: Task) -> None:
        """Count and tell the end of a task that was not this node's, and that this node has put on disk."""
        is_expired = row.code == DeadlineExceeded.code
        self.counter.ended(row.agent_id, row.state, is_expired=is_expired)
        self._metrics.tasks_total.inc(row.state)
        told = {"taskId": row.id, "agentId": row.agent_id}
        tell_state(self._events, row.state, told if not row.code else {**told, "code": row.code})

    def _leave(self, live: LiveTask) -> asyncio.Future[None]:
        """Give one back that waits; settled when it is nobody's."""

        def left(written: asyncio.Future[None]) -> None:
            # Unless somebody else had it already, which the log tells; or this node has claimed it anew before it heard
            # that it had given it back.
            if written.exception() is None and self._live.get(live.row.id) is live:
                self._drop(live)

        live.is_leaving = True
        self._queue.remove(live.row.id)
        live.row = changed(live.row, node_id="")
        written = self._log.update(live)
        written.add_done_callback(left)
        return written

    def _lost_to_others(self, live: LiveTask) -> None:
        """It is no longer this node's; whatever is done for it here must not go on."""
        if self._live.get(live.row.id) is not live:
            return
        log.warning("a task was another node's", taskId=live.row.id, state=live.state)
        if not live.is_over and not live.is_leaving:
            if live.state is TaskState.QUEUED:
                self._queue.remove(live.row.id)
            else:
                self._queue.finish(live.row.id)
                self._cut(live)
            if live.session is not None:
                live.session.tasks -= 1
        self._drop(live)

    def _drop(self, live: LiveTask) -> None:
        """This node has nothing to do with it any more."""
        self._clear_mark(live)
        del self._live[live.row.id]
        live.ended.set_result(None)
        self._wake()
        self.on_room()

    def _clear_mark(self, live: LiveTask) -> None:
        if live.mark is not None:
            self._marks.clear(live.mark)
            live.mark = None

    def _tell(self, live: LiveTask) -> None:
        fields = live.told if not live.row.code else {**live.told, "code": live.row.code}
        tell_state(self._events, live.state, fields)


def limits_of(config: Config) -> Limits:
    scheduler = config.scheduler
    return Limits(
        queue_max=scheduler.queue_max,
        queue_max_per_agent=scheduler.queue_max_per_agent,
        workers=scheduler.workers,
        max_per_agent=scheduler.max_inflight_per_agent,
        priority_aging_ms=scheduler.priority_aging_ms,
    )
