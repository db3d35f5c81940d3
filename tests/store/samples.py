"""Rows to store: one builder per kind that the tests need, and one row of every type with no field at its default."""

from __future__ import annotations

import enum
from typing import Any, get_origin

import msgspec

from tabherd.core.lifecycle import LeaseState, TabState, TaskState
from tabherd.core.model import TABLES, Row, Session, Tab, Task
from tabherd.store.base import Applied, Outcome


def session(id: str, **fields: Any) -> Session:
    return Session(**{"id": id, "state": LeaseState.RESERVED, "agent_id": "agent", "pool": "default", **fields})


def tab(id: str, **fields: Any) -> Tab:
    return Tab(
        **{"id": id, "session_id": "ses", "node_id": "node", "browser_id": "br", "state": TabState.OPENING, **fields}
    )


def task(id: str, **fields: Any) -> Task:
    return Task(
        **{"id": id, "node_id": "node", "agent_id": "agent", "state": TaskState.QUEUED, "action": "click", **fields}
    )


def only_row(outcome: Outcome) -> Any:
    """The stored row of a transaction's first operation, which must have been applied."""
    assert isinstance(outcome, Applied), outcome
    return outcome.rows[0]


def full_rows() -> list[Row]:
    """A row of every table whose fields all differ from their defaults and from each other."""
    return [_full(table.row) for table in TABLES.values()]


def _full(kind: type[Row]) -> Row:
    values: dict[str, Any] = {}
    for number, field in enumerate(msgspec.structs.fields(kind), start=1):
        if field.name == "version":
            continue
        if field.type is bool:
            values[field.name] = not field.default
        elif field.type is int:
            values[field.name] = 2**53 + number
        elif get_origin(field.type) is tuple:
            values[field.name] = (f"{field.name} ü", 'quote " and \\')
        elif issubclass(field.type, enum.StrEnum):
            values[field.name] = list(field.type)[-1]
        else:
            values[field.name] = f"{field.name} ünï \U0001f411 ' \" \\ \n \\u0000 {{}} [] %s"
    return kind(**values)
