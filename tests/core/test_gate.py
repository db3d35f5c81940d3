"""The tab gate, one behaviour at a time; `test_gate_histories.py` tries random histories."""

from __future__ import annotations

from typing import Any

import pytest

from tabherd.core.gate import Dropped, Entry, Expired, Gate, GateLimits, Granted, HoldReason, Queued, Ticket
from tabherd.errors import (
    ControllerQueueLimitExceeded,
    LockNotFound,
    QueueWaitTimedOut,
    StateConflict,
    TabBusy,
    TabherdError,
    TabLocked,
    TabNotFound,
    TabPausedHandoff,
    TabQueueLimitExceeded,
)

T0 = 1_000_000
LEASE_MS = 30_000


def ticket(id: str, controller_id: str | None = None, deadline_at: int = T0 + 600_000) -> Ticket:
    """A ticket; unless said otherwise the controller of `a1` is `a`."""
    return Ticket(
        id=id,
        controller_id=controller_id or id[0],
        agent_id="agent",
        label="click",
        entered_at=T0,
        deadline_at=deadline_at,
    )


def gate_of(**limits: int) -> Gate:
    return Gate(GateLimits(**limits))


def enter(gate: Gate, id: str, now: int = T0, *, may_wait: bool = True, mine: int = 0, **more: Any) -> Entry:
    return gate.enter(ticket(id, **more), now=now, may_wait=may_wait, controller_tickets=mine)


def lock(gate: Gate, id: str, now: int = T0, *, may_wait: bool = True, mine: int = 0, **more: Any) -> Entry:
    return gate.lock(ticket(id, **more), lease_ms=LEASE_MS, now=now, may_wait=may_wait, controller_tickets=mine)


def ids(tickets: list[Ticket]) -> list[str]:
    return [one.id for one in tickets]


def refused(kind: type[TabherdError], gate: Gate, id: str, now: int = T0) -> TabherdError:
    with pytest.raises(kind) as caught:
        enter(gate, id, now, may_wait=False)
    return caught.value


# --- Order ------------------------------------------------------------------------------------------------------


def test_a_free_tab_is_granted_at_once() -> None:
    assert isinstance(enter(gate_of(), "a1", may_wait=False), Granted)


def test_a_second_command_waits_with_its_position() -> None:
    gate = gate_of()
    enter(gate, "a1")
    positions = [answer.position for id in ("b1", "c1") if isinstance(answer := enter(gate, id), Queued)]
    assert positions == [1, 2]


def test_grants_follow_arrival() -> None:
    gate = gate_of()
    for id in ("a1", "b1", "a2", "c1"):
        enter(gate, id)
    assert [ids(gate.leave(id, now=T0)) for id in ("a1", "b1", "a2", "c1")] == [["b1"], ["a2"], ["c1"], []]


def test_a_newcomer_does_not_overtake_those_who_wait_out_a_quarantine() -> None:
    gate = gate_of()
    gate.quarantine(T0)
    enter(gate, "a1")
    enter(gate, "b1")
    assert ids(gate.lift(T0)) == ["a1"]
    assert isinstance(enter(gate, "c1"), Queued)


def test_a_waiter_that_withdraws_lets_the_next_move_up() -> None:
    gate = gate_of()
    for id in ("a1", "b1", "c1"):
        enter(gate, id)
    assert gate.leave("b1", now=T0) == []
    assert ids(gate.leave("a1", now=T0)) == ["c1"]


def test_an_unknown_ticket_leaves_without_effect() -> None:
    gate = gate_of()
    enter(gate, "a1")
    enter(gate, "b1")
    assert gate.leave("zz", now=T0) == []
    assert gate.running == ticket("a1")


def test_a_ticket_leaves_once() -> None:
    gate = gate_of()
    for id in ("a1", "b1", "c1"):
        enter(gate, id)
    gate.leave("a1", now=T0)
    assert gate.leave("a1", now=T0) == []
    assert gate.running == ticket("b1")


# --- Refusals ---------------------------------------------------------------------------------------------------


def test_fail_fast_on_a_busy_tab_says_who_has_it_since_when_and_how_many_wait() -> None:
    gate = gate_of()
    enter(gate, "a1")
    enter(gate, "b1")
    error = refused(TabBusy, gate, "c1", T0 + 5)
    assert error.details == {"holder": "a", "since": T0, "reason": "command", "queueDepth": 1, "position": 2}


