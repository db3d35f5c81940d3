"""Tasks as they are submitted, kept and shown."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from .. import wire
from ..core.lifecycle import TASK, TaskState, is_terminal
from ..core.model import Task
from ..errors import InvalidRequest, UnknownAction
from .views import rfc3339

# What an action must not name as a parameter, because the task itself does.
RESERVED = ("kind", "selector", "ref", "sessionId", "fence", "controllerId", "tabId", "idempotencyKey", "waitPolicy")


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is to be done, as it was submitted; kept in the row as JSON."""

    selector: str | None = None
    ref: str | None = None
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    steps: list[Any] | None = None


_encode = msgspec.json.Encoder().encode
_decode_asked = msgspec.json.Decoder(Asked).decode


def asked_text(fields: wire.TaskFields) -> str:
    """What is kept of a submission."""
    steps = None if fields.steps is None else [msgspec.to_builtins(step) for step in fields.steps]
    return _encode(Asked(selector=fields.selector, ref=fields.ref, params=fields.params, steps=steps)).decode()


def check_action(fields: wire.TaskFields) -> str:
    """The kind that the task is kept under; raises for what could never be run."""
    if (fields.action is None) == (fields.steps is None):
        raise InvalidRequest("A task has either an action or steps.", field="action")
    if fields.action is None:
        return "steps"
    for name in RESERVED:
        if name in fields.params:
            raise InvalidRequest(f"params.{name}: this is a field of the task itself.", field=f"params.{name}")
    _action(fields.action, fields.selector, fields.ref, fields.params)
    return fields.action


def command_of(row: Task, timeout_ms: int, fence: int | None) -> wire.AnyAction | wire.Steps:
    """The command that the task is under that lease, to be over within that time. It never waits for its tab: the
    scheduler does.
    """
    asked = _decode_asked(row.request)
    # It may be given less time than its deadline leaves, never more.
    own_ms = asked.params.get("timeoutMs") or timeout_ms
    limits: dict[str, Any] = {
        "waitPolicy": "fail_fast",
        "timeoutMs": max(1, min(own_ms, timeout_ms)),
        "fence": fence,
    }
    if asked.steps is not None:
        return msgspec.convert({"steps": asked.steps, **limits}, wire.Steps)
    return _action(row.action, asked.selector, asked.ref, {**asked.params, **limits})


def _action(kind: str, selector: str | None, ref: str | None, params: dict[str, Any]) -> wire.AnyAction:
    shape = wire.ACTIONS.get(kind)
    if shape is None:
        raise UnknownAction(f"There is no action '{kind}'.", kinds=list(wire.ACTION_KINDS))
    named = {"selector": selector, "ref": ref}
    body = {"kind": kind, **params, **{name: value for name, value in named.items() if value is not None}}
    try:
        return msgspec.convert(body, shape)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$.")
        raise InvalidRequest(f"{message}.", field=where.rstrip("`") or "params") from None


def moment_ms(moment: str | int, field: str) -> int:
    """A time as callers spell it, in milliseconds."""
    if isinstance(moment, int):
        return moment
    try:
        at = datetime.fromisoformat(moment)
    except ValueError:
        raise InvalidRequest(f"{field}: '{moment}' is not a time as in RFC 3339.", field=field) from None
    if at.tzinfo is None:
        raise InvalidRequest(f"{field}: a time needs its offset, such as Z.", field=field)
    return int(at.timestamp() * 1000)


def task_view(
    row: Task,
    state: TaskState,
    *,
    position: int | None = None,
    eta_ms: int | None = None,
    webhook: wire.WebhookView | None = None,
) -> wire.TaskView:
    """The task for its agent; on disk it may still be queued when it has been started."""
    asked = _decode_asked(row.request)
    is_over = is_terminal(TASK, state)
    return wire.TaskView(
        task_id=row.id,
        agent_id=row.agent_id,
        action=row.action,
        tab_id=row.tab_id or None,
        session_id=row.session_id or None,
        selector=asked.selector,
        ref=asked.ref,
        params=asked.params,
        steps=asked.steps,
        priority=row.priority,
        state=state,
        position=position,
        eta_ms=eta_ms,
        deadline=rfc3339(row.deadline_at),
        created_at=rfc3339(row.created_at),
        started_at=rfc3339(row.started_at) if row.started_at else None,
        completed_at=rfc3339(row.completed_at) if is_over else None,
        latency_ms=row.completed_at - row.created_at if is_over else None,
        result=wire.value_of(row.result) if row.result else None,
        error=row.error or None,
        code=row.code or None,
        attempts=row.attempts,
        callback_url=row.callback_url or None,
        webhook=webhook,
    )
