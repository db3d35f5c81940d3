"""The rows: frozen, versioned, complete in the table of tables, and unharmed by a trip through JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tabherd.core import model
from tabherd.core.lifecycle import BrowserState, CommandState, DeliveryState, LeaseState, TabState, TaskState
from tabherd.core.model import (
    TABLES,
    ArchivedTask,
    Audit,
    Beat,
    Browser,
    Checkpoint,
    Command,
    Credential,
    Delivery,
    Idempotency,
    NamedLock,
    Node,
    Row,
    Secret,
    Session,
    Tab,
    Task,
    TaskKey,
    Waiter,
    changed,
)

ROWS: list[Row] = [
    Node(id="nod_1", epoch=3, url="http://127.0.0.1:7722", pid=4, started_at=5),
    Beat(id="nod_1", epoch=3, at=6, sessions=2, free_seats=3),
    Waiter(id="ses_2", node_id="nod_1", pool="default", agent_id="alice", key="schlüssel", arrived_at=7),
    Secret(id="nodes", value="00"),
    Browser(id="brw_1", node_id="nod_1", pool="default", state=BrowserState.READY),
    Session(id="ses_1", state=LeaseState.ACTIVE, agent_id="alice", pool="default", key="schlüssel", fence=7),
    Tab(id="tab_1", session_id="ses_1", node_id="nod_1", browser_id="brw_1", state=TabState.READY),
    Checkpoint(
        id="ses_1", node_id="nod_1", cookies='[{"name":"schlüssel"}]', origins='{"https://a.test":{}}', taken_at=6
    ),
    Command(
        id="cmd_1",
        node_id="nod_1",
        tab_id="tab_1",
        session_id="ses_1",
        agent_id="alice",
        kind="click",
        state=CommandState.RUNNING,
        created_at=1,
    ),
    Task(id="tsk_1", node_id="nod_1", agent_id="alice", state=TaskState.QUEUED, action="click", scopes=("browse",)),
    ArchivedTask(
        id="tsk_2", node_id="nod_1", agent_id="alice", state=TaskState.DONE, action="text", result='"schlüssel"'
    ),
    TaskKey(id="alice:order-8", task_id="tsk_1", body_hash="00", created_at=1),
    Delivery(
        id="tsk_2",
        node_id="nod_1",
        state=DeliveryState.PENDING,
        url="https://shop.test/hook",
        event="task.done",
        body="{}",
        created_at=1,
    ),
    Idempotency(id="alice:order-7", command_id="cmd_1", body_hash="00", created_at=1),
    Audit(id="aud_1", at=1, agent_id="alice", controller_id="alice-1", verb="click", tab_id="tab_1"),
    NamedLock(id="account:schlüssel", node_id="nod_1", agent_id="alice", ticket_hash="00", fence=8),
    Credential(id="crd_1", token_hash="00", agent_id="alice", scopes=("browse", "tasks"), created_at=1),
]
EACH_ROW = pytest.mark.parametrize("row", ROWS, ids=lambda row: type(row).__name__)


def test_the_examples_cover_every_row_type() -> None:
    declared = {
        kind for kind in vars(model).values() if isinstance(kind, type) and issubclass(kind, Row) and kind is not Row
    }
    assert {type(row) for row in ROWS} == declared


def test_every_row_type_has_a_table() -> None:
    assert set(TABLES) == {type(row) for row in ROWS}


def test_table_names_are_unique() -> None:
    assert len({table.name for table in TABLES.values()}) == len(TABLES)


@EACH_ROW
def test_the_indexed_fields_exist_and_are_plain(row: Row) -> None:
    for name in TABLES[type(row)].indexed:
        assert isinstance(getattr(row, name), str | int)


@EACH_ROW
def test_a_new_row_has_version_zero(row: Row) -> None:
    assert row.version == 0


@EACH_ROW
def test_a_row_cannot_be_changed_in_place(row: Row) -> None:
    field: Any = "id"
    with pytest.raises(AttributeError):
        setattr(row, field, "other")


@EACH_ROW
def test_a_row_survives_json(row: Row) -> None:
    assert msgspec.json.decode(msgspec.json.encode(row), type=type(row)) == row


def test_changed_returns_a_copy_and_leaves_the_row_alone() -> None:
    before = Session(id="ses_1", state=LeaseState.RESERVED, agent_id="alice", pool="default", version=4)
    after = changed(before, state=LeaseState.ACTIVE, fence=9)
    assert (after.state, after.fence, after.version, after.agent_id) == (LeaseState.ACTIVE, 9, 4, "alice")
    assert (before.state, before.fence) == (LeaseState.RESERVED, 0)


def test_changed_refuses_a_field_that_does_not_exist() -> None:
    with pytest.raises(TypeError):
        changed(ROWS[0], epok=4)
