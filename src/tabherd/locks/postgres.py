"""Locks of PostgreSQL sessions, on connections that do nothing else: any number of machines on one database.

Invariants:
- A lock has one connection from the grant to the release; it is shared only with further locks of the same holder, so
  that the server sees who waits for whom and can tell a deadlock. No transaction is open meanwhile, and no pool of the
  application ever sees the connection, so neither commits nor resets take the lock away.
- A free lock costs one round trip. Only who finds it held says how long it will wait, in the same message that waits.
- After an attempt that failed or was interrupted, the lock is unlocked, whatever the server said: it may report a
  timeout for a lock that it has granted (PostgreSQL bug 17686).
- Any doubt ends the connection, and with it the lock. A broken connection is an error, never "busy".
"""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Callable
from typing import Final

from ..errors import LockDeadlock, LockLost, LockTimedOut
from .base import AnyHold, AsyncHold, Holder, LockKey, LockRow, LockStoreUnavailable, checked_timeout_s
from .counting import Tally
from .link_opening import APPLICATION_PREFIX, OPEN_MAX_S, Opener, unavailable
from .link_pool import LinkPool
from .links import Link, LinkBroken, Rejected, Row, Statement, TaskLink
from .postgres_rows import EXPEL, LIST, comment_on, rows_of
from .waiting import at_once

log = logging.getLogger("tabherd.locks")

# How much later than promised the server may answer that the time is over.
GRACE_S: Final = 5.0

LOCK_NOT_AVAILABLE: Final = "55P03"
DEADLOCK_DETECTED: Final = "40P01"

INTRODUCE: Final = b"SELECT set_config('application_name', $1, false)"


class PostgresHold:
    """A lock that is held, for threads."""

    # The server does not count.
    generation: Final = None

    def __init__(self, locks: PostgresLocks, link: Link, key: LockKey) -> None:
        self.key: Final = key
        self.acquired_at: Final = link.held[key]
        self._locks = locks
        # The connection that has it.
        self.link: Final = link
        # Who empties it, releases.
        self._unreleased = [True]

    def is_of(self, locks: PostgresLocks) -> bool:
        """Whether it is one of these."""
        return self._locks is locks

    def check(self) -> None:
        if not self.link.is_alive():
            raise _lost(self.key)

    def release(self) -> None:
        at_once(self.give_back())

    async def give_back(self) -> None:
        """Release it, in the thread or task that calls."""
        try:
            self._unreleased.pop()
        except IndexError:
            return
        await self._locks.unlock(self.link, self.key)


class AsyncPostgresHold:
    """The same for tasks."""

    generation: Final = None

    def __init__(self, hold: PostgresHold) -> None:
        self.key: Final = hold.key
        self.acquired_at: Final = hold.acquired_at
        self.hold: Final = hold
        # Those who want to know if it is lost.
        self._watchers: list[Callable[[], None]] = []

    def check(self) -> None:
        self.hold.check()

    def on_lost(self, told: Callable[[], None]) -> None:
        assert isinstance(self.hold.link, TaskLink)
        if self.hold.link.is_open:
            self._watchers.append(told)
            self.hold.link.watch(told)
        else:
            told()

    async def release(self) -> None:
        assert isinstance(self.hold.link, TaskLink)
        # What breaks from here on is no news to the holder.
        while self._watchers:
            self.hold.link.unwatch(self._watchers.pop())
        await self.hold.give_back()


