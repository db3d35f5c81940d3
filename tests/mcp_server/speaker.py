"""MCP spoken by hand to an application in this process, for what no well-behaved client would send."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import httpx
from tests.edge.conftest import HOST

from tabherd.edge.http import App

VERSION = "2025-06-18"
HELLO = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "by hand", "version": "1"}}


class Speaker:
    """One MCP client; it has no session before `open`."""

    def __init__(self, app: App, token: str, **headers: str) -> None:
        self._app = app
        self.headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream", **headers}
        self._ids = itertools.count(1)

    @property
    def session_id(self) -> str:
        return self.headers["Mcp-Session-Id"]

    async def open(self) -> httpx.Response:
        """Initialize; the session is used from then on, if there is one."""
        answer = await self.post("initialize", HELLO)
        if answer.is_success:
            self.headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
            await self.notify("notifications/initialized")
        return answer

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """What the tool answers."""
        answer = await self.post("tools/call", {"name": tool, "arguments": arguments})
        assert answer.status_code == 200, answer.text
        return told(answer)["result"]

    async def text(self, tool: str, **arguments: Any) -> str:
        return (await self.call(tool, **arguments))["content"][0]["text"]

    async def error(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The typed error that the tool answers with."""
        result = await self.call(tool, **arguments)
        assert result["isError"], result
        return result["structuredContent"]

    async def post(self, method: str, params: dict[str, Any], id: int | None = None) -> httpx.Response:
        message = {"jsonrpc": "2.0", "id": next(self._ids) if id is None else id, "method": method, "params": params}
        return await self.send("POST", content=json.dumps(message))

    async def notify(self, method: str, **params: Any) -> httpx.Response:
        return await self.send("POST", content=json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))

    async def send(self, method: str, **request: Any) -> httpx.Response:
        headers = {"Content-Type": "application/json", **self.headers, **request.pop("headers", {})}
        transport = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}", timeout=30) as http:
            return await http.request(method, "/mcp", headers=headers, **request)


def told(answer: httpx.Response) -> dict[str, Any]:
    """The message that answers the request, in the last event of the stream."""
    # Unlike Python's, the lines of a stream of events end with these two alone.
    lines = [line.removeprefix("data: ") for line in re.split(r"[\r\n]+", answer.text) if line.startswith("data: ")]
    return json.loads(lines[-1] if lines else answer.text)
