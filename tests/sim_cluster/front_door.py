"""How a client's request reaches the node that can answer it: the front door of `tabherd.edge.http`, without sockets.

The real routing decides; what is different is the way: a message to a server may be lost with it, a server that is
stopped answers late, and a connection between two nodes may break before or after the request has arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from tabherd.broker.broker import Broker
from tabherd.cluster.elsewhere import Elsewhere
from tabherd.cluster.places import Kind
from tabherd.edge.forward.failures import Lost, after_loss, unreachable
from tabherd.edge.routing import HOPS_TRIED_MAX
from tabherd.errors import NodeUnreachable

from .chance import on_behalf

if TYPE_CHECKING:
    from .node import Machine, NodeLife
    from .world import World

# What is called at the node that answers, with the place that it keeps for the caller, if it does.
Verb: TypeAlias = Callable[[Broker, str], Awaitable[Any]]
# How long a client waits for an answer before it gives up.
PATIENCE_S = 12.0
# How long a message between a client and a server, or two servers, takes.
WAY_S = 0.003
# How often a connection between two nodes breaks before, and after, a request has arrived.
LOST_RATE = 0.01


class ConnectionLost(Exception):
    """The server ended under its caller, or cannot be reached."""


class Misdirected(Exception):
    """The node that was asked does not have it."""


class Call:
    """One request."""

    def __init__(self, method: str, verb: Verb, kind: Kind | None = None, id: str = "") -> None:
        self.method = method
        self.verb = verb
        # What it is for, if that lives on one node.
        self.kind: Kind | None = kind
        self.id = id


class FrontDoor:
    """The doors of all nodes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pace = world.pace

    async def ask(self, machine: Machine, call: Call, leaves_after_s: float | None = None) -> Any:
        """A client's request at that machine; it is cancelled when the client leaves."""
        await asyncio.sleep(self._pace.random() * WAY_S)
        life = machine.current
        if machine.process.is_killed or life is None or life.is_over:
            raise ConnectionLost
        return await self._served(life, self._answer(life, call), leaves_after_s)

    async def _served(self, life: NodeLife, work: Any, leaves_after_s: float | None = None) -> Any:
        """What that server answers; `ConnectionLost` when it ends before."""
        request = life.process.spawn(self._settled(life, work), on_behalf(life.process.context))
        # A task that is cancelled before it began never looks at it.
        request.add_done_callback(lambda _: work.close())
        life.requests.add(request)
        request.add_done_callback(life.requests.discard)
        self._world.keep(request)
        ends = [request, life.process.death]
        try:
            await asyncio.wait(ends, timeout=leaves_after_s, return_when=asyncio.FIRST_COMPLETED)
            if not request.done() and not life.process.death.done():
                request.cancel()
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            request.cancel()
            raise
        if not request.done() or (request.cancelled() and life.is_over):
            raise ConnectionLost
        await asyncio.sleep(self._pace.random() * WAY_S)
        return request.result()

    async def _settled(self, life: NodeLife, work: Awaitable[Any]) -> Any:
        """Whoever comes while the broker starts waits until it knows what it is asked for."""
        await life.broker.has_settled.wait()
        return await work

    # --- At the node that was asked -------------------------------------------------------------------------

    async def _answer(self, life: NodeLife, call: Call) -> Any:
        try:
            return await self._answer_here(life, call, "", None)
        except Elsewhere as other:
            elsewhere = other
        for _ in range(HOPS_TRIED_MAX):
            try:
                return await self._forward(life, elsewhere, call)
            except Misdirected:
                pass
            if call.kind is not None:
                life.routing.forget(call.kind, call.id)
            try:
                return await self._answer_here(life, call, "", None)
            except Elsewhere as other:
                elsewhere = other
        raise NodeUnreachable("What was asked for moves from node to node.", retry_after_ms=1_000)

    async def _answer_here(self, life: NodeLife, call: Call, grant: str, hop: Any) -> Any:
        if call.kind is not None:
            await life.routing.settle(call.kind, call.id, hop)
        return await call.verb(life.broker, grant)

    async def _forward(self, life: NodeLife, elsewhere: Elsewhere, call: Call) -> Any:
        peer = life.routing.peer(elsewhere.node_id)
        machine = self._world.machines[peer.node_id]
        await asyncio.sleep(self._pace.random() * WAY_S)
        there = machine.current
        if (
            machine.process.is_killed
            or there is None
            or there.is_over
            or self._pace.strikes("request is lost", LOST_RATE)
        ):
            raise unreachable(peer, "connection refused")
        request = self._served(there, self._answer_passed(there, call, elsewhere.grant))
        answering = asyncio.ensure_future(request)
        self._world.keep(answering)
        dropped = self._dropped(life, peer)
        try:
            is_lost = self._pace.strikes("answer of a node is lost", LOST_RATE)
            limit_s = self._pace.random() * 0.05 if is_lost else None
            await asyncio.wait([answering, dropped], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise after_loss(peer, Lost("the connection was closed"), call.method, is_sent=True)
            return answering.result()
        except ConnectionLost:
            raise after_loss(peer, Lost("the connection was closed"), call.method, is_sent=True) from None
        finally:
            answering.cancel()
            dropped.cancel()

    async def _answer_passed(self, life: NodeLife, call: Call, grant: str) -> Any:
        """At the node that a request was passed on to: answered here or turned back."""
        try:
            return await self._answer_here(life, call, grant, "hop")
        except Elsewhere:
            raise Misdirected from None

    def _dropped(self, life: NodeLife, peer: Any) -> asyncio.Future[None]:
        """Done when that node is not what it was any more, as far as this one knows."""
        dropped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def look() -> None:
            if life.membership.peers.get(peer.node_id) != peer and not dropped.done():
                dropped.set_result(None)

        life.membership.on_change.append(look)
        dropped.add_done_callback(lambda _: life.membership.on_change.remove(look))
        return dropped
