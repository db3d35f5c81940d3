"""The per-tab FIFO: who has the tab, who waits for it, and in which order, as a plain object without I/O.

Every command on a tab takes a ticket here, whatever interface it came through. What the gate keeps:

- At most one command runs on the tab at any time.
- Grants follow arrival. A newcomer never overtakes a waiter; the one exception is a tab lock, under which only the
  owner's commands pass, one at a time and in their own order.
- A ticket past its deadline is never granted, and nothing is granted under a quarantine or a handoff.
- Every ticket that got in leaves exactly once: by `leave`, `unlock`, `expire`, `drop_controller` or `close`.
- The tab's tickets stay within the limits, and one controller within half of them.

Methods that may set somebody free return the tickets granted by that, in order: at most a tab lock and the first
command of its owner. A wake-up is a hint: whoever was granted checks its fence before it acts. The gate has no clock:
`now` is the caller's and never goes back, and a lock past its lease stays in force until `expire` takes it away and
thereby tells its holder; `next_expiry` says when to call. Everything is O(1) or O(tickets of this tab), which the
limits bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ..errors import (
    Backpressure,
    ControllerQueueLimitExceeded,
    LockNotFound,
    QueueWaitTimedOut,
    StateConflict,
    TabBusy,
    TabLocked,
    TabNotFound,
    TabPausedHandoff,
    TabQueueLimitExceeded,
)
from ..quoting import quoted
from .hold_times import HoldTimes, bounded_retry_ms
from .ticket import Dropped, Entry, Expired, GateView, Granted, Hold, HoldReason, Queued, TabLock, Ticket, WaiterView

__all__ = [
    "Dropped",
    "Entry",
    "Expired",
    "Gate",
    "GateLimits",
    "GateView",
    "Granted",
    "Hold",
    "HoldReason",
    "Queued",
    "TabLock",
    "Ticket",
    "WaiterView",
]

# What a command is assumed to take until the tab has seen some.
HOLD_GUESS_MS: Final = 500
# What a busy tab is busy with.
_BUSY_WITH: Final = {
    HoldReason.REBUILD: "The page behind this tab died and is being rebuilt.",
    HoldReason.QUARANTINE: "A command on this tab timed out and is not yet proven stopped.",
    HoldReason.COMMAND: "Another command has the tab.",
}


class GateLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many tickets there may be at once: on one tab, and of one controller over all tabs."""

    tickets_per_tab: int = 20
    tickets_per_controller: int = 100

    @property
    def share_per_controller(self) -> int:
        """Of one tab's tickets, always: half, so that one controller cannot shut the others out."""
        return max(1, self.tickets_per_tab // 2)


class _Waiting(msgspec.Struct, frozen=True):
    ticket: Ticket
    # Set when it asks for the tab lock.
    lease_ms: int | None


class _Running(msgspec.Struct, frozen=True):
    ticket: Ticket
    since: int


class Gate:
    """One tab's gate."""

    __slots__ = (
        "_handoff",
        "_hold_times",
        "_is_closed",
        "_limits",
        "_lock",
        "_quarantine",
        "_running",
        "_waiting",
        "_watchers",
        "is_held",
    )

    def __init__(self, limits: GateLimits) -> None:
        self._limits = limits
        # In order of arrival.
        self._waiting: dict[str, _Waiting] = {}
        self._running: _Running | None = None
        self._lock: TabLock | None = None
        self._handoff: Hold | None = None
        self._quarantine: Hold | None = None
        self._is_closed = False
        # How long the gate was held, by commands and by locks as a whole.
        self._hold_times = HoldTimes(HOLD_GUESS_MS)
        # False: no controller is held up by anything, and a CDP message may pass without a further look.
        self.is_held = False
        # Told after every change; there are some only while CDP messages wait for a hold to end.
        self._watchers: tuple[Callable[[], None], ...] = ()

    @property
    def running(self) -> Ticket | None:
        """The one command that has the tab."""
        return self._running.ticket if self._running else None

    @property
    def tab_lock(self) -> TabLock | None:
        return self._lock

    # --- Getting in ---------------------------------------------------------------------------------------------

    def enter(self, ticket: Ticket, *, now: int, may_wait: bool, controller_tickets: int) -> Entry:
        """Ask to run one command. Refused at once when it cannot run now and may not wait, or when a limit is hit.

        `controller_tickets` is what the controller has on all tabs together, this one included (`tickets_of`).
        """
        return self._admit(_Waiting(ticket, None), now, may_wait, controller_tickets)

    def lock(self, ticket: Ticket, *, lease_ms: int, now: int, may_wait: bool, controller_tickets: int) -> Entry:
        """Ask for the tab lock; it queues like any command, and its lease starts when it is granted."""
        assert lease_ms > 0
        if self._lock is not None and self._lock.controller_id == ticket.controller_id:
            # Waiting for itself would end only with the first lock's lease.
            raise StateConflict(
                "You hold this tab's lock already.",
                action="Renew it with its ticket.",
                ticket=self._lock.ticket.id,
                lockExpiresAt=self._lock.expires_at,
            )
        return self._admit(_Waiting(ticket, lease_ms), now, may_wait, controller_tickets)

    def _admit(self, newcomer: _Waiting, now: int, may_wait: bool, controller_tickets: int) -> Entry:
        ticket = newcomer.ticket
        assert ticket.id not in self._waiting, f"ticket {ticket.id} entered twice"
        if self._is_closed:
            raise TabNotFound("The tab is closed.")
        if ticket.deadline_at <= now:
            raise QueueWaitTimedOut("The command's time had run out before it reached the tab.")
        # Whoever could run was granted when that became possible, so nobody who waits is overtaken here.
        runs_now = self._may_run(newcomer)
        if not runs_now and not may_wait:
            raise self._refusal(newcomer, now)
        self._check_limits(newcomer, controller_tickets, now)
        self._waiting[ticket.id] = newcomer
        if runs_now:
            granted = self._settle(now)
            assert granted == [ticket]
            return Granted(ticket, None if newcomer.lease_ms is None else self._lock)
        self.tell()
        return Queued(ticket, self._position(newcomer))

    def _may_run(self, waiting: _Waiting) -> bool:
        if self._running or self._handoff or self._quarantine:
            return False
        return self._lock is None or self._passes_lock(waiting)

    def _passes_lock(self, waiting: _Waiting) -> bool:
        is_owner = self._lock is not None and waiting.ticket.controller_id == self._lock.controller_id
        return is_owner and waiting.lease_ms is None

    def _settle(self, now: int) -> list[Ticket]:
        """Grant what can be granted. Every change of the gate ends here, so that no grant is ever owed."""
        granted: list[Ticket] = []
        while (first := self._first(now)) is not None:
            ticket = first.ticket
            del self._waiting[ticket.id]
            if first.lease_ms is None:
                self._running = _Running(ticket, now)
            else:
                self._lock = TabLock(ticket=ticket, since=now, lease_ms=first.lease_ms, expires_at=now + first.lease_ms)
            granted.append(ticket)
        self.is_held = any((self._running, self._lock, self._handoff, self._quarantine))
        self.tell()
        return granted

    def _first(self, now: int) -> _Waiting | None:
        # One past its deadline stays where it is until `expire` reports it, but is passed over.
        return next(
            (one for one in self._waiting.values() if one.ticket.deadline_at > now and self._may_run(one)), None
        )

    def _in_grant_order(self) -> list[_Waiting]:
        """Those who wait, as they would be granted if nothing else happened; the sort keeps arrival where it ties."""
        return sorted(self._waiting.values(), key=lambda one: not self._passes_lock(one))

    def _position(self, one: _Waiting) -> int:
        """Its place among those who wait; of one that does not wait, the place it would have."""
        order = self._in_grant_order()
        if one.ticket.id in self._waiting:
            return order.index(one) + 1
        return 1 + (sum(map(self._passes_lock, order)) if self._passes_lock(one) else len(order))

    # --- Limits and refusals ------------------------------------------------------------------------------------

    @property
    def tickets(self) -> int:
        """How many tickets the tab has: who waits, who runs, and a held lock that no command of its owner uses."""
        is_lock_idle = self._lock is not None and self._has_idle_lock(self._lock.controller_id)
        return len(self._waiting) + (self._running is not None) + is_lock_idle

    def tickets_of(self, controller_id: str) -> int:
        """How many of them the controller has."""
        waiting = sum(one.ticket.controller_id == controller_id for one in self._waiting.values())
        return waiting + self._is_running(controller_id) + self._has_idle_lock(controller_id)

    def _is_running(self, controller_id: str) -> bool:
        return self._running is not None and self._running.ticket.controller_id == controller_id

    def _has_idle_lock(self, controller_id: str) -> bool:
        if self._lock is None or self._lock.controller_id != controller_id or self._is_running(controller_id):
            return False
        return not any(self._passes_lock(one) for one in self._waiting.values())

    def _check_limits(self, newcomer: _Waiting, controller_tickets: int, now: int) -> None:
        controller_id = newcomer.ticket.controller_id
        if self._has_idle_lock(controller_id):
            # The command takes the place of the lock: on a full tab the lock could not be used otherwise.
            return
        limits = self._limits
        checks: tuple[tuple[int, int, type[Backpressure], str], ...] = (
            (self.tickets, limits.tickets_per_tab, TabQueueLimitExceeded, "All of the tab's tickets are in use."),
            (
                self.tickets_of(controller_id),
                limits.share_per_controller,
                TabQueueLimitExceeded,
                "You have as many of this tab's tickets as one controller may: half of them.",
            ),
            (
                controller_tickets,
                limits.tickets_per_controller,
                ControllerQueueLimitExceeded,
                "You have as many tickets over all tabs as one controller may.",
            ),
        )
        for count, cap, error, message in checks:
            if count >= cap:
                raise error(message, count=count, cap=cap, **self._standing(newcomer, now))

    def _refusal(self, newcomer: _Waiting, now: int) -> TabBusy | TabLocked | TabPausedHandoff:
        """What to tell somebody who does not want to wait."""
        hold = self._hold_against(newcomer)
        assert hold is not None
        return _refused_by(hold, self._standing(newcomer, now))

    def too_late(self, ticket_id: str, now: int) -> QueueWaitTimedOut:
        """What to tell somebody whose time ran out in the queue."""
        waiting = self._waiting.get(ticket_id)
        # One that was granted in this very moment has nobody before it any more.
        standing = {} if waiting is None else self._standing(waiting, now)
        return QueueWaitTimedOut("The time ran out in the queue of the tab.", **standing)

    def _hold_against(self, one: _Waiting) -> Hold | None:
        # Its own running command is no hold for a controller, but it cannot run two at once either.
        return self._handoff or self.hold_for(one.ticket.controller_id) or self._command_hold()

    def _standing(self, one: _Waiting, now: int) -> dict[str, Any]:
        """What everybody who is turned away hears: who has the tab, since when, its place, and when to try again."""
        hold = self._hold_against(one)
        holder, since, reason = (None, None, None) if hold is None else (hold.holder, hold.since, str(hold.reason))
        return {
            "holder": holder,
            "since": since,
            "reason": reason,
            "queueDepth": len(self._waiting),
            "position": self._position(one),
            "retry_after_ms": self._retry_ms(hold, now),
        }

    def _retry_ms(self, hold: Hold | None, now: int) -> int | None:
        if hold is None:
            return self._hold_times.retry_after_ms()
        # Nobody can tell how long a person takes.
        return None if hold.reason is HoldReason.HANDOFF else self._wait_ms(hold, now)

    def _wait_ms(self, hold: Hold, now: int) -> int:
        """When a newcomer may expect its turn: behind this hold and everybody who waits."""
        if hold.expires_at is not None:
            return bounded_retry_ms(hold.expires_at - now)
        return self._hold_times.retry_after_ms(len(self._waiting) + 1)

    # --- Giving back --------------------------------------------------------------------------------------------

    def leave(self, ticket_id: str, *, now: int) -> list[Ticket]:
        """The command has ended, or whoever waited withdrew. An id that is not here changes nothing."""
        if self._running is not None and self._running.ticket.id == ticket_id:
            if self._lock is None:
                self._hold_times.record(now - self._running.since)
            self._running = None
        elif self._waiting.pop(ticket_id, None) is None:
            return self.unlock(ticket_id, now)
        return self._settle(now)

    def unlock(self, ticket_id: str, now: int) -> list[Ticket]:
        """Give the tab lock back; a command of its owner that still runs finishes first."""
        if self._lock is None or self._lock.ticket.id != ticket_id:
            return []
        self._release_lock(now)
        return self._settle(now)

    def renew(self, ticket_id: str, lease_ms: int, now: int) -> TabLock:
        """Start the lock's lease anew, if it is still held."""
        assert lease_ms > 0
        lock = self._lock
        if lock is None or lock.ticket.id != ticket_id or lock.expires_at <= now:
            raise LockNotFound("This tab lock is no longer held.", action="Take the lock again.", ticket=ticket_id)
        self._lock = msgspec.structs.replace(lock, lease_ms=lease_ms, expires_at=now + lease_ms)
        return self._lock

    def _release_lock(self, now: int) -> TabLock | None:
        lock, self._lock = self._lock, None
        if lock is not None:
            self._hold_times.record(now - lock.since)
        return lock

    def next_expiry(self) -> int | None:
        """When to call `expire`; a running command's own time limit is not the gate's business."""
        times = [one.ticket.deadline_at for one in self._waiting.values()]
        if self._lock is not None:
            times.append(self._lock.expires_at)
        return min(times, default=None)

    def expire(self, now: int) -> Expired:
        """Take out those who waited too long and the lock whose lease is over."""
        timed_out = self._take(lambda ticket: ticket.deadline_at <= now)
        is_over = self._lock is not None and self._lock.expires_at <= now
        lock = self._release_lock(now) if is_over else None
        return Expired(timed_out=timed_out, lock=lock, granted=self._settle(now))

    def drop_controller(self, controller_id: str, now: int) -> Dropped:
        """The controller is gone: its places and its lock too. Its running command keeps the tab until it leaves."""
        waiting = self._take(lambda ticket: ticket.controller_id == controller_id)
        is_owner = self._lock is not None and self._lock.controller_id == controller_id
        lock = self._release_lock(now) if is_owner else None
        running = self.running
        if running is not None and running.controller_id != controller_id:
            running = None
        return Dropped(waiting=waiting, lock=lock, running=running, granted=self._settle(now))

    def close(self, now: int) -> Dropped:
        """The tab is gone for good: everything ends, nothing gets in any more."""
        self._is_closed = True
        waiting, running, lock = self._take(lambda ticket: True), self.running, self._release_lock(now)
        self._running = self._handoff = self._quarantine = None
        return Dropped(waiting=waiting, lock=lock, running=running, granted=self._settle(now))

    def _take(self, is_out: Callable[[Ticket], bool]) -> list[Ticket]:
        out = [one.ticket for one in self._waiting.values() if is_out(one.ticket)]
        for ticket in out:
            del self._waiting[ticket.id]
        return out

    # --- Holds --------------------------------------------------------------------------------------------------

    def quarantine(self, now: int) -> None:
        """A command timed out and may still act: nothing is granted until `lift`."""
        if self._quarantine is None:
            holder = self._running.ticket.controller_id if self._running else ""
            self._quarantine = Hold(reason=HoldReason.QUARANTINE, holder=holder, since=now)
        self._settle(now)

    def rebuild(self, now: int) -> None:
        """There is no page behind the tab for the moment: nothing is granted until `lift`."""
        self._quarantine = Hold(reason=HoldReason.REBUILD, holder="", since=now)
        self._settle(now)

    def lift(self, now: int) -> list[Ticket]:
        """The timed-out command is proven stopped, or there is a page again."""
        self._quarantine = None
        return self._settle(now)

    def pause(self, by: str, now: int) -> None:
        """A person takes the tab over: nothing is granted until `resume`; what runs finishes."""
        self._handoff = Hold(reason=HoldReason.HANDOFF, holder=by, since=now)
        self._settle(now)

    def resume(self, now: int) -> list[Ticket]:
        """The person gives the tab back."""
        self._handoff = None
        return self._settle(now)

    def hold_for(self, controller_id: str) -> Hold | None:
        """What that controller's CDP messages on this tab must wait for; test `is_held` first, it is cheaper."""
        if self._handoff is not None and self._handoff.holder != controller_id:
            return self._handoff
        if self._lock is not None and self._lock.controller_id != controller_id:
            lock = self._lock
            return Hold(
                reason=HoldReason.TAB_LOCK, holder=lock.controller_id, since=lock.since, expires_at=lock.expires_at
            )
        if self._quarantine is not None:
            return self._quarantine
        hold = self._command_hold()
        return hold if hold is not None and hold.holder != controller_id else None

    def watch(self, told: Callable[[], None]) -> None:
        """Call this after every change, from inside of it: it only takes note. Once is enough."""
        if told not in self._watchers:
            self._watchers = (*self._watchers, told)

    def tell(self) -> None:
        """Have those who watch look again: at the gate, or at whether its tab is still there."""
        for told in self._watchers:
            told()

    def unwatch(self, told: Callable[[], None]) -> None:
        """Call it no more. Idempotent."""
        self._watchers = tuple(other for other in self._watchers if other != told)

    def hold_refusal(self, hold: Hold, now: int) -> TabBusy | TabLocked | TabPausedHandoff:
        """What to tell a CDP client that does not want to wait for that hold."""
        return _refused_by(
            hold,
            {
                "holder": hold.holder,
                "since": hold.since,
                "reason": str(hold.reason),
                "retry_after_ms": self._retry_ms(hold, now),
            },
        )

    def _command_hold(self) -> Hold | None:
        if self._running is None:
            return None
        return Hold(reason=HoldReason.COMMAND, holder=self._running.ticket.controller_id, since=self._running.since)

    def describe(self, now: int) -> GateView:
        """Who has the tab, since when, who waits for it and in which order."""
        hold = self.hold_for("") or self._command_hold()
        return GateView(
            holder=self.running,
            since=self._running.since if self._running else None,
            lock=self._lock,
            waiters=[
                WaiterView(ticket=one.ticket, position=position, wants_lock=one.lease_ms is not None)
                for position, one in enumerate(self._in_grant_order(), 1)
            ],
            handoff=self._handoff,
            quarantine=self._quarantine,
            expected_wait_ms=0 if hold is None else self._wait_ms(hold, now),
        )


def _refused_by(hold: Hold, standing: dict[str, Any]) -> TabBusy | TabLocked | TabPausedHandoff:
    if hold.reason is HoldReason.HANDOFF:
        return TabPausedHandoff(f"{quoted(hold.holder)} has taken the tab over.", **standing)
    if hold.reason is HoldReason.TAB_LOCK:
        return TabLocked("Another controller holds this tab's lock.", lockExpiresAt=hold.expires_at, **standing)
    return TabBusy(_BUSY_WITH[hold.reason], **standing)
