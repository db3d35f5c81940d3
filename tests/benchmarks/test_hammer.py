"""The crowd's own count is right: who was given how much, and how many sessions were held at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from bench.rig.hammer import Crowd, Found, hammer

pytestmark = pytest.mark.release

# Long enough for the last of a crowd to be there before the first has left, also on a machine that stalls.
HELD_S = 0.5


class CountingServer(msgspec.Struct):
    """Opens sessions for whoever asks, and keeps its own count of how many are open."""

    url: str = ""
    token: str = "token"
    opened: int = 0
    is_open: int = 0
    open_max: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                if head.startswith(b"POST"):
                    self.opened += 1
                    self.is_open += 1
                    self.open_max = max(self.open_max, self.is_open)
                else:
                    self.is_open -= 1
                answer = msgspec.json.encode({"sessionId": str(self.opened)})
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))
        except (asyncio.IncompleteReadError, ConnectionError):
            # The caller has left.
            return
        finally:
            writer.close()


@asynccontextmanager
async def counting() -> AsyncIterator[CountingServer]:
    fake = CountingServer()
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield fake


def test_equal_shares_are_perfectly_fair() -> None:
    assert Found(given=Counter(a=7, b=7, c=7)).jain == 1.0


def test_one_agent_that_gets_everything_is_as_unfair_as_can_be() -> None:
    assert Found(given=Counter({"a": 21, "b": 0, "c": 0})).jain == pytest.approx(1 / 3)


async def test_a_crowd_counts_as_many_at_once_as_the_server_does() -> None:
    async with counting() as server:
        found = await hammer([server], Crowd(callers={"a": 2, "b": 3}, hold_s=HELD_S, pause_s=0.0), HELD_S)  # type: ignore[list-item]
        assert found.held_max == server.open_max == 5


async def test_everything_that_a_crowd_took_is_given_back() -> None:
    async with counting() as server:
        await hammer([server], Crowd(callers={"a": 3}, hold_s=0.1, pause_s=0.0), HELD_S)  # type: ignore[list-item]
        assert server.opened > 0
        assert server.is_open == 0


async def test_the_callers_of_a_crowd_are_spread_over_the_nodes() -> None:
    async with counting() as first, counting() as second:
        await hammer([first, second], Crowd(callers={"a": 2}, hold_s=0.1, pause_s=0.0), HELD_S)  # type: ignore[list-item]
        assert first.opened > 0
        assert second.opened > 0
