"""The way of one caller to its session: a place first, then what is made in it.

Waiting for a place can be given up at any time; what comes after it ends by itself, and if the caller has left
meanwhile, so does the session. Where several nodes share the store the place may be on another one: then `Elsewhere` is
raised, and the request begins anew there, with the place that is kept for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from .. import wire
from ..browsers.pool import Pool
from ..errors import Draining
from .admission import Admission
from .claim import Claim
from .ids import Ids
from .leases import Leases
from .opening import Contended, Opening
from .patience import patiently
from .pooling import Pooling
from .registry import LiveSession
from .shared_admission import SharedAdmission

OnPlace = Callable[[], None]


class Entering:
    """Takes callers in."""

    def __init__(
        self,
        *,
        admissions: Mapping[str, Admission],
        shared: Mapping[str, SharedAdmission],
        leases: Leases,
        opening: Opening,
        pooling: Pooling,
        ids: Ids,
        refuse_when_draining: Callable[[], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._admissions = admissions
        # By pool; empty: no other node shares the store.
        self._shared = shared
        self._leases = leases
        self._opening = opening
        self._pooling = pooling
        self._ids = ids
        self._refuse_when_draining = refuse_when_draining
        # Runs work that must end even if the caller leaves.
        self._spawn = spawn

    def refuse(self, pool: Pool, *, is_local: bool) -> None:
        """Raise `Draining` when there can be no place for such a caller: not here, and not elsewhere."""
        try:
            self._refuse_when_draining()
        except Draining:
            shared = self._shared.get(pool.name)
            if shared is None or is_local or not shared.has_others:
                raise

    async def kept(self, pool: Pool, grant: str, agent_id: str, key: str) -> Claim | None:
        """The place that this node has granted to a caller of another one."""
        shared = self._shared.get(pool.name)
        return await shared.take_up(grant, agent_id, key) if grant and shared is not None else None

    async def enter(
        self, pool: Pool, agent_id: str, request: wire.OpenSession, wait_ms: int, on_place: OnPlace, *, is_local: bool
    ) -> LiveSession:
        """One place, one browser. `on_place` hears when the caller need not wait for others any more."""
        wait_ms = max(0, wait_ms)
        shared = self._shared.get(pool.name)
        if shared is None:
            claim = await self._admissions[pool.name].claim(self._ids.mint("ses"), agent_id, request.key, wait_ms)
            on_place()
            return await self._to_the_end(self._opening.make(pool, claim, request, self._pooling.choose))
        free = shared.take_now(self._ids.mint("ses"), agent_id, request.key)
        if free is not None:
            try:
                return await self._to_the_end(self._make_unless_awaited(pool, shared, free, request, on_place))
            except Contended:
                # Somebody waits, here or elsewhere, or a cap is reached: then this caller waits as well.
                pass
        claim = await shared.wait(agent_id, request.key, wait_ms, is_local=is_local)
        return await self.take_up(pool, claim, request, on_place)

    async def take_up(self, pool: Pool, claim: Claim, request: wire.OpenSession, on_place: OnPlace) -> LiveSession:
        """What was granted to the caller while it waited."""
        on_place()
        return await self._to_the_end(self._opening.take_up(pool, claim, request))

    async def _make_unless_awaited(
        self, pool: Pool, shared: SharedAdmission, claim: Claim, request: wire.OpenSession, on_place: OnPlace
    ) -> LiveSession:
        await self._opening.reserve(pool, claim, request, self._pooling.choose, shared.nobody_waits())
        on_place()
        return await self._opening.create(pool, claim, request)

    async def _to_the_end(self, work: Coroutine[Any, Any, LiveSession]) -> LiveSession:
        making = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            self._spawn(self._end_unwanted(making))
            raise

    async def _end_unwanted(self, making: asyncio.Future[LiveSession]) -> None:
        await asyncio.wait([making])
        if making.exception() is None:
            live = making.result()
            await patiently(lambda: self._leases.end(live, "caller_left"))
