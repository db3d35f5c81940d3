"""What a starting node does about the past: take over what still lives, settle what does not.

Chromium runs on when the broker is killed, with its pages and cookies. Each browser that is written down and still
answers is adopted; each of its sessions whose context and pages are still there is bound again under the same ids
and fence. A context that no row knows (the broker died between making and recording it) is disposed of; a row whose
context is gone is settled: its session is lost, with the reason. Browsers that are gone are reaped with their
profiles, and so are those that were started but never written down.

What was per connection is gone with the old one: emulation, interception, scripts added for new documents. A page
that was at work on a command when the broker died is replaced, because the command's outcome is unknown and the next
one must not run on top of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping
from functools import partial

import structlog

from ..browsers.pool import Pool
from ..browsers.port import BrowserGone, BrowserPort, CdpFailure, Launcher, TabGone, TabPort
from ..browsers.slot import Slot
from ..core.lifecycle import LEASE, BrowserState, LeaseState, is_terminal
from ..core.model import Browser, Session, Tab
from ..store.base import Delete, Store
from .admission import Admission
from .commands import Commands
from .leases import Leases
from .marks import Marks
from .patience import patiently

log = structlog.get_logger("adoption")

# More than one node can hold.
SESSIONS_MAX = 100_000

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
        commands: Commands,
        marks: Marks,
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._launcher = launcher
        self._pools = pools
        self._admissions = admissions
        self._leases = leases
        self._commands = commands
        self._marks = marks

    async def run(self) -> None:
        """Start every pool with what is left of its browsers, and settle every session of an earlier life."""
        at_work = self._marks.left()
        found = await self._find_browsers()
        sessions = await self._open_sessions()
        for name, pool in self._pools.items():
            for slot in pool.start(found.get(name, [])):
                await self._resume(slot, [row for row in sessions if row.browser_id == slot.row.id], at_work)
                slot.sorted_out()
        adopted = {browser.row.id for browsers in found.values() for browser in browsers}
        for row in sessions:
            if row.browser_id not in adopted:
                await self._settle(row)
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

    async def _resume(self, slot: Slot, sessions: list[Session], at_work: Container[str]) -> None:
        """Bind again what is whole, settle what is not, dispose of what nobody knows."""
        browser = slot.browser
        assert browser is not None
        try:
            context_ids = set(await browser.context_ids())
            # All at once: a page that does not answer is given up after seconds, and must not delay the others.
            attached = await asyncio.gather(*(self._ports(browser, row) for row in sessions))
            for row, ports in zip(sessions, attached, strict=True):
                context_ids.discard(row.context_id)
                if ports is None:
                    await self._settle(row)
                    if row.context_id:
                        await browser.dispose_context(row.context_id)
                    continue
                claim = self._admissions[row.pool].adopt(row.id, row.agent_id, row.key, slot)
                live = self._leases.bind(row, browser, claim, ports)
                for tab in live.tabs.values():
                    if tab.row.id in at_work:
                        self._commands.quarantine(tab)
                log.info("session adopted", sessionId=row.id, agentId=row.agent_id)
            for stray in context_ids:
                await browser.dispose_context(stray)
        except (BrowserGone, CdpFailure) as error:
            # It died under our eyes: its slot notices by itself; what was not bound yet is settled here.
            log.warning("adopted browser failed", browserId=slot.row.id, error=str(error))
            for row in sessions:
                await self._settle(row)

    async def _ports(self, browser: BrowserPort, row: Session) -> list[tuple[Tab, TabPort]] | None:
        """The tabs of a session that was in use, attached; None when it was not, or a page of it is gone."""
        if row.state is not LeaseState.ACTIVE:
            return None
        ports: list[tuple[Tab, TabPort]] = []
        for tab in await patiently(lambda: self._store.select(Tab, {"session_id": row.id})):
            try:
                ports.append((tab, await browser.attach_tab(tab.target_id)))
            except (CdpFailure, TabGone) as error:
                log.info("a page is gone", tabId=tab.id, error=str(error))
                return None
        return ports or None

    async def _settle(self, row: Session) -> None:
        if row.state in (LeaseState.ACTIVE, LeaseState.RECOVERING):
            await patiently(lambda: self._leases.record_lost(row.id, "browser_gone"))
        else:
            await patiently(lambda: self._leases.settle_leftover(row, "broker_restarted"))
