"""What a lock is, whichever backend keeps it: its key, who holds it, what a backend can do.

- A pair of integers is PostgreSQL's two-argument form; anything with a string in it is a *name*, hashed to 64 bits for
  the one-argument form. The two never meet. A name is the same lock everywhere: `advisory_lock("account", "x")`,
  `advisory_lock("account:x")` and `/locks/account:x` over HTTP exclude each other.
- Backends know nothing of threads that nest: re-entrancy is found out above them, in `advisory`.
- Every error here is an `AdvisoryLockError`; a key, timeout or address that cannot be is `InvalidRequest`.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import Final, Protocol, TypeAlias

import msgspec

from ..errors import AdvisoryLockError, InvalidRequest, StoreUnavailable

# PostgreSQL's two-argument form takes two of these.
INT4_MIN: Final = -(2**31)
INT4_MAX: Final = 2**31 - 1
# Longest name of a lock, in characters.
NAME_MAX: Final = 200
# Longest time that somebody may be willing to wait: `lock_timeout` has 31 bits of milliseconds.
TIMEOUT_MAX_S: Final = 7 * 24 * 3600.0
# What the file backend calls a lock that has two numbers; see `LockKey.file_name`.
_PAIR: Final = re.compile(r"pair_(-?\d+)_(-?\d+)")
# Longest description of a holder that is kept.
LABEL_MAX: Final = 200


class LockNamespace(IntEnum):
    """First halves of integer keys that have a meaning; yours begin above them."""

    AGENT = 1
    CONFIG = 2


class LockStoreUnavailable(StoreUnavailable, AdvisoryLockError):
    """`store_unavailable` for a lock: its database or directory cannot be used. Never a synonym for busy."""


# --- Keys ---------------------------------------------------------------------------------------------------------


class LockKey(msgspec.Struct, frozen=True):
    """One lock. Made by `key_of` and `named_key` only, so that equal locks have equal keys."""

    # For people: `1:42`, or the name.
    label: str
    # The two integers of PostgreSQL's two-argument form; None for a name.
    pair: tuple[int, int] | None
    # The 64 bits of the one-argument form; 0 for a pair.
    number: int

    @property
    def file_name(self) -> str:
        """What the file backend calls it: a name of letters, digits and dashes, whatever the label contains."""
        if self.pair is not None:
            return f"pair_{self.pair[0]}_{self.pair[1]}"
        return f"name_{self.number & (2**64 - 1):016x}"


def pair_of(file_name: str) -> tuple[int, int] | None:
    """The two numbers of the lock whose file is called that; None for a name's."""
    found = _PAIR.fullmatch(file_name)
    return (int(found[1]), int(found[2])) if found else None


def key_of(namespace: int | str, key: int | str | None = None) -> LockKey:
    """The lock of a namespace and a key in it, or of a name alone. `InvalidRequest` for what cannot be one."""
    if isinstance(namespace, str):
        return named_key(namespace if key is None else f"{namespace}:{key}")
    _refuse_odd_type("namespace", namespace)
    if key is None:
        raise InvalidRequest("A namespace that is a number needs a key.", field="key")
    if isinstance(key, str):
        return named_key(f"{int(namespace)}:{key}")
    _refuse_odd_type("key", key)
    for field, value in (("namespace", namespace), ("key", key)):
        if not INT4_MIN <= value <= INT4_MAX:
            raise InvalidRequest(
                f"{field} {value} does not fit into 32 bits, and PostgreSQL takes no longer pair.",
                action=f"Use a string, such as advisory_lock({str(int(namespace))!r}, {key}).",
                field=field,
            )
    # Whatever subclass of int they are, equal keys must look equal.
    pair = (int(namespace), int(key))
    return LockKey(label=f"{pair[0]}:{pair[1]}", pair=pair, number=0)


def named_key(name: str) -> LockKey:
    """The lock of that name, as `/locks/{name}` has it."""
    if not 0 < len(name) <= NAME_MAX or not name.isprintable():
        raise InvalidRequest(f"A lock's name has 1 to {NAME_MAX} printable characters.", field="name")
    return LockKey(label=name, pair=None, number=lock_key_from_string(name))


