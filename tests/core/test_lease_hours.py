"""Whole lives of leases under a virtual clock: a reaper that looks every second, and one that sleeps until it must.

A legitimate wait of an hour is never cut short, whatever its age; a holder that is gone is always found.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tabherd.core.lease import Evidence, Keep, LeaseTimes, OwnerProcess, Reap, ReapReason, verdict
from tabherd.core.lifecycle import LeaseState
from tabherd.core.model import Session, changed

T0 = 1_700_000_000_000
SECOND = 1_000
HOUR_S = 3_600
TIMES = LeaseTimes()
PRO = Session(
    id="ses_1",
    state=LeaseState.ACTIVE,
    agent_id="alice",
    pool="default",
    tier="pro",
    created_at=T0,
    heartbeat_at=T0,
    deadline_at=T0 + HOUR_S * SECOND,
)
NAMED = changed(PRO, owner_pid=7, owner_started=8)
BEATING = changed(PRO, is_beating=True)
NAMED_AND_BEATING = changed(NAMED, is_beating=True)
ALIVE = Evidence(owner=OwnerProcess.ALIVE)
NOTHING = Evidence()

EvidenceAt = Callable[[int], Evidence]


def died(second: int, followed_s: int | None = None) -> EvidenceAt:
    """A process that lives until then, and whose death is proven at once; and the second of its successor's first beat.

    A successor is known by a beat or a command only, so a test that names one has a beat in that second.
    """

    def evidence_at(now_s: int) -> Evidence:
        if now_s < second:
            return ALIVE
        died_at, is_followed = T0 + second * SECOND, followed_s is not None and now_s >= followed_s
        return Evidence(owner=OwnerProcess.DEAD, owner_died_at=died_at, is_owner_followed=is_followed)

    return evidence_at


def lived(session: Session, beats_s: set[int], evidence_at: EvidenceAt, *, until_s: int) -> tuple[int, Reap] | None:
    """The second at which a reaper that looks every second ends it, and why; None when it still lives at the end."""
    for second in range(until_s + 1):
        now = T0 + second * SECOND
        if second in beats_s:
            session = changed(session, heartbeat_at=now)
        if isinstance(answer := verdict(session, evidence_at(second), now, TIMES), Reap):
            return second, answer
    return None


EVERY_MINUTE = set(range(0, HOUR_S + 1, 60))


@pytest.mark.parametrize(
    "session", [PRO, BEATING, NAMED, NAMED_AND_BEATING], ids=["bare", "beating", "named", "named and beating"]
)
@pytest.mark.parametrize("evidence", [NOTHING, ALIVE], ids=["nothing else", "live process"])
def test_an_hour_with_a_beat_every_minute_is_never_reaped_at_any_second(session: Session, evidence: Evidence) -> None:
    assert lived(session, EVERY_MINUTE, lambda second: evidence, until_s=HOUR_S) is None


@pytest.mark.parametrize("session", [NAMED, NAMED_AND_BEATING], ids=["named", "named and beating"])
def test_an_hour_of_a_live_process_that_never_beats_is_never_reaped_at_any_second(session: Session) -> None:
    # A stopped (SIGSTOP) process reads alive, too.
    assert lived(session, set(), lambda second: ALIVE, until_s=HOUR_S) is None


def test_an_old_lease_with_a_fresh_beat_and_a_live_process_lives_on_to_its_end() -> None:
    old = changed(NAMED_AND_BEATING, created_at=T0 - 3_000 * SECOND, heartbeat_at=T0 - 45 * SECOND)
    assert lived(old, set(range(15, 600, 60)), lambda second: ALIVE, until_s=600) is None


def test_seven_minutes_of_silence_of_a_dead_process_are_reaped_at_the_first_look() -> None:
    crashed = changed(NAMED_AND_BEATING, created_at=T0 - 600 * SECOND, heartbeat_at=T0 - 420 * SECOND)
    ended = lived(crashed, set(), died(-400), until_s=HOUR_S)
    assert ended is not None
    assert (ended[0], ended[1].reason) == (0, ReapReason.OWNER_DEAD)


def test_seven_minutes_of_silence_of_a_live_process_are_not() -> None:
    quiet = changed(NAMED_AND_BEATING, created_at=T0 - 600 * SECOND, heartbeat_at=T0 - 420 * SECOND)
    assert lived(quiet, set(), lambda second: ALIVE, until_s=HOUR_S) is None


def test_a_process_that_dies_half_way_takes_its_lease_along_two_seconds_later() -> None:
    beats = set(range(0, 1_800, 60))
    ended = lived(NAMED_AND_BEATING, beats, died(1_800), until_s=HOUR_S)
    assert ended is not None
    assert (ended[0], ended[1].reason) == (1_802, ReapReason.OWNER_DEAD)


def test_a_successor_that_goes_on_beating_keeps_the_lease_of_a_dead_process() -> None:
    assert lived(NAMED_AND_BEATING, EVERY_MINUTE | {1_801}, died(1_800, 1_801), until_s=HOUR_S) is None


def test_an_owner_that_stops_beating_is_found_three_minutes_later() -> None:
    ended = lived(BEATING, set(range(0, 1_801, 60)), lambda second: NOTHING, until_s=HOUR_S)
    assert ended is not None
    assert (ended[0], ended[1].reason) == (1_981, ReapReason.STALE)


def test_a_lease_that_beats_for_ever_ends_two_minutes_after_its_deadline() -> None:
    ended = lived(BEATING, set(range(0, 2 * HOUR_S, 60)), lambda second: ALIVE, until_s=2 * HOUR_S)
    assert ended is not None
    assert (ended[0], ended[1].reason) == (HOUR_S + 120, ReapReason.DEADLINE)


# --- Random lives -------------------------------------------------------------------------------------------------

gaps_s = st.lists(st.integers(1, 180), min_size=20, max_size=120)


def moments(gaps: list[int]) -> list[int]:
    beats, now_s = [], 0
    for gap_s in gaps:
        now_s += gap_s
        beats.append(now_s)
    return beats


@given(gaps=gaps_s, session=st.sampled_from([BEATING, NAMED, NAMED_AND_BEATING]))
@settings(max_examples=60)
def test_whoever_never_misses_three_beats_lives_to_the_deadline(gaps: list[int], session: Session) -> None:
    beats = moments(gaps)
    until_s = min(HOUR_S, beats[-1])
    assert lived(session, set(beats), lambda second: NOTHING, until_s=until_s) is None


# A death in the last seconds of the hour, where this test once made up a successor that never beat.
@example(gaps=[1] * 20, death_s=HOUR_S - 1, is_beating=False)
@given(gaps=gaps_s, death_s=st.integers(0, HOUR_S), is_beating=st.booleans())
@settings(max_examples=60)
def test_a_reaper_that_sleeps_until_the_verdict_can_change_ends_it_when_one_that_never_sleeps_does(
    gaps: list[int], death_s: int, is_beating: bool
) -> None:
    session = changed(NAMED, is_beating=is_beating)
    beats = set(moments(gaps))
    evidence_at = died(death_s, min((beat for beat in beats if beat >= death_s), default=None))
    watched = lived(session, beats, evidence_at, until_s=2 * HOUR_S)
    assert watched is not None

    # The sleeper is woken by a proven death, and by nothing else; a beat only moves the row.
    looks, second, row = 0, 0, session
    while isinstance(answer := verdict(row, evidence_at(second), T0 + second * SECOND, TIMES), Keep):
        due_s = -(-(answer.check_at - T0) // SECOND)
        second = min(due_s, death_s) if second < death_s else due_s
        last_beat_s = max((beat for beat in beats if beat <= second), default=0)
        row = changed(session, heartbeat_at=T0 + last_beat_s * SECOND)
        looks += 1
    assert (second, answer) == watched
    assert looks < 200, "it sleeps in between"
