"""Token buckets: how fast each credential may send."""

from __future__ import annotations

import math
from typing import Final

# How many buckets are kept; beyond it those that are full again, which say nothing, are dropped.
BUCKETS_MAX: Final = 10_000


class TokenBuckets:
    """One bucket per key: `burst` tokens at most, `rate_per_s` new ones each second. Time is an argument."""

    def __init__(self, rate_per_s: int, burst: int) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        # By key: tokens left, and when they were counted, in seconds.
        self._buckets: dict[str, tuple[float, float]] = {}

    def reconfigure(self, rate_per_s: int, burst: int) -> None:
        """Fill at another rate from now on; no bucket holds more than the new burst."""
        self._rate_per_s = rate_per_s
        self._burst = burst

    def take(self, key: str, now_s: float) -> int:
        """Take a token: 0 when there was one, else the milliseconds until there is."""
        tokens, counted_at = self._buckets.get(key, (float(self._burst), now_s))
        tokens = min(self._burst, tokens + (now_s - counted_at) * self._rate_per_s)
        # Whoever waited exactly as told must not fail on the last bit of a float.
        if tokens < 1 - 1e-6:
            return math.ceil((1 - tokens) / self._rate_per_s * 1000)
        if len(self._buckets) >= BUCKETS_MAX and key not in self._buckets:
            self._drop_full(now_s)
        self._buckets[key] = (tokens - 1, now_s)
        return 0

    def _drop_full(self, now_s: float) -> None:
        refill_s = self._burst / self._rate_per_s
        full = [key for key, (_, counted_at) in self._buckets.items() if now_s - counted_at >= refill_s]
        # When all are in use the oldest goes: its owner may gain one burst, and memory stays bounded.
        for key in full or [next(iter(self._buckets))]:
            del self._buckets[key]
