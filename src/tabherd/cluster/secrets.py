"""Keys that all nodes of a cluster share: made once, by whoever comes first, and kept in the store."""

from __future__ import annotations

import secrets

from ..core.model import Secret
from ..store.base import Insert, Store

KEY_BYTES = 32


async def shared_key(store: Store, name: str) -> bytes:
    """The key of that name, made if there is none."""
    row = await store.get(Secret, name)
    if row is None:
        await store.apply(Insert(Secret(id=name, value=secrets.token_hex(KEY_BYTES))))
        # Of two that come first at once, one wins, and both use its key.
        row = await store.get(Secret, name)
        assert row is not None
    return bytes.fromhex(row.value)
