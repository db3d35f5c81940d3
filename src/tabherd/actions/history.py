"""Goes through a tab's history: back, forward, reload."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from .. import wire
from ..browsers.port import CdpFailure, TabPort
from ..errors import NavigationFailed
from .arrival import Arrival
from .evaluate import is_navigation
from .progress import Progress

# Between two documents, which some pages always are, there is nothing to reload; a moment later there is.
TRIES: Final = 5
RETRY_S: Final = 0.02


async def back(tab: TabPort, action: wire.Back, progress: Progress) -> dict[str, Any]:
    """The page that was reached, described as by `navigate`."""
    return await _go(tab, -1, action.wait_until, progress)


async def forward(tab: TabPort, action: wire.Forward, progress: Progress) -> dict[str, Any]:
    return await _go(tab, +1, action.wait_until, progress)


async def reload(tab: TabPort, action: wire.Reload, progress: Progress) -> dict[str, Any]:
    # A page that came from a form is sent for again with what was in the form, and nobody is asked.
    return await _arrive(tab, "Page.reload", {}, action.wait_until, progress)


async def _go(tab: TabPort, by: int, wait_until: wire.WaitUntil, progress: Progress) -> dict[str, Any]:
    history = await tab.call("Page.getNavigationHistory")
    at = history["currentIndex"] + by
    if not 0 <= at < len(history["entries"]):
        where = "back" if by < 0 else "forward"
        raise NavigationFailed(
            f"The tab has no page to go {where} to.", action="Navigate to an address instead.", reason="no_history"
        )
    entry = {"entryId": history["entries"][at]["id"]}
    return await _arrive(tab, "Page.navigateToHistoryEntry", entry, wait_until, progress)


async def _arrive(
    tab: TabPort, method: str, params: Mapping[str, Any], wait_until: wire.WaitUntil, progress: Progress
) -> dict[str, Any]:
    progress.acts()
    # Unlike a navigation, these are answered before anything is known of what comes of them.
    async with Arrival(tab, wait_until, progress, explains_failures=True) as arrival:
        await _begin(tab, method, params)
        await arrival.of_document(None)
        return await arrival.description()


async def _begin(tab: TabPort, method: str, params: Mapping[str, Any]) -> None:
    for _ in range(TRIES - 1):
        try:
            await tab.call(method, params)
        except CdpFailure as failure:
            if not is_navigation(failure):
                raise
            await asyncio.sleep(RETRY_S)
        else:
            return
    await tab.call(method, params)
