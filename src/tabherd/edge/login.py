"""Logins of people: a cookie for the browser, and a word that only our own page can read.

A person gives a token once; from then on the browser sends a cookie that stands for its credential. Invariants:
- The cookie alone opens nothing. Browsers send it to every program on this host, whatever its port, and along with
  requests that other sites provoke; so each request must also bring a word that belongs to the cookie. The page keeps
  it where only its own origin can read it.
- Neither contains the token, and no state is kept: both are signed, on every node of a cluster with the same key. The
  credential is looked at again with each request, so revoking it ends its logins.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Callable
from typing import Final

import msgspec

from ..errors import Unauthenticated

LIFE_MS: Final = 12 * 3_600_000
_MAC_BYTES: Final = 32
_AGAIN: Final = "Log in again."


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """What a browser holds from now on."""

    # The cookie's value.
    cookie: str
    # The word that goes with it.
    csrf: str
    # Milliseconds since 1970.
    expires_at: int


class LoggedIn(msgspec.Struct, frozen=True, array_like=True):
    """What a cookie stands for."""

    credential_id: str
    expires_at: int


class Logins:
    """Writes and reads logins under one key."""

    def __init__(self, key: bytes, *, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._key = hmac.digest(key, b"login", hashlib.sha256)
        self._clock = clock
        # Cookies know no ports: servers on one host that do not belong together must not overwrite each other's.
        self.cookie_name = f"tabherd_{hmac.digest(self._key, b'name', hashlib.sha256).hex()[:12]}"
        self._pattern = re.compile(rb"(?:^|;)\s*" + self.cookie_name.encode() + rb"=([A-Za-z0-9_-]{1,500})\s*(?=;|$)")

    def sign(self, credential_id: str) -> Login:
        """A login for that credential."""
        expires_at = self._clock() + LIFE_MS
        body = msgspec.json.encode(LoggedIn(credential_id, expires_at))
        cookie = base64.urlsafe_b64encode(self._mac(b"cookie", body) + body).rstrip(b"=").decode()
        return Login(cookie=cookie, csrf=self._word_for(cookie), expires_at=expires_at)

    def is_there(self, cookies: bytes | None) -> bool:
        """Whether a login of ours is among the cookies, good or not."""
        return cookies is not None and self._pattern.search(cookies) is not None

    def read(self, cookies: bytes | None, csrf: bytes | None) -> LoggedIn:
        """Whose login is among the cookies, or `Unauthenticated`."""
        found = None if cookies is None else self._pattern.search(cookies)
        if found is None:
            raise Unauthenticated("Nobody is logged in.", action="Log in.")
        cookie = found[1].decode("ascii")
        if csrf is None or not hmac.compare_digest(csrf, self._word_for(cookie).encode()):
            raise Unauthenticated("The login came without the word that belongs to it.", action=_AGAIN)
        try:
            raw = base64.b64decode(cookie + "=" * (-len(cookie) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise Unauthenticated("The login is not one that this server gave out.", action=_AGAIN) from None
        mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(b"cookie", body)):
            raise Unauthenticated("The login is not one that this server gave out.", action=_AGAIN)
        login = msgspec.json.decode(body, type=LoggedIn)
        if login.expires_at <= self._clock():
            raise Unauthenticated("The login is too old.", action=_AGAIN)
        return login

    def set_cookie(self, login: Login | None, *, is_secure: bool) -> str:
        """The header that gives a browser its cookie; without a login, the one that takes it away."""
        value, life_s = (login.cookie, LIFE_MS // 1000) if login is not None else ("", 0)
        secure = "; Secure" if is_secure else ""
        return f"{self.cookie_name}={value}; Max-Age={life_s}; Path=/; HttpOnly; SameSite=Strict{secure}"

    def _word_for(self, cookie: str) -> str:
        return self._mac(b"csrf", cookie.encode()).hex()

    def _mac(self, purpose: bytes, body: bytes) -> bytes:
        return hmac.digest(self._key, purpose + b":" + body, hashlib.sha256)
