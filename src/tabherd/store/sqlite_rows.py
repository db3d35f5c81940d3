"""How rows travel to and from SQLite: SQL generated from the row structs, a few statements per batch.

Python's sqlite3 lets go of the GIL around every step of a statement, and under a busy event loop each of those can
cost a switch interval to get it back. So a statement takes or gives many rows in one step: rows are read as one JSON
text, which msgspec decodes, and written as the parameters of one VALUES list, which is five times as fast as having
SQLite take JSON apart. `executemany` would step, and let go, once per row.

A statement that names a column rewrites each index that has it, changed or not, and every page of an index that is
touched is written to the log. So a row that keeps its agent, node or session is replaced without naming them.
"""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any, cast, get_origin

import msgspec

from ..core.model import TABLES, Row, RowT, Table
from .base import Scalar
from .evaluate import Footprint, State, Writes

_encode = msgspec.json.Encoder().encode
_decode_counters = msgspec.json.Decoder(dict[str, int]).decode

_LOAD_COUNTERS = "(SELECT json_group_object(name, value) FROM counters WHERE name IN (SELECT value FROM json_each(?)))"
_SAVE_COUNTERS = (
    "INSERT INTO counters (name, value) SELECT key, value FROM json_each(?) WHERE true"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)


# How many rows one statement writes. Powers of two, so that few distinct statements serve every number of rows and
# stay prepared; the largest keeps the number of parameters below SQLite's bound.
SAVE_SIZES = tuple(1 << power for power in range(8, -1, -1))
# Enough for every statement above, so that none is parsed twice.
CACHED_STATEMENTS = 256


class RowSql:
    """The statements of one table."""

    def __init__(self, table: Table) -> None:
        fields = {field.name: field.type for field in msgspec.structs.fields(table.row)}
        pairs = ", ".join(f"'{name}', {_as_json(name, kind)}" for name, kind in fields.items())
        marks = f"({', '.join('?' * len(fields))})"
        # Indexed fields of which most rows keep the value that they began with.
        steady = tuple(field for field in table.indexed if field != "state")
        self.name = table.name
        # One JSON object, spelled as the struct's own encoding.
        self.object = f"json_object({pairs})"
        self.load = (
            f"(SELECT json_group_array({self.object}) FROM {table.name} WHERE id IN (SELECT value FROM json_each(?)))"
        )
        self.decode = msgspec.json.Decoder(list[table.row]).decode  # type: ignore[name-defined]
        self.delete = f"DELETE FROM {table.name} WHERE id IN (SELECT value FROM json_each(?))"
        # By the number of rows they write: any rows, and such as keep what they began with.
        self._saves, self._rewrites = (
            {
                size: f"INSERT INTO {table.name} ({', '.join(fields)}) VALUES {', '.join([marks] * size)}"
                f" ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in replaced)}"
                for size in SAVE_SIZES
            }
            for replaced in (
                [name for name in fields if name != "id"],
                [name for name in fields if name not in ("id", *steady)],
            )
        )
        self._steady_of: Callable[[Row], Any] = attrgetter(*steady) if steady else lambda _: None
        # Columns whose values sqlite3 does not take as they are.
        self._converted = [
            (index, convert) for index, kind in enumerate(fields.values()) if (convert := _conversion(kind)) is not None
        ]

    def save(self, connection: sqlite3.Connection, rows: list[Row], found: Mapping[str, Row]) -> None:
        """Insert or replace these rows; what stood there before is what was found."""
        steady_of = self._steady_of
        anew: list[Row] = []
        kept: list[Row] = []
        for row in rows:
            before = found.get(row.id)
            (kept if before is not None and steady_of(before) == steady_of(row) else anew).append(row)
        self._write(connection, self._saves, anew)
        self._write(connection, self._rewrites, kept)

    def _write(self, connection: sqlite3.Connection, statements: Mapping[int, str], rows: list[Row]) -> None:
        begin = 0
        while begin < len(rows):
            size = next(size for size in SAVE_SIZES if size <= len(rows) - begin)
            values: list[Any] = []
            for row in rows[begin : begin + size]:
                columns = list(msgspec.structs.astuple(row))
                for index, convert in self._converted:
                    columns[index] = convert(columns[index])
                values += columns
            connection.execute(statements[size], values)
            begin += size


