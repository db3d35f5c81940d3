"""A violation is told as a short history in plain words, with the command that replays it."""

from __future__ import annotations

import re

import pytest

from .minimise import kind_of, minimise, play
from .safeguards import SAFEGUARDS

SAFEGUARD = "the fence is checked"
# A history of many deeds that notices when it is not.
SEED = 3
# Far more than it needs: what is found does not depend on how busy the machine is.
BUDGET_S = 300.0


def test_a_violation_is_told_in_few_deeds_and_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    make_world = SAFEGUARDS[SAFEGUARD](monkeypatch)
    failure = play(make_world, SEED)
    assert failure is not None
    short = minimise(make_world, failure, BUDGET_S)
    assert kind_of(short.what) == kind_of(failure.what)
    # A session, a takeover, and a command with the old fence: not much more is needed.
    assert len(short.deeds) <= short.before // 4
    assert len(short.history) <= len(failure.history) // 2
    story = short.story()
    assert story.endswith(f"replay it with: make sim SEED={failure.seed}")
    assert re.search(r"VIOLATION: command-\d+ with fence \d+ reaches page 1, whose fence is \d+", story)
    assert "asks for a session" in story
    assert not re.search(r"\b(ses|tab|tsk|brw|cmd)_[0-9a-z]{8,}", story), "ids are no plain words"


def test_what_is_left_out_does_not_change_what_is_left_in(monkeypatch: pytest.MonkeyPatch) -> None:
    make_world = SAFEGUARDS[SAFEGUARD](monkeypatch)
    failure = play(make_world, SEED)
    assert failure is not None
    short = minimise(make_world, failure, BUDGET_S)
    again = play(make_world, failure.seed, frozenset(short.left_out))
    assert again is not None
    assert (again.what, again.history) == (short.what, short.history)


def test_violations_that_differ_in_names_only_are_of_one_kind() -> None:
    one = "command-5 of bob reaches target-7, which ada holds"
    assert kind_of(one) == kind_of("command-12 of cyd reaches target-31, which bob holds")
    assert kind_of(one) != kind_of("command-5 runs a second time")
