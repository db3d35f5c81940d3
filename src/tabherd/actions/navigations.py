"""Notices that an input sends the tab to another document, and waits until it is there.

A press of a link is over for Chromium before its navigation has begun to matter; whatever is done next would race
with it. So whoever presses listens first, and afterwards waits for the commit of a navigation of the main frame that
was requested meanwhile, or for its failure (a download, no content, a new address in the same document).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from ..browsers.port import TabPort

# How long a navigation that was asked for may take to start: some never do, and nothing says so.
START_LIMIT_S: Final = 0.5


class Navigations:
    """Those of the main frame, for as long as it is entered."""

    def __init__(self, tab: TabPort) -> None:
        self._tab = tab
        # Chromium names the main frame after its target.
        self._frame_id = tab.target_id
        # One has been asked for, and whether Chromium has begun with it.
        self.is_asked = False
        self._is_started = False
        self._started = tab.expect("navigation start")
        self._ended = tab.expect("navigation end")
        self._stops: tuple[Callable[[], None], ...] = ()

    def __enter__(self) -> Navigations:
        self._stops = (
            self._tab.listen("Page.frameRequestedNavigation", self._on_asked),
            self._tab.listen("Page.frameStartedNavigating", self._on_started),
            self._tab.listen("Page.frameNavigated", self._on_committed),
            self._tab.listen("Page.navigatedWithinDocument", self._on_over),
            self._tab.listen("Page.frameStoppedLoading", self._on_over),
        )
        return self

    def __exit__(self, *_: object) -> None:
        for stop in self._stops:
            stop()
        self._forget()

    def start_anew(self) -> None:
        """What was noticed until now is none of the input that follows."""
        if not self.is_asked:
            return
        self.is_asked = self._is_started = False
        self._forget()
        self._started = self._tab.expect("navigation start")
        self._ended = self._tab.expect("navigation end")

    async def settle(self) -> None:
        """Returns at once when the page stays, else when it has gone or will not go."""
        if not self.is_asked:
            return
        if not self._is_started:
            with suppress(TimeoutError):
                async with asyncio.timeout(START_LIMIT_S):
                    await asyncio.wait((self._started, self._ended), return_when=asyncio.FIRST_COMPLETED)
        if self._is_started:
            await self._ended

    def _forget(self) -> None:
        for future in (self._started, self._ended):
            if not future.cancel() and not future.cancelled():
                # Looked at, or asyncio would complain: whoever acted has failed for the same reason.
                future.exception()

    def _on_asked(self, event: Mapping[str, Any]) -> None:
        if event["frameId"] == self._frame_id and event.get("disposition") == "currentTab":
            self.is_asked = True

    def _on_started(self, event: Mapping[str, Any]) -> None:
        if event["frameId"] == self._frame_id and event.get("navigationType") != "sameDocument":
            self.is_asked = self._is_started = True
            _settle(self._started)

    def _on_committed(self, event: Mapping[str, Any]) -> None:
        if event["frame"]["id"] == self._frame_id:
            self._end()

    def _on_over(self, event: Mapping[str, Any]) -> None:
        if event["frameId"] == self._frame_id:
            self._end()

    def _end(self) -> None:
        # Before anything was asked for, it is the end of what was going on already.
        if self.is_asked:
            _settle(self._ended)


def _settle(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)
