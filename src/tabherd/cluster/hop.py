"""The hop: what one node says about a request that it passes on to another, signed with the cluster's key.

It tells the receiver that a node, and not just anybody, sent the request: that it may use a Host that names the other
node, that the client is who the hop says and not the address that the connection comes from, and that the request must
not be passed on again. It says nothing about who the caller is: the credential travels in the request and is judged by
the receiver as ever.

Invariants:
- A hop is good for one method and target at one receiver, for a minute; so a header that leaks opens nothing else.
- Whatever is not such a hop reads as none: `verify` has no errors.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Final

import msgspec

HOP_HEADER: Final = b"x-tabherd-hop"
# On an answer 421: what was asked for is not here, and nothing was done.
MISDIRECTED_HEADER: Final = b"x-tabherd-misdirected"
# How far the clocks of two nodes may be apart, the way included. They follow the clock of the database.
SKEW_MAX_MS: Final = 60_000
# Longest value that is looked at.
VALUE_MAX_BYTES: Final = 4_096
_MAC_BYTES: Final = 32
# What else is ever signed with the same key cannot be taken for a hop.
_PURPOSE: Final = b"tabherd hop 1"


class Hop(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One request's way from node to node."""

    from_node: str
    # Which life of the sender that is.
    from_epoch: int
    to_node: str
    # Milliseconds since 1970, by the cluster's clock.
    at_ms: int
    # The original client, host and port; None when nobody knows, as with a question of the node itself.
    client: tuple[str, int | None] | None
    # The sender's machine since its start: a process id that a client names means something only there.
    boot_id: str
    # What was granted to the caller and waits for it at the receiver.
    grant: str = ""


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Hop).decode


def sign(key: bytes, hop: Hop, method: str, target: bytes) -> bytes:
    """The value of the header `x-tabherd-hop` for a request with that method and target."""
    body = _encode(hop)
    return base64.urlsafe_b64encode(_mac(key, body, method, target) + body)


def verify(key: bytes, value: bytes, *, method: str, target: bytes, node_id: str, now_ms: int) -> Hop | None:
    """The hop, if it was signed for this very request and receiver a moment ago."""
    if len(value) > VALUE_MAX_BYTES:
        return None
    try:
        raw = base64.b64decode(value, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
    if not hmac.compare_digest(mac, _mac(key, body, method, target)):
        return None
    try:
        hop = _decode(body)
    except msgspec.MsgspecError:
        # Signed all the same: by a node of another version.
        return None
    return hop if hop.to_node == node_id and abs(now_ms - hop.at_ms) <= SKEW_MAX_MS else None


def _mac(key: bytes, body: bytes, method: str, target: bytes) -> bytes:
    """Over all of it, with the lengths, so that no two requests read the same."""
    name = method.encode()
    lengths = b"%b %d %d " % (_PURPOSE, len(name), len(target))
    return hmac.digest(key, lengths + name + target + body, "sha256")
