"""The client of the CDP benchmark counts what was answered, and takes nothing for an answer that is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import psutil
import pytest
from bench.rig.channel import Channel
from bench.rig.passthrough import passing_through
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_create_server

pytestmark = pytest.mark.release

SESSION = "S" * 32


class Page(WSListener):
    """A browser with one page: answers what it was asked with `value`, as Chromium writes it."""

    def __init__(self, value: Callable[[int], int]) -> None:
        self._value = value
        # Evaluates that came before an answer had left, at the most.
        self.in_flight_max = 0
        self._waiting: list[int] = []

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type != WSMsgType.TEXT:
            return
        request = msgspec.json.decode(frame.get_payload_as_bytes())
        if request["method"] == "Target.attachToTarget":
            transport.send(WSMsgType.TEXT, b'{"id":%d,"result":{"sessionId":"%b"}}' % (request["id"], SESSION.encode()))
            return
        assert request["sessionId"] == SESSION
        self._waiting.append(request["id"])
        self.in_flight_max = max(self.in_flight_max, len(self._waiting))
        if len(self._waiting) == 1:
            # Not from inside the read, which may have more in it.
            asyncio.get_running_loop().call_soon(self._answer, transport)

    def _answer(self, transport: WSTransport) -> None:
        waiting, self._waiting = self._waiting, []
        transport.send(WSMsgType.TEXT, b'{"method":"Runtime.consoleAPICalled","params":{}}')
        for call_id in waiting:
            answer = b'{"id":%d,"result":{"result":{"type":"number","value":%d,"description":""}},"sessionId":"%b"}'
            transport.send(WSMsgType.TEXT, answer % (call_id, self._value(call_id), SESSION.encode()))


@asynccontextmanager
async def page(value: Callable[[int], int] = lambda call_id: 2) -> AsyncIterator[tuple[Page, str]]:
    """Such a browser and its address."""
    browser = Page(value)
    server = await ws_create_server(lambda request: browser, "127.0.0.1", 0)
    try:
        yield browser, f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


@asynccontextmanager
async def attached(url: str) -> AsyncIterator[Channel]:
    channel = await Channel.connect(url)
    try:
        await channel.attach("T" * 32)
        yield channel
    finally:
        channel.close()


async def test_round_trips_are_taken_one_after_the_other_and_all_counted() -> None:
    async with page() as (browser, url), attached(url) as channel:
        trips_us = await channel.round_trips_us(5)
    assert len(trips_us) == 5
    assert min(trips_us) > 0
    assert browser.in_flight_max == 1


async def test_as_many_as_were_asked_for_are_on_their_way_at_once() -> None:
    async with page() as (browser, url), attached(url) as channel:
        assert await channel.per_second(30, in_flight=7) > 0
    assert browser.in_flight_max == 7


async def test_an_answer_with_another_value_ends_the_run() -> None:
    async with page(lambda call_id: 2 if call_id < 5 else 3) as (_, url), attached(url) as channel:
        with pytest.raises(RuntimeError, match="is not the answer to 5"):
            await channel.round_trips_us(10)


async def test_a_browser_that_leaves_ends_the_run() -> None:
    async with page() as (_, url), attached(url) as channel:
        running = asyncio.create_task(channel.round_trips_us(1_000))
        await asyncio.sleep(0)
        channel.close()
        with pytest.raises(ConnectionResetError):
            await running


async def test_the_proxy_that_does_nothing_hands_everything_on_and_ends_with_its_user() -> None:
    async with page() as (_, url):
        with passing_through(url) as proxy:
            async with attached(proxy.url) as channel:
                assert len(await channel.round_trips_us(3)) == 3
            assert psutil.pid_exists(proxy.pid)
        assert not psutil.pid_exists(proxy.pid)
