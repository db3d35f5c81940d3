"""Connect tickets: addresses that carry what their holder may open, signed so that nobody can write one.

`/json/version` and sessions name a WebSocket address that clients use as it stands, headers or not. The ticket in it
stands for the credential that asked, which is looked at again when it is used; it is good for one purpose and a while.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from ...broker.credentials import read_secret
from ...errors import Unauthenticated
from .wish import Wish

KEY_FILE: Final = "ticket.key"
KEY_BYTES: Final = 32
# How long an address from `/json/version` is good. One that names a session is good until the session's deadline.
LIFE_MS: Final = 3_600_000
_MAC_BYTES: Final = 16


class Ticket(msgspec.Struct, frozen=True, kw_only=True, array_like=True, omit_defaults=True):
    """What an address carries."""

    credential_id: str
    # Whom the credential acts for.
    agent_id: str
    # Milliseconds since 1970.
    expires_at: int
    wish: Wish


class Tickets:
    """Writes and reads tickets under one key."""

    def __init__(self, key: bytes, *, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._key = key
        self._clock = clock

    def sign(self, credential_id: str, agent_id: str, wish: Wish, expires_at: int | None = None) -> str:
        """A ticket, fit for a path and a query."""
        until = self._clock() + LIFE_MS if expires_at is None else expires_at
        ticket = Ticket(credential_id=credential_id, agent_id=agent_id, expires_at=until, wish=wish)
        body = msgspec.json.encode(ticket)
        return base64.urlsafe_b64encode(self._mac(body) + body).rstrip(b"=").decode()

    def read(self, text: str) -> Ticket:
        """The ticket, or `Unauthenticated`."""
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise Unauthenticated("The address is not one that this server gave out.") from None
        mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(body)):
            raise Unauthenticated("The address is not one that this server gave out.")
        ticket = msgspec.json.decode(body, type=Ticket)
        if ticket.expires_at <= self._clock():
            raise Unauthenticated("The address is too old.", action="Ask /json/version or the session for a new one.")
        return ticket

    def _mac(self, body: bytes) -> bytes:
        return hmac.new(self._key, body, hashlib.sha256).digest()[:_MAC_BYTES]


def ensure_key(path: Path) -> bytes:
    """The key in that file, made on the first call. What was signed outlives a restart with it.

    A key that others could read, or that somebody else has put there, is refused: whoever has it may sign as we do.
    """
    try:
        key = read_secret(path, "key")
        if len(key) == KEY_BYTES:
            return key
        # A server that was killed while it wrote.
        path.unlink()
    except FileNotFoundError:
        pass
    key = secrets.token_bytes(KEY_BYTES)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)
    return key
