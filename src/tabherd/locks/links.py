"""One connection to PostgreSQL that is there for locks: asking it, watching it, ending it.

- It speaks libpq directly, one statement at a time: a lock costs one round trip, and little besides.
- Whoever is interrupted while it waits for an answer has the statement cancelled and the answer read, so that the next
  question is answered by its own. Where that fails, and wherever else there is a doubt about what the server did, the
  connection ends, and with it, on the server, every lock that it may have.
- A fork keeps no copy of its socket: a child that outlives us must not keep our locks alive, nor speak on them.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec
import psycopg
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus
from psycopg.pq.abc import PGresult

from .base import LockKey

# How long a request to cancel a statement may take.
CANCEL_S: Final = 2.0
# Messages that a server may send unasked before we look whether it also hung up.
UNASKED_MAX: Final = 10

Row: TypeAlias = tuple[bytes | None, ...]


class Statement(msgspec.Struct, frozen=True):
    """What is asked."""

    text: bytes
    # Under which it is kept prepared; empty: it is parsed each time.
    name: bytes = b""
    parameters: tuple[bytes, ...] = ()


class LinkBroken(Exception):
    """The connection is gone or does not answer; with it every lock it had."""


class Rejected(Exception):
    """The server has refused the statement; the connection is as good as before."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class Link:
    """What connections of threads and of tasks have in common."""

    def __init__(self, connection: psycopg.Connection | psycopg.AsyncConnection) -> None:
        self._pgconn = connection.pgconn
        # Statements are short and answered one by one: sending never has to wait for the reader.
        self._pgconn.nonblocking = 0
        self._prepared: set[bytes] = set()
        # The process that opened it, and the only one that may speak on it.
        self.pid: Final = os.getpid()
        # The locks that it has, and since when, in milliseconds since 1970. Changed by the pool.
        self.held: dict[LockKey, int] = {}
        # Whether it has had one before; one that lay idle may have died since.
        self.is_used = False
        # What the server was last told about the holder.
        self.label = ""
        self.is_open = True
        _links.add(self)

    @property
    def told_pid(self) -> int:
        """Whom the greeting named as the server's process; a pooler names nobody, or itself."""
        return self._pgconn.backend_pid

    async def ask(self, statement: Statement, limit_s: float) -> list[Row]:
        """Run it and read its rows: `Rejected`, or `LinkBroken` also when there is no answer within the limit."""
        raise NotImplementedError

    async def _ask(self, statement: Statement, limit_s: float) -> list[Row]:
        """The same, for who has the connection to itself."""
        try:
            if statement.name and statement.name not in self._prepared:
                self._pgconn.send_prepare(statement.name, statement.text)
                _rows(await self._results(limit_s), self._pgconn.status)
                self._prepared.add(statement.name)
            if statement.name:
                self._pgconn.send_query_prepared(statement.name, statement.parameters)
            elif statement.parameters:
                self._pgconn.send_query_params(statement.text, statement.parameters)
            else:
                self._pgconn.send_query(statement.text)
            return _rows(await self._results(limit_s), self._pgconn.status)
        except Rejected:
            raise
        except LinkBroken:
            self.close()
            raise
        except psycopg.Error as error:
            self.close()
            raise LinkBroken(str(error).strip()) from error
        except GeneratorExit:
            # The loop was thrown away with its tasks in it: nobody is left who could wait for an answer.
            self.close()
            raise
        except BaseException:
            await self._call_off()
            raise

    def _refuse_if_closed(self) -> None:
        if not self.is_open or os.getpid() != self.pid:
            raise LinkBroken("the connection was ended")

    async def _call_off(self) -> None:
        """Have the statement that runs cancelled, and read what the server says to that."""
        is_over = False
        try:
            await self._cancel()
            await self._results(CANCEL_S)
            is_over = True
        except (psycopg.Error, LinkBroken):
            # Then the connection ends, which ends the statement as well.
            return
        finally:
            if not is_over:
                self.close()

    async def _cancel(self) -> None:
        raise NotImplementedError

    async def _results(self, limit_s: float) -> list[PGresult]:
        raise NotImplementedError

    def is_alive(self) -> bool:
        """Whether it is still there, as far as this machine knows. For a connection on which nothing is asked."""
        raise NotImplementedError

    def close(self) -> None:
        """End it. The server gives every lock of it free."""
        self.is_open = False
        _links.discard(self)
        if os.getpid() == self.pid:
            self._pgconn.finish()

    def cut_off(self) -> None:
        """In a fork: let go of the socket, without a word to the server, who talks to our parent on it."""
        nothing = os.open(os.devnull, os.O_RDWR)
        # The number stays taken, so that libpq can never speak to a stranger under it.
        os.dup2(nothing, self._pgconn.socket, inheritable=False)
        os.close(nothing)


