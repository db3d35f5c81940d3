"""Safeguards of tasks that can be switched off, to show that the simulator notices; see `ablations`."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tabherd import wire
from tabherd.broker import task_intake, task_log, task_runs
from tabherd.broker.caller import Caller
from tabherd.broker.live_task import LiveTask
from tabherd.broker.registry import LiveTab
from tabherd.broker.scheduler import Scheduler
from tabherd.broker.task_archive import TaskArchive
from tabherd.broker.task_deadlines import TaskDeadlines
from tabherd.broker.task_intake import TaskIntake
from tabherd.broker.task_log import TaskLog
from tabherd.broker.task_runs import Blocked, TaskRuns
from tabherd.broker.task_submission import TaskSubmission
from tabherd.core.lifecycle import TaskState
from tabherd.core.model import Task, TaskKey, changed
from tabherd.core.task_queue import Limits, TaskQueue, Waiting

from .ablations import Patch, patching
from .fakes import SimMarks
from .minimise import MakeWorld
from .world import World


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


async def _nothing_async(*args: Any, **kwargs: Any) -> None:
    return None


def _mark_no_task(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """That a task was sent to a page is known to memory alone."""
    set_mark, clear_mark = SimMarks.set, SimMarks.clear

    def set_unless_task(self: SimMarks, marked_id: str, command_id: str) -> int:
        return 0 if marked_id.startswith("tsk") else set_mark(self, marked_id, command_id)

    def clear(self: SimMarks, mark: int) -> None:
        if mark:
            clear_mark(self, mark)

    monkeypatch.setattr(SimMarks, "set", set_unless_task)
    monkeypatch.setattr(SimMarks, "clear", clear)
    return World


def _acknowledge_first(self: TaskLog, tasks: list[LiveTask]) -> asyncio.Future[None]:
    """Whoever submits is answered at once; the disk hears of it when it can."""
    written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    written.set_result(None)
    self._spawn(self._insert([(tasks, asyncio.get_running_loop().create_future())]))
    return written


def _finish_unsaved(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """That it was sent is forgotten when it ends, before its end is on disk."""
    finish = Scheduler._finish

    def unmarking(self: Scheduler, live: LiveTask, *args: Any, **kwargs: Any) -> None:
        self._clear_mark(live)
        finish(self, live, *args, **kwargs)

    monkeypatch.setattr(Scheduler, "_finish", unmarking)
    return World


def _finish_again(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """Who cancels a task that runs counts its end, and so does the worker."""
    cancel = Scheduler.cancel

    def counting(self: Scheduler, live: LiveTask) -> bool:
        if not live.is_over and live.work is not None:
            self.counter.ended(live.row.agent_id, TaskState.CANCELLED)
        return cancel(self, live)

    monkeypatch.setattr(Scheduler, "cancel", counting)
    return World


def _put_back_last(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """A task that was put back waits like one that has just come."""

    def put_back(self: TaskQueue, task_id: str) -> None:
        task = self._in_flight[task_id]
        self.finish(task_id)
        now = int(asyncio.get_running_loop().time() * 1000)
        self.add(msgspec.structs.replace(task, created_at=now))

    monkeypatch.setattr(TaskQueue, "put_back", put_back)
    return World


def _block_for_good(self: Scheduler, live: LiveTask, tab: LiveTab) -> None:
    """Nobody looks when the tab becomes free."""
    self._requeue(live)
    self._queue.block(live.lane)


def _keep_the_worker(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """A task whose tab is somebody else's stays with its worker until that is free."""
    act = TaskRuns._act

    async def waiting(self: TaskRuns, *args: Any) -> Any:
        while True:
            try:
                return await act(self, *args)
            except Blocked:
                await asyncio.sleep(0.01)

    monkeypatch.setattr(TaskRuns, "_act", waiting)
    return World


