"""Speaks HTTP with the other nodes: passes clients' requests on to them, and asks small questions of its own.

Invariants:
- Whatever fails before the answer began is raised as one typed error, and the client has been told nothing; see
  `failures` for what can be concluded from each.
- A request is sent twice only if reading it twice does nothing (GET and HEAD) and the connection was a kept one that
  ended before it said anything: such a connection had probably ended before the request was sent. For any other method
  nothing is known once the first byte is out; what can be known before, that the other side has closed, is looked at.
- There is no time limit on an answer, the other node has the deadlines; when that is dead, `drop` ends the waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

from ...cluster.hop import HOP_HEADER, Hop, sign
from ...cluster.peer import Peer
from ..auth import Address
from .failures import Lost, Misdirected, WrongNode, after_loss, moved
from .http_line import HttpLine
from .lines import Count, Lines, address_of
from .relay import Relay, as_chunk, gather
from .request import Fields, declared_length, passed_on, request_head, target_of

# Longest answer to a question.
ANSWER_MAX_BYTES: Final = 1 << 20
# Requests that change nothing, however often they are read.
_SAFE: Final = frozenset({"GET", "HEAD"})
_CHUNKED: Final = ((b"transfer-encoding", b"chunked"),)

T = TypeVar("T")


class Answer(msgspec.Struct, frozen=True):
    """What a node answered to a question; the headers' names are in lower case."""

    status: int
    headers: Fields
    body: bytes


class Links:
    """One node's links to the others."""

    def __init__(self, node_id: str, epoch: int, key: bytes, boot_id: str, clock: Callable[[], int]) -> None:
        # Which life of which node this is.
        self._node_id = node_id
        self._epoch = epoch
        # The cluster's, with which hops are signed.
        self._key = key
        self._boot_id = boot_id
        # Milliseconds since 1970, the same on every node.
        self._clock = clock
        self.lines = Lines()

    async def forward(
        self,
        peer: Peer,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        client: Address | None,
        grant: str = "",
        body: bytes | None = None,
        headers: Fields = (),
    ) -> None:
        """Pass an ASGI request on, and its answer back.

        `body` is what was read of it already, all of it; None: nothing was. `headers` (in lower case) replace the
        request's own of the same name: X-Request-Id and traceparent, if this node made them up. The answer is passed
        on as it is: the other node says those two, and all the rest.

        Raises, with nothing sent to the client: NodeUnreachable, OutcomeUnknown, Misdirected (then there is a body to
        forward again with; one too large for that makes it NodeUnreachable), InvalidRequest, ClientLeft. Raises
        CutShort when the answer had begun, and ClientLeft too.
        """
        method: str = scope["method"]
        fields = scope["headers"]
        first, is_whole = (body, True) if body is not None else await gather(receive)
        declared = None if is_whole else declared_length(fields)
        if declared is not None and declared < len(first):
            # More came than was said: what is written must not depend on it.
            declared = None
        target = target_of(scope)
        head = request_head(
            method,
            target,
            passed_on(fields, headers),
            (*_framing(method, len(first) if is_whole else declared), self.hop(peer, method, target, client, grant)),
        )
        rest_bytes = None if declared is None else declared - len(first)
        data = head + (first if is_whole or declared is not None else as_chunk(first))
        relay = Relay(receive, send, is_whole=is_whole, rest_bytes=rest_bytes)
        try:
            await self._exchange(peer, method, data, relay.run, is_whole=is_whole)
        except WrongNode:
            raise (Misdirected(peer, first) if is_whole else moved(peer)) from None

    async def ask(self, peer: Peer, method: str, target: bytes, body: bytes = b"", headers: Fields = ()) -> Answer:
        """A question of this node itself. Raises NodeUnreachable, OutcomeUnknown and Misdirected as `forward` does.

        Whoever does not want to wait for as long as it takes sets a time limit around it.
        """
        host, port = address_of(peer)
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        fields = ((b"host", name.encode("ascii")), *headers)
        framing = (*_framing(method, len(body)), self.hop(peer, method, target, None, ""))
        head = request_head(method, target, fields, framing)
        try:
            return await self._exchange(peer, method, head + body, _read_answer, is_whole=True)
        except WrongNode:
            raise Misdirected(peer, body) from None

    def hop(self, peer: Peer, method: str, target: bytes, client: Address | None, grant: str) -> tuple[bytes, bytes]:
        """The header that says where a request comes from."""
        hop = Hop(
            from_node=self._node_id,
            from_epoch=self._epoch,
            to_node=peer.node_id,
            at_ms=self._clock(),
            client=client,
            boot_id=self._boot_id,
            grant=grant,
        )
        return HOP_HEADER, sign(self._key, hop, method, target)

    def drop(self, node_id: str) -> None:
        """That node is dead, or has begun another life: nobody waits for it any longer."""
        self.lines.drop(node_id)

    def counts(self) -> dict[str, Count]:
        """How many connections there are, by node."""
        return dict(self.lines.counts())

    async def close(self) -> None:
        """End all connections. Idempotent."""
        self.lines.close()
        # The transports close in the loop's next round.
        await asyncio.sleep(0)

    async def _exchange(
        self, peer: Peer, method: str, data: bytes, use: Callable[[HttpLine], Awaitable[T]], *, is_whole: bool
    ) -> T:
        """Send a request and have its answer used, which raises Lost if that does not begin."""
        is_fresh = False
        while True:
            line = await self.lines.take(peer, is_fresh=is_fresh)
            line.begin(data, is_head=method == "HEAD", is_whole=is_whole)
            try:
                return await use(line)
            except Lost as lost:
                is_harmless = is_whole and method in _SAFE
                if not is_harmless or not line.was_kept or line.has_heard or line.is_cut:
                    raise after_loss(peer, lost, method, is_sent=line.is_sent) from None
                # Which is not kept, so that there is no third.
                is_fresh = True
            finally:
                self.lines.give_back(line)


def _framing(method: str, length: int | None) -> Fields:
    """How the other side knows where the request ends."""
    if length is None:
        return _CHUNKED
    # A GET without a body says nothing about it.
    return () if not length and method in _SAFE else ((b"content-length", b"%d" % length),)


async def _read_answer(line: HttpLine) -> Answer:
    head = await line.head()
    if head.is_misdirected:
        raise WrongNode
    body = bytearray()
    while data := await line.read():
        body += data
        if len(body) > ANSWER_MAX_BYTES:
            line.abort("its answer is too long")
            raise Lost("its answer is too long")
    return Answer(head.status, head.headers, bytes(body))
