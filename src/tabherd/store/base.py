"""What a store promises: guarded writes, all or nothing, in one round trip.

A verb reads rows, lets core decide, and hands `apply` a list of operations, each with its own precondition: the row
is absent, the row still has the version that was read, the counter stays within its cap. Either all of them happen,
durably, or none does and the answer says which precondition failed and what stands there now, so that the verb can
decide again without another read. No Python of the caller runs inside a transaction, so that a batch of
transactions is one round trip on any engine.

Order: transactions take effect in the order in which `apply` was called on one store; one that answered `Applied` is
on disk and is seen by every later read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, TypeAlias

import msgspec

from ..core.model import Row, RowT
from ..errors import StoreUnavailable

# A limit on every queue: this many transactions may wait for the disk before callers are refused.
PENDING_MAX = 10_000
# The cause of a `StoreUnavailable` after which nobody knows whether the transaction has happened.
IN_DOUBT = "in_doubt"


class Insert(msgspec.Struct, frozen=True):
    """Write a row that must not exist. `numbered` names a field that gets the next number of that sequence.

    A sequence is the counter `seq:FIELD`; only numbering moves it, so numbers strictly grow over all rows. A
    transaction in conflict takes no number.
    """

    row: Row
    numbered: str | None = None


class Update(msgspec.Struct, frozen=True):
    """Replace the row of the same id, which must still have `row.version`; the stored version grows by one."""

    row: Row
    numbered: str | None = None


class Put(msgspec.Struct, frozen=True):
    """Write the row whatever stands there. For write-behind records that have one writer."""

    row: Row


class Delete(msgspec.Struct, frozen=True):
    """Remove the row, which must still have this version."""

    table: type[Row]
    id: str
    version: int


class Require(msgspec.Struct, frozen=True):
    """Change nothing, but refuse unless the row still has this version (0: unless it is absent)."""

    table: type[Row]
    id: str
    version: int


class Add(msgspec.Struct, frozen=True):
    """Move a counter; refuse when it would rise past `cap` or fall below zero. A counter that never moved is 0.

    A cap that was lowered under the counter refuses only what rises, so that it can always be worked off.
    """

    counter: str
    delta: int
    cap: int | None = None


Op: TypeAlias = Insert | Update | Put | Delete | Require | Add


class Applied(msgspec.Struct, frozen=True):
    """Everything happened and is durable. `rows` has the stored row of each operation, or None."""

    rows: tuple[Row | None, ...]


# exists: insert over a row. missing: no such row. version: somebody changed it. cap: the counter's bounds.
Reason: TypeAlias = Literal["exists", "missing", "version", "cap"]


class Conflict(msgspec.Struct, frozen=True):
    """Nothing happened. Operation number `index` found its precondition unmet."""

    index: int
    reason: Reason
    # What stands there, before any of this transaction: the row for row operations, the counter's value for Add.
    row: Row | None = None
    value: int | None = None


Outcome: TypeAlias = Applied | Conflict
Scalar: TypeAlias = str | int


class Store(Protocol):
    """One behavioural suite runs on every implementation."""

    async def apply(self, *ops: Op) -> Outcome:
        """All of it, durably, or none of it. Raises `StoreUnavailable` when the engine cannot tell or cannot write.

        A caller that is cancelled meanwhile does not learn whether it happened; it never happens by half.
        """
        ...

    async def get(self, table: type[RowT], id: str) -> RowT | None:
        """The row as last applied."""
        ...

    async def select(
        self,
        table: type[RowT],
        where: Mapping[str, Scalar | tuple[Scalar, ...]] | None = None,
        *,
        after: str = "",
        limit: int = 1_000,
        newest_first: bool = False,
    ) -> list[RowT]:
        """Rows whose indexed fields equal the given values (a tuple: any of them), by ascending id, after that id.

        Newest first: by descending id, which for ordered ids is that, and after is before.
        """
        ...

    async def counter(self, name: str) -> int:
        """The counter's value; 0 if it never moved."""
        ...

    async def now(self) -> int:
        """The engine's clock, which is the one that counts where several nodes share it; milliseconds since 1970."""
        ...

    async def close(self) -> None:
        """Finish what was accepted, then let go of the engine. Later calls raise `StoreUnavailable`."""
        ...


def is_in_doubt(error: StoreUnavailable) -> bool:
    """Whether the transaction may have happened all the same; otherwise it has not."""
    return error.details.get("cause") == IN_DOUBT
