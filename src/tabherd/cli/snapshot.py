"""What `top` knows at one moment, and how it is asked for.

Invariants: of tasks no more are asked for than are shown, and that there are more is said; what the credential may not
see is left out with the server's reason, and the rest is there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from .. import wire
from ..client.aio import AsyncTabherd
from ..errors import Forbidden

Found = TypeVar("Found")

# Tasks that are shown; thousands may wait.
TASKS_MAX: Final = 200
# Those in which a session has a place that somebody may miss.
SESSION_STATES: Final = ("active", "recovering", "closing")
NO_QUEUE: Final = wire.QueueStats(total_queued=0, total_inflight=0, agents={})


class AgentLoad(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """What one agent has and waits for."""

    sessions: int
    tabs: int
    # Of its tabs, those that somebody has just now: a command, a lock, a person.
    held: int
    # Commands and locks of its own that wait for a turn, on whichever tab.
    waiting: int
    # Its tasks that wait for their turn, and those that run.
    queued: int = 0
    inflight: int = 0


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
    # Those that are open or being ended, oldest first, without their addresses: these would let in who reads them.
    sessions: list[wire.SessionView] = []
    agents: dict[str, AgentLoad]
    tabs: list[wire.TabView]
    # How many tasks wait and run, of each agent.
    queue: wire.QueueStats = NO_QUEUE
    # Those that wait or run, newest first.
    tasks: list[wire.TaskView] = []
    # Whether more tasks wait than are listed; those that run are listed before any that waits.
    has_more_tasks: bool = msgspec.field(name="moreTasks", default=False)
    # Named locks that are held or waited for; the locks of tabs are with their tabs.
    locks: list[wire.HeldLock] = []
    # What the credential may not see ("tasks", "locks"), and what the server says about it.
    refused: dict[str, str] = {}
    # As /events tells them, oldest first.
    events: list[dict[str, Any]] = []


async def look(herd: AsyncTabherd) -> Snapshot:
    """Ask for everything at once."""
    (health, is_ready, stats), (browsers, tabs, sessions), (tasks, no_tasks), (locks, no_locks) = await asyncio.gather(
        asyncio.gather(herd.health(), herd.is_ready(), herd.stats(all_waiters=True)),
        asyncio.gather(herd.browsers(), herd.tabs(), _sessions(herd)),
        _if_allowed(_tasks(herd), (NO_QUEUE, [], False)),
        _if_allowed(herd.locks(), []),
    )
    queue, unfinished, has_more = tasks
    refusals = {"tasks": no_tasks, "locks": no_locks}
    return Snapshot(
        url=herd.url,
        is_connected=True,
        version=health.version,
        node=health.node,
        is_ready=is_ready,
        is_draining=stats.draining,
        pools=stats.pools,
        browsers=browsers,
        sessions=sessions,
        agents=loads(tabs, queue.agents),
        tabs=tabs,
        queue=queue,
        tasks=unfinished,
        has_more_tasks=has_more,
        locks=locks,
        refused={part: said for part, said in refusals.items() if said},
    )


def loads(tabs: list[wire.TabView], queues: Mapping[str, wire.AgentQueue] | None = None) -> dict[str, AgentLoad]:
    """Per agent, the busiest first. A session is counted by its tabs: it has at least one."""
    queues = queues or {}
    owned = Counter(tab.agent_id for tab in tabs)
    held = Counter(tab.agent_id for tab in tabs if tab.holder is not None)
    sessions = Counter(agent_id for agent_id, _ in {(tab.agent_id, tab.session_id) for tab in tabs})
    waiting = Counter(waiter.agent_id for tab in tabs for waiter in tab.waiters)
    queued = Counter({agent: queue.queued for agent, queue in queues.items()})
    inflight = Counter({agent: queue.inflight for agent, queue in queues.items()})
    agents = owned | waiting | queued | inflight
    return {
        agent: AgentLoad(
            sessions=sessions[agent],
            tabs=owned[agent],
            held=held[agent],
            waiting=waiting[agent],
            queued=queued[agent],
            inflight=inflight[agent],
        )
        for agent in sorted(agents, key=lambda agent: (-waiting[agent], -sessions[agent], agent))
    }


async def _sessions(herd: AsyncTabherd) -> list[wire.SessionView]:
    found = await asyncio.gather(*(herd.sessions(state=state) for state in SESSION_STATES))
    # One that changed its state in between may have been found twice.
    by_id = {view.session_id: view for views in found for view in views}
    return [
        msgspec.structs.replace(by_id[session_id], cdp_url="", web_socket_debugger_url="")
        for session_id in sorted(by_id)
    ]


async def _tasks(herd: AsyncTabherd) -> tuple[wire.QueueStats, list[wire.TaskView], bool]:
    """The counts, what is listed, and whether there is more."""
    stats, running, assigned, queued = await asyncio.gather(
        herd.scheduler_stats(),
        herd.tasks(state="running", newest_first=True, limit=TASKS_MAX + 1),
        herd.tasks(state="assigned", newest_first=True, limit=TASKS_MAX + 1),
        herd.tasks(state="queued", newest_first=True, limit=TASKS_MAX + 1),
    )
    # By id, since one may have begun in between; those that run come first, so that the oldest are not cut.
    by_id = {view.task_id: view for view in (*queued, *assigned, *running)}
    kept = list({view.task_id: None for view in (*running, *assigned, *queued)})
    listed = sorted(kept[:TASKS_MAX], reverse=True)
    return stats.queue, [by_id[task_id] for task_id in listed], len(kept) > TASKS_MAX


async def _if_allowed(asked: Awaitable[Found], nothing: Found) -> tuple[Found, str]:
    """What was asked for; or nothing, and why the credential may not see it."""
    try:
        return await asked, ""
    except Forbidden as error:
        return nothing, error.message
