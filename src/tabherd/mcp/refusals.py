"""How a model reads a typed error: the code, what happened, where it stands in the queue, and the next step."""

from __future__ import annotations

from typing import Any

from ..client import dialogs
from ..errors import TabherdError
from .waiting import seconds


def told(error: TabherdError) -> str:
    """The error in a few lines."""
    lines = [f"{error.code}: {error.message}"]
    details = error.details
    where = []
    if isinstance(position := details.get("position"), int):
        where.append(f"Position in the queue: {position}.")
    if error.retry_after_ms is not None:
        where.append(f"Retry after {seconds(error.retry_after_ms)}.")
    lines += [" ".join(where)] if where else []
    lines += [_candidate(each) for each in details.get("candidates", ()) if isinstance(each, dict)]
    lines += dialogs.of_error(details)
    if error.action:
        lines.append(f"Next: {error.action}")
    return "\n".join(lines)


def _candidate(candidate: dict[str, Any]) -> str:
    # What is inside another thing is told in the words of the next step.
    plain = {name: value for name, value in candidate.items() if isinstance(value, str | int) and value != ""}
    return "- " + ", ".join(f"{name} {value}" for name, value in plain.items())
