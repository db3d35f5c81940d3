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
from typing import TYPE_CHECKING, Any, Final

import httpx
from starlette.types import Receive, Scope, Send

from .. import logs
from ..broker.broker import wall_clock_ms
from ..broker.settings import Settings
from ..cluster.elsewhere import Elsewhere
from ..cluster.hop import Hop
from ..config_layers import Layers
from ..errors import Forbidden, NodeUnreachable, TabherdError
from . import control
from .auth import ANONYMOUS, Guard
from .body import ClientLeft, read_body
from .cdp.endpoint import CdpEndpoint
from .cdp.tickets import KEY_BYTES, Tickets
from .cluster_events import ClusterEvents
from .control import ControlChannel
from .forward.failures import RETRY_AFTER_MS, CutShort, Misdirected
from .head import Head
from .joining import Joined
from .live import LiveDoor
from .login import Logins
from .mcp import McpSessions
from .openapi import Description
from .passed_tasks import submitting_over
from .peer_events import PeerStreams
from .reload import Reload
from .reply import Reply, bug, refusal, success, traced
from .route import Call, Endpoint, Passed, Route, RouteTable, Service, Stream
from .routes import ROUTES
from .routing import HOPS_TRIED_MAX, MISDIRECTED, Routing, routing_of
from .upgrade import Doors

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..broker.caller import Caller
    from ..broker.events import EventBus
    from ..config import Config
    from ..metrics import Metrics

log = logs.get_logger("edge")

# Instead of an answer: another node has given it.
FORWARDED: Final = object()


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
    place: Joined | None = None,
    routes: Sequence[Route] = ROUTES,
    clock: Callable[[], float] = time.monotonic,
) -> App:
    """The application of one server, which listens on that port. Without a key, tickets are good for its life only."""
    routing = None if place is None else routing_of(place, broker)
    if routing is not None:
        broker.tasking.verbs.submission.submit_at = submitting_over(routing)
    key = ticket_key or secrets.token_bytes(KEY_BYTES)
    tickets = Tickets(key, clock=broker.clock)
    guard = Guard(config, port, broker.credentials, logins=Logins(key, clock=broker.clock))
    cdp = CdpEndpoint(
        config=config, broker=broker, guard=guard, metrics=metrics, tickets=tickets, port=port, routing=routing
    )
    # Its sessions call this very application, which is made last.
    mcp = McpSessions(
        config.server, guard, lambda name: httpx.ASGITransport(app, client=(name, 0)), port, events.epoch, clock=clock
    )
    cluster_events = None
    if place is not None:
        cluster_events = ClusterEvents(
            bus=events,
            peers=place.membership,
            open=PeerStreams(place.links).open,
            ring=config.server.events_ring,
            clock=place.clock,
        )
    service = Service(
        guard=guard,
        cdp=cdp,
        mcp=mcp,
        broker=broker,
        # One that was given its settings by hand has no file to follow.
        reload=reload or Reload(Settings(config), Layers(), events),
        events=events,
        metrics=metrics,
        routing=routing,
        cluster_events=cluster_events,
        openapi=Description(routes, version),
        node_id=node_id,
        version=version,
    )
    # Where there are several nodes they agree on the time, or one would take another's messages for old.
    channel = ControlChannel(
        service=service, guard=guard, config=config, clock=wall_clock_ms if place is None else place.clock
    )
    if place is not None:
        place.membership.on_change.append(channel.drop_the_gone)
    live = LiveDoor(broker=broker, guard=guard, metrics=metrics, routing=routing)
    doors = Doors(guard, metrics, {control.PATH: channel.admit, **cdp.doors, **live.doors}, routing)
    app = App(service, guard, doors, routing, config.server.body_max_bytes, routes)

    def follow(_: Config, new: Config) -> None:
        for part in (guard, cdp, mcp, channel, app):
            part.reconfigure(new)

    service.reload.settings.subscribe(follow)
    return app


