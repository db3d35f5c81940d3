"""Making, recognising and refusing the SQLite file. Every refusal names the file, its cause and a way out."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tabherd.core.model import Session
from tabherd.errors import StoreUnavailable
from tabherd.store import sqlite_file
from tabherd.store.base import Add, Insert
from tabherd.store.sqlite import SqliteStore

from .samples import session


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def fill(path: Path) -> None:
    """A store with enough in it to have several pages."""
    store = SqliteStore(path)
    await store.apply(*(Insert(session(f"s{n:03d}", phase="x" * 200)) for n in range(100)), Add("n", 100))
    await store.close()


def refusal(path: Path) -> StoreUnavailable:
    with pytest.raises(StoreUnavailable) as refused:
        SqliteStore(path, busy_ms=10)
    assert str(path) in refused.value.message
    assert refused.value.details["path"] == str(path)
    return refused.value


# --- Making -----------------------------------------------------------------------------------------------------


async def test_a_file_that_does_not_exist_is_made_for_its_owner_only(path: Path) -> None:
    await SqliteStore(path).close()
    assert sorted(file.name for file in path.parent.iterdir()) == ["store.db", "store.db-owner"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_appears_under_its_name_only_when_it_is_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_: Path) -> None:
        assert not path.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(sqlite_file, "_sync", crash)
    with pytest.raises(KeyboardInterrupt):
        SqliteStore(path)
    assert not path.exists()


async def test_a_draft_that_a_crash_left_behind_is_made_anew(path: Path) -> None:
    path.with_name(".store.db.new").write_bytes(b"half a file")
    await fill(path)
    assert not path.with_name(".store.db.new").exists()


async def test_contents_survive_closing_and_opening(path: Path) -> None:
    await fill(path)
    store = SqliteStore(path)
    assert len(await store.select(Session)) == await store.counter("n") == 100
    await store.close()


async def test_closing_leaves_one_self_contained_file(path: Path) -> None:
    await fill(path)
    assert not path.with_name("store.db-wal").exists()


async def test_the_file_says_whose_it_is_and_is_durable_by_its_settings(path: Path) -> None:
    store = SqliteStore(path)
    writer = store._file.writer
    assert writer.execute("PRAGMA application_id").fetchone() == (int.from_bytes(b"thrd"),)
    assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert writer.execute("PRAGMA synchronous").fetchone() == (2,)
    await store.close()


# --- Whose it is ------------------------------------------------------------------------------------------------


async def test_a_file_in_use_by_another_process_is_refused_with_its_pid(path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", f"{_HOLD}\nhold({str(path)!r})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        error = refusal(path)
        assert error.details["cause"] == "locked"
        assert str(holder.pid) in error.message
    finally:
        holder.kill()
        holder.communicate()
    # The lock ends with the process, even with one that was killed.
    await SqliteStore(path).close()


_HOLD = """
import sys
from pathlib import Path
from tabherd.store.sqlite import SqliteStore
def hold(path):
    store = SqliteStore(Path(path))
    print("held", flush=True)
    sys.stdin.read()
"""


async def test_a_second_store_on_the_file_in_one_process_is_refused_too(path: Path) -> None:
    store = SqliteStore(path)
    assert refusal(path).details["cause"] == "locked"
    await store.close()


async def test_a_refused_file_is_not_left_owned(path: Path) -> None:
    path.write_bytes(b"")
    refusal(path)
    path.unlink()
    await SqliteStore(path).close()


async def test_a_file_that_another_program_has_locked_is_refused(path: Path) -> None:
    await fill(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        error = refusal(path)
    assert error.details["cause"] == "locked"
    assert error.retryable


# --- Permissions ------------------------------------------------------------------------------------------------


@contextmanager
def as_ordinary_user() -> Iterator[None]:
    """Root may write anything, so drop to nobody for a moment; anyone else is ordinary already."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that everybody may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        yield directory
        directory.chmod(0o755)


async def test_a_read_only_file_is_refused_at_once(open_directory: Path) -> None:
    path = open_directory / "store.db"
    await fill(path)
    path.with_name("store.db-owner").chmod(0o666)
    path.chmod(0o444)
    open_directory.chmod(0o777)
    with as_ordinary_user():
        error = refusal(path)
    assert error.details["cause"] == "read_only"
    assert "writable" in error.message


