"""Snapshots of `top` for tests that need no server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from tests.client.canned import BROWSER, QUEUED_TASK, SESSION, STATS, TAB

from tabherd import wire
from tabherd.cli.snapshot import Snapshot, loads

NOW = datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)
SINCE = "2026-01-01T00:00:03.000Z"
HOLDER = {"reason": "command", "controllerId": "c", "since": SINCE, "kind": "click", "commandId": "cmd_1"}
LOCKED = {"reason": "tab_lock", "controllerId": "c", "since": SINCE, "expiresAt": "2026-01-01T00:01:10.000Z"}


def waiter(agent: str, position: int) -> dict[str, Any]:
    return {"controllerId": "c", "agentId": agent, "kind": "text", "position": position, "since": SINCE}


def tab(number: int = 1, agent: str = "alice", waiters: Sequence[str] = (), **changes: Any) -> wire.TabView:
    """The one of session `number`, at https://x.test/, for which those agents wait."""
    fields = {
        "tabId": f"tab_{number:023}",
        "sessionId": f"ses_{number:023}",
        "agentId": agent,
        "url": "https://x.test/",
        "waiters": [waiter(name, position) for position, name in enumerate(waiters, 1)],
    }
    return msgspec.convert(TAB | fields | changes, wire.TabView)


def session(number: int = 1, agent: str = "alice", **changes: Any) -> wire.SessionView:
    fields = {"sessionId": f"ses_{number:023}", "agentId": agent, "browserId": f"brw_{number % 2:023}"}
    return msgspec.convert(SESSION | fields | changes, wire.SessionView)


def task(number: int = 1, agent: str = "alice", **changes: Any) -> wire.TaskView:
    return msgspec.convert(QUEUED_TASK | {"taskId": f"tsk_{number:023}", "agentId": agent} | changes, wire.TaskView)


def lock(name: str = "deploy", **changes: Any) -> wire.HeldLock:
    fields = {"name": name, "held": True, "holder": "bob/ci", "agentId": "bob", "acquiredAt": SINCE, "waiters": 0}
    return msgspec.convert(fields | changes, wire.HeldLock)


def snapshot(tabs: list[wire.TabView], browsers: int = 1, **changes: Any) -> Snapshot:
    """The tabs, and what else is said; twenty events."""
    pools = msgspec.convert(STATS["pools"], dict[str, wire.PoolStats])
    found = Snapshot(
        url="http://127.0.0.1:1",
        is_connected=True,
        version="9.9",
        node="nod_1",
        is_ready=True,
        is_draining=False,
        pools=pools,
        browsers=[msgspec.convert(BROWSER | {"browserId": f"brw_{n:023}"}, wire.BrowserView) for n in range(browsers)],
        agents=loads(tabs),
        tabs=tabs,
        events=[{"id": f"1-{n}", "type": "tab.opened", "at": f"2026-01-01T00:00:{n:02}.000Z"} for n in range(20)],
    )
    return msgspec.structs.replace(found, **changes)


def crowd(count: int = 30, **changes: Any) -> Snapshot:
    """As many sessions of seven agents, each with a tab, and tasks and locks; some are held and waited for."""
    agents = [f"agent-{n % 7}" for n in range(count)]
    holders = (HOLDER, LOCKED, None)
    tabs = [
        tab(
            n,
            agent,
            waiters=["bob", "bob"] if n % 5 == 0 else [],
            holder=holders[n % 3],
            url=f"https://shop{n}.test/" + "y" * 200,
        )
        for n, agent in enumerate(agents)
    ]
    found = snapshot(
        tabs,
        browsers=2,
        sessions=[session(n, agent) for n, agent in enumerate(agents)],
        tasks=[task(n, agent, params={"url": "y" * 300}) for n, agent in reversed([*enumerate(agents)])],
        locks=[lock(f"lock-{n}", waiters=n) for n in range(5)],
    )
    return msgspec.structs.replace(found, **changes)
