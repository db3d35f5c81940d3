"""What lives on this node right now: bound sessions, their tabs and gates, in memory.

A session is bound here strictly after its row is on disk and unbound before its row says closed, so whoever finds a
tab here may rely on a lease row behind it. The hot path, one command, reads only this; it never asks the store.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec

from ..browsers.port import BrowserGone, BrowserPort, PageEnd, TabPort
from ..core.gate import Gate, Ticket
from ..core.lifecycle import TabState
from ..core.model import Session, Tab, changed
from ..errors import TabherdError
from .caller import Caller
from .claim import Claim
from .order import SessionMutex

# Ended tabs that are remembered: with two sessions a second, those of half an hour.
ENDED_MAX = 4_000
# Ends that are remembered of pages which may still be on their way into a session.
EARLY_ENDS_MAX = 10_000
# Cancelled commands that the owner has not heard of yet; beyond it the oldest are dropped.
CANCELLED_MAX = 100


class Connection(Protocol):
    """An open control or CDP socket, as a session knows it."""

    def detach(self, error: TabherdError) -> None:
        """The session is no longer this connection's: nothing that it sends may reach a page from now on."""
        ...

    async def wait_detached(self) -> None:
        """Returns when nothing that it had sent before can begin in a page any more."""
        ...


class LiveTab:
    """One page that commands can be sent to."""

    def __init__(self, row: Tab, port: TabPort | None, gate: Gate, session: LiveSession) -> None:
        self.row = row
        # The row as it is on disk: address and title run ahead of it.
        self.stored = row
        self.gate = gate
        self.session = session
        # None while there is no page: it died, and is not rebuilt yet or not to be rebuilt.
        self.port = port
        # Tickets that wait in the gate, by ticket id; a result means: you may run.
        self.waiting: dict[str, asyncio.Future[None]] = {}
        # The task of the command that holds the gate.
        self.running: asyncio.Task[object] | None = None
        # Whether something of a command may go on in the page, which its sender wanted kept.
        self.is_tainted = False
        # Set while a command may be at work in the page: takes its mark away; see `marks`.
        self.clear_mark: Callable[[], None] | None = None

    def moved(self, url: str, title: str) -> None:
        """The page has gone somewhere."""
        self.row = changed(self.row, url=url, title=title)
        # Whoever watches the tab shows where it is.
        self.gate.tell()

    def unmark(self) -> None:
        """No command is at work in the page any more."""
        if self.clear_mark is not None:
            self.clear_mark()
            self.clear_mark = None

    def wake(self, granted: Iterable[Ticket]) -> None:
        """Tell those whose turn has come."""
        for ticket in granted:
            waiter = self.waiting.get(ticket.id)
            # One that gave up in this very moment has not been scheduled since; its own way out returns the ticket.
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    def recorded(self, row: Tab) -> None:
        """This is on disk now. The page may have gone on meanwhile: its address, title and state stay."""
        self.stored = row
        self.row = changed(self.row, version=row.version)

    @property
    def is_dead(self) -> bool:
        """Whether its page died for good."""
        return self.row.state is TabState.DEAD

    @property
    def has_work(self) -> bool:
        return bool(self.waiting) or self.running is not None or self.gate.tab_lock is not None


def _nobody_named() -> bool:
    return False


