"""The durable rows: what a store keeps, and the only shape in which the layers hand it around.

A row is a frozen struct with an `id` and a `version`. The version belongs to the store: it is 1 after the insert,
grows by one with every update, and a write that carries a stale one is refused. Times are integer milliseconds since
1970. `TABLES` names the table of each row type and the fields a store must be able to look up quickly.
"""

from __future__ import annotations

from typing import Any, Final, NewType, TypeVar

import msgspec

from .lifecycle import BrowserState, CommandState, DeliveryState, LeaseState, NodeState, TabState, TaskState

NodeId = NewType("NodeId", str)
BrowserId = NewType("BrowserId", str)
SessionId = NewType("SessionId", str)
TabId = NewType("TabId", str)
CommandId = NewType("CommandId", str)
AgentId = NewType("AgentId", str)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What every row has."""

    id: str
    # 0 until the store has seen it.
    version: int = 0


RowT = TypeVar("RowT", bound=Row)


class Node(Row, frozen=True, kw_only=True):
    """One running server. Its epoch grows at each start, so what an earlier life wrote can be told apart.

    Nobody changes the row while that life lasts, except whoever ends it: a write that requires its version is shut out
    from then on.
    """

    epoch: int
    # Where other nodes reach it.
    url: str
    pid: int
    started_at: int
    state: NodeState = NodeState.UP
    # Of its machine, as long as that runs: says whether two nodes see the same processes.
    boot_id: str = ""


class Beat(Row, frozen=True, kw_only=True):
    """That a node lives; its id is the node's. Only clusters have them."""

    epoch: int
    # By the database's clock, read before this was written.
    at: int
    is_draining: bool = False
    # Sessions and seats for more that it has; for people.
    sessions: int = 0
    free_seats: int = 0


class Waiter(Row, frozen=True, kw_only=True):
    """A caller that waits for a session on some node of a cluster."""

    # Where the caller waits.
    node_id: str
    pool: str
    agent_id: str
    key: str = ""
    arrived_at: int = 0
    # The node that has a seat for it; empty while it waits.
    granted_by: str = ""
    # It cannot be passed on, so that only its own node may give it a place.
    is_local: bool = False


class Secret(Row, frozen=True, kw_only=True):
    """A key that all nodes of a cluster share; hex."""

    value: str


class Browser(Row, frozen=True, kw_only=True):
    """One supervised Chromium process, written down before it is used so that a restarted broker can find it."""

    node_id: str
    pool: str
    state: BrowserState
    # Process id and start time in clock ticks: together they survive pid reuse. 0 for an attached browser.
    pid: int = 0
    pid_started: int = 0
    port: int = 0
    # Address of the control socket.
    endpoint: str = ""
    profile_dir: str = ""
    product: str = ""
    sessions_served: int = 0
    started_at: int = 0


class Session(Row, frozen=True, kw_only=True):
    """An agent's lease of one isolated context and all tabs in it."""

    state: LeaseState
    agent_id: str
    pool: str
    key: str = ""
    tier: str = "default"
    # Only ever grows: assigned by the store at every change of ownership.
    fence: int = 0
    node_id: str = ""
    browser_id: str = ""
    # Chromium's BrowserContext; empty in `shared` pools and before the session is bound.
    context_id: str = ""
    access: str = "exclusive"
    reuse: str = "never"
    keep_alive: bool = False
    allow_navigate: bool = True
    # The named owner process, if the caller named one: evidence of life, never guessed.
    owner_pid: int = 0
    owner_started: int = 0
    # Whether the owner has ever sent a heartbeat: decides which expiry rule applies.
    is_beating: bool = False
    phase: str = ""
    created_at: int = 0
    heartbeat_at: int = 0
    deadline_at: int = 0
    ended_at: int = 0
    # Why it ended: released, expired, reaped, crashed, ...
    end_reason: str = ""
    # The size of its pages as JSON; empty: the browser's own.
    viewport: str = ""
    # When it was given back into the pool; 0 before.
    pooled_at: int = 0
    # Whose it was before an admin gave it to its present owner: that one hears `lease_lost`, not `session_not_found`.
    taken_from: str = ""
    # Whether a CDP or control socket has ever been open on it: decides which expiry rule applies.
    is_connection_bound: bool = False


