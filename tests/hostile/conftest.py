"""A browser that everybody shares, a site of hostile pages, and somebody who must not notice them."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from tests.server.conftest import Server, browser_pids
from tests.server.local_site import serving
from tests.shared_server import unique

from .driving import Driver, Innocent, driver
from .site import HostileSite


@pytest.fixture(scope="module")
def site() -> Iterator[HostileSite]:
    with serving(HostileSite()) as site:
        yield site


@pytest.fixture(scope="module")
def innocent(server_of_all: Server, site: HostileSite) -> Iterator[Innocent]:
    with server_of_all.agent(unique("ida")) as client:
        innocent = Innocent(client, site.url("/plain"))
        try:
            yield innocent
        finally:
            innocent.end()


@pytest.fixture(scope="module")
def eve(server_of_all: Server) -> Iterator[httpx.Client]:
    with server_of_all.agent(unique("eve")) as client:
        yield client


@pytest.fixture
def tab(server_of_all: Server, eve: httpx.Client, innocent: Innocent, site: HostileSite) -> Iterator[Driver]:
    """A tab for one hostile page. Afterwards it can be used, its session ends, and nobody else has noticed anything."""
    with server_of_all.client() as admin:
        browsers = browser_pids(admin)
        with driver(eve) as tab:
            yield tab
            tab.comes_back(site.url("/plain"))
        innocent.check()
        assert browser_pids(admin) == browsers, "the browser that everybody shares was lost"
        assert eve.get("/tabs").json()["tabs"] == []
