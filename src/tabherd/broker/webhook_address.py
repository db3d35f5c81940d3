"""Decides which addresses a webhook may be delivered to, from its URL and from where its host leads.

Invariants:
- A URL is read once, here, and what is called is made of what was read: no second parser sees it differently.
- An address that is not public (this machine, private, shared, link-local, multicast, reserved; however it is spelled)
  is refused, unless the operator wrote it or the name down in `allow_hosts`. Ports of this machine that drive browsers
  are refused even then.
- What is judged are addresses, never names; whoever connects gets the judged addresses and asks nobody again.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Final

import msgspec

from ..browsers.debug_port import RESTRICTED_PORTS
from ..egress.policy import Address, Host, Rules, is_here, is_public, read_host, unmapped
from ..errors import InvalidRequest, PolicyDenied

URL_MAX_CHARS: Final = 2_000
PORT_MAX: Final = 65_535
# Lookups at once, those included that nobody waits for any more.
LOOKUPS_MAX: Final = 128

# Where a name leads; OSError when nobody knows.
Resolve = Callable[[str], Awaitable[Sequence[Address]]]

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
# Visible ASCII without the backslash: what parsers are known to disagree about is not guessed.
_CLEAR: Final = re.compile(r"[\x21-\x5b\x5d-\x7e]*")
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^#]*)(?:#.*)?")
_AUTHORITY: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::([0-9]{0,5}))?")
_FIELD: Final = "callbackUrl"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a URL names."""

    # http or https.
    scheme: str
    host: Host
    port: int
    # Path and query.
    path: str

    @property
    def authority(self) -> str:
        """As the Host header spells it."""
        host = _spelled(self.host)
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def at(self, address: Address) -> str:
        """The URL with the address in place of the name."""
        return f"{self.scheme}://{_spelled(address)}:{self.port}{self.path}"


def read_target(url: str) -> Target:
    """Whom the URL names; `InvalidRequest` when it is none that is delivered to."""
    if len(url) > URL_MAX_CHARS:
        raise _invalid(f"it is longer than {URL_MAX_CHARS} characters")
    if not _CLEAR.fullmatch(url):
        raise _invalid("it has blanks, backslashes or other letters than ASCII; percent-encode them")
    parts = _URL.fullmatch(url)
    if parts is None or parts[1].lower() not in _DEFAULT_PORTS:
        raise _invalid("it does not begin with http:// or https:// and a host")
    scheme, authority, path = parts[1].lower(), parts[2], parts[3]
    if "@" in authority:
        raise _invalid("it has credentials, which would be kept and shown; verify the signature instead")
    where = _AUTHORITY.fullmatch(authority)
    if where is None:
        raise _invalid("it has no host, or none that can be understood")
    try:
        host = read_host(where[1])
    except ValueError as error:
        raise _invalid(str(error)) from None
    port = int(where[2]) if where[2] else _DEFAULT_PORTS[scheme]
    if not 0 < port <= PORT_MAX:
        raise _invalid(f"port {port} does not exist")
    return Target(scheme=scheme, host=host, port=port, path=path if path.startswith("/") else f"/{path}")


class Judge:
    """Says which addresses may be called; refusals are `PolicyDenied`."""

    def __init__(self, allow_hosts: Iterable[str]) -> None:
        """Raises ValueError when an entry is no host."""
        self._allow = Rules(allow_hosts)

    def judge_literal(self, target: Target) -> None:
        """Refuse a URL that names an address itself, if that may not be called."""
        if not isinstance(target.host, str):
            self.judge(target, (target.host,))

    def judge(self, target: Target, addresses: Iterable[Address]) -> list[Address]:
        """Those of the target's addresses that may be called; refused when there is none."""
        judged = [address for address in map(unmapped, addresses) if self._may_call(target, address)]
        if not judged:
            raise PolicyDenied(
                f"{target.host} port {target.port} is not a public address, which webhooks are delivered to.",
                action="Use a public address, or ask an operator to add it to [webhooks] allow_hosts.",
                host=str(target.host),
                field=_FIELD,
            )
        return judged

    def _may_call(self, target: Target, address: Address) -> bool:
        if target.port in RESTRICTED_PORTS and is_here(address):
            return False
        is_allowed_name = isinstance(target.host, str) and self._allow.has_name(target.host)
        return is_public(address) or is_allowed_name or self._allow.has_address(address)


class Lookups:
    """The addresses of names, by the system's own resolver: its hosts file and name servers.

    Its threads are nobody's to wait for: a name server that does not answer delays neither other names nor our end.
    """

    def __init__(self) -> None:
        # Threads that have not come back.
        self._at_work = 0

    async def __call__(self, name: str) -> Sequence[Address]:
        if self._at_work >= LOOKUPS_MAX:
            raise OSError("too many names are being looked up")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Sequence[Address]] = loop.create_future()

        def tell(outcome: Sequence[Address] | OSError) -> None:
            self._at_work -= 1
            if found.done():
                return
            if isinstance(outcome, OSError):
                found.set_exception(outcome)
            else:
                found.set_result(outcome)

        def work() -> None:
            outcome = _look_up(name)
            # A loop that has been closed has nobody left who wants to know.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(tell, outcome)

        self._at_work += 1
        threading.Thread(target=work, name="webhook-lookup", daemon=True).start()
        return await found


system_resolve: Final = Lookups()


def _look_up(name: str) -> Sequence[Address] | OSError:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        return OSError(str(error))
    except OSError as error:
        return error
    # An address with a scope is link-local, and says so without it.
    return list(dict.fromkeys(ip_address(str(sockaddr[0]).partition("%")[0]) for *_, sockaddr in found))


def _spelled(host: Host) -> str:
    return f"[{host}]" if isinstance(host, IPv6Address) else str(host)


def _invalid(why: str) -> InvalidRequest:
    return InvalidRequest(f"{_FIELD} cannot be delivered to: {why}.", field=_FIELD)
