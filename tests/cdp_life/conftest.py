"""The worker's server, clients of it, and Playwright to connect to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Playwright, async_playwright
from tests.server.conftest import Server, site
from tests.server.effects_site import EffectsSite
from tests.server.local_site import serving

from .wire_client import LIMIT_S

__all__ = ["site"]

ON_PLAYWRIGHTS_LOOP = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def server(shared_server: Server) -> Server:
    return shared_server


@pytest.fixture
def token(server: Server) -> str:
    """A token of the agent ada."""
    return server.token_of("ada")


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def ada(server: Server, token: str) -> Iterator[httpx.Client]:
    with server.client(token) as client:
        yield client


@pytest.fixture
def bob(server: Server) -> Iterator[httpx.Client]:
    with server.agent("bob") as client:
        yield client


@pytest.fixture
def effects() -> Iterator[EffectsSite]:
    with serving(EffectsSite()) as live:
        yield live


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def playwright() -> AsyncIterator[Playwright]:
    """One driver for all; who uses it runs in its loop, `ON_PLAYWRIGHTS_LOOP`."""
    async with async_playwright() as driver:
        yield driver


def host_of(server: Server) -> str:
    return str(server.record["url"]).removeprefix("http://")


def ws_of(server: Server, query: str = "") -> str:
    """Where a client leases a session."""
    return f"ws://{host_of(server)}/{'?' if query else ''}{query}"


def sessions_of(client: httpx.Client, state: str = "active") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/sessions", params={"state": state, "limit": 200}).json()["sessions"]
    return found


async def until(is_so: Callable[[], Any]) -> Any:
    """What is told there, once that is something. Bounded: what never comes is a failure."""
    async with asyncio.timeout(LIMIT_S):
        while not (found := await asyncio.to_thread(is_so)):
            await asyncio.sleep(0.02)
    return found


async def until_async(is_so: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(LIMIT_S):
        while not (found := await is_so()):
            await asyncio.sleep(0.02)
    return found
