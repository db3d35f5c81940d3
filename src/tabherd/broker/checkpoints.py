"""Keeps a copy of what each session has in its browser, good enough to continue in another one.

A checkpoint has the cookies of the session and the localStorage of the origins that its tabs show or have shown; the
address of each tab is in the tab's own row. It is taken soon after a command or a navigation and then at most every
five seconds, written only when something changed, and never by running code of the page. localStorage is read only
while no command is at work in the page, and once more before the broker itself navigates away from it. What is in
sessionStorage, IndexedDB, service workers and the scripts of a page is not kept.

Cookies answer even while a page spins. Whatever cannot be read in time is simply as old as the last time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from ..browsers.port import BrowserGone, BrowserPort, CdpFailure, TabGone
from ..core.model import Checkpoint, Row, Tab
from ..errors import StoreUnavailable
from ..store.base import Applied, Delete, Op, Put, Store, Update
from .patience import patiently
from .registry import LiveSession, LiveTab, Registry

log = structlog.get_logger("checkpoints")

# After a sign of change, how long to let the page settle; and how often a session is looked at in the long run.
SETTLE_S = 0.2
EVERY_S = 5.0
# So many may follow each other at once before that holds: logging in is a few quick pages after a long pause.
BURST = 3
READ_LIMIT_S = 2.0
# So often a page that did not answer is looked at again, at that pace, before it is left until something happens.
MISSES_MAX = 3
# Bounds of one checkpoint. Origins beyond it are forgotten, the one that was seen longest ago first.
ORIGINS_MAX = 16
COOKIES_MAX_CHARS = 4_000_000

Origins = dict[str, dict[str, str]]


class Draft:
    """What a session's next checkpoint would say, and what the last one said."""

    def __init__(self, stored: Checkpoint | None) -> None:
        # As it is on disk.
        self.stored = stored
        # Set while a later one may be there: the store did not answer the write of it.
        self.is_doubtful = False
        # localStorage by origin, the one that was seen last at the end.
        self.origins: Origins = json.loads(stored.origins) if stored is not None else {}
        # Set while the next one is planned.
        self.timer: asyncio.TimerHandle | None = None
        # When the next one would be due if they came evenly; how far it is ahead of now is the burst that was used up.
        self.due_at = 0.0
        # How often in a row a page did not answer.
        self.misses = 0

    def see(self, origin: str, items: dict[str, str]) -> None:
        self.origins.pop(origin, None)
        self.origins[origin] = items
        while len(self.origins) > ORIGINS_MAX:
            del self.origins[next(iter(self.origins))]


