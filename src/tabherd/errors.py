"""The error tree: every refusal and failure that tabherd reports, on every interface.

    TabherdError
    ├── Refused              your request cannot be served as it stands
    │   ├── BadRequest       invalid_request, unknown_field, unknown_action, ...
    │   ├── NotAllowed       unauthenticated, forbidden, not_owner, policy_denied
    │   ├── NotFound         session_not_found, tab_not_found, ...
    │   ├── Conflict         lease_lost, conflict, idempotency_conflict, ...
    │   ├── Busy             tab_busy, tab_locked
    │   └── Backpressure     capacity, queue_full, rate_limited, ...
    └── Failed               the request was fine, the world was not
        ├── TimedOut         queue_wait_timed_out, command_timed_out, ...
        ├── PageFailed       element_not_found, navigation_failed, ...
        ├── Broken           tab_dead, browser_crashed, outcome_unknown
        └── Unavailable      draining, no_browser, store_unavailable, ...

Across these branches, `AdvisoryLockError` is what to catch around a lock: lock_reentered, lock_deadlock, lock_lost and
lock_timed_out are one each.

A leaf has a `code`; the branches above it exist to be caught. The leaves *are* the catalogue: the docs page is
generated from their docstrings, and a client rebuilds the same exception from the wire with `from_wire`.
Assertions, not these, are for our own bugs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar


class TabherdError(Exception):
    """Root of everything tabherd raises on purpose."""

    # The machine-readable name; empty on the branches, which are never raised.
    code: ClassVar[str] = ""
    # The HTTP status that carries it; an instance may have another than its class.
    status: int = 500
    # Whether trying the same request again may succeed.
    retryable_by_default: ClassVar[bool] = False
    # The legitimate next step, in words, unless the raiser knows a better one.
    next_step: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        action: str | None = None,
        retry_after_ms: int | None = None,
        retryable: bool | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message)
        # One sentence for a person; never parsed.
        self.message = message
        self.action = self.next_step if action is None else action
        self.retry_after_ms = retry_after_ms
        self.retryable = self.retryable_by_default if retryable is None else retryable
        # Holder, since, expiresAt, position, cap, field, ...: whatever applies, in wire spelling.
        self.details: dict[str, Any] = details

    def __str__(self) -> str:
        """What a traceback ends with: the sentence and the next step."""
        return f"{self.message} Next: {self.action}" if self.action else self.message

    def to_wire(self) -> dict[str, Any]:
        """The one JSON shape of an error, on every interface."""
        body: dict[str, Any] = {"code": self.code, "message": self.message, "retryable": self.retryable}
        if self.retry_after_ms is not None:
            body["retryAfterMs"] = self.retry_after_ms
        body["action"] = self.action
        body["details"] = self.details
        return body


class AdvisoryLockError(TabherdError):
    """An advisory lock could not be had, or was lost. Its leaves are refusals and failures like any others."""


# --- Refused: the request ---------------------------------------------------------------------------------------


class Refused(TabherdError):
    """The request cannot be served as it stands."""


class BadRequest(Refused):
    status = 400


class InvalidRequest(BadRequest):
    """A field is missing, of the wrong type or out of bounds, or the body is not JSON; `details.field` names it."""

    code = "invalid_request"
    next_step = "Correct the field named in details and send the request again."


class UnknownField(BadRequest):
    """The body, query or configuration has a field that does not exist; the nearest known one is named."""

    code = "unknown_field"
    next_step = "Remove the field, or use the known one that details suggests."


class UnknownAction(BadRequest):
    """`kind` is not an action that exists; the nearest known one is named."""

    code = "unknown_action"
    next_step = "Use one of the kinds listed in details."


class InvalidSelector(BadRequest):
    """The selector cannot be parsed."""

    code = "invalid_selector"
    next_step = "Correct the selector; details shows where parsing stopped."


class BodyTooLarge(BadRequest):
    """The request body is larger than `[server] body_max_bytes`, or a file than the pool's `files_max_bytes` leaves."""

    code = "body_too_large"
    status = 413
    next_step = "Send a smaller body, or raise [server] body_max_bytes."


class BatchTooLarge(BadRequest):
    """A batch has more items than allowed."""

    code = "batch_too_large"
    next_step = "Split the batch."


class NotAllowed(Refused):
    status = 403


class Unauthenticated(NotAllowed):
    """No credential was given, or it is not valid."""

    code = "unauthenticated"
    status = 401
    next_step = "Send 'Authorization: Bearer TOKEN'; 'tabherd token new --agent NAME' makes one."


class Forbidden(NotAllowed):
    """The credential is valid but lacks the scope, or the request comes from a foreign Host or Origin."""

    code = "forbidden"
    next_step = "Use a credential that has the scope named in details."


class NotOwner(NotAllowed):
    """You may see the thing, but it belongs to another (a shared session, another controller's lock or command)."""

    code = "not_owner"
    next_step = "Ask its owner, or an admin."


