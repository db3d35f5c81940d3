"""What operators ask for and see: credentials, browsers, pools, the node, and errors."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from .base import Agent, Answer, Request, Scope

# Ten years.
EXPIRY_MAX_S = 10 * 365 * 24 * 3_600


class NewAgent(Request, frozen=True, kw_only=True):
    agent_id: Agent
    scopes: list[Scope] = msgspec.field(default_factory=lambda: ["browse", "evaluate", "tasks", "locks", "files"])
    # After that it ends by itself; default: never.
    expires_in_s: Annotated[int, Meta(ge=1, le=EXPIRY_MAX_S)] | None = None


class AgentToken(Answer, frozen=True, kw_only=True):
    # What it is revoked by.
    token_id: str = ""
    agent_id: str
    scopes: list[str]
    # Shown once; only its hash is kept.
    token: str
    # Null: it does not end by itself.
    expires_at: str | None = None


class TokenView(Answer, frozen=True, kw_only=True):
    token_id: str
    agent_id: str
    scopes: list[str]
    created_at: str
    # Null: it does not end by itself.
    expires_at: str | None = None
    # Null: it was not revoked.
    revoked_at: str | None = None


class TokenPage(Answer, frozen=True, kw_only=True):
    tokens: list[TokenView]
    # Pass it as `cursor` to read on; absent on the last page.
    next_cursor: str | None = None


class BrowserView(Answer, frozen=True, kw_only=True):
    browser_id: str
    pool: str
    # The node that it runs on.
    node: str = ""
    # starting, ready, draining, crashed, broken or stopped.
    state: str
    # 0 while it starts, and where tabherd only attached to it.
    pid: int
    product: str
    # In it now.
    sessions: int
    # All that it has had.
    sessions_served: int
    # Warm contexts in it.
    stock: int
    # Proportional set size of all its processes; null, like the next three, while they have not been measured.
    memory_bytes: int | None = None
    # Processor time since it started.
    cpu_ms: int | None = None
    # Processor time between the last two measurements, in percent of one core.
    cpu_percent: float | None = None
    processes: int | None = None
    # closed; open: it kept dying and is not started for a while; half_open: one start is on trial.
    circuit: str
    # It missed a probe and gets no new session until it answers again.
    suspect: bool
    # Why the last browser in this place died or could not start; empty when none did.
    last_failure: str
    started_at: str


class BrowserPage(Answer, frozen=True, kw_only=True):
    browsers: list[BrowserView]
    # Nodes that did not answer, so that what they have is missing here.
    unreachable: list[str] | msgspec.UnsetType = msgspec.UNSET


class SessionWaiter(Answer, frozen=True, kw_only=True):
    """A caller that waits for a session."""

    agent_id: str
    key: str
    # Its place in the order in which sessions are granted, from 1.
    position: int
    # When it may expect its turn.
    expected_wait_ms: int
    # When it came.
    since: str = ""


class PoolStats(Answer, frozen=True, kw_only=True):
    # Sessions that have a place, also while they are being opened or ended.
    active: int
    # Tabs that were given back and wait for the next one of their key.
    pooled: int
    # Real tabs, of sessions and pooled.
    tabs: int
    # Callers that wait for one.
    waiting: int
    # When the one of them came that has waited longest; null: nobody waits.
    waiting_since: str | None = None
    # Sessions that the pool admits at the most.
    capacity: int
    # In a cluster, the bound that was set for all nodes together; 0: none, each has what its machine allows.
    shared_cap: int = 0
    # Sessions that its present browsers could take at once.
    free_seats: int
    # Warm contexts.
    stock: int
    # Browsers that run.
    browsers: int
    # Of those that wait, the first ones of the agent that asks, or of all agents if an admin asks for that; the next
    # one first.
    waiters: list[SessionWaiter] = msgspec.field(default_factory=list)


class Stats(Answer, frozen=True, kw_only=True):
    node: str
    # No new session is admitted.
    draining: bool
    # Sessions that are open, on all nodes.
    sessions: int
    # Of all nodes together.
    pools: dict[str, PoolStats]
    # Nodes that did not answer, so that what they have is missing here.
    unreachable: list[str] | msgspec.UnsetType = msgspec.UNSET


class HistorySeries(Answer, frozen=True, kw_only=True):
    """One number for each interval, oldest first; null where nothing is known, or nothing was there to be measured."""

    # Commands that reached their outcome, and those of them that failed, timed out or are unknown; per second.
    commands: list[float | None]
    commands_failed: list[float | None]
    # How long commands took, and how long they waited in their tab's gate; of several nodes the worst.
    command_p50_ms: list[float | None]
    command_p95_ms: list[float | None]
    gate_wait_p50_ms: list[float | None]
    gate_wait_p95_ms: list[float | None]
    # Per second.
    tasks_submitted: list[float | None]
    tasks_done: list[float | None]
    tasks_failed: list[float | None]
    # What follows is as it was at the end of the interval. Tasks that wait for their turn.
    tasks_queued: list[float | None]
    # Sessions that were open, and callers that waited for one.
    sessions: list[float | None]
    sessions_waiting: list[float | None]
    # Tabs that somebody had: a command, a tab lock, a person, a quarantine.
    tabs_held: list[float | None]
    # Of all browsers that were measured; in percent of one core.
    memory_bytes: list[float | None]
    cpu_percent: list[float | None]


class History(Answer, frozen=True, kw_only=True):
    """The last minutes, of all nodes together."""

    interval_ms: int
    # When the first interval began. Intervals begin at whole multiples of their length since 1970.
    begins_at: str = msgspec.field(name="from")
    series: HistorySeries
    # Nodes that did not answer, so that what they did is missing here.
    unreachable: list[str] | msgspec.UnsetType = msgspec.UNSET


class NodeView(Answer, frozen=True, kw_only=True):
    node_id: str
    # Where other nodes reach it.
    url: str
    # up, draining, silent (it has not been heard of for a while), left or dead.
    state: str
    # Which life of a node that is; grows with each start of any node.
    epoch: int
    # Whether it is the one that answers.
    is_self: bool
    started_at: str
    # How long ago it was last heard of, by the database's clock; null for a node that has no others.
    beat_age_ms: int | None = None
    # As of its last beat: sessions that are open on it, and seats for more.
    sessions: int
    free_seats: int


class NodePage(Answer, frozen=True, kw_only=True):
    nodes: list[NodeView]


class NodeDrain(Answer, frozen=True, kw_only=True):
    draining: bool
    # Sessions that are still open; at 0 a drained node can be stopped without harm to anybody.
    sessions: int


class AuditEntry(Answer, frozen=True, kw_only=True):
    id: str
    at: str
    agent_id: str
    controller_id: str
    # The kind of a command, or lock_acquired, takeover, handoff, release, ...
    verb: str
    session_id: str | None
    tab_id: str | None
    command_id: str | None
    # How it ended, or what else there is to say.
    detail: str


class AuditPage(Answer, frozen=True, kw_only=True):
    entries: list[AuditEntry]
    # Pass it as `cursor` to read on; absent on the last page.
    next_cursor: str | None = None


class Health(Answer, frozen=True, kw_only=True):
    status: str
    version: str
    node: str


PoolReadiness: TypeAlias = Literal["ready", "idle", "unready"]


class Readiness(Health, frozen=True, kw_only=True):
    # Each pool, or the one that was asked for. ready: it has a browser; idle: it needs none now and starts one for the
    # first caller; unready: it should have one, which starts, hangs, died or could not be started.
    pools: dict[str, PoolReadiness]


class ErrorView(Answer, frozen=True, kw_only=True):
    code: str
    message: str
    retryable: bool
    action: str
    details: dict[str, Any]
    retry_after_ms: int | msgspec.UnsetType = msgspec.UNSET
