"""From an address to a backend of locks: the only place that knows which there are.

`postgresql://...` is a database, `file:///directory` a directory; without an address it is the directory that the
caller names. The driver of PostgreSQL is imported when one is opened, not before: it is an extra.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from ..errors import InvalidRequest
from .base import AsyncBackend, Backend
from .file import AsyncFileBackend, FileBackend

MAX_CONNECTIONS: Final = 25
KEEPALIVE_S: Final = 10


def is_postgres(url: str) -> bool:
    """Whether that is the address of a PostgreSQL database."""
    return urlsplit(url).scheme in ("postgresql", "postgres")


def open_backend(
    url: str | None,
    *,
    directory: Path | None = None,
    max_connections: int = MAX_CONNECTIONS,
    keepalive_s: int = KEEPALIVE_S,
) -> Backend:
    """The backend of that address, for threads; a database is connected to when a lock is first asked for.

    `InvalidRequest` for an address that means nothing; `StoreUnavailable` for a directory that cannot be used.
    """
    if url and is_postgres(url):
        _require_driver()
        from .postgres import PostgresBackend

        return PostgresBackend(url, max_connections=max_connections, keepalive_s=keepalive_s)
    return FileBackend(_directory_of(url, directory))


def open_async_backend(
    url: str | None,
    *,
    directory: Path | None = None,
    max_connections: int = MAX_CONNECTIONS,
    keepalive_s: int = KEEPALIVE_S,
    marker: str = "",
) -> AsyncBackend:
    """The same for the tasks of the event loop that runs. `marker`: whose life its locks are bound to (`marker_of`)."""
    if url and is_postgres(url):
        _require_driver()
        from .postgres import AsyncPostgresBackend

        return AsyncPostgresBackend(url, max_connections=max_connections, keepalive_s=keepalive_s, marker=marker)
    return AsyncFileBackend(_directory_of(url, directory))


def _directory_of(url: str | None, directory: Path | None) -> Path:
    if not url:
        if directory is None:
            raise InvalidRequest("Locks need an address or a directory.", field="url")
        return directory
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.scheme != "file" or parts.netloc or parts.query or parts.fragment or not path.startswith("/"):
        # The address is not repeated: it may contain a password.
        raise InvalidRequest(
            "That is not an address of locks.",
            action="Use postgresql://user@host/database, or file:///absolute/directory.",
            field="url",
        )
    return Path(path)


def _require_driver() -> None:
    if find_spec("psycopg") is None:
        raise InvalidRequest(
            "Locks on PostgreSQL need its driver: pip install 'tabherd[postgres]'.",
            action="Run: pip install 'tabherd[postgres]'",
            field="url",
        )
