"""A CDP client that keeps every byte it hears, sends in volleys, and can tell what of somebody else's it has heard.

What it is answered may repeat what it said itself, in an error only: that it named an id is not that it learnt one.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from picows.websockets import ClientConnection, ConnectionClosed, connect
from tests.cdp_life.wire_client import LIMIT_S, CdpError, Message, WireClient

# A volley is over when all is answered, or when nothing has been heard for so long: some methods are never answered.
QUIET_S = 1.0


class Shot(NamedTuple):
    """One message of a volley."""

    method: str
    params: Message
    session_id: str = ""


class Hostile(WireClient):
    """One socket. Answers are kept by the id of their question, events in the inbox, and all of it word for word."""

    def __init__(self, connection: ClientConnection, wire_end: socket.socket) -> None:
        super().__init__(connection, wire_end)
        # Everything that came, as it came.
        self.heard: list[str] = []
        self.answers: dict[int, Message] = {}
        self._questions: dict[int, str] = {}
        self._ids = itertools.count(1)

    async def send(self, method: str, params: Message | None = None, session_id: str = "", id: int = 0) -> int:
        message: Message = {"id": id or next(self._ids), "method": method, "params": params or {}}
        number: int = message["id"]
        self._questions[number] = json.dumps(message | ({"sessionId": session_id} if session_id else {}))
        await self.connection.send(self._questions[number])
        return number

    async def say(self, text: str, id: int = 0) -> None:
        """Send just that, which may be no message at all."""
        self._questions[id] = text
        await self.connection.send(text)

    async def result(self, id: int) -> Message:
        async with asyncio.timeout(LIMIT_S):
            while id not in self.answers:
                assert self._end is None, f"the socket was closed instead: {self._end}"
                self._news.clear()
                await self._news.wait()
        return _result_of(self.answers[id])

    async def volley(self, shots: Iterable[Shot]) -> list[tuple[Shot, Message | None]]:
        """Send all of them without waiting; what each was answered, None for those that never are."""
        fired: list[tuple[Shot, int]] = []
        for shot in shots:
            if self._end is not None:
                break
            try:
                fired.append((shot, await self.send(*shot)))
            except ConnectionClosed:
                break
        await self.answered([id for _, id in fired])
        return [(shot, self.answers.get(id)) for shot, id in fired]

    async def answered(self, ids: Iterable[int]) -> None:
        """Until all of these are answered, or there is nothing more to be heard."""
        # From the last, which is mostly the one that is missing: there may be thousands, looked at with every answer.
        waiting = list(ids)
        while self._end is None and self._drop_answered(waiting):
            self._news.clear()
            try:
                async with asyncio.timeout(QUIET_S):
                    await self._news.wait()
            except TimeoutError:
                if await self._is_all_heard():
                    return

    def _drop_answered(self, waiting: list[int]) -> bool:
        """Whether one of these is not answered; those behind the last such one are taken away."""
        while waiting and waiting[-1] in self.answers:
            waiting.pop()
        return bool(waiting)

    async def _is_all_heard(self) -> bool:
        """Whether it is quiet because nothing comes, and not because the machine, or the server, stands still."""
        heard = len(self.heard)
        with suppress(ConnectionClosed, TimeoutError):
            id = await self.send("Browser.getVersion")
            async with asyncio.timeout(LIMIT_S):
                while self._end is None and id not in self.answers:
                    self._news.clear()
                    await self._news.wait()
        return len(self.heard) <= heard + 1

    @property
    def is_over(self) -> bool:
        return self._end is not None

    def leaks(self, secrets: Iterable[str]) -> list[str]:
        """What of these it has heard, with what it was heard in."""
        sought = [secret for secret in secrets if secret]
        assert all(len(secret) >= 12 for secret in sought), "one that is too short is found by chance"
        found = []
        for text in self.heard:
            if named := [secret for secret in sought if secret in text]:
                own_words = self._own_words(text)
                found += [f"{secret} in {text[:400]}" for secret in named if secret not in own_words]
        return found

    def _own_words(self, text: str) -> str:
        """What this client said that was refused with that text."""
        message = json.loads(text)
        return self._questions.get(message.get("id", 0), "") if "error" in message else ""

    async def _read(self) -> None:
        try:
            while True:
                text = await self.connection.recv()
                self.heard.append(text if isinstance(text, str) else text.decode())
                message = json.loads(text)
                if "id" in message:
                    self.answers[message["id"]] = message
                else:
                    self.inbox.append(message)
                self._news.set()
        except ConnectionClosed as end:
            self._end = (end.rcvd.code, end.rcvd.reason) if end.rcvd is not None else (1006, "")
            self._news.set()


def _result_of(answer: Message) -> Message:
    if "error" in answer:
        raise CdpError(answer["error"])
    result: Message = answer["result"]
    return result


@asynccontextmanager
async def hostile(url: str, token: str | None = None, **options: Any) -> AsyncIterator[Hostile]:
    """A hostile client of that address."""
    address = urlsplit(url)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with socket.create_connection((address.hostname, address.port)) as wire_end:
        given: Message = {"ping_interval": None, "max_size": None, "open_timeout": LIMIT_S, "close_timeout": 2}
        given |= {"sock": wire_end, "additional_headers": headers, "compression": None, **options}
        async with connect(url, **given) as connection:
            client = Hostile(connection, wire_end)
            client.start_reading()
            try:
                yield client
            finally:
                await client.stop_reading()
