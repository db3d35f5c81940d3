"""The engines under test. A test that takes `store` runs once on each; adding an engine is adding one line here."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from bench.rig.postgres import Postgres, running_postgres

from tabherd.core.model import TABLES
from tabherd.store import postgres_database, postgres_rows
from tabherd.store.base import Store
from tabherd.store.memory import MemoryStore
from tabherd.store.postgres import PostgresStore
from tabherd.store.postgres_database import PostgresDatabase
from tabherd.store.sqlite import SqliteStore

# Opens an empty store, which may use the directory and the database.
Engine = Callable[[Path, Callable[[], str]], Store]
ENGINES: dict[str, Engine] = {
    "memory": lambda _directory, _url: MemoryStore(),
    "sqlite": lambda directory, _url: SqliteStore(directory / "store.db"),
    "postgres": lambda _directory, url: PostgresStore(PostgresDatabase(url())),
}

# The schema of all tests that do not care which it is: making one takes longer than most of them.
SHARED_SCHEMA = "shared"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for the process."""
    with running_postgres() as started:
        yield started


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Gives the address of a schema without rows; the server is started when it is first asked."""
    servers: list[Postgres] = []

    def url() -> str:
        servers.append(request.getfixturevalue("postgres"))
        return in_schema(servers[0].tcp_url, SHARED_SCHEMA)

    yield url
    if servers:
        with servers[0].connect() as connection:
            empty(connection, SHARED_SCHEMA)


def empty(connection: psycopg.Connection, schema: str) -> None:
    """Nothing is to do where the first test of the process has closed its store before it had made anything."""
    (first,) = connection.execute("SELECT to_regclass(%s)", (f"{schema}.counters",)).fetchone() or (None,)
    if first is None:
        return
    names = (*(table.name for table in TABLES.values()), "counters", "writers", "task_turns")
    until_idle(connection)
    # In one request: there are many tables, and most of them have no rows.
    connection.execute(";".join(f"DELETE FROM {schema}.{name}" for name in names).encode())


def until_idle(connection: psycopg.Connection) -> None:
    """Wait for the statements of connections that a test has cut off: the server still carries them out."""
    others = "datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    while connection.execute(f"SELECT 1 FROM pg_stat_activity WHERE {others} AND state = 'active'".encode()).fetchone():
        time.sleep(0.01)


def in_schema(url: str, schema: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{schema}"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Statements wait for locks as long as a test holds them, however slow the machine is."""
    monkeypatch.setattr(postgres_rows, "LOCK_WAIT_MS", 120_000)
    monkeypatch.setattr(postgres_database, "STATEMENT_LIMIT_S", 120.0)
    # The text of statements has the limit in it.
    postgres_rows._save_sql.cache_clear()
    yield
    postgres_rows._save_sql.cache_clear()


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A directory where nobody waits for a disk, if there is such a thing: what is stored there is the same."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="tabherd-store-", dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture(params=ENGINES)
async def store(
    request: pytest.FixtureRequest, in_memory: Path, postgres_url: Callable[[], str]
) -> AsyncIterator[Store]:
    opened = ENGINES[request.param](in_memory, postgres_url)
    yield opened
    await opened.close()
