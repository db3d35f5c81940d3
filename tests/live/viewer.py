"""A viewer of a tab: its own end of `/live/{tabId}`, which sees every message and draws nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import msgspec
from picows.websockets import ClientConnection, ConnectionClosed, connect

# Nothing waits longer than this for anything; no test depends on how long it is.
LIMIT_S = 90

Message = dict[str, Any]


class Picture(msgspec.Struct, frozen=True):
    """One frame as it arrived."""

    header: Message
    jpeg: bytes


class LiveClient:
    """One socket; what comes is kept until somebody asks for it."""

    def __init__(self, connection: ClientConnection, *, acks: bool) -> None:
        self.connection = connection
        # Whether each frame is acknowledged at once.
        self.acks = acks
        self.inbox: list[Message] = []
        self.pictures: list[Picture] = []
        self.end: tuple[int, str] | None = None
        self._news = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def say(self, type: str, **fields: Any) -> None:
        await self.connection.send(json.dumps({"type": type, **fields}))

    async def until(self, is_so: Callable[[], Any]) -> Any:
        """What is told there, once that is something; looked at whenever anything has come."""
        async with asyncio.timeout(LIMIT_S):
            while not (found := is_so()):
                if self.end is not None:
                    raise AssertionError(f"the socket was closed instead: {self.end}")
                self._news.clear()
                await self._news.wait()
        return found

    async def next(self, type: str, wanted: Callable[[Message], bool] = lambda message: True) -> Message:
        """The first message of that type that is wanted; those before it are forgotten."""

        def take() -> Message | None:
            for index, message in enumerate(self.inbox):
                if message["type"] == type and wanted(message):
                    del self.inbox[: index + 1]
                    return message
            return None

        found: Message = await self.until(take)
        return found

    async def state(self, wanted: Callable[[Message], bool] = lambda state: True) -> Message:
        return await self.next("state", wanted)

    async def picture(self, after: int = 0) -> Picture:
        """The newest frame, once there is one later than that."""
        found: Picture = await self.until(
            lambda: self.pictures and self.pictures[-1].header["seq"] > after and self.pictures[-1]
        )
        return found

    async def take(self, **fields: Any) -> Message:
        """Take the tab over; the state from which on that is so and nothing else runs on it."""
        await self.say("take", **fields)
        return await self.state(lambda state: is_you(state) and state["tab"]["holder"]["commandId"] is None)

    async def click(self, x: float, y: float, button: str = "left") -> None:
        bit = {"left": 1, "right": 2, "middle": 4}[button]
        at = {"x": x, "y": y, "button": button, "clickCount": 1}
        await self.say("mouse", event="move", x=x, y=y)
        await self.say("mouse", event="down", **at, buttons=bit)
        await self.say("mouse", event="up", **at)

    async def press(self, key: str, code: str, modifiers: int = 0) -> None:
        for event in ("down", "up"):
            await self.say("key", event=event, key=key, code=code, modifiers=modifiers)

    async def closed(self) -> tuple[int, str]:
        """Wait for the end: the close code and the reason."""
        async with asyncio.timeout(LIMIT_S):
            while self.end is None:
                self._news.clear()
                await self._news.wait()
        return self.end

    def start(self) -> None:
        self._reading = asyncio.ensure_future(self._read())

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def _read(self) -> None:
        try:
            while True:
                came = await self.connection.recv()
                if isinstance(came, str):
                    self.inbox.append(json.loads(came))
                else:
                    await self._draw(bytes(came))
                self._news.set()
        except ConnectionClosed as end:
            self.end = (end.rcvd.code, end.rcvd.reason) if end.rcvd is not None else (1006, "")
            self._news.set()

    async def _draw(self, message: bytes) -> None:
        size = int.from_bytes(message[:4], "big")
        header = json.loads(message[4 : 4 + size])
        self.pictures.append(Picture(header, message[4 + size :]))
        if self.acks:
            await self.say("ack", seq=header["seq"])


def is_you(state: Message) -> bool:
    """Whether this viewer drives."""
    return bool(state["driver"] and state["driver"]["isYou"])


@asynccontextmanager
async def watching(
    url: str,
    tab_id: str,
    token: str | None = None,
    *,
    acks: bool = True,
    headers: Mapping[str, str] | None = None,
    **query: Any,
) -> AsyncIterator[LiveClient]:
    """A viewer of that tab at the server of that address (`http://host:port`); the token goes into a header."""
    address = f"ws{url.removeprefix('http')}/live/{tab_id}" + (f"?{urlencode(query)}" if query else "")
    given = ({"Authorization": f"Bearer {token}"} if token else {}) | dict(headers or {})
    async with connect(
        address,
        additional_headers=given,
        max_size=None,
        compression=None,
        ping_interval=None,
        open_timeout=LIMIT_S,
        close_timeout=2,
    ) as connection:
        client = LiveClient(connection, acks=acks)
        client.start()
        try:
            yield client
        finally:
            await client.stop()
