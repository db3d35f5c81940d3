"""Drives a browser over its control socket: contexts, tabs, probes. Who started it, and who ends it, is not known here.

Invariants:
- A page that nobody could learn of is closed: one whose maker is cancelled or fails halfway.
- `close_tab` returns only when no script of the page runs any more, however the page behaves.
- Attaching is bounded: a page that is spinning or crashed holds nobody up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import structlog

from ..core.model import Browser
from .cdp import CdpConnection, CdpSession
from .port import CdpFailure, Page, TabGone, Usage
from .usage import UsageMeter

log = structlog.get_logger(__name__)

# How often a page is told to close, and how long it is given each time, before it is taken for one that spins. Twice,
# because Chromium forgets about it when a navigation commits at the same moment.
CLOSE_TRIES: Final = 2
CLOSE_GRACE_S: Final = 0.15
# How long a page may take to go away once its renderer has been ended.
CLOSE_LIMIT_S: Final = 5.0
# How long an existing page may take to answer when it is attached.
ATTACH_LIMIT_S: Final = 3.0
# Our code for a page that did not go away.
NOT_CLOSED: Final = -32098

# What Chromium says of a target and a context that do not exist; its codes say less.
_GONE_MESSAGES: Final = ("No target", "Failed to find context")


class ChromiumTab(CdpSession):
    """One page, through our own attached session."""

    __slots__ = ("cdp_session_id", "target_id")

    def __init__(self, connection: CdpConnection, session_id: str, target_id: str) -> None:
        super().__init__(connection, session_id)
        self.cdp_session_id = session_id
        self.target_id = target_id

    async def prepare(self) -> None:
        """Ask for the events that actions wait for."""
        self.listen("Page.javascriptDialogOpening", self._answer_dialog)
        await asyncio.gather(
            self.call("Page.enable"),
            self.call("Page.setLifecycleEventsEnabled", {"enabled": True}),
        )

    def _answer_dialog(self, dialog: Mapping[str, Any]) -> None:
        # An open dialog blocks the page and every command on it, and nobody is looking: dismiss it, as a person who
        # wants none of it would, but let a page that asks "leave?" be left.
        self.post("Page.handleJavaScriptDialog", {"accept": dialog.get("type") == "beforeunload"})


class DrivenBrowser:
    """One live browser at the other end of a control socket."""

    def __init__(self, row: Browser, connection: CdpConnection, meter: UsageMeter | None = None) -> None:
        self.row = row
        self._connection = connection
        # Absent where the processes are not ours to look at.
        self._meter = meter
        # Our attachment of each page, by target id, and whose each attachment is, by session id.
        self._tabs: dict[str, ChromiumTab] = {}
        self._targets: dict[str, str] = {}
        connection.listen(None, "Target.detachedFromTarget", self._forget_tab)

    async def new_context(self) -> str:
        made = await self._connection.call("Target.createBrowserContext", {"disposeOnDetach": False})
        context_id: str = made["browserContextId"]
        await forbid_downloads(self._connection, context_id)
        return context_id

    async def new_tab(self, context_id: str) -> ChromiumTab:
        where = {"browserContextId": context_id} if context_id else {}
        made = await self._connection.call("Target.createTarget", {"url": "about:blank", **where})
        target_id: str = made["targetId"]
        try:
            tab = await self._attach(target_id)
            # The first script in a page takes twice as long as the next: whoever gets the page need not wait for it.
            await asyncio.gather(tab.prepare(), tab.call("Runtime.evaluate", {"expression": "0"}))
        except BaseException:
            # Also when the caller left: nobody else knows of this page.
            self._connection.post("Target.closeTarget", {"targetId": target_id})
            raise
        return tab

    async def attach_tab(self, target_id: str) -> ChromiumTab:
        if (known := self._tabs.get(target_id)) is not None:
            return known
        try:
            async with asyncio.timeout(ATTACH_LIMIT_S):
                tab = await self._attach(target_id)
                await tab.prepare()
        except TimeoutError:
            self._detach(target_id)
            raise TabGone("The page exists but does not answer.", was_sent=False) from None
        except CdpFailure as failure:
            if not _is_gone(failure):
                raise
            raise TabGone("The page was gone before it could be attached.", was_sent=False) from failure
        return tab

    async def close_tab(self, target_id: str) -> None:
        try:
            # Only of an attached page does Chromium tell when it is gone; that it has been told to go means nothing.
            tab = self._tabs.get(target_id) or await self._attach(target_id)
        except CdpFailure as failure:
            if not _is_gone(failure):
                raise
            return
        gone = self._connection.expect("Target.closeTarget")

        def settle(detached: Mapping[str, Any]) -> None:
            if detached.get("sessionId") == tab.session_id and not gone.done():
                gone.set_result(None)

        stop = self._connection.listen(None, "Target.detachedFromTarget", settle)
        try:
            await self._close(tab, gone)
        finally:
            stop()
            if not gone.cancel() and not gone.cancelled():
                # Looked at, or asyncio would complain: whoever waited has already failed for the same reason.
                gone.exception()

    async def dispose_context(self, context_id: str) -> None:
        await self._end("Target.disposeBrowserContext", {"browserContextId": context_id})

    async def context_ids(self) -> list[str]:
        found: list[str] = (await self._connection.call("Target.getBrowserContexts"))["browserContextIds"]
        return found

    async def pages(self) -> list[Page]:
        targets, contexts = await asyncio.gather(
            self._connection.call("Target.getTargets"), self._connection.call("Target.getBrowserContexts")
        )
        made = set(contexts["browserContextIds"])
        return [
            Page(
                target_id=target["targetId"],
                # The browser's own profile has an id too, but it is nobody's to name or dispose of.
                context_id=target["browserContextId"] if target["browserContextId"] in made else "",
                url=target["url"],
                title=target["title"],
            )
            for target in targets["targetInfos"]
            if target["type"] == "page"
        ]

    async def probe(self) -> Usage:
        await self._connection.call("Browser.getVersion")
        return self._meter.latest() if self._meter is not None else Usage()

    async def wait_gone(self) -> str:
        return await self._connection.wait_closed()

    async def _attach(self, target_id: str) -> ChromiumTab:
        attached = await self._connection.call("Target.attachToTarget", {"targetId": target_id, "flatten": True})
        tab = ChromiumTab(self._connection, attached["sessionId"], target_id)
        self._tabs[target_id] = tab
        self._targets[tab.session_id] = target_id
        return tab

    def _detach(self, target_id: str) -> None:
        if (tab := self._tabs.pop(target_id, None)) is not None:
            self._connection.post("Target.detachFromTarget", {"sessionId": tab.session_id})

    def _forget_tab(self, detached: Mapping[str, Any]) -> None:
        session_id = detached.get("sessionId", "")
        target_id = self._targets.pop(session_id, "")
        tab = self._tabs.get(target_id)
        if tab is not None and tab.session_id == session_id:
            del self._tabs[target_id]

    async def _close(self, tab: ChromiumTab, gone: asyncio.Future[None]) -> None:
        await self._silence(tab)
        for _ in range(CLOSE_TRIES):
            if not await self._end("Target.closeTarget", {"targetId": tab.target_id}):
                return None
            await asyncio.wait([gone], timeout=CLOSE_GRACE_S)
            if gone.done():
                return gone.result()
        # Chromium itself would now drop the page, but not its renderer if that has other pages too: the script would
        # run on, and send requests, where nobody sees it. So the renderer is ended first.
        log.info("a closing page does not let go, its renderer is ended", targetId=tab.target_id)
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                # It would not end the renderer of a page that is about to be another one.
                tab.post("Page.stopLoading")
                with suppress(TabGone, CdpFailure):
                    await tab.call("Page.crash")
                await self._end("Target.closeTarget", {"targetId": tab.target_id})
                await gone
        except TimeoutError:
            message = f"the page is still there after {CLOSE_LIMIT_S} s"
            raise CdpFailure("Target.closeTarget", NOT_CLOSED, message) from None

    async def _silence(self, tab: ChromiumTab) -> None:
        """No timer, answer or event starts a script of the page from now on.

        When Chromium says that a page is gone, a renderer that has other pages too may not have heard of it yet. The
        ban on scripts alone would be lifted by our own detachment a moment before; a frozen page stays frozen.
        """
        try:
            async with asyncio.timeout(CLOSE_GRACE_S):
                await asyncio.gather(
                    tab.call("Page.setWebLifecycleState", {"state": "frozen"}),
                    tab.call("Emulation.setScriptExecutionDisabled", {"value": True}),
                )
        except (TimeoutError, TabGone, CdpFailure) as reason:
            # It is stuck, which closing it will show, or there is nothing left that could run.
            log.debug("a closing page could not be silenced", targetId=tab.target_id, reason=str(reason))
        except asyncio.CancelledError:
            # A page without scripts is of no use to anybody.
            self._connection.post("Target.closeTarget", {"targetId": tab.target_id})
            raise

    async def _end(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether there was anything to end."""
        try:
            await self._connection.call(method, params)
        except CdpFailure as failure:
            if not _is_gone(failure):
                raise
            return False
        return True


async def forbid_downloads(connection: CdpConnection, context_id: str) -> None:
    """A page must not write files on this machine; the full build would, into the user's download directory.

    Empty: the browser's own profile. It holds while this connection lives, so whoever takes over says it again.
    """
    where = {"browserContextId": context_id} if context_id else {}
    await connection.call("Browser.setDownloadBehavior", {"behavior": "deny", **where})


def _is_gone(failure: CdpFailure) -> bool:
    return failure.message.startswith(_GONE_MESSAGES)
