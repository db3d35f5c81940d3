"""Safeguards of a cluster that can be switched off, to show that the simulator of several nodes notices.

Each entry patches one piece of the product, or of the twin of what the database does, for the duration of a run. The
page of ablations (see `ablation_page`) has a seed whose history shows it; `test_ablations.py` demands that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from tests.sim.ablations import forget_the_fence, may_run_under_a_lock
from tests.sim.minimise import Failure, play
from tests.sim.task_ablations import for_no_lease

from tabherd.broker import performing, sessions, tabs, task_pool, task_takeover
from tabherd.broker.adoption import Adoption
from tabherd.broker.commands import Commands
from tabherd.broker.granting import Granting
from tabherd.broker.lock_rows import LockRows
from tabherd.broker.scheduler import Scheduler
from tabherd.broker.sessions import Sessions
from tabherd.broker.tabs import Tabs
from tabherd.broker.takeover import Takeover
from tabherd.broker.task_intake import TaskIntake
from tabherd.broker.task_log import TaskLog
from tabherd.broker.task_pool import TaskPool
from tabherd.broker.task_takeover import TaskTakeover
from tabherd.broker.tasking import Tasking
from tabherd.broker.waiting_rows import WaitingRows
from tabherd.broker.webhooks import Webhooks
from tabherd.cluster.clock import ClusterClock
from tabherd.cluster.fenced_store import FencedStore
from tabherd.cluster.membership import Membership, _heard_at
from tabherd.core import lease
from tabherd.core.gate import Gate
from tabherd.core.lifecycle import LEASE, TASK, DeliveryState, LeaseState, is_terminal
from tabherd.core.model import Beat, Delivery, Node, Session, Tab, Task, Waiter, changed
from tabherd.store.base import Add, Applied, Outcome, Put, Require, Update

from .world import World

Patch = Callable[[pytest.MonkeyPatch], None]
# Longer than any history.
NEVER_S = 1e6
NEVER_MS = 1 << 60


def patching(owner: Any, name: str, replacement: Any, instead: str = "") -> Patch:
    """The product without one of its methods."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(owner, name, replacement, raising=False)

    what = f"`{owner.__name__.rsplit('.', 1)[-1]}.{name}`"
    words = instead or replacement.__name__.strip("_").removesuffix("_async").replace("_", " ")
    patch.__doc__ = f"{what} does nothing" if words == "nothing" else f"Instead of {what}: {words}"
    return patch


def _here(patch: Callable[[pytest.MonkeyPatch], Any]) -> Patch:
    """What is switched off in the simulator of one server, in this one."""

    def patch_here(monkeypatch: pytest.MonkeyPatch) -> None:
        patch(monkeypatch)

    patch_here.__doc__ = patch.__doc__
    return patch_here


def off(patch: Patch) -> str:
    """What is switched off, in words."""
    return " ".join((patch.__doc__ or "").split()).rstrip(".")


def _nothing(*args: Any, **kwargs: Any) -> tuple[()]:
    return ()


async def _nothing_async(*args: Any, **kwargs: Any) -> None:
    return None


# --- Membership -----------------------------------------------------------------------------------------------------


def _any_row(self: FencedStore) -> Require:
    return Require(Node, "nobody", 0)


async def _beat_whoever_has_ended_it(self: Membership) -> None:
    begun = self._steady()
    now = await self._store.now()
    self._clock.looked(now, begun, self._steady())
    await self._store.apply(Put(Beat(id=self.node.id, epoch=self.node.epoch, at=now)))
    self._beaten_at = begun
    if self._good_since is None:
        self._good_since = begun


def _declare_however_its_own_beats_have_been(self: Membership, now: int, node: Any, beat: Any) -> bool:
    return now - _heard_at(node, beat) >= self._config.dead_after_s * 1000


def _always_trusted(self: Membership) -> bool:
    return not self.is_fenced.is_set()


def _look_at_the_clock_once(self: ClusterClock, now_ms: int, asked_at: float, heard_at: float) -> None:
    if self._offset is None:
        self._offset = now_ms - (asked_at + heard_at) / 2


# --- What others have left ------------------------------------------------------------------------------------------


