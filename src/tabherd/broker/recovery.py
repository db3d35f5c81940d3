"""Puts a page behind a tab again when there is none, or none that can be trusted.

Three causes: a command may still be at work in the page (it timed out, or its caller left), the page crashed, or the
whole browser died. What is kept: the tab's id, its place at the gate and the session's fence stay; the generation
grows by one for each page, however many callers saw the old one die; nothing is granted on the tab until the new page
is there and written down; nobody else's page is ever taken for it.

After a timeout the new page is blank, because the old address may be what made the command hang. After a death the
page is opened again at its address, with the session's cookies and localStorage; in the same context if that lives,
else in a fresh one. A page or session that keeps dying is not rebuilt for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import structlog

from .. import wire
from ..actions.progress import Progress
from ..browsers.pages import URL_MAX_BYTES
from ..browsers.port import BrowserGone, BrowserPort, CdpFailure, TabGone, TabPort
from ..browsers.slot import Slot
from ..core.lifecycle import LEASE, TAB, LeaseEvent, LeaseState, TabEvent, TabState, advance
from ..core.model import Session, Tab, changed
from ..errors import BrowserCrashed, TabherdError
from ..store.base import Applied, Store, Update
from .admission import Admission
from .checkpoints import Checkpoints
from .events import EventBus
from .files import Files
from .leases import Leases, Perform, viewport_of
from .patience import patiently
from .registry import LiveSession, LiveTab, Registry

log = structlog.get_logger("recovery")

# How long a page that is opened again may take to load before its tab is given back as it is.
LOAD_LIMIT_S = 5.0
# How long the command that was at work when its page died may take to notice.
NOTICE_LIMIT_S = 1.0
# How long a page that is kept after a timeout may take to stop.
CALM_LIMIT_S = 1.0
# So many deaths within the window, and a page is left blank, or a session given up.
DEATHS_MAX = 3
DEATHS_WINDOW_MS = 60_000
# How often a page that is to replace another is tried before the session is given up.
NEW_PAGE_ATTEMPTS_MAX = 3
# Sessions that are rebuilt at once: their pages load side by side, and a machine has only so many cores.
REBUILDS_MAX = 8


class Recovery:
    """The rebuilding of pages and sessions on this node."""

    def __init__(
        self,
        *,
        store: Store,
        admissions: Mapping[str, Admission],
        registry: Registry,
        leases: Leases,
        checkpoints: Checkpoints,
        files: Files,
        events: EventBus,
        clock: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        perform: Perform,
    ) -> None:
        self._store = store
        self._admissions = admissions
        self._registry = registry
        self._leases = leases
        self._checkpoints = checkpoints
        self._files = files
        self._events = events
        self._clock = clock
        self._spawn = spawn
        self._perform = perform
        # When pages of a tab, or browsers of a session, died lately; by id.
        self._deaths: dict[str, deque[int]] = {}
        self._rebuilds = asyncio.Semaphore(REBUILDS_MAX)

    # --- Causes ---------------------------------------------------------------------------------------------

    def quarantine(self, tab: LiveTab, *, is_kept: bool = False, since: int | None = None) -> None:
        """Let nobody on the tab until its page has been replaced: a command may still be at work in it.

        Kept: the page stays, told to stop what it is doing; its caller wanted that, whatever may go on in it. With
        `since`, when the command began, the windows that the page opened after that go with it.
        """
        if self._registry.tab(tab.row.id) is not tab:
            tab.unmark()
            return  # The session has ended; its context takes the page with it.
        if tab.row.state is not TabState.READY:
            return  # It is being replaced already.
        tab.gate.quarantine(self._clock())
        tab.row = changed(tab.row, state=advance(TAB, tab.row.state, TabEvent.QUARANTINE))
        self._publish("tab.quarantined", tab)
        if is_kept:
            self._spawn(self._calm(tab, tab.row.target_id))
        else:
            self._spawn(self._replace(tab, tab.row.target_id, "about:blank", since))

    def page_crashed(self, tab: LiveTab, target_id: str) -> None:
        """The renderer of the tab's page died; the browser lives. Whoever notices may say so: one rebuild is made."""
        if tab.row.target_id != target_id or not self._is_up(tab):
            return  # Another page is behind the tab by now, or is on its way.
        self._go_down(tab)
        self._publish("tab.crashed", tab, url=tab.row.url)
        self._spawn(self._replace(tab, target_id, self._address_after_death(tab)))

    def browser_lost(self, tab: LiveTab) -> None:
        """A command noticed the death of its browser first: nobody is granted the tab until all know of it."""
        self._go_down(tab)

    def browser_died(self, live: LiveSession, reason: str) -> None:
        """Everything that the session had is gone. It keeps its owner, and gets another browser."""
        if live.browser is not None:
            live.browser = None
            self.resume(live, reason)

    def resume(self, live: LiveSession, reason: str) -> None:
        """Begin, or begin again, to recover a session that has no browser."""
        for tab in live.tabs.values():
            self._go_down(tab)
        self._files.browser_gone(live.row.id)
        self._spawn(self.recover(live, reason))

    # --- One page -------------------------------------------------------------------------------------------

    def _is_up(self, tab: LiveTab) -> bool:
        return tab.row.state in (TabState.READY, TabState.QUARANTINED, TabState.PAUSED)

    def _go_down(self, tab: LiveTab) -> None:
        """There is no page behind the tab. Those who wait were not sent to it; the one at work finds out by itself."""
        tab.gate.rebuild(self._clock())
        if self._is_up(tab):
            tab.row = changed(tab.row, state=advance(TAB, tab.row.state, TabEvent.DIE))
        for waiter in tab.waiting.values():
            if not waiter.done():
                waiter.set_exception(BrowserCrashed("The page died before the command was sent.", tabId=tab.row.id))

    def _address_after_death(self, tab: LiveTab) -> str:
        if self._keeps_dying(tab.row.id):
            log.warning("a page keeps crashing and is left blank", tabId=tab.row.id, url=tab.row.url)
            return "about:blank"
        return tab.row.url

    async def _replace(self, tab: LiveTab, target_id: str, url: str, since: int | None = None) -> None:
        """Another page in the same context, and the old one gone for sure."""
        live = tab.session
        async with live.mutex:
            if self._registry.tab(tab.row.id) is not tab or live.browser is None or tab.row.target_id != target_id:
                return  # The session has ended, or lost its browser: then all of it is rebuilt.
            browser, is_dead = live.browser, tab.row.state is TabState.DEAD
            await self._settle_running(tab)
            try:
                if is_dead and not live.row.allow_navigate:
                    await browser.close_tab(target_id)
                    await self._leave_dead(tab)
                    return
                port = await self._new_page(browser, live.row.context_id)
                await browser.close_tab(target_id)
                for popup in _offspring(tab, since):
                    await browser.close_tab(popup.row.target_id)
                if not is_dead and live.row.context_id:
                    # What the command may have left outside its page. A shared profile has those of others as well.
                    await browser.end_workers(live.row.context_id, port.target_id)
                # The command is proven stopped, whether or not this server lives to write the new page down.
                tab.unmark()
                port, page = await self._open_again(live, browser, live.row.context_id, port, url)
            except BrowserGone as error:
                # All of the session is going to be rebuilt as soon as that is known.
                log.info("the browser died under a rebuild", tabId=tab.row.id, error=str(error))
                return
            except (CdpFailure, TabGone) as error:
                log.warning("page could not be replaced", tabId=tab.row.id, error=str(error))
                await patiently(lambda: self._leases.end_held(live, "tab_lost"))
                return
            if live.browser is not browser:
                return
            await self._record(live, [(tab, port, page)], live.row)
            if live.browser is not browser:
                # It died while the row was written: the page that was to be is gone as well.
                self._go_down(tab)
                return
        self._come_up(tab)
        self._publish("tab.rebuilt", tab, generation=tab.row.generation, url=tab.row.url, result="new-tab")

    async def _new_page(self, browser: BrowserPort, context_id: str) -> TabPort:
        """A blank page in the session's context. A machine that is busy may not manage that at once."""
        for _ in range(NEW_PAGE_ATTEMPTS_MAX - 1):
            try:
                return await browser.new_tab(context_id)
            except (CdpFailure, TabGone) as error:
                log.info("a new page did not come up and is tried again", contextId=context_id, error=str(error))
        return await browser.new_tab(context_id)

    async def _calm(self, tab: LiveTab, target_id: str) -> None:
        """Stop the page as far as that goes without replacing it, and let others on it again."""
        try:
            if tab.port is not None:
                async with asyncio.timeout(CALM_LIMIT_S):
                    await tab.port.calm()
        except (TimeoutError, BrowserGone, TabGone, CdpFailure) as error:
            log.info("a page could not be calmed", tabId=tab.row.id, error=str(error))
        if tab.row.target_id == target_id and tab.row.state is TabState.QUARANTINED:
            tab.row = changed(tab.row, state=advance(TAB, tab.row.state, TabEvent.PROVE))
            tab.is_tainted = True
            self._come_up(tab)

    async def _leave_dead(self, tab: LiveTab) -> None:
        """The session does not want its page to be opened again: its tab says so from now on."""
        outcome = await patiently(lambda: self._store.apply(Update(tab.row)))
        assert isinstance(outcome, Applied), "a tab row has one writer, the node that hosts it"
        row = outcome.rows[0]
        assert isinstance(row, Tab)
        self._registry.put_page(tab, row, None)
        self._come_up(tab)
        self._publish("tab.dead", tab, url=tab.row.url)

    async def _settle_running(self, tab: LiveTab) -> None:
        """The command that was at work when the page died hears of it from the page; one that does not is told."""
        running = tab.running
        if running is not None and not running.done():
            await asyncio.wait([running], timeout=NOTICE_LIMIT_S)
            running.cancel()

    def _come_up(self, tab: LiveTab) -> None:
        tab.unmark()
        tab.wake(tab.gate.lift(self._clock()))
        self._checkpoints.touch(tab.session)

    async def _open_again(
        self, live: LiveSession, browser: BrowserPort, context_id: str, port: TabPort, url: str
    ) -> tuple[TabPort, dict[str, str]]:
        """The page at its old address; one that fails or is slow to load stays as far as it came.

        A page that dies of its address is not the end of its session: it is left for a blank one.
        """
        if live.row.viewport:
            await port.set_viewport(viewport_of(live.row))
        if url == "about:blank" or len(url.encode()) >= URL_MAX_BYTES:
            # An address as long as that may have been cut, and would lead somewhere else.
            return port, {"url": "about:blank", "title": ""}
        try:
            async with asyncio.timeout(LOAD_LIMIT_S):
                page = await self._perform(port, wire.Navigate(url=url), Progress())
        except (TimeoutError, TabherdError) as error:
            log.info("a page was not opened again in full", url=url[:200], error=str(error))
            return port, {"url": url, "title": ""}
        except TabGone as error:
            log.warning("a page dies of its address and is left blank", url=url[:200], error=str(error))
            blank = await self._new_page(browser, context_id)
            await browser.close_tab(port.target_id)
            return await self._open_again(live, browser, context_id, blank, "about:blank")
        return port, {"url": page["url"], "title": page["title"] or ""}

    # --- A whole session ------------------------------------------------------------------------------------

    async def recover(self, live: LiveSession, reason: str) -> None:
        """From a dead browser to another one. Ends with the session active again, or over."""
        if not await self._mark_recovering(live, reason):
            return
        while not live.ended.is_set():
            slot = await self._find_seat(live)
            if slot is None:
                return
            async with self._rebuilds, live.mutex:
                if not self._registry.is_bound(live) or await self._rebuild(live, slot, reason):
                    return
                if self._keeps_dying(live.row.id):
                    await self._leases.lose_held(live, "recovery_failed")
                    return

    async def _mark_recovering(self, live: LiveSession, reason: str) -> bool:
        async with live.mutex:
            if not self._registry.is_bound(live):
                return False
            for tab in live.tabs.values():
                await self._settle_running(tab)
                tab.unmark()
            if self._keeps_dying(live.row.id):
                await self._leases.lose_held(live, "keeps_crashing")
                return False
            if live.row.state is LeaseState.ACTIVE:
                broken = changed(live.row, state=advance(LEASE, live.row.state, LeaseEvent.BREAK))
                live.row = await self._update(broken)
            live.claim.state = live.row.state
        self._publish_session("session.recovering", live, reason=reason)
        return True

    async def _find_seat(self, live: LiveSession) -> Slot | None:
        """A seat in a live browser; None when the session ended while it waited for one."""
        finding = asyncio.ensure_future(self._admissions[live.row.pool].reseat(live.claim))
        over = asyncio.ensure_future(live.ended.wait())
        try:
            await asyncio.wait([finding, over], return_when=asyncio.FIRST_COMPLETED)
            return finding.result() if finding.done() else None
        finally:
            over.cancel()
            finding.cancel()

    async def _rebuild(self, live: LiveSession, slot: Slot, reason: str) -> bool:
        """Everything that the session had, in the browser of this slot; False when that died, too."""
        browser = slot.browser
        if browser is None:
            return False
        context_id, made = "", []
        try:
            seat = await slot.take()
            context_id, made = seat.context_id, [seat.tab]
            self._files.allow(live.row, browser, context_id)
            await self._checkpoints.restore(live, browser, context_id)
            pages = await self._reopen(live, browser, context_id, made)
        except (BrowserGone, CdpFailure, TabGone) as error:
            log.warning("a session could not be rebuilt", sessionId=live.row.id, error=str(error))
            if isinstance(error, BrowserGone) and slot.browser is browser:
                # The slot hears of it in a moment; until then the same dead browser must not be tried again and again.
                slot.doubt()
            await _dispose(browser, context_id, made)
            if slot.browser is browser:
                slot.unseat(live.row.id)
            return False
        recovered = changed(
            live.row,
            state=advance(LEASE, live.row.state, LeaseEvent.RECOVER),
            browser_id=browser.row.id,
            context_id=context_id,
            heartbeat_at=max(live.row.heartbeat_at, live.seen_at, live.worked_at),
        )
        await self._record(live, pages, recovered)
        live.browser, live.claim.state = browser, live.row.state
        if slot.browser is not browser:
            # It died while the rows were written: whoever looks after its sessions could not find this one yet.
            self.browser_died(live, "browser_crashed")
            return True
        for tab in live.tabs.values():
            self._come_up(tab)
        self._publish_session("session_recovered", live, reason=reason, result="new-tab")
        return True

    async def _reopen(
        self, live: LiveSession, browser: BrowserPort, context_id: str, made: list[TabPort]
    ) -> list[tuple[LiveTab, TabPort | None, dict[str, str]]]:
        """A page for each tab, loading side by side; none for what may not be opened again. `made` has the first."""
        tabs = list(live.tabs.values())
        wanted = [tab for tab in tabs if live.row.allow_navigate and tab.row.provenance != "borrowed"]
        while len(made) < len(wanted):
            made.append(await browser.new_tab(context_id))
        if not wanted:
            await browser.close_tab(made.pop().target_id)
        pairs = zip(wanted, made, strict=True)
        again = [self._open_again(live, browser, context_id, port, tab.row.url) for tab, port in pairs]
        opened = dict(zip([tab.row.id for tab in wanted], await asyncio.gather(*again), strict=True))
        return [(tab, *opened.get(tab.row.id, (None, {"url": tab.row.url, "title": tab.row.title}))) for tab in tabs]

    # --- Records --------------------------------------------------------------------------------------------

    async def _record(
        self, live: LiveSession, pages: list[tuple[LiveTab, TabPort | None, dict[str, str]]], session: Session
    ) -> None:
        """Write down what is behind the tabs now, before anybody can use it. Under the session's mutex."""
        rows = [self._rebuilt_row(tab, port, page, session.browser_id) for tab, port, page in pages]
        is_changed = session is not live.row
        ops = (*(Update(row) for row in rows), *((Update(session),) if is_changed else ()))
        if not ops:
            return
        outcome = await patiently(lambda: self._store.apply(*ops))
        assert isinstance(outcome, Applied), f"{live.row.id} has one writer, this node ({outcome})"
        for (tab, port, _), row in zip(pages, outcome.rows, strict=False):
            assert isinstance(row, Tab)
            self._registry.put_page(tab, row, port)
        if is_changed:
            stored = outcome.rows[-1]
            assert isinstance(stored, Session)
            live.row = stored

    def _rebuilt_row(self, tab: LiveTab, port: TabPort | None, page: Mapping[str, str], browser_id: str) -> Tab:
        if port is None:
            return changed(tab.row, browser_id=browser_id)
        state = advance(TAB, advance(TAB, tab.row.state, TabEvent.REBUILD), TabEvent.REBUILT)
        if tab.gate.describe(self._clock()).handoff is not None:
            # The person who had the page has the new one as well.
            state = advance(TAB, state, TabEvent.PAUSE)
        return changed(
            tab.row,
            state=state,
            browser_id=browser_id,
            target_id=port.target_id,
            generation=tab.row.generation + 1,
            url=page["url"],
            title=page["title"],
        )

    async def _update(self, row: Session) -> Session:
        outcome = await patiently(lambda: self._store.apply(Update(row)))
        assert isinstance(outcome, Applied), f"{row.id} has one writer, this node ({outcome})"
        stored = outcome.rows[0]
        assert isinstance(stored, Session)
        return stored

    def _keeps_dying(self, id: str) -> bool:
        """Count a death; whether there were too many lately."""
        now = self._clock()
        deaths = self._deaths.setdefault(id, deque(maxlen=DEATHS_MAX + 1))
        deaths.append(now)
        for known in [known for known, times in self._deaths.items() if now - times[-1] > DEATHS_WINDOW_MS]:
            del self._deaths[known]
        return sum(now - at <= DEATHS_WINDOW_MS for at in deaths) > DEATHS_MAX

    def _publish(self, event: str, tab: LiveTab, **fields: Any) -> None:
        session = tab.session.row
        self._events.publish(event, tabId=tab.row.id, sessionId=session.id, agentId=session.agent_id, **fields)

    def _publish_session(self, event: str, live: LiveSession, **fields: Any) -> None:
        row = live.row
        self._events.publish(event, sessionId=row.id, agentId=row.agent_id, pool=row.pool, **fields)


def _offspring(tab: LiveTab, since: int | None) -> list[LiveTab]:
    """The windows that its page, or one of theirs, opened since then."""
    if since is None:
        return []
    found: list[LiveTab] = []
    openers = {tab.row.id}
    for other in tab.session.tabs.values():
        # In the order in which they came, so an opener is before those that it opened.
        if other.row.opener_tab_id in openers and other.row.created_at >= since:
            openers.add(other.row.id)
            found.append(other)
    return found


async def _dispose(browser: BrowserPort, context_id: str, made: list[TabPort]) -> None:
    """Leave nothing of an attempt that failed."""
    try:
        if context_id:
            await browser.dispose_context(context_id)
        else:
            for port in made:
                await browser.close_tab(port.target_id)
    except (BrowserGone, CdpFailure) as error:
        log.info("nothing is left of a failed attempt", contextId=context_id, error=str(error))