def test_fail_fast_leaves_no_trace() -> None:
    gate = gate_of()
    enter(gate, "a1")
    refused(TabBusy, gate, "c1")
    assert gate.tickets == 1
    assert gate.leave("a1", now=T0) == []


def test_fail_fast_behind_its_own_command_is_busy_too() -> None:
    gate = gate_of()
    enter(gate, "a1")
    assert refused(TabBusy, gate, "a2").details["holder"] == "a"


def test_retry_after_is_learned_from_how_long_the_tab_was_held() -> None:
    gate = gate_of()
    for number in range(5):
        enter(gate, f"a{number}", T0)
        gate.leave(f"a{number}", now=T0 + 200)
    enter(gate, "a9", T0)
    enter(gate, "b1", T0)
    # The holder and one waiter are ahead.
    assert refused(TabBusy, gate, "c1").retry_after_ms == 400


def test_fail_fast_on_a_locked_tab_says_when_the_lock_ends() -> None:
    gate = gate_of()
    lock(gate, "a1")
    error = refused(TabLocked, gate, "b1", T0 + 10_000)
    assert error.retry_after_ms == 20_000
    assert error.details["lockExpiresAt"] == T0 + LEASE_MS
    assert error.details["holder"] == "a"


def test_fail_fast_on_a_quarantined_tab_is_busy_and_says_why() -> None:
    gate = gate_of()
    enter(gate, "a1")
    gate.quarantine(T0 + 7)
    gate.leave("a1", now=T0 + 8)
    error = refused(TabBusy, gate, "b1")
    assert (error.details["reason"], error.details["holder"], error.details["since"]) == ("quarantine", "a", T0 + 7)


def test_fail_fast_on_a_paused_tab_names_the_person() -> None:
    gate = gate_of()
    gate.pause("ann", T0)
    error = refused(TabPausedHandoff, gate, "a1")
    assert (error.details["holder"], error.message) == ("ann", '"ann" has taken the tab over.')
    assert error.retry_after_ms is None


def test_the_owner_of_a_lock_is_refused_with_its_place_among_its_own_commands() -> None:
    gate = gate_of()
    lock(gate, "a1")
    for id in ("a2", "b1", "c1"):
        enter(gate, id)
    assert refused(TabBusy, gate, "a3").details["position"] == 1
    assert refused(TabLocked, gate, "b2").details["position"] == 3


def test_whoever_waited_in_vain_hears_who_had_the_tab_and_how_far_it_came() -> None:
    gate = gate_of()
    enter(gate, "a1")
    enter(gate, "b1")
    enter(gate, "c1", deadline_at=T0 + 100)
    error = gate.too_late("c1", T0 + 100)
    assert error.details == {"holder": "a", "since": T0, "reason": "command", "queueDepth": 2, "position": 2}
    assert error.retry_after_ms


def test_whoever_is_granted_in_the_moment_its_time_ends_has_nobody_before_it() -> None:
    gate = gate_of()
    enter(gate, "a1")
    assert gate.too_late("a1", T0).details == {}


def test_a_controller_at_its_limit_on_a_free_tab_is_held_up_by_nobody() -> None:
    with pytest.raises(ControllerQueueLimitExceeded) as caught:
        enter(gate_of(), "a1", mine=100)
    assert (caught.value.details["holder"], caught.value.details["position"]) == (None, 1)
    assert caught.value.retry_after_ms


def test_a_command_whose_time_is_over_does_not_get_in() -> None:
    with pytest.raises(QueueWaitTimedOut):
        enter(gate_of(), "a1", deadline_at=T0)


# --- Limits -----------------------------------------------------------------------------------------------------


def test_the_tab_takes_twenty_tickets_and_no_more() -> None:
    gate = gate_of()
    for number in range(20):
        enter(gate, f"{'abcd'[number % 4]}{number}")
    with pytest.raises(TabQueueLimitExceeded) as caught:
        enter(gate, "e1")
    details = caught.value.details
    assert (details["count"], details["cap"], details["queueDepth"], details["position"]) == (20, 20, 19, 20)
    assert (details["holder"], details["since"]) == ("a", T0)
    assert caught.value.retry_after_ms is not None


