"""Sends a page to an address and waits until it is as far as the caller wants.

Network errors are errors; a 404 is a page, and its status is in the result.
"""

from __future__ import annotations

from typing import Any

from .. import wire
from ..browsers.port import CdpFailure, TabPort
from ..errors import InvalidRequest, NavigationFailed
from .arrival import Arrival
from .progress import Progress
from .url_policy import allowed_url


async def navigate(tab: TabPort, action: wire.Navigate, progress: Progress) -> dict[str, Any]:
    """`{url, title, status}` of the page that was reached; after `commit` only its address is known."""
    url = allowed_url(action.url)
    progress.acts()
    with Arrival(tab, action.wait_until) as arrival:
        answer = await _start(tab, url)
        # Without a loader it was a jump within the document.
        if "loaderId" in answer:
            await arrival.of_document(answer["loaderId"])
        return await arrival.description()


async def _start(tab: TabPort, url: str) -> dict[str, Any]:
    try:
        answer = await tab.call("Page.navigate", {"url": url})
    except CdpFailure as failure:
        if "invalid URL" in failure.message:
            raise InvalidRequest("url is not a valid address.", field="url") from failure
        raise
    if error := answer.get("errorText"):
        if answer.get("isDownload"):
            raise NavigationFailed(f"{url[:200]} is a download, not a page.", url=url, error=error, isDownload=True)
        raise NavigationFailed(f"{url[:200]} could not be loaded: {error}.", url=url, error=error)
    return answer
