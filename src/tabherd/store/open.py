"""From a store's address to a store: the only place that knows which engines exist."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import InvalidRequest
from .base import Store
from .memory import MemoryStore
from .sqlite import SqliteStore


def open_store(url: str, default_path: Path, *, on_commit: Callable[[float, int], None] | None = None) -> Store:
    """Open `sqlite:///absolute/path` or `memory://`; an empty address means SQLite at `default_path`.

    `on_commit` gets the seconds and the number of transactions of every commit, on the event loop. Raises
    `InvalidRequest` for an address that means nothing and `StoreUnavailable` for a store that cannot be used.
    """
    if not url:
        return SqliteStore(default_path, on_commit=on_commit)
    parts = urlsplit(url)
    if parts.query or parts.fragment or parts.netloc:
        raise _not_an_address(url)
    match parts.scheme, unquote(parts.path):
        case "memory", "" | "/":
            return MemoryStore()
        case "sqlite", path if path.startswith("/") and not path.endswith("/"):
            return SqliteStore(Path(path), on_commit=on_commit)
        case _:
            raise _not_an_address(url)


def _not_an_address(url: str) -> InvalidRequest:
    return InvalidRequest(
        f"store: '{url}' is not the address of a store.",
        action="Use sqlite:///absolute/path, or memory://, or leave it empty for the state directory.",
        field="store",
    )
