"""A domain of locks that no other program shares: what a server has that was given no backend.

Nothing survives it and nobody else is excluded by it; the server's own lines already see to it that one caller at a
time asks for a name. For tests and the simulator, which run on virtual time and must start no thread.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import LockTimedOut
from ..locks.base import AnyHold, AsyncHold, Holder, LockKey, LockRow


class LoneHold:
    """Implements `AsyncHold`."""

    def __init__(self, domain: LoneDomain, key: LockKey, holder: Holder, acquired_at: int) -> None:
        self._domain = domain
        self._holder = holder
        self.key = key
        self.acquired_at = acquired_at
        # Nobody else can have had it in between, but neither could anybody count.
        self.generation: int | None = None

    def check(self) -> None:
        """It cannot be lost."""

    def on_lost(self, told: Callable[[], None]) -> None:
        """It cannot be lost."""

    async def release(self) -> None:
        self._domain.forget(self.key)

    def row(self) -> LockRow:
        return LockRow(label=self.key.label, holder=self._holder, acquired_at=self.acquired_at)


class LoneDomain:
    """Implements `AsyncBackend`."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._holds: dict[LockKey, LoneHold] = {}

    async def acquire(self, key: LockKey, timeout_s: float, holder: Holder, beside: AnyHold | None = None) -> AsyncHold:
        hold = await self.try_acquire(key, holder)
        if hold is None:
            # Whoever has it is a caller of the same server, which asks for a name only when nobody has it.
            raise LockTimedOut("The lock is held.", name=key.label)
        return hold

    async def try_acquire(self, key: LockKey, holder: Holder, beside: AnyHold | None = None) -> AsyncHold | None:
        if key in self._holds:
            return None
        hold = self._holds[key] = LoneHold(self, key, holder, self._clock())
        return hold

    async def list(self) -> list[LockRow]:
        return [hold.row() for hold in self._holds.values()]

    async def expel(self, marker: str) -> int:
        return 0

    async def close(self) -> None:
        self._holds.clear()

    def forget(self, key: LockKey) -> None:
        """It is free. Idempotent."""
        self._holds.pop(key, None)
