"""A forward proxy for HTTP/1.1 and CONNECT that reaches what a policy allows, and answers 403 for the rest.

Invariants:
- No byte of a request leaves before its host has been judged, and each request on a kept connection is judged anew.
- A kept connection to an origin serves that host and port only, and only requests that are harmless when sent again.
- Everything is bounded: connections, heads, time without a sign of life.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, Literal

import msgspec
import structlog

from ..errors import InvalidRequest, NavigationFailed, PolicyDenied, TabherdError
from .dial import Dialer, Resolve, unreachable
from .head import BadHead, Request, Response, Target, read_request, read_response
from .line import Line, Reader, copy_body, tunnel
from .policy import Judge, Policy

log = structlog.get_logger(__name__)

# Connections of one pool's browsers. A context has 32 at the most.
CONNECTIONS_MAX: Final = 4_096
# How long a client may take for its next request.
NEXT_REQUEST_S: Final = 120.0
# Longest silence in the middle of something: somebody may well wait that long for an answer.
IDLE_S: Final = 3_600.0
# Answers before the answer.
INTERIM_MAX: Final = 10
# Hosts whose refusal has been logged and is not logged again.
TOLD_MAX: Final = 1_000
# Requests that may be sent twice, when a kept connection turns out to be closed.
_REPEATABLE: Final = frozenset((b"GET", b"HEAD", b"OPTIONS"))
_REASONS: Final = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway", 503: "Service Unavailable"}
_CONNECTED: Final = b"HTTP/1.1 200 Connected\r\n\r\n"


class Proxy:
    """What the browsers of one pool connect to."""

    def __init__(
        self, judge: Judge, resolve: Resolve, *, pool: str = "", connections_max: int = CONNECTIONS_MAX
    ) -> None:
        self._dialer = Dialer(judge, resolve)
        # For the log.
        self._pool = pool
        self._connections_max = connections_max
        self._connections = 0
        self._told: set[str] = set()

    async def serve(self, listener: socket.socket) -> asyncio.Server:
        """Accept connections on this socket from now on."""
        loop = asyncio.get_running_loop()

        def accept() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(Reader(loop), self._converse, loop=loop)

        return await loop.create_server(accept, sock=listener)

    async def connect(self, target: Target) -> Line:
        """A connection to that host, if it may be; refusals are logged, each host once."""
        try:
            return await self._dialer.connect(target.host, target.port)
        except PolicyDenied as refusal:
            host = refusal.details["host"]
            if host not in self._told:
                if len(self._told) >= TOLD_MAX:
                    self._told.clear()
                self._told.add(host)
                log.info("a host was refused", pool=self._pool, host=host, reason=refusal.details["reason"])
            raise

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, Reader)
        client = Line(reader, writer)
        if self._connections >= self._connections_max:
            busy = NavigationFailed("The pool's proxy has as many connections as it may have.", retryable=True)
            busy.status = 503
            _answer(client, busy)
            writer.close()
            return
        is_answered = True
        self._connections += 1
        try:
            await _Conversation(self, client).run()
            is_answered = False
        except BadHead as error:
            _answer(client, InvalidRequest(str(error), field="request"))
        except (PolicyDenied, NavigationFailed) as error:
            _answer(client, error)
        except (OSError, EOFError, TimeoutError):
            # One of the two sides went away, or has been silent for too long.
            is_answered = False
            client.abort()
        finally:
            try:
                await client.close(is_answered=is_answered)
            finally:
                self._connections -= 1


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What a proxy process is told when it starts."""

    # By pool: the descriptor of its listening socket, and its policy.
    pools: dict[str, tuple[int, Policy]]
    log_format: Literal["auto", "json", "console"] = "auto"
    log_level: str = "info"


