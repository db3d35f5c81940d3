"""The SQLite schema against the row structs: neither may change without the other."""

from __future__ import annotations

import enum
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import get_origin

import msgspec
import pytest

from tabherd.core.model import TABLES, Session, Tab, changed
from tabherd.store.evaluate import Footprint, Writes
from tabherd.store.sqlite_file import migrations
from tabherd.store.sqlite_rows import load, save, select

from .samples import full_rows

# Every way to ask for a page by an indexed field.
PAGES = [
    (table, field, newest_first)
    for table in TABLES.values()
    for field in table.indexed
    for newest_first in (False, True)
]


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for sql in migrations():
            connection.executescript(sql)
        yield connection


def test_there_is_a_table_for_every_row_type_and_the_counters(database: sqlite3.Connection) -> None:
    names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert names == {table.name for table in TABLES.values()} | {"counters"}


def test_columns_are_the_fields_of_the_struct_in_order_and_type(database: sqlite3.Connection) -> None:
    for table in TABLES.values():
        columns = [
            (name, kind, bool(not_null), bool(key))
            for _, name, kind, not_null, _, key in database.execute(f"PRAGMA table_info({table.name})")
        ]
        assert columns == [
            (field.name, "INTEGER" if field.type in (int, bool) else "TEXT", True, field.name == "id")
            for field in msgspec.structs.fields(table.row)
        ]


def test_checks_name_exactly_the_members_of_each_enum(database: sqlite3.Connection) -> None:
    for table in TABLES.values():
        (sql,) = database.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table.name,)).fetchone()
        listed = {
            column: [value.strip(" '") for value in values.split(",")]
            for column, values in re.findall(r"CHECK \(\s*(\w+) IN \(([^)]*)\)", sql)
        }
        expected: dict[str, list[str]] = {}
        for field in msgspec.structs.fields(table.row):
            if field.type is bool:
                expected[field.name] = ["0", "1"]
            elif get_origin(field.type) is None and issubclass(field.type, enum.StrEnum):
                expected[field.name] = [member.value for member in field.type]
        assert {column: sorted(values) for column, values in listed.items()} == {
            column: sorted(values) for column, values in expected.items()
        }


def plan(database: sqlite3.Connection, sql: str) -> str:
    return " / ".join(row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {sql}"))


class Recorder:
    """Hands statements on and keeps their text."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.statements: list[str] = []
        self._connection = connection
        connection.set_trace_callback(self.statements.append)

    def last(self) -> str:
        self._connection.set_trace_callback(None)
        return self.statements[-1]


def test_a_page_by_an_indexed_field_walks_its_index_without_sorting(database: sqlite3.Connection) -> None:
    for table, field, newest_first in PAGES:
        recorder = Recorder(database)
        select(database, table.row, {field: ("x",)}, "after", 10, newest_first=newest_first)
        how = plan(database, recorder.last())
        assert f"{table.name}_by_{field} ({field}=? AND id{'<' if newest_first else '>'}?)" in how
        assert "ORDER BY" not in how


def test_loading_by_id_never_scans_the_table(database: sqlite3.Connection) -> None:
    for table in TABLES.values():
        recorder = Recorder(database)
        load(database, Footprint({table.row: {"a", "b"}}, {"c"}))
        how = plan(database, recorder.last())
        assert f"SCAN {table.name}" not in how
        assert "SCAN counters" not in how


def test_tables_are_loaded_in_one_order_so_that_there_are_few_statements(database: sqlite3.Connection) -> None:
    asked: list[str] = []
    database.set_trace_callback(asked.append)
    for tables in ((Session, Tab), (Tab, Session)):
        load(database, Footprint({table: {"x"} for table in tables}, set()))
    assert asked[0] == asked[1]


def touched(database: sqlite3.Connection, statement: str) -> set[str]:
    """The indexes that it takes entries out of."""
    names = dict(database.execute("SELECT rootpage, name FROM sqlite_master"))
    # Opened for writing once, and then known by a number.
    steps = list(database.execute(f"EXPLAIN {statement}"))
    opened = {step[2]: names.get(step[3], "") for step in steps if step[1] == "OpenWrite"}
    return {opened[step[2]] for step in steps if step[1] == "IdxDelete"} - {""}


def test_a_rewrite_leaves_alone_the_indexes_of_what_a_row_keeps(database: sqlite3.Connection) -> None:
    for row in full_rows():
        table = TABLES[type(row)]
        standing = changed(row, version=1)
        save(database, Writes({table.row: {row.id: standing}}, {}), {})
        recorder = Recorder(database)
        later = changed(row, version=2)
        save(database, Writes({table.row: {row.id: later}}, {}), {table.row: {row.id: standing}})
        assert touched(database, recorder.last()) <= {f"{table.name}_by_state"}
        assert load(database, Footprint({table.row: {row.id}}, set())).rows[table.row] == {row.id: later}


def test_a_row_that_does_not_keep_it_is_found_by_what_it_has_become(database: sqlite3.Connection) -> None:
    fields = [(row, field) for row in full_rows() for field in TABLES[type(row)].indexed if field != "state"]
    for row, field in fields:
        table = TABLES[type(row)].row
        standing, later = changed(row, version=1), changed(row, version=2, **{field: "another"})
        save(database, Writes({table: {row.id: standing}}, {}), {})
        save(database, Writes({table: {row.id: later}}, {}), {table: {row.id: standing}})
        before = getattr(row, field)
        assert select(database, table, {field: ("another",)}, "", 10, newest_first=False) == [later]
        assert select(database, table, {field: (before,)}, "", 10, newest_first=False) == []
