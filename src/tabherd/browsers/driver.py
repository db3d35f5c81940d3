"""Drives a browser over its control socket: contexts, tabs, probes. Who started it, and who ends it, is not known here.

Invariants:
- A page that nobody could learn of is closed: one whose maker is cancelled or fails halfway.
- `close_tab` returns only when no script of the page runs any more, however the page behaves.
- Attaching is bounded: a page that is spinning or crashed holds nobody up.

What becomes of pages is followed in `pages.py`, of downloads in `downloads.py`; what sessions keep across a crash is
read and written in `storage.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

import structlog

from ..core.model import Browser
from . import process, workers
from .cdp import CdpConnection, CdpSession
from .dialogs import Dialogs, is_stranded
from .downloads import Downloads, forbid_downloads
from .frames import FrameSessions
from .pages import BLANK, PageWatch, in_context, own_profile, page_of
from .port import (
    BrowserGone,
    CdpFailure,
    DownloadListener,
    Origins,
    Page,
    PageListener,
    Proxy,
    TabGone,
    Usage,
    Viewport,
)
from .storage import (
    is_large,
    is_web,
    read_cookies,
    read_local_storage,
    wait_until_stored,
    write_cookies,
    write_local_storage,
)
from .usage import UsageMeter

log = structlog.get_logger(__name__)

# How often a page is told to close, and how long it is given each time, before it is taken for one that spins. Twice,
# because Chromium forgets about it when a navigation commits at the same moment.
CLOSE_TRIES: Final = 2
CLOSE_GRACE_S: Final = 0.15
# How often a page is told to close that must not take others with it. Chromium drops one that does not answer after
# half a second.
DISMISS_TRIES: Final = 20
# How long a page may take to stop its scripts before it is taken for one that spins; it is interrupted after the grace.
SILENCE_LIMIT_S: Final = 0.45
# How long its renderer may take to end. One to which nobody was attached when it began to spin never hears of it.
CRASH_LIMIT_S: Final = 2.0
# How long a page may take to go away once its renderer has been ended, also on a machine that is busy.
CLOSE_LIMIT_S: Final = 15.0
# How long an existing page may take to answer when it is attached.
ATTACH_LIMIT_S: Final = 3.0
# Our code for a page that did not go away.
NOT_CLOSED: Final = -32098

# Navigations that stay in the document they begin in.
_STAYING: Final = ("sameDocument", "historySameDocument")
# What Chromium says of a target, an attachment and a context that do not exist; its codes say less.
_GONE_MESSAGES: Final = ("No target", "No session", "Failed to find context")


class ChromiumTab(CdpSession):
    """One page, through our own attached session."""

    __slots__ = (
        *("_answering", "_answers_dialogs", "_frames", "_given_up", "_has_open_dialog", "_is_leaving"),
        *("_is_left_to_others", "_saying", "cdp_session_id", "dialogs", "script", "target_id"),
    )

    def __init__(
        self,
        connection: CdpConnection,
        session_id: str,
        target_id: str,
        answers_dialogs: Callable[[str], bool] = lambda target_id: False,
        accepts_dialogs: Callable[[], bool] = lambda: False,
        given_up: Callable[[str], None] = lambda target_id: None,
    ) -> None:
        super().__init__(connection, session_id)
        # Whether somebody else answers the dialogs of that page.
        self._answers_dialogs = answers_dialogs
        self.dialogs = Dialogs(accepts_dialogs)
        # Told that the page is stranded.
        self._given_up = given_up
        # The answer to the dialog that is open, while it is kept waiting, and while it is on its way.
        self._answering: asyncio.TimerHandle | None = None
        self._saying: asyncio.Task[None] | None = None
        # A dialog is open; it is left to somebody else; and the page is on its way to another document.
        self._has_open_dialog = False
        self._is_left_to_others = False
        self._is_leaving = False
        self.cdp_session_id = session_id
        self.target_id = target_id
        self.script: tuple[int, str] | None = None
        self._frames = FrameSessions(self)

    async def frame(self, frame_id: str) -> CdpSession | None:
        """The own session of a frame that has a renderer of its own; None when it has none."""
        return await self._frames.find(frame_id)

    async def prepare(self) -> None:
        """Ask for the events that actions wait for."""
        self.listen("Page.javascriptDialogOpening", self._answer_dialog)
        self.listen("Page.javascriptDialogClosed", self._note_closed)
        self.listen("Page.frameStartedNavigating", self._note_leaving)
        self.listen("Page.frameNavigated", self._note_arrived)
        self.listen("Page.frameStoppedLoading", self._note_stopped)
        await asyncio.gather(
            self.call("Page.enable"),
            self.call("Page.setLifecycleEventsEnabled", {"enabled": True}),
        )

    async def ping(self) -> None:
        await self.call("Runtime.evaluate", {"expression": "0"})

    async def calm(self) -> None:
        await asyncio.gather(self.call("Page.stopLoading"), self.call("Runtime.terminateExecution"))

    async def freeze(self) -> None:
        await self.call("Page.setWebLifecycleState", {"state": "frozen"})

    def thaw(self) -> None:
        self.post("Page.setWebLifecycleState", {"state": "active"})
        # Freezing has hidden the page, and nothing else shows it again; a hidden one draws nothing, and waits for it.
        self.post("Emulation.setFocusEmulationEnabled", {"enabled": True})

    async def set_viewport(self, viewport: Viewport) -> None:
        size = {"width": viewport.width, "height": viewport.height, "deviceScaleFactor": viewport.device_scale_factor}
        await self.call("Emulation.setDeviceMetricsOverride", {**size, "mobile": False})

    def _note_leaving(self, event: Mapping[str, Any]) -> None:
        if event["frameId"] == self.target_id and event.get("navigationType") not in _STAYING:
            self._is_leaving = True
            self._close_dialog_left_open()

    def _note_arrived(self, event: Mapping[str, Any]) -> None:
        if "parentId" not in event["frame"]:
            self.script = None
            self._is_leaving = False

    def _note_stopped(self, event: Mapping[str, Any]) -> None:
        if event["frameId"] == self.target_id:
            self._is_leaving = False

    def _note_closed(self, _: Mapping[str, Any]) -> None:
        self._has_open_dialog = False

    def _close_dialog_left_open(self) -> None:
        # A dialog that is still open when the next document is ready can be answered by nobody, and Chromium dies of
        # it, with all its tenants, as soon as somebody detaches.
        if self._has_open_dialog and self._is_left_to_others and self._is_leaving:
            self._say({"accept": False})

    def _answer_dialog(self, dialog: Mapping[str, Any]) -> None:
        if self._answering is not None:
            # The one before has gone without it, and this answer is not for its successor.
            self._answering.cancel()
            self._answering = None
        self._has_open_dialog = True
        # Whether the page may be left is asked before it is on its way.
        self._is_left_to_others = self._answers_dialogs(self.target_id) and dialog.get("type") != "beforeunload"
        if self._answers_dialogs(self.target_id):
            self._close_dialog_left_open()
            return
        reply = self.dialogs.reply(dialog)
        answer = partial(self._say, reply.params)
        if reply.pause_s:
            self._answering = asyncio.get_running_loop().call_later(reply.pause_s, answer)
        else:
            answer()

    def _say(self, params: Mapping[str, Any]) -> None:
        """Answer the dialog that is open, or learn that nobody can."""

        async def say() -> None:
            try:
                await self.call("Page.handleJavaScriptDialog", params)
            except CdpFailure as failure:
                # That it was closed meanwhile would have been heard before this refusal.
                if self._has_open_dialog and is_stranded(failure.message):
                    self._given_up(self.target_id)
            except (TabGone, BrowserGone) as reason:
                log.debug("a page was gone before its dialog was answered", targetId=self.target_id, reason=str(reason))

        self._saying = asyncio.ensure_future(say())


class DrivenBrowser:
    """One live browser at the other end of a control socket."""

    def __init__(
        self, row: Browser, connection: CdpConnection, meter: UsageMeter | None = None, proxy: Proxy | None = None
    ) -> None:
        self.row = row
        # What each new context is told about the network.
        self.proxy: Mapping[str, str] = {} if proxy is None else proxy.context_params
        self._connection = connection
        # Absent where the processes are not ours to look at.
        self._meter = meter
        # Our attachment of each page, by target id, and whose each attachment is, by session id.
        self._tabs: dict[str, ChromiumTab] = {}
        self._targets: dict[str, str] = {}
        self._watch = PageWatch(connection)
        # Stranded pages that are being closed.
        self._giving_up: set[asyncio.Task[None]] = set()
        self._downloads = Downloads(connection, self._watch.context_of)
        connection.listen(None, "Target.detachedFromTarget", self._forget_tab)

    async def new_context(self) -> str:
        made = await self._connection.call("Target.createBrowserContext", {"disposeOnDetach": False, **self.proxy})
        context_id: str = made["browserContextId"]
        await forbid_downloads(self._connection, context_id)
        return context_id

    async def new_tab(self, context_id: str) -> ChromiumTab:
        target_id = await self._make_page(context_id)
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

    async def dismiss_tab(self, target_id: str) -> None:
        for _ in range(DISMISS_TRIES):
            if not await self._end("Target.closeTarget", {"targetId": target_id}):
                return
            await asyncio.sleep(CLOSE_GRACE_S)
        await self.close_tab(target_id)

    async def give_up_tab(self, target_id: str) -> None:
        log.info("a page is stranded, and is closed", targetId=target_id)
        self._watch.crashed(target_id)
        await self.dismiss_tab(target_id)

    async def end_workers(self, context_id: str, target_id: str) -> None:
        await workers.end_workers(
            self._connection, context_id, self._tabs.get(target_id) or await self._attach(target_id)
        )

    async def let_go(self, target_id: str) -> None:
        # Whoever asks for this page from now on gets a new attachment, not this one.
        if (tab := self._tabs.pop(target_id, None)) is not None:
            await self._end("Target.detachFromTarget", {"sessionId": tab.session_id})

    async def watch_pages(self, listener: PageListener) -> None:
        await self._watch.start(listener)

    async def cookies(self, context_id: str) -> list[dict[str, Any]]:
        return await read_cookies(self._connection, context_id)

    async def set_cookies(self, context_id: str, cookies: list[dict[str, Any]]) -> None:
        await write_cookies(self._connection, context_id, cookies)

    async def local_storage(self, target_id: str, patience_s: float = 0.0) -> tuple[str, dict[str, str]] | None:
        tab = self._tabs.get(target_id)
        # Chromium gives the main frame of a page the same id as the page.
        return await read_local_storage(tab, target_id, patience_s) if tab is not None else None

    async def put_local_storage(self, context_id: str, origins: Origins) -> None:
        wanted = {origin: items for origin, items in origins.items() if items and is_web(origin)}
        if not wanted:
            return
        # Only a page of an origin can write there. One is enough for all, in turn.
        large = {origin: items for origin, items in wanted.items() if is_large(items)}
        async with self._hidden_page(context_id) as writer:
            await write_local_storage(writer, wanted)
            if large:
                async with self._hidden_page(context_id) as reader:
                    await wait_until_stored(reader, large)

    @asynccontextmanager
    async def _hidden_page(self, context_id: str) -> AsyncIterator[ChromiumTab]:
        """A page for our own use, of which nobody is told."""
        target_id = await self._make_page(context_id, is_told=False)
        try:
            yield await self._attach(target_id)
        finally:
            # Said first, so that it goes even if nobody waits for it any more.
            self._connection.post("Target.closeTarget", {"targetId": target_id})
            await self.close_tab(target_id)

    def allow_downloads(self, context_id: str, directory: str, listener: DownloadListener) -> None:
        self._downloads.allow(context_id, directory, listener)

    async def forbid_downloads(self, context_id: str) -> None:
        await self._downloads.forbid(context_id)

    def cancel_download(self, guid: str) -> None:
        self._downloads.cancel(guid)

    async def dispose_context(self, context_id: str) -> None:
        self._downloads.forget(context_id)
        await self._end("Target.disposeBrowserContext", {"browserContextId": context_id})

    async def context_ids(self) -> list[str]:
        found: list[str] = (await self._connection.call("Target.getBrowserContexts"))["browserContextIds"]
        return found

    async def pages(self) -> list[Page]:
        targets, contexts = await asyncio.gather(
            self._connection.call("Target.getTargets"), self._connection.call("Target.getBrowserContexts")
        )
        own_profile_id = own_profile(contexts, targets["targetInfos"])
        return [page_of(target, own_profile_id) for target in targets["targetInfos"] if target["type"] == "page"]

    async def probe(self) -> Usage:
        await self._connection.call("Browser.getVersion")
        return self._meter.latest() if self._meter is not None else Usage()

    def worked_ms(self) -> int:
        return 0 if self._meter is None else process.cpu_ms(self.row.pid)

    async def wait_gone(self) -> str:
        return await self._connection.wait_closed()

    async def _make_page(self, context_id: str, *, is_told: bool = True) -> str:
        """A blank page, not attached. A maker that is cancelled meanwhile has it closed."""
        making = asyncio.ensure_future(self._create_page(context_id, is_told))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(self._close_unwanted)
            raise

    async def _create_page(self, context_id: str, is_told: bool) -> str:
        with self._watch.making(context_id) as claim:
            made = await self._connection.call("Target.createTarget", {"url": BLANK, **in_context(context_id)})
            target_id: str = made["targetId"]
            claim(target_id, is_told)
        return target_id

    def _close_unwanted(self, making: asyncio.Future[str]) -> None:
        if not making.cancelled() and making.exception() is None:
            self._connection.post("Target.closeTarget", {"targetId": making.result()})

    async def _attach(self, target_id: str) -> ChromiumTab:
        attached = await self._connection.call("Target.attachToTarget", {"targetId": target_id, "flatten": True})
        tab = ChromiumTab(
            self._connection,
            attached["sessionId"],
            target_id,
            self._watch.answers_dialogs,
            self._watch.accepts_dialogs,
            self._stranded,
        )
        self._tabs[target_id] = tab
        self._targets[tab.session_id] = target_id
        tab.listen("Page.loadEventFired", lambda _: self._watch.look_again(target_id))
        # In the moment in which its calls fail: whoever is next must not be sent to a page that is known to be dead.
        tab.listen("Inspector.targetCrashed", lambda _: self._watch.crashed(target_id))
        return tab

    def _stranded(self, target_id: str) -> None:
        giving_up = asyncio.ensure_future(self.give_up_tab(target_id))
        self._giving_up.add(giving_up)
        giving_up.add_done_callback(self._gave_up)

    def _gave_up(self, giving_up: asyncio.Task[None]) -> None:
        self._giving_up.discard(giving_up)
        if not giving_up.cancelled() and (error := giving_up.exception()) is not None:
            # Whoever uses the page next finds it dead; a browser that ends is told of elsewhere.
            log.info("a stranded page could not be closed", reason=str(error))

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
        # One that does not stop must not be told to close: on a busy machine Chromium might drop it (see below) before
        # its renderer has been ended.
        is_silent = await self._silence(tab)
        for _ in range(CLOSE_TRIES if is_silent else 0):
            if not await self._end("Target.closeTarget", {"targetId": tab.target_id}):
                return None
            await asyncio.wait([gone], timeout=CLOSE_GRACE_S)
            if gone.done():
                return gone.result()
        # Chromium itself drops a page half a second after it was told to close, but not its renderer if that has other
        # pages too: the script would run on, and send requests, where nobody sees it. So the renderer is ended first.
        log.info("a closing page does not let go, its renderer is ended", targetId=tab.target_id)
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                # It would not end the renderer of a page that is about to be another one.
                self._watch.closing(tab.target_id)
                tab.post("Page.stopLoading")
                with suppress(TimeoutError, TabGone, CdpFailure):
                    async with asyncio.timeout(CRASH_LIMIT_S):
                        await tab.call("Page.crash")
                await self._end("Target.closeTarget", {"targetId": tab.target_id})
                await gone
        except TimeoutError:
            message = f"the page is still there after {CLOSE_LIMIT_S} s"
            raise CdpFailure("Target.closeTarget", NOT_CLOSED, message) from None

    async def _silence(self, tab: ChromiumTab) -> bool:
        """No timer, answer or event starts a script of the page from now on, and none runs; False if one may.

        When Chromium says that a page is gone, a renderer that has other pages too may not have heard of it yet. The
        ban on scripts alone would be lifted by our own detachment a moment before; a frozen page stays frozen.
        """
        silent = asyncio.gather(
            tab.call("Page.setWebLifecycleState", {"state": "frozen"}),
            tab.call("Emulation.setScriptExecutionDisabled", {"value": True}),
            # Chromium answers those two in the middle of a script, and this one after it.
            tab.call("Runtime.getHeapUsage"),
        )
        try:
            async with asyncio.timeout(SILENCE_LIMIT_S):
                await asyncio.wait([silent], timeout=CLOSE_GRACE_S)
                if not silent.done():
                    tab.post("Runtime.terminateExecution")
                    tab.post("Page.handleJavaScriptDialog", {"accept": False})
                await silent
        except TimeoutError:
            return False
        except (TabGone, CdpFailure) as reason:
            # There is nothing left that could run.
            log.debug("a closing page could not be silenced", targetId=tab.target_id, reason=str(reason))
        except asyncio.CancelledError:
            # A page without scripts is of no use to anybody.
            self._connection.post("Target.closeTarget", {"targetId": tab.target_id})
            raise
        finally:
            silent.cancel()
        return True

    async def _end(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether there was anything to end."""
        try:
            await self._connection.call(method, params)
        except CdpFailure as failure:
            if not _is_gone(failure):
                raise
            return False
        return True


def _is_gone(failure: CdpFailure) -> bool:
    return failure.message.startswith(_GONE_MESSAGES)