def _lease_without_owner(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """Nothing says that a session was leased by this server, so nothing ends it with the server."""

    def open_session(**fields: Any) -> wire.OpenSession:
        return wire.OpenSession(**{**fields, "owner": None})

    monkeypatch.setattr(task_runs, "wire", SimpleNamespace(OpenSession=open_session, Owner=wire.Owner))
    return World


def _trust_the_look(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """That a key is new is looked up, but not part of the write."""

    async def submit_keyed(self: TaskIntake, task: LiveTask, key: TaskKey) -> str:
        await self.submit([task])
        await self._store.apply(task_intake.Put(key))
        return task.row.id

    monkeypatch.setattr(TaskIntake, "submit_keyed", submit_keyed)
    return World


def _leave_with_the_caller(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """Whoever leaves takes along what follows from the write."""

    async def with_caller(work: Any, spawn: Any) -> Any:
        return await work

    monkeypatch.setattr(task_intake, "to_the_end", with_caller)
    return World


def _anybody(self: TaskRuns, caller: Caller, task: Task) -> LiveTab:
    """Whose the tab is was asked when the task was submitted."""
    if task.tab_id:
        tab = self._registry.tab(task.tab_id)
    else:
        live = self._registry.session(task.session_id)
        tab = None if live is None else next(iter(live.tabs.values()), None)
    return tab or _REAL_TAB_OF(self, caller, task)


_REAL_TAB_OF = TaskRuns.tab_of


def _act_as_owner(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """A task acts for whoever has the tab by now."""
    act = TaskRuns._act

    async def acting(self: TaskRuns, caller: Caller, tab: LiveTab, *rest: Any) -> Any:
        return await act(self, msgspec.structs.replace(caller, agent_id=tab.session.row.agent_id), tab, *rest)

    monkeypatch.setattr(TaskRuns, "_act", acting)
    monkeypatch.setattr(TaskRuns, "tab_of", _anybody)
    return World


def _first_come(self: TaskQueue, task: Waiting) -> int:
    return task.arrival


def _unlimited(self: TaskQueue, *args: Any) -> int:
    return self.limits.workers


def _try_for_ever(self: Scheduler, row: Task) -> bool:
    return row.is_idempotent


def _forget_attempts(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """That it was tried is known to memory alone."""

    def update(self: TaskLog, task: LiveTask) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    monkeypatch.setattr(TaskLog, "update", update)
    return World


def _archive_at_once(self: TaskArchive, ended: Any) -> int:
    return len(ended)


def _drop_what_is_over_the_limit(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """A smaller queue forgets what does not fit."""
    set_limits = TaskQueue.set_limits

    def dropping(self: TaskQueue, limits: Limits) -> None:
        set_limits(self, limits)
        for task_id in list(self._waiting)[limits.queue_max :]:
            self.remove(task_id)

    monkeypatch.setattr(TaskQueue, "set_limits", dropping)
    return World


def _tell_before_it_is_saved(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """The end of a task is told at once."""
    finish = Scheduler._finish

    def telling(self: Scheduler, live: LiveTask, *args: Any, **kwargs: Any) -> None:
        finish(self, live, *args, **kwargs)
        self._tell(live)

    monkeypatch.setattr(Scheduler, "_finish", telling)
    return World


def _stand_behind_the_page(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """A task waits for the page that was leased for it and died, and with it all others of its pool."""
    act, blocked = TaskRuns._act, []

    async def noting(self: TaskRuns, *args: Any) -> Any:
        try:
            return await act(self, *args)
        except Blocked as error:
            blocked[:] = [error]
            raise

    monkeypatch.setattr(TaskRuns, "_act", noting)
    monkeypatch.setattr(task_runs, "BrowserCrashed", lambda message: blocked[0])
    return World


def _begin_to_wait_anew(self: TaskQueue, task_id: str) -> None:
    task = self._in_flight[task_id]
    self.finish(task_id)
    self.add(task)


def _save_once(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """An end that the store does not take is not written again."""

    async def impatiently(write: Any) -> Any:
        return await write()

    monkeypatch.setattr(task_log, "patiently", impatiently)
    return World


def for_no_lease(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """A task does not say which lease it is for."""
    row_of = TaskSubmission._row_of
    monkeypatch.setattr(TaskSubmission, "_row_of", lambda *asked: changed(row_of(*asked), fence=0))
    return World


TASK_ABLATIONS: dict[str, Patch] = {
    "a task that was sent is marked": _mark_no_task,
    "a task is on disk before it is acknowledged": patching(TaskLog, "insert", _acknowledge_first),
    "a task is marked until its end is on disk": _finish_unsaved,
    "the end of a task is told when it is on disk": _tell_before_it_is_saved,
    "the end of a task is written until it is on disk": _save_once,
    "the end of a task is counted once": _finish_again,
    "a task that is put back has its old place": _put_back_last,
    "the agent of a task that is put back keeps its turn": patching(TaskQueue, "put_back", _begin_to_wait_anew),
    "a page that died before its task was sent is not waited for": _stand_behind_the_page,
    "a task is taken up when its tab is free again": patching(Scheduler, "_block", _block_for_good),
    "a task that waits for its tab keeps no worker": _keep_the_worker,
    "whose tab it is, is asked again when the task runs": _act_as_owner,
    "a task is for the lease that it was submitted under": for_no_lease,
    "what was leased for a task is given back": patching(TaskRuns, "_give_back", _nothing_async),
    "what was leased for a task ends with the server": _lease_without_owner,
    "a key is written with its task": _trust_the_look,
    "a submission goes on without its submitter": _leave_with_the_caller,
    "no agent has more in flight than it may": patching(TaskQueue, "_limit_of", _unlimited),
    "priority goes before arrival": patching(TaskQueue, "_rank", _first_come),
    "deadlines have a timer": patching(TaskDeadlines, "_set", _nothing),
    "a task is tried as often as the settings say": patching(Scheduler, "may_repeat", _try_for_ever),
    "that a task was tried is on disk before it is tried again": _forget_attempts,
    "results are at hand for a while": patching(TaskArchive, "_due", _archive_at_once),
    "a smaller queue drops nothing": _drop_what_is_over_the_limit,
    "a session counts its tasks": patching(Scheduler, "_session_of", _nothing),
}
