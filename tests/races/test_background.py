"""What runs in the background beside an agent's hooks: it skips whoever is busy, and comes back another time."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from functools import partial

import pytest
from tests.locks.company import LIMIT_S
from tests.races.desk import Desk
from tests.races.scene import AGENT, Scene, hear, with_and_without

from tabherd.config import Locks
from tabherd.errors import LockTimedOut
from tabherd.locks import advisory_lock, advisory_lock_or_skip

# A few agents; the last one is busy with a hook.
CROWD = (11, 12, 13, 14, AGENT)


@with_and_without
def test_h1_the_reaper_ends_an_agent_under_the_hook_that_is_ending_it(scene: Scene, is_guarded: bool) -> None:
    def hook(desk: Desk) -> None:
        with scene.lock(is_guarded):
            state = desk.state(AGENT)
            has_looked.set()
            scene.let_others_finish()
            if state == "working":
                desk.move(AGENT, "complete")
                desk.note(AGENT, "ended by its hook")
                desk.commit()

    def reap(desk: Desk) -> bool:
        hear(has_looked)
        with scene.lock_or_skip(is_guarded) as is_mine:
            if is_mine and desk.state(AGENT) == "working":
                desk.move(AGENT, "complete")
                desk.note(AGENT, "ended by the reaper")
                desk.commit()
            return is_mine

    has_looked = threading.Event()
    _, is_reaped = scene.play(hook, reap)
    assert is_reaped is not is_guarded
    assert scene.notes() == (["ended by its hook"] if is_guarded else ["ended by its hook", "ended by the reaper"])
    # Skipped is not forgotten: the next round finds the truth.
    has_looked.set()
    assert scene.play(reap) == [True]
    assert scene.notes()[0] == "ended by its hook"


@pytest.mark.parametrize("is_inside", [False, True], ids=["committed behind the loop", "committed inside the lock"])
def test_h1_what_is_committed_behind_the_lock_is_decided_by_two(scene: Scene, is_inside: bool) -> None:
    def reap(desk: Desk) -> None:
        with scene.lock_or_skip():
            if desk.state(AGENT) == "working":
                desk.move(AGENT, "complete")
                desk.note(AGENT, "ended by the reaper")
            if is_inside:
                desk.commit()
        is_unlocked.set()
        scene.meet()
        desk.commit()

    def hook(desk: Desk) -> None:
        hear(is_unlocked)
        with scene.lock():
            state = desk.state(AGENT)
            scene.meet()
            if state == "working":
                desk.move(AGENT, "complete")
                desk.note(AGENT, "ended by its hook")
                desk.commit()

    is_unlocked = threading.Event()
    scene.play(reap, hook)
    assert scene.notes() == (["ended by the reaper"] if is_inside else ["ended by its hook", "ended by the reaper"])


@pytest.mark.parametrize("is_per_item", [False, True], ids=["around the loop", "per item"])
def test_h1_a_lock_around_the_loop_keeps_hooks_of_others_waiting(scene: Scene, is_per_item: bool) -> None:
    """Seen from a hook of the last agent, while the reaper is at work on the first."""

    def reap(desk: Desk) -> None:
        with ExitStack() as around:
            for agent in () if is_per_item else CROWD:
                around.enter_context(scene.lock_or_skip(agent=agent))
            for agent in CROWD:
                with scene.lock_or_skip(is_per_item, agent):
                    is_at_work.set()
                    hear(is_hooked)
                    desk.note(agent, "reaped")
                    desk.commit()

    def hook(desk: Desk) -> bool:
        hear(is_at_work)
        try:
            with scene.lock(timeout=0):
                return True
        except LockTimedOut:
            return False
        finally:
            is_hooked.set()

    is_at_work, is_hooked = threading.Event(), threading.Event()
    _, has_got_in = scene.play(reap, hook)
    assert has_got_in is is_per_item


@pytest.mark.parametrize("is_loop", [False, True], ids=["all at once", "one after the other"])
def test_h1_a_loop_over_any_number_of_agents_needs_two_connections(postgres_scene: Scene, is_loop: bool) -> None:
    scene = postgres_scene
    counted: list[int] = []
    are_all_there = threading.Barrier(1 if is_loop else len(CROWD), timeout=LIMIT_S)

    def reap(desk: Desk, agents: tuple[int, ...]) -> None:
        for agent in agents:
            with scene.lock_or_skip(agent=agent) as is_mine:
                assert is_mine
                desk.note(agent, "reaped")
                are_all_there.wait()
                counted.append(_connections_in_use(scene, desk))
                are_all_there.wait()
                desk.commit()

    rounds = [CROWD] if is_loop else [(agent,) for agent in CROWD]
    scene.play(*(partial(reap, agents=agents) for agents in rounds))
    # The reaper's own and that of the lock, which is used for the next one; or two for each of them.
    assert max(counted) == (2 if is_loop else 2 * len(CROWD))


def _connections_in_use(scene: Scene, desk: Desk) -> int:
    """Those that hold one of the scene's locks, or have written something that is not committed."""
    in_use = "(locktype = 'advisory' AND classid = ?::bigint::oid) OR relation = 'notes'::regclass"
    ((count,),) = desk.read(f"SELECT count(DISTINCT pid) FROM pg_locks WHERE {in_use}", scene.namespace)
    return int(count)


