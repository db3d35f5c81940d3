"""Races that the database itself decides: a row lock, a unique key, a savepoint; and one that the lock must."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.locks.company import until
from tests.races.desk import Desk
from tests.races.scene import AGENT, Scene, with_and_without


@with_and_without
def test_h2_two_programs_pay_for_the_same_summary(postgres_scene: Scene, is_guarded: bool) -> None:
    """No lock of ours: SELECT ... FOR UPDATE NOWAIT on the row that the summary goes to."""
    scene = postgres_scene

    def summarise(desk: Desk) -> str | None:
        look = "SELECT tokens FROM agents WHERE id = ?" + (" FOR UPDATE NOWAIT" if is_guarded else "")
        try:
            ((tokens,),) = desk.read(look, AGENT)
        except psycopg.errors.LockNotAvailable:
            # Somebody else is at it.
            return None
        if tokens:
            return "found"
        scene.meet()
        # Here the model is called, which costs money.
        desk.note(AGENT, "paid")
        desk.do("UPDATE agents SET tokens = 1000 WHERE id = ?", AGENT)
        desk.commit()
        return "paid for"

    answers = scene.play(summarise, summarise)
    assert sorted(answers, key=str) == ([None, "paid for"] if is_guarded else ["paid for", "paid for"])
    assert scene.notes() == (["paid"] if is_guarded else ["paid", "paid"])
    # Who comes later finds it.
    assert scene.play(summarise) == ["found"]


@with_and_without
def test_h7_two_requests_begin_the_same_handover(scene: Scene, is_guarded: bool) -> None:
    """What is looked at and what is done about it are under one lock."""

    def hand_over(desk: Desk) -> bool:
        with scene.lock(is_guarded):
            may = "handed over" not in desk.notes(AGENT)
            scene.meet()
            if may:
                desk.note(AGENT, "handed over")
                desk.commit()
            return may

    answers = scene.play(hand_over, hand_over)
    assert sorted(answers) == ([False, True] if is_guarded else [True, True])
    assert scene.notes() == (["handed over"] if is_guarded else ["handed over", "handed over"])


@with_and_without
def test_m7_a_program_dies_between_the_two_halves_of_a_change(scene: Scene, is_guarded: bool) -> None:
    """A lock does not help here: its holder is the one that fails. A savepoint takes both halves back, and no more."""

    def add_turn(desk: Desk) -> None:
        desk.note(AGENT, "began")
        desk.do("SAVEPOINT turn")
        desk.note(AGENT, "turn 1")
        if not is_guarded:
            # What programs do that commit as they go.
            desk.commit()
        try:
            raise ConnectionError("whoever decides the next state does not answer")
        except ConnectionError:
            if is_guarded:
                desk.do("ROLLBACK TO SAVEPOINT turn")
        desk.commit()

    scene.play(add_turn)
    assert scene.state() == "working"
    assert scene.notes() == (["began"] if is_guarded else ["began", "turn 1"])


def test_m7_an_error_after_a_commit_frees_the_lock_and_undoes_only_what_was_not_committed(scene: Scene) -> None:
    """The lock is on a connection of its own: no commit of the work releases it, and no error leaves it behind."""

    def fail(desk: Desk) -> None:
        with scene.lock():
            desk.note(AGENT, "committed")
            desk.commit()
            scene.let_others_finish()
            desk.note(AGENT, "not committed")
            raise LookupError

    def is_free(desk: Desk) -> bool:
        until(lambda: "committed" in scene.notes())
        with scene.lock_or_skip() as is_mine:
            return is_mine

    def fail_as_expected(desk: Desk) -> None:
        with pytest.raises(LookupError):
            fail(desk)

    assert scene.play(fail_as_expected, is_free) == [None, False]
    assert scene.play(is_free) == [True]
    assert scene.notes() == ["committed"]


@with_and_without
def test_m7_another_program_sees_one_half_of_a_change(scene: Scene, is_guarded: bool) -> None:
    seen = []

    def add_turn(desk: Desk) -> None:
        desk.note(AGENT, "turn 1")
        if not is_guarded:
            desk.commit()
        # As another one sees it meanwhile.
        seen.append((scene.state(), scene.notes()))
        desk.move(AGENT, "waits")
        desk.commit()

    scene.play(add_turn)
    assert seen == [("working", [] if is_guarded else ["turn 1"])]
    assert (scene.state(), scene.notes()) == ("waits", ["turn 1"])


@with_and_without
def test_m8_two_programs_make_the_same_account(scene: Scene, is_guarded: bool) -> None:
    """A unique key, and ON CONFLICT: the database says who was first, and both get the same row."""
    with scene.cabinet.desk() as desk:
        unique = "UNIQUE" if is_guarded else ""
        desk.do(f"CREATE TABLE accounts (name TEXT NOT NULL {unique}, made_by TEXT NOT NULL)")
        desk.commit()

    def account(desk: Desk, me: str) -> Any:
        found = "SELECT made_by FROM accounts WHERE name = 'x'"
        is_missing = not desk.read(found)
        desk.commit()
        scene.meet()
        if is_missing:
            conflict = "ON CONFLICT (name) DO NOTHING" if is_guarded else ""
            desk.do(f"INSERT INTO accounts VALUES ('x', ?) {conflict}", me)
            desk.commit()
        return desk.read(found)

    scene.play(lambda desk: account(desk, "ada"), lambda desk: account(desk, "bob"))
    with scene.cabinet.desk() as desk:
        assert len(desk.read("SELECT made_by FROM accounts WHERE name = 'x'")) == (1 if is_guarded else 2)
