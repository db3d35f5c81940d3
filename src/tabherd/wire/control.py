"""What travels over the control channel `/ws`: the envelope, and the payload of each kind of message.

An envelope is the same in both directions. Payloads that callers send refuse fields they do not know, as bodies over
HTTP do; the tables at the end say which payload belongs to which kind of message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from .actions import CommandView, TabLockView
from .base import DEADLINE_MAX_MS, Agent, Answer, Identifier, Request
from .locks import LockReleased, LockView, ReleaseLock, RenewTakenLock, TakeLock
from .operations import ErrorView

PROTOCOL_VERSION: Final = "1.0"
# How far a message's timestamp may be from the server's clock, in either direction.
REPLAY_WINDOW_MS: Final = 60_000
HEARTBEAT_MS: Final = 15_000
HEARTBEAT_MIN_MS: Final = 1_000
HEARTBEAT_MAX_MS: Final = 60_000

ClientMessage: TypeAlias = Literal[
    "hello",
    "command",
    "command_cancel",
    "tab_lock",
    "tab_renew",
    "tab_unlock",
    "lock",
    "lock_renew",
    "unlock",
    "ping",
    "pong",
]
ServerMessage: TypeAlias = Literal["hello_ack", "result", "error", "event", "pong"]


class Envelope(Request, frozen=True, kw_only=True):
    """A message from a caller."""

    protocol_version: Literal["1.0"]
    message_type: ClientMessage
    # Chosen by the caller; the answer has the same. Not to be used again before that answer.
    request_id: Identifier
    # Milliseconds since 1970, or RFC 3339 with a zone; within 60 s of the server's clock.
    timestamp: int | Annotated[str, Meta(max_length=40)]
    # Never sent twice with the same credential, so that a message that was recorded cannot be played back.
    nonce: Identifier
    # What the message type asks for.
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    # Comes back with everything that belongs to this message.
    trace_id: Identifier | None = None


class ServerEnvelope(Answer, frozen=True, kw_only=True):
    """A message from the server."""

    protocol_version: Literal["1.0"] = "1.0"
    message_type: ServerMessage
    # Of the message that this one answers or belongs to; absent where there is none.
    request_id: str | msgspec.UnsetType = msgspec.UNSET
    # Milliseconds since 1970.
    timestamp: int
    # Never the same twice on one connection.
    nonce: str
    # Of the message that this one answers or belongs to.
    trace_id: str | msgspec.UnsetType = msgspec.UNSET
    # Last, so that a client can read what a large message is about before it has all of it.
    payload: Any


# --- What callers send ------------------------------------------------------------------------------------------


class Hello(Request, frozen=True, kw_only=True):
    """The first message on a connection."""

    # The one that is spoken; the same as the envelope's.
    protocol_version: Literal["1.0"] = "1.0"
    # Under which name locks and commands are counted; the connection itself when absent. One connection per name.
    controller_id: Identifier | None = None
    # For whom an admin speaks; an agent's token speaks for that agent only.
    agent_id: Agent | None = None
    # How often the server sends a ping frame; a connection that is silent for more than two of them is closed.
    heartbeat_ms: Annotated[int, Meta(ge=HEARTBEAT_MIN_MS, le=HEARTBEAT_MAX_MS)] = HEARTBEAT_MS


class RunCommand(Request, frozen=True, kw_only=True):
    """An action, or steps that run one after the other on one turn."""

    # The tab.
    tab_session_id: Identifier
    action: Literal["command.run"] = "command.run"
    # {kind, ...} with the parameters of that kind, or {steps: [{kind, ...}, ...]}; as over HTTP.
    payload: msgspec.Raw
    # Refused unless it is the node that has the tab.
    target_node_id: Identifier | None = None
    # Refused unless the tab is part of this session.
    session_id: Identifier | None = None
    # Refused unless the lease of the session is still at this fence.
    fence: int | None = None
    # fail_fast: a tab that is busy or locked is an error. wait_with_timeout: wait in turn.
    wait_policy: Literal["fail_fast", "wait_with_timeout"] = "fail_fast"
    # Queue and execution together.
    timeout_ms: Annotated[int, Meta(ge=1, le=DEADLINE_MAX_MS)] | None = None
    # The same key and command within five minutes is answered with the first outcome instead of being run again.
    idempotency_key: Identifier | None = None
    # rebuild: after a timeout the page is replaced, so that nothing of the command goes on. keep: it is left as it is.
    on_timeout: Literal["rebuild", "keep"] = "rebuild"


class CancelCommand(Request, frozen=True, kw_only=True):
    # From the event routed or queued.
    command_id: Identifier


class TakeTabLock(Request, frozen=True, kw_only=True):
    # The tab.
    tab_session_id: Identifier
    # Refused unless it is the node that has the tab.
    target_node_id: Identifier | None = None
    # Refused unless the tab is part of this session.
    session_id: Identifier | None = None
    # Refused unless the lease of the session is still at this fence.
    fence: int | None = None
    # How long the lock lasts unless it is renewed.
    lock_lease_ms: Annotated[int, Meta(ge=100, le=DEADLINE_MAX_MS)] | None = None
    # fail_fast: a tab that is busy or locked is an error. wait_with_timeout: wait in turn.
    wait_policy: Literal["fail_fast", "wait_with_timeout"] = "fail_fast"
    # How long to wait for it.
    timeout_ms: Annotated[int, Meta(ge=1, le=DEADLINE_MAX_MS)] | None = None


class RenewTabLock(Request, frozen=True, kw_only=True):
    # The tab.
    tab_session_id: Identifier
    # What the lock was answered with.
    ticket: Identifier
    # Refused unless it is the node that has the tab.
    target_node_id: Identifier | None = None
    # How long it lasts from now on.
    lock_lease_ms: Annotated[int, Meta(ge=100, le=DEADLINE_MAX_MS)] | None = None


class ReleaseTabLock(Request, frozen=True, kw_only=True):
    # The tab.
    tab_session_id: Identifier
    # What the lock was answered with.
    ticket: Identifier
    # Refused unless it is the node that has the tab.
    target_node_id: Identifier | None = None


class Beat(Request, frozen=True, kw_only=True):
    """Says nothing but that somebody is there."""


# --- What the server sends --------------------------------------------------------------------------------------


class ControlLimits(Answer, frozen=True, kw_only=True):
    # Largest message; a larger one closes the connection with code 1009.
    message_max_bytes: int
    # Requests that may wait for their answer at once.
    in_flight_max: int
    # Messages per second, on average, of one agent's credential over all its connections and HTTP.
    rate_per_s: int
    # How far a timestamp may be from the server's clock, and how long a nonce must not come again, at the least.
    replay_window_ms: int
    # Messages that are not JSON at all, after which the connection is closed with code 1008.
    malformed_max: int


class HelloAck(Answer, frozen=True, kw_only=True):
    node: str
    epoch: int
    agent_id: str
    # As locks and waiters are shown: the credential and the name.
    controller_id: str
    heartbeat_ms: int
    limits: ControlLimits


class TabUnlocked(Answer, frozen=True, kw_only=True):
    tab_id: str
    ticket: str


class Pong(Answer, frozen=True, kw_only=True):
    """Says nothing but that somebody is there."""


class ControlEvent(Answer, frozen=True, kw_only=True):
    """Something that happened; what else it says depends on its type."""

    type: str
    at: str
    # The place in the order of events, as in `GET /events`; absent where it is told to this connection only.
    id: str | msgspec.UnsetType = msgspec.UNSET


# --- Which payload belongs to which message ---------------------------------------------------------------------

CLIENT_PAYLOADS: Final[Mapping[str, type[Request]]] = {
    "hello": Hello,
    "command": RunCommand,
    "command_cancel": CancelCommand,
    "tab_lock": TakeTabLock,
    "tab_renew": RenewTabLock,
    "tab_unlock": ReleaseTabLock,
    "lock": TakeLock,
    "lock_renew": RenewTakenLock,
    "unlock": ReleaseLock,
    "ping": Beat,
    "pong": Beat,
}
SERVER_PAYLOADS: Final[Mapping[str, tuple[type[Answer], ...]]] = {
    "hello_ack": (HelloAck,),
    "result": (CommandView, TabLockView, TabUnlocked, LockView, LockReleased),
    "error": (ErrorView,),
    "event": (ControlEvent,),
    "pong": (Pong,),
}
# What each message of a caller is answered with, besides `error`; nothing: it is not answered.
ANSWERS: Final[Mapping[str, str]] = {
    "hello": "hello_ack",
    "command": "result",
    "command_cancel": "result",
    "tab_lock": "result",
    "tab_renew": "result",
    "tab_unlock": "result",
    "lock": "result",
    "lock_renew": "result",
    "unlock": "result",
    "ping": "pong",
    "pong": "",
}
# Events that only the connection hears whose message they belong to; all others are those of `GET /events`.
CONTROL_EVENTS: Final[Mapping[str, str]] = {
    "routed": "The command was accepted and has the tab; commandId names it.",
    "queued": "The command was accepted and waits; commandId names it, position is its place in the queue.",
    "cancel_ack": "The cancellation was accepted and the command, commandId, has ended; outcome says how.",
}