class PostgresLocks:
    """What is the same for threads and tasks: the conversation about a lock."""

    def __init__(self, url: str, *, max_connections: int, keepalive_s: int, is_task: bool, marker: str = "") -> None:
        self._opener = Opener(url, keepalive_s, marker)
        self._open = self._opener.open_for_task if is_task else self._opener.open_for_thread
        self._max_connections = max_connections
        self.pool: Final = LinkPool(self._open, max_connections, is_task=is_task)
        self.tally: Final = Tally()
        _backends.add(self)

    async def acquire(
        self, key: LockKey, timeout_s: float, holder: Holder, beside: PostgresHold | None
    ) -> PostgresHold:
        """Wait for the lock."""
        until = time.monotonic() + checked_timeout_s(timeout_s)
        link = await self._link_with(key, holder, until if timeout_s else None, until, beside)
        if link is not None:
            return PostgresHold(self, link, key)
        self.tally.add(key, timeouts=1)
        raise LockTimedOut(f"Lock '{key.label}' was not free within {timeout_s:g} s.", lock=key.label)

    async def try_acquire(self, key: LockKey, holder: Holder, beside: PostgresHold | None) -> PostgresHold | None:
        """The lock, or None if somebody has it."""
        link = await self._link_with(key, holder, None, time.monotonic() + OPEN_MAX_S, beside)
        self.tally.tried(key, is_taken=link is not None)
        return PostgresHold(self, link, key) if link is not None else None

    async def unlock(self, link: Link, key: LockKey) -> None:
        """Give the lock back, and keep the connection; `LockLost` if it was not there any more."""
        if os.getpid() != link.pid:
            raise _lost(key)
        was_held: bytes | None = None
        try:
            ((was_held,),) = await link.ask(_statement(b"pg_advisory_unlock", key, link), self._opener.answer_s)
        except (LinkBroken, Rejected) as error:
            raise _lost(key) from error
        finally:
            if was_held != b"t":
                link.close()
            self.pool.unhold(link, key)
        if was_held != b"t":
            raise _lost(key)

    async def rows(self) -> list[LockRow]:
        """Locks that are held or waited for."""
        return rows_of(await self._ask(LIST), self.tally)

    async def expel(self, marker: str) -> int:
        """End the connections that have this marker."""
        prefix = f"{APPLICATION_PREFIX}{marker} ".encode("ascii")
        ((count,),) = await self._ask(Statement(EXPEL, parameters=(prefix,)))
        return int(count or b"0")

    async def _ask(self, statement: Statement) -> list[Row]:
        """On a connection of its own: the others may all be in use."""
        link = await self._open(OPEN_MAX_S)
        try:
            return await link.ask(statement, self._opener.answer_s)
        except (LinkBroken, Rejected) as error:
            raise unavailable(error) from error
        finally:
            link.close()

    async def _link_with(
        self, key: LockKey, holder: Holder, wait_until: float | None, until: float, beside: PostgresHold | None
    ) -> Link | None:
        """A connection that has the lock; None if it is busy, and stays so as long as the caller waits."""
        if beside is not None and beside.link.is_alive():
            return await self._locked(beside.link, key, holder, wait_until)
        # Of those that lay idle, every one may have died; the last try is made with a new one.
        for _ in range(self._max_connections + 1):
            link = await self.pool.borrow(until)
            if link is None and wait_until is None:
                # Who does not wait wants to know whether the lock is busy, and there is nobody to ask.
                raise unavailable(LinkBroken(f"all {self._max_connections} connections are in use"))
            if link is None:
                return None
            was_used = link.is_used
            try:
                return await self._locked(link, key, holder, wait_until)
            except LockStoreUnavailable:
                if link.is_open or not was_used:
                    raise
        raise unavailable(LinkBroken("every connection breaks"))

    async def _locked(self, link: Link, key: LockKey, holder: Holder, wait_until: float | None) -> Link | None:
        """That connection, if it gets the lock. If not, it is given back, unless it has other locks."""
        has_lock = False
        try:
            has_lock = await self._lock(link, key, holder, wait_until)
        except LinkBroken as error:
            raise unavailable(error) from error
        except Rejected as error:
            await self._undo(link, key)
            if error.sqlstate == DEADLOCK_DETECTED:
                raise LockDeadlock(
                    f"Waiting for lock '{key.label}' would never end: its holder waits for one of yours.",
                    lock=key.label,
                ) from error
            if error.sqlstate != LOCK_NOT_AVAILABLE:
                raise unavailable(error) from error
        except BaseException:
            await self._undo(link, key)
            raise
        finally:
            if has_lock:
                self.pool.hold(link, key, time.time_ns() // 1_000_000)
            else:
                self.pool.settle(link)
        return link if has_lock else None

    async def _undo(self, link: Link, key: LockKey) -> None:
        """Unlock what may have been granted after all; if that cannot be made sure, the connection ends."""
        is_done = not link.is_open
        try:
            if not is_done:
                await link.ask(_statement(b"pg_advisory_unlock", key, link), self._opener.answer_s)
                is_done = True
        except (LinkBroken, Rejected) as error:
            log.warning("lock %s: the connection was ended: %s", key.label, error)
        finally:
            if not is_done:
                link.close()

    async def _lock(self, link: Link, key: LockKey, holder: Holder, wait_until: float | None) -> bool:
        """Take the lock on that connection, or wait for it until then."""
        if holder.label != link.label:
            name = self._opener.application_name(holder.label).encode("ascii")
            await link.ask(Statement(INTRODUCE, parameters=(name,)), self._opener.answer_s)
            link.label = holder.label
        # Whoever waits already is served first: the server grants no attempt past them.
        ((has_lock,),) = await link.ask(_statement(b"pg_try_advisory_lock", key, link), self._opener.answer_s)
        if has_lock == b"t":
            return True
        if wait_until is None:
            return False
        self.tally.add(key, waits=1)
        left_ms = int((wait_until - time.monotonic()) * 1000)
        if left_ms <= 0:
            return False
        await link.ask(_waiting(key, link, left_ms), left_ms / 1000 + GRACE_S)
        return True


def _statement(function: bytes, key: LockKey, link: Link) -> Statement:
    if key.pair is None or link.held.keys() - {key}:
        return Statement(_text(function, key, link))
    first, second = key.pair
    return Statement(b"SELECT %b($1::int4, $2::int4)" % function, function, (b"%d" % first, b"%d" % second))


def _waiting(key: LockKey, link: Link, limit_ms: int) -> Statement:
    """Wait so long for the lock. Both statements travel together, and the limit is gone again if the wait fails."""
    return Statement(f"SET lock_timeout = {limit_ms}; ".encode("ascii") + _text(b"pg_advisory_lock", key, link))


def _text(function: bytes, key: LockKey, link: Link) -> bytes:
    """The statement with names in it: pg_stat_activity shows them to people, to whom numbers tell nothing."""
    numbers = b"%d, %d" % key.pair if key.pair is not None else b"%d" % key.number
    return b"SELECT %b(%b) %b" % (function, numbers, comment_on(key, link.held))


def _lost(key: LockKey) -> LockLost:
    return LockLost(f"Lock '{key.label}' is lost: the connection that held it is gone.", lock=key.label)


# --- The two shells -----------------------------------------------------------------------------------------------


class PostgresBackend:
    """Locks of one database, for threads."""

    def __init__(self, url: str, *, max_connections: int, keepalive_s: int) -> None:
        self._locks = PostgresLocks(url, max_connections=max_connections, keepalive_s=keepalive_s, is_task=False)

    def acquire(self, key: LockKey, timeout_s: float, holder: Holder, beside: AnyHold | None = None) -> PostgresHold:
        return at_once(self._locks.acquire(key, timeout_s, holder, self._own(beside)))

    def try_acquire(self, key: LockKey, holder: Holder, beside: AnyHold | None = None) -> PostgresHold | None:
        return at_once(self._locks.try_acquire(key, holder, self._own(beside)))

    def _own(self, hold: AnyHold | None) -> PostgresHold | None:
        return hold if isinstance(hold, PostgresHold) and hold.is_of(self._locks) else None

    def list(self) -> list[LockRow]:
        return at_once(self._locks.rows())

    def close(self) -> None:
        self._locks.pool.close()


class AsyncPostgresBackend:
    """Locks of one database, for the tasks of one event loop."""

    def __init__(self, url: str, *, max_connections: int, keepalive_s: int, marker: str = "") -> None:
        self._locks = PostgresLocks(
            url, max_connections=max_connections, keepalive_s=keepalive_s, is_task=True, marker=marker
        )

    async def acquire(self, key: LockKey, timeout_s: float, holder: Holder, beside: AnyHold | None = None) -> AsyncHold:
        return AsyncPostgresHold(await self._locks.acquire(key, timeout_s, holder, self._own(beside)))

    async def try_acquire(self, key: LockKey, holder: Holder, beside: AnyHold | None = None) -> AsyncHold | None:
        hold = await self._locks.try_acquire(key, holder, self._own(beside))
        return AsyncPostgresHold(hold) if hold else None

    def _own(self, hold: AnyHold | None) -> PostgresHold | None:
        return hold.hold if isinstance(hold, AsyncPostgresHold) and hold.hold.is_of(self._locks) else None

    async def list(self) -> list[LockRow]:
        return await self._locks.rows()

    async def expel(self, marker: str) -> int:
        return await self._locks.expel(marker)

    async def close(self) -> None:
        self._locks.pool.close()


# Those of this process, whose connections a fork must not think its own.
_backends: weakref.WeakSet[PostgresLocks] = weakref.WeakSet()


def _forget_in_child() -> None:
    for locks in tuple(_backends):
        locks.pool.forget()
        locks.tally.forget()


os.register_at_fork(after_in_child=_forget_in_child)
