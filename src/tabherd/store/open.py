"""From a store's address to a store: the only place that knows which engines exist."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import InvalidRequest
from .base import Store
from .memory import MemoryStore
from .sqlite import SqliteStore


def open_store(url: str, default_path: Path, *, on_commit: Callable[[float, int], None] | None = None) -> Store:
    """Open `sqlite:///absolute/path`, `postgresql://...` or `memory://`; an empty one means SQLite at `default_path`.

    `on_commit` gets the seconds and the number of transactions of every commit, on the event loop. Raises
    `InvalidRequest` for an address that means nothing and `StoreUnavailable` for a file that cannot be used; a database
    is connected to, and may be refused, when it is first used.
    """
    if not url:
        return SqliteStore(default_path, on_commit=on_commit)
    parts = urlsplit(url)
    if parts.scheme in ("postgresql", "postgres"):
        return _open_postgres(url, on_commit)
    if parts.query or parts.fragment or parts.netloc:
        raise _not_an_address(url)
    match parts.scheme, unquote(parts.path):
        case "memory", "" | "/":
            return MemoryStore()
        case "sqlite", path if path.startswith("/") and not path.endswith("/"):
            return SqliteStore(Path(path), on_commit=on_commit)
        case _:
            raise _not_an_address(url)


def _open_postgres(url: str, on_commit: Callable[[float, int], None] | None) -> Store:
    # Its driver is an extra, so nothing of it is imported before.
    if find_spec("asyncpg") is None:
        raise InvalidRequest(
            "store: PostgreSQL needs its driver: pip install 'tabherd[postgres]'.",
            action="Run: pip install 'tabherd[postgres]'",
            field="store",
        )
    from .postgres import PostgresStore
    from .postgres_database import PostgresDatabase

    return PostgresStore(PostgresDatabase(url), on_commit=on_commit)


def _not_an_address(url: str) -> InvalidRequest:
    return InvalidRequest(
        f"store: '{url}' is not the address of a store.",
        action="Use sqlite:///absolute/path, postgresql://user@host/database, or memory://;"
        " or leave it empty for the state directory.",
        field="store",
    )
