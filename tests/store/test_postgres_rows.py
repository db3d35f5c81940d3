"""The PostgreSQL schema against the row structs, and how its statements find their rows."""

from __future__ import annotations

import asyncio
import enum
import re
from collections.abc import Callable, Iterator
from typing import Any, get_origin

import msgspec
import psycopg
import pytest
from bench.rig.postgres import Postgres

from tabherd.core.model import TABLES, Session, Table
from tabherd.store.base import Add, Delete, Insert, Put, Require
from tabherd.store.evaluate import Footprint
from tabherd.store.postgres import PostgresStore
from tabherd.store.postgres_database import PostgresDatabase
from tabherd.store.postgres_rows import load, select

from .conftest import SHARED_SCHEMA, empty, in_schema
from .samples import session

# Every way to ask for a page by an indexed field.
PAGES = [
    (table, field, newest_first)
    for table in TABLES.values()
    for field in table.indexed
    for newest_first in (False, True)
]


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Iterator[psycopg.Connection]:
    """A session of the database whose schema a store has made; that needs to be done only once."""

    async def open() -> None:
        store = PostgresStore(PostgresDatabase(in_schema(postgres.tcp_url, SHARED_SCHEMA)))
        await store.apply(Add("n", 1))
        await store.close()

    asyncio.run(open())
    # Not by the same session: what that has read whole would be counted some time later.
    with postgres.connect() as other:
        empty(other, SHARED_SCHEMA)
    with postgres.connect() as shell:
        yield shell


def test_there_is_a_table_for_every_row_type_and_what_the_store_needs_itself(database: psycopg.Connection) -> None:
    rows = database.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (SHARED_SCHEMA,)).fetchall()
    own = {"counters", "writers", "task_turns", "migrations"}
    assert {name for (name,) in rows} == {t.name for t in TABLES.values()} | own


def test_columns_are_the_fields_of_the_struct_in_order_and_type(database: psycopg.Connection) -> None:
    for table in TABLES.values():
        columns = database.execute(
            "SELECT column_name, data_type, is_nullable, collation_name FROM information_schema.columns"
            " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            (SHARED_SCHEMA, table.name),
        ).fetchall()
        types: dict[Any, str] = {int: "bigint", bool: "boolean"}
        assert columns == [
            (
                field.name,
                "jsonb" if get_origin(field.type) is tuple else types.get(field.type, "text"),
                "NO",
                "C" if field.name == "id" else None,
            )
            for field in msgspec.structs.fields(table.row)
        ]


def test_checks_name_exactly_the_members_of_each_enum(database: psycopg.Connection) -> None:
    for table in TABLES.values():
        checks = database.execute(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c' AND conrelid = %s::regclass",
            (f"{SHARED_SCHEMA}.{table.name}",),
        ).fetchall()
        listed = {
            column: sorted(re.findall(r"'(\w+)'::text", values))
            for (check,) in checks
            for column, values in re.findall(r"\((\w+) = ANY \(ARRAY\[(.*)\]\)\)", check)
        }
        assert listed == {
            field.name: sorted(member.value for member in field.type)
            for field in msgspec.structs.fields(table.row)
            if isinstance(field.type, type) and issubclass(field.type, enum.StrEnum)
        }


def plan(database: psycopg.Connection, sql: str, arguments: list[Any]) -> str:
    """How it would be done on tables that are large enough to avoid reading them whole and sorting."""
    with database.transaction():
        database.execute(
            "SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off"
        )
        cursor = psycopg.RawCursor(database)
        return "\n".join(row[0] for row in cursor.execute(f"EXPLAIN {sql}".encode(), arguments))


def forget_size(database: psycopg.Connection, table: Table) -> None:
    """As of a table that nobody has looked through yet: of one that is known to be empty, every index is as good."""
    database.execute("UPDATE pg_class SET reltuples = -1 WHERE oid = %s::regclass", (f"{SHARED_SCHEMA}.{table.name}",))


def test_a_page_by_an_indexed_field_walks_its_index_without_sorting(database: psycopg.Connection) -> None:
    for table, field, newest_first in PAGES:
        forget_size(database, table)
        how = plan(database, *select(SHARED_SCHEMA, table.row, {field: ("x",)}, "after", 10, newest_first=newest_first))
        assert f"{table.name}_by_{field}" in how
        assert re.search(rf"Index Cond: \(\({field} = 'x'::text\) AND \(id [<>] 'after'::text\)\)", how), how
        assert "Sort" not in how


def test_loading_by_id_never_scans_the_table(database: psycopg.Connection) -> None:
    for table in TABLES.values():
        forget_size(database, table)
        how = plan(database, *load(SHARED_SCHEMA, Footprint({table.row: {"a", "b"}}, {"c"})))
        assert f"{table.name}_pkey" in how
        assert "counters_pkey" in how
        assert "Seq Scan" not in how


async def scans(database: psycopg.Connection) -> int:
    """How often the two tables have been read whole by now."""
    # What a connection has counted is added to the rest when it ends.
    async with asyncio.timeout(30):
        while database.execute("SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL").fetchone() != (1,):
            await asyncio.sleep(0.005)
    row = database.execute(
        "SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE schemaname = %s AND relname IN ('sessions', 'counters')",
        (SHARED_SCHEMA,),
    ).fetchone()
    assert row is not None
    return int(row[0])


async def test_a_plan_made_on_an_empty_table_does_not_read_it_whole_when_it_has_grown(
    database: psycopg.Connection, postgres_url: Callable[[], str]
) -> None:
    before = await scans(database)
    store = PostgresStore(PostgresDatabase(postgres_url()))
    # More often than PostgreSQL makes a new plan of a statement before it keeps one.
    for number in range(12):
        await store.apply(Insert(session(f"a{number}")), Add("n", 1))
        await store.apply(Put(session(f"a{number}")), Insert(session(f"b{number}")), Add("n", -1))
        await store.apply(Delete(Session, f"a{number}", 2), Require(Session, f"b{number}", 1))
        await store.get(Session, f"b{number}")
        await store.select(Session, {"agent_id": "agent"})
    await store.close()
    assert await scans(database) == before
