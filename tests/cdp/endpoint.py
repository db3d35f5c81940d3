"""Where the compatibility cases connect to: a tabherd server, or, to tell a wrong case from a wrong endpoint, Chromium.

A case never knows which of the two it talks to. `CDP_CASES_ON=chromium` in the environment gives every client a
Chromium of its own; a case that fails there is wrong itself.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlencode

from tests.browsers.real import launched
from tests.server.conftest import Server

from .site import FLAGS

# The variable, and its value, that leave tabherd out.
BARE = ("CDP_CASES_ON", "chromium")
# A case that takes longer hangs; it is given up so that the others still run.
CASE_LIMIT_S = 150
# Agents with tokens of their own; clients take turns in being one of them.
AGENTS = ("dee", "eve", "fay", "gus")

# The pool of the worker's server in which sessions end with their connection.
POOL = "bound"


class Door(NamedTuple):
    """The addresses at which one client connects."""

    # As connect_over_cdp takes it.
    http: str
    # As browserWSEndpoint takes it.
    ws: str


class Endpoint(Protocol):
    # Whether clients share a Chromium, so that running several at once proves anything.
    is_shared: bool

    def door(self, who: str) -> AbstractAsyncContextManager[Door]:
        """For one client, as long as it lasts."""


class BareEndpoint:
    """A Chromium of its own for each client."""

    is_shared = False

    def __init__(self, profiles_dir: Path) -> None:
        self._profiles_dir = profiles_dir

    @asynccontextmanager
    async def door(self, who: str) -> AsyncIterator[Door]:
        async with launched(self._profiles_dir, flags=FLAGS) as browser:
            yield Door(f"http://127.0.0.1:{browser.row.port}", browser.row.endpoint)


class OneDoor:
    """One Chromium, without anything in between, for all clients."""

    is_shared = True

    def __init__(self, door: Door) -> None:
        self._door = door

    @asynccontextmanager
    async def door(self, who: str) -> AsyncIterator[Door]:
        yield self._door


class BrokerEndpoint:
    """One Chromium of a server for all clients."""

    is_shared = True

    def __init__(self, server: Server) -> None:
        self.server = server
        self._host = server.record["url"].removeprefix("http://")
        self._tokens = itertools.cycle([server.token_of(agent) for agent in AGENTS])

    @asynccontextmanager
    async def door(self, who: str) -> AsyncIterator[Door]:
        query = urlencode({"token": next(self._tokens), "pool": POOL})
        yield Door(f"http://{self._host}?{query}", f"ws://{self._host}/?{query}")
