"""Follows the pages of one browser: which were opened by pages themselves, which ended and how, and where they are.

Invariants:
- A page ends once: one that crashed is not told as closed when it is closed later, nor is anything else told of it.
- Pages that were there before, and those that the broker makes, are never told as opened; hidden ones not at all.
- What is told is clean and bounded, whatever a page puts into its address or title.
- After `stop`, and after the connection has ended, nothing is told.

Chromium describes pages by events of the browser itself, so a page that spins is followed like any other. It says a
title only when a page moves or is attached; hence `look_again`, once per loaded document.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import structlog

from .cdp import CdpConnection
from .port import BrowserGone, CdpFailure, Page, PageEnd, PageListener

log = structlog.get_logger(__name__)

# A data: address may be megabytes long, and it is kept for every page. Servers take a tenth of this at most.
URL_MAX_BYTES: Final = 64 << 10
# A title is for people to read.
TITLE_MAX_BYTES: Final = 1 << 10

BLANK: Final = "about:blank"

# Only pages: workers and frames would be many times the traffic.
_FILTER: Final = [{"type": "page"}]


def in_context(context_id: str) -> dict[str, str]:
    """The parameter that names a context. The browser's own profile is named by leaving it out."""
    return {"browserContextId": context_id} if context_id else {}


def own_profile(contexts: Mapping[str, Any], targets: list[dict[str, Any]]) -> str:
    """Chromium's id of the browser's own profile, which is nobody's to name or dispose of."""
    # Older browsers, which may be attached, do not say it; but it is in no list of made contexts.
    made = contexts["browserContextIds"]
    others = (target["browserContextId"] for target in targets if target.get("browserContextId", "") not in ("", *made))
    own: str = contexts.get("defaultBrowserContextId") or next(others, "")
    return own


def page_of(target: Mapping[str, Any], own_profile_id: str) -> Page:
    """A page as Chromium describes it, made clean."""
    context_id = target.get("browserContextId", "")
    # A page that has not gone anywhere yet has an empty document, which has this address.
    url = _clean(target["url"], URL_MAX_BYTES) or BLANK
    title = _clean(target["title"], TITLE_MAX_BYTES)
    return Page(
        target_id=target["targetId"],
        context_id="" if context_id == own_profile_id else context_id,
        url=url,
        # Said for want of a title; some pages have it from the start and some a moment later.
        title="" if title == url == BLANK else title,
        opener_id=target.get("openerId", ""),
    )


