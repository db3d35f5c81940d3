"""A crowd that opens sessions, holds them for a moment and gives them back, at several nodes at once, again and again.

It keeps its own count of what is held: from the answer that a session is open until the request that ends it, which is
within the time that the cluster counts it. So a crowd that ever holds more than a cap has proven that it was exceeded.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from .caller import Line, now_ms
from .server import Server

# Longer than anybody has to wait here.
WAIT_MS: Final = 60_000
# For the last ones to give back what they have.
END_LIMIT_S: Final = 90.0


class Crowd(msgspec.Struct, frozen=True, kw_only=True):
    """Who comes, and what each does."""

    # How many callers each agent has, by its name; spread over the nodes in turns.
    callers: dict[str, int]
    # How long each holds a session, and waits before it asks for the next.
    hold_s: float
    pause_s: float


class Found(msgspec.Struct, kw_only=True):
    """What the crowd saw."""

    # From asking for a session to the answer.
    opens_ms: list[float] = []
    # Sessions that each agent was given.
    given: Counter[str] = msgspec.field(default_factory=Counter)
    # Sessions that were held at once, now and at the most.
    held: int = 0
    held_max: int = 0

    @property
    def jain(self) -> float:
        """Jain's index of the agents' shares: 1 when all got as much, 1/n when one got it all."""
        shares = list(self.given.values())
        return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


async def hammer(nodes: Sequence[Server], crowd: Crowd, seconds: float) -> Found:
    """Let the crowd loose for so long; everything is given back afterwards."""
    names = [name for name, callers in crowd.callers.items() for _ in range(callers)]
    found = Found(given=Counter(dict.fromkeys(crowd.callers, 0)))
    ends_s = time.monotonic() + seconds
    async with asyncio.timeout(seconds + END_LIMIT_S), asyncio.TaskGroup() as group:
        for number, name in enumerate(names):
            group.create_task(_come_and_go(nodes[number % len(nodes)], name, crowd, ends_s, found))
    assert found.held == 0, f"{found.held} sessions were not given back"
    return found


async def _come_and_go(node: Server, agent: str, crowd: Crowd, ends_s: float, found: Found) -> None:
    line = await Line.open(node.url, node.token)
    try:
        while time.monotonic() < ends_s:
            began = now_ms()
            session = await line.call("POST", "/sessions", {"agentId": agent, "waitMs": WAIT_MS})
            # Those who were still in the queue at the end are not part of it: nobody competes with them any more.
            if time.monotonic() < ends_s:
                found.opens_ms.append(now_ms() - began)
                found.given[agent] += 1
            found.held += 1
            found.held_max = max(found.held_max, found.held)
            await asyncio.sleep(crowd.hold_s)
            found.held -= 1
            await line.call("DELETE", f"/sessions/{session['sessionId']}?disposition=close")
            await asyncio.sleep(crowd.pause_s)
    finally:
        line.close()
