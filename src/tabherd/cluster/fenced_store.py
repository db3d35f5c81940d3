"""A store that takes nothing from a node once others have declared it dead.

Invariants:
- Every write of a life requires the node's own row as that life wrote it, in the same transaction. Whoever ends the
  life changes that row first, so no write of it lands later, however long it was on its way.
- A node that does not trust itself asks for nothing: whoever needs the store is refused at once, and does not wait for
  a connection that says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ..core.model import Node, RowT
from ..errors import StoreUnavailable
from ..store.base import Applied, Conflict, Op, Outcome, Require, Scalar, Store

FENCED: Final = "fenced"


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
        outcome = await self._store.apply(self._fence, *ops)
        match outcome:
            case Applied(rows=rows):
                return Applied(rows[1:])
            case Conflict(index=0):
                self._on_fenced()
                raise fenced()
            case Conflict():
                return Conflict(outcome.index - 1, outcome.reason, outcome.row, outcome.value)

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