class PageWatch:
    """What is known of one browser's pages, and whom to tell."""

    def __init__(self, connection: CdpConnection) -> None:
        self._connection = connection
        # Set by `start`, gone after `stop`.
        self._listener: PageListener | None = None
        self._own_profile_id = ""
        # Whether the pages that were there before are known.
        self._is_complete = False
        # Every page that is followed, as it was last told, by target id.
        self._pages: dict[str, Page] = {}
        # How many pages the broker is making, by context, and pages of unknown making that came up meanwhile.
        self._making: Counter[str] = Counter()
        self._unclaimed: dict[str, Page] = {}
        # Loaded pages whose title is to be read, and who reads it, by target id.
        self._unread: set[str] = set()
        self._reading: dict[str, asyncio.Task[None]] = {}
        # Pages that we are closing.
        self._closing: set[str] = set()
        # End the subscriptions.
        self._stops: list[Callable[[], None]] = []

    async def start(self, listener: PageListener) -> None:
        assert self._listener is None, "one listener per browser"
        contexts, targets = await asyncio.gather(
            self._connection.call("Target.getBrowserContexts"), self._connection.call("Target.getTargets")
        )
        self._own_profile_id = own_profile(contexts, targets["targetInfos"])
        self._listener = listener
        for method, heard in (
            ("Target.targetCreated", self._created),
            ("Target.targetInfoChanged", self._changed),
            ("Target.targetCrashed", self._crashed),
            ("Target.targetDestroyed", self._destroyed),
        ):
            self._stops.append(self._connection.listen(None, method, heard))
        # Chromium lists the existing pages, as created, before it answers.
        await self._connection.call("Target.setDiscoverTargets", {"discover": True, "filter": _FILTER})
        self._is_complete = True

    def stop(self) -> None:
        """Tell nothing any more: what is closed from now on is closed with the browser. Idempotent."""
        for stop in self._stops:
            stop()
        self._stops.clear()
        self._pages.clear()
        self._unclaimed.clear()

    @contextmanager
    def making(self, context_id: str) -> Iterator[Callable[[str, bool], None]]:
        """While the broker makes a page. To be called with its target id and whether it may be told of at all.

        Chromium says that there is a new page before it says to its maker which one it is.
        """
        self._making[context_id] += 1
        try:
            yield self._claim
        finally:
            self._making[context_id] -= 1
            if not self._making[context_id]:
                del self._making[context_id]
                self._tell_unclaimed(context_id)

    def context_of(self, target_id: str) -> str | None:
        """The context of a page that is followed; None when there is no such page."""
        page = self._pages.get(target_id) or self._unclaimed.get(target_id)
        return None if page is None else page.context_id

    def look_again(self, target_id: str) -> None:
        """The page has loaded, so it has its title now."""
        if target_id not in self._pages:
            return
        self._unread.add(target_id)
        if target_id not in self._reading:
            self._reading[target_id] = asyncio.create_task(self._read(target_id))

    def crashed(self, target_id: str) -> None:
        """The page's renderer died. Chromium says so to whoever is attached first, and to everybody a little later."""
        if target_id not in self._closing:
            self._ended(target_id, PageEnd.CRASHED)

    def answers_dialogs(self, target_id: str) -> bool:
        """Whether somebody else answers the dialogs of that page."""
        return self._listener is not None and self._listener.answers_dialogs(target_id)

    def accepts_dialogs(self) -> bool:
        """Whether dialogs are accepted that no command says anything about."""
        return self._listener is not None and self._listener.accepts_dialogs()

    def closing(self, target_id: str) -> None:
        """The page is being closed, if need be by ending its renderer: that is no crash. Its end is told as ever."""
        if target_id in self._pages:
            self._closing.add(target_id)

    # --- What Chromium says -----------------------------------------------------------------------------------------

    def _created(self, event: Mapping[str, Any]) -> None:
        target = event["targetInfo"]
        # A page with a subtype is one that is only being prepared, in case somebody goes there.
        if target["type"] != "page" or target.get("subtype") or target["targetId"] in self._pages:
            return
        page = page_of(target, self._own_profile_id)
        if not self._is_complete:
            self._pages[page.target_id] = page
        elif page.opener_id:
            self._tell_opened(page)
        elif not page.context_id:
            # Anybody may open pages there, and nothing says who did.
            self._pages[page.target_id] = page
        elif self._making[page.context_id]:
            self._unclaimed[page.target_id] = page
        else:
            # A link that was opened with the middle button has no opener, but it did not leave its context.
            self._tell_opened(page)

    def _changed(self, event: Mapping[str, Any]) -> None:
        page = page_of(event["targetInfo"], self._own_profile_id)
        if page.target_id in self._unclaimed:
            self._unclaimed[page.target_id] = page
            return
        known = self._pages.get(page.target_id)
        if known is None or (known.url, known.title) == (page.url, page.title):
            return
        self._pages[page.target_id] = page
        if self._listener is not None:
            self._listener.page_moved(page.target_id, page.url, page.title)

    def _crashed(self, event: Mapping[str, Any]) -> None:
        self.crashed(event["targetId"])

    def _destroyed(self, event: Mapping[str, Any]) -> None:
        self._ended(event["targetId"], PageEnd.CLOSED)

    # --- What is made of it -----------------------------------------------------------------------------------------

    def _ended(self, target_id: str, how: PageEnd) -> None:
        self._unclaimed.pop(target_id, None)
        self._closing.discard(target_id)
        if self._pages.pop(target_id, None) is not None and self._listener is not None:
            self._listener.page_ended(target_id, how)

    def _claim(self, target_id: str, is_told: bool) -> None:
        page = self._unclaimed.pop(target_id, None) or self._pages.pop(target_id, None)
        if page is not None and is_told:
            self._pages[target_id] = page

    def _tell_unclaimed(self, context_id: str) -> None:
        for page in [page for page in self._unclaimed.values() if page.context_id == context_id]:
            del self._unclaimed[page.target_id]
            self._tell_opened(page)

    def _tell_opened(self, page: Page) -> None:
        self._pages[page.target_id] = page
        if self._listener is not None:
            self._listener.page_opened(page)

    async def _read(self, target_id: str) -> None:
        try:
            while target_id in self._unread:
                self._unread.discard(target_id)
                self._changed(await self._connection.call("Target.getTargetInfo", {"targetId": target_id}))
        except (BrowserGone, CdpFailure) as error:
            # It has ended, which Chromium tells by itself.
            log.debug("a loaded page was gone before its title was read", targetId=target_id, error=str(error))
        finally:
            self._unread.discard(target_id)
            del self._reading[target_id]


def _clean(text: str, max_bytes: int) -> str:
    """Text that can be stored anywhere: no NUL, no half of a surrogate pair, and not longer than that."""
    short = text[:max_bytes].replace("\0", "\ufffd").encode("utf-8", "replace")
    return short[:max_bytes].decode("utf-8", "ignore")
