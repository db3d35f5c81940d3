"""One broker with one browser for everybody, a site of hostile pages, and somebody who must not notice them."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from tests.server.conftest import Server, browser_pids, with_settings
from tests.server.local_site import serving

from .driving import Driver, Innocent, driver
from .site import HostileSite


@pytest.fixture(scope="module")
def site() -> Iterator[HostileSite]:
    with serving(HostileSite()) as site:
        yield site


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"POOLS__DEFAULT__BROWSERS_MAX": "1", "POOLS__DEFAULT__WARM": "1"}
    with with_settings(tmp_path_factory.mktemp("hostile") / "state", settings) as server:
        yield server


@pytest.fixture(scope="module")
def innocent(server: Server, site: HostileSite) -> Iterator[Innocent]:
    with server.agent("ida") as client:
        innocent = Innocent(client, site.url("/plain"))
        try:
            yield innocent
        finally:
            innocent.end()


@pytest.fixture(scope="module")
def eve(server: Server) -> Iterator[httpx.Client]:
    with server.agent("eve") as client:
        yield client


@pytest.fixture
def tab(server: Server, eve: httpx.Client, innocent: Innocent, site: HostileSite) -> Iterator[Driver]:
    """A tab for one hostile page. Afterwards it can be used, its session ends, and nobody else has noticed anything."""
    with server.client() as admin:
        browsers = browser_pids(admin)
        with driver(eve) as tab:
            yield tab
            tab.comes_back(site.url("/plain"))
        innocent.check()
        assert browser_pids(admin) == browsers, "the browser that everybody shares was lost"
        assert eve.get("/tabs").json()["tabs"] == []
