"""What PostgreSQL and its driver say when something goes wrong, sorted by what is to be done about it.

Four kinds: the world is to blame, and the caller hears a `StoreUnavailable` that names the fix; the connection is lost
with it, and a new one may help; two transactions met, and one more attempt will settle it; all else is a bug of ours.
A message never contains the address as it was given: that may have a password in it.
"""

from __future__ import annotations

from typing import Final

import asyncpg  # type: ignore[import-untyped]

from ..errors import StoreUnavailable
from .base import IN_DOUBT

# When to come back, if nothing better is known: the pause after which the store itself tries again, at the longest.
RETRY_AFTER_MS: Final = 2_000

_AWAY: Final = ("unreachable", "Check that it runs and can be reached from here; work resumes by itself.")
_STARTING: Final = ("starting", "It is starting, stopping or recovering; work resumes by itself.")
_LOCKED: Final = ("locked", "Another session holds locks on its rows; end that session or wait for it.")
_IO_ERROR: Final = ("io_error", "Its disk reports an error; look at its log.")

# Causes that pass by themselves, by SQLSTATE or its class: the cause and the sentence that names the way out.
_PASSING: Final[dict[str, tuple[str, str]]] = {
    "08": _AWAY,
    "57P01": _STARTING,
    "57P02": _STARTING,
    "57P03": _STARTING,
    "57P05": _AWAY,
    "25P03": _AWAY,
    "57014": ("cancelled", "Somebody cancels its statements; look for a statement_timeout."),
    "53300": ("too_many_connections", "It has no connection left; raise its max_connections."),
    "53100": ("full", "Its disk is full; free some space and work resumes by itself."),
    "53": ("out_of_memory", "It is short of memory; free some and work resumes by itself."),
    "25006": ("read_only", "It takes no writes; name the primary in the address, or promote this one."),
    "55P03": _LOCKED,
    "58": _IO_ERROR,
}
# Causes that somebody has to mend, in the same way.
_LASTING: Final[dict[str, tuple[str, str]]] = {
    "28": ("password", "Correct the user and the password in the address of the store."),
    "3D000": ("missing_database", "Create that database, or name another in the address of the store."),
    "3F000": ("missing_schema", "Its schema is gone; restore it, or restart tabherd to begin anew."),
    "42P01": ("missing_schema", "Its tables are gone; restore them, or drop the schema and restart to begin anew."),
    "42501": ("permission", "Grant that user CREATE on the database, or ownership of the schema."),
    "XX001": ("corrupt", "Restore it from a backup."),
    "XX002": ("corrupt", "Restore it from a backup, or rebuild its indexes."),
}
# After these the connection is no longer there, or no longer of use: a standby stays one for as long as it is open.
_LOSSES: Final = ("08", "57P01", "57P02", "57P03", "57P05", "25P03", "25006")
# deadlock, serialization failure, unique violation, and a plan that a change of the schema made invalid.
_MEETINGS: Final = ("40P01", "40001", "23505", "0A000")


def is_loss(error: Exception) -> bool:
    """Whether the connection is gone with it, or no longer of use."""
    # The driver reports the use of a connection that has just been closed like any other wrong use of itself.
    is_closed = type(error) in (asyncpg.InterfaceError, asyncpg.InternalClientError)
    return is_closed or isinstance(error, OSError) or _state(error).startswith(_LOSSES)


def is_refusal(error: Exception) -> bool:
    """Whether the server has said that it did nothing, though the connection is of no more use."""
    return _state(error) == "25006"


def is_meeting(error: Exception) -> bool:
    """Whether another transaction was at the same rows, and nothing has happened."""
    return _state(error) in _MEETINGS


def is_of_the_world(error: Exception) -> bool:
    """Whether the server, the network or another program is to blame, and not a bug of ours."""
    return is_loss(error) or _explanation(error) is not None


def unavailable(name: str, error: Exception) -> StoreUnavailable:
    """What to tell the caller about an error that is of the world; `name` is the database, without any secret."""
    cause, fix = _explanation(error) or _AWAY
    is_passing = not any(cause == lasting for lasting, _ in _LASTING.values())
    said = str(error).strip().rstrip(".") or type(error).__name__
    return StoreUnavailable(
        f"The store {name} cannot be used: {said}. {fix}",
        cause=cause,
        database=name,
        retryable=is_passing,
        retry_after_ms=RETRY_AFTER_MS if is_passing else None,
    )


def copy_of(error: StoreUnavailable) -> StoreUnavailable:
    """One of its own for every caller: a shared one would collect everybody's traceback."""
    return StoreUnavailable(
        error.message,
        action=error.action,
        retry_after_ms=error.retry_after_ms,
        retryable=error.retryable,
        **error.details,
    )


def refusal(name: str, cause: str, sentence: str) -> StoreUnavailable:
    """What to tell the caller about a database that is there and not for us."""
    return StoreUnavailable(f"The store {name} {sentence}", cause=cause, database=name, retryable=False)


def in_doubt(name: str) -> StoreUnavailable:
    """What to tell the caller of a commit that nobody can be asked about."""
    return StoreUnavailable(
        f"The connection to the store {name} was lost during a commit, so it may have happened or not.",
        action="Read what stands before trying again.",
        cause=IN_DOUBT,
        database=name,
        retry_after_ms=RETRY_AFTER_MS,
    )


def contended(name: str) -> StoreUnavailable:
    """What to tell the caller of a transaction that others always came before."""
    return StoreUnavailable(
        f"The store {name} is so busy with the same rows that this had no turn; nothing has happened.",
        action="Retry after retryAfterMs.",
        cause="contended",
        database=name,
        retry_after_ms=RETRY_AFTER_MS,
    )


def _explanation(error: Exception) -> tuple[str, str] | None:
    state = _state(error)
    if not state:
        return None
    for causes in (_PASSING, _LASTING):
        if found := causes.get(state) or causes.get(state[:2]):
            return found
    return None


def _state(error: Exception) -> str:
    """The SQLSTATE; empty for what does not come from the server. The driver gives some of its own errors one."""
    return (error.sqlstate or "") if isinstance(error, asyncpg.PostgresError) else ""
