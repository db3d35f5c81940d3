"""Server-sent events: the event bus as a stream that a browser's EventSource, curl or any SSE client can follow.

The stream begins with the place it starts at and repeats the place with every heartbeat, so a client that was cut off
resumes with `Last-Event-ID` from there, also when nothing matched its filter meanwhile.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncGenerator
from typing import Final, Protocol

import msgspec

from ..broker.events import EVENT_TYPES, Event, EventId
from ..broker.views import rfc3339
from ..errors import InvalidRequest, TabherdError
from .reply import wire_form

HEARTBEAT_S: Final = 15.0
# Events per write; a burst goes out in few packets and a slow reader still yields to the others.
BATCH_MAX: Final = 200
# Where a client stands that names a place which is none of ours: before every epoch, so that it is told to reset.
_NOWHERE: Final = EventId(0, 0)
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
# Line breaks of Unicode's, as UTF-8 and as JSON may spell them. The format knows none of them, but readers that split
# text as Python does (httpx is one) break a message in two there, and an agent's names may have them.
_BREAKS: Final = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))


class Followed(Protocol):
    """What is streamed: the events of one node, or of all."""

    # Written as text, what a client shows again to go on from there.
    @property
    def position(self) -> object: ...

    @property
    def is_ended(self) -> bool:
        """Whether nothing more will come."""

    def take(self) -> Event | None:
        """The next event that matches, if one is there already; the position is right behind it then."""

    async def wait(self) -> None:
        """Return when there may be something to take."""


async def stream(subscription: Followed, heartbeat_s: float = HEARTBEAT_S) -> AsyncGenerator[bytes]:
    """What matches the subscription, in SSE's format, until it ends."""
    yield b"retry: 1000\nid: %s\n\n" % str(subscription.position).encode()
    while not subscription.is_ended:
        batch: list[bytes] = []
        while len(batch) < BATCH_MAX and (event := subscription.take()) is not None:
            batch.append(_frame(event, subscription.position))
        if batch:
            yield b"".join(batch)
            continue
        try:
            async with asyncio.timeout(heartbeat_s):
                await subscription.wait()
        except TimeoutError:
            yield b": heartbeat\nid: %s\n\n" % str(subscription.position).encode()


def farewell(error: TabherdError, at_ms: int) -> bytes:
    """The last words of a stream that ends although there is more; the place stays where it was."""
    return _message(b"", "ended", _encode({"type": "ended", "at": rfc3339(at_ms), "error": wire_form(error)}))


def parse_types(text: str | None) -> frozenset[str] | None:
    """The types that a `types` parameter names, `session.*` for all of a kind; None: all."""
    if text is None:
        return None
    wanted: set[str] = set()
    for name in filter(None, (part.strip() for part in text.split(","))):
        kind = name.removesuffix("*")
        named = {known for known in EVENT_TYPES if known == name or (kind.endswith(".") and known.startswith(kind))}
        if not named:
            close = difflib.get_close_matches(name, EVENT_TYPES, n=1)
            hint = f"; did you mean '{close[0]}'?" if close else "."
            raise InvalidRequest(f"There is no event type '{name[:100]}'{hint}", field="types", types=list(EVENT_TYPES))
        wanted |= named
    return frozenset(wanted)


def parse_position(last_event_id: bytes | None) -> EventId | None:
    """Where `Last-Event-ID` says the client stands; None: it is new here."""
    if not last_event_id:
        return None
    return EventId.parse(last_event_id.decode("latin-1")) or _NOWHERE


def _frame(event: Event, position: object) -> bytes:
    # JSON has no raw line breaks of ASCII's, so the data is one line.
    return _message(b"id: %s\n" % str(position).encode(), event.type, _encode(event.to_wire()))


def _message(place: bytes, type: str, data: bytes) -> bytes:
    for raw, spelt in _BREAKS:
        data = data.replace(raw, spelt)
    return b"%sevent: %s\ndata: %s\n\n" % (place, type.encode(), data)
