"""One server and one viewing browser for each worker; what a test changes of the server it puts back."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from tests.server.conftest import Server, end_sessions, with_settings

from .crowd import Crowd, crowd_at, free_locks
from .rig import Dashboards, Viewing, viewer

# One session of a key at a time: whoever comes second waits.
SETTINGS = {
    "POOLS__DEFAULT__BROWSERS_MAX": "1",
    "POOLS__DEFAULT__WARM": "1",
    "POOLS__DEFAULT__MAX_ACTIVE_PER_KEY": "1",
}


@pytest.fixture(scope="session")
def server_of_dashboards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with with_settings(tmp_path_factory.mktemp("dashboard") / "state", SETTINGS) as running:
        yield running


@pytest.fixture
def server(server_of_dashboards: Server) -> Iterator[Server]:
    """Without the sessions and locks of earlier tests."""
    yield server_of_dashboards
    with server_of_dashboards.client() as admin:
        free_locks(admin)
        end_sessions(admin)


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def crowd(server: Server) -> Iterator[Crowd]:
    with crowd_at(server) as crowd:
        yield crowd


@pytest.fixture(scope="session")
def viewing() -> Iterator[Viewing]:
    with viewer() as browser:
        viewing = Viewing(browser)
        viewing.sleep()
        yield viewing
        viewing.wake()


@pytest.fixture
def dashboards(server: Server, viewing: Viewing) -> Iterator[Dashboards]:
    """Nothing may go wrong unseen in any of them."""
    viewing.wake()
    viewing.mistakes.clear()
    opened = Dashboards(viewing.browser, server, viewing)
    try:
        yield opened
        # That a socket was refused is said on the console, whatever the page makes of it.
        assert [said for said in viewing.mistakes if not said.startswith("WebSocket connection to")] == []
    finally:
        opened.close()
        viewing.sleep()
