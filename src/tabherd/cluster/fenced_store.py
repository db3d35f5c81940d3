"""A store that takes nothing from a node once others have declared it dead.

Invariants:
- Every write of a life requires the node's own row as that life wrote it, in the same transaction. Whoever ends the
  life changes that row first, so no write of it lands later, however long it was on its way.
- A node that does not trust itself asks for nothing: whoever needs the store is refused at once, and does not wait for
  a connection that says nothing.
- A change of what stands whose answer was lost is answered when it is known whether it happened, however long the store
  is away: what this node has in memory and what is on disk must not go apart. Its guards let it happen once only, so it
  is sent again, and a conflict with its own effect is no conflict. Whoever makes something new hears of the doubt, and
  settles it: nobody waits for what may not be there. That somebody is to be told of a change is part of the change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from ..core.model import Delivery, Node, Row, RowT
from ..errors import StoreUnavailable
from ..store.base import (
    Add,
    Applied,
    Conflict,
    Delete,
    Insert,
    Op,
    Outcome,
    Put,
    Require,
    Scalar,
    Store,
    Update,
    is_in_doubt,
)

FENCED: Final = "fenced"
# How long a store that does not answer is left alone.
RETRY_S: Final = 0.5


class FencedStore:
    """Implements `Store` for one life of one node."""

    def __init__(
        self,
        store: Store,
        node: Node,
        on_fenced: Callable[[], None],
        refuse_untrusted: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        # Raises `StoreUnavailable` while the node does not trust itself.
        self._refuse_untrusted = refuse_untrusted
        self._fence = Require(Node, node.id, node.version)
        self._on_fenced = on_fenced

    async def apply(self, *ops: Op) -> Outcome:
        self._refuse_untrusted()
        # The fence first: a node that is out must not even learn what else stands in its way.
        try:
            outcome = await self._store.apply(self._fence, *ops)
        except StoreUnavailable as error:
            if not is_in_doubt(error) or not _is_change(ops):
                raise
            outcome = await self._settle_doubt(ops)
        match outcome:
            case Applied(rows=rows):
                return Applied(rows[1:])
            case Conflict(index=0):
                self._on_fenced()
                raise fenced()
            case Conflict():
                return Conflict(outcome.index - 1, outcome.reason, outcome.row, outcome.value)

    async def _settle_doubt(self, ops: tuple[Op, ...]) -> Outcome:
        """What became of a write that nobody has heard of again."""
        while True:
            await asyncio.sleep(RETRY_S)
            try:
                outcome = await self._store.apply(self._fence, *ops)
                if isinstance(outcome, Conflict) and outcome.index > 0:
                    rows = [await self._as_written(op) for op in ops]
                    if all(is_so for is_so, _ in rows):
                        return Applied((None, *(row for _, row in rows)))
                return outcome
            except StoreUnavailable as error:
                if not error.retryable:
                    raise

    async def _as_written(self, op: Op) -> tuple[bool, Row | None]:
        """Whether that stands as the operation leaves it, and what does."""
        match op:
            case Update(row=row):
                standing = await self._store.get(type(row), row.id)
                given = {"version": row.version + 1}
                if standing is not None and op.numbered is not None:
                    given[op.numbered] = getattr(standing, op.numbered)
                return standing == msgspec.structs.replace(row, **given), standing
            case Delete(table=table, id=id):
                return await self._store.get(table, id) is None, None
            case Put(row=row):
                return True, await self._store.get(type(row), row.id)
            case Insert() | Add() | Require():
                return True, None

    async def get(self, table: type[RowT], id: str) -> RowT | None:
        self._refuse_untrusted()
        return await self._store.get(table, id)

    async def select(
        self,
        table: type[RowT],
        where: Mapping[str, Scalar | tuple[Scalar, ...]] | None = None,
        *,
        after: str = "",
        limit: int = 1_000,
        newest_first: bool = False,
    ) -> list[RowT]:
        self._refuse_untrusted()
        return await self._store.select(table, where, after=after, limit=limit, newest_first=newest_first)

    async def counter(self, name: str) -> int:
        self._refuse_untrusted()
        return await self._store.counter(name)

    async def now(self) -> int:
        return await self._store.now()

    async def close(self) -> None:
        await self._store.close()


def _is_change(ops: tuple[Op, ...]) -> bool:
    """Whether all it does is to change or remove what stands, and to have somebody told."""
    is_new = any(isinstance(op, Insert) and not isinstance(op.row, Delivery) for op in ops)
    return not is_new and any(isinstance(op, Update | Delete) for op in ops)


def fenced() -> StoreUnavailable:
    """What a node says that others have declared dead. Nothing it waits for can come any more."""
    return StoreUnavailable(
        "The other nodes have declared this one dead; it starts again.",
        cause=FENCED,
        retry_after_ms=1_000,
    )


def is_fenced(error: StoreUnavailable) -> bool:
    """Whether there is no use in trying again: a client may, and meets another node or another life of this one."""
    return error.details.get("cause") == FENCED