class LiveSession:
    """One lease that is held, and what it has in a browser of this node."""

    def __init__(self, row: Session, browser: BrowserPort | None, claim: Claim) -> None:
        self.row = row
        # None while it is being recovered: its browser died.
        self.browser = browser
        # Its place in the pool, given back when it ends.
        self.claim = claim
        self.tabs: dict[str, LiveTab] = {}
        # Bind, checkout, release, takeover, handoff and recovery of one session are serial; see `order`.
        self.mutex = SessionMutex(row.id)
        # Set from the first moment of its end: nothing new reaches its tabs, although they are still bound.
        self.is_ending = False
        # Set when it is over, for those who wait on its behalf.
        self.ended = asyncio.Event()
        # While an admin gives it to somebody: nobody's commands are let in.
        self.is_changing_hands = False
        # When the owner was last heard of: a command, a read or a heartbeat, in milliseconds.
        self.seen_at = row.heartbeat_at
        # Whether the process that the owner named is proven dead by now.
        self.is_owner_dead: Callable[[], bool] = _nobody_named
        # Whether somebody has spoken for the owner since that process was proven dead.
        self.is_owner_followed = False
        # When work on its tabs last went on or ended; that may be after the owner's death.
        self.worked_at = 0
        # Tasks that wait or run for it.
        self.tasks = 0
        # Open sockets, by their own id, and when the last one closed.
        self.connections: dict[str, Connection] = {}
        self.last_connection_closed_at: int | None = None
        # Sockets of others than its owner: they are turned away like those, but say nothing about the owner's life.
        self.guests: dict[str, Connection] = {}
        # Commands that were cancelled by others than the owner since its last heartbeat.
        self.cancelled: deque[str] = deque(maxlen=CANCELLED_MAX)
        # Whether the owner was told that the deadline is near.
        self.is_expiry_told = False

    def heard(self, now: int) -> None:
        """Somebody who may speak for the owner has just asked for something."""
        self.seen_at = now
        self.is_owner_followed = self.is_owner_followed or self.is_owner_dead()

    def heard_from(self, caller: Caller, now: int) -> None:
        """The same, unless it was a guest: whoever uses a shared session does not speak for its owner."""
        if caller.may_see(self.row.agent_id):
            self.heard(now)

    def read_by(self, caller: Caller, now: int) -> None:
        """Its owner has looked at it, which breaks the silence but follows no death. Others who look say nothing of it,
        an admin included: a page of the dashboard that stays open must not keep what nobody has.
        """
        if caller.agent_id == self.row.agent_id:
            self.seen_at = now

    @property
    def has_work(self) -> bool:
        return self.tasks > 0 or any(tab.has_work for tab in self.tabs.values())

    @property
    def is_in_handoff(self) -> bool:
        """Whether a person has one of its tabs."""
        return any(tab.row.state is TabState.PAUSED for tab in self.tabs.values())

    def require_browser(self) -> BrowserPort:
        """The browser it lives in; raises `BrowserGone` while it has none."""
        if self.browser is None:
            raise BrowserGone("The browser is gone.", was_sent=False)
        return self.browser


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The end of a tab, kept for a while so that its last users hear more than "not found"."""

    session_id: str
    agent_id: str
    reason: str
    # Whether the whole session ended, or only this tab.
    is_session: bool = True


class Registry:
    """Every bound session of this node."""

    def __init__(self) -> None:
        self._sessions: dict[str, LiveSession] = {}
        self._tabs: dict[str, LiveTab] = {}
        # The same by the page that is behind each; Chromium's target ids are unique.
        self._targets: dict[str, LiveTab] = {}
        # Tabs that ended lately, oldest first.
        self._ended: dict[str, Ended] = {}
        # Tickets per controller, over all tabs: the controller's own limit counts them.
        self.tickets: dict[str, int] = {}
        # Commands that wait or run.
        self._commands = 0
        # Told of every tab that is unbound.
        self.on_unbound: Callable[[LiveTab], None] = lambda tab: None
        # Pages that ended before they were behind any tab, oldest first: one may be on its way into a session.
        self._early_ends: dict[str, PageEnd] = {}
        # Told of the end of such a page when it is behind a tab.
        self.on_early_end: Callable[[str, PageEnd], None] = lambda target_id, how: None
        # Set whenever a verdict of the reaper may have changed; the reaper clears it.
        self.changed = asyncio.Event()
        # The sessions of which that is true, in the order in which it became so.
        self._changed: dict[LiveSession, None] = {}
        # Pages whose dialogs somebody answers over CDP, by target id, with how many do.
        self._dialogs: Counter[str] = Counter()
        # Set while no command waits or runs.
        self.idle = asyncio.Event()
        self.idle.set()

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[LiveSession]:
        return iter(list(self._sessions.values()))

    def session(self, session_id: str) -> LiveSession | None:
        return self._sessions.get(session_id)

    def tab(self, tab_id: str) -> LiveTab | None:
        return self._tabs.get(tab_id)

    @property
    def tabs(self) -> list[LiveTab]:
        return list(self._tabs.values())

    def tell(self, session: LiveSession) -> None:
        """There is other evidence about this session than before: the reaper looks at it."""
        self._changed[session] = None
        self.changed.set()

    def take_changed(self) -> dict[LiveSession, None]:
        """Those that were told of since the last time."""
        taken, self._changed = self._changed, {}
        return taken

    def is_bound(self, session: LiveSession) -> bool:
        """Whether it is still the one that commands find under its id."""
        return self._sessions.get(session.row.id) is session

    def on_browser(self, browser_id: str) -> list[LiveSession]:
        return [live for live in self._sessions.values() if live.row.browser_id == browser_id]

    def in_context(self, browser_id: str, context_id: str) -> LiveSession | None:
        """The session that has this context to itself."""
        found = (live for live in self.on_browser(browser_id) if live.row.context_id == context_id)
        return next(found, None) if context_id else None

    def on_target(self, target_id: str) -> LiveTab | None:
        """The tab whose present page this is."""
        return self._targets.get(target_id)

    def bind(self, session: LiveSession) -> None:
        assert session.row.id not in self._sessions, "a session is bound once"
        assert session.row.version > 0, "record before bind: the row must be on disk"
        self._sessions[session.row.id] = session
        for tab in session.tabs.values():
            self.bind_tab(tab)
        self.tell(session)

    def unbind(self, session: LiveSession, reason: str) -> None:
        """From here on no command reaches its tabs; their late users still learn why."""
        self._sessions.pop(session.row.id, None)
        for tab in session.tabs.values():
            self._forget(tab, reason, is_session=True)
        session.ended.set()

    def bind_tab(self, tab: LiveTab) -> None:
        assert tab.row.version > 0, "record before bind: the row must be on disk"
        tab.session.tabs[tab.row.id] = tab
        self._tabs[tab.row.id] = tab
        self._know_page(tab)

    def unbind_tab(self, tab: LiveTab, reason: str) -> None:
        """One tab less; its session goes on."""
        tab.session.tabs.pop(tab.row.id, None)
        self._forget(tab, reason, is_session=False)

    def put_page(self, tab: LiveTab, row: Tab, port: TabPort | None) -> None:
        """Another page is behind the tab from now on, or none; its row is on disk."""
        self._targets.pop(tab.row.target_id, None)
        tab.row, tab.stored, tab.port, tab.is_tainted = row, row, port, False
        self._know_page(tab)

    def ended_early(self, target_id: str, how: PageEnd) -> None:
        """A page has ended that is behind no tab, or not yet."""
        self._early_ends[target_id] = how
        if len(self._early_ends) > EARLY_ENDS_MAX:
            del self._early_ends[next(iter(self._early_ends))]

    def forget_ends(self, target_ids: Iterable[str]) -> None:
        """These pages were closed because their tabs are no more: none of them is on its way into a session."""
        for target_id in target_ids:
            self._early_ends.pop(target_id, None)

    def _know_page(self, tab: LiveTab) -> None:
        target_id = tab.row.target_id
        self._targets[target_id] = tab
        if (how := self._early_ends.pop(target_id, None)) is not None:
            # When whoever puts it there is done: the tab has to be up before it can go down.
            asyncio.get_running_loop().call_soon(self.on_early_end, target_id, how)

    def ended(self, tab_id: str) -> Ended | None:
        """What became of a tab that was here."""
        return self._ended.get(tab_id)

    def answers_dialogs(self, target_id: str) -> bool:
        """Whether somebody who is connected over CDP answers the dialogs of that page."""
        return target_id in self._dialogs

    def take_dialogs(self, target_id: str) -> None:
        self._dialogs[target_id] += 1

    def leave_dialogs(self, target_id: str) -> None:
        """One fewer. Chromium itself dismisses what the last one left open."""
        self._dialogs[target_id] -= 1
        if not self._dialogs[target_id]:
            del self._dialogs[target_id]

    def count_ticket(self, controller_id: str, delta: int) -> None:
        left = self.tickets.get(controller_id, 0) + delta
        assert left >= 0, "a ticket was returned twice"
        if left:
            self.tickets[controller_id] = left
        else:
            del self.tickets[controller_id]

    def count_command(self, delta: int) -> None:
        self._commands += delta
        if self._commands:
            self.idle.clear()
        else:
            self.idle.set()

    def _forget(self, tab: LiveTab, reason: str, *, is_session: bool) -> None:
        self._tabs.pop(tab.row.id, None)
        self._targets.pop(tab.row.target_id, None)
        self.on_unbound(tab)
        # Whoever waits for the tab outside of its gate hears nothing else of this.
        tab.gate.tell()
        session = tab.session.row
        self._ended[tab.row.id] = Ended(session.id, session.agent_id, reason, is_session)
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
