"""One server, one Playwright and one Node process for all compatibility cases of a test run."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from playwright.async_api import Playwright, async_playwright
from tests.server.conftest import Server

from .endpoint import BARE, BareEndpoint, BrokerEndpoint, Endpoint
from .node import Node, node_process
from .site import Site, serving


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site() -> AsyncIterator[Site]:
    async with serving() as live:
        yield live


@pytest.fixture(scope="session")
def own_endpoint(server_of_all: Server) -> BrokerEndpoint:
    """The endpoint of the worker's server."""
    return BrokerEndpoint(server_of_all)


@pytest.fixture(scope="session")
def endpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Endpoint:
    """Where the cases connect to."""
    if os.environ.get(BARE[0]) == BARE[1]:
        return BareEndpoint(tmp_path_factory.mktemp("profiles"))
    own: Endpoint = request.getfixturevalue("own_endpoint")
    return own


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def playwright() -> AsyncIterator[Playwright]:
    async with async_playwright() as driver:
        yield driver


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def node(site: Site) -> AsyncIterator[Node]:
    async with node_process(site) as process:
        yield process


@pytest.fixture(scope="session")
def new_name() -> Callable[[], str]:
    """A name that no other client of this test run has."""
    numbers = itertools.count(1)
    return lambda: f"client{os.getpid()}n{next(numbers)}"
