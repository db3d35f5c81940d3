"""What becomes of the tasks and webhooks of a node that is over, by the doing of those that are left.

All of them do this at once. A row is settled by one write that requires it as it was read, and that its node is still
over: so it is settled once, and a node that has come back keeps what was not settled by then.

- What had not been sent to a page waits again: for any node, or where its session is now.
- What had been sent has failed, because nobody knows whether it took effect; or waits again, if it does no harm twice.
- A task on a tab is taken up by the node that has taken up the session; if nobody can, it fails like any other whose
  tab is gone. Its deadline ends it also before anybody has.
- What was to be told is told by another node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from ..core.lease import HELD_STATES
from ..core.lifecycle import TASK, DeliveryState, TaskEvent, TaskState, is_terminal
from ..core.model import Delivery, Node, Session, Tab, Task, changed
from ..errors import LeaseLost, OutcomeUnknown, SessionNotFound, TabherdError, TabNotFound
from ..store.base import Applied, Conflict, Op, Require, Store, Update
from ..store.task_claims import TaskClaims
from .registry import Registry
from .scheduler import Scheduler
from .task_archive import TaskArchive
from .task_ending import ended_for_others, too_late
from .webhooks import Webhooks

# Rows that are settled in one transaction.
BATCH_MAX: Final = 100
# How long it waits for others to take up sessions before it looks again.
PAUSE_S: Final = 0.25
# A bound on the rounds: each that has done nothing has waited, or met others that had some success.
ROUNDS_MAX: Final = 10_000

log = structlog.get_logger("takeover")


class _Back(Exception):
    """The node is not over any more, or others have seen to everything."""


class _Met(Exception):
    """Another node has settled one of them."""


class TaskTakeover:
    """Settles the tasks of other nodes."""

    def __init__(
        self,
        *,
        node_id: str,
        claims: TaskClaims,
        store: Store,
        registry: Registry,
        scheduler: Scheduler,
        archive: TaskArchive,
        webhooks: Webhooks,
        clock: Callable[[], int],
        on_end: Callable[[Task], tuple[Op, ...]],
        on_saved: Callable[[Task], None],
        tell_unclaimed: Callable[[], None],
    ) -> None:
        self._node_id = node_id
        self._claims = claims
        self._store = store
        self._registry = registry
        self._scheduler = scheduler
        self._archive = archive
        self._webhooks = webhooks
        self._clock = clock
        # What else is written with the end of a task, and who is told when that is on disk.
        self._on_end = on_end
        self._on_saved = on_saved
        # That there are tasks of nobody.
        self._tell_unclaimed = tell_unclaimed

    async def run(self, gone: Node) -> None:
        """Return when nothing of that node is left that is not over, or it is not over any more."""
        # What it had under way has landed after this, and it begins no more.
        await self._claims.await_others()
        try:
            settled = await self._settle_tasks(gone)
            settled += await self._settle_deliveries(gone)
        except _Back:
            return
        await self._archive.take_up(gone.id)
        if settled:
            log.info("tasks of a node that is over were settled", nodeId=gone.id, count=settled)

    # --- Tasks ----------------------------------------------------------------------------------------------

    async def _settle_tasks(self, gone: Node) -> int:
        settled = 0
        for _ in range(ROUNDS_MAX):
            after: tuple[str, str] = ("", "")
            is_left = False
            while page := await self._claims.of_node(gone.id, BATCH_MAX, after=after):
                after = page[-1].agent_id, page[-1].id
                become = await asyncio.gather(*map(self._become, page))
                for ready in _apart(become):
                    settled += await self._write(gone, ready)
                is_left = True
            if not is_left:
                break
            # What is left has sessions that others are taking up, or that this node has not got ready yet.
            if isinstance(await self._store.apply(_is_over(gone)), Conflict):
                raise _Back
            await asyncio.sleep(PAUSE_S)
        return settled

    async def _become(self, row: Task) -> Task | None:
        """What is to become of it; None: nothing yet, it waits for somebody."""
        if row.state is TaskState.RUNNING and not self._scheduler.may_repeat(row):
            return self._failed(row, OutcomeUnknown("The node ended while the task ran."))
        if row.deadline_at <= self._clock():
            # No node that lives has it, so none has a timer for it: all keep its time, as they do for tasks of nobody.
            return self._failed(row, too_late(row))
        waits = changed(row, state=TaskState.QUEUED, node_id="")
        if not row.tab_id and not row.session_id:
            return waits
        is_here, error = await self._whereabouts(row)
        if error is not None:
            return self._failed(row, error)
        return changed(waits, node_id=self._node_id) if is_here else None

    async def _whereabouts(self, row: Task) -> tuple[bool, TabherdError | None]:
        """Whether this node has the session of the task; or why nobody has."""
        session_id = row.session_id
        if row.tab_id:
            tab = await self._store.get(Tab, row.tab_id)
            if tab is None:
                return False, TabNotFound("No such tab.")
            session_id = tab.session_id
        if self._registry.session(session_id) is not None:
            return True, None
        session = await self._store.get(Session, session_id)
        if session is None:
            return False, SessionNotFound("No such session.")
        if session.state not in HELD_STATES:
            # One that was given back has ended for this task, although its tab waits in a pool for whoever comes next.
            reason = session.end_reason or session.state
            return False, LeaseLost(f"The session has ended: {reason}.", sessionId=session_id)
        return False, None

    def _failed(self, row: Task, error: TabherdError) -> Task:
        return ended_for_others(row, self._node_id, TaskEvent.FAIL, self._clock(), error)

    async def _write(self, gone: Node, ready: list[Task]) -> int:
        """All of them, or as many as others have left; how many."""
        try:
            return await self._write_together(gone, ready)
        except _Met:
            settled = 0
            for one in ready:
                try:
                    settled += await self._write_together(gone, [one])
                except _Met:
                    continue
            return settled

    async def _write_together(self, gone: Node, ready: list[Task]) -> int:
        ops: list[Op] = [_is_over(gone)]
        places: list[int] = []
        for row in ready:
            places.append(len(ops))
            ops.append(Update(row))
            if is_terminal(TASK, row.state):
                ops += self._on_end(row)
        outcome = await self._store.apply(*ops)
        if isinstance(outcome, Conflict):
            raise _Back if outcome.index == 0 else _Met
        for place in places:
            stored = outcome.rows[place]
            assert isinstance(stored, Task)
            if is_terminal(TASK, stored.state):
                self._scheduler.was_ended(stored)
                self._on_saved(stored)
            elif stored.node_id:
                self._scheduler.claimed(stored)
        self._tell_unclaimed()
        return len(ready)

    # --- Webhooks -------------------------------------------------------------------------------------------

    async def _settle_deliveries(self, gone: Node) -> int:
        after, settled = "", 0
        where = {"state": DeliveryState.PENDING.value}
        while page := await self._store.select(Delivery, where, after=after, limit=BATCH_MAX):
            after = page[-1].id
            for row in page:
                if row.node_id != gone.id:
                    continue
                outcome = await self._store.apply(_is_over(gone), Update(changed(row, node_id=self._node_id)))
                if isinstance(outcome, Applied):
                    taken = outcome.rows[1]
                    assert isinstance(taken, Delivery)
                    self._webhooks.committed(taken)
                    settled += 1
                elif outcome.index == 0:
                    raise _Back
        return settled


def _apart(become: Iterable[Task | None]) -> Iterable[list[Task]]:
    """Those that are over, those that this node has, and those that nobody has, each for a transaction of its own. If
    its answer is lost, what stands tells whether it has landed; and what nobody has may soon be another's.
    """
    apart: dict[tuple[bool, str], list[Task]] = {}
    for row in become:
        if row is not None:
            apart.setdefault((is_terminal(TASK, row.state), row.node_id), []).append(row)
    return apart.values()


def _is_over(gone: Node) -> Op:
    return Require(Node, gone.id, gone.version)
