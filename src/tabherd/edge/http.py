"""The ASGI application: one request in, one answer out, along the route table.

The order is fixed: address, route, credential, scope, query, body, handler. Whatever goes wrong is answered as the
one error shape; an exception that is none of ours is a bug: it is logged with the request's id and answered with
`internal_error`, a code that is deliberately not in the catalogue. A client that leaves while its handler waits
cancels the handler, so that nothing is granted to nobody. The path from bytes to handler is kept short, since every
request takes it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Awaitable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.types import Receive, Scope, Send

from .. import logs
from ..errors import BodyTooLarge, MethodNotAllowed, TabherdError, Unauthenticated
from . import openapi
from .auth import ANONYMOUS, Guard
from .head import Head
from .route import EVENT_STREAM, JSON, Call, Endpoint, Raw, Route, RouteTable, Service, Stream, headers_of
from .routes import ROUTES

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..broker.events import EventBus
    from ..config import Config
    from ..metrics import Metrics

log = logs.get_logger("edge")

# What a retry waits for when whoever refused did not say: the contract is that 429 and 503 always do.
RETRY_AFTER_DEFAULT_MS: Final = 1_000
_COMMON: Final = headers_of({"cache-control": "no-store", "x-content-type-options": "nosniff"})
_AS_JSON: Final = headers_of({"content-type": JSON})
_AS_EVENTS: Final = headers_of({"content-type": EVENT_STREAM})
_CLOSE: Final = headers_of({"connection": "close"})
_CHALLENGE: Final = headers_of({"www-authenticate": "Bearer"})
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


class ClientLeft(Exception):
    """There is nobody to answer."""


class Reply(msgspec.Struct, frozen=True):
    """An answer, ready to be sent."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]


def create_app(
    *,
    config: Config,
    broker: Broker,
    events: EventBus,
    metrics: Metrics,
    node_id: str,
    version: str,
    port: int,
    routes: Sequence[Route] = ROUTES,
) -> App:
    """The application of one server, which listens on that port."""
    service = Service(
        broker=broker,
        events=events,
        metrics=metrics,
        openapi=openapi.render(routes, version),
        node_id=node_id,
        version=version,
    )
    return App(service, Guard(config, port, broker.credentials), config.server.body_max_bytes, routes)


class App:
    """One server's HTTP interface."""

    def __init__(self, service: Service, guard: Guard, body_max_bytes: int, routes: Sequence[Route]) -> None:
        self._service = service
        self._guard = guard
        self._body_max_bytes = body_max_bytes
        self._table = RouteTable(routes)
        # Whether each request is logged; asked once, because asking costs as much as routing does.
        self._is_verbose = log.is_enabled_for(logging.DEBUG)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "the server is set up for HTTP alone"
        started = time.perf_counter()
        head = Head(scope["headers"])
        name = "unmatched"
        try:
            self._guard.check_address(head, scope["server"])
            endpoint, parameter = self._table.find(scope["method"], scope["raw_path"].decode("latin-1"))
            name = endpoint.name
            answer = await self._answer(endpoint, parameter, head, scope, receive)
            if isinstance(answer, Stream):
                await self._send_stream(answer, head, scope, receive, send)
                return
            reply = _reply(endpoint.route.status, answer)
        except ClientLeft:
            log.debug("client left", route=name)
            return
        except TabherdError as error:
            self._service.metrics.rejected_total.labels(error.code).inc()
            reply = _refusal(error)
        except Exception:
            log.exception("bug: unexpected exception", route=name, requestId=head.request_id.decode())
            reply = _bug(head)
        seconds = time.perf_counter() - started
        self._service.metrics.http_request_seconds.observe(name, reply.status, seconds)
        if self._is_verbose:
            log.debug("request", route=name, status=reply.status, seconds=seconds)
        await _send(reply, head, scope, send)

    async def _answer(self, endpoint: Endpoint, parameter: str, head: Head, scope: Scope, receive: Receive) -> Any:
        """Authenticate, decode, and run the handler."""
        route = endpoint.route
        caller = ANONYMOUS
        if route.scope is not None:
            caller = await self._guard.identify(head, scope["client"])
            if route.scope != "any":
                caller.require(route.scope)
        logs.bind(requestId=head.request_id.decode(), agentId=caller.agent_id)
        query = None if endpoint.query is None else endpoint.query.decode(scope["query_string"])
        body = None if endpoint.body is None else endpoint.body.decode(await self._read_body(head, receive))
        call = Call(caller=caller, head=head, id=parameter, body=body, query=query)
        work = route.handler(self._service, call)
        if not route.waits:
            return await work
        answer, is_gone = await _while_connected(work, receive)
        if is_gone:
            if isinstance(answer, Stream):
                answer.close()
            elif answer is not None and route.undo is not None:
                await route.undo(self._service, call, answer)
            raise ClientLeft
        return answer

    async def _read_body(self, head: Head, receive: Receive) -> bytes | bytearray:
        """The whole body, or `BodyTooLarge` as soon as that is certain."""
        declared = head.content_length
        if declared is not None and declared.isdigit() and int(declared[:20]) > self._body_max_bytes:
            raise self._too_large()
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft
            chunk: bytes = message.get("body", b"")
            if len(body) + len(chunk) > self._body_max_bytes:
                raise self._too_large()
            is_last = not message.get("more_body", False)
            if is_last and not body:
                return chunk
            body += chunk
            if is_last:
                return body

    def _too_large(self) -> BodyTooLarge:
        cap = self._body_max_bytes
        return BodyTooLarge(f"The body is larger than {cap} bytes.", field="body", cap=cap)

    async def _send_stream(self, stream: Stream, head: Head, scope: Scope, receive: Receive, send: Send) -> None:
        async def pump() -> None:
            async with aclosing(stream.chunks) as chunks:
                async for chunk in chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})

        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*_traced(head), *_AS_EVENTS]})
            if scope["method"] != "HEAD":
                await _while_connected(pump(), receive)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            stream.close()


