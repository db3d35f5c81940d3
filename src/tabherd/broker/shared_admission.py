"""How a caller gets a session of a pool that several nodes have: here at once, or wherever the next place is.

Nobody waits: a place of this node and its `reserved` row, in one transaction which also makes sure that nobody waits on
any node, so that nobody is overtaken. Else the caller waits in a row that all nodes read, until one of them has a place
for it (see `granting`): this one, or another, to which the caller's request is then passed on. Other nodes are told,
and look by themselves every second; nothing but time depends on their being told.

Invariants:
- A caller that leaves, whenever that is, takes its row along. If it was granted a place in the same moment, that place
  is given back.
- A row of this node without a caller is removed by the next look.
- A node that drains gives no places; its callers wait for those of others, as long as there are any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import structlog

from ..browsers.pool import Pool
from ..cluster.cluster import Cluster
from ..cluster.elsewhere import Elsewhere
from ..core import fairness
from ..core.caps import capacity_refusal
from ..core.line import Line
from ..core.model import Waiter
from ..errors import QueueFull, StoreUnavailable, TabherdError
from ..store.base import Op, Store
from .admission import PLACES_SHOWN, Admission
from .claim import Claim, Place
from .granting import GRANTED, LEFT, Granting
from .ids import Ids
from .opening import Choose, Opening
from .operations import Operations
from .patience import patiently
from .waiting_rows import WaitingRows, forget_node

log = structlog.get_logger("admission")

# Told with the name of the pool that somebody waits for.
WAITERS: Final = "waiters"
# How often a node looks by itself whether somebody waits or was granted something.
LOOK_EVERY_S: Final = 1.0
# How long a caller that does not want to wait waits all the same for other nodes that may have a place: long enough for
# them to look by themselves.
ELSEWHERE_MS: Final = 1_500
# How long the answer to a write of this node may be on its way to another task of it.
ANSWER_S: Final = 5.0


class _Turn:
    """A caller of this node that waits."""

    def __init__(self, row: Waiter) -> None:
        self.row = row
        # Its place, reserved here; or `Elsewhere`, or why it is sent away.
        self.given: asyncio.Future[Claim] = asyncio.get_running_loop().create_future()
        # It takes nothing any more.
        self.is_leaving = False
        # Its row is known to be gone.
        self.is_out = False
        # It goes to the node that granted it a place.
        self.is_passed_on = False


class SharedAdmission:
    """The callers of one pool on this node."""

    def __init__(
        self,
        *,
        pool: Pool,
        admission: Admission,
        store: Store,
        cluster: Cluster,
        operations: Operations,
        opening: Opening,
        choose: Choose,
        ids: Ids,
        clock: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._pool = pool
        self._admission = admission
        self._store = store
        self._cluster = cluster
        self._operations = operations
        self._opening = opening
        self._ids = ids
        self._clock = clock
        self._spawn = spawn
        self._rows = WaitingRows(store, pool.name)
        # By the id of the waiter.
        self._turns: dict[str, _Turn] = {}
        # Those whose rows are being removed.
        self._leaving: set[str] = set()
        self._granting = Granting(
            pool=pool,
            admission=admission,
            rows=self._rows,
            cluster=cluster,
            callers=self,
            is_admitting=lambda: not operations.is_draining,
            opening=opening,
            choose=choose,
            ids=ids,
            clock=clock,
            spawn=spawn,
        )
        admission.shared = self
        cluster.hints.listen(WAITERS, self._heard_of_waiters)
        cluster.hints.listen(GRANTED, self._heard_of_grant)
        cluster.hints.listen(LEFT, self._heard_of_leaving)

    # --- Life -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Settle what an earlier life of this node left, before anybody comes."""
        await patiently(self._rows.prepare)
        await patiently(lambda: forget_node(self._store, self._cluster.node.id))

    async def run(self) -> None:
        """Look every second, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if self._operations.is_draining:
                # Those it could have gone to may be gone.
                self.turn_away(self._operations.refusal)
            try:
                if self._turns or await self._rows.is_awaited():
                    self._granting.look()
            except StoreUnavailable as error:
                log.info("nobody knows whether anybody waits", pool=self._pool.name, error=error.message)

    async def stop(self) -> None:
        """Give back what is kept for callers of other nodes."""
        await self._granting.stop()

    # --- What the node's own admission asks -----------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return len(self._turns)

    @property
    def waiting_since(self) -> int | None:
        return min((turn.row.arrived_at for turn in self._turns.values()), default=None)

    def places_of(self, agent_id: str | None) -> list[Place]:
        """As of the last reading; whoever came since then is behind all others."""
        own = [turn.row for turn in self._turns.values() if agent_id in (None, turn.row.agent_id)][:PLACES_SHOWN]
        line = self._granting.line
        places = []
        for arrival, row in enumerate(own):
            position = (line.position(row.id) if line else None) or 1 + (len(line) if line else 0)
            waiter = fairness.Waiter(
                id=row.id, agent_id=row.agent_id, key=row.key, arrival=arrival, arrived_at=row.arrived_at
            )
            places.append(Place(waiter, position, self._admission.retry_after_ms(position)))
        return sorted(places, key=lambda place: place.position)

    def has_room(self) -> None:
        self._granting.has_room()

    def turn_away(self, refusal: Callable[[], TabherdError]) -> None:
        for turn in self._turns.values():
            if (turn.row.is_local or not self.has_others) and not turn.given.done():
                turn.given.set_exception(refusal())

    # --- Getting in -----------------------------------------------------------------------------------------

    @property
    def has_others(self) -> bool:
        """Whether a caller may get its place on another node. One that stops passes nobody on: it would be cut off."""
        return bool(self._cluster.membership.peers) and not self._operations.is_stopping

    def take_now(self, session_id: str, agent_id: str, key: str) -> Claim | None:
        """A place of this node, as far as this node knows; to be reserved together with `nobody_waits`."""
        if self._operations.is_draining or self._turns or self._granting.is_awaited:
            return None
        return self._admission.take(session_id, agent_id, key)

    def nobody_waits(self) -> tuple[Op, ...]:
        return self._rows.nobody_waits()

    async def take_up(self, grant: str, agent_id: str, key: str) -> Claim | None:
        """The place that was kept here for a caller that another node has passed on; None if it came too late."""
        return await self._granting.take_up(grant, agent_id, key)

    async def wait(self, agent_id: str, key: str, wait_ms: int, *, is_local: bool) -> Claim:
        """A place with its reserved row, now or within `wait_ms`; `Elsewhere` if another node has one; or the refusal.

        A local caller cannot be passed on: only this node may give it a place.
        """
        row = Waiter(
            id=self._ids.mint("wtr"),
            node_id=self._cluster.node.id,
            pool=self._pool.name,
            agent_id=agent_id,
            key=key,
            arrived_at=self._clock(),
            is_local=is_local,
        )
        turn = self._turns[row.id] = _Turn(row)
        entering = asyncio.ensure_future(self._rows.enter(row, self._admission.max_waiters))
        try:
            await asyncio.shield(entering)
            self._granting.heard()
            if not is_local:
                self._cluster.hints.tell(WAITERS, self._pool.name)
            return await self._given_within(turn, wait_ms)
        except QueueFull as error:
            turn.is_out = True
            error.retry_after_ms = self._admission.retry_after_ms(self._admission.max_waiters)
            raise
        except Elsewhere:
            turn.is_passed_on = True
            raise
        except BaseException:
            # The grant and the caller's leaving may meet in one turn of the loop; or its row was written and granted,
            # and nobody could say that it was written. Then the place goes back.
            if _is_given(turn.given):
                self._spawn(self._opening.abandon(turn.given.result()))
            raise
        finally:
            del self._turns[row.id]
            if not turn.given.cancel() and not turn.given.cancelled():
                # Looked at, or asyncio would complain when its caller has left.
                turn.given.exception()
            if not turn.is_out:
                self._leaving.add(row.id)
                self._spawn(self._take_out(turn, entering))

    async def _given_within(self, turn: _Turn, wait_ms: int) -> Claim:
        if (claim := await _settled(turn, wait_ms)) is not None:
            return claim
        line = await self._read()
        if wait_ms < ELSEWHERE_MS and self._may_come_soon(turn, line):
            if (claim := await _settled(turn, ELSEWHERE_MS - wait_ms)) is not None:
                return claim
            line = await self._read()
        refusal = self._refusal(turn.row, line)
        # From here on this node grants it nothing; what was granted before that counts.
        turn.is_leaving = True
        granted_by = await self._rows.leave(turn.row.id)
        if granted_by is None:
            # This node was first, and the answer to its write is on its way.
            if (claim := await _settled(turn, int(ANSWER_S * 1000))) is not None:
                return claim
            raise refusal
        turn.is_out = True
        if granted_by:
            raise Elsewhere(granted_by, turn.row.id)
        raise refusal

    def _may_come_soon(self, turn: _Turn, line: Line) -> bool:
        """Whether it lacks nothing but a place that others may have, or that is being made."""
        if line.full(turn.row.agent_id, turn.row.key) is not None:
            return False
        return self._admission.is_evicting or (self.has_others and not turn.row.is_local)

    # --- What is granted ------------------------------------------------------------------------------------

    def is_waiting(self, waiter_id: str) -> bool:
        turn = self._turns.get(waiter_id)
        return turn is not None and not turn.is_leaving and not turn.given.done()

    def give(self, waiter_id: str, claim: Claim) -> bool:
        turn = self._turns.get(waiter_id)
        if turn is None or turn.given.done():
            return False
        turn.is_out = True
        turn.given.set_result(claim)
        return True

    def saw(self, rows: Sequence[Waiter]) -> None:
        for row in rows:
            if row.node_id != self._cluster.node.id:
                continue
            turn = self._turns.get(row.id)
            if turn is None and row.id not in self._leaving:
                # Its caller has left since the row was read; or it was left behind when something failed.
                self._leaving.add(row.id)
                self._spawn(self._take_out(_Turn(row)))
            elif turn is not None and row.granted_by in self._cluster.membership.peers and not turn.given.done():
                turn.given.set_exception(Elsewhere(row.granted_by, row.id))

    # --- What is heard --------------------------------------------------------------------------------------

    def _heard_of_waiters(self, pool: str) -> None:
        if pool == self._pool.name:
            self._granting.heard()
        elif not pool:
            # Something may have been missed.
            self._granting.look()

    def _heard_of_grant(self, waiter_id: str) -> None:
        if waiter_id in self._turns:
            self._spawn(self._look_at(waiter_id))
        elif not waiter_id and self._turns:
            self._granting.look()

    def _heard_of_leaving(self, waiter_id: str) -> None:
        self._spawn(self._granting.take_back(waiter_id))

    async def _look_at(self, waiter_id: str) -> None:
        try:
            row = await self._rows.get(waiter_id)
        except StoreUnavailable as error:
            # The next look sees it.
            log.info("a grant could not be read", waiterId=waiter_id, error=error.message)
            return
        if row is not None:
            self.saw([row])

    # --- Parts ----------------------------------------------------------------------------------------------

    async def _take_out(self, turn: _Turn, entering: asyncio.Future[None] | None = None) -> None:
        """Remove the row of a caller that is not there any more, also if it is only just being written."""
        if entering is not None:
            await asyncio.wait([entering])
            # Looked at, or asyncio would complain when its caller has left.
            entering.exception()
        try:
            granted_by = await patiently(lambda: self._rows.leave(turn.row.id))
        finally:
            self._leaving.discard(turn.row.id)
        if granted_by and not turn.is_passed_on:
            self._cluster.hints.tell(LEFT, turn.row.id)

    async def _read(self) -> Line:
        return await self._rows.line(await self._rows.read(), self._admission.store_caps)

    def _refusal(self, row: Waiter, line: Line) -> TabherdError:
        position = line.position(row.id) or 1
        full = line.full(row.agent_id, row.key)
        if full is not None:
            cap = full.cap or 0
            retry_after_ms = self._admission.retry_after_ms(position, cap)
            return capacity_refusal(full.reason, line.count(full), cap, position, retry_after_ms)
        if not self._pool.is_ready and not self._cluster.membership.peers:
            return self._pool.refusal()
        # Within the caps, yet every browser is full: more of them are on their way, or cannot be had.
        active = line.active
        return capacity_refusal("pool_cap", active, active, position, self._admission.retry_after_ms(position, active))


async def _settled(turn: _Turn, limit_ms: int) -> Claim | None:
    """What it is given within that time; raises what it is told instead."""
    try:
        async with asyncio.timeout(limit_ms / 1000):
            return await asyncio.shield(turn.given)
    except TimeoutError:
        # The grant and the end of the time may meet in one turn of the loop: then the grant counts.
        return turn.given.result() if _is_given(turn.given) else None


def _is_given(given: asyncio.Future[Claim]) -> bool:
    return given.done() and not given.cancelled() and given.exception() is None
