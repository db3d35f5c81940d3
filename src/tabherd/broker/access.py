"""Who may see and use which session and tab: the one place where ownership is decided, for every verb.

- What a caller may not see does not exist for it (`not_found`): nobody can probe for other agents' things.
- A shared session is seen and used by every agent with the scope, but is its owner's to release or hand on.
- Whoever had a session and has it no longer, because it ended or was given to somebody else, hears `lease_lost`.
"""

from __future__ import annotations

from collections.abc import Callable

from ..browsers.port import TabPort
from ..core import lease
from ..core.model import Session
from ..errors import LeaseLost, NotOwner, SessionNotFound, TabDead, TabNotFound
from ..store.base import Store
from .caller import Caller
from .registry import LiveSession, LiveTab, Registry


class Access:
    """Ownership, as verbs ask for it."""

    def __init__(
        self,
        *,
        store: Store,
        registry: Registry,
        clock: Callable[[], int],
        refuse_untrusted: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        # Raises while this node may have lost what it has.
        self.refuse_untrusted = refuse_untrusted

    async def seen(self, caller: Caller, session_id: str) -> Session:
        """The row of a session that the caller may see, also after its end."""
        live = self._registry.session(session_id)
        row = live.row if live is not None else await self._store.get(Session, session_id)
        if row is None or not is_visible(caller, row):
            if row is not None and row.taken_from == caller.agent_id:
                raise _taken(row)
            raise SessionNotFound("No such session.")
        return row

    async def bound(self, caller: Caller, session_id: str) -> LiveSession:
        """The bound session, if the caller may see it."""
        row = await self.seen(caller, session_id)
        live = self._registry.session(session_id)
        if live is None:
            reason = row.end_reason or str(row.state)
            raise LeaseLost(f"The session has ended: {reason}.", sessionId=session_id, reason=row.end_reason)
        return live

    async def owned(self, caller: Caller, session_id: str) -> LiveSession:
        """The bound session, if it is the caller's own."""
        live = await self.bound(caller, session_id)
        if not caller.may_see(live.row.agent_id):
            raise NotOwner("The session is shared, but only its owner may do this.", sessionId=session_id)
        return live

    def tab(self, caller: Caller, tab_id: str) -> LiveTab:
        """The bound tab, if the caller may see it."""
        tab = self._registry.tab(tab_id)
        if tab is None:
            raise self._ended(caller, tab_id)
        if not is_visible(caller, tab.session.row):
            if tab.session.row.taken_from == caller.agent_id:
                raise _taken(tab.session.row)
            raise TabNotFound("No such tab.")
        return tab

    def usable_tab(self, caller: Caller, tab_id: str, session_id: str | None, fence: int | None) -> LiveTab:
        """The tab, if commands of this caller may reach it now, under the lease that it names."""
        self.refuse_untrusted()
        tab = self.tab(caller, tab_id)
        session = tab.session.row
        if tab.session.is_ending or tab.session.is_changing_hands:
            raise LeaseLost("The session is ending or changing hands.", sessionId=session.id, tabId=tab_id)
        if session_id is not None and session_id != session.id:
            raise LeaseLost("The tab is not part of that session.", sessionId=session_id, tabId=tab_id)
        lease.check_fence(session, fence, self._clock())
        return tab

    def _ended(self, caller: Caller, tab_id: str) -> LeaseLost | TabNotFound:
        ended = self._registry.ended(tab_id)
        if ended is None or not caller.may_see(ended.agent_id):
            return TabNotFound("No such tab.")
        if not ended.is_session:
            return TabNotFound(f"The tab is closed: {ended.reason}.", sessionId=ended.session_id, reason=ended.reason)
        return LeaseLost(f"The session has ended: {ended.reason}.", sessionId=ended.session_id, reason=ended.reason)


def page_of(tab: LiveTab) -> TabPort:
    """What a command of whoever holds the gate is sent to; closing is the only one that a dead tab takes."""
    if tab.port is None:
        raise TabDead(
            "The page died, and the session does not allow it to be opened again.",
            action="Close the tab and open another one in the same session.",
            tabId=tab.row.id,
            lastUrl=tab.row.url,
        )
    return tab.port


def is_visible(caller: Caller, row: Session) -> bool:
    """Whether that session exists for the caller at all."""
    return caller.may_see(row.agent_id) or (row.access == "shared" and "browse" in caller.scopes)


def _taken(row: Session) -> LeaseLost:
    return LeaseLost("The session was given to somebody else.", sessionId=row.id, reason="taken_over")
