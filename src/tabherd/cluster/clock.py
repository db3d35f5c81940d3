"""The cluster's clock: the database's time, kept between two looks at it by this machine's steady clock.

What this machine believes the time of day to be does not matter, so a node whose clock is wrong agrees with the others
about leases and deadlines all the same.

Invariant: it never goes backwards, and it is never ahead of the database by more than a look at it took.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# How far it may be off before it is moved; less is the noise of a busy network.
TOLERANCE_MS = 5


def steady_ms() -> float:
    """Milliseconds since some moment; also counts while the machine sleeps or the process is stopped."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1_000_000


class ClusterClock:
    """Call it for the time, in milliseconds since 1970."""

    def __init__(self, steady: Callable[[], float] = steady_ms) -> None:
        self._steady = steady
        # What has to be added to the steady clock; None before the first look.
        self._offset: float | None = None
        # The latest time that was told.
        self._told = 0

    def __call__(self) -> int:
        assert self._offset is not None, "nobody has looked at the database's clock yet"
        self._told = max(self._told, int(self._steady() + self._offset))
        return self._told

    def looked(self, now_ms: int, asked_at: float, heard_at: float) -> None:
        """The database said this time, at some moment between these two of the steady clock."""
        # In the middle, as likely as not; it is certainly not off by more than half of what the answer took.
        offset = now_ms - (asked_at + heard_at) / 2
        doubt = (heard_at - asked_at) / 2 + TOLERANCE_MS
        if self._offset is None or abs(offset - self._offset) > doubt:
            self._offset = offset
