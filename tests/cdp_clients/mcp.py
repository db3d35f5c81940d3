"""As much of an MCP client as the tests need: it starts a server, and calls its tools one after the other.

The server and everything it has started end with the context, also when the test fails. What it prints to standard
error is among the output of the test.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

PROTOCOL = "2025-06-18"
# A snapshot of a small page is short, a picture of it some hundred kilobytes.
LINE_MAX_BYTES = 1 << 24
# A server that takes longer to answer, or to end, hangs.
LIMIT_S = 150
# Notifications that may come before an answer; more would be a server that does not answer.
NOTIFICATIONS_MAX = 1_000


class McpServer:
    """A running one, which was initialised."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._ids = itertools.count(1)

    async def tools(self) -> set[str]:
        """The names of what it can do."""
        return {tool["name"] for tool in (await self._ask("tools/list", {}))["tools"]}

    async def call(self, tool: str, **arguments: Any) -> str:
        """The text that the tool answers with; raises when the tool fails."""
        is_failure, text = await self._call(tool, arguments)
        assert not is_failure, f"{tool}: {text}"
        return text

    async def failure(self, tool: str, **arguments: Any) -> str:
        """What the tool says when it fails, as it must."""
        is_failure, text = await self._call(tool, arguments)
        assert is_failure, f"{tool} did not fail: {text}"
        return text

    async def initialise(self) -> None:
        about = {"name": "tabherd-tests", "version": "1"}
        await self._ask("initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": about})
        self._say({"method": "notifications/initialized"})

    async def leave(self) -> None:
        """End it as an MCP client does: nothing more will be said."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await asyncio.wait_for(self._process.wait(), LIMIT_S)

    async def _call(self, tool: str, arguments: Mapping[str, Any]) -> tuple[bool, str]:
        answer = await self._ask("tools/call", {"name": tool, "arguments": arguments})
        text = "\n".join(part["text"] for part in answer["content"] if part["type"] == "text")
        return answer.get("isError", False), text

    async def _ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        id = next(self._ids)
        self._say({"id": id, "method": method, "params": params})
        answer = await asyncio.wait_for(self._answer(id), LIMIT_S)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    async def _answer(self, id: int) -> dict[str, Any]:
        assert self._process.stdout is not None
        for _ in range(NOTIFICATIONS_MAX):
            line = await self._process.stdout.readline()
            if not line:
                raise RuntimeError("the MCP server has ended")
            heard: dict[str, Any] = json.loads(line)
            if heard.get("id") == id and "method" not in heard:
                return heard
        raise RuntimeError("the MCP server does not answer")

    def _say(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


@asynccontextmanager
async def mcp_server(words: Sequence[str], env: Mapping[str, str], cwd: Path) -> AsyncIterator[McpServer]:
    # A group of its own: npx starts the server as a child, and that must not be left behind.
    process = await asyncio.create_subprocess_exec(
        *words, env=env, cwd=cwd, stdin=PIPE, stdout=PIPE, limit=LINE_MAX_BYTES, start_new_session=True
    )
    server = McpServer(process)
    try:
        await server.initialise()
        yield server
        await server.leave()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
