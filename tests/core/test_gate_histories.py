"""Random histories of one tab gate: whatever happens in whatever order, what the gate promises stays true.

A failing history of hypothesis is printed as the calls that lead to it, and running this file again replays it; a
long one is named by its seed: `pytest tests/core/test_gate_histories.py -k 'promise and 7'`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tabherd.core.gate import Gate, GateLimits, Granted, Queued, TabLock, Ticket
from tabherd.errors import (
    Busy,
    ControllerQueueLimitExceeded,
    QueueWaitTimedOut,
    StateConflict,
    TabPausedHandoff,
    TabQueueLimitExceeded,
)

CONTROLLERS = ("a", "b", "c")
controllers = st.sampled_from(CONTROLLERS)
timeouts = st.sampled_from([5_000, 500, 50, 0])
tickets_elsewhere = st.sampled_from([0, 0, 0, 8])
LIMITS = GateLimits(tickets_per_tab=6, tickets_per_controller=9)


class GateHistories(RuleBasedStateMachine):
    """Drives a gate and keeps its own, naive, record of who should be where."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate(LIMITS)
        self.now = 1_000
        self.entered = 0
        # Arrival order; the value says whether it asks for the lock.
        self.waiting: dict[Ticket, bool] = {}
        self.running: Ticket | None = None
        self.lock: Ticket | None = None
        self.lock_expires_at = 0
        self.is_quarantined = False
        self.is_paused = False
        # How often each ticket that got in has ended.
        self.ends: dict[str, int] = {}

    # --- The record ---------------------------------------------------------------------------------------------

    def grants(self, tickets: list[Ticket]) -> None:
        """Check each grant against the rules, then record it."""
        for ticket in tickets:
            assert not self.is_quarantined, "granted under a quarantine"
            assert not self.is_paused, "granted under a handoff"
            assert self.running is None, "two commands at once"
            assert ticket.deadline_at > self.now, "granted past its deadline"
            assert ticket == self.expected_next(), "granted out of order"
            if self.waiting.pop(ticket):
                self.lock = ticket
                assert self.gate.tab_lock is not None
                self.lock_expires_at = self.gate.tab_lock.expires_at
            else:
                self.running = ticket

    def expected_next(self) -> Ticket | None:
        for ticket, wants_lock in self.waiting.items():
            is_shut_out = self.lock is not None and (wants_lock or ticket.controller_id != self.lock.controller_id)
            if ticket.deadline_at > self.now and not is_shut_out:
                return ticket
        return None

    def ended(self, ticket: Ticket) -> None:
        self.ends[ticket.id] += 1

    def released(self, lock: TabLock | None) -> None:
        if lock is not None:
            assert lock.ticket == self.lock
            self.ended(lock.ticket)
            self.lock = None

    def places(self, controller_id: str) -> int:
        """Tickets of one controller; a lock is one of them until a command of its owner takes its place."""
        of_commands = sum(
            ticket.controller_id == controller_id
            for ticket in [*(ticket for ticket, wants_lock in self.waiting.items() if not wants_lock), self.running]
            if ticket is not None
        )
        of_lock_requests = sum(
            wants_lock and ticket.controller_id == controller_id for ticket, wants_lock in self.waiting.items()
        )
        has_lock = self.lock is not None and self.lock.controller_id == controller_id
        return of_lock_requests + max(of_commands, int(has_lock))

    # --- What can happen ----------------------------------------------------------------------------------------

    @rule(controller_id=controllers, may_wait=st.booleans(), timeout_ms=timeouts, elsewhere=tickets_elsewhere)
    def ask_to_run(self, controller_id: str, may_wait: bool, timeout_ms: int, elsewhere: int) -> None:
        self.ask(controller_id, may_wait, timeout_ms, None, elsewhere)

    @rule(controller_id=controllers, may_wait=st.booleans(), lease_ms=st.sampled_from([40, 400, 4_000]))
    def ask_for_the_lock(self, controller_id: str, may_wait: bool, lease_ms: int) -> None:
        self.ask(controller_id, may_wait, 5_000, lease_ms, 0)

    def ask(self, controller_id: str, may_wait: bool, timeout_ms: int, lease_ms: int | None, elsewhere: int) -> None:
        self.entered += 1
        ticket = Ticket(
            id=f"t{self.entered}",
            controller_id=controller_id,
            agent_id="agent",
            label="click",
            entered_at=self.now,
            deadline_at=self.now + timeout_ms,
        )
        mine = self.places(controller_id)
        total = sum(map(self.places, CONTROLLERS))
        is_owner = self.lock is not None and self.lock.controller_id == controller_id
        is_lent = lease_ms is None and is_owner and not self.has_command(controller_id)
        call: dict[str, Any] = {"now": self.now, "may_wait": may_wait, "controller_tickets": mine + elsewhere}
        try:
            if lease_ms is None:
                answer = self.gate.enter(ticket, **call)
            else:
                answer = self.gate.lock(ticket, lease_ms=lease_ms, **call)
        except (Busy, TabPausedHandoff):
            assert not may_wait
            self.waiting[ticket] = lease_ms is not None
            is_next = self.expected_next() is ticket
            del self.waiting[ticket]
            assert self.running or self.is_quarantined or self.is_paused or not is_next, "refused although free"
        except TabQueueLimitExceeded:
            assert not is_lent
            assert total == LIMITS.tickets_per_tab or mine == LIMITS.share_per_controller
        except ControllerQueueLimitExceeded:
            assert not is_lent
            assert mine + elsewhere >= LIMITS.tickets_per_controller
        except QueueWaitTimedOut:
            assert timeout_ms == 0
        except StateConflict:
            assert lease_ms is not None
            assert is_owner
        else:
            self.ends[ticket.id] = 0
            self.waiting[ticket] = lease_ms is not None
            if isinstance(answer, Granted):
                self.grants([ticket])
                assert (answer.lock is not None) is (lease_ms is not None)
            else:
                assert isinstance(answer, Queued)
                assert may_wait
                assert 1 <= answer.position <= len(self.waiting)

    def has_command(self, controller_id: str) -> bool:
        waits = any(not lock and ticket.controller_id == controller_id for ticket, lock in self.waiting.items())
        return waits or (self.running is not None and self.running.controller_id == controller_id)

    @precondition(lambda self: self.running)
    @rule()
    def finish(self) -> None:
        assert self.running is not None
        ticket, self.running = self.running, None
        self.ended(ticket)
        self.grants(self.gate.leave(ticket.id, now=self.now))

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 5))
    def withdraw(self, which: int) -> None:
        ticket = list(self.waiting)[which % len(self.waiting)]
        del self.waiting[ticket]
        self.ended(ticket)
        self.grants(self.gate.leave(ticket.id, now=self.now))

    @rule(which=st.integers(0, 50))
    def leave_again(self, which: int) -> None:
        gone = [id for id, count in self.ends.items() if count]
        assert self.gate.leave((gone or ["unknown"])[which % max(1, len(gone))], now=self.now) == []

    @precondition(lambda self: self.lock)
    @rule()
    def unlock(self) -> None:
        assert self.lock is not None
        ticket, self.lock = self.lock, None
        self.ended(ticket)
        self.grants(self.gate.unlock(ticket.id, self.now))

    @precondition(lambda self: self.lock and self.lock_expires_at > self.now)
    @rule(lease_ms=st.integers(1, 300))
    def renew(self, lease_ms: int) -> None:
        assert self.lock is not None
        renewed = self.gate.renew(self.lock.id, lease_ms, self.now)
        self.lock_expires_at = self.now + lease_ms
        assert renewed.expires_at == self.lock_expires_at

    @rule(wait_ms=st.sampled_from([10, 100, 1_000]))
    def time_passes(self, wait_ms: int) -> None:
        self.now += wait_ms

    @rule()
    def expire(self) -> None:
        expected = [ticket for ticket in self.waiting if ticket.deadline_at <= self.now]
        is_lock_over = self.lock is not None and self.lock_expires_at <= self.now
        expired = self.gate.expire(self.now)
        assert expired.timed_out == expected
        assert (expired.lock is not None) is is_lock_over
        for ticket in expected:
            del self.waiting[ticket]
            self.ended(ticket)
        self.released(expired.lock)
        self.grants(expired.granted)
        next_expiry = self.gate.next_expiry()
        assert next_expiry is None or next_expiry > self.now

    @rule(controller_id=controllers)
    def disconnect(self, controller_id: str) -> None:
        expected = [ticket for ticket in self.waiting if ticket.controller_id == controller_id]
        dropped = self.gate.drop_controller(controller_id, self.now)
        assert dropped.waiting == expected
        for ticket in expected:
            del self.waiting[ticket]
            self.ended(ticket)
        is_running = self.running is not None and self.running.controller_id == controller_id
        assert dropped.running == (self.running if is_running else None)
        is_owner = self.lock is not None and self.lock.controller_id == controller_id
        assert (dropped.lock is not None) is is_owner
        self.released(dropped.lock)
        self.grants(dropped.granted)

    @precondition(lambda self: self.running and not self.is_quarantined)
    @rule()
    def time_out_into_quarantine(self) -> None:
        self.is_quarantined = True
        self.gate.quarantine(self.now)
        self.finish()

    @precondition(lambda self: self.is_quarantined)
    @rule()
    def lift(self) -> None:
        self.is_quarantined = False
        self.grants(self.gate.lift(self.now))

    @precondition(lambda self: not self.is_paused)
    @rule()
    def pause(self) -> None:
        self.is_paused = True
        self.gate.pause("ann", self.now)

    @precondition(lambda self: self.is_paused)
    @rule()
    def resume(self) -> None:
        self.is_paused = False
        self.grants(self.gate.resume(self.now))

    # --- What stays true ----------------------------------------------------------------------------------------

    @invariant()
    def every_promise_is_kept(self) -> None:
        self.the_gate_agrees_with_the_record()
        self.no_grant_is_owed()
        self.the_limits_hold()
        self.every_ticket_is_in_one_place_or_ended_once()
        self.holds_bind_exactly_the_others()

    def the_gate_agrees_with_the_record(self) -> None:
        view = self.gate.describe(self.now)
        assert view.holder == self.running
        assert (view.lock.ticket if view.lock else None) == self.lock
        assert {one.ticket for one in view.waiters} == set(self.waiting)
        assert [one.position for one in view.waiters] == list(range(1, len(self.waiting) + 1))

    def no_grant_is_owed(self) -> None:
        is_free = not (self.running or self.is_quarantined or self.is_paused)
        assert not (is_free and self.expected_next())

    def the_limits_hold(self) -> None:
        counts = {controller_id: self.places(controller_id) for controller_id in CONTROLLERS}
        assert {controller_id: self.gate.tickets_of(controller_id) for controller_id in CONTROLLERS} == counts
        assert self.gate.tickets == sum(counts.values()) <= LIMITS.tickets_per_tab
        assert max(counts.values()) <= LIMITS.share_per_controller

    def every_ticket_is_in_one_place_or_ended_once(self) -> None:
        inside = [ticket.id for ticket in [*self.waiting, self.running, self.lock] if ticket]
        assert len(inside) == len(set(inside))
        assert all(count == (0 if id in inside else 1) for id, count in self.ends.items())

    def holds_bind_exactly_the_others(self) -> None:
        assert self.gate.is_held is bool(self.running or self.lock or self.is_quarantined or self.is_paused)
        for controller_id in CONTROLLERS:
            is_shut_out = (
                self.is_quarantined
                or self.is_paused
                or any(one is not None and one.controller_id != controller_id for one in (self.running, self.lock))
            )
            assert (self.gate.hold_for(controller_id) is not None) is is_shut_out

    def teardown(self) -> None:
        dropped = self.gate.close(self.now)
        for ticket in dropped.waiting:
            self.ended(ticket)
        if dropped.running:
            self.ended(dropped.running)
        if dropped.lock:
            self.ended(dropped.lock.ticket)
        assert dropped.granted == []
        assert set(self.ends.values()) <= {1}


