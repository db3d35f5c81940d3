"""Where the compatibility cases connect to: a tabherd server, or, to tell a wrong case from a wrong endpoint, Chromium.

A case never knows which of the two it talks to. `CDP_CASES_ON=chromium` in the environment gives every client a
Chromium of its own; a case that fails there is wrong itself.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlencode

from tests.browsers.real import launched
from tests.cli.running import running_server
from tests.server.conftest import Server

from .site import FLAGS

# The variable, and its value, that leave tabherd out.
BARE = ("CDP_CASES_ON", "chromium")
# A case that takes longer hangs; it is given up so that the others still run.
CASE_LIMIT_S = 150
# Agents with tokens of their own; clients take turns in being one of them.
AGENTS = ("ada", "bob", "cyd", "dan")

# One Chromium for all clients. Sessions end with their connection: the next case must find room. A Chromium that is
# slow because the machine is busy is not taken for one that hangs.
SETTINGS = """
[pools.default]
flags = {flags}
browsers_max = 1
sessions_per_browser = 60
max_active = 60
warm = {warm}
disconnect_grace_s = 0
probe_limit_ms = 30000
"""


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
    """One server with one Chromium for all clients."""

    is_shared = True

    def __init__(self, server: Server) -> None:
        self.server = server
        self._host = server.record["url"].removeprefix("http://")
        self._tokens = itertools.cycle([server.token_of(agent) for agent in AGENTS])

    @asynccontextmanager
    async def door(self, who: str) -> AsyncIterator[Door]:
        query = urlencode({"token": next(self._tokens)})
        yield Door(f"http://{self._host}?{query}", f"ws://{self._host}/?{query}")


@contextmanager
def broker(directory: Path, settings: str = "", *, warm: int = 4) -> Iterator[Server]:
    """A server with one Chromium that can reach the site, and further settings."""
    config = directory / "tabherd.toml"
    config.write_text(SETTINGS.format(flags=json.dumps(FLAGS), warm=warm) + settings)
    with running_server(directory / "state", {"TABHERD_CONFIG": str(config)}) as started:
        yield Server(started.state, started)
