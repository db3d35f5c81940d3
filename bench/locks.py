"""`locks`: what an advisory lock costs, alone and in a crowd.

- *pairs*: lock and unlock of one free lock, by `advisory_lock`, in a thread and in a task, by number and by name;
  beside it `pg_advisory_lock` and `pg_advisory_unlock` as statements on a kept connection of the same driver, the same
  two on bare libpq, which is the limit, and sqlalchemy-dlock on a kept connection. In turns, on one PostgreSQL on this
  machine.
- *crowd*: 50 contenders for one lock, threads of one process and processes, on PostgreSQL and on files: from one
  holder's letting go to the next one's having it, and how far the shares are from equal.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
import uvloop
from sqlalchemy import create_engine
from sqlalchemy_dlock import create_sadlock

from bench import Figure
from bench.rig.contenders import contend
from bench.rig.postgres import Postgres, running_postgres
from tabherd.locks import advisory_lock, async_advisory_lock, configured

ROUNDS: Final = 60
# Pairs in one turn.
PAIRS: Final = 60
BAR_TO_RAW: Final = 0.8
BAR_TO_PEER: Final = 1.0

CONTENDERS: Final = 50
CROWD_S: Final = 5.0
CROWD_SHORT_S: Final = 2.0
BAR_HANDOVER_MS: Final = 2.0
BAR_SHARE: Final = 3.0

PEER: Final = "sqlalchemy-dlock"
RAW: Final = "raw statements"
RAW_TASK: Final = "raw statements in a task"
LIBPQ: Final = "bare libpq"


def run() -> dict[str, Figure]:
    with running_postgres() as postgres, tempfile.TemporaryDirectory() as directory:
        try:
            return _pair_figures(postgres, Path(directory).as_uri())
        finally:
            configured.close_all()


def run_long() -> dict[str, Figure]:
    return _crowd_figures(CROWD_S)


def run_short() -> dict[str, Figure]:
    return _crowd_figures(CROWD_SHORT_S)


# --- Pairs --------------------------------------------------------------------------------------------------------


def _pair_figures(postgres: Postgres, files: str) -> dict[str, Figure]:
    with _raw(postgres) as raw, _libpq(postgres) as libpq, _peer(postgres) as peer, _runner() as runner:
        kept = runner.run(_connected(postgres))
        turns: dict[str, Callable[[], None]] = {
            "thread": lambda: _in_thread(postgres.url, 1, 42),
            RAW: raw,
            "name": lambda: _in_thread(postgres.url, "account", "x"),
            LIBPQ: libpq,
            "task": lambda: runner.run(_in_task(postgres.url)),
            RAW_TASK: lambda: runner.run(_raw_in_task(kept)),
            PEER: peer,
            "files": lambda: _in_thread(files, 1, 42),
            "files, task": lambda: runner.run(_in_task(files)),
        }
        samples: dict[str, list[float]] = {name: [] for name in turns}
        for turn in turns.values():
            # The first of each opens its connection and warms up.
            turn()
        for _ in range(ROUNDS):
            for name, turn in turns.items():
                began = time.perf_counter()
                turn()
                samples[name].append(PAIRS / (time.perf_counter() - began))
        runner.run(_close(kept))
    others = {name: samples[name] for name in (RAW, RAW_TASK, LIBPQ, PEER)}
    figures = {
        f"{label}_pairs_per_s": Figure.median_of(samples[name], "/s", others=others)
        for label, name in (("postgres_thread", "thread"), ("postgres_name", "name"), ("postgres_task", "task"))
    }
    figures["files_thread_pairs_per_s"] = Figure.median_of(samples["files"], "/s")
    figures["files_task_pairs_per_s"] = Figure.median_of(samples["files, task"], "/s")
    for ours, other, bar in (
        ("thread", RAW, BAR_TO_RAW),
        ("task", RAW_TASK, BAR_TO_RAW),
        ("thread", PEER, BAR_TO_PEER),
        ("thread", LIBPQ, None),
    ):
        ratios = [mine / theirs for mine, theirs in zip(samples[ours], samples[other], strict=True)]
        label = f"postgres_{ours}_to_{other.replace(' ', '_').replace('-', '_')}"
        middle = Figure.median_of(ratios, "ratio")
        figures[label] = Figure(ours=middle.ours, unit="ratio", spread=middle.spread, at_least=bar)
    return figures


def _in_thread(url: str, namespace: int | str, key: int | str) -> None:
    for _ in range(PAIRS):
        with advisory_lock(namespace, key, url=url):
            pass


async def _in_task(url: str) -> None:
    for _ in range(PAIRS):
        async with async_advisory_lock(1, 42, url=url):
            pass


async def _connected(postgres: Postgres) -> psycopg.AsyncConnection:
    return await psycopg.AsyncConnection.connect(postgres.url, autocommit=True)


async def _raw_in_task(connection: psycopg.AsyncConnection) -> None:
    for _ in range(PAIRS):
        await connection.execute("SELECT pg_advisory_lock(%s, %s)", (1, 45))
        await connection.execute("SELECT pg_advisory_unlock(%s, %s)", (1, 45))


async def _close(connection: psycopg.AsyncConnection) -> None:
    configured.close_all()
    await connection.close()


def _runner() -> asyncio.Runner:
    """The loop that the server has."""
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


@contextmanager
def _raw(postgres: Postgres) -> Iterator[Callable[[], None]]:
    with postgres.connect() as connection:

        def pairs() -> None:
            for _ in range(PAIRS):
                connection.execute("SELECT pg_advisory_lock(%s, %s)", (1, 43))
                connection.execute("SELECT pg_advisory_unlock(%s, %s)", (1, 43))

        yield pairs


@contextmanager
def _libpq(postgres: Postgres) -> Iterator[Callable[[], None]]:
    with postgres.connect() as connection:
        pgconn: psycopg.pq.abc.PGconn = connection.pgconn
        pgconn.prepare(b"lock", b"SELECT pg_advisory_lock($1::int4, $2::int4)")
        pgconn.prepare(b"unlock", b"SELECT pg_advisory_unlock($1::int4, $2::int4)")

        def pairs() -> None:
            for _ in range(PAIRS):
                pgconn.exec_prepared(b"lock", [b"1", b"44"])
                pgconn.exec_prepared(b"unlock", [b"1", b"44"])

        yield pairs


@contextmanager
def _peer(postgres: Postgres) -> Iterator[Callable[[], None]]:
    engine = create_engine(postgres.url.replace("postgresql://", "postgresql+psycopg://", 1))
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:

            def pairs() -> None:
                for _ in range(PAIRS):
                    with create_sadlock(connection, "agent:42"):
                        pass

            yield pairs
    finally:
        engine.dispose()


# --- The crowd ----------------------------------------------------------------------------------------------------


def _crowd_figures(seconds: float) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    with running_postgres() as postgres, tempfile.TemporaryDirectory() as directory:
        for where, url in (("postgres", postgres.url), ("files", Path(directory).as_uri())):
            for who in ("threads", "processes"):
                found = contend(url, CONTENDERS, seconds, are_processes=who == "processes")
                label = f"{where}_{CONTENDERS}_{who}"
                figures[f"{label}_handover_p50"] = Figure.median_of(found.handovers_ms, "ms", at_most=BAR_HANDOVER_MS)
                figures[f"{label}_furthest_from_fair"] = Figure(
                    ours=found.furthest_from_fair, unit="times", at_most=BAR_SHARE
                )
                figures[f"{label}_turns_per_s"] = Figure(ours=sum(found.shares) / seconds, unit="/s")
        configured.close_all()
    return figures
