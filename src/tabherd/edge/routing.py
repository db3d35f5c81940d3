"""From a request to the node that can answer it, in one hop at the most.

Invariants:
- A request that another node has passed on is answered here or turned back (421), never passed on: no loops.
- One that was turned back is passed on once more, to where the row says it is by then; what moves faster than that is
  told to come again.
- What a node says about a request that it passes on is believed only if it is signed with the cluster's key.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.types import Receive, Scope, Send

from .. import wire
from ..broker.broker import Broker
from ..broker.ids import epoch_of_command
from ..cluster.elsewhere import Elsewhere
from ..cluster.hop import MISDIRECTED_HEADER, Hop, verify
from ..cluster.peer import Peer
from ..cluster.places import Kind, Places
from ..errors import NodeUnreachable, ResourceNotFound
from .everywhere import Merge, ask_all, credentials_of, merge_tabs
from .forward.failures import RETRY_AFTER_MS
from .forward.request import Fields, target_of
from .head import Head
from .joining import Joined
from .reply import Reply

# How often a request is passed on: to where it was, and to where it is.
HOPS_TRIED_MAX: Final = 2
# To whoever passed on a request for what is not here.
MISDIRECTED: Final = Reply(421, b"", ((MISDIRECTED_HEADER, b"1"),))


class Routing:
    """The ways from this node to the others."""

    def __init__(self, place: Joined, places: Places) -> None:
        self.links = place.links
        self._place = place
        self._places = places
        place.membership.on_change.append(self._forget_the_gone)

    def is_trusted(self) -> bool:
        """Whether this node may act on what it has."""
        return self._place.membership.is_trusted

    def hop_of(self, head: Head, method: str, target: bytes) -> Hop | None:
        """What another node says about the request; None: a client's own."""
        if head.hop is None:
            return None
        node = self._place.cluster.node
        now_ms = self._place.clock()
        return verify(self._place.hop_key, head.hop, method=method, target=target, node_id=node.id, now_ms=now_ms)

    def hop_of_scope(self, head: Head, scope: Scope) -> Hop | None:
        return None if head.hop is None else self.hop_of(head, scope["method"], target_of(scope))

    async def settle(self, kind: Kind, id: str, hop: Hop | None) -> None:
        """Return if it is answered here; else raise `Elsewhere`."""
        if hop is not None:
            # The other node has looked a moment ago: only what stands now counts.
            self._places.forget(kind, id)
        node_id = await self._places.node_of(kind, id)
        if node_id != self._place.cluster.node.id:
            raise Elsewhere(node_id)

    def peer(self, node_id: str) -> Peer:
        """How to reach that node; raises `NodeUnreachable` when it is not there."""
        peer = self._place.membership.peers.get(node_id)
        if peer is None:
            raise NodeUnreachable(
                "The node that has this is gone; its sessions are being recovered elsewhere.",
                retry_after_ms=RETRY_AFTER_MS,
                nodeId=node_id,
            )
        return peer

    async def forward(
        self,
        elsewhere: Elsewhere,
        head: Head,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        body: bytes | None,
    ) -> None:
        """Pass the request on; raises as `Links.forward` does."""
        await self.links.forward(
            self.peer(elsewhere.node_id),
            scope,
            receive,
            send,
            client=scope["client"],
            grant=elsewhere.grant,
            body=body,
            headers=trace_of(head),
        )

    def settle_epoch(self, epoch: int | None) -> None:
        """Return unless another node that lives has that epoch; then raise `Elsewhere`."""
        for peer in self._place.membership.peers.values():
            if peer.epoch == epoch:
                raise Elsewhere(peer.node_id)

    def settle_node(self, node_id: str | None, hop: Hop | None) -> None:
        """Return if that is this node, or none is named; else raise `Elsewhere`."""
        if node_id is None or node_id == self._place.cluster.node.id:
            return
        if hop is None and node_id not in self._place.membership.peers:
            raise ResourceNotFound("There is no such node.", action="GET /nodes lists them.", field="node")
        raise Elsewhere(node_id)

    async def merged(self, merge: Merge, mine: Any, answer: Any, head: Head, scope: Scope) -> Any:
        """What all nodes answer together."""
        peers = [*self._place.membership.peers.values()]
        if not peers:
            return mine
        fields = credentials_of(head.authorization, head.agent_id, head.cookie, head.csrf)
        others, missing = await ask_all(self.links, peers, target_of(scope), fields, answer)
        return merge(mine, others, missing)

    async def all_tabs(self, mine: wire.TabList, authorization: bytes | None, agent_id: str) -> wire.TabList:
        """The tabs of that agent on all nodes."""
        peers = [*self._place.membership.peers.values()]
        fields = credentials_of(authorization, agent_id.encode("latin-1"))
        return merge_tabs(mine, *await ask_all(self.links, peers, b"/tabs", fields, wire.TabList))

    def forget_all(self) -> None:
        """Something was not where it was, and nobody here can tell what."""
        self._places.keep_only(())

    def forget(self, kind: Kind, id: str) -> None:
        """It is not where it was."""
        self._places.forget(kind, id)

    def _forget_the_gone(self) -> None:
        self._places.keep_only(self._place.membership.peers)


def trace_of(head: Head) -> Fields:
    """The ids under which the request is known on every node."""
    return ((b"x-request-id", head.request_id), (b"traceparent", head.traceparent))


def routing_of(place: Joined, broker: Broker) -> Routing:
    """The ways from a broker's node to the others."""

    def is_here(kind: Kind, id: str) -> bool:
        match kind:
            case "session":
                return broker.registry.session(id) is not None
            case "tab":
                # One that was closed here is known here, and why.
                return broker.registry.tab(id) is not None or broker.registry.ended(id) is not None
            case "command":
                return epoch_of_command(id) == broker.node.epoch
            case "browser":
                return broker.operations.has_browser(id)

    places = Places(
        node=broker.node,
        store=place.store,
        membership=place.membership,
        is_here=is_here,
        epoch_of=epoch_of_command,
    )
    return Routing(place, places)