class Tab(Row, frozen=True, kw_only=True):
    """One page. The id is ours and stays when the page behind it is rebuilt; then the generation grows."""

    session_id: str
    node_id: str
    browser_id: str
    state: TabState
    # Chromium's target id of the present generation.
    target_id: str = ""
    generation: int = 1
    # created, popup or borrowed: a borrowed tab is released, never closed.
    provenance: str = "created"
    url: str = "about:blank"
    title: str = ""
    created_at: int = 0
    # Of a popup: the tab whose page opened it.
    opener_tab_id: str = ""


class Checkpoint(Row, frozen=True, kw_only=True):
    """What a session's pages left in their browser, so that it can be put into another one; its id is the session's."""

    node_id: str
    # Cookies in Playwright's spelling; JSON text.
    cookies: str = "[]"
    # localStorage by origin; JSON text.
    origins: str = "{}"
    taken_at: int = 0


class Command(Row, frozen=True, kw_only=True):
    """One accepted command and its single terminal outcome."""

    node_id: str
    tab_id: str
    session_id: str
    agent_id: str
    kind: str
    state: CommandState
    created_at: int
    ended_at: int = 0
    queued_ms: int = 0
    duration_ms: int = 0
    # The result, or the error in its wire shape; JSON text.
    outcome: str = ""
    # Which of the agent's connections or callers sent it.
    controller_id: str = ""


class Task(Row, frozen=True, kw_only=True):
    """Something that was submitted to be run in its turn.

    On disk it is queued until it is over; where nodes share the store, running from just before it is sent to a page.
    """

    # Whose it is; empty: nobody's yet, of nodes that share the store.
    node_id: str
    agent_id: str
    state: TaskState
    # The kind of its action, or steps.
    action: str
    # Where it runs; both empty: on a session that is leased from the pool for it.
    tab_id: str = ""
    session_id: str = ""
    pool: str = "default"
    # What is to be done, as it was submitted; JSON text.
    request: str = "{}"
    # Lower goes first, among the tasks of one agent.
    priority: int = 0
    created_at: int = 0
    deadline_at: int = 0
    started_at: int = 0
    completed_at: int = 0
    # How often it was sent to a page.
    attempts: int = 0
    # Doing it twice is the same as doing it once.
    is_idempotent: bool = False
    # What the credential was allowed that submitted it.
    scopes: tuple[str, ...] = ()
    # The row of the key that it was submitted under, which goes with it; empty: none.
    key_id: str = ""
    # JSON text; empty when there is none.
    result: str = ""
    # One sentence and a code of the catalogue; empty unless it failed or was rejected.
    error: str = ""
    code: str = ""
    callback_url: str = ""
    # Of the request that submitted it, for whoever is called back; empty without a callback.
    request_id: str = ""
    traceparent: str = ""
    # Its place among the tasks of its agent, where several nodes take them from one queue; see task_rank.
    rank: int = 0
    # Of the lease that it was submitted under; 0: it names no session, or is older than this field.
    fence: int = 0


class ArchivedTask(Task, frozen=True, kw_only=True):
    """A task that has been over for a while, out of the way of those that are not."""


class TaskKey(Row, frozen=True, kw_only=True):
    """A key under which a task was submitted: the same one again is answered with that task."""

    task_id: str
    # SHA-256 of what was submitted, hex: something else under the same key is a mistake.
    body_hash: str
    created_at: int