def lock_key_from_string(name: str) -> int:
    """A name as the signed 64-bit number of `pg_advisory_lock(bigint)`: BLAKE2b, the same on every machine.

    For SQL of your own that takes the lock of that name. It does not fit into the integer pair of `advisory_lock`:
    give that the string itself.
    """
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _refuse_odd_type(field: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidRequest(f"{field} must be an integer or a string, not {type(value).__name__}.", field=field)


def checked_timeout_s(timeout_s: float) -> float:
    """That timeout, if it is one: not negative, not endless."""
    # Also refuses what is no number at all (NaN).
    if not 0 <= timeout_s <= TIMEOUT_MAX_S:
        raise InvalidRequest(f"timeout must be 0 to {TIMEOUT_MAX_S:.0f} seconds, not {timeout_s}.", field="timeout")
    return timeout_s


# --- Holders ------------------------------------------------------------------------------------------------------


class Holder(msgspec.Struct, frozen=True):
    """Who holds a lock or waits for it, as monitoring shows it; no right follows from it."""

    pid: int
    host: str
    # Free text: "agent ada via HTTP".
    label: str = ""


@cache
def host_name() -> str:
    """This machine's name."""
    return socket.gethostname()


def this_process(label: str = "") -> Holder:
    """The caller's process as a holder."""
    return Holder(os.getpid(), host_name(), label[:LABEL_MAX])


def marker_of(node_id: str, epoch: int) -> str:
    """How connections that hold locks for a node say which of its lives they belong to."""
    return f"{node_id}/{epoch}"


class Counts(msgspec.Struct, frozen=True):
    """How contended a lock is."""

    # Acquisitions that found it held and waited.
    waits: int = 0
    # Those of them that gave up.
    timeouts: int = 0
    # Attempts that found it held and skipped.
    skips: int = 0
    # The same since such an attempt last succeeded: background work that never gets its turn.
    consecutive_skips: int = 0


class LockRow(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that is held or waited for."""

    # The name or `1:42`; a name that nobody here has used and whose holder does not tell it is `#` and its number.
    label: str
    # The two numbers of a lock that has them; None for a name, which may look the same.
    pair: tuple[int, int] | None = None
    # None: nobody holds it just now.
    holder: Holder | None
    # When it was granted, in milliseconds since 1970; None where nobody holds it, or nobody knows.
    acquired_at: int | None
    # Who waits, in no promised order. Of another process on files one is known, however many of its threads wait.
    waiters: tuple[Holder, ...] = ()
    counts: Counts = Counts()


# --- Backends -----------------------------------------------------------------------------------------------------


class Hold(Protocol):
    """A lock that is held. `release` may be called from any thread."""

    @property
    def key(self) -> LockKey: ...

    # In milliseconds since 1970.
    @property
    def acquired_at(self) -> int: ...

    # How often anybody ever acquired this lock, this time included: nobody else had it between two holds whose
    # numbers follow each other. None where the backend does not count.
    @property
    def generation(self) -> int | None: ...

    def check(self) -> None:
        """Return if it is still held, as far as this machine knows, else raise `LockLost`. Costs a system call."""

    def release(self) -> None:
        """Give it back; a second time does nothing. `LockLost` if it had been lost before."""


class AsyncHold(Protocol):
    """A lock that is held; for the event loop in which it was acquired."""

    @property
    def key(self) -> LockKey: ...

    @property
    def acquired_at(self) -> int: ...

    @property
    def generation(self) -> int | None: ...

    def check(self) -> None:
        """Return if it is still held, as far as this machine knows, else raise `LockLost`. Costs a system call."""

    def on_lost(self, told: Callable[[], None]) -> None:
        """Have this called in the loop, once, if the lock is lost before it is released."""

    async def release(self) -> None:
        """Give it back; a second time does nothing. `LockLost` if it had been lost before."""


AnyHold: TypeAlias = Hold | AsyncHold


class Backend(Protocol):
    """Where locks are kept. Used from any number of threads."""

    def acquire(self, key: LockKey, timeout_s: float, holder: Holder, beside: AnyHold | None = None) -> Hold:
        """Wait for the lock: `LockTimedOut`, `LockDeadlock`, or `StoreUnavailable`.

        `beside`: a lock of this backend that the same caller has in hand. Saying so lets a database see who waits for
        whom, and saves a connection. Which it will have released first makes no difference.
        """

    def try_acquire(self, key: LockKey, holder: Holder, beside: AnyHold | None = None) -> Hold | None:
        """The lock, or None if it is busy, and only then."""

    def list(self) -> list[LockRow]:
        """Locks that are held or waited for."""

    def close(self) -> None:
        """End what is idle. What is held stays held until it is released."""


class AsyncBackend(Protocol):
    """Where locks are kept. Used from one event loop."""

    async def acquire(self, key: LockKey, timeout_s: float, holder: Holder, beside: AnyHold | None = None) -> AsyncHold:
        """Wait for the lock: `LockTimedOut`, `LockDeadlock`, or `StoreUnavailable`. Cancelled, it leaves nothing.

        `beside` is as in `Backend`. What is held for different callers is not beside each other.
        """

    async def try_acquire(self, key: LockKey, holder: Holder, beside: AnyHold | None = None) -> AsyncHold | None:
        """The lock, or None if it is busy, and only then."""

    async def list(self) -> list[LockRow]:
        """Locks that are held or waited for."""

    async def expel(self, marker: str) -> int:
        """End the connections that another program marked so, with all they hold; how many. It cannot itself.

        Nothing to do where locks end with their process by themselves.
        """

    async def close(self) -> None:
        """End what is idle. What is held stays held until it is released."""
