"""Recognising, migrating and refusing the PostgreSQL database. Every refusal has its cause and a way out."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from bench.rig.postgres import Postgres

from tabherd.errors import InvalidRequest, StoreUnavailable
from tabherd.store import postgres_database
from tabherd.store.base import Add, Applied
from tabherd.store.postgres import PostgresStore
from tabherd.store.postgres_database import PostgresDatabase, migrations

from .conftest import in_schema

SCHEMA = "of_its_own"


@pytest.fixture
def shell(postgres: Postgres) -> Iterator[psycopg.Connection]:
    """Another session of the database; what these tests make in it is gone afterwards."""
    with postgres.connect() as shell:
        shell.execute("SET client_min_messages = warning")
        yield shell
        shell.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())
        shell.execute("DROP OWNED BY guest; DROP ROLE guest" if _has_guest(shell) else "SELECT 1")


def _has_guest(shell: psycopg.Connection) -> bool:
    return shell.execute("SELECT FROM pg_roles WHERE rolname = 'guest'").fetchone() is not None


@pytest.fixture
def url(postgres: Postgres, shell: psycopg.Connection) -> str:
    return in_schema(postgres.tcp_url, SCHEMA)


def guest(url: str) -> str:
    """The same address for a role without any rights."""
    return url.replace("postgres@", "guest:se-cret@")


async def refusal(url: str) -> StoreUnavailable:
    store = PostgresStore(PostgresDatabase(url))
    try:
        for call in (store.apply(Add("n", 1)), store.counter("n")):
            with pytest.raises(StoreUnavailable) as refused:
                await call
        assert refused.value.details["database"] in refused.value.message
        assert "se-cret" not in f"{refused.value.message} {refused.value.details}"
        return refused.value
    finally:
        await store.close()


async def use(url: str) -> None:
    store = PostgresStore(PostgresDatabase(url))
    try:
        assert isinstance(await store.apply(Add("n", 1)), Applied)
    finally:
        await store.close()


# --- Addresses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "schema", "kept"),
    [
        ("postgresql://h/d", "tabherd", "postgresql://h/d"),
        ("postgresql://h/d?options=-csearch_path%3Dx", "x", "postgresql://h/d"),
        (
            "postgresql://h/d?options=-c%20search_path%3Dx%20-cwork_mem%3D1MB",
            "x",
            "postgresql://h/d?options=-cwork_mem%3D1MB",
        ),
        ("postgresql://h/d?connect_timeout=3&sslmode=require", "tabherd", "postgresql://h/d?sslmode=require"),
    ],
)
async def test_the_address_says_which_schema_and_keeps_what_is_for_the_server(url: str, schema: str, kept: str) -> None:
    database = PostgresDatabase(url)
    assert (database.schema, database._url) == (schema, kept)


async def test_a_search_path_that_is_not_one_schema_is_refused() -> None:
    with pytest.raises(InvalidRequest) as refused:
        PostgresDatabase("postgresql://h/d?options=-csearch_path%3D%22x%22%2Cpublic")
    assert refused.value.details["field"] == "store"


async def test_an_address_that_cannot_be_read_is_refused_without_repeating_it() -> None:
    error = await refusal("postgresql://user:se-cret@host:port/db")
    assert (error.details["cause"], error.retryable) == ("address", False)


# --- The schema -------------------------------------------------------------------------------------------------


async def test_everything_is_in_its_schema_whatever_the_search_path(url: str, shell: psycopg.Connection) -> None:
    await use(url)
    elsewhere = shell.execute(
        "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE relname IN ('sessions', 'counters', 'writers', 'migrations') AND nspname = 'public'"
    ).fetchall()
    assert elsewhere == []
    found = shell.execute(f"SELECT number FROM {SCHEMA}.migrations ORDER BY number".encode()).fetchall()
    assert found == [(number,) for number in range(1, len(migrations()) + 1)]


async def test_a_schema_is_brought_up_to_date_and_keeps_its_rows(
    url: str, shell: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await use(url)
    later = (*migrations(), "CREATE TABLE later (id TEXT);", "ALTER TABLE later ADD COLUMN more TEXT;")
    monkeypatch.setattr(postgres_database, "migrations", lambda: later)
    store = PostgresStore(PostgresDatabase(url))
    assert await store.counter("n") == 1
    await store.close()
    shell.execute(f"INSERT INTO {SCHEMA}.later (more) VALUES ('x')".encode())


async def test_a_migration_that_fails_leaves_the_schema_as_it_was(
    url: str, shell: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await use(url)
    with monkeypatch.context() as patched:
        broken = (*migrations(), "CREATE TABLE later (id TEXT);", "no such statement")
        patched.setattr(postgres_database, "migrations", lambda: broken)
        store = PostgresStore(PostgresDatabase(url))
        with pytest.raises(Exception, match="syntax error"):
            await store.counter("n")
        await store.close()
    assert shell.execute("SELECT to_regclass(%s)", (f"{SCHEMA}.later",)).fetchone() == (None,)
    await use(url)


async def test_a_newer_schema_is_refused(url: str, shell: psycopg.Connection) -> None:
    await use(url)
    shell.execute(f"INSERT INTO {SCHEMA}.migrations VALUES ({len(migrations()) + 1})".encode())
    error = await refusal(url)
    assert (error.details["cause"], error.retryable) == ("newer_schema", False)
    assert "Upgrade" in error.message


async def test_a_schema_of_another_program_is_refused(url: str, shell: psycopg.Connection) -> None:
    shell.execute(f"CREATE SCHEMA {SCHEMA}; CREATE TABLE {SCHEMA}.sessions (id TEXT)".encode())
    error = await refusal(url)
    assert (error.details["cause"], error.retryable) == ("foreign", False)
    assert "search_path" in error.message


# --- The world --------------------------------------------------------------------------------------------------


async def test_a_database_that_does_not_exist_is_named(postgres: Postgres) -> None:
    error = await refusal(postgres.tcp_url.removesuffix("postgres") + "nowhere")
    assert (error.details["cause"], error.retryable) == ("missing_database", False)
    assert "nowhere" in error.message


async def test_nothing_that_listens_is_unreachable(postgres: Postgres) -> None:
    error = await refusal("postgresql://postgres@127.0.0.1:1/postgres")
    assert (error.details["cause"], error.retryable) == ("unreachable", True)


async def test_a_wrong_password_is_said_without_repeating_it(
    url: str, postgres: Postgres, shell: psycopg.Connection
) -> None:
    shell.execute("CREATE ROLE guest LOGIN PASSWORD 'another'")
    (path,) = shell.execute("SHOW hba_file").fetchone() or ()
    with open(path, encoding="utf-8") as file:
        rules = file.read()
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"host all guest 127.0.0.1/32 scram-sha-256\n{rules}")
        shell.execute("SELECT pg_reload_conf()")
        error = await refusal(guest(url))
    finally:
        with open(path, "w", encoding="utf-8") as file:
            file.write(rules)
        shell.execute("SELECT pg_reload_conf()")
    assert (error.details["cause"], error.retryable) == ("password", False)
    assert "Correct the user and the password" in error.message


async def test_a_role_that_may_not_make_the_schema_is_told_which_right_it_lacks(
    url: str, shell: psycopg.Connection
) -> None:
    shell.execute("CREATE ROLE guest LOGIN")
    error = await refusal(guest(url))
    assert (error.details["cause"], error.retryable) == ("permission", False)
    assert "Grant" in error.message


async def test_a_role_without_the_right_to_make_a_schema_can_use_the_one_it_was_given(
    url: str, shell: psycopg.Connection
) -> None:
    shell.execute(f"CREATE ROLE guest LOGIN; CREATE SCHEMA {SCHEMA} AUTHORIZATION guest".encode())
    await use(guest(url))


async def test_a_server_without_connections_left_says_so(url: str, shell: psycopg.Connection) -> None:
    shell.execute("CREATE ROLE guest LOGIN CONNECTION LIMIT 0")
    error = await refusal(guest(url))
    assert (error.details["cause"], error.retryable) == ("too_many_connections", True)


async def test_a_database_that_takes_no_writes_says_so_and_is_used_when_it_does(
    url: str, shell: psycopg.Connection
) -> None:
    await use(url)
    shell.execute("CREATE ROLE guest LOGIN; ALTER ROLE guest SET default_transaction_read_only = on")
    shell.execute(
        f"GRANT ALL ON SCHEMA {SCHEMA} TO guest; GRANT ALL ON ALL TABLES IN SCHEMA {SCHEMA} TO guest".encode()
    )
    store = PostgresStore(PostgresDatabase(guest(url)))
    with pytest.raises(StoreUnavailable) as refused:
        await store.apply(Add("n", 1))
    assert (refused.value.details["cause"], refused.value.retryable) == ("read_only", True)
    shell.execute("ALTER ROLE guest SET default_transaction_read_only = off")
    await store._writer._link.connection(patience_s=30)
    assert isinstance(await store.apply(Add("n", 1)), Applied)
    await store.close()
