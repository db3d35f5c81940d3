"""Goes through a tab's history: back, forward, reload."""

from __future__ import annotations

from typing import Any

from .. import wire
from ..browsers.port import TabPort
from ..errors import NavigationFailed
from .arrival import Arrival
from .progress import Progress


async def back(tab: TabPort, action: wire.Back, progress: Progress) -> dict[str, Any]:
    """The page that was reached, described as by `navigate`."""
    return await _go(tab, -1, action.wait_until, progress)


async def forward(tab: TabPort, action: wire.Forward, progress: Progress) -> dict[str, Any]:
    return await _go(tab, +1, action.wait_until, progress)


async def reload(tab: TabPort, action: wire.Reload, progress: Progress) -> dict[str, Any]:
    progress.acts()
    with Arrival(tab, action.wait_until) as arrival:
        await tab.call("Page.reload")
        await arrival.of_document(None)
        return await arrival.description()


async def _go(tab: TabPort, by: int, wait_until: wire.WaitUntil, progress: Progress) -> dict[str, Any]:
    history = await tab.call("Page.getNavigationHistory")
    at = history["currentIndex"] + by
    if not 0 <= at < len(history["entries"]):
        where = "back" if by < 0 else "forward"
        raise NavigationFailed(f"The tab has no page to go {where} to.", action="Navigate to an address instead.")
    progress.acts()
    with Arrival(tab, wait_until) as arrival:
        await tab.call("Page.navigateToHistoryEntry", {"entryId": history["entries"][at]["id"]})
        await arrival.of_document(None)
        return await arrival.description()
