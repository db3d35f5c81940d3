"""Dialogs that a page opened, in words: for a person at a terminal and for a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from .. import wire
from ..quoting import MESSAGE_MAX_CHARS, quoted


def of_command(command: wire.CommandView) -> Iterator[str]:
    """A line for each dialog that opened, and one for those that are only counted."""
    return _lines(command.dialogs, command.more_dialogs)


def of_error(details: Mapping[str, Any]) -> Iterator[str]:
    """The same from the details of an error; none where the error has none, or not of this shape."""
    try:
        dialogs = msgspec.convert(details.get("dialogs", ()), tuple[wire.DialogView, ...])
    except msgspec.ValidationError:
        return iter(())
    return _lines(dialogs, details.get("moreDialogs", 0))


def _lines(dialogs: tuple[wire.DialogView, ...], more: int) -> Iterator[str]:
    for dialog in dialogs:
        when = "earlier, " if dialog.is_earlier else ""
        how = "accepted" if dialog.is_accepted else "dismissed"
        said = f": {quoted(dialog.message, MESSAGE_MAX_CHARS)}" if dialog.message else ""
        yield f"Dialog ({dialog.type}, {when}{how}){said}"
    if more:
        yield f"And {more} more dialogs."
