"""How long things are held, and what that says about the next wait.

A refusal tells its caller when to come back. The estimate is always within its bounds: soon enough to be useful, late
enough not to be a busy loop.
"""

from __future__ import annotations

from collections import deque
from typing import Final

RETRY_AFTER_MIN_MS: Final = 50
RETRY_AFTER_MAX_MS: Final = 60_000
OUTLIER_FACTOR: Final = 10


class HoldTimes:
    """The last few durations for which something was held, and what they say about the next wait.

    The mean, so that the estimate is right on average: places come free at capacity / mean hold, whatever the spread.
    One very long hold counts as no more than ten times the median, because it says little about the next.
    """

    __slots__ = ("_default_ms", "_recent_ms")

    def __init__(self, default_ms: int = 1_000, samples_max: int = 33) -> None:
        # Assumed until something has been held and given back.
        self._default_ms = default_ms
        self._recent_ms: deque[int] = deque(maxlen=samples_max)

    def record(self, held_ms: int) -> None:
        """Something was given back after this long."""
        self._recent_ms.append(max(0, held_ms))

    def typical_ms(self) -> int:
        """How long a hold lasts on average."""
        if not self._recent_ms:
            return self._default_ms
        most_ms = OUTLIER_FACTOR * max(1, sorted(self._recent_ms)[len(self._recent_ms) // 2])
        return sum(min(held_ms, most_ms) for held_ms in self._recent_ms) // len(self._recent_ms)

    def retry_after_ms(self, position: int = 1, capacity: int = 1) -> int:
        """When the caller at this place, behind this many parallel holders, may expect its turn; bounded."""
        return bounded_retry_ms(self.typical_ms() * max(1, position) // max(1, capacity))


def bounded_retry_ms(estimate_ms: int) -> int:
    """Soon enough to be useful, late enough not to be a busy loop."""
    return max(RETRY_AFTER_MIN_MS, min(RETRY_AFTER_MAX_MS, estimate_ms))
