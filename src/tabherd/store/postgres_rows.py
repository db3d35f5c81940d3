"""How rows travel to and from PostgreSQL: SQL generated from the row structs, one statement to load and one to save.

Rows go both ways as one JSON text per table, which msgspec writes and reads. `save` brings a whole batch to the tables
in one statement that is a transaction of its own: it locks what the batch was decided on, in one order for all nodes
(table by table, then counters; within each by key), and writes only if all of it still stands as it was loaded. So no
lock is ever held while something travels. Counters are a table like the others, keyed by name and guarded by value.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast, get_origin

import msgspec

from ..core.model import TABLES, Row, RowT
from .base import Applied, Outcome, Scalar
from .evaluate import Footprint, State, Transaction, Writes, footprint

# How long a save waits for rows that somebody else holds, which is somebody's shell: our own never hold any for long.
LOCK_WAIT_MS: Final = 4_000
# Distinct statements that are kept; a server comes by a few dozen.
STATEMENTS_MAX: Final = 512

_encode = msgspec.json.Encoder().encode
_decode_counters = msgspec.json.Decoder(dict[str, int]).decode

# A statement and its arguments.
Statement: TypeAlias = tuple[str, list[Any]]


class Relation(msgspec.Struct, frozen=True):
    """A table, as far as saving to it is concerned."""

    name: str
    key: str
    # Grows or moves with every write of the row, and is compared before the next.
    guard: str
    columns: tuple[str, ...]


class Part(msgspec.Struct, frozen=True):
    """What a batch found in one table, and makes of it."""

    relation: Relation
    # The keys that were there, with the guard of each.
    found: dict[str, int]
    # Rows to write, by their keys: where there was none, and in the place of what was found.
    inserted: dict[str, Any]
    updated: dict[str, Any]
    deleted: list[str]

    @property
    def is_writing(self) -> bool:
        return bool(self.inserted or self.updated or self.deleted)


class Change(msgspec.Struct, frozen=True):
    """The net effect of a batch, and everything that has to stand as it was found for it to be right."""

    parts: tuple[Part, ...]
    # Something that the batch rests on was absent and stays so: there is no row that could be locked for it.
    rests_on_absence: bool

    @property
    def is_writing(self) -> bool:
        return any(part.is_writing for part in self.parts)


# The guards of what a load has found: rows by table and id, counters by name.
Found: TypeAlias = tuple[dict[type[Row], dict[str, int]], dict[str, int]]

_COUNTERS: Final = Relation("counters", "name", "value", ("name", "value"))


def _relation(table: type[Row]) -> Relation:
    for field in msgspec.structs.fields(table):
        kind = field.type
        known = kind in (str, int, bool) or get_origin(kind) is tuple or issubclass(kind, enum.StrEnum)
        assert known, f"no column type for {field.name}: {kind}"
    return Relation(TABLES[table].name, "id", "version", table.__struct_fields__)


RELATIONS: Final[Mapping[type[Row], Relation]] = {table: _relation(table) for table in TABLES}
_DECODERS: Final[Mapping[type[Row], Any]] = {
    table: msgspec.json.Decoder(list[table]).decode  # type: ignore[valid-type]
    for table in TABLES
}
# The place of each table in the order of locks.
_PLACES: Final = {table: place for place, table in enumerate(TABLES)}


# --- Loading ----------------------------------------------------------------------------------------------------


def load(schema: str, needed: Footprint, *, is_locking: bool = False) -> Statement:
    """Everything in the footprint that exists; locked until the transaction ends, if asked for."""
    tables = tuple(sorted(needed.ids, key=_PLACES.__getitem__))
    arguments: list[Any] = [sorted(needed.ids[table]) for table in tables]
    if needed.counters:
        arguments.append(sorted(needed.counters))
    return _load_sql(schema, tables, bool(needed.counters), is_locking), arguments


@lru_cache(STATEMENTS_MAX)
def _load_sql(schema: str, tables: tuple[type[Row], ...], has_counters: bool, is_locking: bool) -> str:
    parts: list[str] = []
    for number, table in enumerate(tables, start=1):
        locking = " ORDER BY id FOR UPDATE" if is_locking else ""
        page = f"SELECT * FROM {schema}.{RELATIONS[table].name} WHERE id = ANY(${number}::text[]){locking}"
        parts.append(f"(SELECT json_agg(t) FROM ({page}) t)")
    if has_counters:
        locking = " ORDER BY name FOR UPDATE" if is_locking else ""
        page = f"SELECT name, value FROM {schema}.counters WHERE name = ANY(${len(tables) + 1}::text[]){locking}"
        parts.append(f"(SELECT json_object_agg(name, value) FROM ({page}) t)")
    return "SELECT " + ", ".join(parts)


def loaded(needed: Footprint, answer: Sequence[Any]) -> State:
    """What the statement of `load` has answered."""
    tables = sorted(needed.ids, key=_PLACES.__getitem__)
    rows: dict[type[Row], dict[str, Row]] = {
        table: {row.id: row for row in _rows(table, text)} for table, text in zip(tables, answer, strict=False)
    }
    counters = answer[len(tables)] if needed.counters else None
    return State(rows, {} if counters is None else _decode_counters(counters))


def _rows(table: type[Row], text: str | None) -> list[Row]:
    # An aggregate of nothing is null.
    return [] if text is None else cast("list[Row]", _DECODERS[table](text))


def found_in(state: State) -> Found:
    """What to compare with before a save; taken down before the batch is evaluated, which changes the state."""
    rows = {table: {id: row.version for id, row in by_id.items()} for table, by_id in state.rows.items()}
    return rows, dict(state.counters)


# --- Saving -----------------------------------------------------------------------------------------------------


def change_of(batch: Sequence[Transaction], outcomes: Iterable[Outcome], found: Found, writes: Writes) -> Change:
    """What to save. Transactions that were refused need nothing to stand: they were answered as of the load."""
    rows_found, counters_found = found
    applied = footprint(ops for ops, outcome in zip(batch, outcomes, strict=True) if isinstance(outcome, Applied))
    parts: list[Part] = []
    rests_on_absence = False
    for table in sorted(applied.ids, key=_PLACES.__getitem__):
        part, is_absent = _part(RELATIONS[table], applied.ids[table], rows_found[table], writes.rows.get(table, {}))
        parts.append(part)
        rests_on_absence |= is_absent
    if applied.counters:
        # A counter at zero is not kept.
        values = {name: {"name": name, "value": value} if value else None for name, value in writes.counters.items()}
        part, is_absent = _part(_COUNTERS, applied.counters, counters_found, values)
        parts.append(part)
        rests_on_absence |= is_absent
    return Change(tuple(parts), rests_on_absence)


def _part(
    relation: Relation, needed: set[str], found: Mapping[str, int], values: Mapping[str, Any]
) -> tuple[Part, bool]:
    """One table's part, and whether it rests on the absence of something that it does not write."""
    part = Part(relation, {}, {}, {}, [])
    rests_on_absence = False
    # In the order of keys: two nodes that insert the same rows must not wait for each other crosswise.
    for key in sorted(needed):
        value = values.get(key)
        if key in found:
            part.found[key] = found[key]
            if value is not None:
                part.updated[key] = value
            elif key in values:
                part.deleted.append(key)
        elif value is not None:
            part.inserted[key] = value
        else:
            rests_on_absence = True
    return part, rests_on_absence


