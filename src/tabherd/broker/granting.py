"""How a node gives places that it has to callers who wait for one on any node of a cluster.

Whenever there may be a place here and somebody may wait, the rows of all waiters are read, core says who is next, and
each one gets a place and its session's `reserved` row in one transaction that is guarded by its row and by the caps. Of
several nodes that choose the same waiter one has it; the others give their place back and read again. A caller of
another node is expected here: its place is kept for a while, then taken back, and the caller waits again if it is still
there.

Invariants:
- A place is given to a waiter by the very transaction that ends its waiting, so nobody has two, and nobody who has left
  has one.
- One reading at a time per pool: what happens meanwhile leads to one more.
- What was granted is either taken up or taken back; no count stays moved for a caller that never came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

import structlog

from .. import wire
from ..browsers.pool import Pool
from ..cluster.cluster import Cluster
from ..core.line import Line
from ..core.model import Waiter
from ..errors import StoreUnavailable
from .admission import Admission
from .claim import Claim
from .ids import Ids
from .opening import Choose, Contended, Opening
from .patience import patiently
from .waiting_rows import WaitingRows

log = structlog.get_logger("admission")

# Told with the id of the waiter that a node has granted; and of one that left after that.
GRANTED: Final = "granted"
LEFT: Final = "left"
# How long a place is kept for a caller that has to come from another node.
KEEP_S: Final = 5.0
# Readings in a row that ended in vain because others were quicker; the next look comes by itself.
VAIN_MAX: Final = 10
# How long nothing is read again after a reading that had nothing to give, unless a place becomes free.
VAIN_PAUSE_S: Final = 0.02
# The same when the pool has all the sessions that it may have.
EXHAUSTED_PAUSE_S: Final = 0.1
# Browsers are started, and pooled tabs given up, for another node's caller only if that node has not managed to.
OTHERS_AFTER_MS: Final = 1_000


class Callers(Protocol):
    """Those who wait on this node."""

    def is_waiting(self, waiter_id: str) -> bool:
        """Whether that caller is there, and still wants a place."""
        ...

    def give(self, waiter_id: str, claim: Claim) -> bool:
        """Hand over a place that is reserved; False if the caller has left."""
        ...

    def saw(self, rows: Sequence[Waiter]) -> None:
        """What was read about all waiters; its own among them."""
        ...


class Kept:
    """A place that waits for its caller."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        # Whether it was granted; the caller may hear of it, and be here, before the answer to the write is.
        self.is_granted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        # Ends the waiting; None before it was granted.
        self.timer: asyncio.TimerHandle | None = None


