"""A whole server in this process, with a real Chromium: for what can only be seen, or made quick, from inside."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tabherd import config
from tabherd.broker.broker import Broker, wall_clock_ms
from tabherd.broker.caller import AGENT_SCOPES
from tabherd.broker.credentials import Credentials
from tabherd.broker.events import EventBus
from tabherd.broker.marks import FileMarks
from tabherd.browsers.chromium import ChromiumLauncher
from tabherd.core.model import Node
from tabherd.edge.http import create_app
from tabherd.edge.server import Front
from tabherd.metrics import Metrics
from tabherd.store.memory import MemoryStore

# A browser that is busy with a large message is not taken for dead.
SETTINGS: dict[str, Any] = {
    "browsers_max": 1,
    "warm": 1,
    "disconnect_grace_s": 0,
    "max_active": 20,
    "probe_limit_ms": 60_000,
}


class House:
    """One running server."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.config = config.parse({"pools": {"default": SETTINGS | settings}})
        self.credentials = Credentials(MemoryStore())
        self.events = EventBus(epoch=1, ring=1_000)
        self.metrics = Metrics()
        self.broker = Broker(
            config=self.config,
            node=Node(id="nod_house", epoch=1, url="", pid=1, started_at=wall_clock_ms()),
            store=self.credentials._store,
            launcher=ChromiumLauncher(directory / "profiles", self.config.pools),
            events=self.events,
            metrics=self.metrics,
            credentials=self.credentials,
            marks=FileMarks(directory / "marks"),
            task_marks=FileMarks(directory / "task_marks"),
            webhook_secret=b"secret",
            files_dir=directory / "files",
            memory_bytes=1 << 34,
        )
        self.port = 0

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/"

    async def token(self, agent_id: str = "ada") -> str:
        return (await self.credentials.create(agent_id, AGENT_SCOPES))[0]


@asynccontextmanager
async def house(directory: Path, **settings: Any) -> AsyncIterator[House]:
    """A server that listens, its pool with these settings; everything of it ends with the context."""
    here = House(directory, **settings)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here.port = listener.getsockname()[1]
        app = create_app(
            config=here.config,
            broker=here.broker,
            events=here.events,
            metrics=here.metrics,
            node_id="nod_house",
            version="9.9",
            port=here.port,
        )
        front = Front(app, app.doors)
        serving = asyncio.create_task(front.serve(sockets=[listener]))
        try:
            await here.broker.start()
            yield here
        finally:
            here.events.close()
            front.should_exit = True
            await serving
            await here.broker.stop()
