"""What lives on this node right now: bound sessions, their tabs and gates, in memory.

A session is bound here strictly after its row is on disk and unbound before its row says closed, so whoever finds a
tab here may rely on a lease row behind it. The hot path, one command, reads only this; it never asks the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ..browsers.port import BrowserPort, TabPort
from ..core.gate import Gate
from ..core.model import Session, Tab, changed
from .admission import Claim

# Ended tabs that are remembered.
ENDED_MAX = 10_000


class LiveTab:
    """One page that commands can be sent to."""

    def __init__(self, row: Tab, port: TabPort, gate: Gate, session: LiveSession) -> None:
        self.row = row
        self.gate = gate
        self.session = session
        # Tickets that wait in the gate, by ticket id; a result means: you may run.
        self.waiting: dict[str, asyncio.Future[None]] = {}
        # The task of the command that holds the gate.
        self.running: asyncio.Task[object] | None = None
        # Set while a command may be at work in the page; see `marks`.
        self.mark: int | None = None
        self.follow(port)

    def follow(self, port: TabPort) -> None:
        """Drive this page from now on, and know its address wherever it goes by itself."""
        self.port = port
        port.listen("Page.frameNavigated", self._frame_navigated)
        port.listen("Page.navigatedWithinDocument", self._navigated_within)

    def _frame_navigated(self, event: Mapping[str, Any]) -> None:
        frame = event["frame"]
        if "parentId" not in frame:
            self.row = changed(self.row, url=frame["url"] + frame.get("urlFragment", ""), title="")

    def _navigated_within(self, event: Mapping[str, Any]) -> None:
        if event["frameId"] == self.row.target_id:
            self.row = changed(self.row, url=event["url"])


class LiveSession:
    """One lease whose context exists in a browser of this node."""

    def __init__(self, row: Session, browser: BrowserPort, claim: Claim) -> None:
        self.row = row
        self.browser = browser
        # Its place in the pool, given back when it ends.
        self.claim = claim
        self.tabs: dict[str, LiveTab] = {}
        # Bind, release and recovery of one session are serial. Taken before anything touches the store.
        self.mutex = asyncio.Lock()
        # Set from the first moment of its end: nothing new reaches its tabs, although they are still bound.
        self.is_ending = False
        # Its browser died under it.
        self.is_lost = False
        # When the owner was last heard of: a command, a read or a heartbeat, in milliseconds.
        self.seen_at = row.heartbeat_at

    @property
    def has_work(self) -> bool:
        return any(tab.waiting or tab.running for tab in self.tabs.values())


class Ended(msgspec.Struct, frozen=True):
    """The end of a tab, kept for a while so that its last users hear more than "not found"."""

    session_id: str
    agent_id: str
    reason: str


class Registry:
    """Every bound session of this node."""

    def __init__(self) -> None:
        self._sessions: dict[str, LiveSession] = {}
        self._tabs: dict[str, LiveTab] = {}
        # Tabs of sessions that ended lately, oldest first.
        self._ended: dict[str, Ended] = {}
        # Tickets per controller, over all tabs: the controller's own limit counts them.
        self.tickets: dict[str, int] = {}
        # Set whenever a session is bound; whoever waits for that clears it.
        self.bound = asyncio.Event()
        # Set while no ticket is out.
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

    def on_browser(self, browser_id: str) -> list[LiveSession]:
        return [live for live in self._sessions.values() if live.row.browser_id == browser_id]

    def bind(self, session: LiveSession) -> None:
        assert session.row.id not in self._sessions, "a session is bound once"
        assert session.row.version > 0, "record before bind: the row must be on disk"
        self._sessions[session.row.id] = session
        self._tabs.update(session.tabs)
        self.bound.set()

    def unbind(self, session: LiveSession, reason: str) -> None:
        """From here on no command reaches its tabs; their late users still learn why."""
        self._sessions.pop(session.row.id, None)
        for tab_id in session.tabs:
            self._tabs.pop(tab_id, None)
            self._ended[tab_id] = Ended(session.row.id, session.row.agent_id, reason)
            if len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]

    def ended(self, tab_id: str) -> Ended | None:
        """What became of a tab that was here."""
        return self._ended.get(tab_id)

    def count_ticket(self, controller_id: str, delta: int) -> None:
        left = self.tickets.get(controller_id, 0) + delta
        assert left >= 0, "a ticket was returned twice"
        if left:
            self.tickets[controller_id] = left
            self.idle.clear()
        else:
            del self.tickets[controller_id]
            if not self.tickets:
                self.idle.set()
