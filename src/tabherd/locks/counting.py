"""How contended each lock is: waits, timeouts, skips, skips in a row.

`Tally` counts in memory what this process sees, for a bounded number of locks. `FileCounts` counts in a small file
beside the lock's own what all processes see; nothing is written while a lock is not contended.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Final

import msgspec

from .base import Counts, LockKey
from .lock_file import DESCRIPTORS, let_go, try_flock

# Locks that are counted in memory; those that were contended least recently are forgotten.
TALLIED_MAX: Final = 10_000
# How long we try for the few microseconds in which nobody else writes. A process that was stopped just there must not
# stop others: then the event is not counted.
TRIES_MAX: Final = 50
TRY_AGAIN_S: Final = 0.0002
# The longest file of counts.
COUNTS_BYTES: Final = 256


class Tally:
    """Counts in memory. Safe for threads."""

    def __init__(self) -> None:
        # The one that was contended last is last.
        self._counts: dict[LockKey, Counts] = {}
        self._guard = threading.Lock()

    def forget(self) -> None:
        """In a fork: whoever held the guard is not here."""
        self._guard = threading.Lock()

    def add(self, key: LockKey, *, waits: int = 0, timeouts: int = 0) -> None:
        """Count acquisitions that had to wait."""
        with self._guard:
            self._put(key, _added(self._counts.pop(key, Counts()), waits=waits, timeouts=timeouts))

    def tried(self, key: LockKey, *, is_taken: bool) -> None:
        """Count an attempt that does not wait."""
        if is_taken and key not in self._counts:
            return
        with self._guard:
            self._put(key, _tried(self._counts.pop(key, Counts()), is_taken=is_taken))

    def of(self, key: LockKey) -> Counts:
        return self._counts.get(key, Counts())

    def _put(self, key: LockKey, counts: Counts) -> None:
        self._counts[key] = counts
        if len(self._counts) > TALLIED_MAX:
            del self._counts[next(iter(self._counts))]


class FileCounts:
    """Counts in files of the locks' directory. Safe for threads and processes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # Threads of one process do not have to try again and again.
        self._guard = threading.Lock()

    def forget(self) -> None:
        """In a fork: whoever held the guard is not here."""
        self._guard = threading.Lock()

    def add(self, key: LockKey, *, waits: int = 0, timeouts: int = 0) -> None:
        """Count acquisitions that had to wait."""
        self._change(key, waits=waits, timeouts=timeouts)

    def tried(self, key: LockKey, *, is_taken: bool) -> None:
        """Count an attempt that does not wait. One that succeeds, as most do, has nothing to write."""
        if not is_taken or read_counts(self._path(key)).consecutive_skips:
            self._change(key, is_taken=is_taken)

    def _path(self, key: LockKey) -> Path:
        return self._directory / f"{key.file_name}.counts"

    def _change(self, key: LockKey, *, waits: int = 0, timeouts: int = 0, is_taken: bool | None = None) -> None:
        path = self._path(key)
        with self._guard:
            descriptor = DESCRIPTORS.open(path, os.O_RDWR | os.O_CREAT)
            try:
                for _ in range(TRIES_MAX):
                    if try_flock(descriptor):
                        break
                    time.sleep(TRY_AGAIN_S)
                else:
                    return
                counts = _added(_decoded(os.pread(descriptor, COUNTS_BYTES, 0)), waits=waits, timeouts=timeouts)
                if is_taken is not None:
                    counts = _tried(counts, is_taken=is_taken)
                os.pwrite(descriptor, msgspec.json.encode(counts).ljust(COUNTS_BYTES - 1) + b"\n", 0)
            finally:
                let_go(descriptor)


def read_counts(path: Path) -> Counts:
    """What the file says; nothing was counted where there is none, or it holds nonsense."""
    try:
        return _decoded(path.read_bytes())
    except FileNotFoundError:
        return Counts()


def _decoded(raw: bytes) -> Counts:
    try:
        return msgspec.json.decode(raw, type=Counts)
    except msgspec.DecodeError:
        return Counts()


def _added(counts: Counts, *, waits: int, timeouts: int) -> Counts:
    return msgspec.structs.replace(counts, waits=counts.waits + waits, timeouts=counts.timeouts + timeouts)


def _tried(counts: Counts, *, is_taken: bool) -> Counts:
    if is_taken:
        return msgspec.structs.replace(counts, consecutive_skips=0)
    return msgspec.structs.replace(counts, skips=counts.skips + 1, consecutive_skips=counts.consecutive_skips + 1)