async def _claim_whatever_stands(self: Takeover, gone: Any, row: Session) -> Session | None:
    ours = changed(row, node_id=self._node_id, owner_pid=0, owner_started=0)
    tabs = await self._store.select(Tab, {"session_id": row.id})
    return _first(await self._store.apply(*(Put(each) for each in (ours, *_moved(tabs, self._node_id)))))


async def _claim_with_the_process_of_another_machine(self: Takeover, gone: Any, row: Session) -> Session | None:
    ours = changed(row, node_id=self._node_id)
    tabs = await self._store.select(Tab, {"session_id": row.id})
    is_over = Require(Node, gone.id, gone.version)
    outcome = await self._store.apply(*(Update(each) for each in (ours, *_moved(tabs, self._node_id))), is_over)
    return _first(outcome)


def _moved(tabs: Iterable[Tab], node_id: str) -> list[Tab]:
    return [changed(tab, node_id=node_id) for tab in tabs]


def _first(outcome: Outcome) -> Session | None:
    return outcome.rows[0] if isinstance(outcome, Applied) else None  # type: ignore[return-value]


async def _no_proof(self: LockRows, standing: Any) -> tuple[()]:
    return ()


# --- Answers that were lost -----------------------------------------------------------------------------------------


async def _nothing_is_as_written(self: FencedStore, op: Any) -> tuple[bool, None]:
    return False, None


async def _pass_on_the_doubt(self: FencedStore, *ops: Any) -> Outcome:
    self._refuse_untrusted()
    outcome = await self._store.apply(self._fence, *ops)
    if isinstance(outcome, Applied):
        return Applied(outcome.rows[1:])
    if outcome.index == 0:
        self._on_fenced()
    return type(outcome)(outcome.index - 1, outcome.reason, outcome.row, outcome.value)


async def _leave_it_in_doubt(self: Tabs, tab_id: str, ops: tuple[Any, ...]) -> Outcome:
    return await self._store.apply(*ops)


# --- Waiters and tasks ----------------------------------------------------------------------------------------------


def _grant_whatever_stands(self: WaitingRows, row: Waiter, node_id: str) -> tuple[Any, ...]:
    return Put(changed(row, granted_by=node_id)), Add(self._counter, -1)


def _keep_for_ever(self: Granting, waiter_id: str, kept: Any) -> None:
    kept.is_granted.set_result(True)
    self._cluster.hints.tell("granted", waiter_id)


async def _send_before_it_is_written(self: Scheduler, live: Any) -> None:
    live.unsent = live.row


def _forget_waiters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is turned away who waits when the session changes hands, nor is the lease looked at after the wait."""

    def turn_away_running(live: Any, error: Any) -> None:
        for tab in live.tabs.values():
            if tab.running is not None:
                tab.running.cancel()

    monkeypatch.setattr(sessions, "turn_away", turn_away_running)
    monkeypatch.setattr(Commands, "_check_again", _nothing)


async def _forget_the_wait(self: Sessions, live: Any, beat: Any) -> None:
    seen_at = live.seen_at
    await _BEAT(self, live, beat)
    live.seen_at = seen_at


_BEAT = Sessions._beat
# The states of a session that is not over.
_LASTING = frozenset(state for state in LeaseState if not is_terminal(LEASE, state))


# --- Webhooks -------------------------------------------------------------------------------------------------------


async def _leave_them_to_it(self: TaskTakeover, gone: Node) -> int:
    return 0


async def _take_on_whatever_stands(self: TaskTakeover, gone: Node) -> int:
    rows = await self._store.select(Delivery, {"state": DeliveryState.PENDING.value})
    for row in rows:
        if row.node_id == gone.id:
            await self._store.apply(Put(changed(row, node_id=self._node_id)))
            self._webhooks.committed(row)
    return len(rows)


async def _write_what_it_has_become(self: TaskLog, batch: list[Any]) -> None:
    told = [(task, row) for task, row in batch if row.callback_url and is_terminal(TASK, row.state)]
    if told:
        await self._apply(told)
    if others := [(task, task.row) for task, row in batch if (task, row) not in told]:
        assert self._claims is not None
        await self._write(self._claims, others)


async def _take_it_on_however_late(self: TaskTakeover, row: Task) -> Task | None:
    become = await _BECOME(self, changed(row, deadline_at=NEVER_MS))
    return None if become is None else changed(become, deadline_at=row.deadline_at)


_BECOME = TaskTakeover._become


def _wait_for_pooled_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task waits for any session that is not over, and its deadline, which would hide that, does not end it."""
    monkeypatch.setattr(task_takeover, "HELD_STATES", _LASTING)
    monkeypatch.setattr(TaskTakeover, "_become", _take_it_on_however_late)


