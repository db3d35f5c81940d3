"""Measures what a browser with all its processes costs, without anybody waiting for it.

The kernel walks a process's page tables to tell its proportional set size: milliseconds for each of the dozens of
processes of one browser. So it is read in a thread, and the more a reading took, the longer it is good for: measuring
never takes more than a hundredth of a core's time.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Final

import structlog

from . import process
from .port import Usage

log = structlog.get_logger(__name__)

# How long a reading is good for at the least, and how many times as long as it took.
FRESH_S: Final = 10.0
FRESH_PER_COST: Final = 100

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class UsageMeter:
    """The latest usage of one process group."""

    def __init__(self, group: int) -> None:
        self._group = group
        # Nothing is known before the first reading has ended.
        self._latest = Usage()
        self._due_at = 0.0
        self._is_reading = False

    def latest(self) -> Usage:
        """The last reading; when that is old, the next one is begun, for whoever asks later."""
        loop = asyncio.get_running_loop()
        if not self._is_reading and loop.time() >= self._due_at:
            self._is_reading = True
            loop.run_in_executor(None, _timed, self._group).add_done_callback(self._settle)
        return self._latest

    def _settle(self, reading: asyncio.Future[tuple[Usage, float]]) -> None:
        self._is_reading = False
        took_s = 0.0
        if reading.cancelled():
            return
        if (error := reading.exception()) is not None:
            log.error("a browser's usage cannot be measured", group=self._group, error=str(error))
        else:
            self._latest, took_s = reading.result()
        self._due_at = reading.get_loop().time() + max(FRESH_S, FRESH_PER_COST * took_s)


def measure(group: int) -> Usage:
    """Reads the usage of every process in the group now."""
    pids = process.group_members(group)
    return Usage(
        pss_bytes=sum(_pss_bytes(pid) for pid in pids),
        cpu_ms=sum(process.cpu_ticks(pid) for pid in pids) * 1000 // process.TICKS_PER_S,
        processes=len(pids),
    )


def _timed(group: int) -> tuple[Usage, float]:
    began = time.monotonic()
    return measure(group), time.monotonic() - began


def _pss_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) << 10
    except PermissionError:
        # A sandboxed process keeps its map even from its own user.
        return _unshared_bytes(pid)
    except (FileNotFoundError, ProcessLookupError):
        # It has ended meanwhile.
        return 0
    return 0


def _unshared_bytes(pid: int) -> int:
    """The resident memory that is no file's and nobody else's: a lower bound of the proportional set size."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return (int(resident) - int(shared)) * _PAGE_BYTES
