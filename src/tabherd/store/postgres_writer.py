"""How a batch of transactions is committed to PostgreSQL beside other nodes, whatever happens to the connection.

Invariants: a batch is evaluated on rows that stand unchanged when it is saved, so every transaction is isolated as if
it were alone. `commit` gives outcomes only when the batch is durable; when it raises, nothing has happened, except that
`in_doubt` says nobody can tell. Nothing is written twice.

The usual way is two round trips: load without locks, evaluate, and save in one statement that checks what it locks.
Where nothing can be learnt by loading (see `presume`), it is one. When others came in between, it is done again in one
transaction that locks as it loads, so that everybody has a turn; and so are the next batches, because who has met
others will meet them again.

An absent row cannot be locked. Where a batch inserts it, the unique key decides. Where it merely requires the absence,
whoever inserts the row meanwhile counts as later, and that is wrong only if that one in turn rests on the absence of
something that the batch inserts. So those that rest on absence take turns, by one lock.

Every save leaves its number in the writer's own row. When a connection is lost in the middle, the writer ends its life
in that row through a new one: that waits for a save that still runs, shuts out one that has not begun, and says which
number was the last to land.
"""

from __future__ import annotations

import enum
import secrets
from collections.abc import Sequence
from typing import Final

import msgspec

from ..errors import StoreUnavailable
from .base import Conflict, Outcome
from .evaluate import Transaction, evaluate, footprint
from .postgres_database import ABSENCE_LOCK, PostgresConnection, PostgresDatabase
from .postgres_errors import contended, in_doubt, is_meeting, is_of_the_world, is_refusal, unavailable
from .postgres_link import Link
from .postgres_rows import LOCK_WAIT_MS, Change, change_of, found_in, load, loaded, save
from .presume import presumed

# Each attempt that fails has met somebody who succeeded, or lost its connection.
ATTEMPTS_MAX: Final = 20
# How many batches lock as they load after one that met others.
WARY_BATCHES: Final = 32
# How long the callers of a lost commit are kept waiting for its outcome.
DOUBT_LIMIT_S: Final = 3.0
# Rows of writers that did not close are removed after this; no commit takes so long.
FORGOTTEN_AFTER: Final = "7 days"


class Care(enum.IntEnum):
    """How a batch guards itself against others; each kind includes those before it."""

    # Load nothing, and check what was presumed when saving.
    PRESUME = 0
    # Load without locks, and check when saving.
    CHECK = 1
    # Lock what is loaded.
    LOCK = 2
    # Let nobody else rest on absence meanwhile.
    ALONE = 3

    @property
    def is_locking(self) -> bool:
        return self >= Care.LOCK


class _Met(Exception):
    """Others were at the same rows; nothing has happened. Next time it has to be done with this care."""

    def __init__(self, care: Care) -> None:
        super().__init__(care.name)
        self.care = care


class _Unheard(Exception):
    """The connection was lost before the save was answered; these are the outcomes if it has happened."""

    def __init__(self, number: int, outcomes: list[Outcome]) -> None:
        super().__init__(f"batch {number}")
        self.number = number
        self.outcomes = outcomes


class _Entry(msgspec.Struct, frozen=True):
    """The writer's row as this connection found it."""

    life: int
    # The last batch that landed; None: the row is not the one that was there before.
    landed: int | None


