"""How often garbage is looked for."""

from __future__ import annotations

import asyncio
import time

import pytest

from tabherd.edge.sweeping import EVERY_S, SHARE_MAX, sweep_forever


async def waits(look_s: list[float]) -> list[float]:
    """How long is waited before each look, when they take that long."""
    now_s, slept = 0.0, list[float]()
    left = iter(look_s)

    async def sleep(wait_s: float) -> None:
        slept.append(wait_s)

    def collect() -> None:
        nonlocal now_s
        try:
            now_s += next(left)
        except StopIteration:
            raise asyncio.CancelledError from None

    with pytest.raises(asyncio.CancelledError):
        await sweep_forever(collect, lambda: now_s, sleep)
    return slept


async def test_garbage_is_looked_for_every_minute() -> None:
    assert await waits([0.01, 0.02]) == [EVERY_S] * 3


async def test_the_more_there_is_to_look_through_the_later_is_the_next_look() -> None:
    first, second, third, fourth = await waits([0.01, 3.0, 0.01])
    assert (first, second, fourth) == (EVERY_S, EVERY_S, EVERY_S)
    assert third == pytest.approx(3.0 / SHARE_MAX)


async def test_that_the_machine_was_busy_with_something_else_makes_no_look_later() -> None:
    slept = list[float]()

    async def sleep(wait_s: float) -> None:
        slept.append(wait_s)
        if len(slept) == 2:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        # Twice as long as would be too long, were it work.
        await sweep_forever(lambda: time.sleep(2 * EVERY_S * SHARE_MAX), sleep=sleep)
    assert slept == [EVERY_S] * 2
