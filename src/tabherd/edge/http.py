"""The ASGI application: one request in, one answer out, along the route table.

The order is fixed: address, route, credential, scope, query, body, handler. Whatever goes wrong is answered as the
one error shape; an exception that is none of ours is a bug: it is logged with the request's id and answered with
`internal_error`, a code that is deliberately not in the catalogue. A client that leaves while its handler waits
cancels the handler, so that nothing is granted to nobody. The path from bytes to handler is kept short, since every
request takes it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import httpx
from starlette.types import Receive, Scope, Send

from .. import logs
from ..broker.settings import Settings
from ..config_layers import Layers
from ..errors import TabherdError
from . import control, openapi
from .auth import ANONYMOUS, Guard
from .body import ClientLeft, read_body
from .cdp.endpoint import CdpEndpoint
from .cdp.tickets import KEY_BYTES, Tickets
from .control import ControlChannel
from .head import Head
from .mcp import McpSessions
from .reload import Reload
from .reply import Reply, bug, refusal, success, traced
from .route import Call, Endpoint, Passed, Route, RouteTable, Service, Stream
from .routes import ROUTES
from .upgrade import Doors

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..broker.events import EventBus
    from ..config import Config
    from ..metrics import Metrics

log = logs.get_logger("edge")


def create_app(
    *,
    config: Config,
    broker: Broker,
    events: EventBus,
    metrics: Metrics,
    node_id: str,
    version: str,
    port: int,
    ticket_key: bytes | None = None,
    reload: Reload | None = None,
    routes: Sequence[Route] = ROUTES,
    clock: Callable[[], float] = time.monotonic,
) -> App:
    """The application of one server, which listens on that port. Without a key, tickets are good for its life only."""
    guard = Guard(config, port, broker.credentials)
    tickets = Tickets(ticket_key or secrets.token_bytes(KEY_BYTES))
    cdp = CdpEndpoint(config=config, broker=broker, guard=guard, metrics=metrics, tickets=tickets, port=port)
    # Its sessions call this very application, which is made last.
    mcp = McpSessions(config.server, lambda name: httpx.ASGITransport(app, client=(name, 0)), port, clock=clock)
    service = Service(
        cdp=cdp,
        mcp=mcp,
        broker=broker,
        # One that was given its settings by hand has no file to follow.
        reload=reload or Reload(Settings(config), Layers(), events),
        events=events,
        metrics=metrics,
        openapi=openapi.render(routes, version),
        node_id=node_id,
        version=version,
    )
    channel = ControlChannel(service=service, guard=guard, config=config)
    doors = Doors(guard, metrics, {control.PATH: channel.admit, **cdp.doors})
    app = App(service, guard, doors, config.server.body_max_bytes, routes)

    def follow(_: Config, new: Config) -> None:
        for part in (guard, cdp, mcp, channel, app):
            part.reconfigure(new)

    service.reload.settings.subscribe(follow)
    return app


class App:
    """One server's HTTP interface, and the sockets that it offers."""

    def __init__(
        self, service: Service, guard: Guard, doors: Doors, body_max_bytes: int, routes: Sequence[Route]
    ) -> None:
        self.doors = doors
        self.mcp = service.mcp
        self._service = service
        self._guard = guard
        self._body_max_bytes = body_max_bytes
        self._table = RouteTable(routes)
        # Whether each request is logged; asked once, because asking costs as much as routing does.
        self._is_verbose = log.is_enabled_for(logging.DEBUG)

    def reconfigure(self, config: Config) -> None:
        """Take bodies as large as these settings allow."""
        self._body_max_bytes = config.server.body_max_bytes

    async def close(self) -> None:
        """End what would otherwise outlast the last request. Idempotent."""
        await self.mcp.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "the server is set up for HTTP alone"
        started = time.perf_counter()
        head = Head(scope["headers"])
        name = "unmatched"
        try:
            self._guard.check_address(head, scope["server"])
            endpoint, parameters = self._table.find(scope["method"], scope["raw_path"].decode("latin-1"))
            name = endpoint.name
            answer = await self._answer(endpoint, parameters, head, scope, receive)
            if isinstance(answer, Stream):
                await self._send_stream(answer, head, scope, receive, send)
                return
            if isinstance(answer, Passed):
                await answer.serve(scope, receive, send)
                return
            reply = success(endpoint.route.status, answer)
        except ClientLeft:
            log.debug("client left", route=name)
            return
        except TabherdError as error:
            self._service.metrics.rejected_total.inc(error.code)
            reply = refusal(error)
        except Exception:
            log.exception("bug: unexpected exception", route=name, requestId=head.request_id.decode())
            reply = bug(head)
        seconds = time.perf_counter() - started
        self._service.metrics.http_request_seconds.observe(seconds, name, str(reply.status))
        if self._is_verbose:
            log.debug("request", route=name, status=reply.status, seconds=seconds)
        await _send(reply, head, scope, send)

    async def _answer(
        self, endpoint: Endpoint, parameters: tuple[str, ...], head: Head, scope: Scope, receive: Receive
    ) -> Any:
        """Authenticate, decode, and run the handler."""
        route = endpoint.route
        caller = ANONYMOUS
        if route.scope is not None:
            token = endpoint.token_of(scope["query_string"])
            caller = await self._guard.identify(head, scope["client"], token)
            if route.scope != "any":
                caller.require(route.scope)
        logs.bind(requestId=head.request_id.decode(), agentId=caller.agent_id)
        query = None if endpoint.query is None else endpoint.query.decode(scope["query_string"])
        body = (
            None
            if endpoint.body is None
            else endpoint.body.decode(await read_body(head, receive, self._body_max_bytes))
        )
        id, name, *_ = (*parameters, "", "")
        pieces = _pieces(receive) if route.takes_file else None
        call = Call(caller=caller, head=head, id=id, name=name, body=body, query=query, pieces=pieces)
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

    async def _send_stream(self, stream: Stream, head: Head, scope: Scope, receive: Receive, send: Send) -> None:
        async def pump() -> None:
            async with aclosing(stream.chunks) as chunks:
                async for chunk in chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})

        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*traced(head), *stream.headers]})
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


async def _pieces(receive: Receive) -> AsyncIterator[bytes]:
    """The body as it comes in; the client is not heeded before what came is taken away."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        if piece := message.get("body", b""):
            yield piece
        if not message.get("more_body", False):
            return


async def _left(receive: Receive) -> None:
    """Returns when the client is gone; what it still sends meanwhile is of no interest."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(reply: Reply, head: Head, scope: Scope, send: Send) -> None:
    headers = [*reply.headers, *traced(head)]
    if reply.status != 204:
        headers.append((b"content-length", b"%d" % len(reply.body)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else reply.body})
