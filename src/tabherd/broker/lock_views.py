"""Named locks as callers see them: to each the names and times, to its own agent and to admins also who holds what.

Whoever asks for a lock and finds it held is told the holder all the same: it cannot ask anybody to hurry otherwise.
"""

from __future__ import annotations

from .. import wire
from ..core.model import NamedLock
from ..locks.base import Counts, LockRow
from .caller import Caller
from .lock_holds import LiveLock, holder_of
from .views import rfc3339

# What is known of a holder that is no caller of this server.
OUTSIDE = "a program outside this server"


def granted_view(live: LiveLock, ticket: str) -> wire.LockView:
    """For its holder."""
    row = live.row
    return wire.LockView(
        name=row.id,
        holder=holder_of(row),
        agent_id=row.agent_id,
        fence=row.fence,
        ticket=ticket,
        lease_ms=row.lease_ms or None,
        acquired_at=rfc3339(row.acquired_at),
        expires_at=moment(row.expires_at),
    )


def skipped_view(name: str, row: NamedLock | None, expires_at: int) -> wire.LockView:
    """For somebody who found it held."""
    if row is None:
        return wire.LockView(name=name, acquired=False, holder=OUTSIDE)
    return wire.LockView(
        name=name,
        acquired=False,
        holder=holder_of(row),
        agent_id=row.agent_id,
        acquired_at=rfc3339(row.acquired_at),
        expires_at=moment(expires_at),
    )


def listed_view(caller: Caller, name: str, held: tuple[NamedLock, int] | None, waiters: int) -> wire.HeldLock:
    """For somebody who looks: of what is held, the row, and when it is over."""
    if held is None:
        return wire.HeldLock(name=name, held=False, waiters=waiters)
    row, expires_at = held
    is_visible = caller.may_see(row.agent_id)
    return wire.HeldLock(
        name=name,
        held=True,
        holder=holder_of(row) if is_visible else None,
        agent_id=row.agent_id if is_visible else None,
        fence=row.fence if is_visible else None,
        acquired_at=rfc3339(row.acquired_at),
        expires_at=moment(expires_at),
        waiters=waiters,
    )


def advisory_view(
    caller: Caller, row: LockRow, ours: NamedLock | None, waiters: int, counts: Counts, now: int
) -> wire.AdvisoryLock:
    """What the backend says, and what servers know better: whose caller has it, and how many wait."""
    acquired_at = row.acquired_at if ours is None else ours.acquired_at
    is_visible = caller.is_admin or (ours is not None and caller.may_see(ours.agent_id))
    holder = holder_of(ours) if ours is not None else row.holder.label or "" if row.holder is not None else ""
    return wire.AdvisoryLock(
        label=row.label,
        namespace=None if row.pair is None else row.pair[0],
        key=None if row.pair is None else row.pair[1],
        held=row.holder is not None,
        holder=(holder or None) if is_visible else None,
        pid=row.holder.pid if row.holder is not None and caller.is_admin else None,
        host=row.holder.host if row.holder is not None and caller.is_admin else None,
        acquired_at=None if acquired_at is None else rfc3339(acquired_at),
        held_ms=None if acquired_at is None else max(0, now - acquired_at),
        waiters=waiters,
        timeouts=row.counts.timeouts + counts.timeouts,
        skips=row.counts.skips + counts.skips,
        consecutive_skips=row.counts.consecutive_skips + counts.consecutive_skips,
    )


def moment(at_ms: int) -> str | None:
    """The time, if there is one."""
    return rfc3339(at_ms) if at_ms else None