class Granting:
    """What one node gives of one pool."""

    def __init__(
        self,
        *,
        pool: Pool,
        admission: Admission,
        rows: WaitingRows,
        cluster: Cluster,
        callers: Callers,
        is_admitting: Callable[[], bool],
        opening: Opening,
        choose: Choose,
        ids: Ids,
        clock: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._pool = pool
        self._admission = admission
        self._rows = rows
        self._cluster = cluster
        self._callers = callers
        self._is_admitting = is_admitting
        self._opening = opening
        self._choose = choose
        self._ids = ids
        self._clock = clock
        self._spawn = spawn
        # By the id of the waiter.
        self._kept: dict[str, Kept] = {}
        # Whether anybody was waiting when that was last heard or read.
        self.is_awaited = False
        # All who waited when they were last read.
        self.line: Line | None = None
        # Something has happened since the reading that is under way began.
        self._is_stale = False
        self._is_reading = False
        # Not before then, by the loop's clock, unless a place becomes free; and what reminds of it.
        self._read_again_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # --- Occasions ------------------------------------------------------------------------------------------

    def has_room(self) -> None:
        """There may be a place here, which matters if anybody waits."""
        if self.is_awaited:
            self._read()

    def heard(self) -> None:
        """Somebody has come to wait. Read a moment later if there was nothing to give just now.

        Else, while all places are taken, everyone who comes would have all nodes read all rows; and whoever frees a
        place gives it without being asked.
        """
        self.is_awaited = True
        loop = asyncio.get_running_loop()
        if loop.time() >= self._read_again_at:
            self._read()
        elif self._timer is None:
            self._timer = loop.call_at(self._read_again_at, self._read)

    def look(self) -> None:
        """Read who waits, and give what there is."""
        self.is_awaited = True
        self._read()

    def _read(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_stale = True
        if not self._is_reading:
            self._is_reading = True
            self._spawn(self._give_all())

    # --- Places for callers of other nodes ------------------------------------------------------------------

    async def take_up(self, waiter_id: str, agent_id: str, key: str) -> Claim | None:
        """The place that was kept for this caller; None if it came too late."""
        kept = self._kept.get(waiter_id)
        if kept is None or (kept.claim.agent_id, kept.claim.key) != (agent_id, key):
            return None
        return kept.claim if await self._take(waiter_id) else None

    async def take_back(self, waiter_id: str) -> None:
        """Nobody came for it, or nobody will."""
        kept = self._kept.get(waiter_id)
        if kept is not None and await self._take(waiter_id):
            await self._opening.abandon(kept.claim)
            await patiently(lambda: self._rows.put_back(waiter_id, self._cluster.node.id))

    async def _take(self, waiter_id: str) -> bool:
        """Whether it was granted, and is the asker's to deal with."""
        kept = self._kept[waiter_id]
        # Shielded: several may ask, and one who leaves must not answer for the others.
        is_granted = await asyncio.shield(kept.is_granted)
        if not is_granted or self._kept.get(waiter_id) is not kept:
            return False
        del self._kept[waiter_id]
        if kept.timer is not None:
            kept.timer.cancel()
        return True

    async def stop(self) -> None:
        """Take back everything that is kept."""
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*(self.take_back(waiter_id) for waiter_id in list(self._kept)))

    # --- Giving ---------------------------------------------------------------------------------------------

    async def _give_all(self) -> None:
        vain = 0
        try:
            while self._is_stale and vain < VAIN_MAX:
                self._is_stale = False
                vain = 0 if await self._give() else vain + 1
        except StoreUnavailable as error:
            log.info("those who wait could not be read or granted", error=error.message)
        finally:
            self._is_reading = False

    async def _give(self) -> bool:
        """Read once, and give as many places as there are; whether anybody got one."""
        rows = await self._rows.read()
        self._callers.saw(rows)
        self.line = await self._rows.line(rows, self._admission.store_caps)
        self.is_awaited = len(self.line) > 0
        if not self._is_admitting() or not self._cluster.membership.is_trusted:
            return False
        line = self.line.only(self._is_ours_to_give)
        grants: list[tuple[Waiter, Claim]] = []
        while (row := line.take(self._admission.has_place)) is not None:
            # A new one each time: a waiter may be granted again, after a place that it never came to.
            claim = self._admission.take(self._ids.mint("ses"), row.agent_id, row.key)
            assert claim is not None, "it was asked for a moment ago"
            grants.append((row, claim))
        is_exhausted = line.is_exhausted or self._admission.is_exhausted
        pause_s = EXHAUSTED_PAUSE_S if is_exhausted else 0.0 if grants else VAIN_PAUSE_S
        self._read_again_at = asyncio.get_running_loop().time() + pause_s
        self._make_room(line)
        given = await asyncio.gather(*(self._grant(*grant) for grant in grants), return_exceptions=True)
        for error in given:
            if isinstance(error, BaseException):
                raise error
        return any(given)

    def _is_ours_to_give(self, row: Waiter) -> bool:
        if row.node_id == self._cluster.node.id:
            return self._callers.is_waiting(row.id)
        return not row.is_local and row.node_id in self._cluster.membership.peers

    def _make_room(self, line: Line) -> None:
        """For those who lack nothing but a place here: more browsers, or the oldest pooled tab."""
        since = self._clock() - OTHERS_AFTER_MS
        lacking = sum(
            (row.node_id == self._cluster.node.id or row.arrived_at <= since)
            and line.full(row.agent_id, row.key) is None
            and self._admission.full(row.agent_id, row.key) is None
            for row in line.waiting()
        )
        if lacking:
            self._admission.make_room(lacking, lambda: True)

    async def _grant(self, row: Waiter, claim: Claim) -> bool:
        """One transaction; whether it was this node that gave the waiter a place."""
        is_ours = row.node_id == self._cluster.node.id
        kept = None if is_ours else Kept(claim)
        if kept is not None:
            self._kept[row.id] = kept
        # Whatever else its caller asks for is known when it takes the place up.
        asked = wire.OpenSession(pool=self._pool.name, key=row.key)
        guards = self._rows.granting(row, self._cluster.node.id)
        try:
            await self._opening.reserve(self._pool, claim, asked, self._choose, guards)
        except BaseException as error:
            if kept is not None:
                del self._kept[row.id]
                kept.is_granted.set_result(False)
            if isinstance(error, Contended):
                return False
            raise
        if kept is not None:
            self._keep(row.id, kept)
        elif not self._callers.give(row.id, claim):
            await self._opening.abandon(claim)
        return True

    def _keep(self, waiter_id: str, kept: Kept) -> None:
        loop = asyncio.get_running_loop()
        kept.timer = loop.call_later(KEEP_S, lambda: self._spawn(self.take_back(waiter_id)))
        kept.is_granted.set_result(True)
        self._cluster.hints.tell(GRANTED, waiter_id)
