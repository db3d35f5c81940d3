"""Hooks of one agent that come at the same moment: they read its state, decide, and write."""

from __future__ import annotations

import asyncio
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import pytest
from tests.locks.company import LIMIT_S, is_awaited, program, says, until
from tests.races.desk import Desk
from tests.races.scene import AGENT, Scene, hear, with_and_without

from tabherd.locks import async_advisory_lock, async_advisory_locks


@with_and_without
def test_c1_two_callers_make_the_same_move_of_a_state_machine(scene: Scene, is_guarded: bool) -> None:
    def complete(desk: Desk) -> None:
        with scene.lock(is_guarded):
            state = desk.state(AGENT)
            scene.meet()
            if state == "working":
                desk.move(AGENT, "complete")
                desk.note(AGENT, "completed")
                desk.commit()

    scene.play(complete, complete)
    assert scene.notes() == (["completed"] if is_guarded else ["completed", "completed"])


@with_and_without
async def test_c1_two_tasks_make_the_same_move(url: str, namespace: int, is_guarded: bool) -> None:
    """In one event loop every `await` is a point at which another task may look."""
    state, moves, looked = "working", 0, 0

    async def complete() -> None:
        nonlocal state, moves, looked
        async with async_advisory_lock(namespace, AGENT, url=url) if is_guarded else nullcontext():
            seen = state
            looked += 1
            while looked < 2 and not any(row.waiters for row in await async_advisory_locks(url)):
                await asyncio.sleep(0)
            if seen == "working":
                state = "complete"
                moves += 1

    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(complete(), complete())
    assert moves == (1 if is_guarded else 2)


# Adds the next turn to a file, between two words with the test. Two processes of it are two workers of one web server.
HOOK: Final = """
import sys, threading
from pathlib import Path
from tabherd.locks import advisory_lock

url, namespace, turns, guard = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
lock = advisory_lock(namespace, 42, url=url) if guard == "advisory lock" else threading.Lock()
with lock:
    lines = turns.read_text().splitlines()
    print("looked", flush=True)
    sys.stdin.readline()
    turns.write_text("".join(f"{line}\\n" for line in [*lines, f"turn {len(lines) + 1}"]))
print("done", flush=True)
"""


@pytest.mark.parametrize("guard", ["lock of its process", "advisory lock"])
def test_c2_two_hooks_of_one_agent_run_in_two_processes(url: str, namespace: int, tmp_path: Path, guard: str) -> None:
    """A lock in memory guards nothing here, however often it is taken."""
    turns = tmp_path / "turns"
    turns.write_text("")
    words = (url, str(namespace), str(turns), guard)
    with program(HOOK, *words) as first, program(HOOK, *words) as second:
        assert first.stdin is not None
        assert second.stdin is not None
        # Which of them is quicker is chance; with the guard the other one does not even look.
        if guard == "advisory lock":
            until(lambda: is_awaited(url, f"{namespace}:42"))
        else:
            assert [says(first), says(second)] == ["looked", "looked"]
        for line in (first.stdin, second.stdin):
            line.write("go on\n")
            line.flush()
        words_left = ["looked", "done"] if guard == "advisory lock" else ["done"]
        for hook in (first, second):
            assert [says(hook) for _ in words_left] == words_left
    assert turns.read_text().splitlines() == (["turn 1", "turn 2"] if guard == "advisory lock" else ["turn 1"])


@pytest.mark.parametrize("guard", ["none", "looks before the lock", "looks under the lock"])
def test_c3_an_agent_is_given_its_instructions_twice(scene: Scene, guard: str) -> None:
    """The lock alone is not enough: what was read before it may no longer be so."""

    def inject(desk: Desk) -> None:
        is_new = "instructed" not in desk.notes(AGENT)
        if guard != "looks under the lock":
            scene.meet()
        with scene.lock(guard != "none"):
            if guard == "looks under the lock":
                is_new = "instructed" not in desk.notes(AGENT)
                scene.meet()
            if is_new:
                desk.note(AGENT, "instructed")
                desk.commit()

    scene.play(inject, inject)
    assert scene.notes() == (["instructed"] if guard == "looks under the lock" else ["instructed", "instructed"])


@with_and_without
def test_m5_a_notification_undoes_the_stop_that_came_while_it_was_handled(scene: Scene, is_guarded: bool) -> None:
    def notify(desk: Desk) -> None:
        with scene.lock(is_guarded):
            if desk.state(AGENT) == "working":
                has_looked.set()
                scene.let_others_finish()
                desk.move(AGENT, "waits for a person")
                desk.commit()

    def stop(desk: Desk) -> None:
        hear(has_looked)
        with scene.lock(is_guarded):
            desk.move(AGENT, "complete")
            desk.commit()

    has_looked = threading.Event()
    scene.play(notify, stop)
    assert scene.state() == ("complete" if is_guarded else "waits for a person")
