"""A CDP peer that does what a test tells it to, right or wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_create_server

from tabherd.browsers.cdp import CdpConnection

Script = Callable[["FakeBrowser", dict[str, Any]], None]


class FakeBrowser(WSListener):
    """One accepted socket; `script` is called with each message."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.transport: WSTransport

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            transport.disconnect()
            return
        message = msgspec.json.decode(frame.get_payload_as_bytes())
        self.received.put_nowait(message)
        self._script(self, message)

    def say(self, message: dict[str, Any]) -> None:
        self.say_raw(msgspec.json.encode(message))

    def say_raw(self, payload: bytes, kind: WSMsgType = WSMsgType.TEXT, *, fin: bool = True) -> None:
        self.transport.send(kind, payload, fin=fin)

    def emit(self, method: str, session_id: str = "", **params: Any) -> None:
        event: dict[str, Any] = {"method": method, "params": params}
        if session_id:
            event["sessionId"] = session_id
        self.say(event)

    def hang_up(self) -> None:
        """As a killed process does: no close frame."""
        self.transport.disconnect(graceful=False)


def silent(_: FakeBrowser, __: dict[str, Any]) -> None:
    """Never answers."""


def echo(browser: FakeBrowser, message: dict[str, Any]) -> None:
    """Answers each call with its own method and parameters."""
    browser.say({"id": message["id"], "result": {"method": message["method"], **message.get("params", {})}})


@asynccontextmanager
async def connected(script: Script) -> AsyncIterator[tuple[CdpConnection, FakeBrowser]]:
    """Our client and its peer."""
    accepted: list[FakeBrowser] = []

    def accept(_: object) -> FakeBrowser:
        accepted.append(FakeBrowser(script))
        return accepted[-1]

    server = await ws_create_server(accept, "127.0.0.1", 0, max_frame_size=256 << 20)
    port = server.sockets[0].getsockname()[1]
    connection = await CdpConnection.connect(f"ws://127.0.0.1:{port}/devtools/browser/x")
    try:
        # A call that is never settled shall fail its test, not hang it.
        async with asyncio.timeout(60):
            yield connection, accepted[0]
    finally:
        await connection.close()
        # One that does not read would never notice that we have gone.
        accepted[0].hang_up()
        server.close()
        await server.wait_closed()
