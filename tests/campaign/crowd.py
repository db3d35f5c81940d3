"""The crowd: so many members of each kind, at work on one or more servers until they are told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final

from playwright.async_api import async_playwright

from tabherd import AsyncTabherd

from .agents import Batching, Browsing, Locking, Member, Submitting
from .ledger import Ledger
from .site import CountingSite
from .wires import Driving, Speaking

# Of a hundred, so many of each kind. The most by far are agents that browse.
MIX: Final[dict[type[Member], int]] = {Browsing: 56, Submitting: 14, Batching: 4, Locking: 12, Driving: 6, Speaking: 8}
# How long the last turn of each may take: everything in it has a time limit of its own.
LAST_TURN_S: Final = 240
# Members that share one client, as the agents of one program do.
PER_HERD: Final = 20


def kinds(count: int) -> list[type[Member]]:
    """So many members in the proportions of the mix, at least one of each kind."""
    assert count >= len(MIX), f"at least {len(MIX)} are needed for all kinds"
    total = sum(MIX.values())
    chosen = [kind for kind, share in MIX.items() for _ in range(max(1, share * count // total))]
    # What rounding down has left, and what the least of one each has taken, is the browsing ones' affair.
    browsing = count - sum(kind is not Browsing for kind in chosen)
    return [Browsing] * browsing + [kind for kind in chosen if kind is not Browsing]


@asynccontextmanager
async def crowd_at_work(
    states: Sequence[Path], site: CountingSite, ledger: Ledger, *, agents: int, think_s: float, seed: int
) -> AsyncIterator[list[Member]]:
    """Members at work on the servers of these state directories, until the block ends; then each ends its turn."""
    async with AsyncExitStack() as stack:
        driver = await stack.enter_async_context(async_playwright())
        members: list[Member] = []
        herds: list[AsyncTabherd] = []
        for number, kind in enumerate(kinds(agents)):
            if number % PER_HERD == 0:
                herds = [
                    await stack.enter_async_context(AsyncTabherd(environ={"TABHERD_STATE": str(state)}))
                    for state in states
                ]
            chance = Random(f"{seed}-{number}")
            herd = herds[number % len(herds)]
            member = kind(f"{kind.kind}{number}", herd, site, ledger, chance, think_s)
            if isinstance(member, Driving):
                member.playwright = driver
            members.append(member)
        running = [asyncio.create_task(_delayed(member, think_s), name=member.name) for member in members]
        try:
            yield members
        finally:
            for member in members:
                member.stop()
            done, late = await asyncio.wait(running, timeout=LAST_TURN_S)
            for task in late:
                ledger.surprise(f"{task.get_name()} hangs in its last turn")
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            for task in done:
                if not task.cancelled() and (error := task.exception()) is not None:
                    ledger.surprise(f"{task.get_name()}: {error!r}")


async def _delayed(member: Member, think_s: float) -> None:
    """Not all at once."""
    await asyncio.sleep(member.chance.uniform(0, think_s))
    await member.run()
