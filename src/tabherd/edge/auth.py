"""The guard at the door: which Host and Origin may speak to us, who the caller is, and how fast it may send.

- **Host** must name this server: the address it listens on, localhost, 127.0.0.1 or [::1] with its port (the last two
  also without), the local address of the connection itself, or one of `[server] allowed_hosts` (with any port, unless
  the entry names one). A page that points its own DNS name at us is therefore refused before anything else happens.
- **Origin**, when a browser sends one, must be that same host.
- **Token**: `Authorization: Bearer T`. In the query (`?token=`) only where a client cannot set headers, WebSockets
  and `/json/*`, because URLs end up in logs and histories. Without auth every caller is an admin; Host and Origin
  are checked all the same.
- **Login**: a person's browser shows a cookie instead, with the word that belongs to it (see `login`): in a header, or
  in the query of a socket, whose Origin must be there then. A token that is there decides.
- **Agent**: a token's agent cannot be changed by anything the caller sends; only an admin may act for another.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable
from typing import Final

import msgspec

from .. import logs
from ..broker.caller import Caller
from ..broker.credentials import ADMIN_AGENT, Credentials
from ..config import Config
from ..core.model import Credential
from ..errors import Forbidden, InvalidRequest, RateLimited, TabherdError, Unauthenticated
from .head import Head
from .login import Login, Logins
from .rate import TokenBuckets

log = logs.get_logger("auth")

_AGENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,99}")
# How often the credential of a stream is looked at.
LOOK_EVERY_S: Final = 5.0
# Who calls when auth is off.
_NOBODY_IN_PARTICULAR: Final = Credential(
    id="open", token_hash="", agent_id=ADMIN_AGENT, scopes=("admin",), created_at=0
)
# Who asks for what is open to all.
ANONYMOUS: Final = Caller(agent_id="", scopes=frozenset(), controller_id="")
ADDRESS_ACTION: Final = "Use the address the server prints at start, or add the name to [server] allowed_hosts."

# (host, port) of one end of a connection, as ASGI gives it.
Address = tuple[str, int | None]


class Badge(msgspec.Struct, frozen=True):
    """Who opened a socket, shown again with every message: its token may be revoked while it is open."""

    caller: Caller
    credential: Credential


class Guard:
    """Admits or refuses a request by its head alone."""

    def __init__(
        self,
        config: Config,
        port: int,
        credentials: Credentials,
        *,
        logins: Logins | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Every caller is an admin.
        self.is_open = not config.auth.enabled
        self._credentials = credentials
        # Without a key of the server's, logins are good for its life only.
        self.logins = logins or Logins(secrets.token_bytes(32))
        self._clock = clock
        self._buckets = TokenBuckets(config.auth.rate_per_s, config.auth.rate_burst)
        names = {"localhost", "127.0.0.1", "[::1]", _bracketed(config.server.host)}
        spelt = frozenset(spelling for name in names for spelling in _spellings(name, port))
        # ChromeDriver leaves the port out. No browser does, so no page of another port gets in by that.
        self._hosts = spelt | {b"127.0.0.1", b"[::1]"}
        # Configured names: bare ones fit any port, since a proxy or a port mapping may stand before us.
        self._allowed = _allowed(config)
        # The scopes as the verbs want them; there are only so many combinations.
        self._scopes: dict[tuple[str, ...], frozenset[str]] = {}

    def reconfigure(self, config: Config) -> None:
        """Go by other rates and names from now on."""
        self._buckets.reconfigure(config.auth.rate_per_s, config.auth.rate_burst)
        self._allowed = _allowed(config)

    def check_address(self, head: Head, local: Address | None) -> None:
        """Raise `Forbidden` unless Host, and Origin where there is one, are ours."""
        if head.repeated:
            raise InvalidRequest(f"The header {head.repeated} came more than once.", field=head.repeated)
        host = head.host
        if host is None or (host not in self._hosts and not self._is_ours(host.lower(), local)):
            shown = "none" if host is None else repr(host.decode("latin-1")[:100])
            raise Forbidden(f"This server is not known as Host {shown}.", action=ADDRESS_ACTION, field="Host")
        if head.origin is not None and head.origin.lower() not in (
            b"http://" + host.lower(),
            b"https://" + host.lower(),
        ):
            raise Forbidden(
                f"Pages of origin {head.origin.decode('latin-1')[:100]!r} may not call this server.",
                action=ADDRESS_ACTION,
                field="Origin",
            )

    async def identify(
        self, head: Head, client: Address | None, query_token: str | None = None, *, is_counted: bool = True
    ) -> Caller:
        """Who calls. Raises `Unauthenticated`, `RateLimited`, or `Forbidden` for an agent that is not theirs.

        A request that another node has passed on was counted there.
        """
        return (await self.welcome(head, client, query_token, is_counted=is_counted)).caller

    async def welcome(
        self,
        head: Head,
        client: Address | None,
        query_token: str | None = None,
        *,
        is_counted: bool = True,
        csrf: str | None = None,
    ) -> Badge:
        """Who opens a socket; refuses as `identify` does. A page's socket brings the word of a login in its query."""
        credential: Credential | None
        if self.is_open:
            credential = _NOBODY_IN_PARTICULAR
        elif head.authorization is None and query_token is None and self.logins.is_there(head.cookie):
            credential = await self._logged_in(head, csrf)
        else:
            credential = await self._credentials.authenticate(_token_of(head.authorization, query_token))
            if credential is None:
                raise Unauthenticated("The token is not valid.")
        badge = self._badge_for(credential, client, is_counted=is_counted)
        if head.agent_id is not None:
            agent_id = head.agent_id.decode("latin-1")
            badge = Badge(act_for(badge.caller, agent_id, "X-Agent-Id"), credential)
        return badge

    async def log_in(self, token: str) -> tuple[Credential, Login]:
        """A login for whoever has that token; raises `Unauthenticated`."""
        credential = await self._credentials.authenticate(token)
        if credential is None:
            raise Unauthenticated(
                "The token is not valid.", action="Give one that 'tabherd token new' made, or the admin's own."
            )
        return credential, self.logins.sign(credential.id)

    async def _logged_in(self, head: Head, csrf: str | None) -> Credential:
        word = head.csrf
        if word is None and csrf is not None and head.origin is not None:
            word = csrf.encode()
        credential = await self._credentials.find(self.logins.read(head.cookie, word).credential_id)
        if credential is None:
            raise Unauthenticated("The credential of this login was revoked.", action="Log in with another token.")
        return credential

    async def recognise(self, credential_id: str, client: Address | None) -> Badge:
        """The same for whoever shows a ticket that was signed for that credential."""
        credential: Credential | None
        if self.is_open:
            credential = _NOBODY_IN_PARTICULAR
        else:
            credential = await self._credentials.find(credential_id)
            if credential is None:
                raise Unauthenticated("The credential behind this address was revoked.")
        return self._badge_for(credential, client, is_counted=True)

    def _badge_for(self, credential: Credential, client: Address | None, *, is_counted: bool) -> Badge:
        scopes = self._scopes.get(credential.scopes)
        if scopes is None:
            scopes = self._scopes[credential.scopes] = frozenset(credential.scopes)
        host, port = client or ("", None)
        caller = Caller(agent_id=credential.agent_id, scopes=scopes, controller_id=f"{credential.id}/{host}:{port}")
        badge = Badge(caller, credential)
        if is_counted:
            self.charge(badge)
        return badge

    def charge(self, badge: Badge) -> None:
        """Count one request or message; raises `RateLimited` when that is one too many. Admins are not counted."""
        if not badge.caller.is_admin and (wait_ms := self._buckets.take(badge.credential.id, self._clock())):
            raise RateLimited("This credential sends faster than its rate.", retry_after_ms=wait_ms)

    def is_fresh(self, badge: Badge) -> bool:
        """Whether the badge was found valid a moment ago; if not, ask `recheck`. Costs nothing."""
        return self.is_open or self._credentials.is_remembered(badge.credential)

    async def recheck(self, badge: Badge) -> None:
        """Raise `Unauthenticated` unless the credential behind the badge still stands, as the store knows it."""
        if not self.is_open:
            await self._credentials.recheck(badge.credential)

    async def why_over(self, badge: Badge) -> Unauthenticated | None:
        """Why whoever wears the badge has to leave; None: it may stay. What goes on for long asks with each beat.

        Costs nothing if somebody has asked a moment ago. A store that is away says nothing about the credential.
        """
        try:
            if not self.is_fresh(badge):
                await self.recheck(badge)
        except Unauthenticated as over:
            return over
        except TabherdError as error:
            log.debug("a credential could not be looked at", error=error.code)
        return None

    async def outlived(self, badge: Badge) -> Unauthenticated:
        """Return when whoever wears the badge has to leave, and why; for what has no beats of its own."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if (over := await self.why_over(badge)) is not None:
                return over

    def _is_ours(self, host: bytes, local: Address | None) -> bool:
        name, colon, port = host.rpartition(b":")
        bare = name if colon and port.isdigit() else host
        if host in self._hosts or host in self._allowed or bare in self._allowed:
            return True
        # Listening on every address of the machine: the one that was dialled is ours too.
        return local is not None and local[1] is not None and host in _spellings(_bracketed(local[0]), local[1])


def act_for(caller: Caller, agent_id: str, field: str) -> Caller:
    """The same caller acting for that agent: an admin may be anybody, an agent only itself."""
    if not _AGENT.fullmatch(agent_id):
        raise InvalidRequest(f"{field} is not a name an agent can have.", field=field)
    if agent_id == caller.agent_id:
        return caller
    if not caller.is_admin:
        raise Forbidden(
            f"This credential belongs to agent '{caller.agent_id}' and cannot act for another.",
            action=f"Leave {field} out, or use that agent's token.",
            field=field,
        )
    return msgspec.structs.replace(caller, agent_id=agent_id)


def as_controller(caller: Caller, controller_id: str) -> Caller:
    """The same caller under a controller name of its own choice, still bound to its credential."""
    credential_id = caller.controller_id.partition("/")[0]
    return msgspec.structs.replace(caller, controller_id=f"{credential_id}/{controller_id}")


def _token_of(authorization: bytes | None, query_token: str | None) -> str:
    """The token that was given. A header that is there decides, whatever the query says."""
    if authorization is None:
        if query_token is None:
            raise Unauthenticated("No credential was given.")
        return query_token
    scheme, _, token = authorization.partition(b" ")
    if scheme.lower() != b"bearer":
        raise Unauthenticated("The Authorization header is not of the form 'Bearer TOKEN'.")
    return token.strip().decode("latin-1")


def _allowed(config: Config) -> frozenset[bytes]:
    return frozenset(_bracketed(name).lower().encode() for name in config.server.allowed_hosts)


def _bracketed(host: str) -> str:
    """An IPv6 address as it stands in a URL."""
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host


def _spellings(name: str, port: int) -> tuple[bytes, ...]:
    """How a client may write that address in Host: browsers leave the port out when it is HTTP's own."""
    full = f"{name.lower()}:{port}".encode()
    return (full, name.lower().encode()) if port == 80 else (full,)
