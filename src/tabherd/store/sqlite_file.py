"""The SQLite file: how it is made, recognised, brought up to date, and what is said when it cannot be used.

Invariants: a file appears under its name only when it is complete, so whatever stands there and is not ours (empty,
garbage, another program's) is refused, never read as empty. One process owns the file, by a lock beside it that ends
with the process. The schema moves forward one numbered file at a time, each in one transaction.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final
from urllib.parse import quote

from ..errors import StoreUnavailable
from .sqlite_rows import CACHED_STATEMENTS

# "thrd" in the header says that the file is ours.
APPLICATION_ID: Final = 0x74687264
# STRICT tables came with this one.
SQLITE_VERSION_MIN: Final = (3, 37, 0)
# Up to this size every start walks the whole file, which takes a fraction of a second; a larger one is believed until
# a read fails, because a crash does not harm it and a restart must be quick.
CHECKED_MAX_BYTES: Final = 32 * 1024 * 1024
# Pages each of the two connections keeps in memory. More makes nothing faster, since the system keeps the file's pages
# too, and each connection fills all it may have.
CACHE_KIB: Final = 2 * 1024
# With less room than this a disk counts as full: SQLite's shared index grows by 32 KiB at a time.
ROOM_MIN_BYTES: Final = 64 * 1024
# After a burst the log is cut back to this.
WAL_KEPT_BYTES: Final = 64 * 1024 * 1024

# What went wrong, by SQLite's primary result code; and the sentence that names the way out. Codes that are not here
# are our own bugs.
_CAUSES: Final[dict[int, tuple[str, str]]] = {
    sqlite3.SQLITE_BUSY: ("locked", "Another process holds it locked; end that process or wait for it."),
    sqlite3.SQLITE_LOCKED: ("locked", "Another process holds it locked; end that process or wait for it."),
    sqlite3.SQLITE_PROTOCOL: ("locked", "Another process holds it locked; end that process or wait for it."),
    sqlite3.SQLITE_READONLY: ("read_only", "Make the file and its directory writable for this user."),
    sqlite3.SQLITE_PERM: ("read_only", "Make the file and its directory writable for this user."),
    sqlite3.SQLITE_FULL: ("full", "The disk is full; free some space and work resumes by itself."),
    sqlite3.SQLITE_IOERR: ("io_error", "The disk reports an error; look at the system log."),
    sqlite3.SQLITE_CANTOPEN: ("cannot_open", "Check that the file and its directory exist and are writable."),
    sqlite3.SQLITE_CORRUPT: ("corrupt", "Restore it from a backup, or move it away to begin anew."),
    sqlite3.SQLITE_NOTADB: ("corrupt", "Restore it from a backup, or move it away to begin anew."),
    sqlite3.SQLITE_NOMEM: ("out_of_memory", "Free some memory and work resumes by itself."),
}


def is_of_the_world(error: Exception) -> bool:
    """Whether the disk, another process or the file is to blame, and not a bug of ours."""
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in _CAUSES


def unavailable(path: Path, error: Exception) -> StoreUnavailable:
    """What to tell the caller about an error that is of the world."""
    assert isinstance(error, sqlite3.Error)
    cause, fix = _CAUSES[error.sqlite_errorcode & 0xFF]
    # SQLite reports a disk without room for its shared index as an I/O error like any other; and so it does with one
    # that has become read-only under files that are open.
    if cause == "io_error" and _is_full(path.parent):
        cause, fix = _CAUSES[sqlite3.SQLITE_FULL]
    elif cause == "io_error" and _is_read_only(path):
        cause, fix = _CAUSES[sqlite3.SQLITE_READONLY]
    return StoreUnavailable(f"The store {path} cannot be used: {error}. {fix}", cause=cause, path=str(path))


def _is_full(directory: Path) -> bool:
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize < ROOM_MIN_BYTES


def _is_read_only(path: Path) -> bool:
    """Whether the disk or a flag of the file forbids writing, which binds root too."""
    return not all(os.access(file, os.W_OK) for file in (path, _beside(path, "-wal")) if file.exists())


def _refusal(path: Path, cause: str, sentence: str) -> StoreUnavailable:
    return StoreUnavailable(f"The store {path} {sentence}", cause=cause, path=str(path), retryable=False)


class SqliteFile:
    """An owned, checked and current file with its two connections: one that writes, one that only reads."""

    def __init__(self, path: Path, *, busy_ms: int, size_max_bytes: int | None) -> None:
        if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
            need = ".".join(map(str, SQLITE_VERSION_MIN))
            raise _refusal(path, "old_sqlite", f"needs SQLite {need}; this Python has {sqlite3.sqlite_version}.")
        self.path = path
        # Open, and so held, until the file is disowned.
        self._lock: int | None = _own(path)
        with ExitStack() as undo, _explained(path):
            undo.callback(self.disown)
            if not path.exists():
                _create(path)
            _recognise(path)
            self.writer = _connect(path, "rw", busy_ms)
            undo.callback(self.writer.close)
            _prepare(path, self.writer, size_max_bytes)
            self.reader = _connect(path, "ro", busy_ms)
            undo.callback(self.reader.close)
            for connection in (self.writer, self.reader):
                connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            undo.pop_all()

    def disown(self) -> None:
        """Let another process have the file. Both connections are closed by then."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what SQLite and the system say into an error that names the file and the fix."""
    try:
        yield
    except sqlite3.Error as error:
        if not is_of_the_world(error):
            raise
        raise unavailable(path, error) from error
    except OSError as error:
        raise _explain_os(path, error) from error


