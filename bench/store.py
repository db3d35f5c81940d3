"""What the stores cost: commits per second and commit latency, with the event loop idle and saturated.

`apply` is what a caller waits, from the call to the answer in its task; `commit` is the part in which its batch is
loaded, evaluated, written and synced. Under saturation the loop alone adds two of its 1 ms slices to the first.

The peer is the obvious way to write the same thing: plain sqlite3 in one worker thread, one commit per call, one
statement per row, the same schema and the same `synchronous=FULL`. PostgreSQL, with fsync, is measured beside SQLite.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import uvloop

from bench import Figure, percentile
from bench.rig.postgres import running_postgres
from tabherd.core.lifecycle import LeaseState
from tabherd.core.model import Session, changed
from tabherd.store.base import Add, Applied, Delete, Insert, Store, Update
from tabherd.store.postgres import PostgresStore
from tabherd.store.postgres_database import PostgresDatabase
from tabherd.store.sqlite import SqliteStore

CALLERS = 64
SECONDS = 1.0
# As the server sets it.
SWITCH_INTERVAL_S = 0.0001
_CAP = 1_000_000
_PEER = "one commit per call"

# Reserves one session under this id.
Reserve: TypeAlias = Callable[[str], Awaitable[object]]


def run() -> dict[str, Figure]:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        return uvloop.run(_measure())
    finally:
        sys.setswitchinterval(before_s)


async def _measure() -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory() as directory:
        # Seconds and size of each commit.
        commits: list[tuple[float, int]] = []
        store = SqliteStore(Path(directory) / "ours.db", on_commit=lambda *commit: commits.append(commit))
        naive = _Naive(Path(directory) / "naive.db")
        await naive.open()

        async def reserve(id: str) -> object:
            return await _reserve(store, id)

        peer = await _throughput(naive.reserve)
        commits.clear()
        ours = await _throughput(reserve)
        figures[f"reserves_per_s_{CALLERS}_callers"] = Figure(ours=ours, unit="/s", others={_PEER: peer})
        figures["transactions_per_commit"] = Figure(ours=sum(size for _, size in commits) / len(commits), unit="mean")
        figures["acquire_and_release_pairs_per_s"] = Figure(
            ours=await _throughput(lambda id: _pair(store, id)), unit="/s", at_least=3_000
        )
        for load, spinning in (("idle", False), ("saturated", True)):
            for callers in (1, 16, CALLERS):
                peer_ms = await _latencies(naive.reserve, callers, spinning)
                commits.clear()
                ours_ms = await _latencies(reserve, callers, spinning)
                commit_ms = [seconds * 1000 for seconds, _ in commits]
                figures[f"apply_p50_{load}_{callers}_callers"] = Figure(
                    ours=percentile(ours_ms, 50),
                    unit="ms",
                    others={_PEER: percentile(peer_ms, 50)},
                    at_most=5.0 if spinning else None,
                )
                figures[f"apply_p99_{load}_{callers}_callers"] = Figure(
                    ours=percentile(ours_ms, 99), unit="ms", others={_PEER: percentile(peer_ms, 99)}
                )
                figures[f"commit_p50_{load}_{callers}_callers"] = Figure(
                    ours=percentile(commit_ms, 50), unit="ms", at_most=5.0 if spinning else None
                )
        figures |= await _beside_postgres(store)
        await store.close()
        await naive.close()
    return figures


async def _beside_postgres(store: SqliteStore) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    with running_postgres(is_durable=True) as postgres:
        shared = PostgresStore(PostgresDatabase(postgres.tcp_url))
        for callers in (1, 16, CALLERS):
            sqlite = await _throughput(lambda id: _reserve(store, id), callers)
            figures[f"postgres_reserves_per_s_{callers}_callers"] = Figure(
                ours=await _throughput(lambda id: _reserve(shared, id), callers), unit="/s", others={"SQLite": sqlite}
            )
        await shared.close()
    return figures


def _session(id: str) -> Session:
    return Session(id=id, state=LeaseState.RESERVED, agent_id="agent-7", pool="default", created_at=1, deadline_at=2)


def _counted(delta: int) -> tuple[Add, Add]:
    return Add("pool:default", delta, cap=_CAP), Add("agent:agent-7", delta, cap=_CAP)


async def _reserve(store: Store, id: str) -> object:
    return await store.apply(Insert(_session(id), numbered="fence"), *_counted(1))


async def _pair(store: SqliteStore, id: str) -> None:
    """A lease's way through the store: reserve, bind, close, and the row's removal when it has ended."""
    reserved = await store.apply(Insert(_session(id), numbered="fence"), *_counted(1))
    assert isinstance(reserved, Applied)
    (row, *_) = reserved.rows
    assert isinstance(row, Session)
    bound = await store.apply(Update(changed(row, state=LeaseState.ACTIVE)))
    assert isinstance(bound, Applied)
    assert isinstance(await store.apply(Delete(Session, id, 2), *_counted(-1)), Applied)


_ids = (f"ses_{number:012d}" for number in itertools.count())


async def _throughput(work: Reserve, callers: int = CALLERS) -> float:
    done = 0
    until = time.perf_counter() + SECONDS

    async def caller() -> None:
        nonlocal done
        while time.perf_counter() < until:
            await work(next(_ids))
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return done / (time.perf_counter() - began)


async def _latencies(work: Reserve, callers: int, is_saturated: bool) -> list[float]:
    """How long each call took, in milliseconds, from the call to the answer at the caller."""
    samples: list[float] = []
    until = time.perf_counter() + SECONDS

    async def caller() -> None:
        while (began := time.perf_counter()) < until:
            await work(next(_ids))
            samples.append((time.perf_counter() - began) * 1000)

    if is_saturated:
        async with _saturated():
            await asyncio.gather(*(caller() for _ in range(callers)))
    else:
        await asyncio.gather(*(caller() for _ in range(callers)))
    return samples


@asynccontextmanager
async def _saturated() -> AsyncIterator[None]:
    """Keep the loop's thread at 100 %: slices of 1 ms of Python, with callbacks that are always ready in between."""
    loop = asyncio.get_running_loop()
    is_on = True

    async def busy() -> None:
        while is_on:
            until = time.perf_counter() + 0.001
            while time.perf_counter() < until:
                sum(range(50))
            await asyncio.sleep(0)

    def ready() -> None:
        if is_on:
            loop.call_soon(ready)

    task = asyncio.create_task(busy())
    ready()
    try:
        yield
    finally:
        is_on = False
        await task


class _Naive:
    """One commit per call, one statement per row."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1)

    async def open(self) -> None:
        # The same schema: made by the store, then used without it.
        await SqliteStore(self._path).close()
        self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA synchronous = FULL")

    async def reserve(self, id: str) -> None:
        await self._in_thread(lambda: self._reserve(id))

    def _reserve(self, id: str) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        for counter, delta in (("pool:default", 1), ("agent:agent-7", 1), ("seq:fence", 1)):
            row = connection.execute("SELECT value FROM counters WHERE name = ?", (counter,)).fetchone()
            value = (row[0] if row else 0) + delta
            assert value <= _CAP
            connection.execute("INSERT OR REPLACE INTO counters VALUES (?, ?)", (counter, value))
        fields = {**{f: getattr(_session(id), f) for f in Session.__struct_fields__}, "version": 1, "fence": value}
        marks = ", ".join("?" * len(fields))
        connection.execute(f"INSERT INTO sessions ({', '.join(fields)}) VALUES ({marks})", tuple(fields.values()))
        connection.execute("COMMIT")

    async def close(self) -> None:
        await self._in_thread(self._connection.close)
        self._thread.shutdown()

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work)
