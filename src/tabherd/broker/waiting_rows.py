"""The rows of callers that wait for a session of one pool, which all nodes of a cluster share.

Invariants:
- The counter of waiters moves with the rows, in the same transactions: it stands for those that nobody has granted.
- A row that waits can be granted by any node. It is removed by its own node alone, whatever became of the caller, or,
  when that node is over, by whoever takes over what it had.
- Every step is a compare-and-set on the row, so that of a grant and a leaving one is first and the other knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from ..core.caps import WAITING_BASE, Caps, waiting_counter
from ..core.line import Line, counters_of
from ..core.model import Waiter, changed
from ..errors import QueueFull, StateConflict
from ..store.base import Add, Applied, Delete, Insert, Op, Store, Update

# Above every bound that a pool's settings can have.
ROWS_MAX: Final = 200_000
# Each attempt that fails has met somebody who granted the waiter, or took a grant back.
ATTEMPTS_MAX: Final = 20


class WaitingRows:
    """The waiters of one pool on all nodes."""

    def __init__(self, store: Store, pool: str) -> None:
        self._store = store
        self._pool = pool
        self._counter = waiting_counter(pool)

    async def prepare(self) -> None:
        """Bring the counter to where it stands when nobody waits, if no node has ever done so. Idempotent."""
        await self._store.apply(Add(self._counter, WAITING_BASE, WAITING_BASE))

    # --- Operations within transactions of others -----------------------------------------------------------------

    def nobody_waits(self) -> tuple[Op, ...]:
        """Changes nothing, and is in conflict if anybody waits."""
        return Add(self._counter, 1, WAITING_BASE + 1), Add(self._counter, -1)

    def granting(self, row: Waiter, node_id: str) -> tuple[Op, ...]:
        """It waits no more: that node has a place for it. Its own node need not be told by the row."""
        fewer = Add(self._counter, -1)
        if row.node_id == node_id:
            return Delete(Waiter, row.id, row.version), fewer
        return Update(changed(row, granted_by=node_id)), fewer

    # --- Steps ----------------------------------------------------------------------------------------------------

    async def enter(self, row: Waiter, max_waiters: int) -> None:
        """Let all nodes know that it waits, or raise `QueueFull`."""
        outcome = await self._store.apply(Add(self._counter, 1, max_waiters + WAITING_BASE), Insert(row))
        if not isinstance(outcome, Applied):
            assert outcome.index == 0, f"{row.id} is new ({outcome})"
            count = (outcome.value or 0) - WAITING_BASE
            refusal = QueueFull(f"{count} callers wait for a session already.", count=count, cap=max_waiters)
            # For tasks a full queue is 429; a caller of a session hears that the service is not available.
            refusal.status = 503
            raise refusal

    async def leave(self, waiter_id: str) -> str | None:
        """Remove it; answers which node had granted it, empty if none, and None if it was gone already."""
        row = await self._store.get(Waiter, waiter_id)
        for _ in range(ATTEMPTS_MAX):
            if row is None:
                return None
            outcome = await self._store.apply(*_removing(row))
            if isinstance(outcome, Applied):
                return row.granted_by
            assert outcome.row is None or isinstance(outcome.row, Waiter)
            row = outcome.row
        raise StateConflict("The waiter kept changing while it was removed.", waiterId=waiter_id)

    async def put_back(self, waiter_id: str, node_id: str) -> None:
        """That node has no place for it any more: if it is still there it waits again, where it was."""
        row = await self._store.get(Waiter, waiter_id)
        if row is not None and row.granted_by == node_id:
            # In conflict: the caller has left or is on its way here, and either is the end of the row.
            await self._store.apply(*_putting_back(row))

    # --- Reads ----------------------------------------------------------------------------------------------------

    async def read(self) -> list[Waiter]:
        """All of them, also those that were granted and have not noticed yet."""
        return await self._store.select(Waiter, {"pool": self._pool}, limit=ROWS_MAX)

    async def get(self, waiter_id: str) -> Waiter | None:
        return await self._store.get(Waiter, waiter_id)

    async def is_awaited(self) -> bool:
        """Whether anybody waits."""
        return await self._store.counter(self._counter) > WAITING_BASE

    async def line(self, rows: Sequence[Waiter], caps: Caps) -> Line:
        """Those of the rows who wait, with what is taken of the pool."""
        waiting = [row for row in rows if not row.granted_by]
        # All at once, which is one round trip.
        names = sorted(counters_of(self._pool, caps, waiting))
        values = await asyncio.gather(*(self._store.counter(name) for name in names))
        return Line(self._pool, caps, waiting, dict(zip(names, values, strict=True)))


async def forget_node(store: Store, node_id: str, *requires: Op) -> None:
    """What a life of that node has left that is over: its callers are gone, and so are the places that it had granted.

    Every step is done only while the requirements hold: that the node is still over, for instance. Idempotent, and any
    number of nodes may do it at once.
    """
    for row in await store.select(Waiter, limit=ROWS_MAX):
        steps: Callable[[Waiter], tuple[Op, ...]]
        if row.node_id == node_id:
            steps = _removing
        elif row.granted_by == node_id:
            steps = _putting_back
        else:
            continue
        # In conflict: others have done it, or the node is back and does it itself.
        await store.apply(*requires, *steps(row))


def _removing(row: Waiter) -> tuple[Op, ...]:
    gone = Delete(Waiter, row.id, row.version)
    return (gone,) if row.granted_by else (gone, Add(waiting_counter(row.pool), -1))


def _putting_back(row: Waiter) -> tuple[Op, ...]:
    return Update(changed(row, granted_by="")), Add(waiting_counter(row.pool), 1)