async def test_a_read_only_directory_is_refused_with_and_without_a_file_in_it(open_directory: Path) -> None:
    path = open_directory / "store.db"
    await fill(path)
    path.chmod(0o666)
    path.with_name("store.db-owner").chmod(0o666)
    open_directory.chmod(0o555)
    with as_ordinary_user():
        assert refusal(path).details["cause"] == "read_only"
        assert refusal(open_directory / "new.db").details["cause"] == "read_only"


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    error = refusal(tmp_path / "absent" / "store.db")
    assert error.details["cause"] == "missing_directory"
    assert str(tmp_path / "absent") in error.message


# --- What is not ours -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"not a database, " * 1000], ids=["empty", "zeros", "text"])
def test_what_is_not_an_sqlite_file_is_refused_and_left_as_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    error = refusal(path)
    assert error.details["cause"] == "corrupt"
    assert not error.retryable
    assert path.read_bytes() == content


def test_a_directory_under_that_name_is_refused(path: Path) -> None:
    path.mkdir()
    assert refusal(path).details["cause"] == "not_a_file"


def test_the_database_of_another_program_is_refused_and_left_as_it_is(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs (id)")
    before = path.read_bytes()
    assert refusal(path).details["cause"] == "foreign"
    assert path.read_bytes() == before


async def test_a_log_without_its_file_is_not_read_as_an_empty_store(path: Path) -> None:
    path.with_name("store.db-wal").write_bytes(b"frames")
    error = refusal(path)
    assert error.details["cause"] == "corrupt"
    assert "store.db-wal" in error.message
    assert not path.exists()


def damage_rows(content: bytearray) -> None:
    """Overwrite the heads of the pages that hold rows, where SQLite keeps the places of their cells; spare the schema,
    so that the file still opens.
    """
    for page in range(4096, len(content), 4096):
        if b"x" * 200 in content[page : page + 4096]:
            content[page : page + 64] = b"\xa5" * 64


@pytest.mark.parametrize("damage", ["header", "truncated", "rows"])
async def test_a_damaged_file_is_refused_at_the_start(path: Path, damage: str) -> None:
    await fill(path)
    content = bytearray(path.read_bytes())
    match damage:
        case "header":
            content[16:100] = b"\xff" * 84
        case "truncated":
            del content[len(content) // 2 :]
        case "rows":
            damage_rows(content)
    path.write_bytes(content)
    error = refusal(path)
    assert error.details["cause"] == "corrupt"
    assert "backup" in error.message


async def test_a_file_too_large_to_check_reports_its_damage_when_it_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(path)
    content = bytearray(path.read_bytes())
    damage_rows(content)
    path.write_bytes(content)
    monkeypatch.setattr(sqlite_file, "CHECKED_MAX_BYTES", 0)
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailable) as read:
        await store.select(Session)
    assert read.value.details["cause"] == "corrupt"
    with pytest.raises(StoreUnavailable) as written:
        await store.apply(Insert(session("s000")), Insert(session("s999")))
    assert written.value.details["cause"] == "corrupt"
    await store.close()


# --- Schemas ----------------------------------------------------------------------------------------------------


async def test_a_newer_schema_is_refused_by_both_numbers(path: Path) -> None:
    await fill(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as newer:
        newer.execute("PRAGMA user_version = 41")
    error = refusal(path)
    assert error.details["cause"] == "newer_schema"
    assert "schema 41" in error.message
    assert f"schema {len(sqlite_file.migrations())}" in error.message


async def test_an_older_file_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(path)
    schemas = (*sqlite_file.migrations(), "CREATE TABLE later (id TEXT) STRICT;")
    monkeypatch.setattr(sqlite_file, "migrations", lambda: schemas)
    store = SqliteStore(path)
    assert await store.counter("n") == 100
    assert store._file.writer.execute("PRAGMA user_version").fetchone() == (len(schemas),)
    assert store._file.writer.execute("SELECT count(*) FROM later").fetchone() == (0,)
    await store.close()


async def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(path)
    schemas = (*sqlite_file.migrations(), "CREATE TABLE later (id TEXT) STRICT; INSERT INTO later VALUES (x'00');")
    with monkeypatch.context() as patched:
        patched.setattr(sqlite_file, "migrations", lambda: schemas)
        with pytest.raises(sqlite3.IntegrityError):
            SqliteStore(path)
    store = SqliteStore(path)
    assert store._file.writer.execute("SELECT name FROM sqlite_master WHERE name = 'later'").fetchone() is None
    assert await store.counter("n") == 100
    await store.close()


def test_an_sqlite_without_strict_tables_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    assert refusal(path).details["cause"] == "old_sqlite"