def test_one_controller_takes_half_of_a_tabs_tickets_and_no_more() -> None:
    gate = gate_of()
    for number in range(10):
        enter(gate, f"a{number}")
    with pytest.raises(TabQueueLimitExceeded) as caught:
        enter(gate, "az")
    assert (caught.value.details["count"], caught.value.details["cap"]) == (10, 10)
    assert isinstance(enter(gate, "b1"), Queued)


def test_one_controller_takes_a_hundred_tickets_over_all_tabs_and_no_more() -> None:
    assert isinstance(enter(gate_of(), "a1", mine=99), Granted)
    with pytest.raises(ControllerQueueLimitExceeded) as caught:
        enter(gate_of(), "a1", mine=100)
    assert (caught.value.details["count"], caught.value.details["cap"]) == (100, 100)


def test_a_place_that_was_left_can_be_taken_again() -> None:
    gate = gate_of(tickets_per_tab=2)
    enter(gate, "a1")
    enter(gate, "b1")
    gate.leave("b1", now=T0)
    assert isinstance(enter(gate, "c1"), Queued)


def test_a_refused_ticket_takes_no_place() -> None:
    gate = gate_of(tickets_per_tab=2)
    enter(gate, "a1")
    with pytest.raises(TabQueueLimitExceeded):
        enter(gate, "a2")
    assert (gate.tickets, gate.tickets_of("a")) == (1, 1)


def test_on_a_full_tab_the_owner_of_the_lock_can_still_use_it() -> None:
    gate = gate_of(tickets_per_tab=2)
    lock(gate, "a1", mine=0)
    enter(gate, "b1")
    assert isinstance(enter(gate, "a2", mine=100), Granted)
    assert gate.tickets == 2


def test_the_place_that_a_lock_lends_is_not_free_for_others() -> None:
    gate = gate_of(tickets_per_tab=2)
    lock(gate, "a1")
    enter(gate, "b1")
    with pytest.raises(TabQueueLimitExceeded):
        enter(gate, "c1")


def test_a_tab_with_one_place_can_be_locked_and_used() -> None:
    gate = gate_of(tickets_per_tab=1)
    lock(gate, "a1")
    assert isinstance(enter(gate, "a2"), Granted)


# --- Time -------------------------------------------------------------------------------------------------------


def test_waiting_too_long_times_out() -> None:
    gate = gate_of()
    enter(gate, "a1")
    enter(gate, "b1", deadline_at=T0 + 100)
    enter(gate, "c1", deadline_at=T0 + 50)
    assert gate.next_expiry() == T0 + 50
    assert ids(gate.expire(T0 + 99).timed_out) == ["c1"]
    assert ids(gate.expire(T0 + 100).timed_out) == ["b1"]
    assert gate.next_expiry() is None


def test_the_running_command_is_not_the_gates_to_time_out() -> None:
    gate = gate_of()
    enter(gate, "a1", deadline_at=T0 + 100)
    assert gate.next_expiry() is None
    assert gate.expire(T0 + 500) == Expired(timed_out=[], lock=None, granted=[])


def test_a_waiter_past_its_deadline_is_passed_over_and_still_reported() -> None:
    gate = gate_of()
    enter(gate, "a1")
    enter(gate, "b1", deadline_at=T0 + 50)
    enter(gate, "c1")
    assert ids(gate.leave("a1", now=T0 + 50)) == ["c1"]
    assert ids(gate.expire(T0 + 51).timed_out) == ["b1"]


# --- Tab locks --------------------------------------------------------------------------------------------------


def test_a_lock_on_a_free_tab_is_granted_with_its_lease() -> None:
    answer = lock(gate_of(), "a1", may_wait=False)
    assert isinstance(answer, Granted)
    assert answer.lock is not None
    assert (answer.lock.controller_id, answer.lock.expires_at) == ("a", T0 + LEASE_MS)


def test_under_a_lock_only_the_owners_commands_pass() -> None:
    gate = gate_of()
    lock(gate, "a1")
    assert isinstance(enter(gate, "b1"), Queued)
    assert isinstance(enter(gate, "a2"), Granted)
    assert gate.leave("a2", now=T0) == []
    assert isinstance(enter(gate, "a3"), Granted)


def test_the_owners_commands_run_one_at_a_time_in_order() -> None:
    gate = gate_of()
    lock(gate, "a1")
    for id in ("a2", "b1", "a3", "a4"):
        enter(gate, id)
    assert [ids(gate.leave(id, now=T0)) for id in ("a2", "a3", "a4")] == [["a3"], ["a4"], []]


