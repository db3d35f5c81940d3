"""Imported by the server's Python before anything else: lets a campaign look inside, and end it at named points.

`CAMPAIGN_DIR` is where what is seen inside is written every few seconds. With `CAMPAIGN_POINTS` it also says there
where the server is to die; nothing else is changed.
"""

import asyncio.tasks
import gc
import json
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path

INTERVAL_S = 2.0


def _tasks() -> int:
    # The set is the loop's, which goes on meanwhile.
    for _ in range(100):
        try:
            return sum(not task.done() for task in list(asyncio.tasks._all_tasks))
        except RuntimeError:
            continue
    return -1


def _count() -> dict[str, int]:
    return dict(Counter(type(one).__qualname__ for one in gc.get_objects()).most_common(80))


def _census() -> dict[str, dict[str, int]]:
    """What there is, and what of it is no garbage."""
    before = _count()
    gc.collect()
    return {"before": before, "after": _count()}


def _watch(place: Path) -> None:
    while True:
        seen = {"pid": os.getpid(), "tasks": _tasks(), "threads": threading.active_count()}
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
    threading.Thread(target=_watch, args=(_place,), daemon=True).start()
    if "CAMPAIGN_POINTS" in os.environ:
        import points

        points.install(_place)