class Delivery(Row, frozen=True, kw_only=True):
    """That somebody is to be told of the end of a task; its id is the task's."""

    node_id: str
    state: DeliveryState
    url: str
    # task.done, task.failed, task.cancelled or task.rejected.
    event: str
    # The task as it was when it ended; JSON text.
    body: str
    created_at: int
    attempts: int = 0
    # When it is tried next; 0 once it is over.
    due_at: int = 0
    # Why the last attempt failed.
    error: str = ""
    # Of the request that submitted the task.
    request_id: str = ""
    traceparent: str = ""


class Idempotency(Row, frozen=True, kw_only=True):
    """A key under which a command was accepted: the same one again is answered, not run."""

    command_id: str
    # SHA-256 of tab and action, hex: another body under the same key is a mistake.
    body_hash: str
    created_at: int


class Audit(Row, frozen=True, kw_only=True):
    """Who did what to which tab or session."""

    at: int
    agent_id: str
    controller_id: str
    # The kind of a command, or tab_lock, takeover, handoff, release, ...
    verb: str
    session_id: str = ""
    tab_id: str = ""
    command_id: str = ""
    # How it ended, or what else there is to say.
    detail: str = ""


class NamedLock(Row, frozen=True, kw_only=True):
    """A named lock that a caller of a node holds; its id is the name, and it is gone when the lock is free."""

    node_id: str
    agent_id: str
    # The controllerId that its holder gave; empty: none.
    controller: str = ""
    # Only ever grows: assigned by the store at every grant.
    fence: int = 0
    # SHA-256 of the ticket that renews and releases it, hex.
    ticket_hash: str
    # How long one renewal lasts; 0: it has no lease.
    lease_ms: int = 0
    acquired_at: int = 0
    # When the lease ends; 0: it has none.
    expires_at: int = 0
    # The process that it is bound to, if the caller named one.
    owner_pid: int = 0
    owner_started: int = 0
    # It lives by a connection, so it does not outlive the server.
    is_connection_bound: bool = False
    # How often the lock had been taken by anybody when it was taken for this holder; 0: the backend does not count.
    generation: int = 0


class Credential(Row, frozen=True, kw_only=True):
    """A token, known only by its hash."""

    # SHA-256 of the token, hex. Tokens are 256 random bits, so a plain hash cannot be guessed backwards.
    token_hash: str
    agent_id: str
    scopes: tuple[str, ...]
    created_at: int
    # 0 while valid.
    revoked_at: int = 0
    # When it ends by itself; 0: never.
    expires_at: int = 0


class Table(msgspec.Struct, frozen=True):
    """How a row type is stored."""

    name: str
    row: type[Row]
    # Fields that `select` may filter by, each indexed.
    indexed: tuple[str, ...] = ()


TABLES: Final[dict[type[Row], Table]] = {
    table.row: table
    for table in (
        Table("nodes", Node),
        Table("beats", Beat),
        Table("waiters", Waiter, ("pool", "node_id")),
        Table("secrets", Secret),
        Table("browsers", Browser, ("node_id", "state")),
        Table("sessions", Session, ("state", "agent_id", "node_id")),
        Table("tabs", Tab, ("session_id", "node_id", "state")),
        Table("checkpoints", Checkpoint, ("node_id",)),
        Table("commands", Command, ("tab_id", "agent_id")),
        Table("idempotency", Idempotency),
        Table("tasks", Task, ("state", "agent_id")),
        Table("archived_tasks", ArchivedTask, ("state", "agent_id")),
        Table("task_keys", TaskKey),
        Table("deliveries", Delivery, ("state",)),
        Table("audit", Audit, ("agent_id", "session_id", "tab_id")),
        Table("named_locks", NamedLock, ("node_id",)),
        Table("credentials", Credential, ("token_hash", "agent_id")),
    )
}


def changed(row: RowT, **changes: Any) -> RowT:
    """A copy of the row with some fields replaced."""
    return msgspec.structs.replace(row, **changes)