def test_a_lock_request_waits_its_turn() -> None:
    gate = gate_of()
    enter(gate, "b1")
    enter(gate, "c1")
    assert isinstance(lock(gate, "a1"), Queued)
    enter(gate, "d1")
    assert ids(gate.leave("b1", now=T0)) == ["c1"]
    assert ids(gate.leave("c1", now=T0 + 9)) == ["a1"]
    assert gate.tab_lock is not None
    assert gate.tab_lock.expires_at == T0 + 9 + LEASE_MS


def test_a_granted_lock_lets_its_owners_first_command_in_at_once() -> None:
    gate = gate_of()
    enter(gate, "b1")
    lock(gate, "a1")
    enter(gate, "c1")
    enter(gate, "a2")
    assert ids(gate.leave("b1", now=T0)) == ["a1", "a2"]


def test_the_position_counts_that_the_owner_goes_first() -> None:
    gate = gate_of()
    lock(gate, "a1")
    enter(gate, "a2")
    enter(gate, "b1")
    assert enter(gate, "a3") == Queued(ticket("a3"), 1)
    assert [(one.ticket.id, one.position) for one in gate.describe(T0).waiters] == [("a3", 1), ("b1", 2)]


def test_unlocking_resumes_the_fifo() -> None:
    gate = gate_of()
    lock(gate, "a1")
    enter(gate, "b1")
    enter(gate, "c1")
    assert ids(gate.unlock("a1", T0)) == ["b1"]
    assert gate.tab_lock is None


def test_unlocking_with_another_ticket_does_nothing() -> None:
    gate = gate_of()
    lock(gate, "a1")
    enter(gate, "b1")
    assert gate.unlock("b1", T0) == []
    assert gate.tab_lock is not None


def test_leaving_with_the_locks_ticket_unlocks() -> None:
    gate = gate_of()
    lock(gate, "a1")
    enter(gate, "b1")
    assert ids(gate.leave("a1", now=T0)) == ["b1"]


def test_a_lock_expires_and_its_holder_can_be_told() -> None:
    gate = gate_of()
    lock(gate, "a1")
    enter(gate, "b1")
    assert gate.next_expiry() == T0 + LEASE_MS
    assert gate.expire(T0 + LEASE_MS - 1).lock is None
    expired = gate.expire(T0 + LEASE_MS)
    assert expired.lock is not None
    assert expired.lock.ticket.id == "a1"
    assert ids(expired.granted) == ["b1"]


def test_a_lock_that_expires_under_its_running_command_lets_it_finish_first() -> None:
    gate = gate_of()
    lock(gate, "a1")
    enter(gate, "a2")
    enter(gate, "b1")
    enter(gate, "a3")
    expired = gate.expire(T0 + LEASE_MS)
    assert expired.lock is not None
    assert expired.granted == []
    assert ids(gate.leave("a2", now=T0 + LEASE_MS)) == ["b1"]


def test_renewing_starts_the_lease_anew() -> None:
    gate = gate_of()
    lock(gate, "a1")
    assert gate.renew("a1", 5_000, T0 + 29_999).expires_at == T0 + 34_999
    assert gate.expire(T0 + LEASE_MS).lock is None


def test_an_expired_lock_cannot_be_renewed_even_before_it_is_taken_away() -> None:
    gate = gate_of()
    lock(gate, "a1")
    with pytest.raises(LockNotFound):
        gate.renew("a1", LEASE_MS, T0 + LEASE_MS)


def test_a_lock_can_be_renewed_only_with_its_ticket() -> None:
    gate = gate_of()
    lock(gate, "a1")
    with pytest.raises(LockNotFound):
        gate.renew("a2", LEASE_MS, T0)


def test_asking_again_for_a_lock_one_holds_is_a_conflict_that_names_the_ticket() -> None:
    gate = gate_of()
    lock(gate, "a1")
    with pytest.raises(StateConflict) as caught:
        lock(gate, "a2")
    assert caught.value.details["ticket"] == "a1"


def test_a_lock_is_refused_while_another_holds_it() -> None:
    gate = gate_of()
    lock(gate, "a1")
    with pytest.raises(TabLocked):
        lock(gate, "b1", may_wait=False)


def test_two_locks_follow_each_other() -> None:
    gate = gate_of()
    lock(gate, "a1")
    lock(gate, "b1")
    assert ids(gate.unlock("a1", T0)) == ["b1"]
    assert gate.tab_lock is not None
    assert gate.tab_lock.controller_id == "b"


