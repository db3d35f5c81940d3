"""Takes a picture of a page, or of one element of it, as base64.

It is bounded in pixels and in size: of an endless page it is the beginning, of an element that is too large a part, and
one that is too large even so is refused with what to do about it. Nothing is changed in the page, so whoever runs out
of time leaves it as it was.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from .. import wire
from ..browsers.port import TabPort
from ..errors import InvalidRequest, StateConflict
from .locate import STILL, Search, locate
from .progress import Progress
from .selectors import label_of, target_of
from .world import DocumentLost, World

# Chromium sometimes never answers for a tab in the background; bringing it to the front and asking again helps.
STUCK_AFTER_S: Final = 2.0
# Beyond this Chromium has no surface to draw on and repeats or blanks what is below.
SIDE_MAX_PX: Final = 16_384
# Each pixel of the screen takes four bytes, several times over, while a picture is made.
AREA_MAX_PX: Final = 40_000_000
# Of what is answered, as base64. While it passes it on, a browser does nothing else.
PICTURE_MAX_CHARS: Final = 32_000_000
# Where the format has a quality: good enough to read, and a third of what the best would take.
QUALITY: Final = 80


async def screenshot(tab: TabPort, action: wire.Screenshot, progress: Progress) -> str:
    """Of the viewport, of the whole page, or of an element, which is brought into view first."""
    parts = target_of(action)
    if parts is not None and action.full_page:
        raise InvalidRequest("fullPage and an element exclude each other.", field="fullPage")
    params: dict[str, Any] = {"format": action.format}
    if action.format != "png":
        params["quality"] = QUALITY
    if parts is not None:
        search = Search(parts=parts, label=label_of(action), needs=STILL, is_strict=False)
        box, scale = await _box(tab, search, progress)
        params |= _clip(box, scale)
    progress.waits("page")
    if parts is None and action.full_page:
        size = (await tab.call("Page.getLayoutMetrics"))["cssContentSize"]
        params |= _clip({"x": 0, "y": 0, "width": size["width"], "height": size["height"]}, await _scale(tab))
    picture: str = (await _capture(tab, params))["data"]
    if len(picture) > PICTURE_MAX_CHARS:
        raise StateConflict(
            f"The picture has {len(picture)} characters; an answer has {PICTURE_MAX_CHARS} at most.",
            action="Take it as jpeg or webp, or of a part of the page: name an element with selector or ref.",
            reason="too_large",
            lengthChars=len(picture),
            maxChars=PICTURE_MAX_CHARS,
        )
    return picture


async def _scale(tab: TabPort) -> float:
    """How many pixels of the screen a pixel of the page is wide."""
    try:
        return max(1.0, float(await (await World.of(tab)).run("screenScale")))
    except DocumentLost:
        # Of the next document nothing is known yet; it is drawn at the same size as ever.
        return 1.0


def _clip(box: dict[str, float], scale: float) -> dict[str, Any]:
    width, height = (max(1, min(box[side], SIDE_MAX_PX / scale)) for side in ("width", "height"))
    # What is too large ends further up: pages are read from the top.
    height = max(1, min(height, AREA_MAX_PX / scale**2 // width))
    return {
        "captureBeyondViewport": True,
        "clip": {"x": box["x"], "y": box["y"], "width": width, "height": height, "scale": 1},
    }


async def _box(tab: TabPort, search: Search, progress: Progress) -> tuple[dict[str, float], float]:
    """The element's box in the coordinates of the page's whole document, and the scale of the screen."""
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
        box = {
            "x": held.x - size["middleX"] + seen["pageX"],
            "y": held.y - size["middleY"] + seen["pageY"],
            "width": size["width"],
            "height": size["height"],
        }
        return box, await _scale(tab)


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
