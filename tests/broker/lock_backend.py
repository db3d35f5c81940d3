"""A domain of locks that outlives every broker of a test and that other programs share, on virtual time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from tabherd.errors import LockTimedOut
from tabherd.locks.base import AnyHold, AsyncHold, Counts, Holder, LockKey, LockRow, LockStoreUnavailable

PROGRAM = Holder(pid=77, host="elsewhere", label="a script")


class SharedHold:
    """Implements `AsyncHold`; free when it is released, or when whoever holds it dies."""

    def __init__(self, domain: SharedDomain, key: LockKey, holder: Holder, generation: int) -> None:
        self._domain = domain
        self.key = key
        self.holder = holder
        self.generation = generation
        self.acquired_at = domain.clock()
        self._told: Callable[[], None] = lambda: None

    def check(self) -> None:
        """It is not asked here."""

    def on_lost(self, told: Callable[[], None]) -> None:
        self._told = told

    async def release(self) -> None:
        await asyncio.sleep(0)
        self._domain.free(self)

    def lose(self) -> None:
        """The connection that has it breaks."""
        self._domain.free(self)
        self._told()


class SharedDomain:
    """Implements `AsyncBackend`: first come, first served, whichever program comes."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.holds: dict[LockKey, SharedHold] = {}
        # Raised by everything while it is set.
        self.broken: LockStoreUnavailable | None = None
        # Every acquisition that waited, and how long it was willing to.
        self.patience_s: list[float] = []
        self.closed = 0
        # The lives of nodes whose connections were to be ended.
        self.expelled: list[str] = []
        self._generations: dict[LockKey, int] = {}
        self._lines: dict[LockKey, deque[asyncio.Future[None]]] = {}

    async def acquire(self, key: LockKey, timeout_s: float, holder: Holder, beside: AnyHold | None = None) -> AsyncHold:
        self.patience_s.append(timeout_s)
        if (hold := await self.try_acquire(key, holder)) is not None:
            return hold
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._lines.setdefault(key, deque())
        line.append(turn)
        try:
            async with asyncio.timeout(timeout_s):
                await turn
            return self._take(key, holder)
        except TimeoutError:
            raise LockTimedOut("Too late.", name=key.label) from None
        finally:
            line.remove(turn)

    async def try_acquire(self, key: LockKey, holder: Holder, beside: AnyHold | None = None) -> AsyncHold | None:
        await asyncio.sleep(0)
        if self.broken is not None:
            raise self.broken
        return None if key in self.holds else self._take(key, holder)

    async def list(self) -> list[LockRow]:
        rows = [
            LockRow(
                label=key.label,
                pair=key.pair,
                holder=hold.holder,
                acquired_at=hold.acquired_at,
                waiters=(PROGRAM,) * len(self._lines.get(key, ())),
                counts=Counts(skips=1),
            )
            for key, hold in self.holds.items()
        ]
        if self.broken is not None:
            raise self.broken
        return rows

    async def expel(self, marker: str) -> int:
        self.expelled.append(marker)
        return 0

    async def close(self) -> None:
        self.closed += 1

    def free(self, hold: SharedHold) -> None:
        if self.holds.get(hold.key) is hold:
            del self.holds[hold.key]
            for turn in self._lines.get(hold.key, ()):
                if not turn.done():
                    turn.set_result(None)
                    break

    def die(self) -> None:
        """The process that has all of them is killed."""
        for hold in list(self.holds.values()):
            self.free(hold)

    def _take(self, key: LockKey, holder: Holder) -> SharedHold:
        assert key not in self.holds, f"two programs have {key.label}"
        self._generations[key] = self._generations.get(key, 0) + 1
        hold = self.holds[key] = SharedHold(self, key, holder, self._generations[key])
        return hold
