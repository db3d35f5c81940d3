"""A store in dictionaries: the semantic twin of the durable ones, for tests and the simulator. Nothing survives it.

Invariants: no threads or chance, and no clock but the one that it is given, so a history replays exactly, also on a
virtual event loop. A transaction takes effect at the moment of the call and every method suspends once before it
answers, so that others run between an effect and its acknowledgement, as they do with a disk.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import cast

from ..core.model import RowT
from ..errors import StoreUnavailable
from .base import Op, Outcome, Scalar
from .evaluate import State, evaluate, refuse_unstorable, wanted


class MemoryStore:
    """Implements `Store`."""

    def __init__(self, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._clock = clock
        self._state = State({}, {})
        self._is_closed = False

    # --- At once --------------------------------------------------------------------------------------------

    def write(self, *ops: Op) -> Outcome:
        """What `apply` does, for whoever makes others wait in its own way, as a simulated disk does."""
        self._refuse_if_closed()
        refuse_unstorable(ops)
        (outcome,), _ = evaluate([ops], self._state)
        return outcome

    def find(self, table: type[RowT], id: str) -> RowT | None:
        """What `get` does, likewise."""
        self._refuse_if_closed()
        return cast("RowT | None", self._state.row(table, id))

    def list_rows(
        self,
        table: type[RowT],
        where: Mapping[str, Scalar | tuple[Scalar, ...]] | None = None,
        *,
        after: str = "",
        limit: int = 1_000,
        newest_first: bool = False,
    ) -> list[RowT]:
        """What `select` does, likewise."""
        self._refuse_if_closed()
        filters = wanted(table, where)
        fitting = (
            row
            for id, row in self._state.rows.get(table, {}).items()
            if (not after or (id < after if newest_first else id > after))
            and all(getattr(row, field) in values for field, values in filters.items())
        )
        rows = (heapq.nlargest if newest_first else heapq.nsmallest)(limit, fitting, key=attrgetter("id"))
        return cast("list[RowT]", rows)

    def count(self, name: str) -> int:
        """What `counter` does, likewise."""
        self._refuse_if_closed()
        return self._state.counters.get(name, 0)

    # --- As a store -----------------------------------------------------------------------------------------

    async def apply(self, *ops: Op) -> Outcome:
        outcome = self.write(*ops)
        await asyncio.sleep(0)
        return outcome

    async def get(self, table: type[RowT], id: str) -> RowT | None:
        row = self.find(table, id)
        await asyncio.sleep(0)
        return row

    async def select(
        self,
        table: type[RowT],
        where: Mapping[str, Scalar | tuple[Scalar, ...]] | None = None,
        *,
        after: str = "",
        limit: int = 1_000,
        newest_first: bool = False,
    ) -> list[RowT]:
        rows = self.list_rows(table, where, after=after, limit=limit, newest_first=newest_first)
        await asyncio.sleep(0)
        return rows

    async def counter(self, name: str) -> int:
        value = self.count(name)
        await asyncio.sleep(0)
        return value

    async def now(self) -> int:
        self._refuse_if_closed()
        now = self._clock()
        await asyncio.sleep(0)
        return now

    async def close(self) -> None:
        self._is_closed = True

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("The store is closed.", cause="closed", retryable=False)
