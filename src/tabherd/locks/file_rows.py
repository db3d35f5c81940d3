"""Who holds and who waits for the locks of a directory, without touching any of them.

To try a lock would make it busy for somebody who tries at that moment. The kernel's list of flocks (/proc/locks) tells
the truth without that; where there is none, the holder that is written in a lock's file counts if its process lives.
A holder on another machine, or in another container, cannot be seen from here and is believed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from .base import Counts, Holder, LockRow, host_name, pair_of
from .counting import read_counts
from .lock_file import Record, read_record

KERNEL_LIST: Final = Path("/proc/locks")

# Device and number of a file.
Inode: TypeAlias = tuple[int, int]


class Flock(msgspec.Struct):
    """What the kernel knows about the flock of one file."""

    # The process that has it; 0: nobody.
    holder: int = 0
    waiters: tuple[int, ...] = ()


def rows_in(directory: Path, waiting: Mapping[str, tuple[Holder, ...]]) -> list[LockRow]:
    """The locks of that directory. `waiting` has those who wait in this process, by the name of the lock's file."""
    flocks = kernel_flocks()
    return [row for path in sorted(directory.glob("*.lock")) if (row := _row(path, waiting, flocks)) is not None]


def _row(path: Path, waiting: Mapping[str, tuple[Holder, ...]], flocks: Mapping[Inode, Flock] | None) -> LockRow | None:
    record = read_record(path)
    holder = _holder(record, path, flocks)
    waiters = waiting.get(path.stem, ()) + tuple(_waiters_elsewhere(path, flocks or {}))
    if holder is None and not waiters:
        return None
    counts: Counts = read_counts(path.with_suffix(".counts"))
    acquired_at = record.acquired_at if holder else None
    return LockRow(
        label=record.label or path.stem,
        pair=pair_of(path.stem),
        holder=holder,
        acquired_at=acquired_at,
        waiters=waiters,
        counts=counts,
    )


def _holder(record: Record, path: Path, flocks: Mapping[Inode, Flock] | None) -> Holder | None:
    written = record.holder
    if flocks is not None and (flock := flocks.get(_inode(path))) and flock.holder:
        # A process that has it and has not signed yet, or whose signature nobody can read.
        return written if written and written.pid == flock.holder else Holder(flock.holder, host_name())
    if written is None or written.host != host_name():
        return written
    return written if flocks is None and _is_alive(written.pid) else None


def _waiters_elsewhere(path: Path, flocks: Mapping[Inode, Flock]) -> Iterator[Holder]:
    """Processes other than this one that stand in the kernel's line for the lock."""
    if flock := flocks.get(_inode(path.with_suffix(".line"))):
        for pid in (flock.holder, *flock.waiters):
            if pid and pid != os.getpid():
                yield Holder(pid, host_name())


def kernel_flocks() -> dict[Inode, Flock] | None:
    """Every flock that this process can see; None where the kernel does not tell."""
    try:
        lines = KERNEL_LIST.read_text("ascii").splitlines()
    except FileNotFoundError:
        return None
    flocks: dict[Inode, Flock] = {}
    for line in lines:
        # `7: FLOCK  ADVISORY  WRITE 708 00:15:1234 0 EOF`, with an arrow after the number for one that waits.
        words = line.split()[1:]
        is_waiting = words[0] == "->"
        words = words[is_waiting:]
        if words[0] != "FLOCK":
            continue
        major, minor, number = words[4].split(":")
        flock = flocks.setdefault((os.makedev(int(major, 16), int(minor, 16)), int(number)), Flock())
        if is_waiting:
            flock.waiters += (int(words[3]),)
        else:
            flock.holder = int(words[3])
    return flocks


def _inode(path: Path) -> Inode:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return (0, 0)
    return (stat.st_dev, stat.st_ino)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
