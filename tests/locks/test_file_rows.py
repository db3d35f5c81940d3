"""Looking at the locks of a directory, counting how contended they are, and sweeping it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from tests.locks.company import program, row_of, says

from tabherd.locks import file_rows, lock_file
from tabherd.locks.base import Holder, key_of, this_process
from tabherd.locks.counting import FileCounts, read_counts
from tabherd.locks.file import FileBackend
from tabherd.locks.lock_file import read_record, sweep

ME = this_process()
KEY = key_of(1, 42)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "locks"


@pytest.fixture
def backend(directory: Path) -> FileBackend:
    return FileBackend(directory)


def path_of(directory: Path) -> Path:
    return directory / f"{KEY.file_name}.lock"


def test_counts_are_those_of_all_processes(directory: Path, backend: FileBackend) -> None:
    hold = backend.acquire(KEY, 0, ME)
    code = """
import sys
from tabherd.locks import advisory_lock_or_skip
with advisory_lock_or_skip(1, 42, url=sys.argv[1]) as acquired:
    print(acquired, flush=True)
"""
    for _ in range(2):
        with program(code, directory.as_uri()) as other:
            assert says(other) == "False"
    assert backend.try_acquire(KEY, ME) is None
    row = row_of(directory.as_uri(), "1:42")
    assert row is not None
    assert (row.counts.skips, row.counts.consecutive_skips) == (3, 3)
    hold.release()


def test_a_process_that_was_stopped_while_it_counted_stops_nobody(directory: Path, backend: FileBackend) -> None:
    path = directory / f"{KEY.file_name}.counts"
    with path.open("w") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        FileCounts(directory).add(KEY, waits=1)
    assert read_counts(path).waits == 0
    FileCounts(directory).add(KEY, waits=1)
    assert read_counts(path).waits == 1


def test_counts_that_are_nonsense_begin_anew(directory: Path, backend: FileBackend) -> None:
    path = directory / f"{KEY.file_name}.counts"
    path.write_bytes(b"nonsense")
    FileCounts(directory).add(KEY, timeouts=2)
    assert read_counts(path).timeouts == 2


def test_looking_at_locks_makes_none_of_them_busy(backend: FileBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    backend.acquire(KEY, 0, ME).release()

    def touched(*_: object) -> None:
        raise AssertionError("a lock was taken in order to look at it")

    monkeypatch.setattr(fcntl, "flock", touched)
    assert backend.list() == []


def test_where_the_kernel_tells_nothing_the_record_of_a_living_process_counts(
    backend: FileBackend, directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(file_rows, "KERNEL_LIST", tmp_path / "nothing")
    hold = backend.acquire(KEY, 0, ME)
    assert [row.holder for row in backend.list()] == [ME]
    hold.release()
    assert backend.list() == []
    hold = backend.acquire(KEY, 0, Holder(2**22 + 1, ME.host))
    assert backend.list() == []
    hold.release()


def test_a_holder_on_another_machine_is_believed(backend: FileBackend, directory: Path) -> None:
    hold = backend.acquire(KEY, 0, Holder(1, "elsewhere"))
    signed = path_of(directory).read_bytes()
    hold.release()
    path_of(directory).write_bytes(signed)
    assert [row.holder for row in backend.list()] == [Holder(1, "elsewhere")]


# --- Sweeping ---


def test_files_that_nobody_used_for_long_are_swept_when_there_are_too_many(
    backend: FileBackend, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_file, "FILES_MAX", 3)
    held = backend.acquire(key_of(1, 1), 0, ME)
    for number in (2, 3, 4):
        backend.acquire(key_of(1, number), 0, ME).release()
    for number in (1, 2, 3):
        os.utime(directory / f"{key_of(1, number).file_name}.lock", (0, 0))
    sweep(directory)
    left = {path.stem for path in directory.glob("*.lock")}
    assert left == {key_of(1, 1).file_name, key_of(1, 4).file_name}
    held.check()
    held.release()


def test_few_files_are_kept_however_old(backend: FileBackend, directory: Path) -> None:
    backend.acquire(KEY, 0, ME).release()
    os.utime(path_of(directory), (0, 0))
    sweep(directory)
    assert read_record(path_of(directory)).label == "1:42"
