"""Taking one's turn at a tab: entering its gate, waiting for the grant, and giving the place back.

Commands and tab locks take turns in one queue. What this keeps: a ticket that got in is counted until it is given
back; one that waits is woken by a grant, by the end of its time, or by an error that somebody sets (the session ended,
the command was cancelled, the controller left); and everybody who meets another controller's lock, or is refused for
another's command, is told of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..core.gate import Entry, Queued, Ticket
from ..errors import TabBusy, TabLocked
from .events import EventBus
from .registry import LiveTab, Registry
from .views import rfc3339


class Turns:
    """The way into and out of every gate of this node."""

    def __init__(self, *, registry: Registry, events: EventBus, clock: Callable[[], int]) -> None:
        self._registry = registry
        self._events = events
        self._clock = clock

    def enter(self, tab: LiveTab, ticket: Ticket, *, may_wait: bool, lock_lease_ms: int | None = None) -> Entry:
        """Get in, at once or in the queue, or be refused; with a lease it is the tab lock that is asked for."""
        tickets = self._registry.tickets.get(ticket.controller_id, 0)
        now = self._clock()
        try:
            if lock_lease_ms is None:
                entry = tab.gate.enter(ticket, now=now, may_wait=may_wait, controller_tickets=tickets)
            else:
                entry = tab.gate.lock(
                    ticket, lease_ms=lock_lease_ms, now=now, may_wait=may_wait, controller_tickets=tickets
                )
        except (TabLocked, TabBusy):
            self._tell_conflict(tab, ticket)
            raise
        if isinstance(entry, Queued):
            # Before anything else can happen: a grant must find whom it is for.
            tab.waiting[ticket.id] = asyncio.get_running_loop().create_future()
            if tab.gate.tab_lock is not None:
                self._tell_conflict(tab, ticket)
        self._registry.count_ticket(ticket.controller_id, 1)
        return entry

    async def wait(self, tab: LiveTab, ticket: Ticket) -> None:
        """Until it is this ticket's turn; raises when its time is over first, or whatever somebody else decided."""
        granted = tab.waiting.get(ticket.id)
        if granted is None:
            return
        try:
            async with asyncio.timeout((ticket.deadline_at - self._clock()) / 1000):
                await granted
        except TimeoutError:
            refusal = tab.gate.too_late(ticket.id, self._clock())
            refusal.details["tabId"] = tab.row.id
            raise refusal from None

    def leave(self, tab: LiveTab, ticket: Ticket) -> None:
        """Give the place back and wake whoever is next."""
        granted = tab.waiting.pop(ticket.id, None)
        if granted is not None and not granted.cancel() and not granted.cancelled():
            # Looked at, or asyncio would complain of a refusal that came when nobody waited any more.
            granted.exception()
        self._registry.count_ticket(ticket.controller_id, -1)
        # Silence counts from the end of the work, not from its beginning.
        now = tab.session.worked_at = self._clock()
        tab.wake(tab.gate.leave(ticket.id, now=now))

    def _tell_conflict(self, tab: LiveTab, ticket: Ticket) -> None:
        """Somebody meets a lock, or else a command, that is another's. A command has the tab until its own deadline."""
        lock, running = tab.gate.tab_lock, tab.gate.running
        if lock is not None:
            holder, lease_ms, expires_at = lock.controller_id, lock.lease_ms, lock.expires_at
        elif running is not None:
            holder, expires_at = running.controller_id, running.deadline_at
            lease_ms = expires_at - running.entered_at
        else:
            return
        if holder != ticket.controller_id:
            fields = lock_fields(tab, holder, lease_ms, expires_at)
            self._events.publish("lock_conflict", **fields, controllerId=ticket.controller_id)


def lock_fields(tab: LiveTab, controller_id: str, lease_ms: int, expires_at: int) -> dict[str, object]:
    """What every event about a tab lock says."""
    return {
        "tabId": tab.row.id,
        "sessionId": tab.row.session_id,
        "agentId": tab.session.row.agent_id,
        "lockOwnerControllerId": controller_id,
        "lockLeaseMs": lease_ms,
        "lockExpiresAt": rfc3339(expires_at),
    }
