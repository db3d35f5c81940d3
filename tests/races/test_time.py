"""Work that waits in the middle: what was true before the wait need not be true after it, and time proves nothing."""

from __future__ import annotations

import threading

import pytest
from tests.races.desk import Desk
from tests.races.scene import AGENT, Scene, hear, with_and_without

from tabherd.errors import LockTimedOut

# What a stop that was put off may do wrong, and what comes of it.
STOPS = {
    "no lock": ["completed by the end", "completed by the stop"],
    "a lock, and what it read before it slept": ["completed by the end", "completed by the stop"],
    "a lock across the sleep": ["completed by the stop", "the end was kept out"],
    "a lock after the sleep, and it reads again": ["completed by the end"],
}


@pytest.mark.parametrize("guard", STOPS)
def test_h3_a_stop_that_was_put_off_meets_the_end_of_the_session(scene: Scene, guard: str) -> None:
    def complete(desk: Desk, by: str) -> None:
        desk.move(AGENT, "complete")
        desk.note(AGENT, f"completed by the {by}")
        desk.commit()

    def stop_later(desk: Desk) -> None:
        with scene.lock(guard == "a lock across the sleep"):
            state = desk.state(AGENT)
            desk.commit()
            is_asleep.set()
            # For the text that the agent is still to write.
            hear(is_woken)
            with scene.lock(guard not in ("no lock", "a lock across the sleep")):
                if guard != "a lock, and what it read before it slept":
                    state = desk.state(AGENT)
                scene.meet()
                if state == "working":
                    complete(desk, "stop")

    def end(desk: Desk) -> None:
        hear(is_asleep)
        try:
            with scene.lock(guard != "no lock", timeout=0):
                state = desk.state(AGENT)
                is_woken.set()
                scene.meet()
                if state == "working":
                    complete(desk, "end")
        except LockTimedOut:
            desk.note(AGENT, "the end was kept out")
            desk.commit()
            is_woken.set()

    is_asleep, is_woken = threading.Event(), threading.Event()
    scene.play(stop_later, end)
    assert scene.notes() == STOPS[guard]


@pytest.mark.parametrize("guard", ["none", "a lock", "a lock, and it looks again"])
def test_h8_a_prompt_is_sent_to_an_agent_that_was_reaped_since_it_was_ready(scene: Scene, guard: str) -> None:
    """The reaper is first: after the wait for the lock the agent is no longer there."""

    def send(desk: Desk) -> None:
        is_ready = desk.state(AGENT) == "working"
        desk.commit()
        has_looked.set()
        hear(has_reaped)
        with scene.lock(guard != "none"):
            if guard == "a lock, and it looks again":
                is_ready = desk.state(AGENT) == "working"
            if is_ready:
                desk.note(AGENT, f"sent to an agent that is {desk.state(AGENT)}")
                desk.commit()

    def reap(desk: Desk) -> None:
        hear(has_looked)
        with scene.lock_or_skip(guard != "none") as is_mine:
            assert is_mine
            desk.move(AGENT, "gone")
            desk.commit()
        has_reaped.set()

    has_looked, has_reaped = threading.Event(), threading.Event()
    scene.play(send, reap)
    assert scene.notes() == ([] if guard == "a lock, and it looks again" else ["sent to an agent that is gone"])


@with_and_without
def test_h8_an_agent_is_reaped_between_the_look_and_the_prompt(scene: Scene, is_guarded: bool) -> None:
    """The sender is first: the reaper leaves alone whom it talks to."""

    def send(desk: Desk) -> None:
        with scene.lock(is_guarded):
            is_ready = desk.state(AGENT) == "working"
            has_looked.set()
            scene.let_others_finish()
            if is_ready:
                desk.note(AGENT, f"sent to an agent that is {desk.state(AGENT)}")
                desk.commit()

    def reap(desk: Desk) -> None:
        hear(has_looked)
        with scene.lock_or_skip(is_guarded) as is_mine:
            if is_mine:
                desk.move(AGENT, "gone")
                desk.commit()

    has_looked = threading.Event()
    scene.play(send, reap)
    assert scene.notes() == [f"sent to an agent that is {'working' if is_guarded else 'gone'}"]


@pytest.mark.parametrize("guard", ["a mark that expires", "a lock"])
def test_m9_an_answer_takes_longer_than_its_mark_lasts_and_is_given_twice(scene: Scene, guard: str) -> None:
    """A mark says how long the work may take, a lock how long it does take."""
    is_marked, mark_lasts_until, late = threading.Event(), 10, 11

    def answer_slowly(desk: Desk) -> None:
        with scene.lock(guard == "a lock"):
            desk.do("UPDATE agents SET tokens = ? WHERE id = ?", mark_lasts_until, AGENT)
            desk.commit()
            is_marked.set()
            scene.let_others_finish()
            desk.note(AGENT, "answered")
            desk.commit()

    def answer_again(desk: Desk) -> None:
        hear(is_marked)
        with scene.lock_or_skip(guard == "a lock") as is_mine:
            ((marked_until,),) = desk.read("SELECT tokens FROM agents WHERE id = ?", AGENT)
            if is_mine and marked_until < late:
                desk.note(AGENT, "answered again")
                desk.commit()

    scene.play(answer_slowly, answer_again)
    assert scene.notes() == (["answered"] if guard == "a lock" else ["answered", "answered again"])
