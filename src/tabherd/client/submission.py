"""Tasks before they are sent and after they are over; the same for both flavours.

Every submission carries an idempotency key, one of its own if its caller names none: a submission whose answer got lost
is sent again, and is still one task.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

from .. import wire
from ..errors import InvalidRequest, StateConflict, TabherdError, from_wire
from .call import wire_names

# In which a task is over.
OVER: Final = frozenset(("done", "failed", "cancelled", "rejected"))
# The longest that one request waits for the end of a task.
POLL_MAX_S: Final = 30.0
ASK_FOR_LESS: Final = "The task is done. For what it answers, ask for less, or run it as a command."

# RFC 3339, milliseconds since 1970, or a datetime that knows its offset.
Moment = datetime | str | int


def submission(
    *,
    action: str | None = None,
    steps: Sequence[Mapping[str, Any]] | None = None,
    tab_id: str | None = None,
    session_id: str | None = None,
    selector: str | None = None,
    ref: str | None = None,
    params: Mapping[str, Any] | None = None,
    priority: int | None = None,
    deadline: Moment | None = None,
    deadline_ms: int | None = None,
    pool: str | None = None,
    idempotent: bool | None = None,
    idempotency_key: str | None = None,
    callback_url: str | None = None,
) -> dict[str, Any]:
    """The task as it is sent."""
    if deadline is not None and deadline_ms is not None:
        raise InvalidRequest("A task has one deadline: a moment, or a time from now.", field="deadline_ms")
    if deadline_ms is not None:
        deadline = int(time.time() * 1000) + deadline_ms
    return wire_names(
        {
            "action": action,
            "steps": None if steps is None else [wire_names(step) for step in steps],
            "tab_id": tab_id,
            "session_id": session_id,
            "selector": selector,
            "ref": ref,
            "params": wire_names(params) if params else None,
            "priority": priority,
            "deadline": deadline.isoformat() if isinstance(deadline, datetime) else deadline,
            "pool": pool,
            "idempotent": idempotent,
            "idempotency_key": idempotency_key or f"sdk-{uuid4().hex}",
            "callback_url": callback_url,
        }
    )


def result_of(view: wire.TaskView) -> Any:
    """What a task that is over has answered: bytes for a screenshot or PDF, a list for steps. Its failure is raised."""
    if view.code is not None:
        raise error_of_task(view)
    if view.state != "done":
        raise StateConflict(f"The task is {view.state}: it has no result.", taskId=view.task_id, state=view.state)
    if view.steps is not None:
        return [step["result"] for step in view.result]
    return base64.b64decode(view.result) if view.action in ("screenshot", "pdf") else view.result


def error_of_task(view: wire.TaskView) -> TabherdError:
    """What a task failed with, as it would have been raised by a command."""
    told = {"code": view.code, "message": view.error or view.code}
    if view.state == "done":
        told["action"] = ASK_FOR_LESS
    error = from_wire(told)
    error.details |= {"taskId": view.task_id, "state": view.state, "attempts": view.attempts}
    if view.steps is not None and view.result is not None:
        error.details["steps"] = view.result
    return error
