"""What a transaction means: the one evaluation of guarded writes that the memory, SQLite and PostgreSQL stores share.

`evaluate` takes what stands and a list of transactions, brings the one to where the others lead, and answers with the
outcome of each and the net effect of all. It has no I/O, clock or chance. Transactions see the effects of those before
them, operations those before them in their transaction, and a transaction whose precondition fails leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, assert_never

import msgspec

from ..core.model import TABLES, Row
from ..errors import InvalidRequest
from .base import Add, Applied, Conflict, Delete, Insert, Op, Outcome, Put, Reason, Require, Scalar, Update

Transaction: TypeAlias = Sequence[Op]

# Counters that number rows begin with this and are moved by nothing else.
SEQUENCE_PREFIX = "seq:"

_encode = msgspec.json.Encoder().encode


class Writes(msgspec.Struct, frozen=True):
    """Rows and counters, each with the value it has in the end."""

    rows: dict[type[Row], dict[str, Row | None]]
    counters: dict[str, int]


class Footprint(msgspec.Struct, frozen=True):
    """The rows and counters that transactions read or write, so that an engine can fetch them at once."""

    ids: dict[type[Row], set[str]]
    counters: set[str]


class State(msgspec.Struct, frozen=True):
    """Rows and counters as they stand; what is absent does not exist, or is 0."""

    rows: dict[type[Row], dict[str, Row]]
    counters: dict[str, int]

    def row(self, table: type[Row], id: str) -> Row | None:
        by_id = self.rows.get(table)
        return None if by_id is None else by_id.get(id)


def evaluate(transactions: Iterable[Transaction], state: State) -> tuple[list[Outcome], Writes]:
    """Run the transactions in order; afterwards `state` has the effects of those that were applied."""
    writes = Writes({}, {})
    outcomes: list[Outcome] = []
    for ops in transactions:
        attempt = _Attempt(state)
        outcome = attempt.run(ops)
        outcomes.append(outcome)
        if isinstance(outcome, Applied):
            for table, id, _ in attempt.rows_before:
                writes.rows.setdefault(table, {})[id] = state.row(table, id)
            for name, _ in attempt.counters_before:
                writes.counters[name] = state.counters[name]
    return outcomes, writes


class _Attempt:
    """One transaction under way, with what it needs to take everything back."""

    __slots__ = ("_state", "counters_before", "rows_before")

    def __init__(self, state: State) -> None:
        self._state = state
        # What stood before each write, in the order of the writes.
        self.rows_before: list[tuple[type[Row], str, Row | None]] = []
        self.counters_before: list[tuple[str, int]] = []

    def run(self, ops: Transaction) -> Outcome:
        stored: list[Row | None] = []
        for index, op in enumerate(ops):
            row: Row | None = None
            match op:
                case Add():
                    if not self._move(op):
                        self._take_back()
                        return Conflict(index, "cap", value=self._state.counters.get(op.counter, 0))
                case Insert() | Update() | Put():
                    table, id = type(op.row), op.row.id
                    standing = self._state.row(table, id)
                    if reason := _objection(op, standing):
                        return self._conflict(index, reason, table, id)
                    row = self._write(op, standing)
                case Delete() | Require():
                    standing = self._state.row(op.table, op.id)
                    if reason := _objection(op, standing):
                        return self._conflict(index, reason, op.table, op.id)
                    if isinstance(op, Delete):
                        self.rows_before.append((op.table, op.id, standing))
                        del self._state.rows[op.table][op.id]
                case _:
                    assert_never(op)
            stored.append(row)
        return Applied(tuple(stored))

    def _write(self, op: Insert | Update | Put, standing: Row | None) -> Row:
        changes: dict[str, int] = {"version": standing.version + 1 if standing else 1}
        if not isinstance(op, Put) and op.numbered is not None:
            sequence = Add(SEQUENCE_PREFIX + op.numbered, 1)
            self._move(sequence)
            changes[op.numbered] = self._state.counters[sequence.counter]
        row = msgspec.structs.replace(op.row, **changes)
        table = type(row)
        self.rows_before.append((table, row.id, standing))
        self._state.rows.setdefault(table, {})[row.id] = row
        return row

    def _move(self, op: Add) -> bool:
        counters = self._state.counters
        before = counters.get(op.counter, 0)
        after = before + op.delta
        if after < 0 or (op.cap is not None and op.delta > 0 and after > op.cap):
            return False
        self.counters_before.append((op.counter, before))
        counters[op.counter] = after
        return True

    def _conflict(self, index: int, reason: Reason, table: type[Row], id: str) -> Conflict:
        self._take_back()
        return Conflict(index, reason, row=self._state.row(table, id))

    def _take_back(self) -> None:
        for table, id, row in reversed(self.rows_before):
            if row is None:
                self._state.rows[table].pop(id, None)
            else:
                self._state.rows[table][id] = row
        for name, value in reversed(self.counters_before):
            self._state.counters[name] = value


def _objection(op: Insert | Update | Put | Delete | Require, standing: Row | None) -> Reason | None:
    """Why the operation cannot be done to what stands there, if it cannot."""
    match op:
        case Put():
            return None
        case Insert() | Require(version=0):
            return None if standing is None else "exists"
        case Update():
            version = op.row.version
        case Delete() | Require():
            version = op.version
        case _:
            assert_never(op)
    if standing is None:
        return "missing"
    return None if standing.version == version else "version"


def footprint(transactions: Iterable[Transaction]) -> Footprint:
    """Everything `evaluate` will ask for."""
    needed = Footprint({}, set())
    for ops in transactions:
        for op in ops:
            match op:
                case Insert(row=row) | Update(row=row) | Put(row=row):
                    needed.ids.setdefault(type(row), set()).add(row.id)
                    if not isinstance(op, Put) and op.numbered is not None:
                        needed.counters.add(SEQUENCE_PREFIX + op.numbered)
                case Delete(table=table, id=id) | Require(table=table, id=id):
                    needed.ids.setdefault(table, set()).add(id)
                case Add(counter=name):
                    needed.counters.add(name)
                case _:
                    assert_never(op)
    return needed


def refuse_unstorable(ops: Transaction) -> None:
    """Raise `InvalidRequest` for text that some engine cannot hold: NUL, which SQLite's JSON functions cut off at and
    PostgreSQL refuses, and lone surrogates, which have no UTF-8. Pages can produce both, in a title for instance.
    """
    for op in ops:
        match op:
            case Insert(row=row) | Update(row=row) | Put(row=row):
                try:
                    is_suspect = b"\\u0000" in _encode(row)
                except UnicodeEncodeError:
                    is_suspect = True
                # The encoded form also matches text that merely spells the escape, so each field has the last word.
                if is_suspect:
                    for field in row.__struct_fields__:
                        _refuse_text(getattr(row, field), field)
            case Delete(id=id) | Require(id=id):
                _refuse_text(id, "id")
            case Add(counter=name):
                assert not name.startswith(SEQUENCE_PREFIX), f"{name} is moved by numbering only"
                _refuse_text(name, "counter")
            case _:
                assert_never(op)


def _refuse_text(value: object, field: str) -> None:
    if isinstance(value, tuple):
        for item in value:
            _refuse_text(item, field)
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidRequest(f"{field}: lone surrogates cannot be stored.", field=field) from None
        if "\0" in value:
            raise InvalidRequest(f"{field}: NUL characters cannot be stored.", field=field)


def wanted(table: type[Row], where: Mapping[str, Scalar | tuple[Scalar, ...]] | None) -> dict[str, tuple[Scalar, ...]]:
    """The filter of a `select` as tuples. Asking by a field that has no index is a bug: it would scan."""
    filters: dict[str, tuple[Scalar, ...]] = {}
    for field, value in (where or {}).items():
        assert field in TABLES[table].indexed, f"{TABLES[table].name}.{field} is not indexed"
        filters[field] = value if isinstance(value, tuple) else (value,)
    return filters
