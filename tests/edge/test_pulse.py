"""Who counts as gone: silence for two beats, or a backlog that nobody reads."""

from __future__ import annotations

from tabherd.edge.pulse import Pulse


def test_silence_is_missed_after_two_beats() -> None:
    pulse = Pulse()
    assert [pulse.beat(0) for _ in range(3)] == [False, False, True]


def test_any_frame_starts_the_count_anew() -> None:
    pulse = Pulse()
    for _ in range(5):
        assert not pulse.beat(0)
        assert not pulse.beat(0)
        pulse.hear()


def test_a_reader_that_works_off_its_backlog_is_there_although_it_is_silent() -> None:
    pulse = Pulse()
    assert [pulse.beat(backlog) for backlog in (900, 800, 700, 100, 0)] == [False] * 5


def test_who_has_just_caught_up_is_missed_no_earlier_than_others() -> None:
    pulse = Pulse()
    pulse.beat(900)
    assert [pulse.beat(0) for _ in range(3)] == [False, False, True]


def test_who_talks_but_does_not_read_is_missed() -> None:
    pulse = Pulse()
    told = []
    for _ in range(3):
        pulse.hear()
        told.append(pulse.beat(900))
    assert told == [False, False, True]
