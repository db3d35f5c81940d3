"""Who holds and who waits for the advisory locks of a database, whether through us or not.

A connection of ours does nothing after its lock was granted until it releases it, so the moment of its last change of
state is the moment of the grant: the real time of holding. One that has several locks says in a comment of its last
statement since when it has the others, which also tells their names. Of other sessions only the lock is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from .base import Holder, LockKey, LockRow, key_of, lock_key_from_string
from .counting import Tally
from .link_opening import APPLICATION_PREFIX
from .links import Row, Statement

LIST: Final = Statement(
    b"""
    SELECT l.classid::int8, l.objid::int8, l.objsubid, l.granted, l.pid,
           coalesce(a.application_name, ''), coalesce(host(a.client_addr), ''), coalesce(a.query, ''),
           coalesce(floor(extract(epoch FROM a.state_change) * 1000)::int8, 0)
    FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'advisory'
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    ORDER BY a.state_change
    """
)
# What ends the connections of one life of a node.
EXPEL: Final = b"""
    SELECT count(*) FROM (
        SELECT pg_terminate_backend(pid) AS is_told FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND starts_with(application_name, $1)
    ) AS told WHERE is_told
    """
# Whose lock it is, as our connections say it.
OURS: Final = re.compile(re.escape(APPLICATION_PREFIX) + r"(?:\S+/\d+ )?(?P<pid>\d+)@(?P<host>\S+) ?(?P<label>.*)")
# The comment of a statement; the server may have cut its end off.
COMMENT: Final = re.compile(r"/\* ([^*]*)")
# How pg_locks tells a pair from a single number.
TWO_NUMBERS: Final = 2
BITS: Final = 32


class _Session(msgspec.Struct, frozen=True):
    """A session that holds a lock or waits for it."""

    key: LockKey
    is_granted: bool
    holder: Holder
    # None: it is not one of ours, which say nothing after the grant.
    acquired_at: int | None


def comment_on(key: LockKey, held: Mapping[LockKey, int]) -> bytes:
    """What a statement says about the lock it is for, and about those that its connection has since some time."""
    others = (f"{quote(other.label)}@{since}" for other, since in held.items() if other != key)
    # Quoted, a label contains neither an asterisk nor a space nor an @.
    return f"/* {' '.join((quote(key.label), *others))} */".encode("ascii")


def rows_of(listed: Sequence[Row], tally: Tally) -> list[LockRow]:
    """One row for each lock; `tally` has what this process counted."""
    sessions: dict[tuple[tuple[int, int] | None, int], list[_Session]] = {}
    for row in listed:
        session = _session(row)
        sessions.setdefault((session.key.pair, session.key.number), []).append(session)
    return [_row(those, tally) for those in sessions.values()]


def _row(sessions: list[_Session], tally: Tally) -> LockRow:
    holding = next((session for session in sessions if session.is_granted), None)
    # Any of them may know the name; a number is what nobody knows better.
    key = min((session.key for session in sessions), key=lambda key: key.label.startswith("#"))
    return LockRow(
        label=key.label,
        pair=key.pair,
        holder=holding.holder if holding else None,
        acquired_at=holding.acquired_at if holding else None,
        waiters=tuple(session.holder for session in sessions if not session.is_granted),
        counts=tally.of(key),
    )


def _session(row: Row) -> _Session:
    high, low, parts, granted, pid, application, address, query, since = ((value or b"").decode() for value in row)
    if ours := OURS.fullmatch(application):
        holder = Holder(int(ours["pid"]), ours["host"], ours["label"])
    else:
        holder = Holder(int(pid), address, application)
    key = _key(int(high), int(low), int(parts))
    acquired_at = int(since) if ours and granted == "t" else None
    if ours and (comment := COMMENT.search(query)):
        for word in comment[1].split():
            quoted, _, told_since = word.partition("@")
            label = unquote(quoted)
            # It is only a comment: believed if it is about this lock.
            if label == key.label or (key.pair is None and lock_key_from_string(label) == key.number):
                key = LockKey(label, key.pair, key.number)
                acquired_at = int(told_since) if told_since else acquired_at
    return _Session(key, granted == "t", holder, acquired_at)


def _key(high: int, low: int, parts: int) -> LockKey:
    if parts == TWO_NUMBERS:
        return key_of(_signed(high, BITS), _signed(low, BITS))
    number = _signed(high << BITS | low, 2 * BITS)
    return LockKey(label=f"#{number}", pair=None, number=number)


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >= 1 << (bits - 1) else value