class Checkpoints:
    """The checkpoints of this node's sessions."""

    def __init__(
        self,
        *,
        node_id: str,
        store: Store,
        registry: Registry,
        keeps_cookies: Callable[[str], bool],
        clock: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._registry = registry
        # Whether cookies of that pool have to be kept here: not where the profile outlives its browser.
        self._keeps_cookies = keeps_cookies
        self._clock = clock
        self._spawn = spawn
        self._drafts: dict[str, Draft] = {}

    # --- Taking ---------------------------------------------------------------------------------------------

    def touch(self, live: LiveSession) -> None:
        """Something may have changed in the session: look at it soon."""
        draft = self._drafts.get(live.row.id)
        if draft is not None and draft.timer is None:
            loop = asyncio.get_running_loop()
            ahead_s = draft.due_at - loop.time() - (BURST - 1) * EVERY_S
            draft.timer = loop.call_later(max(SETTLE_S, ahead_s), self._due, live, draft)

    async def before_leaving(self, tab: LiveTab) -> None:
        """The page is about to go elsewhere: remember what it has in its localStorage."""
        browser = tab.session.browser
        if browser is not None and tab.port is not None and tab.row.url.startswith("http"):
            await self._see(browser, self._draft(tab.session), tab)

    async def take(self, live: LiveSession, *, is_wanted: bool = False) -> None:
        """Look at the session now, and write down what changed.

        If it `is_wanted`, and not just due, pages have as long to say what they have as the browser has for cookies: on
        a busy machine they need it, and whoever asks would otherwise be told what was so a while ago.
        """
        draft = self._draft(live)
        if draft.timer is not None:
            draft.timer.cancel()
            draft.timer = None
        browser = live.browser
        if browser is None:
            return
        now_s = asyncio.get_running_loop().time()
        draft.due_at = max(draft.due_at, now_s) + EVERY_S
        # All pages together: several may be stuck.
        patient_until_s = now_s + READ_LIMIT_S if is_wanted else now_s
        try:
            cookies = await self._read_cookies(browser, live)
            # Under a command a page is busy, and would answer only after it; its end is a reason to look again.
            idle = [tab for tab in live.tabs.values() if tab.port and tab.running is None and not tab.gate.is_held]
            are_seen = [await self._see(browser, draft, tab, patient_until_s) for tab in idle]
        except (BrowserGone, CdpFailure, TimeoutError) as error:
            log.info("a checkpoint could not be taken", sessionId=live.row.id, error=str(error))
            return
        async with live.mutex:
            if self._registry.is_bound(live) and live.browser is browser:
                await self._write(live, draft, cookies)
        draft.misses = 0 if all(are_seen) else draft.misses + 1
        if 0 < draft.misses <= MISSES_MAX:
            self.touch(live)

    # --- Giving ---------------------------------------------------------------------------------------------

    def begin(self, session_id: str) -> None:
        """A session that is new has none on disk, and need not be looked for there."""
        self._drafts[session_id] = Draft(None)

    async def load(self, session_id: str) -> None:
        """Read what an earlier life of this node wrote down."""
        if session_id not in self._drafts:
            stored = await patiently(lambda: self._store.get(Checkpoint, session_id))
            self._drafts[session_id] = Draft(stored)

    async def restore(self, live: LiveSession, browser: BrowserPort, context_id: str) -> None:
        """Put cookies and localStorage into a fresh context. What Chromium refuses is left out, the rest counts."""
        draft = self._draft(live)
        cookies = json.loads(draft.stored.cookies) if draft.stored is not None else []
        try:
            await browser.set_cookies(context_id, cookies)
        except CdpFailure as error:
            log.warning("cookies could not be restored", sessionId=live.row.id, error=str(error))
        try:
            await browser.put_local_storage(context_id, draft.origins)
        except CdpFailure as error:
            log.warning("localStorage could not be restored", sessionId=live.row.id, error=str(error))

    def origins(self, live: LiveSession) -> Origins:
        """What is known of the session's localStorage."""
        return self._draft(live).origins

    def note(self, live: LiveSession, origins: Origins) -> None:
        """Somebody wrote these into the session's context: they are part of its next checkpoint, which is soon."""
        draft = self._draft(live)
        for origin, items in origins.items():
            draft.see(origin, {**draft.origins.get(origin, {}), **items})
        self.touch(live)

    async def remember(self, live: LiveSession, origins: Origins) -> None:
        """The same, and it is on disk when this returns."""
        self.note(live, origins)
        await self.take(live)

    # --- Forgetting -----------------------------------------------------------------------------------------

    async def forgetting(self, session_id: str) -> tuple[Op, ...]:
        """What removes the session's checkpoint from disk, to be part of the write that ends it."""
        await self.load(session_id)
        draft = self._drafts[session_id]
        if draft.is_doubtful:
            # Which version is there is known when it was written once more.
            nothing = Checkpoint(id=session_id, node_id=self._node_id)
            outcome = await patiently(lambda: self._store.apply(Put(nothing)))
            assert isinstance(outcome, Applied), f"what is put needs nothing ({outcome})"
            self._wrote(draft, outcome.rows[0])
        stored = draft.stored
        return () if stored is None else (Delete(Checkpoint, stored.id, stored.version),)

    def forget(self, session_id: str) -> None:
        """The session is over."""
        draft = self._drafts.pop(session_id, None)
        if draft is not None and draft.timer is not None:
            draft.timer.cancel()

    # --- Parts ----------------------------------------------------------------------------------------------

    def _draft(self, live: LiveSession) -> Draft:
        """Every bound session has one; after its end a late command may still ask, and what it notes is dropped."""
        return self._drafts.get(live.row.id) or Draft(None)

    def _due(self, live: LiveSession, draft: Draft) -> None:
        draft.timer = None
        if self._registry.is_bound(live):
            self._spawn(self.take(live))

    async def _read_cookies(self, browser: BrowserPort, live: LiveSession) -> str:
        if not self._keeps_cookies(live.row.pool):
            return "[]"
        async with asyncio.timeout(READ_LIMIT_S):
            # Plain ASCII: pages can put into cookies what the store does not take.
            return json.dumps(await browser.cookies(live.row.context_id))

    async def _see(self, browser: BrowserPort, draft: Draft, tab: LiveTab, patient_until_s: float = 0.0) -> bool:
        """Remember what the page has; False when it has something, perhaps, but did not say what."""
        found = None
        patience_s = max(0.0, patient_until_s - asyncio.get_running_loop().time())
        try:
            found = await browser.local_storage(tab.row.target_id, patience_s)
        except (TabGone, CdpFailure) as error:
            log.debug("localStorage could not be read", tabId=tab.row.id, error=str(error))
        if found is not None:
            draft.see(*found)
        return found is not None or not tab.row.url.startswith("http")

    async def _write(self, live: LiveSession, draft: Draft, cookies: str) -> None:
        stored = draft.stored or Checkpoint(id=live.row.id, node_id=self._node_id)
        if len(cookies) > COOKIES_MAX_CHARS:
            log.warning("the session has too many cookies to be kept", sessionId=live.row.id, chars=len(cookies))
            cookies = stored.cookies
        origins = json.dumps(draft.origins)
        ops: list[Op] = [Update(tab.row) for tab in live.tabs.values() if tab.row != tab.stored]
        tabs = len(ops)
        if (cookies, origins) != (stored.cookies, stored.origins):
            taken = Checkpoint(
                id=live.row.id, node_id=self._node_id, cookies=cookies, origins=origins, taken_at=self._clock()
            )
            ops.append(Put(taken))
        if not ops:
            return
        try:
            outcome = await self._store.apply(*ops)
        except StoreUnavailable as error:
            log.warning("a checkpoint waits for the store", sessionId=live.row.id, error=error.message)
            draft.is_doubtful = draft.is_doubtful or len(ops) > tabs
            self.touch(live)
            return
        assert isinstance(outcome, Applied), f"the tabs of {live.row.id} have one writer, this node ({outcome})"
        for row in outcome.rows[:tabs]:
            assert isinstance(row, Tab)
            live.tabs[row.id].recorded(row)
        if len(outcome.rows) > tabs:
            self._wrote(draft, outcome.rows[-1])

    def _wrote(self, draft: Draft, row: Row | None) -> None:
        assert isinstance(row, Checkpoint)
        draft.stored, draft.is_doubtful = row, False