class PolicyDenied(NotAllowed):
    """The pool's policy does not allow this address, file or method."""

    code = "policy_denied"
    next_step = "Use what the policy allows, or ask an operator to change it."


class NotFound(Refused):
    status = 404
    next_step = "Check the id; what you may not see reads as not found too."


class ResourceNotFound(NotFound):
    """No such path."""

    code = "not_found"
    next_step = "See /openapi.json for the paths that exist."


class MethodNotAllowed(NotFound):
    """The path exists, but not with this method; details lists those it has."""

    code = "method_not_allowed"
    status = 405
    next_step = "Use one of the methods in details.allow."


class SessionNotFound(NotFound):
    """No such session, or you may not see it."""

    code = "session_not_found"


class TabNotFound(NotFound):
    """No such tab, or you may not see it."""

    code = "tab_not_found"


class TaskNotFound(NotFound):
    """No such task, or you may not see it."""

    code = "task_not_found"


class CommandNotFound(NotFound):
    """No such command, or you may not see it."""

    code = "command_not_found"


class LockNotFound(NotFound):
    """No such lock is held."""

    code = "lock_not_found"


class FileNotFound(NotFound):
    """The session has no such file."""

    code = "file_not_found"


class BrowserNotFound(NotFound):
    """No such browser."""

    code = "browser_not_found"


class Conflict(Refused):
    status = 409


class LeaseLost(Conflict):
    """The session is no longer yours: its fence has moved on, it was released, or it expired. Nothing was touched."""

    code = "lease_lost"
    next_step = "Stop using this session and open a new one."


class StateConflict(Conflict):
    """The thing is in a state that does not allow this (already terminal, changed meanwhile)."""

    code = "conflict"
    next_step = "Read it again and decide anew."


class TabPausedHandoff(Conflict):
    """A person has taken the tab over; agents wait until it is given back."""

    code = "tab_paused_handoff"
    next_step = "Wait for the resume event, or ask the person named in details."


class IdempotencyConflict(Conflict):
    """The idempotency key was used before with another body."""

    code = "idempotency_conflict"
    next_step = "Use a fresh key for a different request."


class AmbiguousTarget(Conflict):
    """Several candidates fit; details lists them."""

    code = "ambiguous_target"
    next_step = "Name one of the candidates."


class StateDirInUse(Conflict):
    """Another tabherd server owns this state directory; details names it."""

    code = "state_dir_in_use"
    next_step = "Use the running server, stop it with 'tabherd down', or set TABHERD_STATE to another directory."


class LockReentered(Conflict, AdvisoryLockError):
    """This thread, task or controller holds the advisory lock already."""

    code = "lock_reentered"
    next_step = "Do not nest acquisitions of one lock."


class LockDeadlock(Conflict, AdvisoryLockError):
    """The database found a cycle of waiters and broke it here."""

    code = "lock_deadlock"
    next_step = "Release what you hold and acquire locks in one order everywhere."


class LockLost(Conflict, AdvisoryLockError):
    """The connection that held the advisory lock is gone, and the lock with it."""

    code = "lock_lost"
    next_step = "Stop the protected work, acquire again and re-read the state."


class Busy(Refused):
    status = 423
    retryable_by_default = True


class TabBusy(Busy):
    """Another command is running on the tab and the request said fail_fast."""

    code = "tab_busy"
    next_step = "Retry after retryAfterMs, or send waitPolicy wait_with_timeout."


class TabLocked(Busy):
    """Another controller holds the tab's lock and the request said fail_fast."""

    code = "tab_locked"
    next_step = "Retry after the lock expires, or send waitPolicy wait_with_timeout."


class Backpressure(Refused):
    status = 429
    retryable_by_default = True


class Capacity(Backpressure):
    """A cap is reached; `details.reason` is key_cap, pool_cap, agent_cap, tab_cap, file_cap, mcp_cap or lock_cap."""

    code = "capacity"
    next_step = "Retry after retryAfterMs, release a session, or ask with a larger waitMs."


class QueueFull(Backpressure):
    """The queue of waiting callers or tasks is at its bound (429 for tasks, 503 for callers waiting for a session)."""

    code = "queue_full"
    next_step = "Retry after retryAfterMs."


class TabQueueLimitExceeded(Backpressure):
    """The tab has as many tickets as it may have, or this controller has its half of them."""

    code = "tab_queue_limit_exceeded"
    next_step = "Wait for your earlier commands on this tab."


class ControllerQueueLimitExceeded(Backpressure):
    """This controller has as many tickets as it may have, over all tabs."""

    code = "controller_queue_limit_exceeded"
    next_step = "Wait for your earlier commands."


class RateLimited(Backpressure):
    """The credential sends faster than its rate."""

    code = "rate_limited"
    next_step = "Slow down; retry after retryAfterMs."


# --- Failed: the world ------------------------------------------------------------------------------------------


