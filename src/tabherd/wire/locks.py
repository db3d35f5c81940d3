"""Named locks: how they are asked for, renewed and given back, over HTTP and over `/ws`, and how they are listed."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from .base import DEADLINE_MAX_MS, Agent, Answer, Identifier, Request
from .sessions import Owner

LOCK_NAME_MAX = 200
LOCK_WAIT_MAX_MS = 3_600_000

LeaseMs = Annotated[int, Meta(ge=100, le=DEADLINE_MAX_MS)]
WaitMs = Annotated[int, Meta(ge=0, le=LOCK_WAIT_MAX_MS)]
# Chosen by the caller: long enough that nobody guesses it.
OwnTicket = Annotated[str, Meta(min_length=20, max_length=100)]


class AcquireLock(Request, frozen=True, kw_only=True):
    """Asks for a named lock: POST /locks/{name}."""

    # How long to wait in line for it; 0: not at all.
    wait_ms: WaitMs = 0
    # How long it is held unless it is renewed; [locks] lease_ms when absent.
    lease_ms: LeaseMs | None = None
    # A process on the server's machine whose death frees the lock, in addition to the lease.
    owner: Owner | None = None
    # Under which name it is held. The same one asking again for a name that it has or waits for hears lock_reentered,
    # and two that wait for each other hear lock_deadlock. Absent: nobody in particular, who is told from nobody.
    controller_id: Identifier | None = None
    # For whom; an admin may name anybody, an agent only itself.
    agent_id: Agent | None = None
    # One that is busy is no error: the answer is {acquired: false}, at once. Not together with waitMs.
    skip: bool = False
    # A secret of the caller's own instead of one that the server makes. The same one again, for a lock that it holds,
    # is answered with that lock: so an acquisition whose answer was lost can be repeated.
    ticket: OwnTicket | None = None


class RenewLock(Request, frozen=True, kw_only=True):
    """Starts the lease of a lock anew: POST /locks/{name}/renew."""

    # What the lock was answered with.
    ticket: Identifier
    # How long it is held from now on; as before when absent.
    lease_ms: LeaseMs | None = None


class LockView(Answer, frozen=True, kw_only=True):
    """The answer to who asked for a lock."""

    name: str
    # False only where the request said skip, and somebody else has it: then only name, holder, acquiredAt and expiresAt
    # are there, of whoever has it, as far as they are known.
    acquired: bool = True
    # Who has it: the agent, and after a slash the controllerId that it gave.
    holder: str | None
    # The agent that has it.
    agent_id: str | None = None
    # Larger than that of every holder before, also through restarts: show it to what the lock protects.
    fence: int | None = None
    # The secret that renews and releases it.
    ticket: str | None = None
    # Absent: it has no lease, and is held until its connection ends.
    lease_ms: int | None = None
    # RFC 3339.
    acquired_at: str | None = None
    # When it is free again unless it is renewed; absent without a lease.
    expires_at: str | None = None


class HeldLock(Answer, frozen=True, kw_only=True):
    """A name that is held through a server, or waited for."""

    name: str
    # Held by a caller of any node; else by another program, or just being handed over.
    held: bool
    # Who has it; only for its own agent and for admins.
    holder: str | None = None
    # The agent that has it; only for itself and for admins.
    agent_id: str | None = None
    # Only for its own agent and for admins.
    fence: int | None = None
    # RFC 3339; absent while nobody has it through a server.
    acquired_at: str | None = None
    # Absent without a lease.
    expires_at: str | None = None
    # Callers that wait for it, of all nodes.
    waiters: int


class LockPage(Answer, frozen=True, kw_only=True):
    # By name.
    locks: list[HeldLock]
    # Nodes that did not answer: who waits there is not counted.
    unreachable: list[str] | msgspec.UnsetType = msgspec.UNSET


class AdvisoryLock(Answer, frozen=True, kw_only=True):
    """A lock as its backend has it, whichever program holds it."""

    # The name, or how the library calls a lock with a namespace and a number.
    label: str
    # The two numbers of such a lock; null for a name, which is another lock even if it looks the same.
    namespace: int | None = None
    key: int | None = None
    held: bool
    # Who has it; only for its own agent and for admins.
    holder: str | None = None
    # The process that has it; only for admins.
    pid: int | None = None
    # Its machine; only for admins.
    host: str | None = None
    # RFC 3339; when it was taken, not when somebody looked.
    acquired_at: str | None = None
    held_ms: int | None = None
    # Processes, and callers of this server, that wait for it.
    waiters: int
    # How often somebody waited in vain.
    timeouts: int
    # How often somebody found it busy and went on without it.
    skips: int
    # The same in a row, up to now: whoever skips this often may be starving.
    consecutive_skips: int


class AdvisoryLocks(Answer, frozen=True, kw_only=True):
    # Spelled as monitoring expects it.
    advisory_locks: list[AdvisoryLock] = msgspec.field(name="advisory_locks")
    count: int


# --- Over /ws ---------------------------------------------------------------------------------------------------


class TakeLock(Request, frozen=True, kw_only=True):
    """Asks for a named lock that lives by the connection: it is free when that closes, however it does."""

    # 1 to 200 printable characters.
    name: Annotated[str, Meta(min_length=1, max_length=LOCK_NAME_MAX)]
    # The node that it is for; refused where there is no such node.
    target_node_id: Identifier | None = None
    # How long to wait in line for it; 0: not at all.
    wait_ms: WaitMs = 0
    # How long it is held unless it is renewed; absent: as long as the connection lives.
    lease_ms: LeaseMs | None = None
    # A process on the server's machine whose death frees the lock, too.
    owner: Owner | None = None
    # One that is busy is no error: the answer is {acquired: false}, at once.
    skip: bool = False


class RenewTakenLock(Request, frozen=True, kw_only=True):
    """Starts the lease of a named lock anew."""

    name: Annotated[str, Meta(min_length=1, max_length=LOCK_NAME_MAX)]
    # What the lock was answered with.
    ticket: Identifier
    # The node that it is for; refused where there is no such node.
    target_node_id: Identifier | None = None
    # How long it is held from now on; as before when absent.
    lease_ms: LeaseMs | None = None


class ReleaseLock(Request, frozen=True, kw_only=True):
    """Gives a named lock back."""

    name: Annotated[str, Meta(min_length=1, max_length=LOCK_NAME_MAX)]
    # What the lock was answered with.
    ticket: Identifier
    # The node that it is for; refused where there is no such node.
    target_node_id: Identifier | None = None


class LockReleased(Answer, frozen=True, kw_only=True):
    name: str
    ticket: str
