"""What every struct on the wire has in common, and the types of names and numbers in them."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

# `$` alone would let one line break pass at the end.
Name = Annotated[str, Meta(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")]
Agent = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@/-]*$(?!\n)")]
Identifier = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")]
Scope: TypeAlias = Literal["browse", "evaluate", "tasks", "locks", "files", "admin"]
DEADLINE_MAX_MS = 7 * 24 * 3600 * 1000


class Request(msgspec.Struct, rename="camel", kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Something a caller sends."""


class Answer(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """Something a caller gets. Clients ignore fields they do not know, so that servers can grow."""