class Request:
    """One request on its way through the application, and what has been read of it."""

    __slots__ = ("body", "hop", "receive", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        # What another node says that has passed it on.
        self.hop: Hop | None = None
        # All of it, once it was read.
        self.body: bytes | bytearray | None = None


class App:
    """One server's HTTP interface, and the sockets that it offers."""

    def __init__(
        self,
        service: Service,
        guard: Guard,
        doors: Doors,
        routing: Routing | None,
        body_max_bytes: int,
        routes: Sequence[Route],
    ) -> None:
        self.doors = doors
        self.mcp = service.mcp
        self._service = service
        self._guard = guard
        # The ways to other nodes; None: there are none.
        self._routing = routing
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
        if self._service.cluster_events is not None:
            await self._service.cluster_events.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "the server is set up for HTTP alone"
        started = time.perf_counter()
        head = Head(scope["headers"])
        name = "unmatched"
        request = Request(scope, receive)
        try:
            if self._routing is not None:
                request.hop = self._routing.hop_of_scope(head, scope)
            if request.hop is None:
                self._guard.check_address(head, scope["server"])
            endpoint, parameters = self._table.find(scope["method"], scope["raw_path"].decode("latin-1"))
            name = endpoint.name
            try:
                answer = await self._answer(endpoint, parameters, head, request)
            except Elsewhere as elsewhere:
                if request.hop is not None:
                    answer = MISDIRECTED
                else:
                    answer = await self._pass_on(elsewhere, endpoint, parameters, head, request, send)
            if answer is FORWARDED:
                seconds = time.perf_counter() - started
                self._service.metrics.http_request_seconds.observe(seconds, name, "forwarded")
                return
            if isinstance(answer, Stream):
                await self._send_stream(answer, head, scope, receive, send)
                return
            if isinstance(answer, Passed):
                await answer.serve(scope, receive, send)
                return
            reply = answer if isinstance(answer, Reply) else success(endpoint.route.status, answer)
        except (ClientLeft, CutShort):
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

    async def _pass_on(
        self,
        elsewhere: Elsewhere,
        endpoint: Endpoint,
        parameters: tuple[str, ...],
        head: Head,
        request: Request,
        send: Send,
    ) -> Any:
        """Have the node answer that has what the request is for; or the answer, if it has come here meanwhile."""
        routing = self._routing
        assert routing is not None, "only nodes of a cluster know of others"
        for _ in range(HOPS_TRIED_MAX):
            try:
                body = None if request.body is None else bytes(request.body)
                await routing.forward(elsewhere, head, request.scope, request.receive, send, body=body)
                return FORWARDED
            except Misdirected as misdirected:
                request.body = misdirected.body
            if endpoint.kind is not None:
                routing.forget(endpoint.kind, parameters[0])
            try:
                return await self._answer(endpoint, parameters, head, request)
            except Elsewhere as other:
                elsewhere = other
        raise NodeUnreachable("What was asked for moves from node to node.", retry_after_ms=RETRY_AFTER_MS)

    async def _answer(self, endpoint: Endpoint, parameters: tuple[str, ...], head: Head, request: Request) -> Any:
        """Authenticate, decode, and run the handler."""
        route, scope, receive, hop = endpoint.route, request.scope, request.receive, request.hop
        badge, caller = None, ANONYMOUS
        if route.scope is not None:
            token = endpoint.token_of(scope["query_string"])
            client = scope["client"] if hop is None else hop.client
            badge = await self._guard.welcome(head, client, token, is_counted=hop is None)
            caller = badge.caller
            if route.scope != "any":
                self._require(route, caller)
        logs.bind(requestId=head.request_id.decode(), agentId=caller.agent_id)
        if endpoint.kind is not None and self._routing is not None:
            await self._routing.settle(endpoint.kind, parameters[0], hop)
        query = None if endpoint.query is None else endpoint.query.decode(scope["query_string"])
        body = None
        if endpoint.body is not None:
            if request.body is None:
                request.body = await read_body(head, receive, self._body_max_bytes)
            body = endpoint.body.decode(request.body)
        id, name, *_ = (*parameters, "", "")
        pieces = _pieces(receive) if route.takes_file else None
        call = Call(
            caller=caller, badge=badge, head=head, hop=hop, id=id, name=name, body=body, query=query, pieces=pieces
        )
        work = route.handler(self._service, call)
        if not route.waits:
            answer = await work
            if route.merge is not None and self._routing is not None and hop is None:
                answer = await self._routing.merged(route.merge, answer, route.answer, head, scope)
            return answer
        if request.body is None:
            # What is received from here on says only whether the client is there: another node would wait for it.
            request.body = b""
        answer, is_gone = await _while_connected(work, receive)
        if is_gone:
            if isinstance(answer, Stream):
                answer.close()
            elif answer is not None and route.undo is not None:
                await route.undo(self._service, call, answer)
            raise ClientLeft
        return answer

    def _require(self, route: Route, caller: Caller) -> None:
        try:
            caller.require(route.scope or "")
        except Forbidden as error:
            if route.audited_as:
                self._service.broker.auditor.note(
                    agent_id=caller.agent_id,
                    controller_id=caller.controller_id,
                    verb=route.audited_as,
                    detail=error.code,
                )
            raise

    async def _send_stream(self, stream: Stream, head: Head, scope: Scope, receive: Receive, send: Send) -> None:
        async def pump() -> None:
            async with aclosing(stream.chunks) as chunks:
                async for chunk in chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})

        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*traced(head), *stream.headers]})
            if scope["method"] != "HEAD":
                chunks = pump() if stream.cut_short is None else _until(stream.cut_short(), pump(), send)
                await _while_connected(chunks, receive)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            stream.close()


async def _until(cut_short: Awaitable[bytes], pump: Awaitable[None], send: Send) -> None:
    """Pump until there is no more, or until it is cut short with a last chunk."""
    cutting, pumping = asyncio.ensure_future(cut_short), asyncio.ensure_future(pump)
    try:
        await asyncio.wait((cutting, pumping), return_when=asyncio.FIRST_COMPLETED)
        if not pumping.done():
            pumping.cancel()
            await asyncio.wait((pumping,))
            await send({"type": "http.response.body", "body": cutting.result(), "more_body": True})
        else:
            pumping.result()
    finally:
        cutting.cancel()
        pumping.cancel()


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
    headers = [*reply.headers, *traced(head, is_kept=reply.is_kept)]
    if reply.status not in (204, 304):
        headers.append((b"content-length", b"%d" % len(reply.body)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else reply.body})
