"""What is told of tasks that fail half-way, are cancelled from behind, have too much to say, or wait behind another."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.broker.house import ADA, House, agent, in_house, run_in_house
from tests.broker.tasking import check_counters, ended, get, labels, rows, submit, with_retention, with_scheduler

from tabherd import errors, wire
from tabherd.broker.task_ending import RESULT_MAX_CHARS
from tabherd.core.lifecycle import TaskState
from tabherd.core.model import ArchivedTask, TaskKey


@in_house()
async def test_a_step_that_fails_fails_the_task_which_tells_what_became_of_each(house: House) -> None:
    session = await house.open()

    async def perform(tab: Any, action: Any, progress: Any) -> str:
        if action.expression == "2":
            raise errors.JavascriptError("The page threw: no")
        return "fine"

    house.broker.commands._performing._perform = perform
    steps: list[Any] = [wire.Evaluate(expression=label) for label in ("1", "2", "3")]
    request = wire.SubmitTask(steps=steps, tab_id=session.tabs[0].tab_id)
    (view,) = await ended(house, (await house.broker.tasking.verbs.submit(ADA, request)).task_id)
    assert (view.state, view.code, view.error) == ("failed", "javascript_error", "The page threw: no")
    assert [step["ok"] for step in view.result] == [True, False]
    check_counters(house)


@in_house()
async def test_an_action_keeps_its_own_time_within_the_deadline(house: House) -> None:
    session = await house.open()
    request = wire.SubmitTask(
        action="evaluate", params={"expression": "held", "timeoutMs": 500}, tab_id=session.tabs[0].tab_id
    )
    (view,) = await ended(house, (await house.broker.tasking.verbs.submit(ADA, request)).task_id)
    assert (view.state, view.code) == ("failed", "command_timed_out")
    assert view.latency_ms is not None
    assert view.latency_ms < 1_000


@in_house()
async def test_a_result_that_is_too_large_to_be_kept_is_said_to_be(house: House) -> None:
    session = await house.open()

    async def perform(*_: Any) -> str:
        return "x" * RESULT_MAX_CHARS

    house.broker.commands._performing._perform = perform
    (view,) = await ended(house, await submit(house, tab_id=session.tabs[0].tab_id))
    assert (view.state, view.result, view.code) == ("done", None, "body_too_large")
    check_counters(house)


@in_house()
async def test_a_task_whose_command_is_cancelled_is_cancelled(house: House) -> None:
    session = await house.open()
    task_id = await submit(house, "held", tab_id=session.tabs[0].tab_id)
    await house.until(lambda: labels(house) == ["held"])
    holder = house.broker.tabs.get(ADA, session.tabs[0].tab_id).holder
    assert holder is not None
    await house.broker.commands.cancel(ADA, str(holder.command_id))
    assert (await ended(house, task_id))[0].state == "cancelled"
    check_counters(house)


@in_house()
async def test_who_is_first_but_behind_one_that_runs_is_not_told_to_start_at_once(house: House) -> None:
    session = await house.open()
    tab_id = session.tabs[0].tab_id
    before = await submit(house, "a-held", tab_id=tab_id)
    await house.until(lambda: labels(house) == ["a-held"])
    await asyncio.sleep(0.4)
    house.finish("a-held")
    await ended(house, before)
    await submit(house, "b-held", tab_id=tab_id)
    view = await get(house, await submit(house, "c", tab_id=tab_id))
    assert (view.position, view.eta_ms is not None and view.eta_ms >= 400) == (1, True)


# --- Keys -------------------------------------------------------------------------------------------------------


@in_house()
async def test_a_key_is_kept_as_long_as_its_task_and_goes_with_it(house: House) -> None:
    session = await house.open(keep_alive=True)
    tab_id = session.tabs[0].tab_id
    done = [await submit(house, str(n), tab_id=tab_id, idempotency_key=f"k{n}") for n in range(4)]
    await ended(house, *done)
    house.broker.tasking.reconfigure(with_retention(with_scheduler(house, result_ttl_s=1), tasks_max=2))
    await asyncio.sleep(5)
    assert {row.task_id for row in house.disk.rows(TaskKey)} == {*done[-2:]}
    assert await submit(house, "3", tab_id=tab_id, idempotency_key="k3") == done[3]
    assert await submit(house, "0", tab_id=tab_id, idempotency_key="k0") not in done


@in_house()
async def test_keys_of_agents_never_meet_however_they_are_called(house: House) -> None:
    one, other = agent("a"), agent("a:b")
    first = await submit(house, "1", one, idempotency_key="b:c")
    second = await submit(house, "1", other, idempotency_key="c")
    assert first != second
    assert [view.agent_id for view in await ended(house, first, second)] == ["a", "a:b"]


@in_house()
async def test_a_session_whose_tab_was_closed_under_a_task_ends_for_its_silence_all_the_same(house: House) -> None:
    session = await house.open()
    second = await house.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab())
    lock = await house.broker.tab_locks.lock(ADA, second.tab_id, wire.LockTab(lock_lease_ms=60_000))
    task_id = await submit(house, tab_id=second.tab_id, deadline=house.now + 3_600_000)
    await asyncio.sleep(1)
    await house.broker.commands.run(ADA, second.tab_id, wire.Close())
    assert lock.tab_id == second.tab_id
    assert (await ended(house, task_id))[0].state == "failed"
    await house.until(lambda: not house.is_bound(session))


@in_house()
async def test_who_is_rejected_does_not_wait_for_a_store_that_is_away(house: House) -> None:
    session = await house.open()
    house.broker.tasking.reconfigure(with_scheduler(house, queue_max=1, workers=1))
    first = await submit(house, "held", tab_id=session.tabs[0].tab_id)
    await house.until(lambda: labels(house) == ["held"])
    second = await submit(house, tab_id=session.tabs[0].tab_id)
    house.store._fail_rate = 1.0
    with pytest.raises(errors.QueueFull):
        await submit(house, tab_id=session.tabs[0].tab_id)
    house.store._fail_rate = 0.0
    house.finish("held")
    await ended(house, first, second)


@in_house()
async def test_a_task_that_was_accepted_waits_for_a_store_that_is_away_when_it_needs_a_session(house: House) -> None:
    house.broker.tasking.reconfigure(with_scheduler(house, workers=1))
    session = await house.open()
    first = await submit(house, "held", tab_id=session.tabs[0].tab_id)
    await house.until(lambda: labels(house) == ["held"])
    second = await submit(house)
    house.store._fail_rate = 1.0
    house.finish("held")
    await house.until(lambda: house.broker.tasking.scheduler.count()["assigned"] == 1)
    await asyncio.sleep(30)
    assert house.broker.tasking.scheduler.count()["assigned"] == 1
    house.store._fail_rate = 0.0
    assert [view.state for view in await ended(house, first, second)] == ["done", "done"]
    check_counters(house)


@in_house()
async def test_the_archive_knows_after_a_restart_how_many_it_has(house: House) -> None:
    session = await house.open(keep_alive=True)
    done = [await submit(house, str(n), tab_id=session.tabs[0].tab_id) for n in range(4)]
    await ended(house, *done)
    house.broker.tasking.reconfigure(with_scheduler(house, result_ttl_s=1))
    await house.until(lambda: len(house.disk.rows(ArchivedTask)) == 4)
    await house.kill()
    house.broker.tasking.reconfigure(with_retention(house.config, tasks_max=1))
    await house.until(lambda: [row.id for row in house.disk.rows(ArchivedTask)] == done[-1:])


def test_an_end_that_cannot_be_written_keeps_no_other_task_from_its_own() -> None:
    async def scene(house: House) -> None:
        sessions = [await house.open() for _ in range(3)]
        house.broker.tasking.reconfigure(with_scheduler(house, workers=3))
        tasks = [await submit(house, f"held {n}", tab_id=each.tabs[0].tab_id) for n, each in enumerate(sessions)]
        await house.until(lambda: len(labels(house)) == 3)
        poisoned = house.broker.tasking.scheduler.find(tasks[1])
        assert poisoned is not None
        # As if somebody else had written it.
        poisoned.row = msgspec.structs.replace(poisoned.row, version=7)
        for n in range(3):
            house.finish(f"held {n}")
        views = await ended(house, tasks[0], tasks[2])
        assert [view.state for view in views] == ["done", "done"]
        assert rows(house)[tasks[1]].state == TaskState.QUEUED

    with pytest.raises(AssertionError, match="cannot be written"):
        run_in_house(scene)


@in_house()
async def test_a_flood_of_refusals_is_forgotten_and_pushes_no_result_out_of_the_archive(house: House) -> None:
    settings = with_retention(with_scheduler(house, queue_max=1, workers=1), rejected_max=2, tasks_max=5)
    house.broker.tasking.reconfigure(settings)
    session = await house.open()
    done = await submit(house, tab_id=session.tabs[0].tab_id)
    await ended(house, done)
    held = await submit(house, "held", tab_id=session.tabs[0].tab_id)
    await house.until(lambda: "held" in labels(house))
    await submit(house, "waits", tab_id=session.tabs[0].tab_id, deadline=house.now + 3_600_000)
    for _ in range(10):
        with pytest.raises(errors.QueueFull):
            await submit(house, tab_id=session.tabs[0].tab_id)
    await asyncio.sleep(5)
    assert [row.state for row in rows(house).values()].count(TaskState.REJECTED) == 2
    assert not house.disk.rows(ArchivedTask)
    house.finish("held")
    await asyncio.sleep(400)
    assert {done, held} <= {row.id for row in house.disk.rows(ArchivedTask)}
