"""A connection that comes back by itself.

Invariants: the first caller waits for the connection, or for the first refusal; from then on, until it is back, every
call is refused at once with the reason, while one task tries again after pauses that grow up to a bound. Whoever has to
know how a lost commit ended may wait longer. The first of a database's links that is back has the others try at once,
and whoever calls on them then waits for that: a database that has answered is not away for anybody.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from ..errors import StoreUnavailable
from .postgres_database import PostgresConnection, PostgresDatabase
from .postgres_errors import copy_of, is_of_the_world, unavailable

PAUSE_MIN_S: Final = 0.05
PAUSE_MAX_S: Final = 2.0


class Link:
    """To one database; `connect` makes a connection, where there is more to that than to connect."""

    def __init__(
        self, database: PostgresDatabase, connect: Callable[[], Awaitable[PostgresConnection]] | None = None
    ) -> None:
        self._database = database
        self._connect = database.connect if connect is None else connect
        database.on_answer.append(self._look_again)
        self._connection: PostgresConnection | None = None
        # Why the last attempt failed; None while there is a connection, or the first attempt is under way.
        self._failure: Exception | None = None
        # Runs while there is no connection, and somebody has wanted one.
        self._attempts: asyncio.Task[None] | None = None
        # Set for a moment when an attempt has ended.
        self._news = asyncio.Event()
        self._is_closed = False

    @property
    def present(self) -> PostgresConnection | None:
        """The connection, if there is one."""
        return self._connection if self._connection is not None and self._connection.is_usable else None

    async def connection(self, patience_s: float = 0.0) -> PostgresConnection:
        """The connection; `StoreUnavailable` if it has been away for this long."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        while True:
            if (present := self.present) is not None:
                return present
            if self._is_closed:
                raise StoreUnavailable("The store is closed.", cause="closed", retryable=False)
            if self._attempts is None:
                self._connection = None
                self._attempts = asyncio.create_task(self._attempt())
            left_s = until - loop.time()
            if self._failure is not None and left_s <= 0:
                raise self._refusal(self._failure)
            try:
                async with asyncio.timeout(None if self._failure is None else left_s):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        """End the connection, and the attempts to have one."""
        if not self._is_closed:
            self._is_closed = True
            self._database.on_answer.remove(self._look_again)
        if self._attempts is not None:
            self._attempts.cancel()
            await asyncio.wait([self._attempts])
        if (present := self.present) is not None:
            await present.close()

    def _refusal(self, failure: Exception) -> Exception:
        if isinstance(failure, StoreUnavailable):
            return copy_of(failure)
        return unavailable(self._database.name, failure) if is_of_the_world(failure) else failure

    def _look_again(self) -> None:
        """The database has answered another link: what this one was refused with is no longer true."""
        if self._attempts is not None and self._failure is not None:
            # It may be in a pause, or wait for an answer that was lost when nothing came through.
            self._attempts.cancel()
            self._failure = None
            self._attempts = asyncio.create_task(self._attempt())

    async def _attempt(self) -> None:
        """Until there is a connection, or `close`."""
        pause_s = PAUSE_MIN_S
        while self._connection is None:
            try:
                self._connection = await self._connect()
            except Exception as error:  # noqa: BLE001 - it is what the callers are refused with
                self._failure = error
            else:
                self._failure = None
                self._attempts = None
                for told in self._database.on_answer:
                    told()
            self._news.set()
            self._news.clear()
            if self._connection is None:
                # Not all nodes at once.
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(pause_s * 2, PAUSE_MAX_S)
