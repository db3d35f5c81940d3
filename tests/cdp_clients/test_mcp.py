"""The MCP servers that agents drive a Chrome with drive tabherd as they are, several at once on one Chromium."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.server.conftest import Server

from .documented import host, mcp_command, surroundings
from .mcp import McpServer, mcp_server

pytestmark = [pytest.mark.server, pytest.mark.browser]

FORM = """data:text/html,<title>Form</title><input aria-label=name>
<button onclick="document.title = 'Hello, ' + document.querySelector('input').value">Greet</button>"""

Started = AbstractAsyncContextManager[McpServer]


class Client(NamedTuple):
    """How one of the MCP servers names what all of them can do."""

    # Of its section in the page.
    heading: str
    # What npx would run after a second of its own, and the option that takes the address.
    program: str
    option: str
    # Of the tools, with what they always need.
    navigate: tuple[str, dict[str, Any]]
    snapshot: tuple[str, dict[str, Any]]
    pages: tuple[str, dict[str, Any]]
    evaluate: tuple[str, dict[str, Any]]
    click: tuple[str, dict[str, Any]]
    fill: tuple[str, dict[str, Any]]
    # What a call names an element by, how a snapshot does, and what a text is given as.
    element: str
    in_snapshot: str
    text: str

    async def use(self, mcp: McpServer, tool: tuple[str, dict[str, Any]], **arguments: Any) -> str:
        name, needed = tool
        return await mcp.call(name, **needed, **arguments)


PLAYWRIGHT = Client(
    heading="Playwright MCP",
    program="playwright-mcp",
    option="--cdp-endpoint",
    navigate=("browser_navigate", {}),
    snapshot=("browser_snapshot", {}),
    pages=("browser_tabs", {"action": "list"}),
    evaluate=("browser_evaluate", {}),
    click=("browser_click", {}),
    fill=("browser_type", {}),
    element="target",
    in_snapshot=r"{role} .*\[ref=(\w+)\]",
    text="text",
)
DEVTOOLS = Client(
    heading="chrome-devtools-mcp",
    program="chrome-devtools-mcp",
    option="--wsEndpoint",
    navigate=("navigate_page", {"type": "url", "pageId": 1}),
    snapshot=("take_snapshot", {"pageId": 1}),
    pages=("list_pages", {}),
    evaluate=("evaluate_script", {"pageId": 1}),
    click=("click", {"pageId": 1}),
    fill=("fill", {"pageId": 1}),
    element="uid",
    in_snapshot=r"uid=(\w+) {role} ",
    text="value",
)
BOTH = pytest.mark.parametrize("client", [PLAYWRIGHT, DEVTOOLS], ids=lambda client: client.heading)


@pytest.fixture
def start(server: Server, project: Path) -> Callable[[Sequence[str]], Started]:
    """Runs a command where the clients are installed."""
    return lambda words: mcp_server(words, surroundings(server, ""), project)


async def greet(
    client: Client, name: str, server: Server, start: Callable[[Sequence[str]], Started], all_are_there: asyncio.Barrier
) -> None:
    """Fill in a form; with everybody's on the screen, only the own one is listed."""
    async with start(mcp_command(client.heading, server, server.token_of(name))) as mcp:
        await client.use(mcp, client.navigate, url=FORM)
        snapshot = await client.use(mcp, client.snapshot)
        box, button = (_element(client, snapshot, role) for role in ("textbox", "button"))
        await client.use(mcp, client.fill, **{client.element: box, client.text: name})
        await client.use(mcp, client.click, **{client.element: button})
        assert f'"Hello, {name}"' in await client.use(mcp, client.evaluate, function="() => document.title")
        await all_are_there.wait()
        assert (await client.use(mcp, client.pages)).count("data:text/html") == 1


@pytest.mark.parametrize(
    "clients",
    [
        [PLAYWRIGHT, DEVTOOLS],
        pytest.param([PLAYWRIGHT, PLAYWRIGHT, DEVTOOLS, DEVTOOLS], marks=pytest.mark.release),
    ],
    ids=len,
)
async def test_servers_as_documented_fill_in_a_form_and_see_their_own_page_only(
    clients: list[Client], server: Server, start: Callable[[Sequence[str]], Started]
) -> None:
    all_are_there = asyncio.Barrier(len(clients))
    async with asyncio.TaskGroup() as tasks:
        for number, client in enumerate(clients):
            tasks.create_task(greet(client, f"agent{number}", server, start, all_are_there))


@pytest.mark.release
@BOTH
async def test_the_session_of_a_server_that_has_ended_makes_room(
    client: Client, server: Server, start: Callable[[Sequence[str]], Started]
) -> None:
    address = f"ws://{host(server)}/?token={server.token_of('ada')}&pool=solo"
    for _ in range(2):
        async with start([client.program, client.option, address]) as mcp:
            await client.use(mcp, client.navigate, url=FORM)


@pytest.mark.release
async def test_playwright_mcp_sends_the_token_in_a_header(
    server: Server, start: Callable[[Sequence[str]], Started]
) -> None:
    header = f"Authorization: Bearer {server.token_of('ada')}"
    async with start([PLAYWRIGHT.program, PLAYWRIGHT.option, f"http://{host(server)}", "--cdp-header", header]) as mcp:
        assert "Form" in await PLAYWRIGHT.use(mcp, PLAYWRIGHT.navigate, url=FORM)


@pytest.mark.release
async def test_chrome_devtools_mcp_sends_the_token_in_a_header(
    server: Server, start: Callable[[Sequence[str]], Started]
) -> None:
    headers = json.dumps({"Authorization": f"Bearer {server.token_of('ada')}"})
    async with start([DEVTOOLS.program, DEVTOOLS.option, f"ws://{host(server)}/", "--wsHeaders", headers]) as mcp:
        assert "about:blank" in await DEVTOOLS.use(mcp, DEVTOOLS.pages)


@pytest.mark.release
async def test_chrome_devtools_mcp_takes_the_address_of_playwright(
    server: Server, start: Callable[[Sequence[str]], Started]
) -> None:
    address = f"http://{host(server)}?token={server.token_of('ada')}"
    async with start([DEVTOOLS.program, "--browserUrl", address]) as mcp:
        assert "about:blank" in await DEVTOOLS.use(mcp, DEVTOOLS.pages)


@pytest.mark.release
async def test_chrome_devtools_mcp_tells_its_caller_why_it_was_turned_away(
    server: Server, start: Callable[[Sequence[str]], Started]
) -> None:
    async with start([DEVTOOLS.program, DEVTOOLS.option, f"ws://{host(server)}/?token=wrong"]) as mcp:
        assert '"code":"unauthenticated"' in await mcp.failure("list_pages")


@pytest.mark.release
async def test_a_trace_of_the_whole_browser_is_refused(
    server: Server, start: Callable[[Sequence[str]], Started]
) -> None:
    address = f"ws://{host(server)}/?token={server.token_of('ada')}"
    async with start([DEVTOOLS.program, DEVTOOLS.option, address]) as mcp:
        assert "policy_denied" in await mcp.failure("performance_start_trace", pageId=1)


def _element(client: Client, snapshot: str, role: str) -> str:
    found = re.search(client.in_snapshot.format(role=role), snapshot)
    assert found is not None, snapshot
    return found[1]
