"""`tabherd mcp`: an MCP server on stdin and stdout, for clients that start their servers themselves."""

from __future__ import annotations

import asyncio

from ..mcp.extra import require_sdk


def serve(agent: str | None) -> None:
    """Serve until the client leaves; a typed error, before anything is read, if MCP is not installed."""
    require_sdk()
    # Importing the SDK takes longer than everything else this command does before its client is heard.
    from ..mcp import stdio

    asyncio.run(stdio.serve(agent))