SAFEGUARDS: dict[str, Patch] = {
    "every write requires the row of its node": patching(
        FencedStore, "_fence", property(_any_row, _nothing), "nothing that could change"
    ),
    "a beat requires the row of its node": patching(Membership, "_beat", _beat_whoever_has_ended_it),
    "a node that cannot beat does not trust itself": patching(
        Membership, "is_trusted", property(_always_trusted), "always trusted"
    ),
    "a node declares others dead only if its own beats have been good": patching(
        Membership, "_may_declare", _declare_however_its_own_beats_have_been
    ),
    "the clock of the database counts": patching(ClusterClock, "looked", _look_at_the_clock_once),
    "of several survivors one takes a session": patching(Takeover, "_claim", _claim_whatever_stands),
    "a process of another machine proves nothing": patching(
        Takeover, "_claim", _claim_with_the_process_of_another_machine
    ),
    "the fence is checked at the node that has the tab": patching(lease, "check_fence", _nothing),
    "the lease and the trust are checked again after a wait": _forget_waiters,
    "no tab is changed behind a takeover, whichever node has it": _here(
        forget_the_fence(tabs, "open tab", "close tab", "hand off", "resume tab")
    ),
    "no state is put or read behind a takeover, whichever node has it": _here(
        forget_the_fence(sessions, "put state", "read state")
    ),
    "no step begins while the session ends or changes hands": patching(performing, "_decided", _nothing_async),
    "a heartbeat counts before anybody else has its session": patching(Sessions, "_beat", _forget_the_wait),
    "a tab lock keeps others out, whichever node they ask": patching(Gate, "_may_run", may_run_under_a_lock),
    "what a person has stays theirs on another node": patching(Adoption, "_pause_again", _nothing),
    "a lock that another node has is not given away": patching(LockRows, "_proof_of_end", _no_proof),
    "a task is for the lease that it was submitted under, whichever node has it": _here(for_no_lease),
    "that a task is sent is on disk before it is": patching(Scheduler, "_write_sent", _send_before_it_is_written),
    "what is written of a task is what was chosen": patching(TaskLog, "_save_together", _write_what_it_has_become),
    "a task of a dead node does not wait for a session in the pool": _wait_for_pooled_sessions,
    "a task of a dead node ends at its deadline, whoever has its session": patching(
        TaskTakeover, "_become", _take_it_on_however_late
    ),
    "a claim that was not answered is looked for": patching(TaskPool, "_find_claimed", _nothing_async),
    "a write that was not answered is known by its effect": patching(
        FencedStore, "_as_written", _nothing_is_as_written
    ),
    "a change that was not answered is sent again": patching(FencedStore, "apply", _pass_on_the_doubt),
    "a new tab that was not answered is looked for": patching(Tabs, "_record", _leave_it_in_doubt),
    "of several nodes one grants a waiter": patching(WaitingRows, "granting", _grant_whatever_stands),
    "a place that nobody comes for is taken back": patching(Granting, "_keep", _keep_for_ever),
    "tasks of which no hint came are found by looking": patching(task_pool, "LOOK_S", NEVER_S, "never"),
    "that somebody is to be told is written with the end of a task": patching(Tasking, "_on_end", _nothing),
    "what a dead node was to tell is told by another": patching(TaskTakeover, "_settle_deliveries", _leave_them_to_it),
    "of several survivors one takes on what a dead node was to tell": patching(
        TaskTakeover, "_settle_deliveries", _take_on_whatever_stands
    ),
    "an attempt to tell is written down before the next": patching(Webhooks, "_record", _nothing_async),
    "a rejected task that was not answered is looked for": patching(TaskIntake, "_find_rejected", _nothing_async),
}


def first_failure(safeguard: str, seeds: Iterable[int]) -> Failure | None:
    """The first of these histories that shows that the safeguard is missing."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        SAFEGUARDS[safeguard](monkeypatch)
        for seed in seeds:
            if (failure := play(World, seed)) is not None:  # type: ignore[arg-type]
                return failure
    return None