class _Conversation:
    """The requests of one client connection, in turn, and the connection to the origin that the last one left open."""

    def __init__(self, proxy: Proxy, client: Line) -> None:
        self._proxy = proxy
        self._client = client
        self._kept: Line | None = None
        self._kept_for: tuple[object, int] | None = None

    async def run(self) -> None:
        """Until the client or an answer ends it. What cannot be answered by an origin is raised."""
        try:
            is_over = False
            while not is_over:
                async with asyncio.timeout(NEXT_REQUEST_S):
                    raw = await self._client.read_head()
                if not raw:
                    return
                request = read_request(raw)
                if request.is_tunnel:
                    await self._tunnel(request)
                    return
                is_over = await self._exchange(request)
        finally:
            self._drop_kept()

    async def _tunnel(self, request: Request) -> None:
        origin = await self._proxy.connect(request.target)
        try:
            await self._client.send(_CONNECTED)
            await tunnel(self._client, origin, IDLE_S)
        except* (OSError, TimeoutError):
            # One side was cut off, or neither says anything any more.
            self._client.abort()
            origin.abort()
        finally:
            await origin.close(is_answered=False)

    async def _exchange(self, request: Request) -> bool:
        """One request and its answer; whether the client's connection ends with it."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(IDLE_S) as idle:

            def alive() -> None:
                idle.reschedule(loop.time() + IDLE_S)

            kept = self._take_kept(request)
            if kept is not None:
                try:
                    return await self._talk(kept, request, alive)
                except _Unanswered:
                    # It was closed while nobody looked.
                    kept.abort()
            origin = await self._proxy.connect(request.target)
            try:
                return await self._talk(origin, request, alive)
            except _Unanswered as error:
                origin.abort()
                raise unreachable(f"{request.target.host} {error}") from None
            except BaseException:
                origin.abort()
                raise

    async def _talk(self, origin: Line, request: Request, alive: Callable[[], None]) -> bool:
        client = self._client
        upload: asyncio.Task[None] | None = None
        client.reader.when_ended(origin.abort)
        try:
            origin.writer.write(request.onward())
            if not request.body.is_empty:
                upload = asyncio.create_task(copy_body(request.body, client, origin, alive))
                upload.add_done_callback(lambda done: None if _is_complete(done) else origin.abort())
            response = await self._response(origin, request)
            is_last = response.body.is_endless or not request.may_reuse or not _is_complete(upload)
            client.writer.write(response.onward(is_last=is_last))
            try:
                await copy_body(response.body, origin, client, alive)
            except BadHead as error:
                # The client has the head already: only the end of its connection tells it that this went wrong.
                raise EOFError(str(error)) from None
            await client.writer.drain()
        finally:
            client.reader.when_ended(None)
            if upload is not None:
                upload.cancel()
        if is_last or not response.may_reuse:
            await origin.close(is_answered=False)
        else:
            self._kept, self._kept_for = origin, (request.target.host, request.target.port)
        return is_last

    async def _response(self, origin: Line, request: Request) -> Response:
        """The head of the answer; what comes before it (103, say) is passed on."""
        for _ in range(INTERIM_MAX):
            try:
                raw = await origin.read_head()
                if not raw:
                    raise _Unanswered("ended the connection without an answer.")
                response = read_response(raw, request.method)
            except OSError:
                raise _Unanswered("cut the connection.") from None
            except BadHead as error:
                raise unreachable(str(error)) from None
            if not response.is_interim:
                return response
            await self._client.send(response.onward(is_last=False))
        raise unreachable(f"{request.target.host} does not come to an answer.")

    def _take_kept(self, request: Request) -> Line | None:
        """The connection that was kept, if it serves this request; if not, it is of no more use."""
        is_fit = request.method in _REPEATABLE and request.body.is_empty
        if is_fit and self._kept is not None and self._kept_for == (request.target.host, request.target.port):
            kept, self._kept = self._kept, None
            if not kept.is_over:
                return kept
            kept.abort()
        self._drop_kept()
        return None

    def _drop_kept(self) -> None:
        if self._kept is not None:
            self._kept.abort()
            self._kept = None


class _Unanswered(Exception):
    """The origin went away before it said anything."""


def _is_complete(upload: asyncio.Task[None] | None) -> bool:
    """Whether all of a request's body has been passed on."""
    return upload is None or (upload.done() and not upload.cancelled() and upload.exception() is None)


def _answer(client: Line, error: TabherdError) -> None:
    """Answer in the origin's stead, for the last time on this connection."""
    body = msgspec.json.encode(error.to_wire())
    head = (
        f"HTTP/1.1 {error.status} {_REASONS[error.status]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    client.writer.write(head.encode("ascii") + body)
