"""Follows the tab's main document from one to the next, and tells when it is as far as a caller wants.

What counts is the document that the tab ends up with: a page that sends the visitor on while it loads is followed,
and the milestone is waited for on its successor. A navigation that comes to nothing is told as soon as Chromium stops
loading, and one that never comes to an end after `DOCUMENTS_MAX` documents.

How far it is stands in the caller's `Progress`, for whoever runs out of patience.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from .. import wire
from ..browsers.port import CdpFailure, TabPort
from ..errors import NavigationFailed
from .evaluate import is_navigation
from .net_errors import navigation_failed, reason_of
from .progress import Progress
from .requests import Requests
from .world import DocumentLost, World

# Chromium's names for the moments in a document's life. Its network is idle after half a second without a request.
MILESTONES: Final[Mapping[wire.WaitUntil, str]] = {
    "commit": "commit",
    "domcontentloaded": "DOMContentLoaded",
    "load": "load",
    "networkidle": "networkIdle",
}
_NAMES: Final = {milestone: name for name, milestone in MILESTONES.items()}
# How long a page that is to be left may take to answer before its script is ended.
STUCK_AFTER_S: Final = 2.0
# How long after an aborted navigation it may take until its end is told. It is always told; a moment later.
ABORTED_LIMIT_S: Final = 1.0
# So many documents, each of which sent the visitor on before it was far enough, are followed.
DOCUMENTS_MAX: Final = 50


class Arrival:
    """The main document, for as long as it is entered."""

    def __init__(
        self,
        tab: TabPort,
        wait_until: wire.WaitUntil,
        progress: Progress,
        *,
        url: str = "",
        explains_failures: bool = False,
    ) -> None:
        self._tab = tab
        self._progress = progress
        self._wait_until = wait_until
        self._milestone = MILESTONES[wait_until]
        # Chromium names the main frame after its target.
        self._frame_id = tab.target_id
        # Documents that have been committed since we listen, and how far the present one is.
        self._loaders: set[str] = set()
        self._loader = ""
        self._reached: set[str] = set()
        # The document that Chromium has begun to fetch last, since we listen.
        self._started = ""
        # Set when it is known what became of that: Chromium stopped loading, or has begun to fetch another.
        self._is_over = asyncio.Event()
        # Whether Chromium has stopped loading since, and why what it tried to load came to nothing.
        self._is_stopped = False
        self._failure: NavigationFailed | None = None
        # Which documents are waited for: None is any, once somebody waits.
        self._wanted: str | None = None
        self._is_awaited = False
        self._arrived = tab.expect("navigation")
        self._stops: tuple[Callable[[], None], ...] = ()
        self._requests = Requests(tab, self._publish, is_wanted=explains_failures or wait_until == "networkidle")
        # Where the tab is going, and where it is.
        self._aim = url
        self.url = ""

    async def __aenter__(self) -> Arrival:
        self._stops = (
            self._tab.listen("Page.frameStartedNavigating", self._on_started),
            self._tab.listen("Page.frameNavigated", self._on_navigated),
            self._tab.listen("Page.lifecycleEvent", self._on_lifecycle),
            self._tab.listen("Page.navigatedWithinDocument", self._on_jumped),
            self._tab.listen("Page.frameStoppedLoading", self._on_stopped),
        )
        self._publish()
        await self._loosen()
        await self._requests.__aenter__()
        return self

    async def __aexit__(self, *left: Any) -> None:
        for stop in self._stops:
            stop()
        if not self._arrived.cancel() and not self._arrived.cancelled():
            # Looked at, or asyncio would complain: whoever was to wait has failed for another reason.
            self._arrived.exception()
        await self._requests.__aexit__(*left)

    async def of_document(self, loader_id: str | None) -> None:
        """Returns when that document (None: whichever comes), or the one it sent the visitor on to, is far enough."""
        self._wanted = loader_id
        self._is_awaited = True
        if loader_id is None:
            # Whoever was busy when the answer came hears of it and of all that followed in one go: it may be over.
            self._conclude()
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

    async def is_superseded(self, loader_id: str) -> bool:
        """Whether another navigation has taken the place of that one, which was aborted; else it came to nothing."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ABORTED_LIMIT_S):
                await self._is_over.wait()
        return self._started not in ("", loader_id)

    async def _loosen(self) -> None:
        """See that the page can be left.

        One whose script never ends would keep the next from taking its place, and nothing reaches it any more once
        that is on its way. What it does is over anyway, so it is ended first.
        """
        try:
            async with asyncio.timeout(STUCK_AFTER_S):
                await self._tab.ping()
        except TimeoutError:
            with suppress(TimeoutError):
                async with asyncio.timeout(STUCK_AFTER_S):
                    await self._tab.call("Runtime.terminateExecution")
        except CdpFailure as failure:
            if not is_navigation(failure):
                raise

    # --- What Chromium tells ------------------------------------------------------------------------------------

    def _on_started(self, event: Mapping[str, Any]) -> None:
        if event["frameId"] == self._frame_id and event.get("navigationType") != "sameDocument":
            if self._started:
                self._is_over.set()
            self._is_stopped, self._failure = False, None
            self._started = event["loaderId"]
            self._aim = event["url"]
            self._publish()

    def _on_navigated(self, event: Mapping[str, Any]) -> None:
        frame = event["frame"]
        if frame["id"] != self._frame_id:
            return
        self.url = frame["url"] + frame.get("urlFragment", "")
        # The lifecycle's own "commit" does not come for every document (not for a tab's first), this always does.
        self._loader = frame["loaderId"]
        self._loaders.add(self._loader)
        self._failure = None
        self._reached = {"commit"}
        if event.get("type") == "BackForwardCacheRestore":
            # It comes back as it was left, and tells of no milestones again.
            self._reached.update(MILESTONES.values())
        if "unreachableUrl" in frame:
            error = self._requests.error_of(self._loader)
            self._fail(frame["unreachableUrl"], reason_of(error), error)
        elif len(self._loaders) > DOCUMENTS_MAX:
            self._fail(self.url, "endless", documents=len(self._loaders))
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

    def _on_stopped(self, event: Mapping[str, Any]) -> None:
        """Chromium has nothing to load any more: what has not come by now never will."""
        if event["frameId"] != self._frame_id:
            return
        if self._started:
            self._is_over.set()
            self._is_stopped = True
        if self._is_awaited:
            self._judge()

    # --- What follows from it -----------------------------------------------------------------------------------

    def _conclude(self) -> None:
        """Whoever begins to wait is told what has failed by then, of what was begun since we listen."""
        if self._started and self._failure is not None:
            self._arrived.set_exception(self._failure)
        elif self._is_stopped:
            self._judge()

    def _judge(self) -> None:
        """Chromium has stopped loading: unless what is waited for has come, it is known why it will not."""
        wanted = self._wanted or self._started
        if self._has_come or not wanted:
            # Without one that was begun, what has stopped was going on before.
            return
        if self._wanted is not None and self._loader:
            self._fail(self._aim, "superseded", to=self.url)
            return
        status, error = self._requests.status_of(wanted), self._requests.error_of(wanted)
        if status in (204, 205):
            self._fail(self._aim, "no_content", error)
        elif status is not None and error:
            # Answered, and yet no page of it: Chromium saves it instead.
            self._fail(self._aim, "download", error, isDownload=True)
        else:
            self._fail(self._aim, "aborted", error)

    @property
    def _has_come(self) -> bool:
        return bool(self._loaders) if self._wanted is None else self._wanted in self._loaders

    def _check(self) -> None:
        self._publish()
        if self._is_awaited and not self._arrived.done() and self._milestone in self._reached and self._has_come:
            self._arrived.set_result(None)

    def _fail(self, url: str, reason: str, error: str = "", **details: Any) -> None:
        self._failure = navigation_failed(url, reason, error, **details)
        if self._is_awaited and not self._arrived.done():
            self._arrived.set_exception(self._failure)

    def _publish(self) -> None:
        """What is waited for, and what is there: it is too late to ask when somebody's time is over."""
        self._progress.waiting_for = self._wait_until
        reached = [_NAMES[name] for name in MILESTONES.values() if name in self._reached]
        details = {"url": (self.url or self._aim)[:200], "reached": reached, "loading": self._requests.busy_with()}
        self._progress.details = {name: value for name, value in details.items() if value}
