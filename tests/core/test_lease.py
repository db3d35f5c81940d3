"""Leases: when they end, who is reaped and who never is, and which fence is stale."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabherd.core.lease import (
    EXPIRY_RULES,
    Evidence,
    ExpiryRule,
    Keep,
    LeaseTimes,
    OwnerProcess,
    Reap,
    ReapReason,
    check_fence,
    command_deadline_at,
    deadline_at,
    expiring_at,
    lock_lease_ms,
    rule_of,
    verdict,
)
from tabherd.core.lifecycle import LeaseState
from tabherd.core.model import Session, changed
from tabherd.errors import InvalidRequest, LeaseLost

T0 = 1_700_000_000_000
SECOND = 1_000
HOUR = 3_600 * SECOND
TIMES = LeaseTimes()
TIERS = {"instant": 120, "default": 1_200, "pro": 3_600, "deep": 3_600}
NOTHING = Evidence()
WORKING = Evidence(has_work=True)


def lease(**fields: Any) -> Session:
    base: dict[str, Any] = {
        "id": "ses_1",
        "state": LeaseState.ACTIVE,
        "agent_id": "alice",
        "pool": "default",
        "fence": 42,
        "created_at": T0,
        "heartbeat_at": T0,
        "deadline_at": T0 + 10 * HOUR,
    }
    return Session(**{**base, **fields})


BARE = lease()
BEATING = lease(is_beating=True)
NAMED = lease(owner_pid=7, owner_started=8)
KEPT = lease(keep_alive=True)
BOUND = lease(is_connection_bound=True)
ALIVE = Evidence(owner=OwnerProcess.ALIVE)
DEAD = Evidence(owner=OwnerProcess.DEAD, owner_died_at=T0 + HOUR)
FOLLOWED = Evidence(owner=OwnerProcess.DEAD, owner_died_at=T0 + HOUR, is_owner_followed=True)
CONNECTED = Evidence(open_connections=1)
DISCONNECTED = Evidence(last_connection_closed_at=T0 + HOUR)


# --- Deadlines --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tier", "seconds"), TIERS.items())
def test_the_tier_gives_the_deadline(tier: str, seconds: int) -> None:
    assert deadline_at(TIERS, tier, None, T0) == T0 + seconds * SECOND


def test_an_explicit_deadline_wins_over_the_tier() -> None:
    assert deadline_at(TIERS, "pro", 5_000, T0) == T0 + 5_000


def test_an_unknown_tier_is_refused_by_name_with_the_nearest_one() -> None:
    with pytest.raises(InvalidRequest) as caught:
        deadline_at(TIERS, "defualt", None, T0)
    assert caught.value.details == {"field": "tier", "nearest": "default"}


def test_an_unknown_tier_is_refused_even_with_an_explicit_deadline() -> None:
    with pytest.raises(InvalidRequest) as caught:
        deadline_at(TIERS, "zzz", 5_000, T0)
    assert caught.value.details["nearest"] is None


SHORT = lease(deadline_at=T0 + 100 * SECOND)


@pytest.mark.parametrize(
    ("timeout_ms", "age_ms", "left_ms"),
    [
        (30_000, 0, 30_000),
        (30_000, 80_000, 20_000),
        (3_600_000, 0, 100_000),
        (100, 100_000, 0),
        (100, 160_000, -60_000),
    ],
)
def test_a_command_may_take_its_own_time_but_not_past_the_sessions_deadline(
    timeout_ms: int, age_ms: int, left_ms: int
) -> None:
    now = T0 + age_ms
    assert command_deadline_at(SHORT, timeout_ms, now) - now == left_ms


@pytest.mark.parametrize(
    ("asked_ms", "age_ms", "lease_ms"),
    [(30_000, 0, 30_000), (300_000, 0, 160_000), (30_000, 150_000, 10_000), (30_000, 160_000, 0), (30_000, 999_000, 0)],
)
def test_a_tab_lock_may_last_as_long_as_the_session_and_a_minute(asked_ms: int, age_ms: int, lease_ms: int) -> None:
    assert lock_lease_ms(SHORT, asked_ms, T0 + age_ms) == lease_ms


def test_the_owner_is_warned_when_four_fifths_of_the_lease_are_over() -> None:
    assert expiring_at(SHORT) == T0 + 80 * SECOND


spans_ms = st.integers(1, 10 * HOUR)


@given(life_ms=spans_ms, asked_ms=spans_ms, late_ms=st.integers(0, HOUR), is_beating=st.booleans())
@settings(max_examples=150, deadline=None)
def test_nothing_rearms_a_deadline_that_has_passed(life_ms: int, asked_ms: int, late_ms: int, is_beating: bool) -> None:
    now = T0 + life_ms + late_ms
    # Whatever the owner does, as late as it may: it beats now, it works, it is connected, and its process lives.
    session = lease(deadline_at=T0 + life_ms, heartbeat_at=now, is_beating=is_beating)
    evidence = Evidence(open_connections=1, owner=OwnerProcess.ALIVE, has_work=True)
    assert command_deadline_at(session, asked_ms, now) <= now
    assert now + lock_lease_ms(session, asked_ms, now) <= max(now, session.deadline_at + 60 * SECOND)
    with pytest.raises(LeaseLost):
        check_fence(session, session.fence, now)
    match verdict(session, evidence, now, TIMES):
        case Keep(check_at=check_at):
            assert check_at == session.deadline_at + 120 * SECOND
        case Reap(reason=reason):
            assert reason is ReapReason.DEADLINE


@given(life_ms=spans_ms, steps_ms=st.lists(st.integers(1, 60 * SECOND), max_size=30), asked_ms=spans_ms)
@settings(max_examples=100, deadline=None)
def test_a_lock_that_is_renewed_again_and_again_ends_a_minute_after_the_deadline(
    life_ms: int, steps_ms: list[int], asked_ms: int
) -> None:
    session = lease(deadline_at=T0 + life_ms)
    now = expires_at = T0
    for step_ms in steps_ms:
        expires_at = max(expires_at, now + lock_lease_ms(session, asked_ms, now))
        # Renewed while it is still held, or not at all.
        now = min(now + step_ms, expires_at)
    assert expires_at <= session.deadline_at + 60 * SECOND


@given(before=st.dictionaries(st.sampled_from(["pro", "deep"]), st.integers(1, 86_400), min_size=2), data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_tier_that_changes_is_for_new_leases_only(before: dict[str, int], data: st.DataObject) -> None:
    tiers = dict(before)
    granted = lease(tier="pro", deadline_at=deadline_at(tiers, "pro", None, T0))
    now = T0 + data.draw(st.integers(0, before["pro"] * SECOND), label="age")

    def limits() -> tuple[object, ...]:
        return (
            command_deadline_at(granted, HOUR, now),
            lock_lease_ms(granted, HOUR, now),
            expiring_at(granted),
            verdict(granted, WORKING, now, TIMES),
        )

    as_granted = limits()
    tiers["pro"] = data.draw(st.integers(1, 86_400), label="pro")
    assert limits() == as_granted
    assert deadline_at(tiers, "pro", None, now) == now + tiers["pro"] * SECOND


# --- Which rule -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("session", "evidence", "rule"),
    [
        (BARE, NOTHING, ExpiryRule.BARE_HTTP),
        (BARE, WORKING, ExpiryRule.BARE_HTTP),
        (BARE, CONNECTED, ExpiryRule.CONNECTION_BOUND),
        (BARE, DISCONNECTED, ExpiryRule.CONNECTION_BOUND),
        (BOUND, NOTHING, ExpiryRule.CONNECTION_BOUND),
        (changed(BOUND, is_beating=True), NOTHING, ExpiryRule.BEATING),
        (BEATING, NOTHING, ExpiryRule.BEATING),
        (BEATING, DISCONNECTED, ExpiryRule.BEATING),
        (NAMED, NOTHING, ExpiryRule.NAMED_PROCESS),
        (NAMED, DEAD, ExpiryRule.NAMED_PROCESS),
        (changed(NAMED, is_beating=True), DISCONNECTED, ExpiryRule.NAMED_PROCESS),
        (KEPT, DISCONNECTED, ExpiryRule.KEEP_ALIVE),
        (changed(NAMED, keep_alive=True), DEAD, ExpiryRule.KEEP_ALIVE),
        (KEPT, Evidence(in_handoff=True), ExpiryRule.HANDOFF),
    ],
)
def test_each_kind_of_holder_has_its_rule(session: Session, evidence: Evidence, rule: ExpiryRule) -> None:
    assert rule_of(session, evidence) is rule


def test_the_table_lists_every_rule_once_in_words() -> None:
    assert sorted(row.rule for row in EXPIRY_RULES) == sorted(set(ExpiryRule) - {ExpiryRule.DEADLINE})
    assert all(row.holder.endswith(".") and row.ends.endswith(".") for row in EXPIRY_RULES)


# --- The reaper's invariants ------------------------------------------------------------------------------------


def test_age_alone_never_reaps() -> None:
    session = lease(is_beating=True, created_at=T0 - 3_000 * SECOND, heartbeat_at=T0 - 45 * SECOND)
    assert isinstance(verdict(session, ALIVE, T0, TIMES), Keep)


@pytest.mark.parametrize("session", [NAMED, changed(NAMED, is_beating=True)], ids=["named", "named and beating"])
def test_a_stale_heartbeat_with_a_live_owner_process_never_reaps(session: Session) -> None:
    # A stopped process reads alive, so this is also the frozen owner.
    assert verdict(session, ALIVE, T0 + 9 * HOUR, TIMES) == Keep(session.deadline_at + 120 * SECOND)


def test_a_crashed_owner_with_a_stale_heartbeat_is_reaped() -> None:
    session = lease(owner_pid=7, is_beating=True, heartbeat_at=T0 - 420 * SECOND)
    evidence = Evidence(owner=OwnerProcess.DEAD, owner_died_at=T0 - 400 * SECOND)
    assert verdict(session, evidence, T0, TIMES) == Reap(ReapReason.OWNER_DEAD, ExpiryRule.NAMED_PROCESS)


def test_a_heartbeat_is_stale_only_when_older_than_three_minutes() -> None:
    assert verdict(BEATING, NOTHING, T0 + 180 * SECOND, TIMES) == Keep(T0 + 180 * SECOND + 1)
    assert verdict(BEATING, NOTHING, T0 + 180 * SECOND + 1, TIMES) == Reap(ReapReason.STALE, ExpiryRule.BEATING)


@pytest.mark.parametrize("evidence", [CONNECTED, WORKING, ALIVE], ids=["connection", "work", "process"])
def test_a_stale_heartbeat_is_not_enough_while_anything_else_shows_life(evidence: Evidence) -> None:
    assert isinstance(verdict(BEATING, evidence, T0 + 9 * HOUR, TIMES), Keep)


def test_a_closed_connection_of_a_beating_owner_counts_as_a_sign_of_life_until_it_closed() -> None:
    assert verdict(BEATING, DISCONNECTED, T0 + HOUR, TIMES) == Keep(T0 + HOUR + 180 * SECOND + 1)


def test_a_proven_death_reaps_after_two_seconds() -> None:
    died = T0 + HOUR
    assert verdict(NAMED, DEAD, died + 1_999, TIMES) == Keep(died + 2_000)
    assert verdict(NAMED, DEAD, died + 2_000, TIMES) == Reap(ReapReason.OWNER_DEAD, ExpiryRule.NAMED_PROCESS)


def test_that_the_work_of_a_dead_owner_ends_is_no_sign_of_life() -> None:
    died = T0 + HOUR
    evidence = Evidence(owner=OwnerProcess.DEAD, owner_died_at=died, worked_at=died + 500)
    assert verdict(NAMED, evidence, died + 2_000, TIMES) == Reap(ReapReason.OWNER_DEAD, ExpiryRule.NAMED_PROCESS)


@pytest.mark.parametrize("session", [BEATING, lease()], ids=["beating", "bare"])
def test_silence_counts_from_the_end_of_the_work(session: Session) -> None:
    evidence = Evidence(worked_at=T0 + 100 * SECOND)
    assert isinstance(verdict(session, evidence, T0 + 279 * SECOND, TIMES), Keep)
    assert isinstance(verdict(session, evidence, T0 + 281 * SECOND, TIMES), Reap)


def test_a_beat_after_the_proven_death_leaves_the_stale_rule() -> None:
    session = changed(NAMED, heartbeat_at=T0 + HOUR + 1_000)
    assert verdict(session, FOLLOWED, T0 + HOUR + 2_000, TIMES) == Keep(session.heartbeat_at + 180 * SECOND + 1)


def test_a_proven_death_does_not_wait_for_what_the_dead_left_running() -> None:
    evidence = Evidence(owner=OwnerProcess.DEAD, owner_died_at=T0, has_work=True)
    assert isinstance(verdict(NAMED, evidence, T0 + 2_000, TIMES), Reap)


def test_a_named_process_that_this_host_cannot_check_lives_by_its_heartbeat() -> None:
    assert verdict(NAMED, NOTHING, T0 + 180 * SECOND + 1, TIMES) == Reap(ReapReason.STALE, ExpiryRule.NAMED_PROCESS)


def test_a_connection_bound_session_lives_while_a_socket_is_open() -> None:
    assert isinstance(verdict(BARE, CONNECTED, T0 + 9 * HOUR, TIMES), Keep)


def test_a_connection_bound_session_ends_ten_seconds_after_its_last_socket() -> None:
    closed = T0 + HOUR
    assert verdict(BARE, DISCONNECTED, closed + 9_999, TIMES) == Keep(closed + 10_000)
    assert verdict(BARE, DISCONNECTED, closed + 10_000, TIMES) == Reap(
        ReapReason.DISCONNECTED, ExpiryRule.CONNECTION_BOUND
    )


def test_a_connection_that_only_the_row_remembers_closed_at_the_last_sign_of_life() -> None:
    session = changed(BOUND, heartbeat_at=T0 + HOUR)
    assert verdict(session, NOTHING, T0 + HOUR, TIMES) == Keep(T0 + HOUR + 10_000)


def test_a_read_does_not_keep_a_disconnected_session() -> None:
    session = changed(BARE, heartbeat_at=T0 + HOUR + 9_000)
    assert isinstance(verdict(session, DISCONNECTED, T0 + HOUR + 10_000, TIMES), Reap)


def test_a_reconnected_session_lives_on() -> None:
    evidence = Evidence(open_connections=1, last_connection_closed_at=T0)
    assert isinstance(verdict(BARE, evidence, T0 + HOUR, TIMES), Keep)


def test_a_disconnected_session_keeps_until_its_work_is_done() -> None:
    evidence = Evidence(last_connection_closed_at=T0, has_work=True)
    assert isinstance(verdict(BARE, evidence, T0 + HOUR, TIMES), Keep)


def test_a_bare_session_ends_after_three_quiet_minutes() -> None:
    assert verdict(BARE, NOTHING, T0 + 180 * SECOND - 1, TIMES) == Keep(T0 + 180 * SECOND)
    assert verdict(BARE, NOTHING, T0 + 180 * SECOND, TIMES) == Reap(ReapReason.IDLE, ExpiryRule.BARE_HTTP)


def test_a_bare_session_is_not_idle_while_it_has_work() -> None:
    assert isinstance(verdict(BARE, WORKING, T0 + HOUR, TIMES), Keep)


def test_the_pool_sets_the_idle_time() -> None:
    assert verdict(BARE, NOTHING, T0, LeaseTimes(idle_ttl_ms=5_000)) == Keep(T0 + 5_000)


def test_a_session_that_never_beat_counts_from_its_creation() -> None:
    assert verdict(changed(BARE, heartbeat_at=0), NOTHING, T0, TIMES) == Keep(T0 + 180 * SECOND)


@pytest.mark.parametrize("evidence", [NOTHING, DISCONNECTED], ids=["quiet", "disconnected"])
def test_keep_alive_ends_only_at_the_deadline(evidence: Evidence) -> None:
    assert verdict(KEPT, evidence, T0 + 9 * HOUR, TIMES) == Keep(KEPT.deadline_at + 120 * SECOND)


def test_a_handoff_is_not_idle() -> None:
    assert isinstance(verdict(BARE, Evidence(in_handoff=True), T0 + 9 * HOUR, TIMES), Keep)


@pytest.mark.parametrize("session", [BARE, BEATING, NAMED, KEPT], ids=["bare", "beating", "named", "kept"])
@pytest.mark.parametrize(
    "evidence",
    [WORKING, CONNECTED, ALIVE, Evidence(in_handoff=True)],
    ids=["work", "connection", "process", "handoff"],
)
def test_two_minutes_past_the_deadline_everybody_is_reaped(session: Session, evidence: Evidence) -> None:
    end = session.deadline_at + 120 * SECOND
    fresh = changed(session, heartbeat_at=end - 1)
    assert isinstance(verdict(fresh, evidence, end - 1, TIMES), Keep)
    assert verdict(fresh, evidence, end, TIMES) == Reap(ReapReason.DEADLINE, ExpiryRule.DEADLINE)


def test_only_an_owned_lease_can_be_judged() -> None:
    with pytest.raises(AssertionError):
        verdict(lease(state=LeaseState.POOLED), NOTHING, T0, TIMES)


moments = st.integers(T0, T0 + HOUR)
sessions = st.builds(
    lease,
    is_beating=st.booleans(),
    keep_alive=st.booleans(),
    is_connection_bound=st.booleans(),
    owner_pid=st.sampled_from([0, 7]),
    heartbeat_at=moments,
    deadline_at=moments,
)
evidences = st.builds(
    Evidence,
    open_connections=st.integers(0, 2),
    last_connection_closed_at=st.none() | moments,
    owner=st.sampled_from(OwnerProcess),
    owner_died_at=moments,
    is_owner_followed=st.booleans(),
    has_work=st.booleans(),
    in_handoff=st.booleans(),
)


@given(session=sessions, evidence=evidences, now=moments)
@settings(max_examples=150, deadline=None)
def test_check_at_is_the_first_moment_at_which_the_verdict_changes(
    session: Session, evidence: Evidence, now: int
) -> None:
    answer = verdict(session, evidence, now, TIMES)
    if isinstance(answer, Reap):
        assert verdict(session, evidence, now + HOUR, TIMES) == answer
        return
    assert answer.check_at > now
    assert verdict(session, evidence, answer.check_at - 1, TIMES) == answer
    assert isinstance(verdict(session, evidence, answer.check_at, TIMES), Reap)


@given(session=sessions, evidence=evidences, now=moments)
@settings(max_examples=150, deadline=None)
def test_before_its_deadline_nobody_is_reaped_without_silence_or_proven_death(
    session: Session, evidence: Evidence, now: int
) -> None:
    if not isinstance(verdict(session, evidence, now, TIMES), Reap) or now >= session.deadline_at + 120 * SECOND:
        return
    assert not session.keep_alive
    assert not evidence.in_handoff
    if session.owner_pid and evidence.owner is OwnerProcess.DEAD and not evidence.is_owner_followed:
        return
    assert not evidence.open_connections
    assert not evidence.has_work
    assert not (session.owner_pid and evidence.owner is OwnerProcess.ALIVE)
    closed = evidence.last_connection_closed_at
    if closed is None and session.is_connection_bound:
        closed = session.heartbeat_at
    assert now - session.heartbeat_at >= 180 * SECOND or (closed is not None and now - closed >= 10 * SECOND)


# --- Fence ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [LeaseState.ACTIVE, LeaseState.RECOVERING])
def test_the_current_fence_passes(state: LeaseState) -> None:
    check_fence(lease(state=state), 42, T0)


@pytest.mark.parametrize("fence", [41, 43, 0])
def test_any_other_fence_is_lost(fence: int) -> None:
    with pytest.raises(LeaseLost):
        check_fence(BARE, fence)


def test_no_fence_leaves_the_credential_to_decide() -> None:
    check_fence(BARE, None)


@pytest.mark.parametrize("fence", [42, None])
@pytest.mark.parametrize("state", sorted(set(LeaseState) - {LeaseState.ACTIVE, LeaseState.RECOVERING}))
def test_an_ended_lease_is_lost_whatever_the_fence(state: LeaseState, fence: int | None) -> None:
    with pytest.raises(LeaseLost) as caught:
        check_fence(lease(state=state, end_reason="stale"), fence)
    assert caught.value.details["endReason"] == "stale"


def test_a_lease_past_its_deadline_is_lost_before_it_is_reaped() -> None:
    check_fence(BARE, 42, BARE.deadline_at - 1)
    with pytest.raises(LeaseLost):
        check_fence(BARE, 42, BARE.deadline_at)
