"""What `top` knows at one moment, and how it is asked for."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec

from .. import wire
from ..client.aio import AsyncTabherd


class AgentLoad(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """What one agent has and waits for."""

    sessions: int
    tabs: int
    # Of its tabs, those that somebody has just now: a command, a lock, a person.
    held: int
    # Commands and locks of its own that wait for a turn, on whichever tab.
    waiting: int


class Snapshot(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """One frame's worth; what `--json` prints."""

    url: str
    # False: there is no answer just now, and what follows is from before.
    is_connected: bool = msgspec.field(name="connected")
    # Why there is no answer; empty while there is.
    problem: str = ""
    version: str
    node: str
    is_ready: bool = msgspec.field(name="ready")
    is_draining: bool = msgspec.field(name="draining")
    pools: dict[str, wire.PoolStats]
    browsers: list[wire.BrowserView]
    agents: dict[str, AgentLoad]
    tabs: list[wire.TabView]
    # As /events tells them, oldest first.
    events: list[dict[str, Any]] = []


async def look(herd: AsyncTabherd) -> Snapshot:
    """Ask for everything at once."""
    health, is_ready, stats, browsers, tabs = await asyncio.gather(
        herd.health(), herd.is_ready(), herd.stats(), herd.browsers(), herd.tabs()
    )
    return Snapshot(
        url=herd.url,
        is_connected=True,
        version=health.version,
        node=health.node,
        is_ready=is_ready,
        is_draining=stats.draining,
        pools=stats.pools,
        browsers=browsers,
        agents=loads(tabs),
        tabs=tabs,
    )


def loads(tabs: list[wire.TabView]) -> dict[str, AgentLoad]:
    """Per agent, the busiest first. A session is counted by its tabs: it has at least one."""
    owned = Counter(tab.agent_id for tab in tabs)
    held = Counter(tab.agent_id for tab in tabs if tab.holder is not None)
    sessions = Counter(agent_id for agent_id, _ in {(tab.agent_id, tab.session_id) for tab in tabs})
    waiting = Counter(waiter.agent_id for tab in tabs for waiter in tab.waiters)
    agents = sorted(owned | waiting, key=lambda agent: (-waiting[agent], -sessions[agent], agent))
    return {
        agent: AgentLoad(sessions=sessions[agent], tabs=owned[agent], held=held[agent], waiting=waiting[agent])
        for agent in agents
    }
