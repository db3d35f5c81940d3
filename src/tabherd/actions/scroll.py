"""Scrolls: an element into view, or the page or what an element is in by so many pixels, without animation."""

from __future__ import annotations

from typing import Any

from .. import wire
from ..browsers.port import TabPort
from ..errors import InvalidRequest
from .locate import ATTACHED, Search, locate
from .progress import Progress
from .selectors import label_of, target_of
from .world import DocumentLost, World


async def scroll(tab: TabPort, action: wire.Scroll, progress: Progress) -> dict[str, float]:
    """Where it is now: the scroll position, or for an element brought into view its place in the viewport."""
    parts = target_of(action)
    by = None if action.x is None and action.y is None else {"x": action.x or 0, "y": action.y or 0}
    if parts is None and by is None:
        raise InvalidRequest("Say where to: an element, or x or y.", field="selector")
    while True:
        try:
            answer = await _scroll(tab, action, parts, by, progress)
        except DocumentLost:
            continue
        if "done" in answer:
            reached: dict[str, float] = answer["done"]
            return reached


async def _scroll(
    tab: TabPort, action: wire.Scroll, parts: list[dict[str, Any]] | None, by: Any, progress: Progress
) -> dict[str, Any]:
    if parts is None:
        world = await World.of(tab)
        progress.acts()
        answer: dict[str, Any] = await world.run("scrollPage", by)
        return answer
    held = await locate(tab, Search(parts=parts, label=label_of(action), needs=ATTACHED), progress)
    progress.acts()
    return await (held.step("scrollTo") if by is None else held.step("scrollBy", by))
