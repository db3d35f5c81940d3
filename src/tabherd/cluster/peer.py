"""Another node, as far as one must know it to speak with it."""

from __future__ import annotations

import msgspec


class Peer(msgspec.Struct, frozen=True):
    """One life of another node. A node that starts again is another peer: what was opened to the old one is over."""

    node_id: str
    epoch: int
    # Where it listens, as in `http://10.0.0.7:7722`.
    url: str
