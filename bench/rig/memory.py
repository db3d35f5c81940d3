"""What processes weigh: the proportional set size of a process with all its descendants.

Memory that processes share counts once, divided among all who share it, so that sums are honest. The part of mapped
files (mostly the program's code) shrinks with every further process of the same build on the machine, whoever started
it; the rest does not, so it is given by itself too.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import psutil

_FIELD: Final = re.compile(r"^(Pss|Pss_File):\s+(\d+) kB$", re.MULTILINE)


class Weight(msgspec.Struct, frozen=True):
    """In MB of 2^20 bytes."""

    pss_mb: float = 0.0
    # Without mapped files.
    own_mb: float = 0.0

    def __add__(self, other: Weight) -> Weight:
        return Weight(self.pss_mb + other.pss_mb, self.own_mb + other.own_mb)

    def __truediv__(self, count: int) -> Weight:
        return Weight(self.pss_mb / count, self.own_mb / count)


def weight_of_trees(pids: Iterable[int]) -> Weight:
    """Of these processes and everything below them."""
    return sum((weight(pid) for pid in _trees(pids)), Weight())


def strangers(pids: Iterable[int]) -> int:
    """How many processes outside of these trees run the same programs, and so bear a part of their files."""
    trees = _trees(pids)
    programs = {_program(pid) for pid in trees} - {""}
    return sum(_program(pid) in programs for pid in psutil.pids() if pid not in trees)


def _trees(pids: Iterable[int]) -> set[int]:
    roots = [psutil.Process(pid) for pid in pids]
    return {each.pid for root in roots for each in (root, *root.children(recursive=True))}


def _program(pid: int) -> str:
    """Empty when it has just ended, or is a zombie."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        return os.readlink(f"/proc/{pid}/exe")
    return ""


def weight(pid: int) -> Weight:
    """Of that process alone; nothing when it has just ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        fields = dict(_FIELD.findall(Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")))
        pss_mb, files_mb = (int(fields.get(name, 0)) / 1024 for name in ("Pss", "Pss_File"))
        return Weight(pss_mb, pss_mb - files_mb)
    return Weight()