class Writer:
    """Commits batches, one at a time."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._link = Link(database, self._enter)
        self._id = secrets.token_hex(16)
        # Of the present connection; None before the first.
        self._entry: _Entry | None = None
        # Of the last batch that was sent.
        self._number = 0
        # Batches still to be done with locks.
        self._wary_batches = 0

    async def commit(self, batch: Sequence[Transaction]) -> list[Outcome]:
        """Take all of it to the disk and say how each transaction ended; or raise, and nothing has happened."""
        care = Care.PRESUME
        if self._wary_batches:
            self._wary_batches -= 1
            care = Care.LOCK
        loss: Exception | None = None
        for _ in range(ATTEMPTS_MAX):
            connection = await self._link.connection()
            try:
                return await self._attempt(connection, batch, care)
            except _Met as met:
                care = met.care
                await connection.recover(met)
            except _Unheard as unheard:
                connection.drop()
                if await self._has_landed(unheard.number):
                    return unheard.outcomes
                loss = unheard.__cause__ if isinstance(unheard.__cause__, Exception) else unheard
            except Exception as error:
                await connection.recover(error)
                if is_meeting(error):
                    care = max(care, Care.LOCK)
                    self._wary_batches = WARY_BATCHES
                elif connection.is_lost(error):
                    loss = error
                else:
                    raise
        raise contended(self._database.name) if loss is None else unavailable(self._database.name, loss)

    async def close(self) -> None:
        try:
            if (connection := self._link.present) is not None:
                await connection.ask(f"DELETE FROM {self._database.schema}.writers WHERE id = $1", [self._id])
        except Exception as error:
            # Then others remove the row, in time.
            if not is_of_the_world(error):
                raise
        finally:
            await self._link.close()

    # --- One attempt ------------------------------------------------------------------------------------------------

    async def _attempt(self, connection: PostgresConnection, batch: Sequence[Transaction], care: Care) -> list[Outcome]:
        schema, needed = self._database.schema, footprint(batch)
        if not needed.ids and not needed.counters:
            return evaluate(batch, loaded(needed, ()))[0]
        state = presumed(batch) if care is Care.PRESUME else None
        is_presumed = state is not None
        if state is None:
            if care.is_locking:
                await connection.begin(LOCK_WAIT_MS)
            if care is Care.ALONE:
                await connection.run(f"SELECT pg_advisory_xact_lock({ABSENCE_LOCK})")
            state = loaded(needed, await connection.ask(*load(schema, needed, is_locking=care.is_locking)))
        found = found_in(state)
        outcomes, writes = evaluate(batch, state)
        if is_presumed and any(isinstance(outcome, Conflict) for outcome in outcomes):
            # They do not agree among themselves, and who is refused has to be told what really stands there.
            raise _Met(Care.CHECK)
        change = change_of(batch, outcomes, found, writes)
        if not change.is_writing:
            # What was loaded stood there at one moment, and nothing else has been claimed.
            if care.is_locking:
                await connection.run("ROLLBACK")
            return outcomes
        if change.rests_on_absence and care is not Care.ALONE:
            raise _Met(Care.ALONE)
        await self._save(connection, change, outcomes, care)
        return outcomes

    async def _save(self, connection: PostgresConnection, change: Change, outcomes: list[Outcome], care: Care) -> None:
        assert self._entry is not None, "a connection begins with the writer's row"
        self._number += 1
        try:
            answer = await connection.ask(
                *save(self._database.schema, self._id, self._entry.life, self._number, change)
            )
            if answer["stands"] and care.is_locking:
                await connection.run("COMMIT")
        except Exception as error:
            if connection.is_lost(error) and not is_refusal(error):
                raise _Unheard(self._number, outcomes) from error
            raise
        if not answer["lives"]:
            # Somebody took it for forgotten, or restored the database: a new connection begins with a new row.
            connection.drop()
            raise _Met(care)
        if not answer["stands"]:
            self._wary_batches = WARY_BATCHES
            raise _Met(max(care, Care.LOCK))

    # --- The writer's row -------------------------------------------------------------------------------------------

    async def _enter(self) -> PostgresConnection:
        """A connection of a new life: whatever the last one has left under way ends before, or never lands."""
        connection = await self._database.connect()
        writers = f"{self._database.schema}.writers"
        try:
            if self._entry is None:
                await connection.run(f"DELETE FROM {writers} WHERE seen_at < now() - interval '{FORGOTTEN_AFTER}'")
            life, landed = await connection.ask(
                f"INSERT INTO {writers} AS standing (id, life, batch, seen_at) VALUES ($1, 1, 0, now())"
                " ON CONFLICT (id) DO UPDATE SET life = standing.life + 1, seen_at = now() RETURNING life, batch",
                [self._id],
            )
        except BaseException:
            connection.drop()
            raise
        is_new = self._entry is None
        self._entry = _Entry(life, None if life == 1 and not is_new else landed)
        return connection

    async def _has_landed(self, number: int) -> bool:
        """Whether the batch of a lost connection happened; now that it is asked, that is how it remains."""
        try:
            await self._link.connection(DOUBT_LIMIT_S)
        except StoreUnavailable as error:
            raise in_doubt(self._database.name) from error
        assert self._entry is not None, "a connection begins with the writer's row"
        if self._entry.landed is None:
            raise in_doubt(self._database.name)
        assert self._entry.landed <= number, f"batch {self._entry.landed} landed and was never sent"
        return self._entry.landed == number
