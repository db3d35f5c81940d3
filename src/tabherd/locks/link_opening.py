"""Opening a connection for locks: settings that let both ends notice a dead peer, and no pooler in between.

- Both sides probe a silent peer and give it up after twice `keepalive_s`, so that the lock of a machine that vanished
  is free again by then. No limit of the database on statements or idle sessions ends a lock that is held.
- A pooler that serves many clients with one session (PgBouncer in transaction mode) would let several of them hold
  "the same session's" lock at once: it is refused. One that gives each client a session of its own is fine.
"""

from __future__ import annotations

import math
import os
import traceback
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ..errors import InvalidRequest
from .base import LockStoreUnavailable, host_name
from .links import Link, LinkBroken, Rejected, Statement, TaskLink, ThreadLink, forks

# How long the opening of a connection may take at the most, however long its caller would wait.
OPEN_MAX_S: Final = 10.0
# libpq takes less for this.
OPEN_MIN_S: Final = 2
# Times that we begin anew because the program forked meanwhile.
FORKED_MAX: Final = 5
# What PostgreSQL keeps of a name.
APPLICATION_NAME_MAX: Final = 63
# Who we are, in pg_stat_activity: `tabherd 4711@host label`, or `tabherd nod_x/7 4711@host label`.
APPLICATION_PREFIX: Final = "tabherd "

WHO: Final = Statement(b"SELECT pg_backend_pid()")


class Opener:
    """How connections to one database are opened."""

    def __init__(self, url: str, keepalive_s: int, marker: str = "") -> None:
        try:
            conninfo_to_dict(url)
        except psycopg.Error:
            # What libpq says about it repeats the address, with the password in it.
            raise InvalidRequest("That is not an address of a PostgreSQL database.", field="url") from None
        self._url = url
        self._keepalive_s = keepalive_s
        # Whose life the locks are bound to, for whoever has to end it; empty: nobody's but this process'.
        self._marker = marker
        # How long an answer may take that needs no waiting on the server.
        self.answer_s: Final = 2.0 * keepalive_s

    async def open_for_thread(self, limit_s: float) -> Link:
        return await self._checked(limit_s, is_task=False)

    async def open_for_task(self, limit_s: float) -> Link:
        return await self._checked(limit_s, is_task=True)

    async def _checked(self, limit_s: float, *, is_task: bool) -> Link:
        for _ in range(FORKED_MAX):
            before = forks()
            link = await self._open(limit_s, is_task=is_task)
            if forks() != before:
                # The child has a copy of the socket, of which nobody there knows.
                link.close()
                continue
            try:
                await self._set_up(link)
                if await _pid_of(link, self.answer_s) != link.told_pid:
                    await self._refuse_shared_session(link, limit_s, is_task=is_task)
            except (LinkBroken, Rejected) as error:
                link.close()
                raise unavailable(error) from error
            except BaseException:
                link.close()
                raise
            return link
        raise unavailable(LinkBroken("the program forks while every connection is being opened"))

    async def _open(self, limit_s: float, *, is_task: bool) -> Link:
        address = self._address(limit_s)
        try:
            if is_task:
                return TaskLink(await psycopg.AsyncConnection.connect(address, autocommit=True))
            return ThreadLink(psycopg.connect(address, autocommit=True))
        except psycopg.Error as error:
            raise unavailable(error) from error
        except BaseException as error:
            # Interrupted half-way, the driver leaves the connection to whatever keeps the exception alive: its frames
            # have it. Cleared, it is closed now and not some time.
            traceback.clear_frames(error.__traceback__)
            raise

    def _address(self, limit_s: float) -> str:
        return make_conninfo(
            self._url,
            application_name=self.application_name(""),
            connect_timeout=max(OPEN_MIN_S, math.ceil(min(limit_s, OPEN_MAX_S))),
            keepalives=1,
            keepalives_idle=self._keepalive_s,
            keepalives_interval=self._probe_s,
            keepalives_count=3,
            tcp_user_timeout=2000 * self._keepalive_s,
        )

    def application_name(self, label: str) -> str:
        """What pg_stat_activity says about this process and whom it works for."""
        marker = f"{self._marker} " if self._marker else ""
        name = f"{APPLICATION_PREFIX}{marker}{os.getpid()}@{host_name()} {label}".rstrip()
        return name.encode("ascii", "replace")[:APPLICATION_NAME_MAX].decode("ascii")

    @property
    def _probe_s(self) -> int:
        return max(1, self._keepalive_s // 3)

    async def _set_up(self, link: Link) -> None:
        wanted = {
            "statement_timeout": "0",
            "transaction_timeout": "0",
            "idle_session_timeout": "0",
            "tcp_keepalives_idle": str(self._keepalive_s),
            "tcp_keepalives_interval": str(self._probe_s),
            "tcp_keepalives_count": "3",
            "tcp_user_timeout": str(2000 * self._keepalive_s),
        }
        await link.ask(_settings(wanted), self.answer_s)
        try:
            await link.ask(_settings({"client_connection_check_interval": "1000"}), self.answer_s)
        except Rejected:
            # Not on every platform; without it, a waiting session whose client is gone is noticed when it is granted.
            return

    async def _refuse_shared_session(self, link: Link, limit_s: float, *, is_task: bool) -> None:
        """There is a pooler: refuse it if another client is given the session that this one has."""
        other = await self._open(limit_s, is_task=is_task)
        try:
            first = await _pid_of(link, self.answer_s)
            sessions = {await _pid_of(other, self.answer_s), await _pid_of(other, self.answer_s)}
            again = await _pid_of(link, self.answer_s)
        finally:
            other.close()
        if first != again or first in sessions or len(sessions) > 1:
            raise LockStoreUnavailable(
                "The address leads to a pooler that lends sessions by the transaction, on which a lock of a session "
                "holds nothing.",
                action="Use the address of the database itself, or a pooler in session mode.",
                reason="transaction pooling",
                retryable=False,
            )


def unavailable(error: Exception) -> LockStoreUnavailable:
    """The error for those who asked for a lock."""
    reason = str(error).strip()
    return LockStoreUnavailable(f"The database of the locks cannot be used: {reason}.", reason=reason)


def _settings(wanted: dict[str, str]) -> Statement:
    """Set those of them that this version of the server has."""
    names = ", ".join(f"('{name}', '{value}')" for name, value in wanted.items())
    return Statement(
        f"SELECT set_config(name, value, false) FROM (VALUES {names}) AS wanted (name, value) "
        "WHERE current_setting(name, true) IS NOT NULL".encode()
    )


async def _pid_of(link: Link, limit_s: float) -> int:
    """The server's process that answers on this connection, just now."""
    ((pid,),) = await link.ask(WHO, limit_s)
    assert pid is not None
    return int(pid)
