"""The official MCP client, connected to a real server over HTTP or to a process of its own over stdio."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Implementation
from tests.cli.running import environment
from tests.server.conftest import Server

# No test here is about the stock of warm contexts, and each of those costs a server that starts a while.
FEW_WARM = {"POOLS__DEFAULT__WARM": "1"}
CLIENT = Implementation(name="Test client!", version="1")
# What one call may take before it hangs.
LIMIT_S = 60.0


@asynccontextmanager
async def over_http(server: Server, token: str | None = None, **headers: str) -> AsyncIterator[Client]:
    headers["Authorization"] = f"Bearer {token or server.admin_token}"
    async with httpx2.AsyncClient(headers=headers, timeout=LIMIT_S) as http:
        transport = streamable_http_client(f"{server.record['url']}/mcp", http_client=http)
        async with Client(transport, client_info=CLIENT, read_timeout_seconds=LIMIT_S) as client:
            yield client


@asynccontextmanager
async def over_stdio(server: Server, *words: str, **variables: str) -> AsyncIterator[Client]:
    # Nothing of the user's own settings, but for what coverage and the like need.
    env = {name: value for name, value in os.environ.items() if not name.startswith("TABHERD_")}
    process = StdioServerParameters(
        command=sys.executable,
        args=["-m", "tabherd", "mcp", *words],
        env=env | environment(server.state) | variables,
    )
    async with Client(process, client_info=CLIENT, read_timeout_seconds=LIMIT_S) as client:
        yield client


async def text(client: Client, tool: str, **arguments: Any) -> str:
    """What a tool says, which is no error."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return result.content[0].text


async def error(client: Client, tool: str, **arguments: Any) -> tuple[dict[str, Any], str]:
    """The typed error that a tool answers with, and its text."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    return result.structured_content, result.content[0].text


def ref_of(snapshot: str, name: str) -> str:
    """The ref of what is called so."""
    found = re.search(rf'"{re.escape(name)}" \[ref=([^\]]+)\]', snapshot)
    assert found, snapshot
    return found[1]


def sessions(server: Server) -> list[dict[str, Any]]:
    """All that are open."""
    with server.client() as admin:
        return admin.get("/sessions", params={"state": "active"}).raise_for_status().json()["sessions"]
