"""Finds out where a host is, has that judged, and connects to the very address that was judged.

Invariant: between the verdict and the connection nobody is asked again where the name leads, so a name server that
changes its answer (DNS rebinding) changes nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Final

from ..errors import NavigationFailed
from .line import Line, open_line
from .policy import Address, Host, Judge

# Lookups at once. Each has a thread, because the system's own resolver blocks.
LOOKUPS_MAX: Final = 64
LOOKUP_LIMIT_S: Final = 15.0
# How long one address may take to answer, and how many of a name's are tried.
CONNECT_LIMIT_S: Final = 10.0
ADDRESSES_MAX: Final = 4

Resolve = Callable[[str], Awaitable[Sequence[Address]]]


class Lookups:
    """The addresses of names, by the system's own resolver: its hosts file and name servers."""

    def __init__(self) -> None:
        # Not the event loop's own threads, which are few: a slow name server must not hold up other names.
        self._threads = ThreadPoolExecutor(LOOKUPS_MAX, thread_name_prefix="lookup")

    async def __call__(self, name: str) -> Sequence[Address]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, _look_up, name)


class Dialer:
    """Connects to what one pool's policy allows."""

    def __init__(self, judge: Judge, resolve: Resolve) -> None:
        self._judge = judge
        self._resolve = resolve

    async def connect(self, host: Host, port: int) -> Line:
        """A connection; `PolicyDenied` when it may not be, `NavigationFailed` when it cannot."""
        self._judge.judge_name(host)
        addresses = self._judge.known_addresses(host)
        if addresses is None:
            assert isinstance(host, str), "an address needs no lookup"
            addresses = await self._look_up(host)
        reasons = []
        for address in self._judge.judge_addresses(host, addresses, port)[:ADDRESSES_MAX]:
            try:
                async with asyncio.timeout(CONNECT_LIMIT_S):
                    return await open_line(str(address), port)
            except TimeoutError:
                reasons.append("it does not answer")
            except OSError as error:
                reasons.append(error.strerror or "it cannot be reached")
        raise unreachable(f"{host} port {port} cannot be connected to: {', '.join(reasons) or 'it has no address'}.")

    async def _look_up(self, name: str) -> Sequence[Address]:
        try:
            async with asyncio.timeout(LOOKUP_LIMIT_S):
                return await self._resolve(name)
        except TimeoutError:
            raise unreachable(f"Nobody says where {name} is.") from None
        except (OSError, UnicodeError):
            raise unreachable(f"{name} does not exist.") from None


def unreachable(message: str) -> NavigationFailed:
    """The world's fault, and not the policy's."""
    error = NavigationFailed(message)
    error.status = 502
    return error


def _look_up(name: str) -> Sequence[Address]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(sockaddr[0]) for *_, sockaddr in found))
