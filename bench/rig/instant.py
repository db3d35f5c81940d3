"""A broker in this process whose browsers take no time: what is left is what the broker itself costs.

Everything of it is the real thing, on the real clock and with the settings of the server's process, down to the marks
in their mapped file; only Chromium is not there. A page does whatever `perform` does.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from tabherd import config, logs
from tabherd.broker.broker import Broker, wall_clock_ms
from tabherd.broker.caller import AGENT_SCOPES, Caller
from tabherd.broker.credentials import Credentials
from tabherd.broker.events import EventBus
from tabherd.broker.leases import Perform
from tabherd.broker.marks import FileMarks
from tabherd.browsers.dialogs import Dialogs
from tabherd.browsers.port import DownloadListener, Listener, Origins, Page, PageListener, SessionPort, Usage, Viewport
from tabherd.cluster.cluster import Cluster
from tabherd.core.model import Browser, Node
from tabherd.edge.server import GC_THRESHOLDS, SWITCH_INTERVAL_S, memory_bytes
from tabherd.metrics import Metrics
from tabherd.store.base import Store

# Room for every caller of a benchmark in one browser, which is never replaced.
_POOL: Final = {"browsers_max": 1, "sessions_per_browser": 1_000, "recycle_sessions": 1_000_000}
_EVENTS_RING: Final = 10_000
_ALONE: Final = Node(id="nod_bench", epoch=1, url="", pid=0, started_at=wall_clock_ms())
ADMIN: Final = Caller(agent_id="root", scopes=frozenset({"admin"}), controller_id="root")


def agent(name: str) -> Caller:
    """A caller with an agent's usual scopes, and a controller of its own."""
    return Caller(agent_id=name, scopes=AGENT_SCOPES, controller_id=name)


@contextmanager
def as_in_the_server() -> Iterator[None]:
    """The settings of the interpreter that a server's process has; those of before come back."""
    before_s, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    logs.configure("json", "error")
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        sys.setswitchinterval(before_s)


@asynccontextmanager
async def instant_broker(
    store: Store,
    perform: Perform,
    *,
    pools: Mapping[str, Mapping[str, Any]] | None = None,
    gate: Mapping[str, Any] | None = None,
    scheduler: Mapping[str, Any] | None = None,
    cluster: Cluster | None = None,
) -> AsyncIterator[Broker]:
    """A broker that has started, with a pool `default` and those that are named; settings as in the configuration. In a
    cluster the store is that of its node.
    """
    named = {"default": {}, **(pools or {})}
    settings = config.parse(
        {
            "pools": {name: {**_POOL, **said} for name, said in named.items()},
            "gate": gate or {},
            "scheduler": scheduler or {},
        }
    )
    with tempfile.TemporaryDirectory(prefix="tabherd-bench-") as directory:
        marks, task_marks = (FileMarks(Path(directory) / name) for name in ("running.marks", "tasks.marks"))
        broker = Broker(
            config=settings,
            node=_ALONE if cluster is None else cluster.node,
            store=store,
            launcher=InstantLauncher(),
            events=EventBus(epoch=1, ring=_EVENTS_RING),
            metrics=Metrics(),
            credentials=Credentials(store),
            marks=marks,
            task_marks=task_marks,
            webhook_secret=b"secret",
            files_dir=Path(directory) / "files",
            memory_bytes=memory_bytes(),
            perform=perform,
            cluster=cluster,
        )
        try:
            await broker.start()
            try:
                yield broker
            finally:
                await broker.stop()
        finally:
            marks.close()
            task_marks.close()


class InstantTab:
    """A page that is whatever it is asked to be."""

    def __init__(self, target_id: str) -> None:
        self.target_id = target_id
        self.cdp_session_id = target_id
        self.script: tuple[int, str] | None = None
        self.dialogs = Dialogs()

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        raise AssertionError(f"{method}: what a page does is the benchmark's own")

    def listen(self, method: str, listener: Listener) -> Callable[[], None]:
        return lambda: None

    def expect(self, what: str) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    async def frame(self, frame_id: str) -> SessionPort | None:
        return None

    async def ping(self) -> None:
        """It answers."""

    async def calm(self) -> None:
        """Nothing goes on in it."""

    async def set_viewport(self, viewport: Viewport) -> None:
        """It has no size."""

    def post(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """It does not listen."""

    async def freeze(self) -> None:
        """Nothing goes on in it."""

    def thaw(self) -> None:
        """Nothing goes on in it."""


class InstantBrowser:
    """Remembers nothing, and is never gone before it is stopped."""

    def __init__(self, row: Browser) -> None:
        self.row = row
        self.proxy: Mapping[str, str] = {}
        self._numbers = itertools.count()
        self._gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def new_context(self) -> str:
        return f"context-{next(self._numbers)}"

    async def new_tab(self, context_id: str) -> InstantTab:
        return InstantTab(f"target-{next(self._numbers)}")

    async def attach_tab(self, target_id: str) -> InstantTab:
        return InstantTab(target_id)

    async def close_tab(self, target_id: str) -> None:
        """Gone."""

    async def let_go(self, target_id: str) -> None:
        """Let go."""

    async def watch_pages(self, listener: PageListener) -> None:
        """Nothing ever happens to them."""

    async def cookies(self, context_id: str) -> list[dict[str, Any]]:
        return []

    async def set_cookies(self, context_id: str, cookies: list[dict[str, Any]]) -> None:
        """Set."""

    async def local_storage(self, target_id: str, patience_s: float = 0.0) -> tuple[str, dict[str, str]] | None:
        return None

    async def put_local_storage(self, context_id: str, origins: Origins) -> None:
        """Put."""

    def allow_downloads(self, context_id: str, directory: str, listener: DownloadListener) -> None:
        """Nothing ever comes."""

    async def forbid_downloads(self, context_id: str) -> None:
        """Nothing came."""

    def cancel_download(self, guid: str) -> None:
        """There is none."""

    async def dispose_context(self, context_id: str) -> None:
        """Gone."""

    async def context_ids(self) -> list[str]:
        return []

    async def pages(self) -> list[Page]:
        return []

    def worked_ms(self) -> int:
        return 0

    async def probe(self) -> Usage:
        return Usage()

    async def wait_gone(self) -> str:
        return await asyncio.shield(self._gone)

    async def stop(self) -> None:
        if not self._gone.done():
            self._gone.set_result("stopped")


class InstantLauncher:
    """Starts them."""

    async def launch(self, row: Browser) -> InstantBrowser:
        return InstantBrowser(row)

    async def adopt(self, row: Browser) -> InstantBrowser | None:
        return None

    async def reap_strays(self, node_id: str, known: Collection[str]) -> int:
        return 0

    async def reap(self, row: Browser) -> None:
        """There is nothing left of it."""
