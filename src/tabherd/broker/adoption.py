"""What a starting node does about the past: take over what still lives, recover what does not.

Chromium runs on when the broker is killed, with its pages and cookies. Each browser that is written down and still
answers is adopted; each of its sessions whose context is still there is bound again under the same ids and fence, and
so is each pooled tab. A page that is gone is opened again; a page that the session's own pages opened meanwhile belongs
to it. A context that no row knows (the broker died between making and recording it) is disposed of. A session whose
browser is gone is recovered in another one while its deadline lives; one that was being opened or ended is settled.
Browsers that are gone are reaped with their profiles, and so are those that were started but never written down.

What was per connection is gone with the old one: interception, scripts added for new documents; the size of pages and
where their downloads go, which the broker had set, is set again. A page that was at work on a command when the broker
died is replaced, because the command's outcome is unknown and the next one must not run on top of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

import structlog

from ..browsers.pool import Pool
from ..browsers.port import BrowserGone, BrowserPort, CdpFailure, Launcher, Page, PageListener, TabGone, TabPort
from ..browsers.slot import Slot
from ..core.lifecycle import LEASE, BrowserState, LeaseState, TabState, is_terminal
from ..core.model import Browser, Session, Tab, changed
from ..store.base import Delete, Store
from .admission import Admission
from .checkpoints import Checkpoints
from .events import EventBus
from .files import Files
from .leases import Leases, viewport_of
from .marks import Marks
from .patience import patiently
from .pooling import Pooling
from .recovery import Recovery
from .registry import LiveSession
from .stock import PooledTab

log = structlog.get_logger("adoption")

# More than one node can hold.
SESSIONS_MAX = 100_000
# Why a session had to be taken up by the next life of its node.
RESTARTED = "broker_restarted"

Found = dict[str, list[BrowserPort]]


class Adoption:
    """The first thing a node does."""

    def __init__(
        self,
        *,
        node_id: str,
        store: Store,
        launcher: Launcher,
        pools: Mapping[str, Pool],
        admissions: Mapping[str, Admission],
        leases: Leases,
        pooling: Pooling,
        recovery: Recovery,
        checkpoints: Checkpoints,
        files: Files,
        marks: Marks,
        events: EventBus,
        clock: Callable[[], int],
        listen: Callable[[Browser], PageListener],
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._launcher = launcher
        self._pools = pools
        self._admissions = admissions
        self._leases = leases
        self._pooling = pooling
        self._recovery = recovery
        self._checkpoints = checkpoints
        self._files = files
        self._marks = marks
        self._events = events
        self._clock = clock
        # Whom that browser tells about its pages.
        self._listen = listen

    async def run(self) -> None:
        """Start every pool with what is left of its browsers, and take up every session of an earlier life."""
        at_work = self._marks.left()
        found = await self._find_browsers()
        sessions = await self._open_sessions()
        await self._files.sweep({row.id for row in sessions})
        for name, pool in self._pools.items():
            for slot in pool.start(found.get(name, [])):
                await self._resume(slot, [row for row in sessions if row.browser_id == slot.row.id], at_work)
                slot.sorted_out()
        adopted = {browser.row.id for browsers in found.values() for browser in browsers}
        for row in sessions:
            if row.browser_id not in adopted:
                await self.take_up(row, RESTARTED)
        for mark in at_work.values():
            # Of pages that are gone, or will be.
            self._marks.clear(mark)
        for pool in self._pools.values():
            pool.keep()

    async def _find_browsers(self) -> Found:
        """The browsers that still answer, by pool; the others are ended and forgotten."""
        found: Found = {}
        for row in await patiently(lambda: self._store.select(Browser, {"node_id": self._node_id})):
            is_wanted = row.pool in self._pools and row.state in (BrowserState.READY, BrowserState.DRAINING)
            browser = await self._launcher.adopt(row) if is_wanted else None
            if browser is not None:
                log.info("browser adopted", browserId=row.id, pool=row.pool, pid=row.pid)
                found.setdefault(row.pool, []).append(browser)
            else:
                await self._launcher.reap(row)
                forgotten = Delete(Browser, row.id, row.version)
                await patiently(partial(self._store.apply, forgotten))
        known = {browser.row.id for browsers in found.values() for browser in browsers}
        await self._launcher.reap_strays(self._node_id, known)
        return found

    async def _open_sessions(self) -> list[Session]:
        rows: list[Session] = []
        for state in (state for state in LEASE if not is_terminal(LEASE, state)):
            where = {"node_id": self._node_id, "state": str(state)}
            rows += await patiently(partial(self._store.select, Session, where, limit=SESSIONS_MAX))
        return rows

    async def _resume(self, slot: Slot, sessions: list[Session], at_work: dict[str, int]) -> None:
        """Bind again what is whole, recover or settle what is not, dispose of what nobody knows."""
        browser = slot.browser
        assert browser is not None
        bound: set[str] = set()
        try:
            await browser.watch_pages(self._listen(browser.row))
            context_ids, pages = set(await browser.context_ids()), await browser.pages()
            # All at once: a page that does not answer is given up after seconds, and must not delay the others.
            attached = await asyncio.gather(*(self._attach(browser, row) for row in sessions))
            for row, tabs in zip(sessions, attached, strict=True):
                has_context = not row.context_id or row.context_id in context_ids
                bound.add(row.id)
                if row.state is LeaseState.POOLED and has_context and tabs and tabs[0][1] is not None:
                    self._pooling.adopt(PooledTab(row, tabs[0][0], browser, tabs[0][1], slot))
                elif row.state is LeaseState.ACTIVE and has_context:
                    self._bind(row, browser, slot, tabs, pages, at_work)
                else:
                    await self._dispose(browser, row)
                    await self.take_up(row, RESTARTED)
                    continue
                context_ids.discard(row.context_id)
            for stray in context_ids:
                await browser.dispose_context(stray)
        except (BrowserGone, CdpFailure) as error:
            # It died under our eyes: its slot notices by itself and recovers what was bound; the rest is done here.
            log.warning("adopted browser failed", browserId=slot.row.id, error=str(error))
            for row in sessions:
                if row.id not in bound:
                    await self.take_up(row, RESTARTED)

    async def _attach(self, browser: BrowserPort, row: Session) -> list[tuple[Tab, TabPort | None]]:
        """The tabs of a session that was in use or pooled, each with its page if that is still there."""
        if row.state not in (LeaseState.ACTIVE, LeaseState.POOLED):
            return []
        if row.state is LeaseState.ACTIVE:
            await self._checkpoints.load(row.id)
            await self._files.load(row)
        tabs: list[tuple[Tab, TabPort | None]] = []
        for tab in await self._tabs_of(row):
            port: TabPort | None = None
            if tab.state is not TabState.DEAD:
                try:
                    port = await browser.attach_tab(tab.target_id)
                    if row.viewport:
                        await port.set_viewport(viewport_of(row))
                except (CdpFailure, TabGone) as error:
                    log.info("a page is gone", tabId=tab.id, error=str(error))
            tabs.append((tab, port))
        return tabs

    def _bind(
        self,
        row: Session,
        browser: BrowserPort,
        slot: Slot,
        tabs: list[tuple[Tab, TabPort | None]],
        pages: list[Page],
        at_work: dict[str, int],
    ) -> None:
        claim = self._admissions[row.pool].adopt(row.id, row.agent_id, row.key, slot, len(tabs))
        live = self._leases.bind(row, browser, claim, [(_settled(tab), port) for tab, port in tabs])
        self._note_silence(live)
        self._files.allow(row, browser, row.context_id)
        known = {tab.target_id for tab, _ in tabs}
        self._pause_again(live)
        for tab in list(live.tabs.values()):
            if tab.port is None:
                self._recovery.page_crashed(tab, tab.row.target_id)
            elif (mark := at_work.pop(tab.row.id, None)) is not None:
                tab.clear_mark = partial(self._marks.clear, mark)
                self._recovery.quarantine(tab)
        for page in pages:
            if page.target_id not in known and page.context_id == row.context_id and (row.context_id or page.opener_id):
                self._listen(browser.row).page_opened(page)
        log.info("session adopted", sessionId=row.id, agentId=row.agent_id)
        self._events.publish(
            "session_recovered",
            sessionId=row.id,
            agentId=row.agent_id,
            pool=row.pool,
            reason=RESTARTED,
            result="existing-tab",
        )

    async def take_up(self, row: Session, reason: str) -> None:
        """Bring back a session that is in no browser, or settle it if it was not in use or its time is over."""
        is_held = row.state in (LeaseState.ACTIVE, LeaseState.RECOVERING)
        if not is_held or row.pool not in self._pools:
            await self.settle(row, reason)
            return
        if self._clock() >= row.deadline_at:
            await self.settle(row, "deadline")
            return
        await self._checkpoints.load(row.id)
        await self._files.load(row)
        tabs = await self._tabs_of(row)
        claim = self._admissions[row.pool].adopt(row.id, row.agent_id, row.key, None, len(tabs))
        live = self._leases.bind(row, None, claim, [(_settled(tab), None) for tab in tabs])
        self._note_silence(live)
        self._pause_again(live)
        self._recovery.resume(live, reason)

    async def settle(self, row: Session, reason: str) -> None:
        """End a session that is in no browser."""
        await patiently(lambda: self._leases.settle_leftover(row, reason))

    def _pause_again(self, live: LiveSession) -> None:
        """What a person has, a person keeps."""
        for tab in live.tabs.values():
            if tab.row.state is TabState.PAUSED:
                tab.gate.pause(live.row.agent_id, self._clock())

    def _note_silence(self, live: LiveSession) -> None:
        """While there was no broker, nobody could show that they live: silence counts from now."""
        live.seen_at = self._clock()
        if live.row.is_connection_bound:
            live.last_connection_closed_at = self._clock()

    async def _tabs_of(self, row: Session) -> list[Tab]:
        return await patiently(lambda: self._store.select(Tab, {"session_id": row.id}))

    async def _dispose(self, browser: BrowserPort, row: Session) -> None:
        """What is left in the browser of a session that is not bound there."""
        if row.context_id:
            await browser.dispose_context(row.context_id)
        else:
            for tab in await self._tabs_of(row):
                await (browser.let_go if tab.provenance == "borrowed" else browser.close_tab)(tab.target_id)


def _settled(tab: Tab) -> Tab:
    """The row without the moment in which it was written: what was under way then is decided anew."""
    return tab if tab.state in (TabState.PAUSED, TabState.DEAD) else changed(tab, state=TabState.READY)
