"""A server whose pages do nothing, in a process of its own: the real front door, broker and store, without Chromium.

What it is asked to do on a page is done at once, so what is left is what a task costs the server itself. Or, further
down, tasks are not even run as commands: what is left then is the front door, the queue and the disk, which is what a
queue of jobs is that does not know what they do. It ends with the `with` of whoever started it.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from tabherd import wire
from tabherd.actions.progress import Progress
from tabherd.browsers.port import TabPort
from tabherd.cluster.cluster import Cluster
from tabherd.config import parse
from tabherd.core.model import Task
from tabherd.edge.http import create_app
from tabherd.edge.joining import joined
from tabherd.edge.server import BACKLOG, STORE_FILE, Front
from tabherd.edge.state import StateDir
from tabherd.store.base import Store
from tabherd.store.open import open_store

from .caller import Caller
from .instant import as_in_the_server, instant_broker

STOP_LIMIT_S: Final = 20.0
# More than any benchmark has waiting, so that nothing is refused.
QUEUE_MAX: Final = 1_000_000
# Tasks that run at once where the store is a database.
DATABASE_WORKERS: Final = 400
# Among the arguments: tasks run nothing.
NO_COMMANDS: Final = "no-commands"
# Where other nodes would find it.
LONE_URL: Final = "http://127.0.0.1:1"
NO_COMMAND_ID: Final = "cmd_" + "0" * 28


class IdleServer(msgspec.Struct, frozen=True):
    """Such a server, as it runs."""

    url: str
    # The administrator's.
    token: str
    pid: int
    # The file that it keeps its rows in, unless that is a database.
    store: Path

    def caller(self) -> Caller:
        """A new connection, as the administrator."""
        return Caller(self.url, self.token)


@contextmanager
def idle_server(*, runs_commands: bool = True, store: str = "") -> Iterator[IdleServer]:
    """One that is ready, with an empty SQLite file, or with the store at that address."""
    with tempfile.TemporaryDirectory(prefix="tabherd-bench-") as directory:
        command = [sys.executable, "-m", __name__, directory, store, *([] if runs_commands else [NO_COMMANDS])]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                line = process.stdout.readline()
                if not line:
                    raise RuntimeError("the server did not start")
                url, token = msgspec.json.decode(line)
                yield IdleServer(url, token, process.pid, Path(directory) / STORE_FILE)
            finally:
                process.stdin.close()
                try:
                    process.wait(STOP_LIMIT_S)
                except subprocess.TimeoutExpired:
                    process.kill()


async def _perform(page: TabPort, action: wire.AnyAction, progress: Progress) -> Any:
    return None


async def _run_nothing(
    task: Task,
    on_sent: Callable[[str], None],
    on_place: Callable[[], None],
    write_sent: Callable[[], Awaitable[None]] | None = None,
) -> Any:
    """A task that is sent and over in one step; what has to be on disk before it is sent, is."""
    on_place()
    if write_sent is not None:
        await write_sent()
    on_sent(NO_COMMAND_ID)
    return None


async def _serve(directory: Path, address: str, *, runs_commands: bool) -> None:
    store = open_store(address, directory / STORE_FILE)
    # Whoever deals out work in bursts has a thousand tasks of one agent waiting soon.
    scheduler = {"queue_max": QUEUE_MAX, "queue_max_per_agent": QUEUE_MAX, "deadline_ms": 3_600_000}
    if address:
        # Each waits for a commit before it starts, so many have to be under way at once; as those of the others are.
        scheduler |= {"workers": DATABASE_WORKERS, "max_inflight_per_agent": DATABASE_WORKERS}
    try:
        async with AsyncExitStack() as stack:
            cluster: Cluster | None = None
            own: Store = store
            if address:
                # As any server on a database: a node, if a lone one.
                joining = joined(
                    store, parse({"store": address}), StateDir(directory), LONE_URL, is_patient=lambda: False
                )
                place = await stack.enter_async_context(joining)
                cluster, own = place.cluster, place.store
            broker = await stack.enter_async_context(
                instant_broker(own, _perform, scheduler=scheduler, cluster=cluster)
            )
            if not runs_commands:
                broker.tasking.scheduler._runs.run = _run_nothing  # type: ignore[method-assign]
            token, _ = await broker.credentials.create("bench", ["admin"])
            with socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as listener:
                port = listener.getsockname()[1]
                app = create_app(
                    config=broker.settings.current,
                    broker=broker,
                    events=broker.events,
                    metrics=broker.metrics,
                    node_id="nod_bench",
                    version="bench",
                    port=port,
                )
                front = Front(app, app.doors)
                serving = asyncio.create_task(front.serve(sockets=[listener]))
                print(msgspec.json.encode((f"http://127.0.0.1:{port}", token)).decode(), flush=True)
                await asyncio.to_thread(sys.stdin.read)
                front.should_exit = True
                await serving
                await app.close()
    finally:
        await store.close()


if __name__ == "__main__":
    with as_in_the_server():
        uvloop.run(_serve(Path(sys.argv[1]), sys.argv[2], runs_commands=NO_COMMANDS not in sys.argv))
