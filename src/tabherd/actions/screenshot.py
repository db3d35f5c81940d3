"""Takes a picture of a page, as base64."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from .. import wire
from ..browsers.port import TabPort

# Chromium sometimes never answers for a tab in the background; bringing it to the front and asking again helps.
STUCK_AFTER_S: Final = 2.0
# Beyond this Chromium has no surface to draw on and repeats or blanks what is below.
SIDE_MAX_PX: Final = 16_384


async def screenshot(tab: TabPort, action: wire.Screenshot) -> str:
    params: dict[str, Any] = {"format": action.format}
    if action.full_page:
        size = (await tab.call("Page.getLayoutMetrics"))["cssContentSize"]
        params["captureBeyondViewport"] = True
        params["clip"] = {
            "x": 0,
            "y": 0,
            "width": max(1, min(size["width"], SIDE_MAX_PX)),
            "height": max(1, min(size["height"], SIDE_MAX_PX)),
            "scale": 1,
        }
    picture: str = (await _capture(tab, params))["data"]
    return picture


async def _capture(tab: TabPort, params: dict[str, Any]) -> dict[str, Any]:
    tries = [asyncio.ensure_future(tab.call("Page.captureScreenshot", params))]
    try:
        done, _ = await asyncio.wait(tries, timeout=STUCK_AFTER_S)
        if not done:
            await tab.call("Page.bringToFront")
            tries.append(asyncio.ensure_future(tab.call("Page.captureScreenshot", params)))
            # Whichever comes first: the first may only have been slow.
            done, _ = await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for one in tries:
            one.cancel()
        # Their ends are awaited, so that no failure goes unread and no call outlives the action.
        await asyncio.gather(*tries, return_exceptions=True)
