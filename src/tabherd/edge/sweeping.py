"""Frees what refers to itself, by the clock instead of by how much was allocated since the last time.

A session and its tabs refer to each other, and an error to the frames that it came through: what has ended stays in
memory until the collector comes by. Its thresholds are high, for the sake of requests, so that a server of a hundred
agents would grow for hours before it does. Invariant: no more than a thousandth of the time goes into this, however
much there is to look through. What counts is the processor's time: a machine that is busy with something else makes one
look long, and then what has ended would pile up behind it.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from typing import Final

# How often it is looked, as long as that is quick.
EVERY_S: Final = 60.0
SHARE_MAX: Final = 1 / 1_000


async def sweep_forever(
    collect: Callable[[], object] = gc.collect,
    clock: Callable[[], float] = time.thread_time,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Again and again, until cancelled. The longer one look takes, the later is the next."""
    wait_s = EVERY_S
    while True:
        await sleep(wait_s)
        began_s = clock()
        collect()
        wait_s = max(EVERY_S, (clock() - began_s) / SHARE_MAX)
