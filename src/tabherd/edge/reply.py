"""An answer as HTTP has it: status, body and headers, the same for requests and for upgrades that are refused.

Every error has the one shape and says, where it applies, when to come again. An exception that is none of ours is a
bug: it is answered with `internal_error`, a code that is deliberately not in the catalogue.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

import msgspec

from .. import wire
from ..errors import BodyTooLarge, MethodNotAllowed, TabherdError, Unauthenticated
from .head import Head
from .route import JSON, Raw, headers_of

# What a retry waits for when whoever refused did not say: the contract is that 429 and 503 always do.
RETRY_AFTER_DEFAULT_MS: Final = 1_000
AS_JSON: Final = headers_of({"content-type": JSON})
CLOSE: Final = headers_of({"connection": "close"})
_COMMON: Final = headers_of({"cache-control": "no-store", "x-content-type-options": "nosniff"})
# A browser may keep it, and asks each time whether it is still the same.
_KEPT: Final = headers_of({"cache-control": "no-cache", "x-content-type-options": "nosniff"})
_CHALLENGE: Final = headers_of({"www-authenticate": "Bearer"})
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


class Reply(msgspec.Struct, frozen=True):
    """An answer, ready to be sent."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    # Whether a browser may keep it.
    is_kept: bool = False


def success(status: int, answer: Any) -> Reply:
    """What a handler returned."""
    if isinstance(answer, Raw):
        return Reply(status, answer.body, answer.headers)
    if answer is None:
        return Reply(status, b"", ())
    return Reply(status, _as_json(answer), AS_JSON)


def refusal(error: TabherdError) -> Reply:
    """An error as HTTP. An instance may carry another `status` than its class, e.g. 503 for a full acquire queue."""
    headers = AS_JSON
    body = wire_form(error)
    if error.retry_after_ms is not None:
        headers += headers_of({"retry-after": str(math.ceil(error.retry_after_ms / 1000))})
    if isinstance(error, MethodNotAllowed):
        headers += headers_of({"allow": ", ".join(error.details["allow"])})
    elif isinstance(error, Unauthenticated):
        headers += _CHALLENGE
    elif isinstance(error, BodyTooLarge):
        # The rest of the body was not read: the connection cannot be used again.
        headers += CLOSE
    return Reply(error.status, _as_json(body), headers)


def bug(head: Head) -> Reply:
    """Something went wrong that nobody thought of."""
    return Reply(500, _encode(bug_form(head.request_id.decode())), AS_JSON)


def wire_form(error: TabherdError) -> dict[str, Any]:
    """The error in its one shape; whatever can be retried later says when."""
    if error.retry_after_ms is None and error.status in (429, 503):
        error.retry_after_ms = RETRY_AFTER_DEFAULT_MS
    return error.to_wire()


def bug_form(request_id: str) -> dict[str, Any]:
    """A bug in the shape of an error."""
    return {
        "code": "internal_error",
        "message": "tabherd has a bug; the request may or may not have taken effect.",
        "retryable": False,
        "action": f"Report it with the log lines that have requestId {request_id}.",
        "details": {"requestId": request_id},
    }


def traced(head: Head, *, is_kept: bool = False) -> tuple[tuple[bytes, bytes], ...]:
    """The headers that every answer has."""
    return (*(_KEPT if is_kept else _COMMON), (b"x-request-id", head.request_id), (b"traceparent", head.traceparent))


def _as_json(answer: Any) -> bytes:
    try:
        return _encode(answer)
    except UnicodeEncodeError:
        # A page may hand out half of a surrogate pair: JSON can carry it escaped, UTF-8 cannot.
        return json.dumps(msgspec.to_builtins(answer, enc_hook=wire.plain)).encode()
