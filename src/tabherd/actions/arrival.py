"""Follows the tab's main document from one to the next, and tells when it is as far as a caller wants.

What counts is the document that the tab ends up with: a page that sends the visitor on while it loads is followed,
and the milestone is waited for on its successor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from .. import wire
from ..browsers.port import TabPort
from .world import DocumentLost, World

# Chromium's names for the moments in a document's life. Its network is idle after half a second without a request.
MILESTONES: Final[Mapping[wire.WaitUntil, str]] = {
    "commit": "commit",
    "domcontentloaded": "DOMContentLoaded",
    "load": "load",
    "networkidle": "networkIdle",
}


class Arrival:
    """The main document, for as long as it is entered."""

    def __init__(self, tab: TabPort, wait_until: wire.WaitUntil) -> None:
        self._tab = tab
        self._milestone = MILESTONES[wait_until]
        # Chromium names the main frame after its target.
        self._frame_id = tab.target_id
        # Documents that have been committed since we listen, and how far the present one is.
        self._loaders: set[str] = set()
        self._loader = ""
        self._reached: set[str] = set()
        # Which documents are waited for: None is any, once somebody waits.
        self._wanted: str | None = None
        self._is_awaited = False
        self._arrived = tab.expect("navigation")
        self._stops: tuple[Callable[[], None], ...] = ()
        self.url = ""

    def __enter__(self) -> Arrival:
        self._stops = (
            self._tab.listen("Page.frameNavigated", self._on_navigated),
            self._tab.listen("Page.lifecycleEvent", self._on_lifecycle),
            self._tab.listen("Page.navigatedWithinDocument", self._on_jumped),
        )
        return self

    def __exit__(self, *_: object) -> None:
        for stop in self._stops:
            stop()
        self._arrived.cancel()

    async def of_document(self, loader_id: str | None) -> None:
        """Returns when that document (None: whichever comes), or the one it sent the visitor on to, is far enough."""
        self._wanted = loader_id
        self._is_awaited = True
        self._check()
        await self._arrived

    async def description(self) -> dict[str, Any]:
        """`{url, title, status}` of the page that was reached; after `commit` only its address is known."""
        unknown = {"url": self.url, "title": None, "status": None}
        if self._milestone == "commit" and self._is_awaited:
            # Nothing is asked of the page: it may be busy with its first script for as long as it likes.
            return unknown
        try:
            described: dict[str, Any] = await (await World.of(self._tab)).run("describePage")
        except DocumentLost:
            # It has sent the visitor on after it had loaded: where to is all that can be said.
            return unknown
        return described

    def _on_navigated(self, event: Mapping[str, Any]) -> None:
        frame = event["frame"]
        if frame["id"] != self._frame_id:
            return
        self.url = frame["url"] + frame.get("urlFragment", "")
        # The lifecycle's own "commit" does not come for every document (not for a tab's first), this always does.
        self._loader = frame["loaderId"]
        self._loaders.add(self._loader)
        self._reached = {"commit"}
        if event.get("type") == "BackForwardCacheRestore":
            # It comes back as it was left, and tells of no milestones again.
            self._reached.update(MILESTONES.values())
        self._check()

    def _on_lifecycle(self, event: Mapping[str, Any]) -> None:
        if event["frameId"] == self._frame_id and event["loaderId"] == self._loader:
            self._reached.add(event["name"])
            self._check()

    def _on_jumped(self, event: Mapping[str, Any]) -> None:
        """To another address of the same document, which is as far as it was."""
        if event["frameId"] != self._frame_id:
            return
        self.url = event["url"]
        if self._loader == "" and self._wanted is None:
            self._loader = "same"
            self._loaders.add(self._loader)
            self._reached.update(MILESTONES.values())
            self._check()

    def _check(self) -> None:
        if not self._is_awaited or self._arrived.done() or self._milestone not in self._reached:
            return
        if self._loaders if self._wanted is None else self._wanted in self._loaders:
            self._arrived.set_result(None)
