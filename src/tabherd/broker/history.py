"""The last minutes of this node in numbers: a bounded ring of samples, for the curves that people look at.

Every two seconds the counts that are kept anyway are read and compared with those of the time before, so that nothing
that serves a request pays for it. Samples lie on whole multiples of the interval since 1970, by the node's clock, so
that those of several nodes line up.

Invariants:
- At most one sample per interval and `SAMPLES_MAX` in all; an interval in which nobody looked has none.
- A rate is what was counted since the look before, by the time that has passed since: a late look makes no peak.
- The answer has no hole between its first and its last interval: what is not known is null.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from .. import wire
from ..browsers.pool import Pool
from ..core.lifecycle import CommandState, TaskState
from ..metrics import Histogram, Metrics
from .admission import Admission
from .caller import Caller
from .registry import Registry
from .tasking import Tasking
from .views import rfc3339

INTERVAL_MS: Final = 2_000
# Ten minutes.
SAMPLES_MAX: Final = 300
# Commands that did not do what they were to do; one that was cancelled did what its sender wanted.
FAILURES: Final = (CommandState.FAILED, CommandState.TIMED_OUT, CommandState.OUTCOME_UNKNOWN)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One interval; the fields are those of `wire.HistorySeries`."""

    commands: float
    commands_failed: float
    # None: no command ended, or had waited.
    command_p50_ms: float | None
    command_p95_ms: float | None
    gate_wait_p50_ms: float | None
    gate_wait_p95_ms: float | None
    tasks_submitted: float
    tasks_done: float
    tasks_failed: float
    tasks_queued: float
    sessions: float
    sessions_waiting: float
    tabs_held: float
    # None: no browser has been measured.
    memory_bytes: float | None
    cpu_percent: float | None


class _Counted(msgspec.Struct, frozen=True, kw_only=True):
    """What only grows, as it stood at one look."""

    at_ms: int
    commands: int
    commands_failed: int
    command_buckets: list[int]
    gate_wait_buckets: list[int]
    tasks_submitted: int
    tasks_done: int
    tasks_failed: int