def test_a_second_lock_request_of_the_owner_does_not_slip_through_its_first_lock() -> None:
    gate = gate_of()
    enter(gate, "b1")
    lock(gate, "a1")
    lock(gate, "a2")
    assert ids(gate.leave("b1", now=T0)) == ["a1"]
    assert ids(gate.unlock("a1", T0)) == ["a2"]


def test_a_lock_counts_as_one_hold_whatever_ran_under_it() -> None:
    gate = gate_of()
    lock(gate, "a1")
    for number in range(2, 9):
        enter(gate, f"a{number}")
        gate.leave(f"a{number}", now=T0 + 100)
    gate.unlock("a1", T0 + 9_000)
    enter(gate, "a1")
    assert refused(TabBusy, gate, "b1").retry_after_ms == 9_000


# --- Holds ------------------------------------------------------------------------------------------------------


def test_nothing_is_granted_under_a_quarantine() -> None:
    gate = gate_of()
    enter(gate, "a1")
    enter(gate, "b1")
    gate.quarantine(T0)
    assert gate.leave("a1", now=T0) == []
    assert isinstance(enter(gate, "c1"), Queued)
    assert ids(gate.lift(T0)) == ["b1"]


def test_nothing_is_granted_under_a_handoff() -> None:
    gate = gate_of()
    enter(gate, "a1")
    enter(gate, "b1")
    gate.pause("ann", T0)
    assert gate.leave("a1", now=T0) == []
    assert ids(gate.resume(T0)) == ["b1"]


def test_a_quarantine_outlasts_a_handoff() -> None:
    gate = gate_of()
    gate.quarantine(T0)
    gate.pause("ann", T0)
    enter(gate, "a1")
    assert gate.resume(T0) == []
    assert ids(gate.lift(T0)) == ["a1"]


def test_a_second_quarantine_does_not_restart_the_first() -> None:
    gate = gate_of()
    gate.quarantine(T0)
    gate.quarantine(T0 + 9)
    hold = gate.hold_for("a")
    assert hold is not None
    assert hold.since == T0


def test_a_free_gate_holds_nobody() -> None:
    gate = gate_of()
    assert not gate.is_held
    assert gate.hold_for("a") is None


def test_a_running_command_holds_every_other_controller() -> None:
    gate = gate_of()
    enter(gate, "a1")
    hold = gate.hold_for("b")
    assert gate.is_held
    assert hold is not None
    assert (hold.reason, hold.holder, hold.since) == (HoldReason.COMMAND, "a", T0)
    assert gate.hold_for("a") is None


def test_a_tab_lock_holds_every_other_controller() -> None:
    gate = gate_of()
    lock(gate, "a1")
    hold = gate.hold_for("b")
    assert gate.is_held
    assert hold is not None
    assert (hold.reason, hold.expires_at) == (HoldReason.TAB_LOCK, T0 + LEASE_MS)
    assert gate.hold_for("a") is None


def test_a_quarantine_holds_everybody() -> None:
    gate = gate_of()
    enter(gate, "a1")
    gate.quarantine(T0)
    holds = [gate.hold_for(controller_id) for controller_id in ("a", "b")]
    assert [hold.reason for hold in holds if hold] == [HoldReason.QUARANTINE] * 2


def test_a_handoff_holds_everybody_but_the_person() -> None:
    gate = gate_of()
    gate.pause("ann", T0)
    hold = gate.hold_for("a")
    assert hold is not None
    assert hold.reason is HoldReason.HANDOFF
    assert gate.hold_for("ann") is None


def test_the_hold_ends_with_what_caused_it() -> None:
    gate = gate_of()
    lock(gate, "a1")
    enter(gate, "a2")
    gate.expire(T0 + LEASE_MS)
    assert gate.is_held
    gate.leave("a2", now=T0 + LEASE_MS)
    assert not gate.is_held


# --- Leaving ----------------------------------------------------------------------------------------------------


def test_a_disconnect_drops_places_and_lock_and_names_the_running_command() -> None:
    gate = gate_of()
    lock(gate, "a1")
    for id in ("a2", "a3", "b1"):
        enter(gate, id)
    dropped = gate.drop_controller("a", T0)
    assert ids(dropped.waiting) == ["a3"]
    assert dropped.lock is not None
    assert dropped.running == ticket("a2")
    assert dropped.granted == []
    assert ids(gate.leave("a2", now=T0)) == ["b1"]


