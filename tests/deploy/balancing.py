"""A real load balancer with the configuration of deploy/, before two nodes that are only made up.

Of the configuration only what belongs to a place is changed: addresses, ports, and where nginx may write. The balancer
ends with the block, by its own pid.
"""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / ".setup" / "balancers" / "bin"
LIMIT_S = 60.0
POLL_S = 0.02
# The key of RFC 6455's example, and what a server makes of it.
WEBSOCKET_KEY = "dGhlIHNhbXBsZSBub25jZQ=="
WEBSOCKET_ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
NGINX_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


class FakeNode:
    """Answers a few requests, and counts them. `port` is where."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = 0
        self.is_ready = True
        # Requests by their path.
        self.seen: Counter[str] = Counter()
        # Set to let streams end.
        self.may_end = asyncio.Event()
        self._came = asyncio.Condition()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Nobody listens there any more."""
        self.may_end.set()
        if self._server is not None:
            self._server.close()

    async def wait_asked(self, path: str, times: int) -> None:
        """Until it was asked for that so often from now on."""
        enough = self.seen[path] + times
        async with asyncio.timeout(LIMIT_S), self._came:
            await self._came.wait_for(lambda: self.seen[path] >= enough)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            # The balancer has let go of the connection.
            return
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether another request may follow on the connection."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        path = head.split(" ", 2)[1]
        if length := re.search(r"(?i)content-length: (\d+)", head):
            await reader.readexactly(int(length[1]))
        self.seen[path] += 1
        async with self._came:
            self._came.notify_all()
        match path:
            case "/ready":
                writer.write(_answer("ready" if self.is_ready else "draining", 200 if self.is_ready else 503))
            case "/dies":
                return False
            case "/host":
                writer.write(_answer(re.findall(r"(?i)\r\nhost: (\S+)", head)[0]))
            case "/events":
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: 1\n\n"
                )
                await self.may_end.wait()
                return False
            case "/socket":
                assert re.search(r"(?i)\r\nupgrade: websocket", head), head
                accept = (
                    f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {WEBSOCKET_ACCEPT}\r\n\r\n"
                )
                writer.write(b"HTTP/1.1 101 Switching Protocols\r\n" + accept.encode())
                writer.write(await reader.readexactly(4))
                return False
            case _:
                writer.write(_answer(self.name))
        return True


def _answer(text: str, status: int = 200) -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


class Balanced:
    """A balancer that runs, and the nodes behind it."""

    def __init__(self, port: int, nodes: tuple[FakeNode, FakeNode]) -> None:
        self.port = port
        self.nodes = nodes

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.timeout(LIMIT_S):
                yield reader, writer
        finally:
            writer.close()

    async def call(self, method: str, path: str) -> tuple[int, str]:
        """Status and text of the answer, on a connection of its own."""
        head = f"{method} {path} HTTP/1.1\r\nHost: a.example:1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        async with self.connected() as (reader, writer):
            writer.write(head.encode())
            answer, _, text = (await reader.read()).decode().partition("\r\n\r\n")
        return int(answer.split(" ", 2)[1]), text


@asynccontextmanager
async def balanced(kind: str, directory: Path) -> AsyncIterator[Balanced]:
    """haproxy or nginx, before two nodes."""
    nodes = (FakeNode("node-1"), FakeNode("node-2"))
    for node in nodes:
        await node.start()
    port = _free_port()
    process = subprocess.Popen(
        command(kind, directory, port, (nodes[0].port, nodes[1].port)), stderr=subprocess.DEVNULL
    )
    try:
        await _listening(process, port)
        yield Balanced(port, nodes)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(process.wait, LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for node in nodes:
            await node.stop()


def command(kind: str, directory: Path, port: int, nodes: tuple[int, int], *, is_check: bool = False) -> list[str]:
    """The command line of a balancer with those ports; or the one that only checks its configuration."""
    name = {"haproxy": "haproxy.cfg", "nginx": "nginx.conf"}[kind]
    text = (ROOT / "deploy" / name).read_text("utf-8")
    for number, node in enumerate(nodes, start=1):
        text = text.replace(f"node-{number}:7722", f"127.0.0.1:{node}")
    if kind == "haproxy":
        # More often than in earnest, so that nobody has to wait for it.
        text = text.replace("bind :7722", f"bind 127.0.0.1:{port}").replace("inter 1s", "inter 50ms")
        # And without that a node which is slow to answer, as all are on a busy machine, is taken for one that is not.
        text = text.replace("timeout connect 2s", "timeout connect 60s\n    timeout check 60s")
    else:
        writable = "".join(f"    {each}_temp_path {directory}/{each};\n" for each in NGINX_TEMPORARY)
        text = text.replace("listen 7722", f"listen 127.0.0.1:{port}").replace("http {\n", f"http {{\n{writable}")
        text = text.replace("/run/nginx.pid", f"{directory}/pid").replace("/dev/stdout", f"{directory}/access")
    written = directory / name
    written.write_text(text, "utf-8")
    if kind == "haproxy":
        return [str(PROGRAMS / kind), "-c" if is_check else "-db", "-f", str(written)]
    mode = ["-t"] if is_check else ["-g", "daemon off;"]
    return [str(PROGRAMS / kind), "-p", str(directory), "-e", "stderr", "-c", str(written), *mode]


async def _listening(process: subprocess.Popen[bytes], port: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        while process.poll() is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(POLL_S)
            else:
                writer.close()
                return
    raise RuntimeError("the load balancer does not start")


def _free_port() -> int:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
