"""How a model reads a typed error: the code, what happened, where it stands in the queue, and the next step.

A model reads the text alone. So what another caller would look up in the details is written out where the next step
refers to them, and a person who has the tab is named, with the tool that takes it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..client import dialogs
from ..errors import TabherdError
from ..quoting import quoted
from .waiting import seconds

# What is shown of a message or a next step, in which there may be long words of others, and of the details.
SENTENCE_MAX_CHARS: Final = 4_000
DETAILS_MAX_CHARS: Final = 2_000
# Those that are told in words of their own, or are not for reading.
_TOLD: Final = frozenset(("candidates", "dialogs", "moreDialogs", "position", "screenshot", "commandId"))
# What we call things ourselves; everything else in a candidate may be a page's own word.
_OURS: Final = frozenset(("ref", "sessionId", "tabId"))


def told(error: TabherdError) -> list[str]:
    """The error in a few lines."""
    lines = [_cut(f"{error.code}: {error.message}", SENTENCE_MAX_CHARS)]
    details = error.details
    where = []
    if isinstance(position := details.get("position"), int):
        where.append(f"Position in the queue: {position}.")
    if error.retry_after_ms is not None:
        where.append(f"Retry after {seconds(error.retry_after_ms)}.")
    lines += [" ".join(where)] if where else []
    lines += [_candidate(each) for each in details.get("candidates", ()) if isinstance(each, dict)]
    lines += dialogs.of_error(details)
    if details.get("reason") == "handoff":
        lines.append(f"A person has the tab: {quoted(str(details.get('holder')))}.")
        return [*lines, "Next: Wait until they are done, or take the tab back with browser_handoff, resume true."]
    if "details" in error.action and (known := _known(details)):
        lines.append(f"Details: {known}")
    if error.action:
        lines.append(_cut(f"Next: {error.action}", SENTENCE_MAX_CHARS))
    return lines


def _candidate(candidate: dict[str, Any]) -> str:
    # What is inside another thing is told in the words of the next step.
    plain = {name: value for name, value in candidate.items() if isinstance(value, str | int) and value != ""}
    shown = {
        name: quoted(value) if isinstance(value, str) and name not in _OURS else value for name, value in plain.items()
    }
    return "- " + ", ".join(f"{name} {value}" for name, value in shown.items())


def _known(details: Mapping[str, Any]) -> str:
    """The details as JSON; empty when there are none but those that are told otherwise."""
    known = {name: value for name, value in details.items() if name not in _TOLD and value is not None}
    return _cut(msgspec.json.encode(known).decode(), DETAILS_MAX_CHARS) if known else ""


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else f"{text[:chars_max]} ... cut: {len(text)} characters in all."
