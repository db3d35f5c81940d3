"""What processes weigh: the proportional set size of a process with all its descendants.

Memory that processes share counts once, divided among all who share it, so that sums are honest.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Final

import psutil

_PSS: Final = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)


def tree_pss_mb(pid: int) -> float:
    """Of that process and everything below it, in MB of 2^20 bytes."""
    root = psutil.Process(pid)
    return sum(pss_mb(each.pid) for each in (root, *root.children(recursive=True)))


def pss_mb(pid: int) -> float:
    """Of that process alone; 0 when it has just ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii"))
        return int(found[1]) / 1024 if found else 0.0
    return 0.0
