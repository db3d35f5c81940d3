"""A whole server behind a real port, with a real broker and fake browsers, and a client of its control channel."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from picows.websockets import ClientConnection, ConnectionClosed, connect
from tests.sim.fakes import NO_FILES, Life, Process, SimLauncher, SimMarks, SimOwners

from tabherd import config, wire
from tabherd.actions.progress import Progress
from tabherd.broker.broker import Broker, wall_clock_ms
from tabherd.broker.caller import AGENT_SCOPES, Caller
from tabherd.broker.credentials import Credentials
from tabherd.broker.events import EventBus
from tabherd.core.model import Node
from tabherd.edge.connection import DEFAULT_LIMITS, Limits
from tabherd.edge.http import App, create_app
from tabherd.edge.server import Front
from tabherd.metrics import Metrics
from tabherd.store.memory import MemoryStore

# Nothing waits longer than this for anything; no test depends on how long it is.
LIMIT_S = 60
_nonces = itertools.count(1)


class Pages:
    """What actions do: `held-x` ends when the test says so, `big-9-x` answers with nine letters, `json:x` with the
    value, and everything else with itself.
    """

    def __init__(self) -> None:
        # Expressions, in the order in which they were begun.
        self.begun: list[str] = []
        # How many are at work on each page.
        self.busy: dict[str, int] = {}
        self._finished: dict[str, asyncio.Event] = {}

    async def perform(self, tab: Any, action: wire.AnyAction, progress: Progress) -> Any:
        assert isinstance(action, wire.Evaluate), "only evaluate is played here"
        self.busy[tab.target_id] = self.busy.get(tab.target_id, 0) + 1
        assert self.busy[tab.target_id] == 1, "two commands overlap on a page"
        self.begun.append(action.expression)
        try:
            if action.expression.startswith("held"):
                await self._event(action.expression).wait()
            else:
                await asyncio.sleep(0)
        finally:
            self.busy[tab.target_id] -= 1
        if action.expression.startswith("json:"):
            return json.loads(action.expression[5:])
        if action.expression.startswith("big-"):
            return "x" * int(action.expression.split("-")[1])
        return action.expression

    def finish(self, expression: str) -> None:
        self._event(expression).set()

    def _event(self, expression: str) -> asyncio.Event:
        return self._finished.setdefault(expression, asyncio.Event())


class House:
    """One running server."""

    def __init__(self, settings: dict[str, Any], files_dir: Path = NO_FILES, pages: Pages | None = None) -> None:
        self.config = config.parse(settings)
        self.store = MemoryStore()
        self.credentials = Credentials(self.store)
        self.events = EventBus(epoch=3, ring=self.config.server.events_ring)
        self.pages = pages or Pages()
        life = Life(Random(1), lambda _: None)
        processes: dict[str, Process] = {}
        numbers = itertools.count(1)
        self.metrics = Metrics()
        self.broker = Broker(
            config=self.config,
            node=Node(id="nod_1", epoch=3, url="", pid=1, started_at=wall_clock_ms()),
            store=self.store,
            launcher=SimLauncher(processes, life, lambda kind: f"{kind}-{next(numbers)}", fail_rate=0.0),
            events=self.events,
            metrics=self.metrics,
            credentials=self.credentials,
            marks=SimMarks({}, life),
            task_marks=SimMarks({}, life),
            webhook_secret=b"secret",
            files_dir=files_dir,
            memory_bytes=1 << 34,
            perform=self.pages.perform,
            owners=SimOwners(set(), wall_clock_ms),  # type: ignore[arg-type]
        )
        self.front: Front
        self.port = 0
        # Under it logins and tickets are signed.
        self.ticket_key = b"k" * 32

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws"

    def app(self) -> App:
        return create_app(
            config=self.config,
            broker=self.broker,
            events=self.events,
            metrics=self.metrics,
            node_id="nod_1",
            version="9.9",
            port=self.port,
            ticket_key=self.ticket_key,
        )

    async def token(self, agent_id: str, *scopes: str) -> str:
        return (await self.credentials.create(agent_id, scopes or AGENT_SCOPES))[0]

    async def open_tab(self, agent_id: str = "ada", **request: Any) -> str:
        """A session of that agent; its tab."""
        return (await self.open(agent_id, **request)).tabs[0].tab_id

    async def open(self, agent_id: str = "ada", **request: Any) -> wire.SessionView:
        caller = Caller(agent_id=agent_id, scopes=AGENT_SCOPES, controller_id=agent_id)
        return await self.broker.sessions.open(caller, wire.OpenSession(**request))

    def gate(self, tab_id: str) -> Any:
        tab = self.broker._registry.tab(tab_id)
        assert tab is not None
        return tab.gate

    def live(self, tab_id: str) -> Any:
        tab = self.broker._registry.tab(tab_id)
        assert tab is not None
        return tab.session


@asynccontextmanager
async def house(
    settings: dict[str, Any] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    files_dir: Path = NO_FILES,
    pages: Pages | None = None,
) -> AsyncIterator[House]:
    """A server that listens; everything of it ends with the context."""
    here = House({"pools": {"default": {"browsers_max": 1, "warm": 0}}, **(settings or {})}, files_dir, pages)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here.port = listener.getsockname()[1]
        app = here.app()
        here.front = Front(app, app.doors, limits)
        serving = asyncio.create_task(here.front.serve(sockets=[listener]))
        try:
            await here.broker.start()
            yield here
        finally:
            here.events.close()
            here.front.should_exit = True
            await serving
            await here.broker.stop()


async def until(is_so: Any) -> None:
    """Bounded: what never comes is a failure."""
    async with asyncio.timeout(LIMIT_S):
        while not is_so():
            await asyncio.sleep(0.002)


class Client:
    """A controller, as a program with a WebSocket library is one."""

    def __init__(self, connection: ClientConnection, wire_end: socket.socket) -> None:
        self.connection = connection
        self._wire_end = wire_end
        self._requests = itertools.count(1)
        # What came and was not asked for yet.
        self.inbox: list[dict[str, Any]] = []

    async def send(self, message_type: str, payload: dict[str, Any] | None = None, **fields: Any) -> str:
        """Send a message; its requestId."""
        message = envelope(message_type, payload, **{"requestId": f"req-{next(self._requests)}", **fields})
        await self.connection.send(json.dumps(message))
        return str(message.get("requestId"))

    async def ask(self, message_type: str, payload: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        """Send a message, and what it was answered."""
        return await self.answer(await self.send(message_type, payload, **fields))

    async def answer(self, request_id: str) -> dict[str, Any]:
        """What answers that request; events that belong to it are left in the inbox."""
        return await self.next(lambda m: m.get("requestId") == request_id and m["messageType"] != "event")

    async def event(self, kind: str) -> dict[str, Any]:
        """The next event of that type: its payload."""
        message = await self.next(lambda m: m["messageType"] == "event" and m["payload"]["type"] == kind)
        payload: dict[str, Any] = message["payload"]
        return payload

    async def next(self, wanted: Any = lambda message: True) -> dict[str, Any]:
        """The first message that is wanted, in the order in which they came."""
        async with asyncio.timeout(LIMIT_S):
            position = 0
            while True:
                for index in range(position, len(self.inbox)):
                    if wanted(self.inbox[index]):
                        return self.inbox.pop(index)
                position = len(self.inbox)
                self.inbox.append(json.loads(await self.connection.recv()))

    async def closed(self) -> tuple[int, str]:
        """Read to the end: the close code and the reason."""
        async with asyncio.timeout(LIMIT_S):
            try:
                while True:
                    self.inbox.append(json.loads(await self.connection.recv()))
            except ConnectionClosed as end:
                return (end.rcvd.code, end.rcvd.reason) if end.rcvd is not None else (1006, "")

    async def run(self, tab_id: str, expression: str, **fields: Any) -> str:
        """Send a command; its requestId."""
        return await self.send("command", command(tab_id, expression, **fields))

    def drop(self) -> None:
        """Gone without a word, as a killed process is."""
        self._wire_end.shutdown(socket.SHUT_RDWR)


def envelope(message_type: str, payload: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A message as it travels."""
    return {
        "protocolVersion": "1.0",
        "messageType": message_type,
        "requestId": "req-0",
        "timestamp": int(time.time() * 1000),
        "nonce": f"nonce-{next(_nonces)}",
        "payload": {} if payload is None else payload,
        **fields,
    }


def command(tab_id: str, expression: str, **fields: Any) -> dict[str, Any]:
    return {
        "tabSessionId": tab_id,
        "action": "command.run",
        "payload": {"kind": "evaluate", "expression": expression},
        **fields,
    }


@asynccontextmanager
async def client(
    here: House, token: str, *, is_greeting: bool = True, is_slow: bool = False, **hello: Any
) -> AsyncIterator[Client]:
    """A connection that has said hello, or not; a slow one reads only what is asked for."""
    with socket.create_connection(("127.0.0.1", here.port)) as wire_end:
        headers = {"Authorization": f"Bearer {token}"}
        # Heartbeats are the server's; a client that pings on its own would hide their absence.
        options: dict[str, Any] = {"ping_interval": None, "max_size": None, "sock": wire_end}
        if is_slow:
            # One that is cut off while it does not read never sees the end.
            options |= {"max_queue": 1, "close_timeout": 0.1}
        async with connect(here.url, additional_headers=headers, **options) as connection:
            speaker = Client(connection, wire_end)
            if is_greeting:
                ack = await speaker.ask("hello", hello)
                assert ack["messageType"] == "hello_ack", ack
            yield speaker
