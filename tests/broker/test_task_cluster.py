"""Tasks of nodes that share a store: any node takes them, one has each, all is fair, and nothing rests on hints."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest
from tests.broker.house import ADA, ADMIN, BOB, agent
from tests.broker.task_herd import TaskHerd, in_task_herd

from tabherd import errors, wire
from tabherd.broker.task_ending import LATE_QUEUED
from tabherd.broker.task_submission import Trace
from tabherd.cluster.elsewhere import Elsewhere
from tabherd.core.fairness import jain_index
from tabherd.core.lifecycle import TaskState
from tabherd.core.model import Beat, Task, TaskKey
from tabherd.store.base import IN_DOUBT, Insert, Op, Outcome
from tabherd.store.task_claims import Bounds


@in_task_herd()
async def test_a_task_that_needs_a_place_is_run_by_some_node_and_seen_from_any(herd: TaskHerd) -> None:
    task_ids = [await herd.submit(herd[1 + n % 2], f"ada/{n}") for n in range(10)]
    for at in (herd[1], herd[2]):
        views = await herd.ended(at, *task_ids)
        assert [(view.state, view.error) for view in views] == [("done", None)] * 10
    assert sorted(herd.sent) == sorted(f"ada/{n}" for n in range(10))


@in_task_herd(scheduler={"workers": 2, "max_inflight_per_agent": 10})
async def test_tasks_that_come_to_one_node_are_run_by_all(herd: TaskHerd) -> None:
    for number in range(4):
        await herd.submit(herd[1], f"ada/{number}-held")
    await herd.until(lambda: len(herd.sent) == 4)
    assert sorted(herd.sent_by) == ["nod_1", "nod_1", "nod_2", "nod_2"]
    herd.finished.update(herd.sent)


@in_task_herd(scheduler={"workers": 4, "max_inflight_per_agent": 3})
async def test_one_agent_has_no_more_in_flight_on_all_nodes_than_it_may(herd: TaskHerd) -> None:
    for number in range(8):
        await herd.submit(herd[1 + number % 2], f"ada/{number}-held")
    await herd.until(lambda: len(herd.sent) == 3)
    await asyncio.sleep(5)
    assert len(herd.sent) == 3
    herd.finished.update(f"ada/{number}-held" for number in range(8))
    await herd.until(lambda: herd.states()["done"] == 8)
    assert herd.running["ada"] == 0


@in_task_herd(scheduler={"workers": 2})
async def test_an_agent_with_many_tasks_does_not_delay_another_on_any_node(herd: TaskHerd) -> None:
    for number in range(60):
        await herd.submit(herd[1], f"ada/{number}")
    first = len(herd.sent)
    await herd.submit(herd[2], "bob/0", BOB)
    await herd.until(lambda: "bob/0" in herd.sent)
    # Those that were in flight, and no more than one turn of the other.
    assert herd.sent.index("bob/0") - first <= 6


@in_task_herd(nodes=3, scheduler={"workers": 2})
async def test_agents_that_are_spread_unevenly_over_nodes_are_served_evenly(herd: TaskHerd) -> None:
    agents = [agent(f"agent{number}") for number in range(6)]
    for number in range(30):
        for place, caller in enumerate(agents):
            await herd.submit(herd[1 if place < 4 else 2 + number % 2], f"{caller.agent_id}/{number}", caller)
    await herd.until(lambda: len(herd.sent) >= 90)
    shares = [sum(label.startswith(f"{caller.agent_id}/") for label in herd.sent[:90]) for caller in agents]
    assert jain_index(shares) >= 0.98, shares


@in_task_herd(scheduler={"workers": 1})
async def test_within_an_agent_priority_goes_first_and_waiting_makes_up_for_it(herd: TaskHerd) -> None:
    holders = [await herd.submit(herd[n], f"ada/{n}-held") for n in (1, 2)]
    await herd.until(lambda: len(herd.sent) == 2)
    for label, priority in (("late", 2), ("one", 1), ("zero", 0), ("first", -1)):
        await herd.submit(herd[1], f"ada/{label}", priority=priority)
    herd.finished.add("ada/1-held")
    await herd.ended(herd[1], holders[0])
    await herd.until(lambda: len(herd.sent) == 6)
    assert herd.sent[2:] == ["ada/first", "ada/zero", "ada/one", "ada/late"]
    herd.finished.add("ada/2-held")


@in_task_herd()
async def test_lost_hints_cost_time_and_nothing_else(herd: TaskHerd) -> None:
    herd.loses = lambda topic: True
    herd[1].broker.operations.drain(ADMIN)
    began = herd.now
    task_id = await herd.submit(herd[1], "ada/1")
    (view,) = await herd.ended(herd[2], task_id)
    assert (view.state, herd.sent_by) == ("done", ["nod_2"])
    assert herd.now - began <= 2_500


@in_task_herd(nodes=1)
async def test_a_lone_node_claims_what_it_can_start_when_it_is_submitted(herd: TaskHerd) -> None:
    task_id = await herd.submit(herd[1], "ada/held")
    assert herd.row(task_id).node_id == "nod_1"
    herd.finished.add("ada/held")


# --- Where tasks are ------------------------------------------------------------------------------------------------


@in_task_herd(scheduler={"workers": 1, "max_inflight_per_agent": 1})
async def test_a_task_of_nobody_has_a_place_in_the_queue_on_every_node(herd: TaskHerd) -> None:
    await herd.submit(herd[1], "ada/held")
    await herd.until(lambda: herd.sent)
    task_ids = [await herd.submit(herd[1], f"ada/{number}") for number in range(3)]
    for at in (herd[1], herd[2]):
        assert [(await herd.get(at, task_id)).position for task_id in task_ids] == [1, 2, 3]
        assert (await at.broker.tasking.verbs.stats_of_all()).queue.total_queued == 3
    herd.finished.add("ada/held")


@in_task_herd(scheduler={"workers": 1, "max_inflight_per_agent": 1})
async def test_a_task_of_nobody_is_cancelled_once_by_whoever_asks(herd: TaskHerd) -> None:
    await herd.submit(herd[1], "ada/held")
    await herd.until(lambda: herd.sent)
    task_id = await herd.submit(herd[1], "ada/never")
    cancels = (herd[1 + n % 2].broker.tasking.verbs.cancel(ADA, task_id) for n in range(6))
    answers = await asyncio.gather(*cancels, return_exceptions=True)
    assert sum(isinstance(answer, wire.TaskView) for answer in answers) == 1
    assert all(isinstance(answer, wire.TaskView | errors.StateConflict) for answer in answers)
    herd.finished.add("ada/held")
    await herd.until(lambda: herd.states()["done"] == 1)
    assert herd.sent == ["ada/held"]


@in_task_herd()
async def test_a_task_that_another_node_runs_is_cancelled_there(herd: TaskHerd) -> None:
    herd[1].broker.operations.drain(ADMIN)
    task_id = await herd.submit(herd[1], "ada/held")
    await herd.until(lambda: herd.sent)
    with pytest.raises(Elsewhere) as elsewhere:
        await herd[1].broker.tasking.verbs.cancel(ADA, task_id)
    assert elsewhere.value.node_id == "nod_2"
    view = await herd.ask(herd[1], lambda verbs: verbs.cancel(ADA, task_id))
    assert view.state == "cancelled"


@in_task_herd(scheduler={"workers": 1, "max_inflight_per_agent": 1})
async def test_a_task_of_nobody_ends_at_its_deadline_and_whoever_waits_for_it_hears_so(herd: TaskHerd) -> None:
    await herd.submit(herd[1], "ada/held")
    await herd.until(lambda: herd.sent)
    task_id = await herd.submit(herd[1], "ada/late", deadline=herd.now + 3_000)
    view = await herd.get(herd[2], task_id, 60_000)
    assert (view.state, view.code, view.error) == ("failed", "deadline_exceeded", LATE_QUEUED)
    assert view.latency_ms is not None
    assert view.latency_ms <= 3_050
    herd.finished.add("ada/held")


@in_task_herd()
async def test_a_task_on_a_tab_of_another_node_is_submitted_there(herd: TaskHerd) -> None:
    session = await herd.open(herd[2])
    request = wire.SubmitTask(action="evaluate", params={"expression": "ada/1"}, tab_id=session.tabs[0].tab_id)
    with pytest.raises(Elsewhere) as elsewhere:
        await herd[1].broker.tasking.verbs.submit(ADA, request)
    assert elsewhere.value.node_id == "nod_2"
    task_id = (await herd.ask(herd[1], lambda verbs: verbs.submit(ADA, request))).task_id
    assert (await herd.ended(herd[1], task_id))[0].state == "done"
    assert herd.sent_by == ["nod_2"]
    await herd.release(session)


@in_task_herd()
async def test_a_batch_is_submitted_in_parts_where_each_belongs_and_answered_in_order(herd: TaskHerd) -> None:
    here, there = await herd.open(herd[1]), await herd.open(herd[2])

    async def submit_at(node_id: str, caller: object, part: wire.SubmitBatch, trace: Trace) -> wire.SubmittedBatch:
        asked.append((node_id, len(part.tasks), part.agent_id))
        return await herd.members[node_id].broker.tasking.verbs.submit_batch(ADA, part, trace)

    asked: list[tuple[str, int, str | None]] = []
    verbs = herd[1].broker.tasking.verbs
    verbs.submission.submit_at = submit_at
    homes = [there, here, None, there]
    fields = [
        wire.TaskFields(
            action="evaluate",
            params={"expression": f"ada/{number}"},
            tab_id=None if home is None else home.tabs[0].tab_id,
        )
        for number, home in enumerate(homes)
    ]
    batch = await verbs.submit_batch(ADA, wire.SubmitBatch(tasks=fields))
    assert (asked, batch.submitted) == ([("nod_2", 2, "ada")], 4)
    views = await herd.ended(herd[1], *(item.task_id for item in batch.tasks))
    assert [view.result for view in views] == ["ada/0", "ada/1", "ada/2", "ada/3"]
    with pytest.raises(Elsewhere):
        await verbs.submit_batch(ADA, wire.SubmitBatch(tasks=[fields[0], fields[3]]))
    for session in (here, there):
        await herd.release(session)


@in_task_herd()
async def test_one_key_at_two_nodes_at_once_stands_for_one_task(herd: TaskHerd) -> None:
    deadline = herd.now + 600_000
    for number in range(10):
        key = f"key {number}"
        twice = (herd.submit(herd[n], f"ada/{number}", idempotency_key=key, deadline=deadline) for n in (1, 2))
        first, second = await asyncio.gather(*twice)
        assert first == second
    await herd.until(lambda: herd.states() == {"done": 10})
    assert len(herd.disk.rows(TaskKey)) == 10


@in_task_herd(scheduler={"workers": 1, "max_inflight_per_agent": 1, "queue_max_per_agent": 5, "queue_max": 8})
async def test_the_bounds_of_the_queue_hold_for_all_nodes_together(herd: TaskHerd) -> None:
    await herd.submit(herd[1], "ada/held")
    await herd.until(lambda: herd.sent)
    await asyncio.sleep(1.1)
    for number in range(5):
        await herd.submit(herd[1], f"ada/{number}")
    with pytest.raises(errors.QueueFull):
        await herd.submit(herd[1], "ada/many")
    # The first task of an agent at a node has it counted there.
    await asyncio.sleep(1.1)
    await herd.submit(herd[2], "bob/held", BOB)
    await herd.until(lambda: "bob/held" in herd.sent)
    for number in range(3):
        await herd.submit(herd[2], f"bob/{number}", BOB)
    with pytest.raises(errors.QueueFull) as refused:
        await herd.submit(herd[2], "bob/many", BOB)
    assert refused.value.details["cap"] == 8
    # Each keeps what it has refused, and sees to it when its time has come.
    rejected = [row.node_id for row in herd.rows() if row.state is TaskState.REJECTED]
    assert sorted(rejected) == ["nod_1", "nod_2"]
    assert (herd.states()["queued"], herd.states()["rejected"]) == (8, 2)
    herd.finished.update({"ada/held", "bob/held"})


@in_task_herd(scheduler={"queue_max_per_agent": 5})
async def test_tasks_that_have_run_do_not_count_until_the_next_look(herd: TaskHerd) -> None:
    session = await herd.open(herd[1])
    for number in range(20):
        task_id = await herd.submit(herd[1], f"ada/{number}", tab_id=session.tabs[0].tab_id if number % 2 else None)
        await herd.until(lambda task_id=task_id: herd.row(task_id).state is TaskState.DONE)  # type: ignore[misc]
    await herd.release(session)


# --- Given back -----------------------------------------------------------------------------------------------------


@in_task_herd(scheduler={"workers": 2})
async def test_a_node_that_stops_gives_back_what_it_has_not_started(herd: TaskHerd) -> None:
    for number in range(6):
        await herd.submit(herd[1], f"ada/{number}-held")
    await herd.until(lambda: len(herd.sent) == 4)
    stopping = asyncio.ensure_future(herd[1].broker.stop())
    await stopping
    herd[1].is_alive, herd[1].is_gone = False, True
    assert not [row for row in herd.rows() if row.node_id == "nod_1" and row.state is TaskState.QUEUED]
    herd.finished.update(f"ada/{number}-held" for number in range(6))
    await herd.until(lambda: herd.states()["done"] + herd.states()["failed"] == 6)
    assert herd.states()["failed"] == 2
    assert {row.code for row in herd.rows() if row.state is TaskState.FAILED} == {"outcome_unknown"}


@in_task_herd()
async def test_a_draining_node_claims_nothing_and_what_it_has_goes_to_others(herd: TaskHerd) -> None:
    herd[1].broker.operations.drain(ADMIN)
    task_ids = [await herd.submit(herd[1], f"ada/{number}") for number in range(5)]
    views = await herd.ended(herd[1], *task_ids)
    assert [view.state for view in views] == ["done"] * 5
    assert set(herd.sent_by) == {"nod_2"}


@in_task_herd(sessions_per_browser=1)
async def test_what_waits_for_a_place_goes_to_a_node_that_has_one(herd: TaskHerd) -> None:
    session = await herd.open(herd[1])
    herd[2].broker.operations.is_draining = True
    task_ids = [await herd.submit(herd[1], f"ada/{number}") for number in range(2)]
    await herd.until(lambda: herd.row(task_ids[0]).node_id == "nod_1")
    herd[2].broker.operations.is_draining = False
    await asyncio.sleep(5)
    # It may have a place itself soon, and nobody else says that it has one.
    assert herd.row(task_ids[0]).node_id == "nod_1"
    herd[1].membership.known = {"nod_2": (herd[2].node, Beat(id="nod_2", epoch=1, at=0, free_seats=1))}
    views = await herd.ended(herd[2], *task_ids)
    assert [view.state for view in views] == ["done", "done"]
    assert herd.sent_by == ["nod_2", "nod_2"]
    await herd.release(session)


@in_task_herd()
async def test_a_claim_whose_answer_was_lost_is_found_and_run_once(herd: TaskHerd) -> None:
    lost = iter([True, False, True])
    for member in herd.members.values():
        member.claims.is_doubtful = lambda: next(lost, False)  # type: ignore[attr-defined]
    task_ids = [await herd.submit(herd[1], f"ada/{number}") for number in range(4)]
    views = await herd.ended(herd[1], *task_ids)
    assert [view.state for view in views] == ["done"] * 4


@in_task_herd()
async def test_a_task_that_is_not_this_nodes_any_more_is_dropped_before_anything_is_sent(herd: TaskHerd) -> None:
    herd[2].broker.operations.drain(ADMIN)
    scheduler = herd[1].broker.tasking.scheduler
    task_id = await herd.submit(herd[1], "ada/1")
    await herd.until(lambda: scheduler.find(task_id) is not None)
    # As if somebody had seen to it by hand.
    row = herd.row(task_id)
    herd.disk._state.rows[type(row)][task_id] = msgspec.structs.replace(row, node_id="", version=row.version + 7)
    await herd.until(lambda: scheduler.find(task_id) is None)
    assert herd.sent == []
    assert (await herd.get(herd[1], task_id, 60_000)).state == "done"
    assert herd.sent == ["ada/1"]


@in_task_herd()
async def test_what_a_node_claims_again_before_it_hears_that_it_gave_it_back_is_run(herd: TaskHerd) -> None:
    herd[2].broker.operations.drain(ADMIN)
    node = herd[1]
    scheduler, claims = node.broker.tasking.scheduler, node.claims  # type: ignore[attr-defined]
    # So that it waits here.
    node.broker.operations.is_draining = True
    task_id = await herd.submit(node, "ada/1")
    row = herd.row(task_id)
    (claimed,) = herd.turns.claim("nod_1", "default", 1, Bounds(workers=1, max_per_agent=1))
    scheduler.claimed(claimed)
    live = scheduler.find(row.id)
    assert live is not None
    is_written, may_answer, write = asyncio.Event(), asyncio.Event(), claims.write

    async def write_and_answer_late(rows: Sequence[Task]) -> set[str]:
        written: set[str] = await write(rows)
        is_written.set()
        await may_answer.wait()
        return written

    claims.write = write_and_answer_late
    leaving = asyncio.ensure_future(scheduler.give_back([live]))
    await is_written.wait()
    claims.write = write
    (again,) = herd.turns.claim("nod_1", "default", 1, Bounds(workers=1, max_per_agent=1))
    scheduler.claimed(again)
    may_answer.set()
    await leaving
    await asyncio.sleep(0)
    assert scheduler.find(task_id) is not None
    node.broker.operations.is_draining = False
    assert (await herd.get(node, task_id, 60_000)).state == "done"


# --- Submissions that were not answered -----------------------------------------------------------------------------


def _lose_the_answer_to_the_next_submission(herd: TaskHerd) -> None:
    left = [True]

    def is_doubtful(ops: tuple[Op, ...]) -> bool:
        is_submission = any(isinstance(op, Insert) and isinstance(op.row, Task) for op in ops)
        return is_submission and bool(left) and left.pop()

    for member in herd.members.values():
        member.store.is_doubtful = is_doubtful


@in_task_herd()
async def test_a_task_on_a_session_whose_submission_was_not_answered_is_run_once(herd: TaskHerd) -> None:
    session = await herd.open(herd[1])
    _lose_the_answer_to_the_next_submission(herd)
    with pytest.raises(errors.StoreUnavailable):
        await herd.submit(herd[1], "ada/1", session_id=session.session_id)
    await herd.until(lambda: herd.states() == {"done": 1})
    assert (herd.sent, herd.sent_by) == (["ada/1"], ["nod_1"])
    await herd.release(session)


@in_task_herd()
async def test_whoever_repeats_a_key_whose_submission_was_not_answered_hears_of_a_task_that_is_run(
    herd: TaskHerd,
) -> None:
    session = await herd.open(herd[1])
    fields = {"session_id": session.session_id, "idempotency_key": "once", "deadline": herd.now + 600_000}
    _lose_the_answer_to_the_next_submission(herd)
    with pytest.raises(errors.StoreUnavailable):
        await herd.submit(herd[1], "ada/1", **fields)
    task_id = await herd.submit(herd[1], "ada/1", **fields)
    assert (await herd.get(herd[1], task_id, 60_000)).state == "done"
    assert herd.sent == ["ada/1"]
    await herd.release(session)


@in_task_herd()
async def test_a_submission_that_was_lost_on_its_way_is_no_task_and_takes_no_place(herd: TaskHerd) -> None:
    session = await herd.open(herd[1])
    intake = herd[1].broker.tasking.scheduler.intake
    apply, lost = herd[1].store.apply, [True]

    async def lose(*ops: Op) -> Outcome:
        if lost and any(isinstance(op, Insert) and isinstance(op.row, Task) for op in ops):
            lost.clear()
            raise errors.StoreUnavailable("the connection broke", cause=IN_DOUBT)
        return await apply(*ops)

    herd[1].store.apply = lose  # type: ignore[method-assign]
    with pytest.raises(errors.StoreUnavailable):
        await herd.submit(herd[1], "ada/1", session_id=session.session_id)
    await herd.until(lambda: not intake.arriving)
    assert (herd.states(), herd.sent) == ({}, [])
    await herd.release(session)
