"""A screencast acknowledges what was taken, no more and no faster, and never leaves an old picture standing."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from picows import ws_create_server
from tests.browsers.fake_cdp import FakeBrowser

from tabherd.browsers import screencast
from tabherd.browsers.screencast import UNACKED_MAX, Frame, Look, Screencast

LOOK = Look(width=640, height=480, quality=50)
LIMIT_S = 60


class Peer:
    """Chromium, as far as a screencast knows it: what it was told, and frames as the test wants them."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.started: list[dict[str, Any]] = []
        self.shown: list[Frame] = []
        self.told = asyncio.Event()
        self.browser: FakeBrowser

    def script(self, browser: FakeBrowser, message: dict[str, Any]) -> None:
        self.methods.append(message["method"])
        if message["method"] == "Page.startScreencast":
            self.started.append(message["params"])
        browser.say({"id": message["id"], "result": {}})
        self.told.set()

    def frame(self, picture: bytes) -> None:
        about = {"deviceWidth": 800, "deviceHeight": 600, "scrollOffsetX": 0, "scrollOffsetY": 7, "timestamp": 12.345}
        data = base64.b64encode(picture).decode()
        self.browser.emit("Page.screencastFrame", sessionId=len(self.started), metadata=about, data=data)

    def count(self, method: str) -> int:
        return self.methods.count(method)

    async def until(self, is_so: Any) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not is_so():
                self.told.clear()
                await self.told.wait()

    async def synced(self, cast: Screencast) -> None:
        """Whatever either side had sent has arrived."""
        await cast.call("Browser.getVersion")


@asynccontextmanager
async def casting() -> AsyncIterator[tuple[Screencast, Peer]]:
    peer = Peer()

    def accept(_: object) -> FakeBrowser:
        peer.browser = FakeBrowser(peer.script)
        return peer.browser

    def show(frame: Frame) -> None:
        peer.shown.append(frame)
        peer.told.set()

    server = await ws_create_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    cast = await Screencast.open(f"ws://127.0.0.1:{port}/devtools/page/x", LOOK, show)
    try:
        yield cast, peer
    finally:
        await cast.close()
        server.close()
        await server.wait_closed()


async def test_a_frame_is_shown_with_the_size_of_the_page_and_its_time() -> None:
    async with casting() as (_, peer):
        peer.frame(b"picture")
        await peer.until(lambda: peer.shown)
        assert peer.shown == [
            Frame(jpeg=b"picture", width=800, height=600, scroll_x=0, scroll_y=7, captured_at=12_345),
        ]


async def test_chromium_is_not_asked_for_more_before_somebody_took_the_frame() -> None:
    async with casting() as (cast, peer):
        for picture in (b"1", b"2"):
            peer.frame(picture)
        await peer.until(lambda: len(peer.shown) == 2)
        await peer.synced(cast)
        assert peer.count("Page.screencastFrameAck") == 0
        cast.taken()
        await peer.until(lambda: peer.count("Page.screencastFrameAck") == 1)


async def test_each_frame_is_acknowledged_once_however_many_take_it() -> None:
    async with casting() as (cast, peer):
        # The last is kept back, so that Chromium has less under way.
        for picture in (b"1", b"2", b"3"):
            peer.frame(picture)
        await peer.until(lambda: len(peer.shown) == 3)
        for _ in range(5):
            cast.taken()
        await peer.until(lambda: peer.count("Page.screencastFrameAck") == 2)
        cast.taken()
        await peer.synced(cast)
        assert peer.count("Page.screencastFrameAck") == 2


async def test_a_picture_that_may_have_been_dropped_is_asked_for_again() -> None:
    async with casting() as (cast, peer):
        # From now on Chromium says nothing of what changes, and will not say it later.
        for number in range(UNACKED_MAX):
            peer.frame(b"%d" % number)
        await peer.until(lambda: len(peer.shown) == UNACKED_MAX)
        cast.taken()
        await peer.until(lambda: len(peer.started) == 2)
        peer.frame(b"as it is now")
        await peer.until(lambda: peer.shown[-1].jpeg == b"as it is now")


async def test_a_page_that_goes_on_changing_is_not_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screencast, "DOUBT_S", LIMIT_S * 10)
    async with casting() as (cast, peer):
        for number in range(UNACKED_MAX):
            peer.frame(b"%d" % number)
        await peer.until(lambda: len(peer.shown) == UNACKED_MAX)
        cast.taken()
        await peer.until(lambda: peer.count("Page.screencastFrameAck") == 1)
        assert cast._doubting is not None
        peer.frame(b"newer")
        await peer.until(lambda: peer.shown[-1].jpeg == b"newer")
        assert cast._doubting is None


async def test_the_same_picture_is_not_shown_twice_in_a_row() -> None:
    async with casting() as (_, peer):
        peer.frame(b"same")
        await peer.until(lambda: peer.shown)
        peer.frame(b"same")
        peer.frame(b"same")
        # It is nobody's to take, so it is acknowledged by itself.
        await peer.until(lambda: peer.count("Page.screencastFrameAck") >= 1)
        assert len(peer.shown) == 1


async def test_another_size_begins_it_anew_with_that_size() -> None:
    async with casting() as (cast, peer):
        cast.resize(LOOK)
        cast.resize(Look(width=100, height=200, quality=90))
        await peer.until(lambda: len(peer.started) == 2)
        assert peer.started[-1] == {"format": "jpeg", "quality": 90, "maxWidth": 100, "maxHeight": 200}
        assert peer.methods[-2:] == ["Page.stopScreencast", "Page.startScreencast"]


async def test_a_hidden_page_is_looked_at_again_and_again_until_it_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screencast, "PEEK_S", 0)
    async with casting() as (cast, peer):
        await peer.synced(cast)
        assert peer.count("Page.captureScreenshot") == 0
        peer.browser.emit("Page.screencastVisibilityChanged", visible=False)
        await peer.until(lambda: peer.count("Page.captureScreenshot") >= 3)
        peer.browser.emit("Page.screencastVisibilityChanged", visible=True)
        await peer.synced(cast)
        await peer.synced(cast)
        looked = peer.count("Page.captureScreenshot")
        await peer.synced(cast)
        assert peer.count("Page.captureScreenshot") == looked


async def test_it_ends_with_its_page() -> None:
    async with casting() as (cast, peer):
        peer.browser.hang_up()
        async with asyncio.timeout(LIMIT_S):
            assert await cast.wait_closed()
