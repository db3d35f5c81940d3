"""Every Playwright case: several clients of both kinds at once on one Chromium, each with other cases to go through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from playwright.async_api import Error, Playwright

from . import (
    playwright_cases_connection,
    playwright_cases_emulation,
    playwright_cases_frames,
    playwright_cases_input,
    playwright_cases_network,
    playwright_cases_output,
    playwright_cases_pages,
    playwright_cases_script,
    playwright_cases_state,
    playwright_cases_workers,
)
from .client import ALONE, REPEATING, Case, Client, cases_of, connected
from .endpoint import CASE_LIMIT_S, Endpoint
from .node import Node, case_names, twin_names
from .site import Site

pytestmark = [pytest.mark.server, pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

MODULES = (
    playwright_cases_connection,
    playwright_cases_emulation,
    playwright_cases_frames,
    playwright_cases_input,
    playwright_cases_network,
    playwright_cases_output,
    playwright_cases_pages,
    playwright_cases_script,
    playwright_cases_state,
    playwright_cases_workers,
)
CASES = cases_of(*MODULES)
COMPANIONS = [*case_names(), *twin_names()]
# Clients of Playwright that share the cases of a module.
CLIENTS = 2


Connect = Callable[[], AbstractAsyncContextManager[Client]]


async def go_through(cases: Sequence[Case], connect: Connect) -> list[Exception]:
    """Run these cases over one connection, those that need one of their own over another: what has failed.

    After a failure the next case begins with a new connection.
    """
    failed: list[Exception] = []
    rounds = [[case for case in cases if case not in ALONE], *([case] for case in cases if case in ALONE)]
    for waiting in rounds:
        while waiting:
            async with connect() as client:
                while waiting:
                    case = waiting.pop(0)
                    try:
                        async with asyncio.timeout(CASE_LIMIT_S):
                            await case(client)
                            assert await client.strangers() == set()
                            if waiting:
                                await client.tidy_up()
                    except (AssertionError, Error, TimeoutError) as error:
                        error.add_note(f"in the case {case.__name__}")
                        failed.append(error)
                        break
    return failed


@pytest.fixture
def connect(
    playwright: Playwright, endpoint: Endpoint, site: Site, new_name: Callable[[], str], tmp_path: Path
) -> Callable[[bool], AbstractAsyncContextManager[Client]]:
    """Connects a client with a name of its own; whether it is to use the page that is there from the start."""

    @asynccontextmanager
    async def connect(takes_first: bool) -> AsyncIterator[Client]:
        who = new_name()
        files = tmp_path / who
        files.mkdir()
        async with connected(playwright, endpoint, site, files, who, takes_first=takes_first) as client:
            yield client

    return connect


@pytest.mark.parametrize("number", range(len(MODULES)), ids=[module.__name__.rpartition("_")[2] for module in MODULES])
async def test_clients_go_through_all_cases_side_by_side(
    number: int,
    connect: Callable[[bool], AbstractAsyncContextManager[Client]],
    node: Node,
    endpoint: Endpoint,
    site: Site,
    new_name: Callable[[], str],
    tmp_path: Path,
) -> None:
    cases = [case for case in cases_of(MODULES[number]) if case not in REPEATING]
    clients = CLIENTS if endpoint.is_shared else 1
    async with asyncio.TaskGroup() as group:
        # Every second one is at home in the page that is there from the start, the others in pages that they open.
        lanes = [
            group.create_task(go_through(cases[lane::clients], partial(connect, lane % 2 == 0)))
            for lane in range(clients)
        ]
        companions = case_names()[number :: len(MODULES)]
        group.create_task(node.run(companions, new_name(), endpoint, tmp_path, takes_first=True))
    failed = [error for lane in lanes for error in lane.result()]
    if failed:
        raise ExceptionGroup("cases failed", failed)
    assert site.take_leaks() == []


@pytest.mark.soak
@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.__name__ for case in CASES])
async def test_two_clients_with_the_same_case_beside_one_of_the_other_kind(
    number: int,
    connect: Callable[[bool], AbstractAsyncContextManager[Client]],
    node: Node,
    endpoint: Endpoint,
    site: Site,
    new_name: Callable[[], str],
    tmp_path: Path,
) -> None:
    companion = COMPANIONS[number % len(COMPANIONS)]
    async with asyncio.TaskGroup() as group:
        lanes = [
            group.create_task(go_through([CASES[number]], partial(connect, is_first))) for is_first in (True, False)
        ]
        group.create_task(node.run([companion], new_name(), endpoint, tmp_path, takes_first=True))
    failed = [error for lane in lanes for error in lane.result()]
    if failed:
        raise ExceptionGroup("cases failed", failed)
    assert site.take_leaks() == []
