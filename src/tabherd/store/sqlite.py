"""The embedded durable store: one SQLite file, one thread that writes, one that reads.

Invariants: an answer to `apply` is sent after the commit that made it durable (WAL, synchronous=FULL). Transactions
that arrive while a commit runs share the next one; each of them is still all or nothing, in the order of the calls. A
commit that fails acknowledges nothing and leaves nothing, and the next one finds the store as it was. A transaction
that is refused for a bug of ours does not take the others of its batch with it. Reads see everything whose `apply` has
answered.

The writer competes with the event loop for the GIL, so a batch costs a few statements however many transactions it
has: see `sqlite_rows`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, assert_never, cast

import msgspec

from ..core.model import Row, RowT
from .base import Op, Outcome, Scalar
from .evaluate import Footprint, Transaction, evaluate, footprint, refuse_unstorable, wanted
from .lane import Answer, Job, Lane
from .sqlite_file import SqliteFile, is_of_the_world, unavailable
from .sqlite_rows import load, save, select

# How long a commit waits for another process that has the file locked (a backup, somebody's shell).
BUSY_MS = 2_000


class _Get(msgspec.Struct, frozen=True):
    table: type[Row]
    id: str


class _Counter(msgspec.Struct, frozen=True):
    name: str


class _Select(msgspec.Struct, frozen=True):
    table: type[Row]
    filters: Mapping[str, tuple[Scalar, ...]]
    after: str
    limit: int
    newest_first: bool


_Read: TypeAlias = _Get | _Counter | _Select


class SqliteStore:
    """Implements `Store`. Opening it makes, checks and migrates the file, and refuses with the reason and the fix."""

    def __init__(
        self,
        path: Path,
        *,
        on_commit: Callable[[float, int], None] | None = None,
        busy_ms: int = BUSY_MS,
        size_max_bytes: int | None = None,
    ) -> None:
        # `on_commit` is called on the event loop after every batch: seconds it took, transactions it had.
        # `size_max_bytes` bounds the file: beyond it the store reads as full.
        self._file = SqliteFile(path.absolute(), busy_ms=busy_ms, size_max_bytes=size_max_bytes)
        self._writer: Lane[Transaction, Outcome] = Lane(
            "tabherd-store-writer", self._each(self._commit), self._file.writer.close, on_commit
        )
        self._reader: Lane[_Read, Any] = Lane("tabherd-store-reader", self._each(self._read), self._file.reader.close)

    async def apply(self, *ops: Op) -> Outcome:
        refuse_unstorable(ops)
        return await self._writer.submit(ops)

    async def get(self, table: type[RowT], id: str) -> RowT | None:
        return cast("RowT | None", await self._reader.submit(_Get(table, id)))

    async def select(
        self,
        table: type[RowT],
        where: Mapping[str, Scalar | tuple[Scalar, ...]] | None = None,
        *,
        after: str = "",
        limit: int = 1_000,
        newest_first: bool = False,
    ) -> list[RowT]:
        read = _Select(table, wanted(table, where), after, limit, newest_first)
        return cast("list[RowT]", await self._reader.submit(read))

    async def counter(self, name: str) -> int:
        return cast("int", await self._reader.submit(_Counter(name)))

    async def now(self) -> int:
        return time.time_ns() // 1_000_000

    async def close(self) -> None:
        # The writer last: whoever closes the file last folds the log into it, which a reader may not.
        await self._reader.close()
        await self._writer.close()
        self._file.disown()

    # --- In the two threads -----------------------------------------------------------------------------------------

    def _commit(self, batch: list[Transaction]) -> list[Outcome]:
        connection = self._file.writer
        connection.execute("BEGIN IMMEDIATE")
        try:
            state = load(connection, footprint(batch))
            # Taken down before the batch is evaluated, which changes the state.
            found = {table: dict(by_id) for table, by_id in state.rows.items()}
            outcomes, writes = evaluate(batch, state)
            save(connection, writes, found)
            connection.execute("COMMIT")
        finally:
            # After a success there is none, and some errors end it by themselves.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return outcomes

    def _read(self, batch: list[_Read]) -> list[Any]:
        needed = Footprint({}, set())
        for read in batch:
            match read:
                case _Get(table, id):
                    needed.ids.setdefault(table, set()).add(id)
                case _Counter(name):
                    needed.counters.add(name)
        connection = self._file.reader
        state = load(connection, needed)
        answers: list[Any] = []
        for read in batch:
            match read:
                case _Get(table, id):
                    answers.append(state.row(table, id))
                case _Counter(name):
                    answers.append(state.counters.get(name, 0))
                case _Select(table, filters, after, limit, newest_first):
                    answers.append(select(connection, table, filters, after, limit, newest_first=newest_first))
                case _:
                    assert_never(read)
        return answers

    def _each(self, serve: Callable[[list[Job]], list[Answer]]) -> Callable[[list[Job]], list[Answer | Exception]]:
        """Let a failure of the world fail the whole batch, and a bug only the job that has it."""

        def served(batch: list[Job]) -> list[Answer | Exception]:
            try:
                return [*serve(batch)]
            except Exception as error:  # noqa: BLE001 - none is lost: it becomes the answer of the job that caused it
                if is_of_the_world(error):
                    return [unavailable(self._file.path, error) for _ in batch]
                if len(batch) == 1:
                    return [error]
            return [answer for job in batch for answer in served([job])]

        return served