def save(schema: str, writer: str, life: int, batch: int, change: Change) -> Statement:
    """Write the change and the number of the batch; answers whether everything stood as found, and it was done; and
    whether the writer still has its life.

    Raises a unique violation when something that was absent is there now.
    """
    arguments: list[Any] = [writer, life, batch]
    shape: list[tuple[Relation, bool, bool, bool, bool]] = []
    for part in change.parts:
        shape.append((part.relation, bool(part.found), bool(part.inserted), bool(part.updated), bool(part.deleted)))
        if part.found:
            arguments += [list(part.found), list(map(str, part.found.values()))]
        arguments += [_encode(list(rows.values())).decode() for rows in (part.inserted, part.updated) if rows]
        if part.deleted:
            arguments.append(part.deleted)
    return _save_sql(schema, tuple(shape)), arguments


@lru_cache(STATEMENTS_MAX)
def _save_sql(schema: str, shape: tuple[tuple[Relation, bool, bool, bool, bool], ...]) -> str:
    # The life first: whoever has ended it waits here for what is under way, and lets nothing later through. Settings
    # that hold for this transaction only are the one kind that survives a connection pooler.
    steps = [
        f"turn AS MATERIALIZED (SELECT set_config('lock_timeout', '{LOCK_WAIT_MS}', true),"
        " CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END"
        f" FROM {schema}.writers WHERE id = $1 AND life = $2 FOR UPDATE)"
    ]
    conditions = [lives := "(SELECT count(*) FROM turn) = 1"]
    effects: list[str] = []
    last, argument = "turn", 4
    for number, (relation, is_found, is_inserted, is_updated, is_deleted) in enumerate(shape):
        name, key, guard = f"{schema}.{relation.name}", relation.key, relation.guard
        if is_found:
            # Numbers travel as text: the driver knows lists of text, and would have to ask what a list of numbers is.
            keys, guards = f"${argument}::text[]", f"${argument + 1}::text[]::bigint[]"
            # Each step counts the one before, which makes it wait for that one: the order of locks.
            steps.append(
                f"held{number} AS MATERIALIZED (SELECT {key}, {guard} FROM {name} WHERE {key} = ANY({keys})"
                f" AND (SELECT count(*) FROM {last}) >= 0 ORDER BY {key} FOR UPDATE)"
            )
            last = f"held{number}"
            # As two lists in the order of keys, because joining them could be planned as every one with every other.
            for column, expected in ((key, keys), (guard, guards)):
                standing = f"SELECT array_agg({column} ORDER BY {key}) FROM {last}"
                conditions.append(f"({standing}) IS NOT DISTINCT FROM {expected}")
            argument += 2
        columns = ", ".join(f'"{column}"' for column in relation.columns)
        if is_inserted:
            effects.append(
                f"inserted{number} AS (INSERT INTO {name} ({columns}) SELECT {columns}"
                f" FROM json_populate_recordset(NULL::{name}, ${argument}::json) WHERE (SELECT stands FROM verdict))"
            )
            argument += 1
        if is_updated:
            # They are there and held. Said as a conflict, it finds them by their keys however it is planned.
            values = ", ".join(f'"{column}" = excluded."{column}"' for column in relation.columns if column != key)
            effects.append(
                f"updated{number} AS (INSERT INTO {name} ({columns}) SELECT {columns}"
                f" FROM json_populate_recordset(NULL::{name}, ${argument}::json) WHERE (SELECT stands FROM verdict)"
                f" ON CONFLICT ({key}) DO UPDATE SET {values})"
            )
            argument += 1
        if is_deleted:
            effects.append(
                f"deleted{number} AS (DELETE FROM {name} WHERE {key} = ANY(${argument}::text[])"
                f" AND (SELECT stands FROM verdict))"
            )
            argument += 1
    verdict = f"verdict AS MATERIALIZED (SELECT {' AND '.join(conditions)} AS stands)"
    effects.append(
        f"landed AS (UPDATE {schema}.writers SET batch = $3, seen_at = now()"
        f" WHERE id = $1 AND (SELECT stands FROM verdict))"
    )
    return f"WITH {', '.join([*steps, verdict, *effects])} SELECT stands, {lives} AS lives FROM verdict"


