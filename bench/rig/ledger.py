"""Where a benchmark reads how many tasks are over: in the store itself, on a connection of its own.

What is asked again and again while the server works must cost it little, so a database with many rows is first asked
whether any task is left, which an index answers, and then for their number.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, Protocol

import psycopg

# Until a benchmark that does not come to its end is given up.
DONE_LIMIT_S: Final = 100.0
POLL_S: Final = 0.005

_ALL_DONE: Final = (
    "SELECT (SELECT count(*) FROM {schema}tasks WHERE state = 'done')"
    " + (SELECT count(*) FROM {schema}archived_tasks WHERE state = 'done')"
)
OURS_DONE: Final = _ALL_DONE.format(schema="tabherd.")
OURS_UNFINISHED: Final = (
    "SELECT EXISTS (SELECT FROM tabherd.tasks WHERE state = 'queued')"
    " OR EXISTS (SELECT FROM tabherd.tasks WHERE state IN ('assigned', 'running'))"
)


class Ledger(Protocol):
    """A store that is read."""

    def done(self) -> int:
        """How many are done, also of those that were moved to the archive meanwhile."""
        ...

    def is_settled(self) -> bool:
        """False while it is certain that some are not over; True where only `done` can tell."""
        ...


def wait_done(ledger: Ledger, count: int) -> None:
    """Until so many are done in all."""
    until_s = time.perf_counter() + DONE_LIMIT_S
    while not ledger.is_settled() or ledger.done() < count:
        if time.perf_counter() > until_s:
            raise RuntimeError(f"{ledger.done()} of {count} tasks were done after {DONE_LIMIT_S} s")
        time.sleep(POLL_S)


class SqliteLedger:
    """A file that a server is writing."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def done(self) -> int:
        (count,) = self._connection.execute(_ALL_DONE.format(schema="")).fetchone()
        return int(count)

    def is_settled(self) -> bool:
        return True


class PostgresLedger:
    """A database that a server, or another queue's worker, is writing."""

    def __init__(self, connection: psycopg.Connection, unfinished: str, done: str) -> None:
        self._connection = connection
        self._unfinished = unfinished.encode()
        self._done = done.encode()

    def done(self) -> int:
        return int(self._asked(self._done))

    def is_settled(self) -> bool:
        return not self._asked(self._unfinished)

    def _asked(self, question: bytes) -> int:
        row = self._connection.execute(question).fetchone()
        assert row is not None
        value: int = row[0]
        return value


@contextmanager
def sqlite_ledger(store: Path) -> Iterator[Ledger]:
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        yield SqliteLedger(connection)


@contextmanager
def postgres_ledger(url: str, unfinished: str = OURS_UNFINISHED, done: str = OURS_DONE) -> Iterator[Ledger]:
    """Ours, unless it is said how another queue is asked."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield PostgresLedger(connection, unfinished, done)