def test_a_disconnect_of_the_lock_owner_grants_the_next() -> None:
    gate = gate_of()
    lock(gate, "a1")
    enter(gate, "b1")
    assert ids(gate.drop_controller("a", T0).granted) == ["b1"]


def test_a_disconnect_touches_nothing_of_others() -> None:
    gate = gate_of()
    lock(gate, "a1")
    enter(gate, "a2")
    enter(gate, "c1")
    assert gate.drop_controller("b", T0) == Dropped(waiting=[], lock=None, running=None, granted=[])
    assert gate.tickets == 2


def test_closing_the_tab_ends_everything() -> None:
    gate = gate_of()
    lock(gate, "a1")
    enter(gate, "a2")
    enter(gate, "b1")
    gate.quarantine(T0)
    dropped = gate.close(T0)
    assert (ids(dropped.waiting), dropped.running, dropped.granted) == (["b1"], ticket("a2"), [])
    assert dropped.lock is not None
    assert not gate.is_held


def test_a_closed_tab_is_not_found() -> None:
    gate = gate_of()
    gate.close(T0)
    with pytest.raises(TabNotFound):
        enter(gate, "a1")


# --- Rebuild ----------------------------------------------------------------------------------------------------


def test_nothing_is_granted_while_there_is_no_page() -> None:
    gate = gate_of()
    gate.rebuild(T0)
    assert isinstance(enter(gate, "a1"), Queued)
    assert gate.leave("a1", now=T0) == []
    assert isinstance(enter(gate, "b1"), Queued)
    assert ids(gate.lift(T0)) == ["b1"]


def test_who_does_not_want_to_wait_for_a_rebuild_hears_of_it() -> None:
    gate = gate_of()
    gate.rebuild(T0)
    error = refused(TabBusy, gate, "a1", T0 + 7)
    assert (error.details["reason"], error.details["holder"], error.details["since"]) == ("rebuild", "", T0)
    assert error.retry_after_ms


def test_the_command_at_work_when_its_page_died_keeps_its_place_until_it_leaves() -> None:
    gate = gate_of()
    enter(gate, "a1")
    enter(gate, "b1")
    gate.rebuild(T0)
    assert gate.lift(T0) == []
    assert gate.running == ticket("a1")
    assert ids(gate.leave("a1", now=T0)) == ["b1"]


def test_a_page_that_dies_under_a_quarantine_is_rebuilt_under_the_same_hold() -> None:
    gate = gate_of()
    gate.quarantine(T0)
    gate.rebuild(T0 + 1)
    gate.quarantine(T0 + 2)
    hold = gate.hold_for("a")
    assert hold is not None
    assert (hold.reason, hold.since) == (HoldReason.REBUILD, T0 + 1)
    gate.lift(T0 + 3)
    assert not gate.is_held


def test_a_rebuild_does_not_end_a_handoff_or_a_lock() -> None:
    gate = gate_of()
    lock(gate, "a1")
    gate.pause("alice", T0)
    gate.rebuild(T0)
    gate.lift(T0)
    assert gate.hold_for("b") == gate.describe(T0).handoff
    gate.resume(T0)
    held = gate.hold_for("b")
    assert held is not None
    assert held.reason is HoldReason.TAB_LOCK


# --- Description ------------------------------------------------------------------------------------------------


def test_the_description_names_holder_lock_waiters_and_holds() -> None:
    gate = gate_of()
    lock(gate, "a1", T0)
    enter(gate, "a2", T0 + 1)
    lock(gate, "b1", T0 + 2)
    enter(gate, "c1", T0 + 3)
    gate.quarantine(T0 + 4)
    view = gate.describe(T0 + 5)
    assert view.holder == ticket("a2")
    assert view.since == T0 + 1
    assert view.lock == gate.tab_lock
    assert [(one.ticket.id, one.position, one.wants_lock) for one in view.waiters] == [
        ("b1", 1, True),
        ("c1", 2, False),
    ]
    assert view.quarantine is not None
    assert view.handoff is None
    assert view.expected_wait_ms == LEASE_MS - 5


def test_a_free_gate_promises_no_wait() -> None:
    view = gate_of().describe(T0)
    assert (view.holder, view.lock, view.waiters, view.expected_wait_ms) == (None, None, [], 0)
