"""Whether the store takes writes: found out by a write, for whoever asks if this node could open a session.

A disk that has become read-only or full still reads, and says so only to those who write. So the question is a write of
its own, which changes nothing. Anybody may ask, without a credential: so one answer serves all who ask within a moment,
and no more than one write of this kind is ever under way.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from ..errors import StoreUnavailable
from ..store.base import Add, Store

log = structlog.get_logger("store")

# For so long an answer stands; also when to come back.
FRESH_S: Final = 1.0
# A store that takes longer over so little would let a session wait as well. Above what a locked file is waited for.
LIMIT_S: Final = 3.0
# Moved by nothing: the write is what counts.
COUNTER: Final = "ready"


class Readiness:
    """Asks the store of one node."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # The question that is under way.
        self._asking: asyncio.Task[None] | None = None
        # When the last one was answered, by the loop's clock, and what was wrong then; empty: nothing.
        self._answered_at: float | None = None
        self._cause = ""

    async def refuse_unwritable(self) -> None:
        """Raise `StoreUnavailable` if nothing could be written a moment ago."""
        if not self._is_fresh():
            if self._asking is None:
                self._asking = asyncio.create_task(self._ask(), name="readiness")
            asking = self._asking
            # Whoever leaves takes nobody else's answer away.
            await asyncio.wait([asking], timeout=LIMIT_S)
            if not asking.done():
                raise _unwritable("slow")
            asking.result()
        if self._cause:
            raise _unwritable(self._cause)

    def _is_fresh(self) -> bool:
        return self._answered_at is not None and asyncio.get_running_loop().time() - self._answered_at < FRESH_S

    async def _ask(self) -> None:
        try:
            await self._store.apply(Add(COUNTER, 0))
            self._cause = ""
        except StoreUnavailable as error:
            if not self._cause:
                log.warning("the store takes no writes", error=error.message)
            self._cause = str(error.details.get("cause", "unknown"))
        finally:
            self._answered_at = asyncio.get_running_loop().time()
            self._asking = None


def _unwritable(cause: str) -> StoreUnavailable:
    """What a stranger may hear of it: not where the store is."""
    return StoreUnavailable(
        "Nothing can be written to the store now.",
        action="The server's log says what is wrong with it; work resumes by itself.",
        retry_after_ms=int(FRESH_S * 1_000),
        cause=cause,
    )
