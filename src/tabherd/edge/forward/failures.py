"""How passing a request on can fail, and what its caller may conclude from it.

A connection that is lost before the answer began leaves three cases. Nothing, or not all, of the request was sent: a
node acts on whole requests only, so nothing happened. All was sent, and doing it twice does no more than doing it once
(GET, HEAD, PUT, DELETE): the caller may repeat it. All was sent and it is a POST or PATCH: it may have happened, and
only the caller can find out.
"""

from __future__ import annotations

from typing import Final

from ...cluster.peer import Peer
from ...errors import NodeUnreachable, OutcomeUnknown, TabherdError

# Methods that may be repeated without harm.
REPEATABLE: Final = frozenset({"GET", "HEAD", "PUT", "DELETE"})
# When to come again: by then the node is back, or declared dead and its sessions are being recovered.
RETRY_AFTER_MS: Final = 1_000


class Lost(Exception):
    """The connection to the other node is over, before its answer was; the message completes 'it does not answer:'.

    Private to this package: callers get one of the errors below.
    """


class WrongNode(Exception):
    """What was asked for is not there. Private to this package as well."""


class Misdirected(Exception):
    """The node that was asked has no such thing (any more), and did nothing. The caller looks up where it is and
    passes the request on anew, with this body.
    """

    def __init__(self, peer: Peer, body: bytes) -> None:
        super().__init__(f"node {peer.node_id} does not have it")
        self.peer = peer
        # The request's body, all of it: it was taken from the client and cannot be read again.
        self.body = body


class CutShort(Exception):
    """The other node was lost in the middle of its answer. Nothing can be said any more: return from the ASGI
    application without another word, and the server ends the client's connection, which is how HTTP tells it.
    """


def unreachable(peer: Peer, reason: str) -> NodeUnreachable:
    """Nothing happened there, or it may be repeated."""
    return NodeUnreachable(
        f"Node {peer.node_id} does not answer: {reason}.", retry_after_ms=RETRY_AFTER_MS, nodeId=peer.node_id
    )


def after_loss(peer: Peer, lost: Lost, method: str, *, is_sent: bool) -> TabherdError:
    """What the caller of a request is told whose connection was lost before its answer began."""
    if not is_sent or method in REPEATABLE:
        return unreachable(peer, str(lost))
    return OutcomeUnknown(
        f"Node {peer.node_id} was lost while it had the request: {lost}.",
        action="Find out whether it took effect before you repeat it.",
        nodeId=peer.node_id,
    )


def moved(peer: Peer) -> NodeUnreachable:
    """It is elsewhere by now, and the body was too large to be kept for a second try. Nothing happened."""
    return NodeUnreachable(
        f"What this is for has just left node {peer.node_id}.", retry_after_ms=RETRY_AFTER_MS, nodeId=peer.node_id
    )
