"""What only files can do to a lock: nonsense in them, their removal, and how often they were taken."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.locks.company import HOLDS, LIMIT_S, is_awaited, program, says, together, until

from tabherd.errors import LockLost, LockTimedOut, StoreUnavailable
from tabherd.locks import advisory_lock, lock_file
from tabherd.locks.base import Holder, key_of, named_key, this_process
from tabherd.locks.file import AsyncFileBackend, FileBackend
from tabherd.locks.lock_file import LockFile

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


def test_only_the_owner_can_see_the_locks(backend: FileBackend, directory: Path) -> None:
    backend.acquire(KEY, 1, ME).release()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}


@pytest.mark.parametrize("content", [b"", b"\0\0\0", b"{", b"nonsense", b'{"generation": "x"}', b"[]", b"\xff" * 5_000])
def test_a_file_with_nonsense_in_it_is_a_free_lock(backend: FileBackend, directory: Path, content: bytes) -> None:
    path_of(directory).write_bytes(content)
    assert backend.list() == []
    hold = backend.acquire(KEY, 0, ME)
    assert [row.label for row in backend.list()] == ["1:42"]
    hold.release()


def test_a_lock_whose_file_holds_nonsense_is_still_held(backend: FileBackend, directory: Path) -> None:
    hold = backend.acquire(KEY, 0, ME)
    path_of(directory).write_bytes(b"")
    assert backend.try_acquire(KEY, ME) is None
    (row,) = backend.list()
    assert row.holder is not None
    assert row.holder.pid == os.getpid()
    hold.release()


def test_the_record_of_a_dead_holder_makes_no_lock_held(backend: FileBackend, directory: Path) -> None:
    hold = backend.acquire(KEY, 0, ME)
    signed = path_of(directory).read_bytes()
    hold.release()
    path_of(directory).write_bytes(signed)
    assert backend.list() == []
    backend.acquire(KEY, 0, ME).release()


def test_the_generation_counts_everybody_who_ever_had_the_lock(backend: FileBackend, directory: Path) -> None:
    first = backend.acquire(KEY, 0, ME)
    first.release()
    with program(HOLDS, directory.as_uri(), "1", "42") as other:
        assert says(other) == "held"
        other.kill()
    second = backend.acquire(KEY, LIMIT_S, ME)
    assert second.generation == first.generation + 2
    second.release()


def test_a_generation_never_comes_again_not_even_in_a_new_file(backend: FileBackend, directory: Path) -> None:
    seen = set()
    for _ in range(3):
        hold = backend.acquire(KEY, 0, ME)
        seen.add(hold.generation)
        hold.release()
        path_of(directory).unlink()
    assert len(seen) == 3


def test_a_holder_whose_file_was_removed_is_told(backend: FileBackend, directory: Path) -> None:
    hold = backend.acquire(KEY, 0, ME)
    hold.check()
    path_of(directory).unlink()
    with pytest.raises(LockLost):
        hold.check()
    with pytest.raises(LockLost):
        hold.release()
    hold.release()


def test_a_file_that_is_replaced_while_it_is_being_taken_is_not_mistaken_for_the_lock(
    directory: Path, backend: FileBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = path_of(directory)
    original = lock_file.try_flock

    def replaced_in_between(descriptor: int) -> bool:
        taken = original(descriptor)
        monkeypatch.setattr(lock_file, "try_flock", original)
        path.unlink()
        return taken

    monkeypatch.setattr(lock_file, "try_flock", replaced_in_between)
    taken = LockFile.take(path, KEY)
    assert taken is not None
    assert taken.is_held
    taken.give_back()


def test_a_directory_that_cannot_be_used_is_an_error_and_not_busy(directory: Path, backend: FileBackend) -> None:
    directory.rmdir()
    directory.write_bytes(b"")
    with pytest.raises(StoreUnavailable):
        backend.try_acquire(KEY, ME)
    with pytest.raises(StoreUnavailable):
        backend.acquire(KEY, 1, ME)
    with pytest.raises(StoreUnavailable):
        FileBackend(directory / "below")


def test_waiters_are_told_when_the_directory_goes_away(directory: Path, backend: FileBackend) -> None:
    hold = backend.acquire(KEY, 0, ME)

    def break_it() -> None:
        until(lambda: is_awaited(directory.as_uri(), "1:42"))
        directory.rename(directory.with_name("elsewhere"))

    error, _ = together(lambda: backend.acquire(KEY, LIMIT_S, ME), break_it)
    assert isinstance(error, StoreUnavailable)
    with pytest.raises(LockLost):
        hold.release()


def test_a_disk_that_is_full_leaves_no_lock_behind(
    backend: FileBackend, monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StoreUnavailable, match="No space left"):
            backend.acquire(KEY, 0, ME)
    backend.acquire(KEY, 0, ME).release()


def test_a_link_in_the_place_of_a_lock_is_not_followed(backend: FileBackend, directory: Path, tmp_path: Path) -> None:
    treasure = tmp_path / "treasure"
    treasure.write_text("gold")
    path_of(directory).symlink_to(treasure)
    with pytest.raises(StoreUnavailable):
        backend.acquire(KEY, 0, ME)
    assert treasure.read_text() == "gold"


def test_a_record_that_would_be_too_long_keeps_its_generation(backend: FileBackend, directory: Path) -> None:
    long = Holder(1, "host", "\N{GRINNING FACE}" * 200)
    name = named_key("\N{GRINNING FACE}" * 200)
    first = backend.acquire(name, 0, long)
    first.release()
    second = backend.acquire(name, 0, long)
    assert second.generation == first.generation + 1
    second.release()


def test_a_flock_of_a_program_without_the_library_is_respected(backend: FileBackend, directory: Path) -> None:
    with path_of(directory).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert backend.try_acquire(KEY, ME) is None
        with pytest.raises(LockTimedOut):
            backend.acquire(KEY, 0.01, ME)
    backend.acquire(KEY, LIMIT_S, ME).release()


def test_who_gave_up_never_gets_the_lock(backend: FileBackend, directory: Path) -> None:
    hold = backend.acquire(KEY, 0, ME)
    # Its thread stands in the kernel's line behind this one, and cannot be called back out of it.
    with (directory / f"{KEY.file_name}.line").open("w") as line:
        fcntl.flock(line, fcntl.LOCK_EX)
        with pytest.raises(LockTimedOut):
            backend.acquire(KEY, 0.02, ME)
    hold.release()
    again = backend.acquire(KEY, LIMIT_S, ME)
    assert again.generation == hold.generation + 1
    again.release()
    until(lambda: not any(thread.name == "tabherd-lock" for thread in threading.enumerate()))


def test_who_has_just_come_does_not_overtake_those_who_wait(backend: FileBackend, directory: Path) -> None:
    backend.acquire(KEY, 1, ME).release()
    with (
        (directory / f"{KEY.file_name}.crowd").open("r") as crowd,
        (directory / f"{KEY.file_name}.line").open("w") as line,
    ):
        # As another process does that waits, and has not yet seen that the lock is free.
        fcntl.flock(crowd, fcntl.LOCK_SH)
        fcntl.flock(line, fcntl.LOCK_EX)
        with pytest.raises(LockTimedOut):
            backend.acquire(KEY, 0.02, ME)
    backend.acquire(KEY, LIMIT_S, ME).release()


def test_a_copy_of_the_descriptor_in_a_child_that_is_being_started_does_not_keep_a_released_lock(
    backend: FileBackend,
) -> None:
    hold = backend.acquire(KEY, 1, ME)
    # What a child has between fork and exec, whoever forked it.
    copy = os.dup(hold._file._descriptor)
    try:
        hold.release()
        again = backend.try_acquire(KEY, ME)
        assert again is not None
        again.release()
    finally:
        os.close(copy)


def test_waiters_of_two_processes_are_served_in_turn(directory: Path, backend: FileBackend) -> None:
    hold = backend.acquire(KEY, 0, ME)
    with program(HOLDS, directory.as_uri(), "1", "42") as other:
        until(lambda: is_awaited(directory.as_uri(), "1:42"))
        order: list[str] = []

        def mine() -> None:
            with advisory_lock(1, 42, timeout=LIMIT_S, url=directory.as_uri()):
                order.append("mine")

        thread = threading.Thread(target=mine)
        thread.start()
        until(lambda: is_awaited(directory.as_uri(), "1:42", by=2))
        hold.release()
        assert says(other) == "held"
        assert order == []
        assert other.stdin is not None
        other.stdin.write("go on\n")
        other.stdin.flush()
        thread.join(LIMIT_S)
        assert order == ["mine"]


def test_a_crowd_of_threads_and_processes_loses_no_update(directory: Path, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    code = """
import sys
from pathlib import Path
from tabherd.locks import advisory_lock
counter = Path(sys.argv[2])
for _ in range(30):
    with advisory_lock("count", timeout=60, url=sys.argv[1]):
        counter.write_text(str(int(counter.read_text()) + 1))
