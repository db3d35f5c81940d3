"""The shared durable store: a PostgreSQL database that any number of nodes write to at once.

Invariants: an answer to `apply` is sent after the commit that made it durable (synchronous_commit). Transactions that
arrive while a commit runs share the next one; each of them is still all or nothing, in the order of the calls, and
isolated from those of other nodes: see `postgres_writer`. For that order there is one writing connection: what several
would gain, the sharing of commits has gained already. A transaction that is refused for a bug of ours does not take the
others of its batch with it. Reads see everything whose `apply` has answered, whichever node did it.

The store belongs to the event loop that first uses it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias, assert_never, cast

import msgspec

from ..core.model import Row, RowT
from ..errors import StoreUnavailable
from .base import Op, Outcome, Scalar
from .evaluate import Footprint, Transaction, refuse_unstorable, wanted
from .lane import Answer, Job
from .postgres_database import PostgresConnection, PostgresDatabase
from .postgres_errors import copy_of, is_of_the_world, unavailable
from .postgres_lane import LoopLane
from .postgres_link import Link
from .postgres_rows import load, loaded, select, selected
from .postgres_writer import Writer

# Connections that read. A long page on one does not hold up what is read by id on the other.
READERS: Final = 2
# A read that loses its connection is done again on the next.
READ_ATTEMPTS_MAX: Final = 3
# Of the moment, not of the transaction's beginning.
NOW: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"


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


class _Now(msgspec.Struct, frozen=True):
    """What the database's clock says."""


_Read: TypeAlias = _Get | _Counter | _Select | _Now


class PostgresStore:
    """Implements `Store`. It connects, and brings the schema up to date, when it is first used."""

    def __init__(self, database: PostgresDatabase, *, on_commit: Callable[[float, int], None] | None = None) -> None:
        # `on_commit` is called after every batch: seconds it took, transactions it had.
        self.database = database
        self._writer = Writer(self.database)
        self._writes: LoopLane[Transaction, Outcome] = LoopLane(self._each(self._writer.commit), on_batch=on_commit)
        # Connections that no batch of reads is using.
        self._idle = [Link(self.database) for _ in range(READERS)]
        self._reads: LoopLane[_Read, Any] = LoopLane(self._each(self._read), width=READERS)
        self._is_closed = False

    async def apply(self, *ops: Op) -> Outcome:
        refuse_unstorable(ops)
        return await self._writes.submit(ops)

    async def get(self, table: type[RowT], id: str) -> RowT | None:
        return cast("RowT | None", await self._reads.submit(_Get(table, id)))

    async def select(
        self,
        table: type[RowT],
        where: Mapping[str, Scalar | tuple[Scalar, ...]] | None = None,
        *,
        after: str = "",
        limit: int = 1_000,
        newest_first: bool = False,
    ) -> list[RowT]:
        filters = {
            field: tuple(value for value in values if isinstance(value, int) or _can_exist(value))
            for field, values in wanted(table, where).items()
        }
        read = _Select(table, filters, _cut(after, newest_first=newest_first), limit, newest_first)
        return cast("list[RowT]", await self._reads.submit(read))

    async def counter(self, name: str) -> int:
        return cast("int", await self._reads.submit(_Counter(name)))

    async def now(self) -> int:
        return cast("int", await self._reads.submit(_Now()))

    async def close(self) -> None:
        await self._reads.close()
        await self._writes.close()
        if not self._is_closed:
            self._is_closed = True
            for link in self._idle:
                await link.close()
            await self._writer.close()

    # --- Batches ----------------------------------------------------------------------------------------------------

    async def _read(self, batch: list[_Read]) -> list[Any]:
        link = self._idle.pop()
        try:
            for attempt in range(READ_ATTEMPTS_MAX):
                connection = await link.connection()
                try:
                    return await self._read_on(connection, batch)
                except Exception as error:
                    await connection.recover(error)
                    if not connection.is_lost(error):
                        raise
                    if attempt == READ_ATTEMPTS_MAX - 1:
                        raise unavailable(self.database.name, error) from error
            raise AssertionError("the last attempt answers or raises")
        finally:
            self._idle.append(link)

    async def _read_on(self, connection: PostgresConnection, batch: list[_Read]) -> list[Any]:
        schema = self.database.schema
        needed = Footprint({}, set())
        for read in batch:
            match read:
                case _Get(table, id) if _can_exist(id):
                    needed.ids.setdefault(table, set()).add(id)
                case _Counter(name) if _can_exist(name):
                    needed.counters.add(name)
        state = loaded(needed, await connection.ask(*load(schema, needed)) if needed.ids or needed.counters else ())
        answers: list[Any] = []
        for read in batch:
            match read:
                case _Get(table, id):
                    answers.append(state.row(table, id))
                case _Counter(name):
                    answers.append(state.counters.get(name, 0))
                case _Select(table, filters, after, limit, newest_first):
                    statement = select(schema, table, filters, after, limit, newest_first=newest_first)
                    answers.append(selected(table, await connection.ask(*statement), newest_first=newest_first))
                case _Now():
                    (now,) = await connection.ask(NOW, [])
                    answers.append(now)
                case _:
                    assert_never(read)
        return answers

    def _each(
        self, serve: Callable[[list[Job]], Awaitable[list[Answer]]]
    ) -> Callable[[list[Job]], Awaitable[list[Answer | Exception]]]:
        """Let a failure of the world fail the whole batch, and a bug only the job that has it."""

        async def served(batch: list[Job]) -> list[Answer | Exception]:
            try:
                return [*await serve(batch)]
            except StoreUnavailable as error:
                return [copy_of(error) for _ in batch]
            except Exception as error:  # noqa: BLE001 - none is lost: it becomes the answer of the job that caused it
                if is_of_the_world(error):
                    return [unavailable(self.database.name, error) for _ in batch]
                if len(batch) == 1:
                    return [error]
            # In halves, so that one bug among a thousand costs the others a few commits, and not each one of its own.
            half = len(batch) // 2
            return [*await served(batch[:half]), *await served(batch[half:])]

        return served


def _can_exist(text: str) -> bool:
    """PostgreSQL has no text with NUL in it, and refuses even to look for one."""
    return "\0" not in text


def _cut(after: str, *, newest_first: bool) -> str:
    """The text without NUL that has the same ids after it; before it, if the newest come first."""
    kept, nul, _ = after.partition("\0")
    return kept + "\1" if nul and newest_first else kept
