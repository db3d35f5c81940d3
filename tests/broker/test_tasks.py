"""Tasks: admitted or refused, run in their turn, late, and cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
import structlog
from tests.broker.house import ADA, ADMIN, BOB, House, in_house
from tests.broker.tasking import check_counters, ended, get, labels, rows, submit, with_scheduler

from tabherd import errors, wire
from tabherd.broker.caller import Caller
from tabherd.core.lifecycle import TaskState

# --- From submission to end -------------------------------------------------------------------------------------


@in_house()
async def test_a_task_on_a_tab_is_run_and_keeps_its_result(house: House) -> None:
    session = await house.open()
    task_id = await submit(house, tab_id=session.tabs[0].tab_id)
    assert rows(house)[task_id].state is TaskState.QUEUED
    (view,) = await ended(house, task_id)
    assert (view.state, view.result, view.attempts, view.error) == ("done", "one", 1, None)
    assert view.started_at is not None
    assert view.completed_at is not None
    assert rows(house)[task_id].state is TaskState.DONE
    check_counters(house)


@in_house()
async def test_a_task_on_a_session_runs_on_its_first_tab(house: House) -> None:
    session = await house.open()
    (view,) = await ended(house, await submit(house, session_id=session.session_id))
    assert view.state == "done"
    assert house.sent[-1][0] == house.page(session).target_id


@in_house()
async def test_a_task_that_brings_no_tab_has_one_leased_and_given_back(house: House) -> None:
    task_id = await submit(house, "held")
    await house.until(lambda: labels(house) == ["held"])
    assert house.stats().active == 1
    house.finish("held")
    assert (await ended(house, task_id))[0].state == "done"
    await house.until(lambda: house.stats().active == 0)


@in_house()
async def test_steps_are_one_task(house: House) -> None:
    session = await house.open()
    steps: list[Any] = [wire.Evaluate(expression="1"), wire.Evaluate(expression="2")]
    request = wire.SubmitTask(steps=steps, tab_id=session.tabs[0].tab_id)
    done = await house.broker.tasking.verbs.submit(ADA, request)
    (view,) = await ended(house, done.task_id)
    assert (view.action, view.state) == ("steps", "done")
    assert [step["result"] for step in view.result] == ["1", "2"]


@in_house()
async def test_what_the_page_refuses_is_how_the_task_failed(house: House) -> None:
    session = await house.open()

    async def throws(*_: Any) -> Any:
        raise errors.JavascriptError("The page threw: no")

    house.broker.commands._performing._perform = throws
    (view,) = await ended(house, await submit(house, tab_id=session.tabs[0].tab_id))
    assert (view.state, view.code, view.error) == ("failed", "javascript_error", "The page threw: no")
    check_counters(house)


@in_house()
async def test_every_step_of_a_task_is_logged_once(house: House) -> None:
    tab_id = (await house.open()).tabs[0].tab_id
    with structlog.testing.capture_logs() as logs:
        done = await submit(house, "held", tab_id=tab_id)
        await house.until(lambda: labels(house) == ["held"])
        cancelled = await submit(house, tab_id=tab_id)
        await house.broker.tasking.verbs.cancel(ADA, cancelled)
        failed = await submit(house, tab_id=tab_id, deadline=house.now + 1_000)
        house.broker.tasking.reconfigure(with_scheduler(house, queue_max=1, workers=1))
        with pytest.raises(errors.QueueFull) as refused:
            await submit(house, tab_id=tab_id)
        await ended(house, failed)
        house.finish("held")
        await ended(house, done)

    def lines_of(task_id: str) -> list[tuple[str, str]]:
        lines = [line for line in logs if line.get("taskId") == task_id]
        assert all(line["agentId"] == "ada" for line in lines)
        return [(line["log_level"], f"{line['event']} {line.get('code', '')}".strip()) for line in lines]

    queued, assigned, running = ("debug", "task queued"), ("debug", "task assigned"), ("debug", "task running")
    assert lines_of(done) == [queued, assigned, running, ("debug", "task done")]
    assert lines_of(cancelled) == [queued, ("debug", "task cancelled")]
    assert lines_of(failed) == [queued, ("info", "task failed deadline_exceeded")]
    assert lines_of(refused.value.details["taskId"]) == [("info", "task rejected queue_full")]


@in_house()
async def test_an_error_that_no_store_can_hold_ends_the_task_all_the_same(house: House) -> None:
    session = await house.open()

    async def throws(*_: Any) -> Any:
        raise errors.JavascriptError("The page threw: \0 and \ud800")

    house.broker.commands._performing._perform = throws
    views = await ended(house, *[await submit(house, tab_id=session.tabs[0].tab_id) for _ in range(2)])
    assert [view.error for view in views] == ["The page threw: \ufffd and \ufffd"] * 2


# --- Refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"action": "fly"}, errors.UnknownAction),
        ({"action": "click", "params": {"selector": "#a"}}, errors.InvalidRequest),
        ({"action": "click", "params": {"kind": "text"}}, errors.InvalidRequest),
        ({"action": "fill", "params": {}}, errors.InvalidRequest),
        ({}, errors.InvalidRequest),
        ({"action": "text", "steps": [wire.Text()]}, errors.InvalidRequest),
        ({"action": "text", "deadline": "yesterday"}, errors.InvalidRequest),
        ({"action": "text", "deadline": "2026-01-01T00:00:00"}, errors.InvalidRequest),
        ({"action": "text", "deadline": 1}, errors.InvalidRequest),
        ({"action": "text", "pool": "nowhere"}, errors.InvalidRequest),
        ({"action": "text", "tab_id": "tab_of_nobody"}, errors.TabNotFound),
        ({"action": "text", "session_id": "ses_of_nobody"}, errors.SessionNotFound),
    ],
    ids=str,
)
def test_what_could_never_be_run_is_refused(fields: dict[str, Any], error: type[errors.TabherdError]) -> None:
    @in_house()
    async def scene(house: House) -> None:
        with pytest.raises(error):
            await house.broker.tasking.verbs.submit(ADA, wire.SubmitTask(**fields))
        assert rows(house) == {}
        check_counters(house)

    scene()


@in_house()
async def test_tabs_and_tasks_of_others_do_not_exist(house: House) -> None:
    session = await house.open()
    with pytest.raises(errors.TabNotFound):
        await submit(house, caller=BOB, tab_id=session.tabs[0].tab_id)
    task_id = await submit(house, "held", tab_id=session.tabs[0].tab_id)
    for verb in (house.broker.tasking.verbs.get, house.broker.tasking.verbs.cancel):
        with pytest.raises(errors.TaskNotFound):
            await verb(BOB, task_id)
    assert (await house.broker.tasking.verbs.list(BOB)).tasks == []
    house.finish("held")
    await ended(house, task_id)
    with pytest.raises(errors.TaskNotFound):
        await get(house, task_id, BOB)


@in_house()
async def test_only_an_admin_submits_for_others(house: House) -> None:
    with pytest.raises(errors.Forbidden):
        await submit(house, caller=BOB, agent_id="ada")
    task_id = await submit(house, caller=ADMIN, agent_id="ada")
    assert (await ended(house, task_id))[0].agent_id == "ada"


@in_house()
async def test_a_task_may_do_what_its_credential_may(house: House) -> None:
    session = await house.open()
    weak = Caller(agent_id="ada", scopes=frozenset({"browse", "tasks"}), controller_id="weak")
    (view,) = await ended(house, await submit(house, caller=weak, tab_id=session.tabs[0].tab_id))
    assert (view.state, view.code) == ("failed", "forbidden")


@in_house()
async def test_beyond_the_bound_tasks_are_rejected_and_kept(house: House) -> None:
    session = await house.open()
    house.broker.tasking.reconfigure(with_scheduler(house, queue_max=2, workers=1))
    first = await submit(house, "held", tab_id=session.tabs[0].tab_id)
    await house.until(lambda: labels(house) == ["held"])
    waiting = [await submit(house, tab_id=session.tabs[0].tab_id) for _ in range(2)]
    with pytest.raises(errors.QueueFull) as refused:
        await submit(house, tab_id=session.tabs[0].tab_id)
    assert refused.value.retry_after_ms
    rejected = await get(house, refused.value.details["taskId"])
    assert (rejected.state, rejected.code) == ("rejected", "queue_full")
    house.finish("held")
    assert [view.state for view in await ended(house, first, *waiting)] == ["done"] * 3
    check_counters(house)


@in_house()
async def test_a_scheduler_that_is_switched_off_says_so_and_not_to_come_back(house: House) -> None:
    house.broker.tasking.reconfigure(with_scheduler(house, enabled=False))
    with pytest.raises(errors.SchedulerDisabled) as refused:
        await submit(house)
    assert (refused.value.status, refused.value.retryable, refused.value.retry_after_ms) == (503, False, None)
    assert "[scheduler] enabled" in refused.value.action


@in_house()
async def test_those_that_are_being_written_count_as_waiting(house: House) -> None:
    session = await house.open()
    house.broker.tasking.reconfigure(with_scheduler(house, queue_max=3))
    submitting = [submit(house, tab_id=session.tabs[0].tab_id) for _ in range(10)]
    answers = await asyncio.gather(*submitting, return_exceptions=True)
    assert [isinstance(answer, errors.QueueFull) for answer in answers] == [False] * 3 + [True] * 7


@in_house()
async def test_a_batch_is_admitted_as_far_as_it_may(house: House) -> None:
    house.broker.tasking.reconfigure(with_scheduler(house, queue_max=2))
    fields = wire.TaskFields(action="evaluate", params={"expression": "1"})
    bad = wire.TaskFields(action="fly")
    answer = await house.broker.tasking.verbs.submit_batch(ADA, wire.SubmitBatch(tasks=[fields, bad, fields, fields]))
    assert (answer.submitted, answer.rejected) == (2, 2)
    assert [item.error and item.error["code"] for item in answer.tasks] == [None, "unknown_action", None, "queue_full"]
    await ended(house, answer.tasks[0].task_id, answer.tasks[2].task_id)
    with pytest.raises(errors.BatchTooLarge):
        await house.broker.tasking.verbs.submit_batch(ADA, wire.SubmitBatch(tasks=[fields] * 51))


@in_house()
async def test_a_batch_is_started_in_its_order_with_and_without_keys(house: House) -> None:
    session = await house.open()
    house.broker.tasking.reconfigure(with_scheduler(house, workers=1))
    await submit(house, "held", tab_id=session.tabs[0].tab_id)
    await house.until(lambda: labels(house) == ["held"])
    tasks = [
        wire.TaskFields(
            action="evaluate",
            params={"expression": str(place)},
            tab_id=session.tabs[0].tab_id,
            idempotency_key=f"key {place}" if place % 2 else None,
        )
        for place in range(6)
    ]
    answer = await house.broker.tasking.verbs.submit_batch(ADA, wire.SubmitBatch(tasks=tasks))
    house.finish("held")
    await ended(house, *(item.task_id for item in answer.tasks))
    assert labels(house) == ["held", *map(str, range(6))]


@in_house()
async def test_a_batch_whose_caller_leaves_keeps_no_places(house: House) -> None:
    session = await house.open()
    house.broker.tasking.reconfigure(with_scheduler(house, queue_max=3, workers=1))
    held = await submit(house, "held", tab_id=session.tabs[0].tab_id)
    await house.until(lambda: labels(house) == ["held"])
    one = wire.TaskFields(action="evaluate", params={"expression": "x"}, tab_id=session.tabs[0].tab_id)
    keyed = msgspec.structs.replace(one, idempotency_key="k")
    batch = wire.SubmitBatch(tasks=[one, keyed, one, one, one])
    leaving = asyncio.ensure_future(house.broker.tasking.verbs.submit_batch(ADA, batch))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait([leaving])
    assert leaving.cancelled()
    await house.until(lambda: house.broker.tasking.scheduler.queue.waiting == 3)
    assert not house.broker.tasking.scheduler.intake.arriving
    house.finish("held")
    await house.until(lambda: not house.broker.tasking.scheduler.queue.waiting)
    await ended(house, held)


@in_house()
async def test_a_store_that_is_away_refuses_a_batch_and_keeps_no_places(house: House) -> None:
    session = await house.open()
    one = wire.TaskFields(action="evaluate", params={"expression": "x"}, tab_id=session.tabs[0].tab_id)
    house.store._fail_rate = 1.0
    answer = await house.broker.tasking.verbs.submit_batch(ADA, wire.SubmitBatch(tasks=[one, one]))
    house.store._fail_rate = 0.0
    assert [item.error and item.error["code"] for item in answer.tasks] == ["store_unavailable"] * 2
    assert not house.broker.tasking.scheduler.intake.arriving
    assert not house.broker.tasking.scheduler.queue.waiting


@in_house()
async def test_the_same_key_is_the_same_task(house: House) -> None:
    session = await house.open()
    asked = {"tab_id": session.tabs[0].tab_id, "idempotency_key": "k"}
    ids = await asyncio.gather(*(submit(house, "held", **asked) for _ in range(3)))
    assert len(set(ids)) == 1
    with pytest.raises(errors.IdempotencyConflict):
        await submit(house, "other", **asked)
    of_bob = await submit(house, "held", caller=BOB, idempotency_key="k")
    assert of_bob != ids[0]
    house.finish("held")
    await ended(house, ids[0], of_bob)
    assert await submit(house, "held", **asked) == ids[0]
    assert labels(house).count("held") == 2


# --- Turns ------------------------------------------------------------------------------------------------------


@in_house()
async def test_a_tab_that_somebody_else_has_keeps_no_worker_and_is_taken_when_it_is_free(house: House) -> None:
    house.broker.tasking.reconfigure(with_scheduler(house, workers=1))
    busy, free = await house.open(), await house.open()
    command = asyncio.ensure_future(house.act(busy, "mine-held", timeout_ms=60_000))
    await house.until(lambda: house.page(busy).active)
    waiting = await submit(house, "waiting", tab_id=busy.tabs[0].tab_id)
    other = await submit(house, "other", tab_id=free.tabs[0].tab_id)
    assert (await ended(house, other))[0].state == "done"
    assert (await get(house, waiting)).state == "queued"
    house.finish("mine-held")
    await command
    assert (await ended(house, waiting))[0].state == "done"
    assert labels(house) == ["mine-held", "other", "waiting"]


@in_house()
async def test_a_locked_tab_is_waited_for(house: House) -> None:
    session = await house.open()
    tab_id = session.tabs[0].tab_id
    lock = await house.broker.tab_locks.lock(ADA, tab_id, wire.LockTab(lock_lease_ms=5_000))
    task_id = await submit(house, tab_id=tab_id)
    await asyncio.sleep(1)
    assert (await get(house, task_id)).state == "queued"
    house.broker.tab_locks.unlock(ADA, tab_id, lock.ticket)
    assert (await ended(house, task_id))[0].state == "done"


@in_house()
async def test_a_tab_that_is_closed_fails_what_waits_for_it(house: House) -> None:
    session = await house.open()
    tab_id = session.tabs[0].tab_id
    await house.broker.tab_locks.lock(ADA, tab_id, wire.LockTab(lock_lease_ms=60_000))
    task_id = await submit(house, tab_id=tab_id)
    await asyncio.sleep(1)
    await house.release(session)
    (view,) = await ended(house, task_id)
    assert (view.state, view.code) == ("failed", "lease_lost")


@in_house()
async def test_tasks_keep_their_session_alive(house: House) -> None:
    session = await house.open()
    later = wire.SubmitTask(
        action="evaluate",
        params={"expression": "x-held"},
        tab_id=session.tabs[0].tab_id,
        deadline=house.now + 3_600_000,
    )
    first = (await house.broker.tasking.verbs.submit(ADA, later)).task_id
    await asyncio.sleep(1_000)
    assert house.is_bound(session)
    house.finish("x-held")
    await ended(house, first)
    await house.until(lambda: not house.is_bound(session))


@in_house(sessions_per_browser=2)
async def test_one_task_at_a_time_waits_for_a_place_and_others_are_not_kept_from_theirs(house: House) -> None:
    house.broker.tasking.reconfigure(with_scheduler(house, workers=2))
    first, second = await house.open(), await house.open(BOB)
    leasing = [await submit(house, f"leased-{n}") for n in range(3)]
    await asyncio.sleep(1)
    on_tab = await submit(house, "on tab", tab_id=first.tabs[0].tab_id)
    assert (await ended(house, on_tab))[0].state == "done"
    await house.release(second, BOB)
    assert [view.state for view in await ended(house, *leasing)] == ["done"] * 3


@in_house()
async def test_agents_take_turns(house: House) -> None:
    house.broker.tasking.reconfigure(with_scheduler(house, workers=1))
    greedy, ada = await house.open(BOB), await house.open()
    first = await submit(house, "held", BOB, tab_id=greedy.tabs[0].tab_id)
    flood = [await submit(house, f"greedy-{n}", BOB, tab_id=greedy.tabs[0].tab_id) for n in range(20)]
    single = await submit(house, "single", tab_id=ada.tabs[0].tab_id)
    house.finish("held")
    await ended(house, first, single, *flood)
    assert labels(house)[:2] == ["held", "single"]
    check_counters(house)


@in_house()
async def test_how_many_were_started_and_how_long_they_had_waited_is_counted(house: House) -> None:
    tab_ids = [(await house.open(caller)).tabs[0].tab_id for caller in (ADA, BOB)]
    first = await submit(house, "held", tab_id=tab_ids[0])
    second = await submit(house, tab_id=tab_ids[0])
    others = await submit(house, caller=BOB, tab_id=tab_ids[1])
    await asyncio.sleep(9)
    counted = house.broker.tasking.verbs.stats().metrics
    assert (counted.dispatch_total, counted.agents["ada"].dispatch_total) == (2, 1)
    house.finish("held")
    await ended(house, first, second, others)
    waited = {id: row.started_at - row.created_at for id, row in rows(house).items()}
    assert waited[second] >= 9_000
    counted = house.broker.tasking.verbs.stats().metrics
    assert (counted.dispatch_total, counted.avg_dispatch_latency_ms) == (3, sum(waited.values()) / 3)
    ada, bob = counted.agents["ada"], counted.agents["bob"]
    assert (ada.dispatch_total, ada.avg_dispatch_latency_ms) == (2, (waited[first] + waited[second]) / 2)
    assert (bob.dispatch_total, bob.avg_dispatch_latency_ms) == (1, waited[others])


@in_house()
async def test_the_stats_tell_the_settings_that_are_in_force(house: House) -> None:
    settings = {
        "enabled": False,
        "queue_max": 1_001,
        "queue_max_per_agent": 1_002,
        "workers": 103,
        "max_inflight_per_agent": 104,
        "result_ttl_s": 105,
        "priority_aging_ms": 106,
        "deadline_ms": 107,
    }
    house.broker.tasking.reconfigure(with_scheduler(house, **settings))
    assert house.broker.tasking.verbs.stats().config == {
        "enabled": False,
        "maxQueueSize": 1_001,
        "maxPerAgent": 1_002,
        "maxInflight": 103,
        "maxPerAgentInflight": 104,
        "workerCount": 103,
        "resultTTLSec": 105,
        "priorityAgingMs": 106,
        "defaultDeadlineMs": 107,
    }


@in_house()
async def test_positions_and_times_are_told(house: House) -> None:
    house.broker.tasking.reconfigure(with_scheduler(house, workers=1))
    session = await house.open()
    await ended(house, await submit(house, tab_id=session.tabs[0].tab_id))
    first = await submit(house, "held", tab_id=session.tabs[0].tab_id)
    await house.until(lambda: labels(house)[-1:] == ["held"])
    waiting = [await submit(house, tab_id=session.tabs[0].tab_id) for _ in range(3)]
    views = [await get(house, task_id) for task_id in waiting]
    assert [view.position for view in views] == [1, 2, 3]
    assert all(view.eta_ms is not None for view in views)
    assert (await get(house, first)).position is None
    house.finish("held")
    await ended(house, first, *waiting)


# --- Deadlines and cancelling -----------------------------------------------------------------------------------


@in_house()
async def test_a_task_that_waits_too_long_fails_at_its_deadline(house: House) -> None:
    session = await house.open()
    first = await submit(house, "held", tab_id=session.tabs[0].tab_id, deadline=house.now + 600_000)
    began = house.now
    late = await submit(house, "late", tab_id=session.tabs[0].tab_id, deadline=began + 5_000)
    (view,) = await ended(house, late)
    assert (view.state, view.code, view.error) == ("failed", "deadline_exceeded", "deadline exceeded while queued")
    assert 5_000 <= house.now - began <= 5_050
    house.finish("held")
    await ended(house, first)
    assert labels(house) == ["held"]
    assert house.broker.tasking.verbs.stats().metrics.tasks_expired == 1
    check_counters(house)


@in_house()
async def test_a_task_that_runs_too_long_fails_at_its_deadline(house: House) -> None:
    session = await house.open()
    task_id = await submit(house, "never-held", tab_id=session.tabs[0].tab_id, deadline=house.now + 5_000)
    began = house.now
    (view,) = await ended(house, task_id)
    assert (view.state, view.code) == ("failed", "deadline_exceeded")
    assert house.now - began <= 5_100
    check_counters(house)


@in_house()
async def test_a_task_that_waits_is_cancelled(house: House) -> None:
    session = await house.open()
    first = await submit(house, "held", tab_id=session.tabs[0].tab_id)
    second = await submit(house, "second", tab_id=session.tabs[0].tab_id)
    assert (await house.broker.tasking.verbs.cancel(ADA, second)).state == "cancelled"
    house.finish("held")
    await ended(house, first)
    assert labels(house) == ["held"]
    with pytest.raises(errors.StateConflict):
        await house.broker.tasking.verbs.cancel(ADA, second)
    check_counters(house)


@in_house()
async def test_a_task_that_runs_is_cancelled(house: House) -> None:
    session = await house.open()
    task_id = await submit(house, "held", tab_id=session.tabs[0].tab_id)
    await house.until(lambda: labels(house) == ["held"])
    assert (await house.broker.tasking.verbs.cancel(ADA, task_id)).state == "cancelled"
    assert house.broker.tasking.verbs.stats().queue.total_inflight == 0
    check_counters(house)
    assert (await ended(house, await submit(house, "next", tab_id=session.tabs[0].tab_id)))[0].state == "done"


@in_house(sessions_per_browser=1)
async def test_a_task_that_waits_for_a_place_is_cancelled_and_leaves_no_place_taken(house: House) -> None:
    session = await house.open()
    task_id = await submit(house)
    await asyncio.sleep(1)
    assert (await house.broker.tasking.verbs.cancel(ADA, task_id)).state == "cancelled"
    await house.release(session)
    assert (await ended(house, await submit(house)))[0].state == "done"
