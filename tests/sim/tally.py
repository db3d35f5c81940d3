"""Counting for judges, who count little and often: `Counter` takes longer to begin than they take to count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable


def tally(names: Iterable[str] = ()) -> defaultdict[str, int]:
    """How often each is there; what is not there is there 0 times."""
    counts: defaultdict[str, int] = defaultdict(int)
    for name in names:
        counts[name] += 1
    return counts