class Failed(TabherdError):
    """The request was fine; the world was not."""


class TimedOut(Failed):
    status = 504
    retryable_by_default = True


class QueueWaitTimedOut(TimedOut):
    """The command's time ran out while it waited for the tab; nothing was sent to the page."""

    code = "queue_wait_timed_out"
    next_step = "Retry, or allow more time with timeoutMs."


class CommandTimedOut(TimedOut):
    """The command's time ran out while it ran; the tab is quarantined until it is proven stopped."""

    code = "command_timed_out"
    # It had been sent to the page: only the caller can know whether doing it twice is harmless.
    retryable_by_default = False
    next_step = "Look at the page before you repeat the command; allow more time with timeoutMs."


class LockTimedOut(TimedOut, AdvisoryLockError):
    """The advisory lock was not free within the timeout."""

    code = "lock_timed_out"
    next_step = "Retry, or wait longer."


class DeadlineExceeded(TimedOut):
    """The task's or session's deadline passed."""

    code = "deadline_exceeded"
    next_step = "Submit again with a later deadline."


class PageFailed(Failed):
    status = 422


class ElementNotFound(PageFailed):
    """No element matches within the time allowed; details lists the nearest candidates."""

    code = "element_not_found"
    next_step = "Take a snapshot and use a ref or selector that exists."


class StaleRef(PageFailed):
    """What the ref names is no longer in the page; details says what it was and what is nearest now, where known."""

    code = "stale_ref"
    next_step = "Take a new snapshot."


class ElementNotActionable(PageFailed):
    """The element exists but is hidden, moving, disabled or covered; details says which, and what is in the way."""

    code = "element_not_actionable"
    next_step = "Remove what details names, or wait for it."


class NavigationFailed(PageFailed):
    """The page could not be loaded; details has the network error."""

    code = "navigation_failed"
    next_step = "Check the address and that the site answers."


class JavascriptError(PageFailed):
    """The expression threw; details has the page's own message and stack."""

    code = "javascript_error"
    next_step = "Correct the expression."


class Broken(Failed):
    status = 502


class TabDead(Broken):
    """The page behind the tab is gone and the session does not allow it to be rebuilt."""

    code = "tab_dead"
    next_step = "Close the tab and open another; details has its last URL."


class BrowserCrashed(Broken):
    """The browser died before the command was sent to the page."""

    code = "browser_crashed"
    retryable_by_default = True
    next_step = "Retry; the tab is being rebuilt."


class OutcomeUnknown(Broken):
    """The command had been sent and nobody can know whether it took effect (crash, restart). Never retried by us."""

    code = "outcome_unknown"
    next_step = "Look at the page or the site before you repeat the command."


class Unavailable(Failed):
    status = 503
    retryable_by_default = True


class Draining(Unavailable):
    """The server is finishing its work and admits nothing new."""

    code = "draining"
    next_step = "Retry after retryAfterMs, or use another node."


class SchedulerDisabled(Unavailable):
    """Tasks are switched off here (`[scheduler] enabled = false`); sessions and commands are not."""

    code = "scheduler_disabled"
    next_step = "Send the action to a tab of a session, or have an operator set [scheduler] enabled = true."
    retryable_by_default = False


class NoBrowser(Unavailable):
    """No healthy browser can serve this now; details says why the last one failed."""

    code = "no_browser"
    next_step = "Retry after retryAfterMs; 'tabherd doctor' explains what is wrong."


class StoreUnavailable(Unavailable):
    """The store cannot be read or written (locked, read-only, full, corrupt, unreachable); details says which."""

    code = "store_unavailable"
    next_step = "Fix the store as the message says; work resumes by itself."


class NodeUnreachable(Unavailable):
    """The node that hosts this tab does not answer."""

    code = "node_unreachable"
    next_step = "Retry after retryAfterMs; its sessions are recovered elsewhere if it is gone."


# --- The catalogue ----------------------------------------------------------------------------------------------


def _leaves(branch: type[TabherdError]) -> Iterator[type[TabherdError]]:
    if branch.code:
        yield branch
    for child in branch.__subclasses__():
        yield from _leaves(child)


CATALOGUE: Mapping[str, type[TabherdError]] = {leaf.code: leaf for leaf in _leaves(TabherdError)}


def from_wire(body: Mapping[str, Any], status: int = 500) -> TabherdError:
    """Rebuild the exception that the other side raised; an unknown code keeps its branch by status."""
    code = str(body.get("code", ""))
    kind = CATALOGUE.get(code)
    if kind is None:
        base = Failed if status >= 500 else Refused
        kind = type("Unknown" + base.__name__, (base,), {"code": code, "status": status})
    error = kind(
        str(body.get("message", code)),
        action=body.get("action"),
        retry_after_ms=body.get("retryAfterMs"),
        retryable=body.get("retryable"),
    )
    error.details = dict(body.get("details") or {})
    return error
