"""How one node hears what happens on another: its whole ring and all that follows, as server-sent events.

The stream begins with how far the node is; then come its events, from behind the place that was asked for, or from the
oldest that it still has. Whoever reads notices by the numbers if that left a gap.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from ..broker.events import Event, EventBus, EventId, Subscription
from ..cluster.peer import Peer
from ..errors import NodeUnreachable
from . import sse
from .forward.failures import Lost, unreachable
from .forward.links import Links
from .forward.request import request_head

PATH: Final = b"/nodes/events"
# Longest event that is read.
FRAME_MAX_BYTES: Final = 1 << 20
LAST_EVENT_ID: Final = b"last-event-id"
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


# --- The node that tells ----------------------------------------------------------------------------------------


def told(bus: EventBus, after: EventId | None) -> tuple[AsyncGenerator[bytes], Subscription]:
    """The stream for another node, and what it reads, to be closed."""
    oldest = bus.oldest_seq - 1
    seq = after.seq if after is not None and after.epoch == bus.epoch else 0
    subscription = bus.subscribe(after=EventId(bus.epoch, min(max(oldest, seq), bus.last_id.seq)))
    return _told(bus.last_id, subscription), subscription


async def _told(newest: EventId, subscription: Subscription) -> AsyncGenerator[bytes]:
    yield b"id: %s\n\n" % str(newest).encode()
    async with aclosing(sse.stream(subscription)) as chunks:
        async for chunk in chunks:
            yield chunk


# --- The node that hears ----------------------------------------------------------------------------------------


class PeerStreams:
    """Opens streams over the links to other nodes."""

    def __init__(self, links: Links) -> None:
        self._links = links

    async def open(self, peer: Peer, target: bytes, after: EventId) -> AsyncGenerator[bytes]:
        """What the node streams; raises `NodeUnreachable`, also in the middle."""
        fields = ((b"host", urlsplit(peer.url).netloc.encode("ascii")), (LAST_EVENT_ID, str(after).encode()))
        head = request_head("GET", target, fields, (self._links.hop(peer, "GET", target, None, ""),))
        line = await self._links.lines.take(peer, is_fresh=True)
        try:
            line.begin(head, is_head=False, is_whole=True)
            answer = await line.head()
            if answer.status != 200:
                raise unreachable(peer, f"it answers {answer.status}")
            while data := await line.read():
                yield data
        except Lost as lost:
            raise unreachable(peer, str(lost)) from None
        finally:
            # It has no end of its own, so it is of no use to the next.
            line.abort("nobody listens any more")


async def read(chunks: AsyncIterator[bytes], epoch: int) -> AsyncIterator[Event | EventId]:
    """How far the node is, then its events. Raises `NodeUnreachable` for what is no such stream."""
    rest = b""
    async for chunk in chunks:
        *frames, rest = (rest + chunk).split(b"\n\n")
        if len(rest) > FRAME_MAX_BYTES:
            raise NodeUnreachable("A node streams an event without an end.")
        for frame in frames:
            said = _read(frame)
            if said is not None and said.epoch == epoch:
                yield said


def _read(frame: bytes) -> Event | EventId | None:
    """What one frame says; None: nothing but that the node is there."""
    fields = dict(line.partition(b": ")[::2] for line in frame.split(b"\n"))
    id = EventId.parse(fields.get(b"id", b"").decode("latin-1"))
    data = fields.get(b"data")
    if id is None:
        return None
    if data is None:
        return id
    try:
        event = _decode(data)
        type, at = event.pop("type"), datetime.fromisoformat(event.pop("at"))
        del event["id"]
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
        raise NodeUnreachable("A node streams something that is no event.") from None
    return Event(id.epoch, id.seq, str(type), round(at.timestamp() * 1000), event)
