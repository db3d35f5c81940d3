"""What travels over HTTP: request and answer structs, shared by the server and the client.

JSON is camelCase, Python snake_case. Requests refuse fields they do not know, so a misspelt option is an error that
names it, never silently ignored. Only what the server honours is listed here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

# `$` alone would let one line break pass at the end.
Name = Annotated[str, Meta(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")]
Agent = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@/-]*$(?!\n)")]
Identifier = Annotated[str, Meta(min_length=1, max_length=100)]
Scope: TypeAlias = Literal["browse", "evaluate", "tasks", "locks", "files", "admin"]
DEADLINE_MAX_MS = 7 * 24 * 3600 * 1000


class Request(msgspec.Struct, rename="camel", kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Something a caller sends."""


class Answer(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    """Something a caller gets. Clients ignore fields they do not know, so that servers can grow."""


# --- Sessions ---------------------------------------------------------------------------------------------------


class OpenSession(Request, frozen=True, kw_only=True):
    # Whose session; an admin may name anybody, an agent only itself.
    agent_id: Agent | None = None
    pool: Name = "default"
    # The bucket it counts against, e.g. a vendor.
    key: Name = ""
    tier: Name = "default"
    # Absolute life, from now; wins over the tier.
    deadline_ms: Annotated[int, Meta(ge=1_000, le=DEADLINE_MAX_MS)] | None = None
    # How long to wait for a place when all are taken; the pool's acquire_wait_ms when absent.
    wait_ms: Annotated[int, Meta(ge=0, le=120_000)] | None = None
    # Keep it until it is released or its deadline passes, however quiet the owner is.
    keep_alive: bool = False
    # First page.
    url: Annotated[str, Meta(max_length=65_536)] | None = None


class TabBrief(Answer, frozen=True, kw_only=True):
    tab_id: str
    url: str
    title: str


class SessionView(Answer, frozen=True, kw_only=True):
    session_id: str
    agent_id: str
    fence: int
    state: str
    pool: str
    key: str
    tier: str
    node: str
    tabs: list[TabBrief]
    # RFC 3339.
    created_at: str
    expires_at: str
    heartbeat_ms: int
    keep_alive: bool


class SessionPage(Answer, frozen=True, kw_only=True):
    sessions: list[SessionView]
    # Pass it as `cursor` to read on; absent on the last page.
    next_cursor: str | None = None


class Heartbeat(Request, frozen=True, kw_only=True):
    fence: int
    # What the owner is doing, for people who look: send, poll, watch, ...
    phase: Name | None = None


class HeartbeatAnswer(Answer, frozen=True, kw_only=True):
    expires_at: str
    fence: int
    # Commands the owner should stop waiting for.
    cancel: list[str]


class TabPage(Answer, frozen=True, kw_only=True):
    tabs: list[TabBrief]


# --- Actions ----------------------------------------------------------------------------------------------------


class Action(Request, frozen=True, kw_only=True, tag_field="kind"):
    """What every action may carry besides its own parameters."""

    session_id: Identifier | None = None
    fence: int | None = None
    controller_id: Identifier | None = None
    wait_policy: Literal["fail_fast", "wait_with_timeout"] = "fail_fast"
    # Queue and execution together.
    timeout_ms: Annotated[int, Meta(ge=1, le=DEADLINE_MAX_MS)] | None = None


class Navigate(Action, frozen=True, kw_only=True, tag="navigate"):
    url: Annotated[str, Meta(min_length=1, max_length=2_000_000)]
    wait_until: Literal["load", "domcontentloaded", "networkidle", "commit"] = "load"


class Evaluate(Action, frozen=True, kw_only=True, tag="evaluate"):
    expression: Annotated[str, Meta(min_length=1)]
    # Given, `expression` is a function and these are its arguments.
    args: list[Any] | None = None


class Text(Action, frozen=True, kw_only=True, tag="text"):
    # CSS; the whole page when absent.
    selector: Annotated[str, Meta(min_length=1, max_length=10_000)] | None = None


class Screenshot(Action, frozen=True, kw_only=True, tag="screenshot"):
    full_page: bool = False
    format: Literal["png", "jpeg", "webp"] = "png"


AnyAction: TypeAlias = Navigate | Evaluate | Text | Screenshot
ACTION_KINDS: tuple[str, ...] = ("navigate", "evaluate", "text", "screenshot")


class CommandView(Answer, frozen=True, kw_only=True):
    command_id: str
    ok: bool
    # completed, failed, timed_out, cancelled or outcome_unknown.
    outcome: str
    result: Any = None
    error: dict[str, Any] | None = None
    queued_ms: int
    duration_ms: int


# --- Operations -------------------------------------------------------------------------------------------------


class NewAgent(Request, frozen=True, kw_only=True):
    agent_id: Agent
    scopes: list[Scope] = msgspec.field(default_factory=lambda: ["browse", "evaluate", "tasks", "locks", "files"])


class AgentToken(Answer, frozen=True, kw_only=True):
    agent_id: str
    scopes: list[str]
    # Shown once; only its hash is kept.
    token: str


class BrowserView(Answer, frozen=True, kw_only=True):
    browser_id: str
    pool: str
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


class PoolStats(Answer, frozen=True, kw_only=True):
    # Sessions that have a place, also while they are being opened or ended.
    active: int
    # Callers that wait for one.
    waiting: int
    # Sessions that the pool admits at the most.
    capacity: int
    # Sessions that its present browsers could take at once.
    free_seats: int
    # Warm contexts.
    stock: int
    # Browsers that run.
    browsers: int


class Stats(Answer, frozen=True, kw_only=True):
    node: str
    # No new session is admitted.
    draining: bool
    # Sessions of this node that are open.
    sessions: int
    pools: dict[str, PoolStats]


class NodeDrain(Answer, frozen=True, kw_only=True):
    draining: bool
    # Sessions that are still open; at 0 a drained node can be stopped without harm to anybody.
    sessions: int


class Health(Answer, frozen=True, kw_only=True):
    status: str
    version: str
    node: str


class ErrorView(Answer, frozen=True, kw_only=True):
    code: str
    message: str
    retryable: bool
    action: str
    details: dict[str, Any]
    retry_after_ms: int | msgspec.UnsetType = msgspec.UNSET
