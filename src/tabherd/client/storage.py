"""Storage state as callers have it: a mapping in Playwright's shape, the struct, or the path of such a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from .. import wire
from ..errors import InvalidRequest

StorageState: TypeAlias = wire.StorageState | Mapping[str, Any] | str | Path


def plain_state(given: StorageState) -> dict[str, Any]:
    """The state in plain JSON types, read from its file if a path is given."""
    state = _read(Path(given)) if isinstance(given, (str, Path)) else given
    plain: dict[str, Any] = msgspec.to_builtins(state)
    return plain


def _read(path: Path) -> wire.StorageState:
    try:
        return msgspec.json.decode(path.read_bytes(), type=wire.StorageState)
    except OSError as error:
        raise InvalidRequest(
            f"{path} cannot be read: {error.strerror}.",
            action="Give the path of a file that you can read.",
            field="storageState",
        ) from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(
            f"{path} is not a storage state: {error}.",
            action="Give a file that storage_state(path=...), here or Playwright's, or GET /sessions/{id}/state wrote.",
            field="storageState",
        ) from None
