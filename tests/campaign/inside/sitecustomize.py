"""Imported by the server's Python before anything else: lets a campaign look inside, and end it at named points.

`CAMPAIGN_DIR` is where what is seen inside is written every few seconds. With `CAMPAIGN_POINTS` it also says there
where the server is to die; with `CAMPAIGN_TRACE` it remembers where memory was asked for. Nothing else is changed.
"""

import asyncio.tasks
import ctypes
import gc
import json
import os
import sys
import threading
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

INTERVAL_S = 2.0


def _tasks() -> int:
    # The set is the loop's, which goes on meanwhile.
    for _ in range(100):
        try:
            return sum(not task.done() for task in list(asyncio.tasks._all_tasks))
        except RuntimeError:
            continue
    return -1


class _Mallinfo(ctypes.Structure):
    """What glibc tells of its allocator, in bytes."""

    _fields_ = [(f"field{place}", ctypes.c_size_t) for place in range(4)]
    _fields_ += [("mapped", ctypes.c_size_t), ("unused1", ctypes.c_size_t), ("unused2", ctypes.c_size_t)]
    _fields_ += [("in_use", ctypes.c_size_t), ("free", ctypes.c_size_t), ("at_the_top", ctypes.c_size_t)]


def _malloced() -> int:
    """Bytes that C code, and Python for what is larger than half a KiB, has asked for and not given back."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        # Another C library than glibc.
        return 0
    mallinfo.restype = _Mallinfo
    info = mallinfo()
    return int(info.in_use + info.mapped)


def _count() -> dict[str, int]:
    return dict(Counter(type(one).__qualname__ for one in gc.get_objects()).most_common(80))


def _census() -> dict[str, Any]:
    """What there is, what of it is no garbage and, where that is remembered, the lines that asked for the most."""
    before = _count()
    gc.collect()
    census: dict[str, Any] = {"before": before, "after": _count()}
    if tracemalloc.is_tracing():
        lines = tracemalloc.take_snapshot().statistics("lineno")
        census["lines"] = {str(line.traceback): [line.size, line.count] for line in lines[:2_000]}
    return census


def _watch(place: Path) -> None:
    while True:
        seen = {"pid": os.getpid(), "tasks": _tasks(), "threads": threading.active_count()}
        seen |= {"blocks": sys.getallocatedblocks(), "malloced": _malloced()}
        draft = place / f".inside-{os.getpid()}"
        draft.write_text(json.dumps(seen))
        draft.rename(place / "inside.json")
        # A long look, only when it is asked for: it stops everything else meanwhile.
        asked = place / "census.ask"
        if asked.exists():
            asked.unlink(missing_ok=True)
            (place / f"census-{time.time():.0f}.json").write_text(json.dumps(_census()))
        time.sleep(INTERVAL_S)


if "CAMPAIGN_DIR" in os.environ and sys.orig_argv[1:4] == ["-m", "tabherd", "up"]:
    _place = Path(os.environ["CAMPAIGN_DIR"])
    if "CAMPAIGN_TRACE" in os.environ:
        tracemalloc.start()
    threading.Thread(target=_watch, args=(_place,), daemon=True).start()
    if "CAMPAIGN_POINTS" in os.environ:
        import points

        points.install(_place)
