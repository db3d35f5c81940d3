"""Sends a page to an address and waits until it is as far as the caller wants.

What counts is the document that the tab ends up with: a page that sends the visitor on while it loads is followed,
and the milestone is waited for on its successor. Network errors are errors; a 404 is a page, and its status is in the
result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from .. import wire
from ..browsers.port import CdpFailure, TabPort
from ..errors import InvalidRequest, NavigationFailed
from .evaluate import ask, is_navigation
from .url_policy import allowed_url

# Chromium's names for the moments in a document's life. Its network is idle after half a second without a request.
_MILESTONES: Final[Mapping[Literal["load", "domcontentloaded", "networkidle", "commit"], str]] = {
    "commit": "commit",
    "domcontentloaded": "DOMContentLoaded",
    "load": "load",
    "networkidle": "networkIdle",
}
# How the page describes itself. The status is 0 where there is none, as for about:blank.
_DESCRIBE: Final = """() => ({
  url: location.href,
  title: document.title || "",
  status: performance.getEntriesByType("navigation")[0]?.responseStatus || null,
})"""


class _MainDocument:
    """Follows the tab's main document from one to the next, for as long as it is entered."""

    def __init__(self, tab: TabPort, milestone: str) -> None:
        self._tab = tab
        self._milestone = milestone
        # Chromium names the main frame after its target.
        self._frame_id = tab.target_id
        # Documents that have been committed since we listen, and how far the present one is.
        self._loaders: set[str] = set()
        self._loader = ""
        self._reached: set[str] = set()
        # The document that was asked for, once Chromium has named it.
        self._wanted: str | None = None
        self._arrived = tab.expect("navigation")
        self._stops: tuple[Callable[[], None], ...] = ()
        self.url = ""

    def __enter__(self) -> _MainDocument:
        self._stops = (
            self._tab.listen("Page.frameNavigated", self._on_navigated),
            self._tab.listen("Page.lifecycleEvent", self._on_lifecycle),
        )
        return self

    def __exit__(self, *_: object) -> None:
        for stop in self._stops:
            stop()
        self._arrived.cancel()

    async def arrival(self, loader_id: str) -> None:
        """Returns when that document, or the one it sent the visitor on to, is far enough."""
        self._wanted = loader_id
        self._check()
        await self._arrived

    def _on_navigated(self, event: Mapping[str, Any]) -> None:
        frame = event["frame"]
        if frame["id"] != self._frame_id:
            return
        self.url = frame["url"] + frame.get("urlFragment", "")
        # The lifecycle's own "commit" does not come for every document (not for a tab's first), this always does.
        self._loader = frame["loaderId"]
        self._loaders.add(self._loader)
        self._reached = {"commit"}
        self._check()

    def _on_lifecycle(self, event: Mapping[str, Any]) -> None:
        if event["frameId"] == self._frame_id and event["loaderId"] == self._loader:
            self._reached.add(event["name"])
            self._check()

    def _check(self) -> None:
        if self._wanted in self._loaders and self._milestone in self._reached and not self._arrived.done():
            self._arrived.set_result(None)


async def navigate(tab: TabPort, action: wire.Navigate) -> dict[str, Any]:
    """`{url, title, status}` of the page that was reached; after `commit` only its address is known."""
    url = allowed_url(action.url)
    with _MainDocument(tab, _MILESTONES[action.wait_until]) as document:
        answer = await _start(tab, url)
        if "loaderId" in answer:
            await document.arrival(answer["loaderId"])
            if action.wait_until == "commit":
                # Nothing is asked of the page: it may be busy with its first script for as long as it likes.
                return {"url": document.url, "title": None, "status": None}
        # Without a loader it was a jump within the document.
        return await _describe(tab, document)


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


async def _describe(tab: TabPort, document: _MainDocument) -> dict[str, Any]:
    try:
        described: dict[str, Any] = await ask(tab, _DESCRIBE)
    except CdpFailure as failure:
        if not is_navigation(failure):
            raise
        # It has sent the visitor on after it had loaded: where to is all that can be said.
        return {"url": document.url, "title": None, "status": None}
    return described
