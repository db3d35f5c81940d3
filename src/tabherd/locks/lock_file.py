"""A lock file: taking its flock, the record in it, and descriptors that no child process inherits.

- The kernel's flock is the lock. What is written in the file only tells people who holds it, and how often it was ever
  taken: a file that is empty or holds nonsense is a free lock like any other, and no error.
- A lock is held only if the file under its name is the one that was locked: one that was removed meanwhile is not.
- A descriptor is closed in every fork, and by every exec: a child that outlives us keeps nothing of ours alive.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path
from typing import Final

import msgspec

from .base import Holder, LockKey

# Files are for their owner alone, as the directory is.
FILE_MODE: Final = 0o600
# All of a record in one write; shorter ones are padded, so that no old rest is left behind a new beginning.
RECORD_BYTES: Final = 1024
# With more files than this in it, a directory is swept of those that nobody has used for so long.
FILES_MAX: Final = 10_000
IDLE_S: Final = 24 * 3600.0
# How often we start anew because the file was replaced under us.
REPLACED_MAX: Final = 100


class Record(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a lock file says."""

    # The lock's name or numbers, which the file's own name does not tell.
    label: str = ""
    # Who holds it; None: nobody.
    holder: Holder | None = None
    # In milliseconds since 1970.
    acquired_at: int | None = None
    # How often it was ever taken.
    generation: int = 0


class Descriptors:
    """Descriptors of this process that a fork must not keep."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        # Held while one is opened or closed, and over a fork: a child sees all of them in the set, or not yet open.
        self._guard = threading.Lock()
        os.register_at_fork(
            before=self._guard.acquire, after_in_parent=self._guard.release, after_in_child=self._close_all
        )

    def open(self, path: Path, flags: int) -> int:
        with self._guard:
            descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
            self._open.add(descriptor)
            return descriptor

    def close(self, descriptor: int) -> None:
        """Close it, if this process opened it."""
        with self._guard:
            if descriptor in self._open:
                self._open.discard(descriptor)
                os.close(descriptor)

    def _close_all(self) -> None:
        while self._open:
            os.close(self._open.pop())
        self._guard.release()


DESCRIPTORS: Final = Descriptors()


def try_flock(descriptor: int) -> bool:
    """Take it if nobody has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def let_go(descriptor: int) -> None:
    """Unlock and close it."""
    # Said aloud, since a child that is between fork and exec has the open file, too.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    DESCRIPTORS.close(descriptor)


class LockFile:
    """A lock that is held, by this open file."""

    def __init__(self, path: Path, descriptor: int, key: LockKey) -> None:
        self.key: Final = key
        # Both are set when it is signed.
        self.acquired_at = 0
        self.generation = 0
        # Whose descriptor it is: after a fork, not the child's.
        self._pid: Final = os.getpid()
        self._path = path
        self._descriptor = descriptor
        stat = os.fstat(descriptor)
        self._identity = (stat.st_dev, stat.st_ino)

    @classmethod
    def take(cls, path: Path, key: LockKey) -> LockFile | None:
        """The lock, still to be signed, or None if somebody has it."""
        for _ in range(REPLACED_MAX):
            descriptor = DESCRIPTORS.open(path, os.O_RDWR | os.O_CREAT)
            try:
                if not try_flock(descriptor):
                    DESCRIPTORS.close(descriptor)
                    return None
                if _is_there(path, descriptor):
                    return cls(path, descriptor, key)
            except BaseException:
                DESCRIPTORS.close(descriptor)
                raise
            # It was removed between our opening and locking it: whoever comes next would lock another file.
            DESCRIPTORS.close(descriptor)
        raise OSError(f"{path} is replaced again and again")

    def sign(self, holder: Holder) -> None:
        """Write down who has it now, which is when it counts as acquired."""
        now_us = time.time_ns() // 1_000
        self.acquired_at = now_us // 1_000
        # A file that says nothing may be the successor of one that was removed: the time never was a number before.
        self.generation = (read_record(self._descriptor).generation or now_us) + 1
        self._write(Record(self.key.label, holder, self.acquired_at, self.generation))

    @property
    def is_held(self) -> bool:
        """Whether the file under the lock's name is still the one we have locked, in the process that locked it."""
        try:
            stat = os.stat(self._path)
        except FileNotFoundError:
            return False
        return (stat.st_dev, stat.st_ino) == self._identity and os.getpid() == self._pid

    def give_back(self) -> None:
        """Unlock it. The kernel does the same when the process ends."""
        if os.getpid() != self._pid:
            # A fork has closed the descriptor, and its number may be another file's by now.
            return
        try:
            if self.generation:
                self._write(Record(self.key.label, generation=self.generation))
        finally:
            let_go(self._descriptor)

    def _write(self, record: Record) -> None:
        encoded = msgspec.json.encode(record)
        if len(encoded) >= RECORD_BYTES:
            # Only letters that take many bytes can make it so long; who it is matters more than what it says.
            encoded = msgspec.json.encode(msgspec.structs.replace(record, label="", holder=_nameless(record.holder)))
        os.pwrite(self._descriptor, encoded.ljust(RECORD_BYTES - 1) + b"\n", 0)


def read_record(file: int | Path) -> Record:
    """What the file says; an empty record if that is nothing, or nonsense."""
    if isinstance(file, Path):
        try:
            raw = file.read_bytes()[:RECORD_BYTES]
        except FileNotFoundError:
            return Record()
    else:
        raw = os.pread(file, RECORD_BYTES, 0)
    try:
        return msgspec.json.decode(raw, type=Record)
    except msgspec.DecodeError:
        return Record()


def _nameless(holder: Holder | None) -> Holder | None:
    return holder and msgspec.structs.replace(holder, label="")


def _is_there(path: Path, descriptor: int) -> bool:
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return False
    opened = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)


def sweep(directory: Path) -> None:
    """Remove what was used long ago, if there is too much of it. A file goes only while we hold its lock."""
    names = os.listdir(directory)
    if len(names) <= FILES_MAX:
        return
    for name in names:
        path = directory / name
        if path.suffix == ".lock" and _is_idle(path):
            _remove(path)


def _remove(path: Path) -> None:
    descriptor = DESCRIPTORS.open(path, os.O_RDWR | os.O_CREAT)
    try:
        # Whoever has opened it and waits for us sees that it is gone, and makes another.
        if try_flock(descriptor) and _is_there(path, descriptor) and _is_idle(path):
            for suffix in (".line", ".crowd", ".counts", ".lock"):
                path.with_suffix(suffix).unlink(missing_ok=True)
    finally:
        let_go(descriptor)


def _is_idle(path: Path) -> bool:
    try:
        return os.stat(path).st_mtime < time.time() - IDLE_S
    except FileNotFoundError:
        return False