def _explain_os(path: Path, error: OSError) -> StoreUnavailable:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return _refusal(path, "full", "cannot be written: the disk is full; free some space.")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            sentence = f"is not accessible: make it and its directory {path.parent} writable for this user."
            return _refusal(path, "read_only", sentence)
        case _:
            return _refusal(path, "io_error", f"cannot be used: {error.strerror}.")


def _own(path: Path) -> int:
    """The lock that makes this process the owner; it ends with the process, however that ends. Not on the file itself:
    closing any handle of a file drops SQLite's own locks on it.
    """
    with _explained(path):
        if not path.parent.is_dir():
            raise _refusal(path, "missing_directory", f"has no directory to live in: create {path.parent}.")
        lock = os.open(_beside(path, "-owner"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(lock, 0)
            os.write(lock, str(os.getpid()).encode())
        except BlockingIOError:
            owner = os.read(lock, 20).decode("ascii", "replace")
            os.close(lock)
            sentence = f"is in use by another server (process {owner}): stop it, or use another file."
            raise _refusal(path, "locked", sentence) from None
        except OSError:
            os.close(lock)
            raise
        return lock


def _create(path: Path) -> None:
    """Build the file under another name and move it into place when it is whole."""
    if _beside(path, "-wal").exists():
        sentence = (
            f"is missing but its log {path.name}-wal is there: restore the file, or remove the log to begin anew."
        )
        raise _refusal(path, "corrupt", sentence)
    draft = path.with_name(f".{path.name}.new")
    # A draft that a crash has left is ours to remove: we own the name.
    for leftover in (draft, _beside(draft, "-wal"), _beside(draft, "-journal")):
        leftover.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            _migrate(connection)
            connection.execute("PRAGMA journal_mode = WAL")
        os.chmod(draft, 0o600)
        _sync(draft)
        os.rename(draft, path)
        _sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _recognise(path: Path) -> None:
    """Refuse what is not an SQLite file before SQLite may take an empty one for a new one."""
    if not path.is_file():
        raise _refusal(path, "not_a_file", "is not a file: move it away, or name another path.")
    with open(path, "rb") as file:
        header = file.read(16)
    if header != b"SQLite format 3\0":
        found = "is empty" if not header else "is not an SQLite file"
        raise _refusal(path, "corrupt", f"{found}: restore it from a backup, or move it away to begin anew.")


def _connect(path: Path, mode: str, busy_ms: int) -> sqlite3.Connection:
    # Each connection is made here and then used by one thread only.
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=busy_ms / 1000,
        check_same_thread=False,
        cached_statements=CACHED_STATEMENTS,
    )


def _prepare(path: Path, writer: sqlite3.Connection, size_max_bytes: int | None) -> None:
    (application_id,) = writer.execute("PRAGMA application_id").fetchone()
    if application_id != APPLICATION_ID:
        raise _refusal(path, "foreign", "is the SQLite database of another program: name another path.")
    (version,) = writer.execute("PRAGMA user_version").fetchone()
    if version > len(migrations()):
        sentence = (
            f"has schema {version}, made by a newer tabherd; this one knows schema {len(migrations())}."
            " Upgrade tabherd, or name another path."
        )
        raise _refusal(path, "newer_schema", sentence)
    if path.stat().st_size <= CHECKED_MAX_BYTES:
        (verdict,) = writer.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            fix = "restore it from a backup, or move it away to begin anew."
            raise _refusal(path, "corrupt", f"is damaged ({' '.join(verdict.split())}): {fix}")
    # WAL is a property of the file, but a restored dump may have lost it.
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("PRAGMA synchronous = FULL")
    writer.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
    if size_max_bytes is not None:
        (page_bytes,) = writer.execute("PRAGMA page_size").fetchone()
        writer.execute(f"PRAGMA max_page_count = {max(1, size_max_bytes // page_bytes)}")
    # A file that cannot be written is found out now, not by the first caller. SQLite opens it all the same, and begins
    # all the same: only a write is refused.
    writer.execute("BEGIN IMMEDIATE")
    try:
        writer.execute(f"PRAGMA user_version = {version}")
    finally:
        writer.execute("ROLLBACK")
    _migrate(writer)


@cache
def migrations() -> tuple[str, ...]:
    """The schema files in order; number N brings the file from schema N-1 to N."""
    files = sorted((resources.files(__package__) / "schema" / "sqlite").iterdir(), key=lambda file: file.name)
    for number, file in enumerate(files, start=1):
        assert file.name.startswith(f"{number:04d}_"), f"schema file {file.name} is not number {number}"
    return tuple(file.read_text(encoding="utf-8") for file in files)


def _migrate(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number, sql in enumerate(migrations()[version:], start=version + 1):
        try:
            connection.executescript(f"BEGIN IMMEDIATE;\n{sql}\nPRAGMA user_version = {number};\nCOMMIT;")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