class History:
    """The samples of one node."""

    def __init__(
        self,
        *,
        metrics: Metrics,
        registry: Registry,
        pools: Mapping[str, Pool],
        admissions: Mapping[str, Admission],
        tasking: Tasking,
        clock: Callable[[], int],
    ) -> None:
        self._metrics = metrics
        self._registry = registry
        self._pools = pools
        self._admissions = admissions
        self._tasking = tasking
        self._clock = clock
        # The number of the interval since 1970, and what was seen at its end; oldest first.
        self._ring: deque[tuple[int, Sample]] = deque(maxlen=SAMPLES_MAX)
        # As of the last look; None before the first one, which has nothing to compare with.
        self._before: _Counted | None = None

    async def run(self) -> None:
        """Look at the end of every interval, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep((INTERVAL_MS - self._clock() % INTERVAL_MS) / 1000)

    def look(self) -> None:
        """Take a sample of the interval that is over, unless it has one. Costs O(tabs)."""
        now, before = self._count(), self._before
        # The one that ended last; a look comes at its end or shortly after.
        number = now.at_ms // INTERVAL_MS - 1
        if before is None or now.at_ms < before.at_ms:
            # A clock that was put back: what the later one had said would be in the way of what comes.
            self._ring.clear()
            self._before = now
        elif number > before.at_ms // INTERVAL_MS - 1:
            self._ring.append((number, self._sample(now, before)))
            self._before = now

    def view(self, caller: Caller, intervals: int = SAMPLES_MAX) -> wire.History:
        """The last ones, at the most so many."""
        caller.require("browse")
        last = self._ring[-1][0] if self._ring else self._clock() // INTERVAL_MS - 1
        first = max(self._ring[0][0], last - intervals + 1) if self._ring else last + 1
        samples: list[Sample | None] = [None] * (last - first + 1)
        for number, sample in self._ring:
            if number >= first:
                samples[number - first] = sample
        return wire.History(
            interval_ms=INTERVAL_MS,
            begins_at=rfc3339(first * INTERVAL_MS),
            series=wire.HistorySeries(
                **{
                    name: [None if sample is None else getattr(sample, name) for sample in samples]
                    for name in Sample.__struct_fields__
                }
            ),
        )

    # --- Parts ----------------------------------------------------------------------------------------------

    def _count(self) -> _Counted:
        outcomes, tasks = self._metrics.commands_total.by_last_label(), self._tasking.scheduler.counter.all
        return _Counted(
            at_ms=self._clock(),
            commands=sum(outcomes.values()),
            commands_failed=sum(outcomes.get(state, 0) for state in FAILURES),
            command_buckets=self._metrics.command_seconds.per_bucket(),
            gate_wait_buckets=self._metrics.gate_wait_seconds.per_bucket(),
            tasks_submitted=tasks.submitted,
            tasks_done=tasks.by_end[TaskState.DONE],
            tasks_failed=tasks.by_end[TaskState.FAILED],
        )

    def _sample(self, now: _Counted, before: _Counted) -> Sample:
        per_s = 1000 / (now.at_ms - before.at_ms)
        ran = _Spread(self._metrics.command_seconds, now.command_buckets, before.command_buckets)
        waited = _Spread(self._metrics.gate_wait_seconds, now.gate_wait_buckets, before.gate_wait_buckets)
        slots = [slot for pool in self._pools.values() for slot in pool.slots]
        # A browser that was attached to, or just started, has no processes that could be measured.
        usages = [slot.usage for slot in slots if slot.usage is not None and slot.usage.processes]
        shares = [slot.cpu_percent for slot in slots if slot.cpu_percent is not None]
        return Sample(
            commands=round((now.commands - before.commands) * per_s, 2),
            commands_failed=round((now.commands_failed - before.commands_failed) * per_s, 2),
            command_p50_ms=ran.quantile_ms(0.5),
            command_p95_ms=ran.quantile_ms(0.95),
            gate_wait_p50_ms=waited.quantile_ms(0.5),
            gate_wait_p95_ms=waited.quantile_ms(0.95),
            tasks_submitted=round((now.tasks_submitted - before.tasks_submitted) * per_s, 2),
            tasks_done=round((now.tasks_done - before.tasks_done) * per_s, 2),
            tasks_failed=round((now.tasks_failed - before.tasks_failed) * per_s, 2),
            tasks_queued=self._tasking.waiting,
            sessions=len(self._registry),
            sessions_waiting=sum(admission.waiting for admission in self._admissions.values()),
            tabs_held=sum(tab.gate.is_held for tab in self._registry.tabs),
            memory_bytes=sum(usage.pss_bytes for usage in usages) if usages else None,
            cpu_percent=round(sum(shares), 1) if shares else None,
        )


class _Spread:
    """How what a histogram counted between two looks is spread."""

    def __init__(self, histogram: Histogram, now: Sequence[int], before: Sequence[int]) -> None:
        self._bounds_s = histogram.bounds
        # How many there were in each bucket and those below it.
        self._up_to = list(accumulate(count - earlier for count, earlier in zip(now, before, strict=True)))

    def quantile_ms(self, share: float) -> float | None:
        """The time that this share of them did not exceed, as if those of one bucket were spread evenly over it."""
        rank = share * self._up_to[-1]
        if not rank:
            return None
        bucket = bisect_left(self._up_to, rank)
        if bucket == len(self._bounds_s):
            # Longer than any bound; by how much nobody knows.
            return self._bounds_s[-1] * 1000
        below = self._up_to[bucket - 1] if bucket else 0
        low_s, high_s = (self._bounds_s[bucket - 1] if bucket else 0.0), self._bounds_s[bucket]
        return round((low_s + (high_s - low_s) * (rank - below) / (self._up_to[bucket] - below)) * 1000, 2)