# Short histories, chosen and shrunk by hypothesis.
TestGateHistories = GateHistories.TestCase
TestGateHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("seed", range(12))
def test_a_long_busy_life_keeps_every_promise(seed: int) -> None:
    chance = random.Random(seed)
    life = GateHistories()
    for _ in range(800):
        who, may_wait, timeout_ms = (
            chance.choice(CONTROLLERS),
            chance.random() < 0.8,
            chance.choice([9_000, 500, 50, 0]),
        )
        # Weights keep the gate contended: about as many come as go, and holds do not last.
        steps: list[tuple[float, bool, Callable[[], None]]] = [
            (8, True, partial(life.ask, who, may_wait, timeout_ms, None, 0)),
            (0.5, True, partial(life.ask, who, True, 9_000, None, 8)),
            (1, True, partial(life.ask, who, may_wait, 9_000, chance.choice([40, 4_000]), 0)),
            (6, life.running is not None, life.finish),
            (1, bool(life.waiting), partial(life.withdraw, chance.randrange(6))),
            (0.5, True, partial(life.leave_again, chance.randrange(50))),
            (0.5, life.lock is not None, life.unlock),
            (0.5, life.lock is not None and life.lock_expires_at > life.now, partial(life.renew, 500)),
            (2, True, partial(life.time_passes, chance.choice([10, 100]))),
            (1, True, life.expire),
            (0.3, True, partial(life.disconnect, who)),
            (0.4, life.running is not None and not life.is_quarantined, life.time_out_into_quarantine),
            (3, life.is_quarantined, life.lift),
            (0.3, not life.is_paused, life.pause),
            (3, life.is_paused, life.resume),
        ]
        possible = [(weight, step) for weight, is_possible, step in steps if is_possible]
        [(_, step)] = chance.choices(possible, [weight for weight, _ in possible])
        step()
        life.every_promise_is_kept()
    life.teardown()