def _conversion(kind: Any) -> Callable[[Any], Any] | None:
    """Exactly str and int are bound as they are; their subclasses would go through sqlite3's slow adapters."""
    if kind is bool:
        return int
    if get_origin(kind) is tuple:
        return lambda value: _encode(value).decode()
    return None if kind in (str, int) else str


def _as_json(name: str, kind: Any) -> str:
    """The column as an argument of `json_object`. A kind of field not known here needs a decision first."""
    if kind is bool:
        return f"json(iif({name}, 'true', 'false'))"
    if get_origin(kind) is tuple:
        return f"json({name})"
    assert kind in (str, int) or issubclass(kind, enum.StrEnum), f"no column type for {name}: {kind}"
    return name


SQL: Mapping[type[Row], RowSql] = {row: RowSql(table) for row, table in TABLES.items()}


def load(connection: sqlite3.Connection, needed: Footprint) -> State:
    """Everything in the footprint that exists, with one statement."""
    # In one order, whatever came first: each order would be a statement of its own, to be kept and prepared.
    tables = tuple(table for table in SQL if table in needed.ids)
    if not tables and not needed.counters:
        return State({}, {})
    arguments = [_encode(list(needed.ids[table])).decode() for table in tables]
    if needed.counters:
        arguments.append(_encode(list(needed.counters)).decode())
    found = connection.execute(_load_sql(tables, bool(needed.counters)), arguments).fetchone()
    rows = {table: {row.id: row for row in SQL[table].decode(text)} for table, text in zip(tables, found, strict=False)}
    return State(rows, _decode_counters(found[-1]) if needed.counters else {})


@lru_cache(CACHED_STATEMENTS)
def _load_sql(tables: tuple[type[Row], ...], has_counters: bool) -> str:
    parts = [SQL[table].load for table in tables]
    if has_counters:
        parts.append(_LOAD_COUNTERS)
    return "SELECT " + ", ".join(parts)


def save(connection: sqlite3.Connection, writes: Writes, found: Mapping[type[Row], Mapping[str, Row]]) -> None:
    """Bring the tables from what was found to what the writes say, with few statements per table."""
    for table, by_id in writes.rows.items():
        sql = SQL[table]
        if kept := [row for row in by_id.values() if row is not None]:
            sql.save(connection, kept, found.get(table, {}))
        if gone := [id for id, row in by_id.items() if row is None]:
            connection.execute(sql.delete, (_encode(gone).decode(),))
    if writes.counters:
        connection.execute(_SAVE_COUNTERS, (_encode(writes.counters).decode(),))


def select(
    connection: sqlite3.Connection,
    table: type[RowT],
    filters: Mapping[str, tuple[Scalar, ...]],
    after: str,
    limit: int,
    *,
    newest_first: bool,
) -> list[RowT]:
    """The page of rows after that id, in the order of ids; or of those before it, in the other."""
    sql = SQL[table]
    conditions: list[str] = []
    arguments: list[Scalar] = []
    if after:
        conditions.append("id < ?" if newest_first else "id > ?")
        arguments.append(after)
    for field, values in filters.items():
        if len(values) == 1:
            # Equality, because then the index gives the rows in the order of ids and the limit ends the walk.
            conditions.append(f"{field} = ?")
            arguments.append(values[0])
        else:
            conditions.append(f"{field} IN (SELECT value FROM json_each(?))")
            arguments.append(_encode(values).decode())
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    page = f"SELECT * FROM {sql.name}{where} ORDER BY id {'DESC' if newest_first else 'ASC'} LIMIT ?"
    (text,) = connection.execute(f"SELECT json_group_array({sql.object}) FROM ({page})", (*arguments, limit)).fetchone()
    rows = sql.decode(text)
    # SQLite aggregates in the order of the page but does not promise it.
    rows.sort(key=lambda row: row.id, reverse=newest_first)
    return cast("list[RowT]", rows)
