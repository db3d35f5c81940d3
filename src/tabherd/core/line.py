"""Who is next among those who wait for a session of one pool on any node, as it was read at one moment.

The rule is that of one node alone (see `fairness`): the agent with the fewest active sessions first, in the whole
cluster, then whoever came first; whoever is at a cap is passed over and blocks nobody. What was read may have changed
meanwhile; whoever acts on it writes guarded by what was read, and reads again on conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from .caps import CapCounter, Caps, cap_counters
from .fairness import WaitQueue
from .model import Waiter


def counters_of(pool: str, caps: Caps, rows: Iterable[Waiter]) -> set[str]:
    """The counters that a line of these waiters has to know."""
    buckets = {(row.key, row.agent_id) for row in rows}
    return {
        counter.counter
        for key, agent_id in buckets
        for counter in cap_counters(pool, key, agent_id, caps)
        # A key without a cap decides nothing.
        if counter.reason != "key_cap" or counter.cap is not None
    }


class Line:
    """The waiters of one pool, and what is taken of it.

    `take` and `position` cost O(agents); the first of them O(waiters).
    """

    def __init__(self, pool: str, caps: Caps, rows: Iterable[Waiter], counts: Mapping[str, int]) -> None:
        self._pool = pool
        self._caps = caps
        # In order of arrival.
        self._rows = {row.id: row for row in sorted(rows, key=lambda row: (row.arrived_at, row.id))}
        # Active sessions by counter, with those that were granted from this line.
        self._counts = dict(counts)
        self._active = {row.agent_id: self.count(self._agent_counter(row)) for row in self._rows.values()}

    def __len__(self) -> int:
        return len(self._rows)

    def only(self, is_meant: Callable[[Waiter], bool]) -> Line:
        """Some of them."""
        return Line(self._pool, self._caps, filter(is_meant, self._rows.values()), self._counts)

    def take(self, is_admissible: Callable[[str, str], bool]) -> Waiter | None:
        """Take out who is next of those within every cap whom `is_admissible`, asked for agent and key, lets in."""
        picked = self._queue.pick(
            self._active,
            lambda waiter: (
                self.full(waiter.agent_id, waiter.key) is None and is_admissible(waiter.agent_id, waiter.key)
            ),
        )
        if picked is None:
            return None
        row = self._rows.pop(picked.id)
        for counter in self._counters(row.agent_id, row.key):
            self._counts[counter.counter] = self.count(counter) + 1
        self._active[row.agent_id] += 1
        return row

    def waiting(self) -> Iterable[Waiter]:
        """Those who have not been taken, in order of arrival."""
        return self._rows.values()

    def full(self, agent_id: str, key: str) -> CapCounter | None:
        """The first cap that leaves that caller no room."""
        for counter in self._counters(agent_id, key):
            if counter.cap is not None and self.count(counter) >= counter.cap:
                return counter
        return None

    def count(self, counter: CapCounter) -> int:
        """What that counter stands at."""
        return self._counts.get(counter.counter, 0)

    @property
    def active(self) -> int:
        """Sessions of the pool in the whole cluster."""
        return self.count(self._of_pool)

    @property
    def is_exhausted(self) -> bool:
        """Whether the pool has all the sessions that it may have, so that nobody can be taken."""
        return self._of_pool.cap is not None and self.active >= self._of_pool.cap

    @property
    def _of_pool(self) -> CapCounter:
        return cap_counters(self._pool, "", "", self._caps)[-1]

    def position(self, waiter_id: str) -> int | None:
        """Its place in the order of grants if every waiter were admissible, from 1; None if it is not here."""
        return self._queue.position(waiter_id, self._active)

    def _counters(self, agent_id: str, key: str) -> tuple[CapCounter, ...]:
        return cap_counters(self._pool, key, agent_id, self._caps)

    def _agent_counter(self, row: Waiter) -> CapCounter:
        return next(c for c in self._counters(row.agent_id, row.key) if c.reason == "agent_cap")

    @cached_property
    def _queue(self) -> WaitQueue:
        queue = WaitQueue(len(self._rows))
        for row in self._rows.values():
            queue.enter(row.id, row.agent_id, row.key)
        return queue
