"""One HTTP connection: how much it may send before anybody knows who it is, and how slowly.

uvicorn reads and answers requests; this says where it ends. Anybody can open a connection and send a head, so none of
this may cost more than a connection does. Invariants:
- A head is at most `head_max_bytes` long, however it is cut up; so is what a body has around its data (sizes and
  extensions of chunks, trailers) beyond a multiple of that data.
- A head is there `head_limit_s` after its connection began to wait for it. A body comes at `body_bytes_per_s` on
  average, after as long a start; time in which we do not read does not count.
- At most `waiting_max` connections have no request at work: the one that has waited longest goes first.
- At most `pipelined_max` requests wait for the one before them, and nothing is read meanwhile.
- What comes after the body is not a header: a proxy before us has not looked at it.
- Whatever is not HTTP is answered in the one shape of errors, and ends the connection.
"""

from __future__ import annotations

import asyncio
import resource
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .. import logs
from ..errors import InvalidRequest, TabherdError
from .head import Head
from .reply import CLOSE, refusal, traced

log = logs.get_logger("connection")

# How often those that wait are looked at.
SWEEP_S: Final = 1.0
# What one byte of a body may have around it: a chunk of one byte has five, and may have a short extension.
OVERHEAD_PER_BYTE: Final = 16

# So many may wait whatever the process may open.
WAITING_MIN: Final = 256


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection may cost."""

    # Request line and headers together.
    head_max_bytes: int = 64 << 10
    # How long a head may take, and a body may take to begin.
    head_limit_s: float = 20.0
    # The least that a body must bring on average.
    body_bytes_per_s: int = 1_024
    # Connections that wait for the rest of a request, or for the next.
    waiting_max: int = 4_096
    # Requests that were sent before the one ahead of them was answered.
    pipelined_max: int = 128


DEFAULT_LIMITS: Final = Limits()


class Connections:
    """Those of one server that owe us the rest of a request; also what makes them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        # In the order in which they began to wait.
        self._waiting: dict[Connection, None] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    def protocol(self, *, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> Connection:
        """What uvicorn hands a new connection to (its `http` setting)."""
        return Connection(self, config=config, server_state=server_state, app_state=app_state, _loop=_loop)

    @property
    def waiting(self) -> int:
        """How many there are."""
        return len(self._waiting)

    def wait_for(self, connection: Connection) -> None:
        """It owes us something from now on; what it owed before is another thing."""
        self._waiting.pop(connection, None)
        if len(self._waiting) >= self.limits.waiting_max:
            next(iter(self._waiting)).cut("too many connections wait")
        self._waiting[connection] = None
        if self._sweeping is None:
            self._sweep_later()

    def settle(self, connection: Connection) -> None:
        """It owes us nothing, or is gone."""
        self._waiting.pop(connection, None)

    def _sweep_later(self) -> None:
        self._sweeping = asyncio.get_running_loop().call_later(min(SWEEP_S, self.limits.head_limit_s), self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        now = asyncio.get_running_loop().time()
        for connection in [*self._waiting]:
            connection.check_patience(now)
        if self._waiting:
            self._sweep_later()


class Connection(HttpToolsProtocol):
    """One connection, from its first byte to its last or to its upgrade."""

    def __init__(self, connections: Connections, **parts: Any) -> None:
        super().__init__(**parts)
        self._all = connections
        self._limits = connections.limits
        # Whether a head has begun that is not complete, and a body.
        self._is_in_head = False
        self._is_in_body = False
        # Whether a request was completed by the piece that came last; so that not all of it is the next one's.
        self._has_ended_one = False
        # Of the present head: the pieces that were nothing else.
        self._head_bytes = 0
        # Of the present body: its data, and what is around it.
        self._body_bytes = 0
        self._overhead_bytes = 0
        # When it began to owe us what it owes; paused time is added.
        self._since = 0.0
        self._looked_at = 0.0
        # Whether nothing that it sends is looked at any more.
        self._is_over = False

    # --- The transport ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._owe()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.settle(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        self._unset_keepalive_if_required()
        was_in_head, was_in_body, had = self._is_in_head, self._is_in_body, self._body_bytes
        self._has_ended_one = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._upgrade()
            return
        except httptools.HttpParserError as error:
            # What a callback raised to refuse it, or the parser's own opinion.
            cause = error.__context__
            known = cause if isinstance(cause, TabherdError) else _not_http()
            self._refuse(known)
            return
        if self._is_in_head and not self._has_ended_one:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.head_max_bytes:
                self._refuse(_head_too_large(self._limits))
                return
        elif self._is_in_body and was_in_body:
            self._overhead_bytes += len(data) - (self._body_bytes - had)
            if self._overhead_bytes > self._limits.head_max_bytes + OVERHEAD_PER_BYTE * self._body_bytes:
                self._refuse(_head_too_large(self._limits))
                return
        self._reckon(was_waiting=was_in_head or was_in_body)

    # --- The parser -------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head = True
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._limits.head_max_bytes:
            raise _head_too_large(self._limits)
        if len(self.pipeline) >= self._limits.pipelined_max:
            raise InvalidRequest("Too many requests were sent ahead of their answers.", field="request")
        _check_target(self.url, self.headers)
        self._is_in_head = False
        self._is_in_body = True
        self._body_bytes = self._overhead_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_body = False
        self._has_ended_one = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self.pipeline:
            # uvicorn reads on after each answer, so that the line would grow faster than it is served.
            self.flow.pause_reading()
        elif not (self._is_in_head or self._is_in_body):
            self._owe()

    # --- What it owes -----------------------------------------------------------------------------------------------

    def _reckon(self, *, was_waiting: bool) -> None:
        """Whether it owes us something after what came."""
        if self._is_in_head or self._is_in_body:
            if not was_waiting or (self._is_in_body and not self._body_bytes):
                # A head has begun, or is there and has a body.
                self._owe()
        elif self.cycle is not None and not self.cycle.response_complete:
            self._all.settle(self)
        elif was_waiting:
            # The rest of a body whose request was answered without it. Empty lines, on the other hand, buy no time.
            self._owe()

    def _owe(self) -> None:
        self._since = self._looked_at = self.loop.time()
        self._all.wait_for(self)

    def check_patience(self, now: float) -> None:
        """End it if it is too slow. One that is idle between requests is uvicorn's to end."""
        if self.timeout_keep_alive_task is not None:
            return
        if self.flow.read_paused:
            self._since += now - self._looked_at
        self._looked_at = now
        limit_s = self._limits.head_limit_s
        if self._is_in_body:
            limit_s += self._body_bytes / self._limits.body_bytes_per_s
        if now - self._since > limit_s:
            self.cut("too slow")

    def cut(self, reason: str) -> None:
        """End it without an answer; whoever is that slow, or one of so many, waits for none."""
        log.debug("connection cut", reason=reason)
        self._is_over = True
        self._all.settle(self)
        self.transport.abort()

    # --- The ends ---------------------------------------------------------------------------------------------------

    def _upgrade(self) -> None:
        """A socket is the business of others; no other protocol is spoken here."""
        self._all.settle(self)
        if self._should_upgrade():
            if self.cycle is not None and not self.cycle.response_complete:
                self._refuse(InvalidRequest("An upgrade cannot be asked for ahead of an answer.", field="Upgrade"))
                return
            if any(name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
                   for name, value in self.headers):  # fmt: skip
                self._refuse(InvalidRequest("An upgrade has no body.", field="Content-Length"))
                return
            self._is_over = True
            self.handle_websocket_upgrade()
        else:
            # It is answered as if it had not asked. What it sends next would be in a protocol that we do not speak.
            self._is_over = True
            self.cycle.keep_alive = False

    def _refuse(self, error: TabherdError) -> None:
        """Answer what is no request and end the connection; without a word where that would answer another request."""
        self._is_over = True
        self._all.settle(self)
        log.debug("refused a connection", error=error.message)
        if self.transport.is_closing():
            return
        is_busy = self.cycle is not None and not self.cycle.response_complete
        if self.pipeline or (is_busy and (self.cycle.response_started or not self._is_in_body)):
            self.transport.abort()
            return
        reply, head = refusal(error), Head(())
        lines = [b"HTTP/1.1 %d %s" % (reply.status, HTTPStatus(reply.status).phrase.encode())]
        lines += [b"%s: %s" % field for field in (*reply.headers, *traced(head), *CLOSE)]
        lines.append(b"content-length: %d" % len(reply.body))
        self.transport.write(b"\r\n".join([*lines, b"", reply.body]))
        self.transport.close()


def limits_here() -> Limits:
    """The limits for this process: half of the files that it may have open can be connections that say nothing."""
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Limits(waiting_max=max(files_max // 2, WAITING_MIN))


def _check_target(target: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    """A whole address as the target must be that of Host: only one of them is ever looked at."""
    if target[:1] in (b"/", b"*"):
        return
    try:
        named = urlsplit(target.decode("ascii")).netloc.encode("ascii")
    except ValueError:
        raise _not_http() from None
    if [named] != [value for name, value in headers if name == b"host"]:
        raise InvalidRequest("The target names another host than Host does.", field="Host")


def _head_too_large(limits: Limits) -> InvalidRequest:
    error = InvalidRequest(
        f"The request line and its headers are larger than {limits.head_max_bytes} bytes.",
        action="Send fewer or shorter headers.",
        field="headers",
        cap=limits.head_max_bytes,
    )
    error.status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    return error


def _not_http() -> InvalidRequest:
    return InvalidRequest("This is not a request of HTTP/1.1.", action="Speak plain HTTP/1.1.", field="request")
