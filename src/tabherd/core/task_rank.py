"""The place of a task among those of its agent, as one number that is known when it is submitted; lower goes first.

That each level of priority is worth so much waiting is the same as a later arrival for each level: so it can be said
once and for all, and an index can be sorted by it.
"""

from __future__ import annotations

from typing import Final

# No wait is as long as a level of strict priority, and a thousand levels fit into 63 bits.
STRICT_MS: Final = 1 << 42


def rank_of(priority: int, created_at: int, priority_aging_ms: int) -> int:
    """Ties are broken by the id, which is in the order of submission. An aging of 0 ms makes priorities strict."""
    return created_at + priority * (priority_aging_ms or STRICT_MS)
