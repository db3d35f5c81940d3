"""Binds the tools to the official SDK: lists them, runs them, and answers with what a model can read.

A typed error is a tool's answer with `isError`, the error's own JSON as structured content and a short text; only what
is not a tool at all is a protocol error. A client that cancels a call ends it, down to the command on the page.
Importing this module is slow, because the SDK is: import it only where MCP is spoken.

Invariant: every text is joined from lines here, and what could end a line is escaped in them. So what a page says
begins no line, and cannot pass for an answer of ours.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from .. import __version__
from ..errors import TabherdError
from ..quoting import one_line
from .desk import Desk
from .parameters import read, schema_of
from .refusals import told
from .tools import TOOLS, Lines, Picture, Result, Tool
from .waiting import Report

INSTRUCTIONS: Final = (
    "Browsers shared with other agents; what you lease is yours alone. browser_navigate leases a session by itself. "
    "Read with browser_snapshot, act with the refs it shows, call browser_release when you are done. "
    "Errors name a code and the next step; capacity errors say when to retry."
)

McpServer = Server[Desk]
Context = ServerRequestContext[Desk, Any]


def build() -> McpServer:
    """A server whose calls work on the desk that each connection is served with, as its `lifespan_state`."""
    return Server(
        "tabherd",
        version=__version__,
        title="tabherd",
        instructions=INSTRUCTIONS,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
    )


async def _list_tools(context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return LISTED


async def _call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    tool = TOOLS.get(params.name)
    if tool is None:
        raise MCPError(types.INVALID_PARAMS, f"There is no tool {params.name[:100]!r}.", {"tools": [*TOOLS]})
    desk = context.lifespan_context
    if context.session.client_params is not None:
        desk.client_name = context.session.client_params.client_info.name
    try:
        wish = read(params.arguments, tool.parameters)
        result: Result = await desk.work(tool.run(desk, wish, _report(context)))
    except TabherdError as error:
        return _refused(error)
    return types.CallToolResult(content=[_content(result)])


def _report(context: Context) -> Report:
    """How this call reports progress; None when its caller did not ask for it."""
    if context.meta is None or context.meta.get("progress_token") is None:
        return None

    async def report(waited_s: float, message: str) -> None:
        await context.session.report_progress(waited_s, None, one_line(message))

    return report


def _content(result: Result) -> types.ContentBlock:
    match result:
        case Picture(data=data, media_type=media_type):
            return types.ImageContent(data=base64.b64encode(data).decode("ascii"), mime_type=media_type)
        case lines:
            return _text(lines)


def _text(lines: Lines) -> types.TextContent:
    return types.TextContent(text="\n".join(one_line(line) for line in lines))


def _refused(error: TabherdError) -> types.CallToolResult:
    return types.CallToolResult(content=[_text(told(error))], structured_content=error.to_wire(), is_error=True)


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=schema_of(tool.parameters),
        annotations=types.ToolAnnotations(read_only_hint=tool.is_reading, destructive_hint=tool.is_destructive),
    )


LISTED: Final = types.ListToolsResult(tools=[_described(tool) for tool in TOOLS.values()])
