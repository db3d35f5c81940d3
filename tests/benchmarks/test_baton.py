"""Hand-overs are measured from holder to waiting holder, as often as was asked."""

from __future__ import annotations

import asyncio

from bench.rig.baton import Carry, gaps_us


async def test_every_handover_goes_to_one_of_as_many_waiters_as_were_asked_for() -> None:
    lock = asyncio.Lock()
    order: list[int] = []
    waiting: list[int] = []

    async def hold(number: int, carry: Carry) -> None:
        async with lock:
            order.append(number)
            await carry()
            waiting.append(len(lock._waiters or ()))

    gaps = await gaps_us(hold, waiting=3, handovers=20)

    assert len(gaps) >= 20
    assert min(gaps) > 0
    # The first comes round while the others line up; the last ones find that it is over.
    assert set(waiting[:20]) == {3}
    assert order[:8] == [0, 1, 2, 3, 0, 1, 2, 3]
