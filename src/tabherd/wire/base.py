"""What every struct on the wire has in common, and the types of names and numbers in them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

# `$` alone would let one line break pass at the end.
Name = Annotated[str, Meta(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")]
Agent = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@/-]*$(?!\n)")]
Identifier = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")]
Scope: TypeAlias = Literal["browse", "evaluate", "tasks", "locks", "files", "admin"]
DEADLINE_MAX_MS = 7 * 24 * 3600 * 1000
# Longest JSON of a page that is made Python objects of: hostile JSON takes up to 340 ms per MB, in which a server does
# nothing else.
READ_MAX_CHARS = 32_000


class Request(msgspec.Struct, rename="camel", kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Something a caller sends."""


class Answer(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """Something a caller gets. Clients ignore fields they do not know, so that servers can grow."""


def value_of(text: str | bytes | msgspec.Raw) -> Any:
    """The value of that JSON; of what is long the JSON itself, checked and unread, which is written as it is."""
    return msgspec.json.decode(text, type=Any if len(text) <= READ_MAX_CHARS else msgspec.Raw)


def plain(value: Any) -> Any:
    """What `msgspec.to_builtins` makes of a value that it does not know, for writers that know less than msgspec."""
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else str(value)
