"""The rows of named locks, by which all nodes that share a store know who has which name.

Invariants:
- A row is the business of the node that wrote it. Another one replaces it only when the lease has been over for a
  moment, or when that node is over, and then in one transaction with the proof of that: whoever was promised a lock
  until some time has it until then, also when the backend has lost it meanwhile and gave it to somebody else.
- What is renewed or removed is the row of that very grant, never that of another.
- A node that others have declared dead leaves its rows to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from ..cluster.fenced_store import is_fenced
from ..core.lifecycle import NodeState
from ..core.model import NamedLock, Node, Row, changed
from ..errors import LockLost, StoreUnavailable
from ..store.base import Applied, Conflict, Delete, Insert, Op, Require, Store, Update
from .patience import patiently

# How long after the end of a lease its own node has to say so itself, before another may.
GRACE_MS: Final = 1_000
# How often a write decides again when others change the row meanwhile.
AGAIN_MAX: Final = 5
# Rows that are read, and of a node that is over also removed, side by side.
BATCH: Final = 25
# Rows of all nodes that are read for somebody who looks.
LISTED_MAX: Final = 10_000


class Occupied(Exception):
    """Another node's holder has the name still, whatever the backend says; nothing was written."""


class LockRows:
    """What is on disk of named locks, as one node may change it."""

    def __init__(self, *, node_id: str, store: Store, is_shared: bool, clock: Callable[[], int]) -> None:
        self._node_id = node_id
        self._store = store
        # Whether there may be other nodes. Without them a row that is not ours is one of a former identity.
        self.is_shared = is_shared
        self._clock = clock
        # Set when others have declared this node dead: they see to its rows.
        self.is_forfeited = False

    # --- Of this node ---------------------------------------------------------------------------------------

    async def record(self, row: NamedLock) -> NamedLock:
        """Write that somebody is about to have it, who has the backend's lock; the row with its fence. `Occupied`."""
        ops: tuple[Op, ...] = (Insert(row, numbered="fence"),)
        for _ in range(AGAIN_MAX):
            outcome = await self._store.apply(*ops)
            if isinstance(outcome, Applied):
                return _lock(outcome.rows[-1])
            standing = await self._store.get(NamedLock, row.id)
            if standing is None:
                ops = (Insert(row, numbered="fence"),)
                continue
            proof = await self._proof_of_end(standing)
            if proof is None:
                raise Occupied
            ops = (*proof, Update(changed(row, version=standing.version), numbered="fence"))
        # So much changes only while somebody else is at it.
        raise Occupied

    async def save(self, row: NamedLock) -> NamedLock:
        """Replace the row of a lock that is held; `LockLost` if it is somebody else's by now."""
        outcome = await self._store.apply(Update(row))
        if isinstance(outcome, Conflict):
            # An earlier write, or removal, went through although nobody could say so; or it was taken from us.
            standing = outcome.row
            if standing is not None and not _is_same(standing, row):
                raise lock_lost(row.id)
            again = Insert(row) if standing is None else Update(changed(row, version=standing.version))
            outcome = await self._store.apply(again)
        if isinstance(outcome, Conflict):
            raise lock_lost(row.id)
        return _lock(outcome.rows[0])

    async def remove(self, row: NamedLock) -> None:
        """There is no such row any more after this."""
        if self.is_forfeited:
            return
        try:
            outcome = await self._store.apply(Delete(NamedLock, row.id, row.version))
            if isinstance(outcome, Conflict) and outcome.row is not None and _is_same(outcome.row, row):
                outcome = await self._store.apply(Delete(NamedLock, row.id, outcome.row.version))
                assert isinstance(outcome, Applied), f"{row.id} has one writer, this node ({outcome})"
        except StoreUnavailable as error:
            if not is_fenced(error):
                raise
            self.is_forfeited = True

    async def discard(self, name: str) -> None:
        """Remove what an unanswered write may have left of a lock that nobody was told of."""

        async def once() -> None:
            row = None if self.is_forfeited else await self._store.get(NamedLock, name)
            if row is not None and row.node_id == self._node_id:
                await self.remove(row)

        await patiently(once)

    # --- Of others ------------------------------------------------------------------------------------------

    async def of_another(self, name: str) -> NamedLock | None:
        """The row of that name, if another node wrote it."""
        row = await self._store.get(NamedLock, name) if self.is_shared else None
        return row if row is not None and row.node_id != self._node_id else None

    async def of_all_others(self) -> dict[str, NamedLock]:
        """What callers of other nodes hold, by name; a bounded number."""
        rows: dict[str, NamedLock] = {}
        after = ""
        while self.is_shared and len(rows) < LISTED_MAX:
            page = await self._store.select(NamedLock, after=after)
            if not page:
                break
            rows |= {row.id: row for row in page if row.node_id != self._node_id}
            after = page[-1].id
        return rows

    async def release_node(self, gone: Node) -> AsyncIterator[NamedLock]:
        """Remove the rows of a node that is over, as long as it is; each row that this node, and no other, removed."""
        after = ""
        while True:
            rows = await self._store.select(NamedLock, {"node_id": gone.id}, after=after, limit=BATCH)
            if not rows:
                return
            is_over = Require(Node, gone.id, gone.version)
            removing = (self._store.apply(is_over, Delete(NamedLock, row.id, row.version)) for row in rows)
            for row, outcome in zip(rows, await asyncio.gather(*removing), strict=True):
                if isinstance(outcome, Applied):
                    yield row
            after = rows[-1].id

    async def _proof_of_end(self, standing: NamedLock) -> tuple[Op, ...] | None:
        """What a write that replaces the row must require; None while the row is not to be replaced."""
        if not self.is_shared or standing.node_id == self._node_id:
            # One that an unanswered write of ours left behind: nobody was told of it, and the backend's lock is ours.
            return ()
        if standing.expires_at and standing.expires_at + GRACE_MS <= self._clock():
            return ()
        node = await self._store.get(Node, standing.node_id)
        if node is not None and node.state is NodeState.UP:
            return None
        return (Require(Node, standing.node_id, 0 if node is None else node.version),)


def lock_lost(name: str) -> LockLost:
    return LockLost("The lock is no longer held with this ticket: it expired, was lost, or was given back.", name=name)


def _is_same(standing: Row, row: NamedLock) -> bool:
    """Whether both are of one grant."""
    return _lock(standing).node_id == row.node_id and _lock(standing).fence == row.fence


def _lock(row: Row | None) -> NamedLock:
    assert isinstance(row, NamedLock)
    return row
