"""Tells a caller that waits where it stands: its place in the queue and when its turn may come.

Only those who asked to be told cost anything. Looking never takes part in the queue, so it cannot lose a place in it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from .. import wire
from ..client.aio import AsyncTab, AsyncTabherd, AsyncTask
from ..errors import TabherdError
from ..quoting import quoted

# Most calls are over by then.
FIRST_LOOK_S: Final = 0.5
EVERY_S: Final = 2.0

# Takes the seconds waited so far and a sentence; None: nobody asked.
Report = Callable[[float, str], Awaitable[None]] | None
# What is waited for at the moment, in a sentence; None: nothing.
Look = Callable[[], Awaitable[str | None]]
Done = TypeVar("Done")


async def told_while(work: Awaitable[Done], look: Look, report: Report) -> Done:
    """What the work answers; meanwhile its caller is told what it waits for."""
    if report is None:
        return await work
    telling = asyncio.create_task(_tell(look, report))
    try:
        return await work
    finally:
        telling.cancel()


async def _tell(look: Look, report: Callable[[float, str], Awaitable[None]]) -> None:
    began_s = time.monotonic()
    wait_s = FIRST_LOOK_S
    # It ends with the work, which has a limit of its own.
    while True:
        await asyncio.sleep(wait_s)
        wait_s = EVERY_S
        try:
            said = await look()
        except TabherdError:
            # A courtesy: whatever is wrong, the work itself will say it.
            continue
        if said is not None:
            await report(time.monotonic() - began_s, said)


def in_pool(herd: AsyncTabherd, pool: str) -> Look:
    """Looks for the agent's place among those who wait for a session."""

    async def look() -> str | None:
        stats = (await herd.stats()).pools.get(pool)
        if stats is None or not stats.waiters:
            return None
        first = stats.waiters[0]
        return (
            f"Waiting for a session: place {first.position} of {stats.waiting}, "
            f"about {seconds(first.expected_wait_ms)} to go."
        )

    return look


def for_tab(tab: AsyncTab) -> Look:
    """Looks who has the tab that the command waits for."""

    async def look() -> str | None:
        view = await tab.view()
        own = [waiter for waiter in view.waiters if waiter.agent_id == tab.session.agent]
        if not own or view.holder is None:
            return None
        whose = f"{view.holder.reason} of {quoted(view.holder.controller_id)}"
        return (
            f"Waiting for {tab.id}, which {whose} has: place {own[0].position} of {len(view.waiters)}, "
            f"about {seconds(view.expected_wait_ms)} to go."
        )

    return look


def for_task(task: AsyncTask) -> Look:
    """Looks how far the task is."""

    async def look() -> str | None:
        return f"Waiting for {task.id}, which is {standing(await task.status())}."

    return look


def standing(view: wire.TaskView) -> str:
    """How far a task is that is not over."""
    if view.position is None:
        return view.state
    return f"{view.state}: place {view.position}, about {seconds(view.eta_ms or 0)} to go"


def seconds(ms: int) -> str:
    """A time as people say it."""
    return f"{ms / 1000:.1f} s" if ms < 10_000 else f"{ms // 1000} s"
