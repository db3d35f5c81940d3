"""Whole servers behind real ports, on one store and with fake browsers, for what travels between them."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

from tests.edge.control_house import Pages
from tests.sim.fakes import NO_FILES, Life, SimLauncher, SimMarks, SimOwners

from tabherd import config, wire
from tabherd.broker.broker import Broker, wall_clock_ms
from tabherd.broker.caller import AGENT_SCOPES, Caller
from tabherd.broker.credentials import Credentials
from tabherd.broker.events import EventBus
from tabherd.broker.registry import LiveTab
from tabherd.cluster.clock import ClusterClock, steady_ms
from tabherd.cluster.cluster import Cluster
from tabherd.cluster.hints import LocalHub
from tabherd.cluster.membership import Load
from tabherd.cluster.peer import Peer
from tabherd.core.model import Node
from tabherd.edge.forward.links import Links
from tabherd.edge.http import App, create_app
from tabherd.edge.joining import Joined
from tabherd.edge.server import Front
from tabherd.edge.sockets import Socket
from tabherd.metrics import Metrics
from tabherd.store.base import Applied, Insert
from tabherd.store.memory import MemoryStore

KEY = b"k" * 32
SETTINGS: dict[str, Any] = {"pools": {"default": {"browsers_max": 1, "sessions_per_browser": 100, "warm": 0}}}


class Company:
    """Who is there, as a test says; stands in for `Membership`."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.peers: dict[str, Peer] = {}
        self.known: dict[str, Any] = {}
        self.on_change: list[Callable[[], None]] = []
        self.on_gone: Any = None
        self.load: Callable[[], Load] = Load
        self.is_trusted = True
        self.is_fenced = asyncio.Event()

    def refuse_untrusted(self) -> None:
        """It is trusted."""

    def meet(self, *others: Node) -> None:
        self.peers = {other.id: Peer(other.id, other.epoch, other.url) for other in others}
        for told in self.on_change:
            told()


class ControlNode:
    """One running server of a cluster."""

    def __init__(self, node: Node, store: MemoryStore, hub: LocalHub, port: int) -> None:
        self.node = node
        self.port = port
        self.config = config.parse(SETTINGS)
        self.credentials = Credentials(store)
        self.events = EventBus(epoch=node.epoch, ring=10_000)
        self.pages = Pages()
        self.company = Company(node)
        life, numbers = Life(Random(1), lambda _: None), itertools.count(1)
        cluster = Cluster(self.company, hub.join())  # type: ignore[arg-type]
        self.broker = Broker(
            config=self.config,
            node=node,
            store=store,
            launcher=SimLauncher({}, life, lambda kind: f"{node.id}-{kind}-{next(numbers)}", fail_rate=0.0),
            events=self.events,
            metrics=Metrics(),
            credentials=self.credentials,
            marks=SimMarks({}, life),
            task_marks=SimMarks({}, life),
            webhook_secret=b"secret",
            files_dir=NO_FILES,
            memory_bytes=1 << 34,
            perform=self.pages.perform,
            owners=SimOwners(set(), wall_clock_ms),  # type: ignore[arg-type]
            cluster=cluster,
        )
        clock = ClusterClock()
        clock.looked(wall_clock_ms(), steady_ms(), steady_ms())
        self.links = Links(node.id, node.epoch, KEY, "boot", clock)
        self.place = Joined(
            cluster=cluster,
            store=store,
            clock=clock,
            links=self.links,
            hop_key=KEY,
            ticket_key=KEY,
            webhook_key=KEY,
        )

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws"

    def app(self) -> App:
        return create_app(
            config=self.config,
            broker=self.broker,
            events=self.events,
            metrics=self.broker.metrics,
            node_id=self.node.id,
            version="9.9",
            port=self.port,
            ticket_key=KEY,
            place=self.place,
        )

    async def token(self, agent_id: str, *scopes: str) -> str:
        return (await self.credentials.create(agent_id, scopes or AGENT_SCOPES))[0]

    async def open_tab(self, agent_id: str = "ada", **request: Any) -> str:
        """A session of that agent here; its tab."""
        caller = Caller(agent_id=agent_id, scopes=AGENT_SCOPES, controller_id=agent_id)
        return (await self.broker.sessions.open(caller, wire.OpenSession(**request))).tabs[0].tab_id

    def tab(self, tab_id: str) -> LiveTab:
        tab = self.broker.registry.tab(tab_id)
        assert tab is not None
        return tab

    @asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[ControlNode]:
        """Until the block ends, however it does."""
        app = self.app()
        assert app._routing is not None
        self.routing = app._routing
        self.front = Front(app, app.doors)
        serving = asyncio.create_task(self.front.serve(sockets=[listener]))
        try:
            await self.broker.start()
            yield self
        finally:
            self.events.close()
            self.front.should_exit = True
            await app.close()
            await serving
            await self.links.close()
            await self.broker.stop()

    def sockets(self) -> list[Socket]:
        """The WebSockets that are open."""
        return [one for one in self.front.server_state.connections if isinstance(one, Socket)]

    def break_sockets(self) -> None:
        """As when it is killed."""
        for one in self.sockets():
            one.abort()


@asynccontextmanager
async def nodes_of(count: int) -> AsyncIterator[list[ControlNode]]:
    """So many nodes that know each other."""
    store, hub = MemoryStore(), LocalHub()
    async with AsyncExitStack() as stack:
        nodes: list[ControlNode] = []
        for number in range(1, count + 1):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            port = listener.getsockname()[1]
            url = f"http://127.0.0.1:{port}"
            row = Node(id=f"nod_{number}", epoch=10 + number, url=url, pid=1, started_at=wall_clock_ms())
            outcome = await store.apply(Insert(row))
            assert isinstance(outcome, Applied)
            nodes.append(ControlNode(row, store, hub, port))
            await stack.enter_async_context(nodes[-1].serving(listener))
        introduce(nodes)
        yield nodes


def introduce(nodes: list[ControlNode]) -> None:
    """Each knows all others."""
    for node in nodes:
        node.company.meet(*(other.node for other in nodes if other is not node))