# --- Pages ------------------------------------------------------------------------------------------------------


def select(
    schema: str,
    table: type[Row],
    filters: Mapping[str, tuple[Scalar, ...]],
    after: str,
    limit: int,
    *,
    newest_first: bool,
) -> Statement:
    """The page of rows after that id, in the order of ids; or of those before it, in the other."""
    arguments: list[Any] = []
    conditions: list[str] = []
    for field, values in filters.items():
        # Equality, because then the index gives the rows in the order of ids and the limit ends the walk.
        arguments.append(values[0] if len(values) == 1 else list(values))
        conditions.append(f"{field} = ${len(arguments)}" if len(values) == 1 else f"{field} = ANY(${len(arguments)})")
    if after:
        arguments.append(after)
        conditions.append(f"id {'<' if newest_first else '>'} ${len(arguments)}")
    arguments.append(limit)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    page = (
        f"SELECT * FROM {schema}.{RELATIONS[table].name}{where}"
        f" ORDER BY id {'DESC' if newest_first else 'ASC'} LIMIT ${len(arguments)}"
    )
    return f"SELECT json_agg(t) FROM ({page}) t", arguments


def selected(table: type[RowT], answer: Sequence[Any], *, newest_first: bool) -> list[RowT]:
    """What the statement of `select` has answered."""
    rows = _rows(table, answer[0])
    # PostgreSQL aggregates in the order of the page but does not promise it.
    rows.sort(key=lambda row: row.id, reverse=newest_first)
    return cast("list[RowT]", rows)
