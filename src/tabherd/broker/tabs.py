"""The tabs of a session: opening, closing, borrowing, popups, and handing one to a person.

A tab is written down before commands can find it, and counted against the pool's tabs before it exists. What may be
closed is decided by where it came from: what the session made or its pages opened is closed with it, what was borrowed
from the browser's user is only let go.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec
import structlog

from .. import wire
from ..browsers.port import BrowserGone, BrowserPort, CdpFailure, Page, PageEnd, TabGone, TabPort
from ..core import lease
from ..core.caps import Caps, capacity_refusal, tab_counter
from ..core.lifecycle import TAB, TabEvent, TabState, advance
from ..core.model import Session, Tab, changed
from ..errors import (
    AmbiguousTarget,
    BrowserCrashed,
    Capacity,
    InvalidRequest,
    LeaseLost,
    StateConflict,
    StoreUnavailable,
    TabherdError,
    TabNotFound,
)
from ..store.base import Add, Applied, Delete, Insert, Op, Outcome, Require, Store, Update, is_in_doubt
from .access import Access, is_visible, page_of
from .admission import Admission
from .audit import Auditor
from .caller import Caller
from .checkpoints import Checkpoints
from .events import EventBus
from .ids import Ids
from .leases import Leases, viewport_of
from .patience import patiently, to_the_end
from .recovery import Recovery
from .registry import LiveSession, LiveTab, Registry
from .settings import Settings
from .views import tab_brief, tab_view

log = structlog.get_logger("tabs")

# A page that opens windows without end must not use up the machine.
TABS_PER_SESSION_MAX = 50
# How long after the end of a page its browser may follow, as when it is told to end.
CLOSED_GRACE_S = 0.3
# How many pages an ambiguous name is answered with.
CANDIDATES_MAX = 10


class Tabs:
    """The tab verbs, and what browsers tell about pages."""

    def __init__(
        self,
        *,
        settings: Settings,
        node_id: str,
        store: Store,
        admissions: Mapping[str, Admission],
        registry: Registry,
        access: Access,
        leases: Leases,
        recovery: Recovery,
        checkpoints: Checkpoints,
        events: EventBus,
        auditor: Auditor,
        ids: Ids,
        clock: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._settings = settings
        self._node_id = node_id
        self._store = store
        self._admissions = admissions
        self._registry = registry
        self._access = access
        self._leases = leases
        self._recovery = recovery
        self._checkpoints = checkpoints
        self._events = events
        self._auditor = auditor
        self._ids = ids
        self._clock = clock
        self._spawn = spawn
        # Popups that are being taken in, as they were told of last; one that ends meanwhile is taken out.
        self._arriving: dict[str, Page] = {}
        # Done before agents have a tab again that a person had: whoever drove it lets go of it.
        self.before_resume: Callable[[LiveTab], Awaitable[None]] = _nothing
        registry.on_early_end = self.page_ended

    # --- Reads ----------------------------------------------------------------------------------------------

    async def of_session(self, caller: Caller, session_id: str) -> wire.TabPage:
        live = await self._access.bound(caller, session_id)
        live.read_by(caller, self._clock())
        return wire.TabPage(tabs=[tab_brief(tab.row) for tab in live.tabs.values()])

    def list(self, caller: Caller) -> wire.TabList:
        """Every tab that the caller may see, with who has it and who waits."""
        visible = [tab for tab in self._registry.tabs if is_visible(caller, tab.session.row)]
        return wire.TabList(tabs=[tab_view(tab, self._clock()) for tab in visible])

    def get(self, caller: Caller, tab_id: str) -> wire.TabView:
        return tab_view(self._access.tab(caller, tab_id), self._clock())

    def find(self, caller: Caller, tab_id: str) -> LiveTab:
        """The tab itself, for a socket that is about to drive it."""
        return self._access.tab(caller, tab_id)

    async def activate(self, caller: Caller, tab_id: str) -> None:
        """Bring it to the front of its window. Nobody who holds it is disturbed by that."""
        tab = self._access.usable_tab(caller, tab_id, None, None)
        try:
            await page_of(tab).call("Page.bringToFront")
        except (BrowserGone, CdpFailure, TabGone) as error:
            raise BrowserCrashed(f"The page is gone: {error}", tabId=tab_id) from error

    # --- Opening and closing --------------------------------------------------------------------------------

    async def open(self, caller: Caller, session_id: str, request: wire.OpenTab) -> LiveTab:
        """One tab more in that session: blank, or one that the browser's user has open."""
        if request.url is not None and request.borrow is not None:
            raise InvalidRequest("url and borrow exclude each other.", field="borrow")
        live = await self._access.owned(caller, session_id)
        fence = live.row.fence
        live.heard(self._clock())
        self._check_count(live)
        await self._admissions[live.row.pool].claim_tab(live.claim)
        making = asyncio.ensure_future(self._make(live, request, fence))
        try:
            tab = await asyncio.shield(making)
        except asyncio.CancelledError:
            self._spawn(self._close_unheard(making, fence))
            raise
        live.seen_at = self._clock()
        self._note(caller, "open_tab", tab, tab.row.provenance)
        return tab

    async def _make(self, live: LiveSession, request: wire.OpenTab, fence: int) -> LiveTab:
        """From room for a tab to the tab. Not to be cut off half-way: a write under way cannot be taken back."""
        try:
            async with live.mutex:
                self._require_active(live)
                lease.check_fence(live.row, fence)
                return await self._open_held(live, request)
        except BaseException as error:
            self._admissions[live.row.pool].drop_tabs(live.claim)
            if isinstance(error, BrowserGone | CdpFailure | TabGone):
                raise BrowserCrashed(f"The browser failed while the tab was opened: {error}") from error
            raise

    async def _close_unheard(self, making: asyncio.Future[LiveTab], fence: int) -> None:
        """Whoever wanted the tab has left before it was there."""
        await asyncio.wait([making])
        if making.exception() is None:
            with contextlib.suppress(TabherdError, BrowserGone):
                # Ended with its session, or somebody else's by now, or going down with its browser: then it is seen to
                # there.
                await self._close(making.result(), fence)

    async def _open_held(self, live: LiveSession, request: wire.OpenTab) -> LiveTab:
        browser = live.require_browser()
        if request.borrow is not None:
            page = await self._find_borrowed(live, browser, request.borrow)
            port = await browser.attach_tab(page.target_id)
            return await self._take_in(live, browser, port, "borrowed", page)
        port = await browser.new_tab(live.row.context_id)
        if live.row.viewport:
            await port.set_viewport(viewport_of(live.row))
        return await self._take_in(live, browser, port, "created")

    async def close(self, tab: LiveTab) -> None:
        """End the tab. For the command that holds its gate; others who wait for the tab are turned away."""
        await to_the_end(self._close(tab, tab.session.row.fence), self._spawn)

    async def _close(self, tab: LiveTab, fence: int) -> None:
        live = tab.session
        async with live.mutex:
            if self._registry.tab(tab.row.id) is not tab:
                raise LeaseLost("The session has ended.", sessionId=live.row.id)
            lease.check_fence(live.row, fence)
            browser = live.browser
            if browser is not None and tab.port is not None:
                away = browser.let_go if tab.row.provenance == "borrowed" else browser.close_tab
                try:
                    await away(tab.row.target_id)
                except CdpFailure as failure:
                    raise StateConflict(f"The page cannot be closed: {failure.message}", tabId=tab.row.id) from failure
            tab.row = changed(tab.row, state=advance(TAB, tab.row.state, TabEvent.CLOSE))
            await self._forget(tab, "closed")

    # --- What browsers tell ---------------------------------------------------------------------------------

    def page_opened(self, browser_id: str, page: Page) -> None:
        """A script opened a page: it belongs to the session that caused it."""
        opener = self._registry.on_target(page.opener_id)
        live = self._registry.in_context(browser_id, page.context_id) or (opener.session if opener else None)
        if live is None or live.browser is None or self._registry.on_target(page.target_id):
            return
        self._arriving[page.target_id] = page
        self._spawn(self._take_in_popup(live, page, opener))

    def page_moved(self, target_id: str, url: str, title: str) -> None:
        tab = self._registry.on_target(target_id)
        if (arriving := self._arriving.get(target_id)) is not None:
            self._arriving[target_id] = msgspec.structs.replace(arriving, url=url, title=title)
        if tab is not None:
            tab.moved(url, title)
            self._checkpoints.touch(tab.session)

    def page_ended(self, target_id: str, how: PageEnd) -> None:
        self._arriving.pop(target_id, None)
        tab = self._registry.on_target(target_id)
        if tab is None:
            self._registry.ended_early(target_id, how)
            return
        # Also of a session that is being ended: that may fail, and then it goes on.
        if how is PageEnd.CRASHED:
            self._recovery.page_crashed(tab, target_id)
        elif tab.row.state in (TabState.READY, TabState.PAUSED):
            # By itself, or by somebody who drives it: nobody else's business, and no reason to open it again.
            self._spawn(self._page_closed(tab, target_id))

    async def _page_closed(self, tab: LiveTab, target_id: str) -> None:
        # A browser that is told to end closes its pages first: then the session is recovered with all of them.
        await asyncio.sleep(CLOSED_GRACE_S)
        async with tab.session.mutex:
            is_same_page = self._registry.tab(tab.row.id) is tab and tab.row.target_id == target_id
            if is_same_page and tab.session.browser is not None and tab.row.state in (TabState.READY, TabState.PAUSED):
                if tab.running is not None:
                    tab.running.cancel()
                tab.row = changed(tab.row, state=advance(TAB, tab.row.state, TabEvent.CLOSE))
                await self._forget(tab, "closed_by_page")

    async def _take_in_popup(self, live: LiveSession, page: Page, opener: LiveTab | None) -> None:
        admission = self._admissions[live.row.pool]
        try:
            self._check_count(live)
            await admission.claim_tab(live.claim)
        except Capacity as refusal:
            log.info("a popup is closed: there is no room for it", sessionId=live.row.id, reason=refusal.message)
            await self._close_unwanted(live, page.target_id)
            return
        tab: LiveTab | None = None
        async with live.mutex:
            browser = live.browser
            try:
                is_wanted = opener is None or opener.row.target_id == page.opener_id
                if not is_wanted:
                    # The page that opened it was replaced, to be rid of all that it had begun.
                    await self._close_unwanted(live, page.target_id, is_proven=True)
                elif self._registry.is_bound(live) and browser is not None and page.target_id in self._arriving:
                    port = await browser.attach_tab(page.target_id)
                    if live.row.viewport:
                        await port.set_viewport(viewport_of(live.row))
                    # It had no address yet when it was told of.
                    page = next((p for p in await browser.pages() if p.target_id == page.target_id), page)
                    if page.target_id in self._arriving:
                        self._arriving[page.target_id] = page
                    opener_id = opener.row.id if opener is not None else ""
                    # One that no page opened was made by a client that is connected over CDP.
                    provenance = "popup" if page.opener_id else "created"
                    tab = await self._take_in(live, browser, port, provenance, page, opener_id)
            except (BrowserGone, CdpFailure, TabGone, TabherdError) as error:
                log.info("a popup could not be taken in", sessionId=live.row.id, error=str(error))
                if page.opener_id and not self._registry.answers_dialogs(page.opener_id):
                    # A dialog that it opened before it could be attached, which nobody can answer, would hold up the
                    # page that opened it as well. Clients that are connected over CDP see to theirs.
                    await self._close_unwanted(live, page.target_id)
        if tab is None:
            self._arriving.pop(page.target_id, None)
            admission.drop_tabs(live.claim)
        elif (latest := self._arriving.pop(page.target_id, None)) is not None:
            # Where it went while it was written down was told to nobody.
            tab.moved(latest.url, latest.title)
        else:
            await self._page_closed(tab, page.target_id)

    async def _close_unwanted(self, live: LiveSession, target_id: str, *, is_proven: bool = False) -> None:
        """Unless nothing of it may go on, it is closed without harm to the page that opened it, which is in use."""
        self._arriving.pop(target_id, None)
        try:
            if live.browser is not None:
                await (live.browser.close_tab if is_proven else live.browser.dismiss_tab)(target_id)
        except (BrowserGone, CdpFailure) as error:
            log.info("an unwanted popup was gone already", error=str(error))

    # --- A person takes over --------------------------------------------------------------------------------

    async def hand_off(self, caller: Caller, tab_id: str, by: str | None) -> wire.TabView:
        """Pause agents on the tab: a person drives it. What runs finishes first."""
        tab = await self._mine(caller, tab_id)
        await to_the_end(self._pause(tab, by or caller.agent_id, tab.session.row.fence), self._spawn)
        self._note(caller, "handoff", tab, by or "")
        return tab_view(tab, self._clock())

    async def _pause(self, tab: LiveTab, by: str, fence: int) -> None:
        async with tab.session.mutex:
            self._still(tab)
            lease.check_fence(tab.session.row, fence)
            if tab.row.state is not TabState.READY:
                raise StateConflict(f"The tab is {tab.row.state}.", tabId=tab.row.id, state=str(tab.row.state))
            # Before it is written: nobody may be granted a page that counts as a person's already, and which a command
            # that ends meanwhile would leave to them as it is.
            tab.gate.pause(by, self._clock())
            try:
                await self._move(tab, TabEvent.PAUSE)
            except BaseException:
                if tab.clear_mark is not None and tab.gate.running is None:
                    # Such a command did end, and was not proven stopped.
                    self._recovery.quarantine(tab)
                tab.wake(tab.gate.resume(self._clock()))
                raise
        self._publish("tab.paused", tab, by=by)

    async def resume(self, caller: Caller, tab_id: str) -> wire.TabView:
        """Give the tab back to agents. The owner's silence counts from here."""
        tab = await self._mine(caller, tab_id)
        await to_the_end(self._unpause(tab, tab.session.row.fence), self._spawn)
        self._note(caller, "resume", tab)
        return tab_view(tab, self._clock())

    async def _unpause(self, tab: LiveTab, fence: int) -> None:
        async with tab.session.mutex:
            self._still(tab)
            lease.check_fence(tab.session.row, fence)
            if tab.row.state is not TabState.PAUSED:
                raise StateConflict("Nobody has taken the tab over.", tabId=tab.row.id, state=str(tab.row.state))
            await self._move(tab, TabEvent.RESUME)
            tab.session.heard(self._clock())
            if tab.clear_mark is not None:
                # A command was never proven stopped; its page could not be replaced under the person's hands.
                self._recovery.quarantine(tab)
            await self.before_resume(tab)
            tab.wake(tab.gate.resume(self._clock()))
        self._registry.tell(tab.session)
        self._publish("tab.resumed", tab)

    # --- Parts ----------------------------------------------------------------------------------------------

    async def _mine(self, caller: Caller, tab_id: str) -> LiveTab:
        tab = self._access.tab(caller, tab_id)
        await self._access.owned(caller, tab.session.row.id)
        return tab

    def _still(self, tab: LiveTab) -> None:
        if self._registry.tab(tab.row.id) is not tab:
            raise TabNotFound("The tab is closed.", tabId=tab.row.id)

    def _require_active(self, live: LiveSession) -> None:
        if not self._registry.is_bound(live):
            raise LeaseLost("The session has ended.", sessionId=live.row.id)
        if live.browser is None:
            raise BrowserCrashed("The session's browser died; it is being recovered.", sessionId=live.row.id)

    def _check_count(self, live: LiveSession) -> None:
        # As many as it has room for, and not only those that are open: many may be on their way at once.
        if live.claim.tabs >= TABS_PER_SESSION_MAX:
            raise capacity_refusal("tab_cap", live.claim.tabs, TABS_PER_SESSION_MAX, None, None)

    async def _take_in(
        self,
        live: LiveSession,
        browser: BrowserPort,
        port: TabPort,
        provenance: str,
        page: Page | None = None,
        opener_id: str = "",
    ) -> LiveTab:
        """Write the tab down, then bind it. Under the session's mutex; a tab that cannot be recorded is closed."""
        row = Tab(
            id=self._ids.mint("tab"),
            session_id=live.row.id,
            node_id=self._node_id,
            browser_id=browser.row.id,
            state=advance(TAB, TabState.OPENING, TabEvent.OPENED),
            target_id=port.target_id,
            provenance=provenance,
            url="about:blank" if page is None else page.url,
            title="" if page is None else page.title,
            created_at=self._clock(),
            opener_tab_id=opener_id,
        )
        counter = tab_counter(live.row.pool, self._admissions[live.row.pool].store_caps)
        ops = (Add(counter.counter, 1, counter.cap), Require(Session, live.row.id, live.row.version), Insert(row))
        try:
            outcome = await self._record(row.id, ops)
            if not isinstance(outcome, Applied):
                raise capacity_refusal("tab_cap", outcome.value or 0, counter.cap or 0, None, None)
        except TabherdError:
            await (browser.let_go if provenance == "borrowed" else browser.close_tab)(port.target_id)
            raise
        stored = outcome.rows[-1]
        assert isinstance(stored, Tab)
        tab = self._leases.new_tab(live, stored, port)
        self._registry.bind_tab(tab)
        if live.browser is not browser:
            # It died while the tab was written down, which is rebuilt with the others.
            self._recovery.browser_lost(tab)
        self._publish("tab.opened", tab, provenance=provenance, openerTabId=opener_id or None)
        return tab

    async def _record(self, tab_id: str, ops: tuple[Op, ...]) -> Outcome:
        """Write a new tab down, and know whether it is: a row that nobody has in mind would be counted for ever."""
        try:
            return await self._store.apply(*ops)
        except StoreUnavailable as error:
            if not is_in_doubt(error):
                raise
            # Asked as a write is, because only what writes knows that nothing of an earlier one is still on its way.
            absent = Require(Tab, tab_id, 0)
            if isinstance(await patiently(lambda: self._store.apply(absent)), Applied):
                raise
            return Applied((await patiently(lambda: self._store.get(Tab, tab_id)),))

    async def _forget(self, tab: LiveTab, reason: str) -> None:
        """The page is gone: nobody finds the tab any more, and it is no longer counted."""
        live = tab.session
        self._registry.unbind_tab(tab, reason)
        tab.unmark()
        for ticket in tab.gate.close(self._clock()).waiting:
            waiter = tab.waiting.get(ticket.id)
            if waiter is not None and not waiter.done():
                waiter.set_exception(TabNotFound("The tab was closed.", tabId=tab.row.id))
        fewer = Add(tab_counter(live.row.pool, Caps()).counter, -1)
        outcome = await patiently(lambda: self._store.apply(Delete(Tab, tab.row.id, tab.row.version), fewer))
        assert isinstance(outcome, Applied), f"{tab.row.id} has one writer, this node ({outcome})"
        self._admissions[live.row.pool].drop_tabs(live.claim)
        self._publish("tab.closed", tab, reason=reason)

    async def _move(self, tab: LiveTab, event: TabEvent) -> None:
        """Change the tab's state, also on disk; back again when that fails and nothing else has happened."""
        before, after = tab.row.state, advance(TAB, tab.row.state, event)
        tab.row = changed(tab.row, state=after)
        try:
            outcome = await self._store.apply(Update(tab.row))
        except BaseException:
            if tab.row.state is after:
                tab.row = changed(tab.row, state=before)
            raise
        assert isinstance(outcome, Applied), f"{tab.row.id} has one writer, this node ({outcome})"
        row = outcome.rows[0]
        assert isinstance(row, Tab)
        tab.recorded(row)

    async def _find_borrowed(self, live: LiveSession, browser: BrowserPort, wanted: str) -> Page:
        """The one page of the browser's user that this names."""
        if self._settings.current.pools[live.row.pool].isolation != "shared":
            raise InvalidRequest("borrow: only pools that share a profile have tabs to borrow.", field="borrow")
        free = [
            page
            for page in await browser.pages()
            if not page.context_id and not self._registry.on_target(page.target_id)
        ]
        found = [page for page in free if wanted in page.url or wanted in page.title]
        if not found:
            raise TabNotFound(f"No open tab has '{wanted[:200]}' in its address or title.")
        if len(found) > 1:
            candidates = [{"url": page.url[:500], "title": page.title} for page in found[:CANDIDATES_MAX]]
            raise AmbiguousTarget(f"{len(found)} open tabs match '{wanted[:200]}'.", candidates=candidates)
        return found[0]

    def _note(self, caller: Caller, verb: str, tab: LiveTab, detail: str = "") -> None:
        self._auditor.note(
            agent_id=caller.agent_id, controller_id=caller.controller_id, verb=verb, tab=tab, detail=detail
        )

    def _publish(self, event: str, tab: LiveTab, **fields: Any) -> None:
        session = tab.session.row
        self._events.publish(event, tabId=tab.row.id, sessionId=session.id, agentId=session.agent_id, **fields)


async def _nothing(_: LiveTab) -> None:
    """Nobody drove it from here."""