def test_h1_a_loop_in_which_every_item_fails_uses_nothing_up(scene: Scene) -> None:
    def reap(desk: Desk) -> None:
        for agent in range(Locks().max_connections + 1):
            # One that kept its place among the connections would leave none for the last.
            with pytest.raises(LookupError), scene.lock(agent=agent):
                raise LookupError

    scene.play(reap)


@pytest.mark.parametrize("guard", ["a lock for each service", "one lock for the agent"])
def test_h4_two_services_take_the_same_lines_of_a_transcript(scene: Scene, guard: str) -> None:
    """Each service with a lock of its own is each service without a lock."""
    transcript = ["hello", "goodbye"]

    def take_missing(desk: Desk) -> None:
        missing = [line for line in transcript if line not in desk.notes(AGENT)]
        scene.meet()
        for line in missing:
            desk.note(AGENT, line)
        desk.commit()

    def capture(desk: Desk) -> None:
        is_shared = guard == "one lock for the agent"
        with scene.lock() if is_shared else advisory_lock(f"capture-{scene.namespace}", AGENT, url=scene.url):
            has_lock.set()
            take_missing(desk)

    def reconcile(desk: Desk) -> None:
        hear(has_lock)
        is_shared = guard == "one lock for the agent"
        name = f"reconciler-{scene.namespace}"
        with scene.lock_or_skip() if is_shared else advisory_lock_or_skip(name, AGENT, scene.url) as is_mine:
            if is_mine:
                take_missing(desk)

    has_lock = threading.Event()
    scene.play(capture, reconcile)
    once = ["goodbye", "hello"]
    assert scene.notes() == (once if guard == "one lock for the agent" else ["goodbye", "goodbye", "hello", "hello"])


@with_and_without
def test_m1_a_poller_writes_back_what_it_read_before_the_agent_ended(scene: Scene, is_guarded: bool) -> None:
    def poll(desk: Desk) -> None:
        with scene.lock_or_skip(is_guarded) as is_mine:
            assert is_mine
            state = desk.state(AGENT)
            has_looked.set()
            scene.let_others_finish()
            # As programs do that load a record, change one field and save the record.
            desk.do("UPDATE agents SET state = ?, tokens = 1000 WHERE id = ?", state, AGENT)
            desk.commit()

    def end(desk: Desk) -> None:
        hear(has_looked)
        with scene.lock(is_guarded):
            desk.move(AGENT, "complete")
            desk.commit()

    has_looked = threading.Event()
    scene.play(poll, end)
    assert scene.state() == ("complete" if is_guarded else "working")


@with_and_without
def test_m2_two_watchdogs_mend_the_same_agent(scene: Scene, is_guarded: bool) -> None:
    def mend(desk: Desk) -> None:
        with scene.lock_or_skip(is_guarded) as is_mine:
            if is_mine and desk.state(AGENT) == "working":
                scene.meet()
                desk.move(AGENT, "mended")
                desk.note(AGENT, "mended")
                desk.commit()

    scene.play(mend, mend)
    assert scene.notes() == (["mended"] if is_guarded else ["mended", "mended"])
