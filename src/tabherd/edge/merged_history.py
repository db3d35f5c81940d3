"""The history of all nodes as one: interval by interval, what each counted is added up; of percentiles, the worst.

Invariants:
- Intervals of the same moment are put together, also when the nodes' histories begin and end at different ones.
- An interval that no node knows anything about is null; one that some know is theirs alone.
- The last interval is left out while one node has it and another not yet, for it would show a dip that is none. A node
  that is later than that is not waited for.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from .. import wire
from ..broker.views import rfc3339

# The nodes' own numbers do not add up to one for all: percentiles, and the tasks that wait, of which each node knows
# those of all nodes.
WORST: Final = frozenset({"command_p50_ms", "command_p95_ms", "gate_wait_p50_ms", "gate_wait_p95_ms", "tasks_queued"})


def merge_history(mine: wire.History, others: list[wire.History], missing: list[str]) -> wire.History:
    """What the asked node answers for all of them."""
    parts = [part for part in (mine, *others) if part.series.commands]
    unreachable = missing or msgspec.UNSET
    if not parts:
        return msgspec.structs.replace(mine, unreachable=unreachable)
    begins = [_number_of(part.begins_at, part.interval_ms) for part in parts]
    ends = [begin + len(part.series.commands) for begin, part in zip(begins, parts, strict=True)]
    begin, end = min(begins), max(min(ends), max(ends) - 1)
    series: dict[str, list[float | None]] = {}
    for name in wire.HistorySeries.__struct_fields__:
        aligned = (
            ([None] * (own_begin - begin) + getattr(part.series, name) + [None] * (end - own_end))[: end - begin]
            for part, own_begin, own_end in zip(parts, begins, ends, strict=True)
        )
        series[name] = [*map(_worst if name in WORST else _sum, zip(*aligned, strict=True))]
    return wire.History(
        interval_ms=mine.interval_ms,
        begins_at=rfc3339(begin * mine.interval_ms),
        series=wire.HistorySeries(**series),
        unreachable=unreachable,
    )


def _number_of(moment: str, interval_ms: int) -> int:
    """Which interval since 1970 begins then."""
    return round(datetime.fromisoformat(moment).timestamp() * 1000) // interval_ms


def _sum(numbers: Iterable[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return round(sum(known), 2) if known else None


def _worst(numbers: Iterable[float | None]) -> float | None:
    return max((number for number in numbers if number is not None), default=None)
