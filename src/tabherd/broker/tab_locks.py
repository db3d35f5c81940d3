"""Tab locks: the gate of one tab held across several commands, for as long as a renewable lease lasts.

A lock ends in exactly one way: given back, expired by its timer (not when somebody happens to look), dropped with the
connection of its controller, freed by an operator, or with the tab; its holder and everybody who listens hear which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .. import wire
from ..core import lease
from ..core.gate import TabLock, Ticket
from ..errors import LockNotFound, NotOwner, StateConflict
from .access import Access
from .audit import Auditor
from .caller import Caller
from .events import EventBus
from .ids import Ids
from .registry import LiveSession, LiveTab, Registry
from .settings import Settings
from .turns import Turns, lock_fields
from .views import rfc3339


class TabLocks:
    """The verbs of tab locks."""

    def __init__(
        self,
        *,
        settings: Settings,
        registry: Registry,
        access: Access,
        turns: Turns,
        events: EventBus,
        auditor: Auditor,
        ids: Ids,
        clock: Callable[[], int],
        refuse_when_draining: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._access = access
        self._turns = turns
        self._events = events
        self._auditor = auditor
        self._ids = ids
        self._clock = clock
        self._refuse_when_draining = refuse_when_draining
        # The timer of each lock that is held, by ticket.
        self._timers: dict[str, asyncio.TimerHandle] = {}
        registry.on_unbound = self._tab_gone

    # --- Verbs ----------------------------------------------------------------------------------------------

    async def lock(self, caller: Caller, tab_id: str, request: wire.LockTab) -> wire.TabLockView:
        """Take the tab lock, in turn; with the ticket of a lock that is held, start its lease anew."""
        self._refuse_when_draining()
        caller.require("browse")
        tab = self._access.usable_tab(caller, tab_id, request.session_id, request.fence)
        now = self._clock()
        asked_ms = request.lock_lease_ms or self._settings.current.gate.lock_lease_ms
        lease_ms = lease.lock_lease_ms(tab.session.row, asked_ms, now)
        if request.ticket is not None:
            return self._renew(caller, tab, request.ticket, lease_ms)
        ticket = Ticket(
            id=self._ids.mint("lck"),
            controller_id=caller.controller_id,
            agent_id=caller.agent_id,
            label="tab_lock",
            entered_at=now,
            deadline_at=lease.command_deadline_at(
                tab.session.row, request.timeout_ms or self._settings.current.gate.timeout_ms, now
            ),
        )
        self._turns.enter(tab, ticket, may_wait=request.wait_policy == "wait_with_timeout", lock_lease_ms=lease_ms)
        tab.session.heard_from(caller, now)
        try:
            await self._turns.wait(tab, ticket)
            # The wait may have been long: decide again whether this caller may have this tab, and for how long.
            self._access.usable_tab(caller, tab_id, request.session_id, request.fence)
            held = self._just_granted(tab, ticket, asked_ms)
        except BaseException:
            self._turns.leave(tab, ticket)
            raise
        tab.waiting.pop(ticket.id, None)
        tab.session.worked_at = self._clock()
        self._watch(tab, held)
        self._tell("lock_acquired", tab, held)
        return _view(tab, held)

    def unlock(self, caller: Caller, tab_id: str, ticket_id: str) -> None:
        """Give the lock back. One that is no longer held is `lock_not_found`."""
        tab = self._access.tab(caller, tab_id)
        held = tab.gate.tab_lock
        if held is None or held.ticket.id != ticket_id:
            raise LockNotFound("This tab lock is no longer held.", ticket=ticket_id)
        self._check_holder(caller, held)
        self._end(tab, held, "lock_released", "released")

    def force(self, caller: Caller, tab_id: str, holder: str | None = None) -> None:
        """Free the lock for an operator, who has no ticket; from here on its holder's is worth nothing.

        With `holder` only if that controller has it: an operator decides on what was on the screen a moment ago.
        """
        caller.require("admin")
        tab = self._access.tab(caller, tab_id)
        held = tab.gate.tab_lock
        if held is None:
            raise LockNotFound("Nobody holds this tab's lock.", tabId=tab_id)
        if holder is not None and holder != held.controller_id:
            raise StateConflict(
                "Another controller has this tab's lock by now.", tabId=tab_id, holder=held.controller_id
            )
        self._end(tab, held, "lock_released", "forced", by=caller)

    def drop_controller(self, controller_id: str) -> None:
        """The controller's connection is closed: its locks are free, and it is given none that it waits for."""
        for tab in self._registry.tabs:
            waiters = tab.gate.describe(self._clock()).waiters if tab.waiting else []
            for waiter in waiters:
                if waiter.wants_lock and waiter.ticket.controller_id == controller_id:
                    self._withdraw(tab, waiter.ticket)
            held = tab.gate.tab_lock
            if held is not None and held.controller_id == controller_id:
                self._end(tab, held, "lock_released", "disconnected")

    def drop_all(self, live: LiveSession, reason: str) -> None:
        """The session is somebody else's: what its old holder locked is not."""
        for tab in live.tabs.values():
            held = tab.gate.tab_lock
            if held is not None:
                self._end(tab, held, "lock_released", reason)

    # --- Parts ----------------------------------------------------------------------------------------------

    def _just_granted(self, tab: LiveTab, ticket: Ticket, asked_ms: int) -> TabLock:
        held, now = tab.gate.tab_lock, self._clock()
        if held is None or held.ticket.id != ticket.id:
            # Somebody ended it before who asked for it could run again; see `_end`.
            raise LockNotFound("The tab lock was over as soon as it was granted.", ticket=ticket.id)
        lease_ms = lease.lock_lease_ms(tab.session.row, asked_ms, now)
        return held if lease_ms == held.lease_ms else tab.gate.renew(ticket.id, lease_ms, now)

    def _withdraw(self, tab: LiveTab, ticket: Ticket) -> None:
        waiter = tab.waiting.get(ticket.id)
        if waiter is not None and not waiter.done():
            waiter.set_exception(LockNotFound("Whoever asked for the tab lock has left.", ticket=ticket.id))

    def _renew(self, caller: Caller, tab: LiveTab, ticket_id: str, lease_ms: int) -> wire.TabLockView:
        present = tab.gate.tab_lock
        if present is not None and present.ticket.id == ticket_id:
            self._check_holder(caller, present)
        held = tab.gate.renew(ticket_id, lease_ms, self._clock())
        tab.session.heard_from(caller, self._clock())
        self._watch(tab, held)
        self._tell("lock_renewed", tab, held)
        return _view(tab, held)

    def _check_holder(self, caller: Caller, held: TabLock) -> None:
        """The ticket proves which lock is meant; that it is the caller's own, its credential does.

        Not its controller: one that has no name of its own has another with each connection.
        """
        if held.ticket.agent_id != caller.agent_id and not caller.is_admin:
            raise NotOwner("Another controller holds this tab's lock.", holder=held.controller_id)

    def _watch(self, tab: LiveTab, held: TabLock) -> None:
        self._forget_timer(held.ticket.id)
        delay_s = max(0, held.expires_at - self._clock()) / 1000
        self._timers[held.ticket.id] = asyncio.get_running_loop().call_later(delay_s, self._expired, tab, held)

    def _expired(self, tab: LiveTab, held: TabLock) -> None:
        present = tab.gate.tab_lock
        if present is not None and present.ticket.id == held.ticket.id:
            if present.expires_at > self._clock():
                # The timer came a moment early, as clocks may.
                self._watch(tab, present)
                return
            self._end(tab, present, "lock_expired", "expired")

    def _end(self, tab: LiveTab, held: TabLock, event: str, reason: str, by: Caller | None = None) -> None:
        """The ticket goes back, and whoever waits is woken; a command of its holder that still runs finishes first."""
        is_known = self._forget_timer(held.ticket.id)
        tab.session.worked_at = self._clock()
        tab.wake(tab.gate.unlock(held.ticket.id, self._clock()))
        if is_known:
            self._registry.count_ticket(held.controller_id, -1)
            self._tell(event, tab, held, reason, by)
        # Else it was granted in this very moment: who asked for it finds it gone, and gives its ticket back itself.

    def _forget_timer(self, ticket_id: str) -> bool:
        """Whether there was one: a lock has a timer from when its holder knows of it."""
        timer = self._timers.pop(ticket_id, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    def _tab_gone(self, tab: LiveTab) -> None:
        """The tab was closed, or its session ended: a lock on it is over."""
        held = tab.gate.tab_lock
        if held is not None:
            self._end(tab, held, "lock_released", "tab_closed")

    def _tell(self, event: str, tab: LiveTab, held: TabLock, reason: str = "", by: Caller | None = None) -> None:
        """`by` is who did it, if that was not the holder."""
        fields = lock_fields(tab, held.controller_id, held.lease_ms, held.expires_at)
        if reason:
            fields["reason"] = reason
        if by is not None:
            fields["by"] = by.agent_id
        self._events.publish(event, **fields, ticket=held.ticket.id)
        self._auditor.note(
            agent_id=held.ticket.agent_id if by is None else by.agent_id,
            controller_id=held.controller_id if by is None else by.controller_id,
            verb=event,
            tab=tab,
            detail=reason if by is None else f"{reason}, held by {held.controller_id}",
        )


def _view(tab: LiveTab, held: TabLock) -> wire.TabLockView:
    return wire.TabLockView(
        tab_id=tab.row.id,
        lock_owner_controller_id=held.controller_id,
        lock_lease_ms=held.lease_ms,
        lock_expires_at=rfc3339(held.expires_at),
        ticket=held.ticket.id,
    )
