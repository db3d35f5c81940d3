"""A CDP client that sees every message as it travels, for what Playwright would hide."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from picows.websockets import ClientConnection, ConnectionClosed, connect

# Nothing waits longer than this for anything; no test depends on how long it is.
LIMIT_S = 90

Message = dict[str, Any]


class CdpError(Exception):
    """A command was refused."""

    def __init__(self, error: Message) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        # The typed error behind it, where there is one.
        self.data: Message = json.loads(error.get("data", "{}"))


class WireClient:
    """One socket; what comes is kept until somebody asks for it."""

    def __init__(self, connection: ClientConnection, wire_end: socket.socket) -> None:
        self.connection = connection
        self.inbox: list[Message] = []
        self._wire_end = wire_end
        self._numbers = itertools.count(1)
        self._news = asyncio.Event()
        self._end: tuple[int, str] | None = None
        self._reading: asyncio.Task[None] | None = None

    async def send(self, method: str, params: Message | None = None, session_id: str = "", id: int = 0) -> int:
        """Send a command; its id."""
        message: Message = {"id": id or next(self._numbers), "method": method, "params": params or {}}
        await self.connection.send(json.dumps(message | ({"sessionId": session_id} if session_id else {})))
        number: int = message["id"]
        return number

    async def call(self, method: str, params: Message | None = None, session_id: str = "") -> Message:
        """Send a command: its result, or `CdpError`."""
        return await self.result(await self.send(method, params, session_id))

    async def result(self, id: int) -> Message:
        """What that command was answered, or `CdpError`."""
        answer = await self.next(lambda message: message.get("id") == id)
        if "error" in answer:
            raise CdpError(answer["error"])
        result: Message = answer["result"]
        return result

    async def event(self, method: str, wanted: Callable[[Message], bool] = lambda params: True) -> Message:
        """The parameters of the next such event."""
        message = await self.next(lambda one: one.get("method") == method and wanted(one["params"]))
        params: Message = message["params"]
        return params

    async def next(self, wanted: Callable[[Message], bool] = lambda message: True) -> Message:
        """The first message that is wanted, in the order in which they came."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                self._news.clear()
                for index, message in enumerate(self.inbox):
                    if wanted(message):
                        return self.inbox.pop(index)
                if self._end is not None:
                    raise AssertionError(f"the socket was closed instead: {self._end}")
                await self._news.wait()

    async def closed(self) -> tuple[int, str]:
        """Wait for the end: the close code and the reason."""
        async with asyncio.timeout(LIMIT_S):
            while self._end is None:
                self._news.clear()
                await self._news.wait()
        return self._end

    async def attach(self, target_id: str) -> str:
        """A session with that target."""
        attached = await self.call("Target.attachToTarget", {"targetId": target_id, "flatten": True})
        session_id: str = attached["sessionId"]
        return session_id

    async def page(self, index: int = 0) -> str:
        """A session with one of the pages that are there."""
        return await self.attach((await self.pages())[index]["targetId"])

    async def pages(self) -> list[Message]:
        targets = (await self.call("Target.getTargets"))["targetInfos"]
        return [target for target in targets if target["type"] == "page"]

    async def open_page(self, url: str = "about:blank") -> tuple[str, str]:
        """A new page: its target and a session with it."""
        target_id: str = (await self.call("Target.createTarget", {"url": url}))["targetId"]
        return target_id, await self.attach(target_id)

    async def value(self, expression: str, session_id: str, **params: Any) -> Any:
        """What the page makes of the expression."""
        told = {"expression": expression, "returnByValue": True, "awaitPromise": True, **params}
        result = await self.call("Runtime.evaluate", told, session_id)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def drop(self) -> None:
        """Gone without a word, as a killed process is."""
        self._wire_end.shutdown(socket.SHUT_RDWR)

    def start_reading(self) -> None:
        self._reading = asyncio.ensure_future(self._read())

    async def stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def _read(self) -> None:
        try:
            while True:
                self.inbox.append(json.loads(await self.connection.recv()))
                self._news.set()
        except ConnectionClosed as end:
            self._end = (end.rcvd.code, end.rcvd.reason) if end.rcvd is not None else (1006, "")
            self._news.set()


@asynccontextmanager
async def wire_client(
    url: str, token: str | None = None, *, is_reading: bool = True, **options: Any
) -> AsyncIterator[WireClient]:
    """A client of that address; the token goes into a header. One that does not read takes only what fits."""
    address = urlsplit(url)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    headers |= options.pop("headers", {})
    with socket.create_connection((address.hostname, address.port)) as wire_end:
        # Signs of life are the server's to ask for; a client that pings on its own would hide that it does not.
        given: Message = {"ping_interval": None, "max_size": None, "open_timeout": LIMIT_S, "close_timeout": 2}
        if not is_reading:
            given |= {"max_queue": 1, "close_timeout": 0.1}
        given |= {"sock": wire_end, "additional_headers": headers, "compression": None, **options}
        async with connect(url, **given) as connection:
            client = WireClient(connection, wire_end)
            if is_reading:
                client.start_reading()
            try:
                yield client
            finally:
                await client.stop_reading()
