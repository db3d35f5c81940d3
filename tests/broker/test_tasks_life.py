"""Tasks that outlive whatever happens to the broker, are told of, and are kept for a while when they are over."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
import structlog
from msgspec.structs import replace
from tests.broker.house import ADA, ADMIN, BOB, House, in_house
from tests.broker.tasking import check_counters, ended, get, labels, rows, submit, with_retention, with_scheduler

from tabherd import errors, wire
from tabherd.broker.caller import Caller
from tabherd.broker.tasks import Trace
from tabherd.broker.webhook_send import Post, Reply
from tabherd.core.model import ArchivedTask

# --- Crashes ----------------------------------------------------------------------------------------------------


@in_house()
async def test_tasks_that_wait_when_the_broker_is_killed_are_run_by_the_next(house: House) -> None:
    session = await house.open()
    first = await submit(house, "held", tab_id=session.tabs[0].tab_id)
    await house.until(lambda: labels(house) == ["held"])
    waiting = [await submit(house, f"w{n}", tab_id=session.tabs[0].tab_id) for n in range(3)]
    await house.kill()
    views = await ended(house, first, *waiting)
    assert [view.state for view in views] == ["failed", "done", "done", "done"]
    assert (views[0].code, views[0].attempts) == ("outcome_unknown", 1)
    assert labels(house) == ["held", "w0", "w1", "w2"]
    check_counters(house)


@in_house()
async def test_an_idempotent_task_is_run_again_as_often_as_it_may(house: House) -> None:
    session = await house.open()
    task_id = await submit(house, "x-held", tab_id=session.tabs[0].tab_id, idempotent=True, deadline=house.now + 10**6)
    for attempt in range(1, 4):
        await house.until(lambda seen=attempt: labels(house).count("x-held") == seen)  # type: ignore[misc]
        await house.kill()
    (view,) = await ended(house, task_id)
    assert (view.state, view.code, view.attempts) == ("failed", "outcome_unknown", 3)


@in_house()
async def test_a_result_that_was_acknowledged_survives(house: House) -> None:
    session = await house.open()
    task_id = await submit(house, tab_id=session.tabs[0].tab_id)
    await ended(house, task_id)
    await house.kill()
    view = await get(house, task_id)
    assert (view.state, view.result) == ("done", "one")
    assert labels(house) == ["one"]


@in_house()
async def test_a_browser_that_dies_before_a_task_is_sent_costs_it_nothing(house: House) -> None:
    session = await house.open()
    await house.lose_browser(session)
    task_id = await submit(house, tab_id=session.tabs[0].tab_id)
    assert (await ended(house, task_id))[0].state == "done"


@in_house()
async def test_a_browser_that_dies_under_a_task_leaves_its_outcome_unknown(house: House) -> None:
    session = await house.open()
    task_id = await submit(house, "held", tab_id=session.tabs[0].tab_id)
    await house.until(lambda: labels(house) == ["held"])
    house.process(session).die("killed")
    (view,) = await ended(house, task_id)
    assert (view.state, view.code) == ("failed", "outcome_unknown")
    await house.recovered(session)
    check_counters(house)


@in_house()
async def test_an_orderly_stop_leaves_what_waits_for_the_next_start(house: House) -> None:
    session = await house.open()
    first = await submit(house, "held", tab_id=session.tabs[0].tab_id)
    await house.until(lambda: labels(house) == ["held"])
    second = await submit(house, "second", tab_id=session.tabs[0].tab_id)
    await house.restart()
    views = await ended(house, first, second)
    assert [(view.state, view.code) for view in views] == [("failed", "outcome_unknown"), ("done", None)]


# --- What is over -----------------------------------------------------------------------------------------------


@in_house()
async def test_results_are_at_hand_for_a_while_then_in_the_archive_then_gone(house: House) -> None:
    house.broker.tasking.reconfigure(with_retention(house.config, tasks_s=900))
    session = await house.open(keep_alive=True)
    task_id = await submit(house, tab_id=session.tabs[0].tab_id)
    await ended(house, task_id)
    await asyncio.sleep(299)
    assert task_id in rows(house)
    await asyncio.sleep(3)
    assert rows(house) == {}
    assert (await get(house, task_id)).result == "one"
    check_counters(house)
    await asyncio.sleep(900)
    with pytest.raises(errors.TaskNotFound):
        await get(house, task_id)


@in_house()
async def test_the_archive_keeps_no_more_than_it_may(house: House) -> None:
    session = await house.open(keep_alive=True)
    done = [await submit(house, str(n), tab_id=session.tabs[0].tab_id) for n in range(6)]
    await ended(house, *done)
    house.broker.tasking.reconfigure(with_retention(with_scheduler(house, result_ttl_s=1), tasks_max=2))
    await asyncio.sleep(5)
    assert [row.id for row in house.disk.rows(ArchivedTask)] == done[-2:]


@in_house()
async def test_lists_are_paged_and_filtered(house: House) -> None:
    session, other = await house.open(), await house.open(BOB)
    done = [await submit(house, str(n), tab_id=session.tabs[0].tab_id) for n in range(3)]
    await ended(house, *done)
    flying = await submit(house, "held", tab_id=session.tabs[0].tab_id)
    theirs = await submit(house, "b-held", BOB, tab_id=other.tabs[0].tab_id)
    await house.until(lambda: {"held", "b-held"} <= set(labels(house)))
    waiting = await submit(house, "w", tab_id=session.tabs[0].tab_id)
    verbs = house.broker.tasking.verbs

    async def listed(caller: Caller = ADA, **query: Any) -> list[str]:
        return [task.task_id for task in (await verbs.list(caller, **query)).tasks]

    assert await listed() == [*done, flying, waiting]
    assert await listed(ADMIN) == [*done, flying, theirs, waiting]
    assert await listed(ADMIN, agent_id="bob") == [theirs]
    assert await listed(state="done") == done
    assert await listed(state="running") == [flying]
    assert await listed(state="queued") == [waiting]
    page = await verbs.list(ADA, limit=2)
    assert [task.task_id for task in page.tasks] == done[:2]
    assert await listed(cursor=page.next_cursor, limit=2) == [done[2], flying]
    assert await listed(newest_first=True) == [waiting, flying, *reversed(done)]
    assert await listed(newest_first=True, cursor=flying, limit=2) == [done[2], done[1]]
    assert await listed(ADMIN, state="running", newest_first=True) == [theirs, flying]
    assert await listed(ADMIN, state="running", newest_first=True, cursor=theirs) == [flying]
    with pytest.raises(errors.InvalidRequest):
        await verbs.list(ADA, state="lost")
    for label in ("held", "b-held"):
        house.finish(label)
    await ended(house, flying, theirs, waiting)


@in_house()
async def test_a_list_without_results_has_all_but_them(house: House) -> None:
    session = await house.open()
    task_id = await submit(house, tab_id=session.tabs[0].tab_id)
    await ended(house, task_id)
    verbs = house.broker.tasking.verbs
    (full,) = (await verbs.list(ADA)).tasks
    (lean,) = (await verbs.list(ADA, with_results=False)).tasks
    assert full.result == "one"
    assert lean == msgspec.structs.replace(full, result=None)


@in_house()
async def test_who_waits_for_a_task_hears_of_its_end_or_how_far_it_is(house: House) -> None:
    session = await house.open()
    task_id = await submit(house, "held", tab_id=session.tabs[0].tab_id)
    began = house.now
    assert (await get(house, task_id, wait_ms=1_000)).state == "running"
    assert house.now - began >= 1_000
    waiting = asyncio.ensure_future(get(house, task_id, wait_ms=60_000))
    await asyncio.sleep(0)
    house.finish("held")
    assert (await waiting).state == "done"


# --- Webhooks ---------------------------------------------------------------------------------------------------


@in_house()
async def test_the_end_of_a_task_is_told_to_its_callback_url(house: House) -> None:
    session = await house.open()
    posts: list[Post] = []

    async def send(post: Post) -> Reply:
        posts.append(post)
        return Reply(status=200)

    house.broker.tasking.webhooks._send = send
    request = wire.SubmitTask(
        action="evaluate",
        params={"expression": "x"},
        tab_id=session.tabs[0].tab_id,
        callback_url="http://93.184.216.34/hook",
    )
    task_id = (await house.broker.tasking.verbs.submit(ADA, request, Trace("req-1", "00-trace"))).task_id
    await ended(house, task_id)
    await house.until(lambda: posts)
    assert posts[0].headers["X-Tabherd-Event"] == "task.done"
    assert (posts[0].headers["X-Request-Id"], posts[0].headers["traceparent"]) == ("req-1", "00-trace")
    await asyncio.sleep(1)
    webhook = (await get(house, task_id)).webhook
    assert webhook is not None
    assert (webhook.state, webhook.attempts) == ("delivered", 1)


@in_house()
async def test_the_callback_url_of_a_batch_is_that_of_every_task_without_one(house: House) -> None:
    paths: dict[str, str] = {}

    async def send(post: Post) -> Reply:
        paths[post.headers["X-Tabherd-Task-ID"]] = post.target.path
        return Reply(status=200)

    house.broker.tasking.webhooks._send = send
    shared, own = "http://93.184.216.34/all", "http://93.184.216.34/one"
    plain = wire.TaskFields(action="evaluate", params={"expression": "x"})
    batch = wire.SubmitBatch(tasks=[plain, replace(plain, callback_url=own)], callback_url=shared)
    answer = await house.broker.tasking.verbs.submit_batch(ADA, batch)
    task_ids = [entry.task_id for entry in answer.tasks]
    await ended(house, *task_ids)
    await house.until(lambda: len(paths) == len(task_ids))
    assert [paths[task_id] for task_id in task_ids] == ["/all", "/one"]


@in_house()
async def test_a_callback_url_that_must_not_be_called_is_refused(house: House) -> None:
    for url in ("file:///etc/passwd", "http://127.0.0.1/", "http://user:word@shop.test/"):
        with pytest.raises((errors.InvalidRequest, errors.PolicyDenied)):
            await submit(house, callback_url=url)


@in_house(sessions_per_browser=2)
async def test_that_one_task_ends_lets_no_second_one_wait_for_a_place(house: House) -> None:
    house.broker.tasking.reconfigure(with_scheduler(house, workers=10))
    taken = await house.open(BOB)
    running = await submit(house, "held")
    await house.until(lambda: labels(house) == ["held"])
    waiting = [await submit(house, f"w{n}") for n in range(3)]
    await house.until(lambda: house.stats().waiting == 1)
    house.finish("held")
    await ended(house, running)
    assert house.stats().waiting <= 1
    await house.release(taken, BOB)
    await ended(house, *waiting)


@in_house()
async def test_a_fault_of_the_server_keeps_no_worker(house: House) -> None:
    house.broker.tasking.reconfigure(with_scheduler(house, workers=1))
    session = await house.open()
    tab_id = session.tabs[0].tab_id

    async def fails(*_: Any) -> Any:
        raise ZeroDivisionError

    run, house.broker.tasking.scheduler._runs.run = house.broker.tasking.scheduler._runs.run, fails  # type: ignore[method-assign]
    with structlog.testing.capture_logs() as logs:
        (view,) = await ended(house, await submit(house, tab_id=tab_id))
    assert (view.state, view.code) == ("failed", "outcome_unknown")
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["bug: a task could not be run"]
    house.broker.tasking.scheduler._runs.run = run  # type: ignore[method-assign]
    assert (await ended(house, await submit(house, tab_id=tab_id)))[0].state == "done"
