"""Servers with one Chromium for everybody, of both builds, and the two parties in it: a victim and an attacker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from tests.cdp.endpoint import broker
from tests.cdp_life.conftest import ws_of
from tests.server.conftest import Server

from .hostile import Hostile, hostile
from .sessions import Sessions
from .site import Site, serving
from .victim import Victim, victim_at


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


@contextmanager
def of_build(directory: Path, build: str, more: str = "") -> Iterator[Server]:
    with broker(directory, f'browser = "{build}"\n{more}', warm=1) as server:
        yield server


def debug_ports(server: Server) -> list[str]:
    """Where the server's browsers themselves listen."""
    flag = "--remote-debugging-port="
    words = [word for process in server.browsers() for word in process.cmdline() if word.startswith(flag)]
    return sorted({word.removeprefix(flag) for word in words})


@pytest.fixture(scope="session")
def server(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The light build."""
    with of_build(tmp_path_factory.mktemp("shell"), "headless-shell") as server:
        yield server


@pytest.fixture(scope="session")
def full_server(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The full browser."""
    with of_build(tmp_path_factory.mktemp("full"), "chromium") as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def settled(server: Server, site: Site) -> AsyncIterator[Scene]:
    """The two parties, for all tests of a module."""
    site.may_finish.clear()
    async with (
        victim_at(ws_of(server), server.token_of("victim"), site) as victim,
        hostile(ws_of(server), server.token_of("attacker")) as attacker,
    ):
        yield Scene(server, site, victim, attacker, await Sessions.of(attacker, site))


@pytest_asyncio.fixture(loop_scope="module")
async def scene(settled: Scene) -> AsyncIterator[Scene]:
    """The same, and after the test the victim is as it was, and the attacker has heard nothing of it."""
    yield settled
    await settled.victim.check()
    assert settled.attacker.leaks(settled.victim.secrets) == []
