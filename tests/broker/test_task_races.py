"""What the simulator found about tasks, each as small as it gets: two things that meet in one moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.house import BOB, House, in_house, run_in_house
from tests.broker.tasking import ended, get, labels, rows, submit, with_scheduler

from tabherd import errors
from tabherd.broker.task_ending import LATE_QUEUED
from tabherd.core.lifecycle import TaskState
from tabherd.core.task_queue import Limits, TaskQueue, Waiting

# Which of two things is first is up to chance: so many are tried, always the same ones.
SEEDS = range(12)


def in_houses(play: Any, **settings: Any) -> None:
    for seed in SEEDS:
        run_in_house(play, seed=seed, **settings)


@in_house()
async def test_one_key_twice_at_once_is_answered_twice_with_one_task(house: House) -> None:
    session = await house.open()
    for number in range(20):
        twice = (submit(house, tab_id=session.tabs[0].tab_id, idempotency_key=f"key {number}") for _ in range(2))
        first, second = await asyncio.gather(*twice)
        assert first == second


@in_house()
async def test_a_task_that_is_cancelled_in_the_moment_of_its_turn_ends(house: House) -> None:
    session = await house.open()
    running = asyncio.ensure_future(house.act(session, "held"))
    await house.until(lambda: labels(house) == ["held"])
    task_id = await submit(house, tab_id=session.tabs[0].tab_id)
    scheduler = house.broker.tasking.scheduler
    live = scheduler.find(task_id)
    assert live is not None
    await house.until(lambda: live.state is TaskState.QUEUED)
    house.finish("held")
    # Between its turn and the first step of its worker.
    await house.until(lambda: live.state is TaskState.ASSIGNED and scheduler.cancel(live))
    await running
    assert (await get(house, task_id, wait_ms=1_000)).state == "cancelled"
    assert labels(house) == ["held"]


@in_house()
async def test_a_task_whose_deadline_passed_while_the_server_was_down_is_not_run(house: House) -> None:
    session = await house.open()
    tab_id = session.tabs[0].tab_id
    house.broker.tasking.reconfigure(with_scheduler(house, workers=1))
    await submit(house, "held", tab_id=tab_id)
    late = [await submit(house, f"late {n}", tab_id=tab_id, deadline=house.now + 200) for n in range(3)]
    house._lives[-1].is_dead = True
    await asyncio.sleep(1)
    house._begin()
    await house.broker.start()
    assert [view.error for view in await ended(house, *late)] == [LATE_QUEUED] * 3
    assert labels(house) == ["held"]


@in_house()
async def test_a_task_whose_deadline_the_clock_has_jumped_over_is_not_sent(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await house.open()
    running = asyncio.ensure_future(house.act(session, "held"))
    await house.until(lambda: labels(house) == ["held"])
    late = await submit(house, "late", tab_id=session.tabs[0].tab_id, deadline=house.now + 60_000)
    scheduler = house.broker.tasking.scheduler
    # Timers count the time that passes, and so do not notice.
    for part in (scheduler, scheduler._runs):
        monkeypatch.setattr(part, "_clock", lambda: house.loop.clock_ms() + 3_600_000)
    house.finish("held")
    await running
    assert [view.error for view in await ended(house, late)] == [LATE_QUEUED]
    assert labels(house) == ["held"]


@pytest.mark.parametrize("left_ms", [20, 60, 150])
def test_a_task_ends_at_its_deadline_however_little_time_it_had(left_ms: int) -> None:
    async def play(house: House) -> None:
        session = await house.open()
        task_id = await submit(house, "hang", tab_id=session.tabs[0].tab_id, deadline=house.now + left_ms)
        (view,) = await ended(house, task_id)
        assert view.code == "deadline_exceeded"
        assert view.latency_ms is not None
        assert view.latency_ms <= left_ms + 50

    run_in_house(play)


@in_house()
async def test_a_task_ends_at_its_deadline_although_its_browser_hangs(house: House) -> None:
    task_id = await submit(house, "hang", deadline=house.now + 300)
    await house.until(lambda: labels(house) == ["hang"])
    for process in house.processes.values():
        process.is_hung = True
    (view,) = await ended(house, task_id)
    assert view.latency_ms is not None
    assert view.latency_ms <= 350


@in_house()
async def test_what_a_task_did_is_told_although_its_lease_could_not_be_given_back_at_once(house: House) -> None:
    release, refused = house.broker.sessions.release, list[str]()

    async def refusing(caller: Any, session_id: str, *args: Any) -> None:
        if session_id not in refused:
            refused.append(session_id)
            raise errors.StoreUnavailable("the disk is full", cause="full")
        await release(caller, session_id, *args)

    house.broker.sessions.release = refusing  # type: ignore[method-assign]
    (view,) = await ended(house, await submit(house))
    assert (view.state, view.result) == ("done", "one")
    await house.until(lambda: not len(house.broker.registry), within_s=5)


@in_house()
async def test_tasks_that_wait_for_a_tab_hear_at_once_that_its_session_ended(house: House) -> None:
    session = await house.open()
    # So that the session is without a browser for a while.
    house.launcher._fail_rate = 1.0
    await house.lose_browser(session)
    task_id = await submit(house, tab_id=session.tabs[0].tab_id, deadline=house.now + 60_000)
    await house.release(session)
    view = await get(house, task_id, wait_ms=1_000)
    assert (view.state, view.code) == ("failed", "lease_lost")


def test_a_task_that_was_sent_is_not_sent_again_when_two_servers_die_in_a_row() -> None:
    async def play(house: House) -> None:
        session = await house.open()
        task_id = await submit(house, "held", tab_id=session.tabs[0].tab_id)
        await house.until(lambda: labels(house) == ["held"])
        await house.kill()
        await house.kill()
        (view,) = await ended(house, task_id)
        assert (view.state, view.code, labels(house)) == ("failed", "outcome_unknown", ["held"])

    in_houses(play)


def test_tasks_that_end_while_the_server_starts_are_archived_like_others() -> None:
    async def play(house: House) -> None:
        house.config = with_scheduler(house, result_ttl_s=1)
        session = await house.open()
        done = [await submit(house, str(n), tab_id=session.tabs[0].tab_id) for n in range(3)]
        await ended(house, *done)
        await submit(house, "held", tab_id=session.tabs[0].tab_id)
        await house.until(lambda: labels(house)[-1] == "held")
        await house.kill()
        await asyncio.sleep(10)
        assert rows(house) == {}

    in_houses(play)


def test_a_task_that_is_refused_is_archived_like_others_when_its_submitter_leaves() -> None:
    async def play(house: House) -> None:
        house.broker.tasking.reconfigure(with_scheduler(house, queue_max=1, workers=1, result_ttl_s=1))
        session = await house.open()
        for label in ("held", "waits"):
            await submit(house, label, tab_id=session.tabs[0].tab_id)
        for _ in range(10):
            leaving = asyncio.ensure_future(submit(house, tab_id=session.tabs[0].tab_id))
            await asyncio.sleep(house.chance.random() * 0.006)
            leaving.cancel()
            await asyncio.wait([leaving])
        house.finish("held")
        await asyncio.sleep(10)
        assert rows(house) == {}

    in_houses(play)


@in_house()
async def test_what_was_tried_before_is_not_said_to_have_waited_only(house: House) -> None:
    session = await house.open()
    task_id = await submit(house, "x-held", tab_id=session.tabs[0].tab_id, idempotent=True, deadline=house.now + 2_000)
    await house.until(lambda: labels(house) == ["x-held"])
    house.broker.tasking.reconfigure(with_scheduler(house, enabled=False))
    house.crash(session)
    (view,) = await ended(house, task_id)
    assert (view.code, view.attempts, view.error) == ("deadline_exceeded", 1, "deadline exceeded")


@in_house()
async def test_a_task_starts_at_once_when_the_one_ends_for_whom_a_worker_was_kept(house: House) -> None:
    house.broker.tasking.reconfigure(with_scheduler(house, workers=2))
    tabs = [(await house.open()).tabs[0].tab_id for _ in range(2)]
    others = await house.open(BOB)
    running = asyncio.ensure_future(house.act(others, "b-held", BOB))
    await house.until(lambda: labels(house) == ["b-held"])
    waiting = await submit(house, "b", BOB, tab_id=others.tabs[0].tab_id)
    for label, tab_id in zip(("a-held", "second"), tabs, strict=True):
        await submit(house, label, tab_id=tab_id)
    await house.until(lambda: labels(house) == ["b-held", "a-held"])
    # Its end is not on disk for long.
    house.store._fail_rate = 1.0
    cancelling = asyncio.ensure_future(house.broker.tasking.verbs.cancel(BOB, waiting))
    await house.until(lambda: labels(house)[-1] == "second", within_s=0.1)
    house.store._fail_rate = 0.0
    for label in ("a-held", "b-held"):
        house.finish(label)
    await asyncio.gather(running, cancelling)


def test_who_has_nothing_in_flight_is_told_to_be_before_whoever_has() -> None:
    queue = TaskQueue(Limits(workers=3, max_per_agent=2))
    for arrival, (id, agent_id) in enumerate((("a1", "ada"), ("a2", "ada"), ("b1", "bob"))):
        queue.add(Waiting(id=id, agent_id=agent_id, lane="pool", is_serial=False, arrival=arrival))
    assert [queue.take().id, queue.take().id] == ["a1", "b1"]  # type: ignore[union-attr]
    queue.add(Waiting(id="b2", agent_id="bob", lane="pool", is_serial=False, arrival=4))
    queue.finish("b1")
    assert queue.position("b2") == 1
    assert queue.take().id == "b2"  # type: ignore[union-attr]


@in_house()
async def test_a_page_that_dies_before_its_task_is_sent_keeps_nobody_waiting(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.broker.tasking.reconfigure(with_scheduler(house, workers=1))
    sessions, given_back = house.broker.sessions, asyncio.Event()
    lease, release = sessions.lease, sessions.release
    leased: list[str] = []

    async def dying(*args: Any, **more: Any) -> Any:
        live = await lease(*args, **more)
        leased.append(live.row.id)
        if len(leased) == 1:
            process, (tab,) = house.processes[live.row.browser_id], live.tabs.values()
            process.crash_page(process.targets[tab.row.target_id])
        return live

    async def late(*args: Any) -> None:
        if args[1] == leased[0]:
            await given_back.wait()
        await release(*args)

    async def never(*args: Any) -> None:
        await given_back.wait()

    monkeypatch.setattr(sessions, "lease", dying)
    monkeypatch.setattr(sessions, "release", late)
    # Its browser takes long over another page.
    monkeypatch.setattr(house.broker._recovery, "_replace", never)
    first, second = await submit(house, "b", BOB), await submit(house, "a")
    # Neither whose page it was nor anybody else, although that session is not given back.
    assert [view.state for view in await ended(house, first, second)] == ["done", "done"]
    assert len(leased) == 3
    given_back.set()
