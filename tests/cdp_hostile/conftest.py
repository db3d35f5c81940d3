"""One Chromium of the worker's server, and the two parties in it: a victim and an attacker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import psutil
import pytest
import pytest_asyncio
from tests.cdp_life.conftest import ws_of
from tests.server.conftest import Server, browser_pids

from .hostile import Hostile, hostile
from .sessions import Sessions
from .site import Site, serving
from .victim import Victim, victim_at

# Of the worker's server: sessions end with their connection.
POOL = "bound"


class Scene(NamedTuple):
    """One browser with a victim and an attacker in it."""

    server: Server
    site: Site
    victim: Victim
    attacker: Hostile
    # The attacker's.
    sessions: Sessions

    @property
    def page(self) -> str:
        """The attacker's session with its page."""
        return self.sessions.by_kind["page"]

    def session_of(self, mark: str) -> dict[str, Any]:
        """The session, as an admin sees it, at whose page that mark is."""
        with self.server.client() as admin:
            sessions = admin.get("/sessions", params={"limit": 200, "state": "active"}).json()["sessions"]
        found: list[dict[str, Any]] = [one for one in sessions if any(mark in tab["url"] for tab in one["tabs"])]
        assert len(found) == 1, found
        return found[0]


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    with serving() as live:
        yield live


def debug_port(server: Server, pool: str = POOL) -> int:
    """Where the one browser of that pool itself listens."""
    flag = "--remote-debugging-port="
    with server.client() as admin:
        (pid,) = browser_pids(admin, pool)
    (port,) = [word.removeprefix(flag) for word in psutil.Process(pid).cmdline() if word.startswith(flag)]
    return int(port)


@pytest.fixture
def server(shared_server: Server) -> Server:
    return shared_server


@pytest_asyncio.fixture
async def scene(server: Server, site: Site) -> AsyncIterator[Scene]:
    """The two parties; after the test the victim is as it was, and the attacker has heard nothing of it."""
    site.may_finish.clear()
    url = ws_of(server, f"pool={POOL}")
    async with (
        victim_at(url, server.token_of("victim"), site) as victim,
        hostile(url, server.token_of("attacker")) as attacker,
    ):
        yield Scene(server, site, victim, attacker, await Sessions.of(attacker, site))
        await victim.check()
        assert attacker.leaks(victim.secrets) == []
