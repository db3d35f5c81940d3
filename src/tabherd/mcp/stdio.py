"""Serves MCP on stdin and stdout: one process, one client, one agent.

The leases of this process end with it: given back at once when its client closes stdin or asks it to terminate, and
by the server's own watch over the process when it is killed. The server may be started later than this process, and
may start anew: each call finds it as it is then.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec
from mcp.server.runner import serve_dual_era_loop
from mcp.server.stdio import stdio_server

from .. import config, wire
from ..client.aio import AsyncTabherd
from ..errors import Forbidden, InvalidRequest
from .desk import Desk, Line
from .server import build

AGENT_VARIABLE: Final = "TABHERD_AGENT"
# A server that is being started anew is waited for so long.
PATIENCE_S: Final = 10.0
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_MAX: Final = 60


async def serve(agent: str | None, environ: Mapping[str, str] = os.environ) -> None:
    """Serve the client at the other end of stdin until it leaves."""
    named = _checked(agent or environ.get(AGENT_VARIABLE) or None)

    async def connect(client_name: str) -> Line:
        return await _line(named, client_name, environ)

    desk = Desk(connect)

    leaving = _leave_on_signal(desk)
    try:
        async with stdio_server() as (incoming, outgoing):
            await serve_dual_era_loop(build(), incoming, outgoing, lifespan_state=desk)
    finally:
        leaving.cancel()
        await desk.close()


def _checked(agent: str | None) -> str | None:
    try:
        return msgspec.convert(agent, wire.Agent | None)
    except msgspec.ValidationError:
        raise InvalidRequest(f"'{agent}' is not a name an agent can have.", field="agent") from None


async def _line(named: str | None, client_name: str, environ: Mapping[str, str]) -> Line:
    agent: str | None = named or made_name(client_name, os.getpid())
    herd = AsyncTabherd(agent=agent, patience_s=PATIENCE_S, environ=environ)
    try:
        await herd.stats()
    except Forbidden as error:
        await herd.close()
        # The token is an agent's own, and says who this is; a name that was merely made up gives way to it.
        if named is not None or error.details.get("field") != "X-Agent-Id":
            raise
        agent, herd = None, AsyncTabherd(patience_s=PATIENCE_S, environ=environ)
    is_here = config.is_loopback(urlsplit(herd.url).hostname or "")
    return Line(herd, agent, os.getpid() if is_here else None)


def made_name(client_name: str, pid: int) -> str:
    """A name for an agent that has none: its client's, and the process, so that two of them are two agents."""
    name = _UNFIT.sub("-", client_name)[:_NAME_MAX].strip("-._")
    return f"{name or 'mcp'}-{pid}"


def _leave_on_signal(desk: Desk) -> asyncio.Task[None]:
    """Give everything back when told to terminate. Reading stdin cannot be interrupted, so the process ends here."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        numbers.append(number)
        told.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)

    async def leave() -> None:
        await told.wait()
        await desk.close()
        # By the same signal, so that whoever waits for this process sees why it ended.
        signal.signal(numbers[0], signal.SIG_DFL)
        os.kill(os.getpid(), numbers[0])

    return loop.create_task(leave())