print("done", flush=True)
"""

    def run_program() -> str:
        with program(code, directory.as_uri(), str(counter)) as process:
            return says(process)

    def run_thread() -> str:
        for _ in range(30):
            with advisory_lock("count", timeout=LIMIT_S, url=directory.as_uri()):
                counter.write_text(str(int(counter.read_text()) + 1))
        return "done"

    works: list[Callable[[], str]] = [run_program, run_program, run_thread, run_thread, run_thread]
    assert together(*works) == ["done"] * 5
    assert counter.read_text() == "150"


async def test_tasks_wait_in_the_same_line_as_threads(directory: Path, backend: FileBackend) -> None:
    hold = backend.acquire(KEY, 0, ME)
    waiting = asyncio.create_task(AsyncFileBackend(directory).acquire(KEY, LIMIT_S, ME))
    await asyncio.to_thread(until, lambda: is_awaited(directory.as_uri(), "1:42"))
    hold.release()
    taken = await waiting
    assert taken.generation == hold.generation + 1
    taken.on_lost(lambda: None)
    taken.check()
    await taken.release()
    await taken.release()


def test_a_loop_that_was_closed_with_a_waiter_in_it_takes_no_lock_along(directory: Path, backend: FileBackend) -> None:
    hold = backend.acquire(KEY, 0, ME)
    loop = asyncio.new_event_loop()

    async def wait() -> None:
        await AsyncFileBackend(directory).acquire(KEY, LIMIT_S, ME)

    task = loop.create_task(wait())
    loop.run_until_complete(asyncio.sleep(0))
    # Nobody cancels it, so that it is still in line when its loop is gone.
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    hold.release()
    backend.acquire(KEY, LIMIT_S, ME).release()
