"""`python -m bench.rig.passthrough URL`: a proxy that looks at nothing, in a process of its own.

What it costs is the floor for any proxy in Python on the same event loop and the same WebSocket library: two sockets,
two frames read and two written per round trip. It prints its port, and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_connect, ws_create_server

from .channel import MESSAGE_MAX_BYTES

STOP_LIMIT_S: Final = 10.0

_TEXT: Final = WSMsgType.TEXT


class Side(WSListener):
    """One of the two sockets of a client. Hands every frame on to the other one."""

    def __init__(self) -> None:
        self.other: WSTransport | None = None
        self.transport: WSTransport | None = None
        # What came before the other side was there.
        self.early: list[bytes] = []

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type != _TEXT:
            return
        if self.other is not None:
            self.other.send(_TEXT, frame.get_payload_as_bytes())
        else:
            self.early.append(frame.get_payload_as_bytes())

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        if self.other is not None:
            self.other.disconnect(graceful=False)


async def _serve(url: str) -> None:
    joining: set[asyncio.Task[None]] = set()

    async def join(client: Side) -> None:
        browser = Side()
        transport, _ = await ws_connect(lambda: browser, url, max_frame_size=MESSAGE_MAX_BYTES)
        client.other, browser.other = transport, client.transport
        for message in client.early:
            transport.send(_TEXT, message)

    def accept(request: WSUpgradeRequest) -> Side:
        client = Side()
        task = asyncio.get_running_loop().create_task(join(client))
        joining.add(task)
        task.add_done_callback(joining.discard)
        return client

    server = await ws_create_server(accept, "127.0.0.1", 0, max_frame_size=MESSAGE_MAX_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


class Proxy(msgspec.Struct, frozen=True):
    """Such a proxy, as it runs."""

    url: str
    pid: int


@contextmanager
def passing_through(url: str) -> Iterator[Proxy]:
    """One in front of that address."""
    command = [sys.executable, "-m", __name__, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Proxy(f"ws://127.0.0.1:{int(process.stdout.readline())}/", process.pid)
        finally:
            process.stdin.close()
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1]))
