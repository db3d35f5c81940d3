"""What the row of a task is once it is over, and how each of its states is told, whoever has brought it there."""

from __future__ import annotations

from typing import Any, Final

import structlog

from ..core.lifecycle import TASK, TaskEvent, TaskState, advance
from ..core.model import Task, changed
from ..errors import BodyTooLarge, DeadlineExceeded, TabherdError
from .accepted import encode_outcome, storable
from .events import EventBus

log = structlog.get_logger("scheduler")

# A result that is larger is not kept, and the task says so; it is done all the same.
RESULT_MAX_CHARS: Final = 1 << 20
_EVENT_OF: Final = {state: f"task.{state}" for state in TaskState}
# What somebody may have to look into; the rest is for who follows a single task.
_LOGGED_AT_INFO: Final = frozenset((TaskState.FAILED, TaskState.REJECTED))
LATE_QUEUED: Final = "deadline exceeded while queued"
LATE: Final = "deadline exceeded"


def tell_state(events: EventBus, state: TaskState, fields: dict[str, Any]) -> None:
    """Publish and log that a task has come there."""
    events.tell(_EVENT_OF[state], fields)
    line = log.info if state in _LOGGED_AT_INFO else log.debug
    line(f"task {state}", **fields)


def ended_row(row: Task, state: TaskState, now: int, *, result: Any = None, error: TabherdError | None = None) -> Task:
    """The task as it is told and kept."""
    text = "" if result is None else _result_text(result)
    if len(text) > RESULT_MAX_CHARS:
        # It is what it is, done or not; that there is more to know is said, not passed over.
        error = error or BodyTooLarge(f"The result has {len(text)} characters; at most {RESULT_MAX_CHARS} are kept.")
        text = ""
    return changed(
        row,
        state=state,
        completed_at=now,
        result=text,
        error="" if error is None else storable(error.message),
        code="" if error is None else error.code,
    )


def ended_for_others(row: Task, node_id: str, event: TaskEvent, now: int, error: TabherdError | None = None) -> Task:
    """The same of a task that was not this node's: who has ended it sees to what is left to do."""
    return changed(ended_row(row, advance(TASK, row.state, event), now, error=error), node_id=node_id)


def too_late(row: Task) -> DeadlineExceeded:
    """Whether it has touched anything is said."""
    return DeadlineExceeded(LATE if row.attempts else LATE_QUEUED)


def _result_text(result: Any) -> str:
    return encode_outcome({"result": result})[len('{"result":') : -1]
