"""Sends a page to an address and waits until it is as far as the caller wants.

Network errors are errors, each with its `reason`; a 404 is a page, and its status is in the result.
"""

from __future__ import annotations

from typing import Any

from .. import wire
from ..browsers.port import CdpFailure, TabPort
from ..errors import InvalidRequest
from .arrival import Arrival
from .net_errors import navigation_failed, reason_of
from .progress import Progress
from .url_policy import allowed_url

_ABORTED = "net::ERR_ABORTED"


async def navigate(tab: TabPort, action: wire.Navigate, progress: Progress) -> dict[str, Any]:
    """`{url, title, status}` of the page that was reached; after `commit` only its address is known."""
    url = allowed_url(action.url)
    progress.acts()
    async with Arrival(tab, action.wait_until, progress, url=url) as arrival:
        answer = await _start(tab, url, arrival)
        # Without a loader it was a jump within the document.
        if "loaderId" in answer:
            await arrival.of_document(answer["loaderId"])
        return await arrival.description()


async def _start(tab: TabPort, url: str, arrival: Arrival) -> dict[str, Any]:
    try:
        answer = await tab.call("Page.navigate", {"url": url})
    except CdpFailure as failure:
        if "invalid URL" in failure.message:
            raise InvalidRequest("url is not a valid address.", field="url") from failure
        raise
    if error := answer.get("errorText"):
        if answer.get("isDownload"):
            raise navigation_failed(url, "download", error, isDownload=True)
        if error != _ABORTED:
            raise navigation_failed(url, reason_of(error), error)
        # Either something else was begun meanwhile, or the server sent nothing to show.
        is_superseded = await arrival.is_superseded(answer.get("loaderId", ""))
        raise navigation_failed(url, "superseded" if is_superseded else "no_content", error)
    return answer