async def _while_connected(work: Awaitable[Any], receive: Receive) -> tuple[Any, bool]:
    """What the work answers, and whether the client was gone by then. A client that leaves cancels the work."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        is_gone = leaving.done()
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            # It may have to put things back first; only then is it over.
            await asyncio.wait((working,))
    if working.cancelled():
        return None, is_gone
    if is_gone and (error := working.exception()) is not None:
        log.debug("handler ended after its client had left", error=repr(error))
        return None, is_gone
    return working.result(), is_gone


async def _left(receive: Receive) -> None:
    """Returns when the client is gone; what it still sends meanwhile is of no interest."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _reply(status: int, answer: Any) -> Reply:
    if isinstance(answer, Raw):
        return Reply(status, answer.body, answer.headers)
    if answer is None:
        return Reply(status, b"", ())
    try:
        return Reply(status, _encode(answer), _AS_JSON)
    except UnicodeEncodeError:
        # A page may hand out half of a surrogate pair: JSON can carry it escaped, UTF-8 cannot.
        return Reply(status, json.dumps(msgspec.to_builtins(answer, enc_hook=str)).encode(), _AS_JSON)


def _refusal(error: TabherdError) -> Reply:
    """An error as HTTP. An instance may carry another `status` than its class, e.g. 503 for a full acquire queue."""
    if error.retry_after_ms is None and error.status in (429, 503):
        error.retry_after_ms = RETRY_AFTER_DEFAULT_MS
    headers = _AS_JSON
    if error.retry_after_ms is not None:
        headers += headers_of({"retry-after": str(math.ceil(error.retry_after_ms / 1000))})
    if isinstance(error, MethodNotAllowed):
        headers += headers_of({"allow": ", ".join(error.details["allow"])})
    elif isinstance(error, Unauthenticated):
        headers += _CHALLENGE
    elif isinstance(error, BodyTooLarge):
        # The rest of the body was not read: the connection cannot be used again.
        headers += _CLOSE
    return Reply(error.status, _reply(0, error.to_wire()).body, headers)


def _bug(head: Head) -> Reply:
    request_id = head.request_id.decode()
    body = {
        "code": "internal_error",
        "message": "tabherd has a bug; the request may or may not have taken effect.",
        "retryable": False,
        "action": f"Report it with the log lines that have requestId {request_id}.",
        "details": {"requestId": request_id},
    }
    return Reply(500, _encode(body), _AS_JSON)


def _traced(head: Head) -> tuple[tuple[bytes, bytes], ...]:
    return (*_COMMON, (b"x-request-id", head.request_id), (b"traceparent", head.traceparent))


async def _send(reply: Reply, head: Head, scope: Scope, send: Send) -> None:
    headers = [*reply.headers, *_traced(head)]
    if reply.status != 204:
        headers.append((b"content-length", b"%d" % len(reply.body)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else reply.body})
