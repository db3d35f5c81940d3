"""The picture of one page as it changes, and the way for a person's input to it.

Invariants:
- It has a connection of its own, so that frames never stand in the way of agents' commands. Watching changes nothing in
  the page: not its size, not its focus, not whether it takes itself for visible.
- Chromium sends more only when somebody has taken what it sent (`taken`), and never faster than `FRAMES_PER_S_MAX`.
- What the page looks like in the end is shown in the end. Chromium drops what changes while too many of its frames are
  not acknowledged, and does not send it later; when that may have happened the screencast is begun anew, which sends
  the page as it is.
- The same picture is not shown twice in a row.

A page in the background draws nothing. Taking a screenshot of it makes it draw once, unnoticed by itself, so that is
done now and then while it is hidden. `wake` has it draw all the time, and believe that it has the focus: for as long as
a person drives it.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import structlog

from .cdp import CdpConnection
from .port import BrowserGone, CdpFailure, TabGone

log = structlog.get_logger(__name__)

FRAMES_PER_S_MAX: Final = 25
# From so many frames on that are not acknowledged Chromium drops what follows.
UNACKED_MAX: Final = 3
# One is never acknowledged: what Chromium has under way at once waits in line there, and every frame is older for it.
UNACKED_KEPT: Final = 1
# How long after an acknowledgement a page that has not changed since may have been dropped unnoticed.
DOUBT_S: Final = 0.15
# How often a page in the background is looked at, and how long that may take.
PEEK_S: Final = 0.5
PEEK_LIMIT_S: Final = 2.0


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """How large a frame may be, in pixels, and how good: 1 to 100."""

    width: int
    height: int
    quality: int


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """The page at one moment."""

    jpeg: bytes
    # The size of its viewport in CSS pixels.
    width: float
    height: float
    scroll_x: float
    scroll_y: float
    # Milliseconds since 1970.
    captured_at: int


class Screencast:
    """Made by `open`; ends by itself when its page or browser does."""

    def __init__(self, connection: CdpConnection, look: Look, show: Callable[[Frame], None]) -> None:
        self._connection = connection
        self._look = look
        # Told of each frame, from the socket's own callback.
        self._show = show
        # Which run of the screencast the last frame belongs to; acknowledgements for another are ignored by Chromium.
        self._run = 0
        # Frames of that run that were not acknowledged, and how many of these are to be, as somebody has taken them.
        self._unacked = 0
        self._taken = 0
        # The next acknowledgement, and when the last one was.
        self._acking: asyncio.TimerHandle | None = None
        self._acked_at = 0.0
        # Begins anew unless a frame comes first.
        self._doubting: asyncio.TimerHandle | None = None
        self._last: Frame | None = None
        # Set while the page draws nothing by itself.
        self._is_hidden = asyncio.Event()
        self._peeking: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, url: str, look: Look, show: Callable[[Frame], None]) -> Screencast:
        """Show the page that has this address in its browser; raises `BrowserGone`, also when only the page is."""
        connection = await CdpConnection.connect(url)
        cast = cls(connection, look, show)
        connection.listen(None, "Page.screencastFrame", cast._heard)
        connection.listen(None, "Page.screencastVisibilityChanged", cast._noted)
        try:
            await connection.call("Page.startScreencast", cast._wish())
        except BaseException:
            await connection.close()
            raise
        cast._peeking = asyncio.create_task(cast._peek())
        return cast

    async def wait_closed(self) -> str:
        """Returns when the page or its browser is gone, with the reason."""
        return await self._connection.wait_closed()

    async def close(self) -> None:
        """End it. Whatever was set for it in the page goes with the connection. Idempotent."""
        for timer in (self._acking, self._doubting):
            if timer is not None:
                timer.cancel()
        if self._peeking is not None:
            self._peeking.cancel()
        await self._connection.close()

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send one command to the page and wait for its answer."""
        return await self._connection.call(method, params)

    def wake(self, is_awake: bool) -> None:
        """Have the page draw and have the focus, wherever its window is; or no longer."""
        self._connection.post("Emulation.setFocusEmulationEnabled", {"enabled": is_awake})

    def resize(self, look: Look) -> None:
        """Show it like this from now on."""
        if look != self._look:
            self._look = look
            self._last = None
            self._begin_anew()

    def taken(self) -> None:
        """Somebody has the newest frame: there may be another."""
        self._taken = max(0, self._unacked - UNACKED_KEPT)
        self._ack_later()

    # --- Frames -----------------------------------------------------------------------------------------------------

    def _heard(self, event: Mapping[str, Any]) -> None:
        if event["sessionId"] != self._run:
            self._run, self._unacked, self._taken = event["sessionId"], 0, 0
        self._unacked += 1
        if self._doubting is not None:
            # Whatever was dropped before is older than this.
            self._doubting.cancel()
            self._doubting = None
        about = event["metadata"]
        frame = Frame(
            jpeg=base64.b64decode(event["data"]),
            width=about["deviceWidth"],
            height=about["deviceHeight"],
            scroll_x=about["scrollOffsetX"],
            scroll_y=about["scrollOffsetY"],
            captured_at=round(about.get("timestamp", 0) * 1000),
        )
        if self._last is not None and frame.jpeg == self._last.jpeg and frame.width == self._last.width:
            self.taken()
            return
        self._last = frame
        self._show(frame)

    def _ack_later(self) -> None:
        if self._acking is None and self._taken:
            loop = asyncio.get_running_loop()
            self._acking = loop.call_at(max(loop.time(), self._acked_at + 1 / FRAMES_PER_S_MAX), self._ack)

    def _ack(self) -> None:
        self._acking = None
        if not self._taken:
            # It has begun anew meanwhile.
            return
        loop = asyncio.get_running_loop()
        self._acked_at = loop.time()
        self._connection.post("Page.screencastFrameAck", {"sessionId": self._run})
        if self._unacked >= UNACKED_MAX and self._doubting is None:
            self._doubting = loop.call_later(DOUBT_S, self._begin_anew)
        self._unacked -= 1
        self._taken -= 1
        self._ack_later()

    def _begin_anew(self) -> None:
        self._doubting = None
        self._connection.post("Page.stopScreencast")
        self._connection.post("Page.startScreencast", self._wish())

    def _wish(self) -> dict[str, Any]:
        look = self._look
        return {"format": "jpeg", "quality": look.quality, "maxWidth": look.width, "maxHeight": look.height}

    # --- Pages in the background ------------------------------------------------------------------------------------

    def _noted(self, event: Mapping[str, Any]) -> None:
        if event["visible"]:
            self._is_hidden.clear()
        else:
            self._is_hidden.set()

    async def _peek(self) -> None:
        # What comes of it is a frame like any other; the screenshot itself is not looked at.
        params = {"format": "jpeg", "quality": 1, "optimizeForSpeed": True}
        while True:
            await self._is_hidden.wait()
            try:
                async with asyncio.timeout(PEEK_LIMIT_S):
                    await self._connection.call("Page.captureScreenshot", params)
            except (TimeoutError, CdpFailure, TabGone) as error:
                log.debug("a hidden page could not be looked at", error=str(error))
            except BrowserGone:
                return
            await asyncio.sleep(PEEK_S)
