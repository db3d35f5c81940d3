"""What a server is like, looked at from outside every few seconds: memory, descriptors, threads, and what is stuck."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil
from bench.rig.memory import weight

from tabherd import AsyncTabherd
from tabherd.wire import PoolStats, TabView

# Commands have 30 s, and a page that is stuck is replaced within seconds more.
TAB_STUCK_S: Final = 60
# The longest that anybody may wait for a session is 120 s.
WAITER_STUCK_S: Final = 125


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One look."""

    # Since the soak began.
    at_s: float
    rss_mb: float
    pss_mb: float
    fds: int
    threads: int
    # Of the event loop that are not done; -1: it has not been seen yet.
    tasks: int
    # Of Python's small objects, in thousands, and of everything else that was asked of the C library: what lives, while
    # the sizes above also count what was freed and is kept for the next.
    blocks_k: float
    malloc_mb: float
    # The store with its log.
    store_mb: float
    # All files of the state directory that are not a browser's.
    state_mb: float
    sessions: int
    waiting: int
    browsers: int
    # All browsers' processes together.
    browsers_pss_mb: float
    stuck: list[str]


class Sampler:
    """Looks at one server."""

    def __init__(self, state: Path, herd: AsyncTabherd, began_s: float) -> None:
        self._state = state
        self._herd = herd
        self._began_s = began_s

    async def look(self) -> Sample:
        record = json.loads((self._state / "server.json").read_text())
        broker = psutil.Process(record["pid"])
        stats = await self._herd.stats()
        tabs, browsers = await self._herd.tabs(), await self._herd.browsers()
        pools, inside = list(stats.pools.values()), self._inside()
        with broker.oneshot():
            rss_mb, fds, threads = broker.memory_info().rss / 2**20, broker.num_fds(), broker.num_threads()
        return Sample(
            at_s=round(time.monotonic() - self._began_s, 1),
            rss_mb=round(rss_mb, 2),
            pss_mb=round(weight(broker.pid).pss_mb, 2),
            fds=fds,
            threads=threads,
            tasks=inside.get("tasks", -1),
            blocks_k=round(inside.get("blocks", 0) / 1_000, 1),
            malloc_mb=round(inside.get("malloced", 0) / 2**20, 2),
            store_mb=round(sum(map(_size, self._state.glob("tabherd.db*"))) / 2**20, 3),
            state_mb=round(sum(map(_size, self._own_files())) / 2**20, 3),
            sessions=stats.sessions,
            waiting=sum(pool.waiting for pool in pools),
            browsers=sum(pool.browsers for pool in pools),
            browsers_pss_mb=round(sum(browser.memory_bytes or 0 for browser in browsers) / 2**20, 1),
            stuck=[*_stuck_tabs(tabs), *_stuck_waiters(pools)],
        )

    def _inside(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self._state / "inside.json").read_text())
            return found
        except (FileNotFoundError, json.JSONDecodeError):
            return {}

    def _own_files(self) -> list[Path]:
        found = []
        for directory, below, names in os.walk(self._state):
            if "profiles" in below:
                below.remove("profiles")
            found += [Path(directory, name) for name in names]
        return found


def _stuck_tabs(tabs: list[TabView]) -> list[str]:
    """Tabs that somebody has had for longer than any command may take, and tabs on their way for as long."""
    return [
        f"{tab.tab_id} is {tab.state} and held since {tab.holder.since}"
        for tab in tabs
        if tab.holder is not None and _age_s(tab.holder.since) > TAB_STUCK_S
    ]


def _stuck_waiters(pools: list[PoolStats]) -> list[str]:
    return [
        f"somebody waits since {pool.waiting_since}"
        for pool in pools
        if pool.waiting_since is not None and _age_s(pool.waiting_since) > WAITER_STUCK_S
    ]


def _age_s(since: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