class ThreadLink(Link):
    """A connection that is asked by one thread at a time."""

    def __init__(self, connection: psycopg.Connection) -> None:
        super().__init__(connection)
        self._connection = connection
        self._readable = select.poll()
        self._readable.register(self._pgconn.socket, select.POLLIN)
        # Held by who asks: a lock may be released by another thread than the one that waits for the next.
        self._turn = threading.Lock()

    async def ask(self, statement: Statement, limit_s: float) -> list[Row]:
        with self._turn:
            self._refuse_if_closed()
            return await self._ask(statement, limit_s)

    async def _results(self, limit_s: float) -> list[PGresult]:
        until = time.monotonic() + limit_s
        results: list[PGresult] = []
        while True:
            while self._pgconn.is_busy():
                if not self._readable.poll(max(until - time.monotonic(), 0) * 1000):
                    raise LinkBroken(f"no answer within {limit_s:.0f} s")
                self._pgconn.consume_input()
            result = self._pgconn.get_result()
            if result is None:
                return results
            results.append(result)

    def is_alive(self) -> bool:
        if os.getpid() != self.pid or not self.is_open:
            return False
        if not self._turn.acquire(blocking=False):
            # Somebody is asking, and will be told.
            return True
        try:
            for _ in range(UNASKED_MAX):
                if not self._readable.poll(0):
                    break
                self._pgconn.consume_input()
                # Reads what has arrived: a notice, a changed setting, or a farewell.
                self._pgconn.is_busy()
            return self._pgconn.status == ConnStatus.OK
        except psycopg.Error:
            return False
        finally:
            self._turn.release()

    async def _cancel(self) -> None:
        self._connection.cancel_safe(timeout=CANCEL_S)


class TaskLink(Link):
    """A connection of an event loop, which also notices when it breaks while nothing is asked."""

    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        super().__init__(connection)
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        # The answer that is awaited, and what of it has arrived.
        self._answer: asyncio.Future[list[PGresult]] | None = None
        self._arrived: list[PGresult] = []
        self._is_broken = False
        # Told when it breaks while nothing is asked.
        self._watchers: set[Callable[[], None]] = set()
        # Held by who asks: a lock may be released by another task than the one that waits for the next.
        self._turn = asyncio.Lock()
        self._socket = self._pgconn.socket
        self._is_reading = True
        self._loop.add_reader(self._socket, self._read)

    async def ask(self, statement: Statement, limit_s: float) -> list[Row]:
        async with self._turn:
            self._refuse_if_closed()
            return await self._ask(statement, limit_s)

    async def _results(self, limit_s: float) -> list[PGresult]:
        assert self._answer is None, "a connection is asked one thing at a time"
        if self._is_broken:
            raise LinkBroken("the connection was lost")
        self._answer, self._arrived = self._loop.create_future(), []
        timer = self._loop.call_later(limit_s, self._break, f"no answer within {limit_s:.0f} s")
        try:
            # An answer that was called off may have come while nobody was waiting for it.
            self._collect()
            return await self._answer
        finally:
            timer.cancel()
            self._answer = None

    def watch(self, told: Callable[[], None]) -> None:
        """Have this called if it breaks while nothing is asked."""
        self._watchers.add(told)

    def unwatch(self, told: Callable[[], None]) -> None:
        """Call it no more, if it was not called yet."""
        self._watchers.discard(told)

    def _read(self) -> None:
        try:
            self._pgconn.consume_input()
            if self._answer is None or self._answer.done():
                self._pgconn.is_busy()
                if self._pgconn.status != ConnStatus.OK:
                    self._break("the connection was lost")
                return
            self._collect()
        except psycopg.Error as error:
            self._break(str(error).strip())

    def _collect(self) -> None:
        """Add what has arrived of the answer, which may complete it."""
        assert self._answer is not None
        while not self._pgconn.is_busy():
            result = self._pgconn.get_result()
            if result is None:
                self._answer.set_result(self._arrived)
                return
            self._arrived.append(result)

    def _break(self, why: str) -> None:
        self._is_broken = True
        self._stop_reading()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(LinkBroken(why))
            return
        while self._watchers:
            self._watchers.pop()()

    def is_alive(self) -> bool:
        if self._is_broken or os.getpid() != self.pid or not self.is_open:
            return False
        readable = select.poll()
        readable.register(self._socket, select.POLLIN)
        for _ in range(UNASKED_MAX):
            # The loop may not have come to it yet.
            if self._is_broken or not readable.poll(0):
                break
            self._read()
        return not self._is_broken and self._pgconn.status == ConnStatus.OK

    async def _cancel(self) -> None:
        await self._connection.cancel_safe(timeout=CANCEL_S)

    def close(self) -> None:
        if self.is_open and os.getpid() == self.pid and not self._loop.is_closed():
            self._stop_reading()
        super().close()

    def _stop_reading(self) -> None:
        """Once: libpq closes the socket of a connection that was lost, and its number may be somebody else's then."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._socket)


def _rows(results: Sequence[PGresult], status: int) -> list[Row]:
    """The rows of the last of the results, if none of them is an error."""
    rows: list[Row] = []
    for result in results:
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            message = (result.error_field(DiagnosticField.MESSAGE_PRIMARY) or result.error_message).decode(
                "utf-8", "replace"
            )
            if status != ConnStatus.OK:
                raise LinkBroken(message)
            raise Rejected((result.error_field(DiagnosticField.SQLSTATE) or b"").decode("ascii"), message)
        rows = [
            tuple(result.get_value(row, column) for column in range(result.nfields)) for row in range(result.ntuples)
        ]
    return rows


# --- Forks --------------------------------------------------------------------------------------------------------

# Every connection of this process that is open.
_links: weakref.WeakSet[Link] = weakref.WeakSet()
# Those of the parent, kept so that nothing is ever done with them again.
_inherited: list[Link] = []
# How many forks there were: one that was made while a connection was being opened has a copy of its socket.
_forks: list[int] = [0]


def forks() -> int:
    """How often this process has forked."""
    return _forks[0]


def _count_fork() -> None:
    _forks[0] += 1


def _cut_off_all() -> None:
    for link in tuple(_links):
        link.cut_off()
        _inherited.append(link)
    _links.clear()


os.register_at_fork(after_in_parent=_count_fork, after_in_child=_cut_off_all)
