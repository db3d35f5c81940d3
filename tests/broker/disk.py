"""A store in memory that outlives every broker of a test, and recounts itself after every write.

Its counters are moved by the same transactions that change the rows, so at no moment may they say anything but what a
recount of the rows says.
"""

from __future__ import annotations

from collections import Counter

from tabherd.broker.task_archive import ARCHIVED
from tabherd.core import caps
from tabherd.core.lifecycle import LEASE, LeaseState, is_terminal
from tabherd.core.model import ArchivedTask, RowT, Session, Tab, Waiter
from tabherd.store.base import Op, Outcome
from tabherd.store.memory import MemoryStore


class Disk(MemoryStore):
    """What survives every life of the broker."""

    def write(self, *ops: Op) -> Outcome:
        outcome = super().write(*ops)
        assert self.counters() == self._recount(), f"after {ops}"
        return outcome

    def rows(self, table: type[RowT]) -> list[RowT]:
        return list(self._state.rows.get(table, {}).values())  # type: ignore[arg-type]

    def counters(self) -> dict[str, int]:
        return {name: value for name, value in self._state.counters.items() if value and not name.startswith("seq:")}

    def _recount(self) -> dict[str, int]:
        pages = Counter(tab.session_id for tab in self.rows(Tab))
        counted: Counter[str] = Counter()
        for row in (row for row in self.rows(Session) if not is_terminal(LEASE, row.state)):
            none = caps.Caps()
            counters = (
                caps.pooled_counters(row.pool, row.key, none)
                if row.state is LeaseState.POOLED
                else caps.cap_counters(row.pool, row.key, row.agent_id, none)
            )
            counted.update(counter.counter for counter in counters)
            counted[caps.tab_counter(row.pool, none).counter] += (
                1 if row.state is LeaseState.RESERVED else pages[row.id]
            )
        counted[ARCHIVED] = len(self.rows(ArchivedTask))
        # Those that several nodes share count from one, once any node has begun.
        counted.update({name: caps.WAITING_BASE for name in self.counters() if name.startswith("waiting:")})
        counted.update(caps.waiting_counter(row.pool) for row in self.rows(Waiter) if not row.granted_by)
        return {name: value for name, value in counted.items() if value}
