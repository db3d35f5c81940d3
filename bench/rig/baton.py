"""How long nobody has what many want: from one holder's last moment with it to the next one's first.

Each holder keeps it until everybody else is in the queue again, so that it always goes to one who waits, behind whom
the others wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

# What a holder does while it is the only one.
Carry: TypeAlias = Callable[[], Awaitable[None]]
# Has the thing to itself while it runs the function; told which of the runners it is.
Hold: TypeAlias = Callable[[int, Carry], Awaitable[None]]


async def gaps_us(hold: Hold, waiting: int, handovers: int) -> list[float]:
    """So many hand-overs, with so many who wait each time, in microseconds."""
    baton = _Baton(waiting, handovers)

    async def runner(number: int) -> None:
        while not baton.is_over:
            baton.want()
            await hold(number, baton.carry)
            await baton.passed_on()

    await asyncio.gather(*(runner(number) for number in range(waiting + 1)))
    return baton.gaps_us


class _Baton:
    """Knows when it was dropped and when it was picked up."""

    def __init__(self, waiting: int, handovers: int) -> None:
        self.gaps_us: list[float] = []
        self._others = waiting
        self._handovers = handovers
        # Runners that want it.
        self._wanted = 0
        self._dropped_ns: int | None = None
        # Settled when it is picked up again.
        self._picked_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_over(self) -> bool:
        return len(self.gaps_us) >= self._handovers

    def want(self) -> None:
        self._wanted += 1

    async def carry(self) -> None:
        taken_ns = time.perf_counter_ns()
        if self._dropped_ns is not None:
            self.gaps_us.append((taken_ns - self._dropped_ns) / 1000)
        self._picked_up.set_result(None)
        self._wanted -= 1
        while self._wanted < self._others and not self.is_over:
            await asyncio.sleep(0)
        self._picked_up = asyncio.get_running_loop().create_future()
        self._dropped_ns = time.perf_counter_ns()

    async def passed_on(self) -> None:
        """Until the next one has it: who comes again must not be in its way, as it would not after a round trip."""
        if not self.is_over:
            await self._picked_up
