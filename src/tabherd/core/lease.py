"""Leases as decisions: when one ends, and whether a fence is still the right one.

A session is a lease. `verdict` says whether to keep or reap it, from the row and the evidence of life that the broker
has; it reads no clock and asks nobody. The table `EXPIRY_RULES` is the whole policy: the first row that applies to a
session is its rule, so exactly one does, and the docs are generated from it. What it keeps:

- Age alone never ends a lease: only silence, a proven death, or the deadline does.
- The deadline is set once, when the lease is granted; every other limit is derived from it, and nothing moves it. A
  tier that changes afterwards is for new leases.
- A stale heartbeat is not enough while there is any other evidence of life; a stopped (SIGSTOP) owner reads alive.
- 120 s after its deadline a lease ends, whatever else is true.

Evidence is only what is known now. Whoever ends a piece of work or a handoff renews the heartbeat, so that the
silence is counted from then and not from before.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from ..errors import InvalidRequest, LeaseLost
from .lifecycle import LeaseState
from .model import Session

# A recovering lease keeps its owner: its commands wait at the gate instead of being refused.
HELD_STATES: Final = frozenset({LeaseState.ACTIVE, LeaseState.RECOVERING})

# --- Deadlines --------------------------------------------------------------------------------------------------

# A tab lock may outlive the deadline this long: its holder ends with the lease anyway, and a lock that ended first
# would let another controller in between a command and its outcome.
LOCK_SLACK_MS: Final = 60_000
# The owner is warned when this much of the lease's life is over.
EXPIRING_PERCENT: Final = 80


def deadline_at(tiers: Mapping[str, int], tier: str, deadline_ms: int | None, now: int) -> int:
    """When a lease granted now ends: `deadline_ms` from now if given, else the tier's seconds from now."""
    if tier not in tiers:
        close = difflib.get_close_matches(tier, tiers, n=1, cutoff=0.5)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise InvalidRequest(
            f"There is no tier '{tier}'.{hint}",
            action=f"Use one of: {', '.join(sorted(tiers))}.",
            field="tier",
            nearest=close[0] if close else None,
        )
    return now + (tiers[tier] * 1_000 if deadline_ms is None else deadline_ms)


def command_deadline_at(session: Session, timeout_ms: int, now: int) -> int:
    """When a command that comes now must be over: after its own time, and never past the session's deadline.

    Once that has passed the answer lies in the past, too: such a command is never granted.
    """
    return min(now + timeout_ms, session.deadline_at)


def lock_lease_ms(session: Session, asked_ms: int, now: int) -> int:
    """How long a tab lock taken or renewed now may last: what is left of the deadline plus 60 s, at the most.

    Counted from the deadline and not from now, so that renewing again and again never gets past it.
    """
    return max(0, min(asked_ms, session.deadline_at + LOCK_SLACK_MS - now))


def expiring_at(session: Session) -> int:
    """When to tell the owner that the lease will soon be over."""
    return session.created_at + (session.deadline_at - session.created_at) * EXPIRING_PERCENT // 100


# --- Expiry -----------------------------------------------------------------------------------------------------


class OwnerProcess(StrEnum):
    """What is known about the process that the owner named."""

    NONE = "none"  # none was named, or this host cannot tell
    ALIVE = "alive"  # it exists with its start time; stopped counts as alive
    DEAD = "dead"  # proven gone: pidfd, or pid and start time no longer match


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Signs of life of a session's owner, besides the heartbeat in its row."""

    # Open CDP or control sockets on the session.
    open_connections: int = 0
    # When the last of them closed; None if it never had one.
    last_connection_closed_at: int | None = None
    owner: OwnerProcess = OwnerProcess.NONE
    # When the owner's death was proven; only read when it is dead.
    owner_died_at: int = 0
    # Whether a beat or a command of the owner's, not a read, has come since. Told apart by their order: both may be of
    # one millisecond.
    is_owner_followed: bool = False
    # A queued or running command or task, or a tab lock.
    has_work: bool = False
    # When the last of these ended. Silence counts from then; but that the work of a dead owner ends is no sign of it.
    worked_at: int = 0
    # A person has one of its tabs.
    in_handoff: bool = False


class LeaseTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long each kind of silence may last."""

    # How often an owner is asked to beat.
    heartbeat_ms: int = 60_000
    # A heartbeat older than this is stale: three were missed.
    stale_after_ms: int = 180_000
    # A bare HTTP session may be quiet this long between commands and reads: a model thinks that long.
    idle_ttl_ms: int = 180_000
    # A connection-bound session outlives its last socket this long, for a reconnect.
    disconnect_grace_ms: int = 10_000
    # A proven death may still be followed by a beat or command of a successor within this time.
    owner_dead_grace_ms: int = 2_000
    # Past its deadline a lease is no longer good, but what it has is taken away only after this.
    deadline_grace_ms: int = 120_000
    # A tab that was given back into the pool is closed after so long without a taker.
    pooled_ttl_ms: int = 1_800_000


class ExpiryRule(StrEnum):
    """Which rule a lease lives under; `EXPIRY_RULES` says who has which."""

    HANDOFF = "handoff"
    KEEP_ALIVE = "keep_alive"
    NAMED_PROCESS = "named_process"
    BEATING = "beating"
    CONNECTION_BOUND = "connection_bound"
    BARE_HTTP = "bare_http"
    # Everybody's second rule; never the only one.
    DEADLINE = "deadline"


class ReapReason(StrEnum):
    """Why a lease is reaped, as metrics and the session's end reason say it."""

    DEADLINE = "deadline"
    OWNER_DEAD = "owner_dead"
    STALE = "stale"
    DISCONNECTED = "disconnected"
    IDLE = "idle"


class Due(msgspec.Struct, frozen=True):
    """From this moment on the lease is to be reaped, unless new evidence comes first."""

    at: int
    reason: ReapReason


class RuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the policy: who it is for, in words and as a test, and when such a lease ends."""

    rule: ExpiryRule
    # For the docs: the kind of holder, and what ends its lease besides release and deadline.
    holder: str
    ends: str
    applies: Callable[[Session, Evidence], bool]
    # None: not by this rule, as things stand.
    due: Callable[[Session, Evidence, LeaseTimes], Due | None]


def _never(session: Session, evidence: Evidence, times: LeaseTimes) -> Due | None:
    return None


def _after_silence(session: Session, evidence: Evidence, times: LeaseTimes) -> Due | None:
    if evidence.open_connections or evidence.has_work or evidence.owner is OwnerProcess.ALIVE:
        return None
    # A connection that has closed was evidence until it did. "Older than": at exactly 180 s it is not yet stale.
    closed_at = evidence.last_connection_closed_at or 0
    last_sign_at = max(session.heartbeat_at, session.created_at, evidence.worked_at, closed_at)
    return Due(last_sign_at + times.stale_after_ms + 1, ReapReason.STALE)


def _after_death(session: Session, evidence: Evidence, times: LeaseTimes) -> Due | None:
    if evidence.owner is OwnerProcess.DEAD and not evidence.is_owner_followed:
        return Due(evidence.owner_died_at + times.owner_dead_grace_ms, ReapReason.OWNER_DEAD)
    return _after_silence(session, evidence, times)


def _after_disconnect(session: Session, evidence: Evidence, times: LeaseTimes) -> Due | None:
    if evidence.open_connections or evidence.has_work:
        return None
    closed_at = evidence.last_connection_closed_at
    if closed_at is None:
        # The row remembers a socket that this life of the node has never seen: it closed after the last sign of life.
        closed_at = max(session.heartbeat_at, session.created_at, evidence.worked_at)
    return Due(closed_at + times.disconnect_grace_ms, ReapReason.DISCONNECTED)


def _after_idling(session: Session, evidence: Evidence, times: LeaseTimes) -> Due | None:
    if evidence.has_work:
        return None
    last_sign_at = max(session.heartbeat_at, session.created_at, evidence.worked_at)
    return Due(last_sign_at + times.idle_ttl_ms, ReapReason.IDLE)


# Order decides: a heartbeat or a named process says more about the owner than a socket that closed, because a client
# that beats may well open and close CDP sockets on the way.
EXPIRY_RULES: Final[tuple[RuleRow, ...]] = (
    RuleRow(
        rule=ExpiryRule.HANDOFF,
        holder="A person has one of its tabs.",
        ends="Nothing, until it is given back.",
        applies=lambda session, evidence: evidence.in_handoff,
        due=_never,
    ),
    RuleRow(
        rule=ExpiryRule.KEEP_ALIVE,
        holder="Opened with keepAlive.",
        ends="Nothing.",
        applies=lambda session, evidence: session.keep_alive,
        due=_never,
    ),
    RuleRow(
        rule=ExpiryRule.NAMED_PROCESS,
        holder="The owner named its process.",
        ends=(
            "The process is proven dead and no beat or command follows within 2 s (the pool's owner_dead_grace_ms); "
            "else as for a beating owner."
        ),
        applies=lambda session, evidence: session.owner_pid != 0,
        due=_after_death,
    ),
    RuleRow(
        rule=ExpiryRule.BEATING,
        holder="The owner has ever sent a heartbeat.",
        ends=(
            "The last heartbeat is older than 180 s (the pool's stale_after_s), and there is no connection, work or "
            "live owner process."
        ),
        applies=lambda session, evidence: session.is_beating,
        due=_after_silence,
    ),
    RuleRow(
        rule=ExpiryRule.CONNECTION_BOUND,
        holder="It has, or had, a CDP or control socket.",
        ends="10 s (the pool's disconnect_grace_s) after its last socket closed, once no work is left.",
        applies=lambda session, evidence: (
            session.is_connection_bound
            or evidence.open_connections > 0
            or evidence.last_connection_closed_at is not None
        ),
        due=_after_disconnect,
    ),
    RuleRow(
        rule=ExpiryRule.BARE_HTTP,
        holder="None of these: plain HTTP calls.",
        ends="180 s (the pool's idle_ttl_s) without a command or read, and no work.",
        applies=lambda session, evidence: True,
        due=_after_idling,
    ),
)


class Keep(msgspec.Struct, frozen=True):
    """It lives. Without new evidence that stays true until `check_at`."""

    check_at: int


class Reap(msgspec.Struct, frozen=True):
    """It is to be ended, by which rule and why."""

    reason: ReapReason
    rule: ExpiryRule


Verdict: TypeAlias = Keep | Reap


def rule_of(session: Session, evidence: Evidence) -> ExpiryRule:
    """The one rule, besides the deadline, under which this lease lives."""
    return _row_of(session, evidence).rule


def verdict(session: Session, evidence: Evidence, now: int, times: LeaseTimes) -> Verdict:
    """Keep or reap an owned lease. `Keep.check_at` is the earliest time at which this answer could change by itself."""
    assert session.state in HELD_STATES, f"{session.id} is {session.state}: only an owned lease can be reaped"
    row = _row_of(session, evidence)
    last = Due(session.deadline_at + times.deadline_grace_ms, ReapReason.DEADLINE)
    first = row.due(session, evidence, times) or last
    if last.at <= first.at:
        first = last
    if now < first.at:
        return Keep(first.at)
    return Reap(first.reason, ExpiryRule.DEADLINE if first is last else row.rule)


def _row_of(session: Session, evidence: Evidence) -> RuleRow:
    return next(row for row in EXPIRY_RULES if row.applies(session, evidence))


# --- Fence ------------------------------------------------------------------------------------------------------


def check_fence(session: Session, fence: int | None, now: int | None = None) -> None:
    """Raise `LeaseLost` unless the lease is held under this fence (None: the caller's credential stands in for it).

    With `now`, a lease past its deadline is refused too, although it is reaped only later.
    """
    if session.state not in HELD_STATES:
        raise LeaseLost(
            "The session has ended.", sessionId=session.id, state=str(session.state), endReason=session.end_reason
        )
    if fence is not None and fence != session.fence:
        raise LeaseLost("The session has changed hands.", sessionId=session.id, fence=fence, state=str(session.state))
    if now is not None and now >= session.deadline_at:
        raise LeaseLost("The session's deadline has passed.", sessionId=session.id, expiresAt=session.deadline_at)
