"""What becomes of the sessions of a node that is over: the nodes that are left take them up.

Each row is claimed by one compare-and-set, which also requires that the node is still over, so of several survivors one
has it, and a node that has come back meanwhile keeps what was not claimed by then. A session that was in use is rebuilt
from its last checkpoint, under the same ids and fence, as after the death of its browser; what was being opened or
ended, or lay in a pool, is settled. Nothing is done to a row before it is ours, and what is ours is ours to finish: a
survivor that dies half-way leaves it to the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

import structlog

from ..browsers.pool import Pool
from ..cluster.membership import Membership
from ..core.lifecycle import LEASE, LeaseState, is_terminal
from ..core.model import Node, Session, Tab, changed
from ..store.base import Applied, Require, Store, Update
from .adoption import Adoption

log = structlog.get_logger("takeover")

# Rows that are looked at in one pass.
PASS_MAX: Final = 1_000
# Between two passes, for the other survivors.
PASS_PAUSE_S: Final = 0.2
# For so many passes a node without a free seat leaves sessions to others that may have one.
MODEST_PASSES: Final = 10
# A bound on the passes: each that ends without success has met others that had some.
PASSES_MAX: Final = 1_000


class Takeover:
    """Takes up the sessions of other nodes."""

    def __init__(
        self,
        *,
        node_id: str,
        store: Store,
        pools: Mapping[str, Pool],
        adoption: Adoption,
        membership: Membership,
        chance: Random,
        is_draining: Callable[[], bool],
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._pools = pools
        self._adoption = adoption
        self._membership = membership
        self._chance = chance
        self._is_draining = is_draining

    async def run(self, gone: Node) -> None:
        """Return when no session of that node is left, or it is not over any more."""
        taken = 0
        for number in range(PASSES_MAX):
            rows = await self._open_sessions(gone)
            if not rows:
                break
            # A fair share, and not in the order of the others.
            self._chance.shuffle(rows)
            share = -(-len(rows) // (1 + len(self._membership.peers)))
            wanted = [row for row in rows if self._has_room(row, number)][:share]
            for row in wanted:
                claimed = await self._claim(gone, row)
                if claimed is None:
                    continue
                if row.owner_pid == gone.pid:
                    # That node leased it for a task of its own.
                    await self._adoption.settle(claimed, "owner_dead")
                else:
                    await self._adoption.take_up(claimed, "node_died")
                taken += 1
            await asyncio.sleep(PASS_PAUSE_S)
        if taken:
            log.info("sessions of a node that is over were taken up", nodeId=gone.id, sessions=taken)

    def _has_room(self, row: Session, passes: int) -> bool:
        """Whether this node is the right one for it; after a while everyone is."""
        if passes >= MODEST_PASSES or not self._membership.peers or row.state not in _HELD:
            return True
        return row.pool in self._pools and self._pools[row.pool].free_seats > 0 and not self._is_draining()

    async def _claim(self, gone: Node, row: Session) -> Session | None:
        """The row as ours; None if somebody else has it, or its node is back."""
        tabs = await self._store.select(Tab, {"session_id": row.id})
        ours = changed(row, node_id=self._node_id)
        if gone.boot_id != self._membership.node.boot_id:
            # A process of another machine: nobody here can see whether it lives, and that proves nothing.
            ours = changed(ours, owner_pid=0, owner_started=0)
        outcome = await self._store.apply(
            Require(Node, gone.id, gone.version),
            Update(ours),
            *(Update(changed(tab, node_id=self._node_id)) for tab in tabs),
        )
        if not isinstance(outcome, Applied):
            return None
        claimed = outcome.rows[1]
        assert isinstance(claimed, Session)
        return claimed

    async def _open_sessions(self, gone: Node) -> list[Session]:
        rows: list[Session] = []
        for state in (state for state in LEASE if not is_terminal(LEASE, state)):
            rows += await self._store.select(Session, {"node_id": gone.id, "state": str(state)}, limit=PASS_MAX)
        return rows


# What somebody uses, and so needs a seat.
_HELD: Final = (LeaseState.ACTIVE, LeaseState.RECOVERING)
