"""One request before it is sent, and what may be done when it got no answer; the same for both flavours.

A request that was never taken in may always be sent again. One that broke off half-way may be sent again only if doing
it twice is the same as doing it once; for a command on a page nobody can know, and that is what its error says.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from .. import wire
from ..errors import InvalidRequest, NodeUnreachable, OutcomeUnknown, TabherdError, from_wire

Answer = TypeVar("Answer")

# How long an answer may take when the request itself names no time; above the longest wait the server grants.
ANSWER_LIMIT_S = 150.0
# What the way there and back may add to the time that a request names for itself.
MARGIN_S = 10.0
CONNECT_LIMIT_S = 5.0
# Kinds that change nothing, so that one whose connection broke may be sent again.
READING: Final = frozenset(("text", "html", "snapshot", "screenshot", "pdf", "cookies", "wait"))


class Call(msgspec.Struct, Generic[Answer], frozen=True, kw_only=True):
    """A request and what its answer is."""

    method: str
    path: str
    # What the answer is decoded as; None: nobody reads it.
    answer: type[Answer]
    # In wire spelling.
    body: Mapping[str, Any] | None = None
    query: Mapping[str, Any] = {}
    # Makes the body anew for each attempt, where it is a file.
    content: Callable[[], Any] | None = None
    # How long one attempt may stay without an answer.
    limit_s: float = ANSWER_LIMIT_S
    # How long refusals are waited out; the client's patience when absent.
    patience_s: float | None = None
    # That is all the time there is: a server that is away is not waited for any longer, either.
    is_timed: bool = False
    # Twice is the same as once.
    may_repeat: bool = False
    # A command on a page: when its connection breaks, what became of it is unknown.
    is_command: bool = False
    # Its outcome is kept under a key: the same is answered again, whatever it was.
    is_kept: bool = False


def get(path: str, answer: type[Answer], query: Mapping[str, Any] | None = None) -> Call[Answer]:
    """A read; it may always be repeated."""
    return Call(method="GET", path=path, answer=answer, query=query or {}, may_repeat=True)


def command(path: str, body: Mapping[str, Any], *, patience_s: float | None = None) -> Call[wire.CommandView]:
    """A command on a page; its body is in wire spelling."""
    timeout_ms = body.get("timeoutMs")
    is_kept = "idempotencyKey" in body
    return Call(
        method="POST",
        path=path,
        answer=wire.CommandView,
        body=body,
        # What is no number is for the server to refuse.
        limit_s=timeout_ms / 1000 + MARGIN_S if isinstance(timeout_ms, (int, float)) else ANSWER_LIMIT_S,
        patience_s=patience_s,
        may_repeat=is_kept or body.get("kind") in READING,
        is_command=True,
        is_kept=is_kept,
    )


def wire_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Python spelling to wire spelling; what is absent (None) is left out."""
    return {_camel(name): value for name, value in fields.items() if value is not None}


def segment(identifier: str) -> str:
    """An id as one path segment: neither a slash nor dots in it may reach another route."""
    if identifier in ("", ".", ".."):
        raise InvalidRequest(f"'{identifier}' is not an id.", field="id")
    return quote(identifier, safe="")


def error_of(answer: httpx.Response) -> TabherdError:
    """The typed error in the body; what is not ours (a proxy's page) is `NodeUnreachable`."""
    try:
        body = msgspec.json.decode(answer.content, type=dict[str, Any])
    except msgspec.DecodeError:
        body = {}
    if not isinstance(body.get("code"), str):
        return NodeUnreachable(
            f"{answer.request.url} answered {answer.status_code} without a tabherd error.",
            action="Check the address, and that nothing stands between this client and the server.",
            retryable=False,
        )
    return from_wire(body, answer.status_code)


def decoded(url: str, call: Call[Answer], content: bytes) -> Answer:
    """The answer; what is not tabherd's is `NodeUnreachable`."""
    try:
        return msgspec.json.decode(content, type=call.answer)
    except msgspec.DecodeError as error:
        raise NodeUnreachable(
            f"{url}{call.path} answered something that is not tabherd's: {error}.",
            action="Check the address; client and server should be of one version.",
            retryable=False,
        ) from None


def failure(url: str, call: Call[Any], error: Exception) -> TabherdError:
    """What it means that no answer came: retryable if and only if sending it again does no harm."""
    match error:
        case httpx.LocalProtocolError() | httpx.UnsupportedProtocol() | httpx.InvalidURL():
            # It never left, and never will.
            return InvalidRequest(f"The request to {url} cannot be sent: {_reason(error)}.")
        case httpx.ConnectError() | httpx.ConnectTimeout() | httpx.PoolTimeout() | httpx.ProxyError():
            # It never left; waiting changes a server that is away, but not a certificate.
            return unreachable(url, error, retryable=not _is_distrusted(error))
        case _ if call.is_command and not call.may_repeat:
            return OutcomeUnknown(f"The connection to {url} broke while the command was on its way: {_reason(error)}.")
        case httpx.TimeoutException():
            # Silence for as long as the request may take is not waited for once more.
            return unreachable(url, error, retryable=False)
        case _:
            return unreachable(url, error, retryable=call.may_repeat)


def unreachable(url: str, error: Exception, *, retryable: bool) -> NodeUnreachable:
    """No answer from the server."""
    return NodeUnreachable(
        f"No answer from {url}: {_reason(error)}.",
        action="Check that the server runs ('tabherd status'); its log is server.log in the state directory.",
        retryable=retryable,
    )


def _is_distrusted(error: BaseException | None) -> bool:
    """Whether the server's certificate was the reason."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
