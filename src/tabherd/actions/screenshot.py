"""Takes a picture of a page, or of one element of it, as base64."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from .. import wire
from ..browsers.port import TabPort
from ..errors import InvalidRequest
from .locate import STILL, Search, locate
from .progress import Progress
from .selectors import label_of, target_of
from .world import DocumentLost

# Chromium sometimes never answers for a tab in the background; bringing it to the front and asking again helps.
STUCK_AFTER_S: Final = 2.0
# Beyond this Chromium has no surface to draw on and repeats or blanks what is below.
SIDE_MAX_PX: Final = 16_384


async def screenshot(tab: TabPort, action: wire.Screenshot, progress: Progress) -> str:
    """Of the viewport, of the whole page, or of an element, which is brought into view first."""
    parts = target_of(action)
    if parts is not None and action.full_page:
        raise InvalidRequest("fullPage and an element exclude each other.", field="fullPage")
    params: dict[str, Any] = {"format": action.format}
    if parts is not None:
        search = Search(parts=parts, label=label_of(action), needs=STILL, is_strict=False)
        params |= _clip(await _box(tab, search, progress))
    elif action.full_page:
        size = (await tab.call("Page.getLayoutMetrics"))["cssContentSize"]
        params |= _clip({"x": 0, "y": 0, "width": size["width"], "height": size["height"]})
    picture: str = (await _capture(tab, params))["data"]
    return picture


def _clip(box: dict[str, float]) -> dict[str, Any]:
    width, height = (max(1, min(box[side], SIDE_MAX_PX)) for side in ("width", "height"))
    return {
        "captureBeyondViewport": True,
        "clip": {"x": box["x"], "y": box["y"], "width": width, "height": height, "scale": 1},
    }


async def _box(tab: TabPort, search: Search, progress: Progress) -> dict[str, float]:
    """The element's box in the coordinates of the page's whole document."""
    while True:
        held = await locate(tab, search, progress)
        try:
            answer, metrics = await asyncio.gather(held.step("box"), tab.call("Page.getLayoutMetrics"))
        except DocumentLost:
            continue
        if "unmet" in answer:
            continue
        size = answer["done"]
        # The middle is known in the page's viewport, also through frames, which the element's own box is not.
        seen = metrics["cssVisualViewport"]
        return {
            "x": held.x - size["middleX"] + seen["pageX"],
            "y": held.y - size["middleY"] + seen["pageY"],
            "width": size["width"],
            "height": size["height"],
        }


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
