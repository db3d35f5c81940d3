"""Tasks of nodes that die: at any moment, and whatever they had, nothing is lost and nothing happens twice."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.broker.claim_twin import ClaimTwin
from tests.broker.herd import Member
from tests.broker.house import ADA
from tests.broker.task_herd import TaskHerd, in_task_herd, run_in_task_herd

from tabherd import config, errors
from tabherd.broker.takeover import Takeover
from tabherd.broker.task_pool import TASKS_TOPIC
from tabherd.broker.webhook_send import Post, Reply
from tabherd.core.lifecycle import DeliveryState, LeaseState, TaskEvent, TaskState
from tabherd.core.model import ArchivedTask, Delivery, Node, Session, Task, changed
from tabherd.store.base import Applied, Insert, Op, Update

# So many moments at which a node may die: before and after each of its writes and claims.
MOMENTS = 60
CALLBACK_URL = "http://127.0.0.1:9/x"


def dying_at(herd: TaskHerd, member: Member, moment: int) -> asyncio.Event:
    """Kill it at the so many-th moment from now; set when that has happened."""
    seen, is_dead = 0, asyncio.Event()

    def step() -> None:
        nonlocal seen
        seen += 1
        if seen == moment:
            herd.kill(member)
            is_dead.set()

    async def claiming() -> None:
        step()
        await member.life.step(1.0)

    member.store.on_step = step
    member.claims._step = claiming  # type: ignore[attr-defined]
    return is_dead


@pytest.mark.parametrize("moment", range(1, MOMENTS + 1))
def test_a_node_that_dies_at_any_moment_loses_no_task_and_has_none_run_twice(moment: int) -> None:
    async def play(herd: TaskHerd) -> None:
        here, there = await herd.open(herd[1]), await herd.open(herd[2])
        is_dead = dying_at(herd, herd[1], moment)
        submitting = [
            herd.submit(
                herd[2] if number % 3 == 2 else herd[1],
                f"ada/{number}",
                tab_id=(here if number % 3 == 0 else there).tabs[0].tab_id if number % 2 else None,
                idempotent=number % 4 == 0,
                callback_url=None,
            )
            for number in range(12)
        ]
        asked = [asyncio.ensure_future(each) for each in submitting]
        await asyncio.wait([*asked, asyncio.ensure_future(is_dead.wait())], timeout=60)
        await asyncio.wait(asked, timeout=1)
        await asyncio.sleep(2)
        if not is_dead.is_set():
            herd.kill(herd[1])
        acknowledged = [each.result() for each in asked if each.done() and each.exception() is None]
        await herd.declare_dead(herd[1])
        views = await herd.ended(herd[2], *acknowledged)
        for view in views:
            assert view.state in ("done", "failed")
            if view.state == "failed":
                assert view.code in ("outcome_unknown", "lease_lost"), view
        # What was done is what its submitter is told; what nobody knows about was sent, and once.
        done = {view.result for view in views if view.state == "done"}
        assert done <= set(herd.sent)
        for session in (here, there):
            await herd.release(session)

    run_in_task_herd(play, scheduler={"workers": 3}, seed=moment)


@in_task_herd(scheduler={"workers": 2})
async def test_what_a_dead_node_had_claimed_and_not_sent_waits_for_any_node(herd: TaskHerd) -> None:
    await herd.submit(herd[1], "ada/1-held")
    await herd.submit(herd[1], "ada/2-held")
    await herd.until(lambda: len(herd.sent) == 2)
    row = herd.row(await herd.submit(herd[1], "bob/1"))
    claimed = changed(row, node_id="nod_1", version=row.version + 1)
    herd.disk._state.rows[Task][row.id] = claimed
    herd.kill(herd[1])
    herd.finished.update(herd.sent)
    await herd.declare_dead(herd[1])
    assert (await herd.ended(herd[2], row.id))[0].state == "done"
    assert herd.sent_by[-1] == "nod_2"


@in_task_herd()
async def test_what_a_dead_node_had_sent_has_failed_unless_it_does_no_harm_twice(herd: TaskHerd) -> None:
    herd[2].broker.operations.is_draining = True
    once = await herd.submit(herd[1], "ada/once-held")
    again = await herd.submit(herd[1], "ada/again-held", idempotent=True)
    await herd.until(lambda: len(herd.sent) == 2)
    herd[2].broker.operations.is_draining = False
    herd.kill(herd[1])
    await herd.declare_dead(herd[1])
    herd.finished.add("ada/again-held")
    first, second = await herd.ended(herd[2], once, again)
    assert (first.state, first.code, first.attempts) == ("failed", "outcome_unknown", 1)
    assert (second.state, second.attempts) == ("done", 2)


@in_task_herd(nodes=3)
async def test_tasks_on_a_tab_follow_the_session_to_the_node_that_has_taken_it_up(herd: TaskHerd) -> None:
    session = await herd.open(herd[1])
    tab_id = session.tabs[0].tab_id
    running = await herd.submit(herd[1], "ada/held", tab_id=tab_id)
    await herd.until(lambda: herd.sent)
    waiting = [await herd.submit(herd[1], f"ada/{number}", tab_id=tab_id) for number in range(3)]
    herd.kill(herd[1])
    await herd.declare_dead(herd[1])
    views = await herd.ended(herd[2], running, *waiting)
    assert [view.state for view in views] == ["failed", "done", "done", "done"]
    assert views[0].code == "outcome_unknown"
    assert herd.sent == ["ada/held", "ada/0", "ada/1", "ada/2"]
    assert set(herd.sent_by[1:]) == {herd.home(session).node.id}
    herd.finished.add("ada/held")
    await herd.release(session)


@in_task_herd()
async def test_tasks_on_a_session_that_is_over_fail_when_their_node_is_gone(herd: TaskHerd) -> None:
    session = await herd.open(herd[1])
    await herd.submit(herd[1], "ada/held", tab_id=session.tabs[0].tab_id)
    await herd.until(lambda: herd.sent)
    by_tab = await herd.submit(herd[1], "ada/tab", tab_id=session.tabs[0].tab_id)
    by_session = await herd.submit(herd[1], "ada/session", session_id=session.session_id)
    herd.kill(herd[1])
    herd.finished.add("ada/held")
    gone = asyncio.ensure_future(herd.declare_dead(herd[1]))
    await herd.until(lambda: herd.home(session) is herd[2] and herd[2].broker.registry.session(session.session_id))
    await gone
    views = await herd.ended(herd[2], by_tab, by_session)
    assert [view.state for view in views] == ["done", "done"]
    await herd.release(session)
    late = changed(herd.row(by_tab), id="tsk_0late", state=TaskState.QUEUED, node_id="nod_3", version=1)
    herd.disk._state.rows[Task][late.id] = late
    herd.disk._state.rows[Node]["nod_3"] = other = Node(id="nod_3", epoch=9, url="", pid=3, started_at=0, version=1)
    await herd[2].broker.tasking.settle_node(other)
    view = await herd.get(herd[2], late.id)
    assert (view.state, view.code) == ("failed", "tab_not_found")
    del herd.disk._state.rows[Node]["nod_3"]


@in_task_herd()
async def test_tasks_on_a_session_that_was_given_back_and_is_kept_in_a_pool_fail_when_their_node_is_gone(
    herd: TaskHerd,
) -> None:
    session = await herd.open(herd[2], key="shop")
    tab_id, session_id = session.tabs[0].tab_id, session.session_id
    sample = herd.row(await herd.submit(herd[2], "ada/1", tab_id=tab_id))
    await herd.until(lambda: herd.states()["done"] == 1)
    await herd[2].broker.sessions.release(ADA, session_id, disposition="pool")
    assert [row.state for row in herd.disk.rows(Session)] == [LeaseState.POOLED]
    gone = Node(id="nod_9", epoch=9, url="", pid=9, started_at=0, version=1)
    left = changed(sample, state=TaskState.QUEUED, node_id=gone.id, version=1, attempts=0)
    by_tab, by_session = (
        changed(left, id="tsk_0tab"),
        changed(left, id="tsk_0session", tab_id="", session_id=session_id),
    )
    herd.disk._state.rows[Node][gone.id] = gone
    herd.disk._state.rows[Task].update({row.id: row for row in (by_tab, by_session)})
    async with asyncio.timeout(5):
        await asyncio.gather(*(member.broker.tasking.settle_node(gone) for member in herd.members.values()))
    for view in await herd.ended(herd[2], by_tab.id, by_session.id):
        assert (view.state, view.code) == ("failed", "lease_lost")
    del herd.disk._state.rows[Node][gone.id]


@in_task_herd(nodes=3)
async def test_a_task_of_a_dead_node_ends_at_its_deadline_although_nobody_has_taken_up_its_session(
    herd: TaskHerd, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_up, may_go = Takeover.run, asyncio.Event()

    async def run_late(self: Takeover, gone: Node) -> None:
        await may_go.wait()
        await take_up(self, gone)

    monkeypatch.setattr(Takeover, "run", run_late)
    session = await herd.open(herd[1])
    tab_id = session.tabs[0].tab_id
    await herd.submit(herd[1], "ada/held", tab_id=tab_id)
    await herd.until(lambda: herd.sent)
    deadline = herd.now + 5_000
    late = await herd.submit(herd[1], "ada/late", tab_id=tab_id, deadline=deadline)
    later = await herd.submit(herd[1], "ada/later", session_id=session.session_id)
    herd.kill(herd[1])
    gone = asyncio.ensure_future(herd.declare_dead(herd[1]))
    await herd.until(lambda: herd.row(late).state is TaskState.FAILED)
    assert 0 <= herd.now - deadline < 1_000
    view = await herd.get(herd[2], late)
    assert (view.code, view.error, view.attempts) == ("deadline_exceeded", "deadline exceeded while queued", 0)
    assert herd.row(later).state is TaskState.QUEUED
    may_go.set()
    herd.finished.add("ada/held")
    await gone
    assert (await herd.ended(herd[2], later))[0].state == "done"
    await herd.release(session)


@in_task_herd(nodes=3)
async def test_several_survivors_settle_each_task_once(herd: TaskHerd) -> None:
    gone = Node(id="nod_9", epoch=9, url="", pid=9, started_at=0, version=1)
    herd.disk._state.rows[Node]["nod_9"] = gone
    sample = herd.row(await herd.submit(herd[1], "ada/sample"))
    await herd.until(lambda: herd.states()["done"] == 1)
    rows = [
        msgspec.structs.replace(
            sample,
            id=f"tsk_{number:023d}",
            node_id="nod_9",
            version=1,
            state=TaskState.RUNNING if number % 2 else TaskState.QUEUED,
            attempts=number % 2,
            request=sample.request.replace("sample", str(number)),
        )
        for number in range(250)
    ]
    herd.disk._state.rows[Task].update({row.id: row for row in rows})
    await asyncio.gather(*(member.broker.tasking.settle_node(gone) for member in herd.members.values()))
    await herd.until(lambda: herd.states() == {"done": 126, "failed": 125})
    ended = sum(member.broker.tasking.verbs.stats().metrics.tasks_failed for member in herd.members.values())
    assert ended == 125
    assert sorted(herd.sent[1:]) == sorted(f"ada/{number}" for number in range(0, 250, 2))


@in_task_herd()
async def test_a_node_that_is_back_keeps_its_tasks_from_the_others(herd: TaskHerd) -> None:
    session = await herd.open(herd[1])
    await herd.submit(herd[1], "ada/held", tab_id=session.tabs[0].tab_id)
    await herd.until(lambda: herd.sent)
    waiting = await herd.submit(herd[1], "ada/1", tab_id=session.tabs[0].tab_id)
    before = herd.row(waiting)
    await herd[2].broker.tasking.settle_node(changed(herd[1].node, version=herd[1].node.version - 1))
    assert herd.row(waiting) == before
    herd.finished.add("ada/held")
    assert (await herd.ended(herd[2], waiting))[0].state == "done"
    await herd.release(session)


@in_task_herd()
async def test_a_node_that_starts_again_goes_on_with_its_own_tasks(herd: TaskHerd) -> None:
    herd[2].broker.operations.is_draining = True
    once = await herd.submit(herd[1], "ada/once-held")
    again = await herd.submit(herd[1], "ada/again-held", idempotent=True)
    await herd.until(lambda: len(herd.sent) == 2)
    await herd.restart(1)
    herd.finished.update({"ada/again-held", "ada/once-held"})
    first, second = await herd.ended(herd[1], once, again)
    assert (first.state, first.code) == ("failed", "outcome_unknown")
    assert (second.state, second.attempts) == ("done", 2)


@in_task_herd()
async def test_a_node_that_was_declared_dead_claims_nothing_and_sends_nothing(herd: TaskHerd) -> None:
    herd[1].is_gone = True
    outcome = await herd.disk.apply(Update(changed(herd[1].node, state="dead")))
    assert isinstance(outcome, Applied)
    task_id = await herd.submit(herd[2], "ada/1")
    assert (await herd.ended(herd[2], task_id))[0].state == "done"
    claims: Any = herd[1].claims  # type: ignore[attr-defined]
    assert isinstance(claims, ClaimTwin)
    assert herd.sent_by == ["nod_2"]
    with pytest.raises(errors.StoreUnavailable):
        await herd.submit(herd[1], "ada/2")
    herd.kill(herd[1])


# --- Webhooks -------------------------------------------------------------------------------------------------------


def with_receiver(herd: TaskHerd, is_heard: Any) -> list[tuple[str, str]]:
    """Every node tells this receiver; who told it of what."""
    told: list[tuple[str, str]] = []
    for member in herd.members.values():
        webhooks = member.broker.tasking.webhooks
        webhooks.reconfigure(config.Webhooks(allow_hosts=["127.0.0.1"]))

        async def send(post: Post, node_id: str = member.node.id, life: Any = member.life) -> Reply:
            await life.alive()
            if is_heard(node_id):
                told.append((node_id, post.headers["X-Tabherd-Task-ID"]))
                return Reply(status=200, retry_after="")
            # Under way until it dies.
            await asyncio.sleep(10)
            await life.alive()
            return Reply(status=500, retry_after="")

        webhooks._send = send
    return told


@in_task_herd(nodes=3)
async def test_what_a_dead_node_was_to_tell_is_told_by_one_other(herd: TaskHerd) -> None:
    told = with_receiver(herd, lambda node_id: node_id != "nod_1")
    for number in (2, 3):
        herd[number].broker.operations.is_draining = True
    task_ids = [await herd.submit(herd[1], f"ada/{number}", callback_url=CALLBACK_URL) for number in range(3)]
    await herd.until(lambda: len(herd.disk.rows(Delivery)) == 3)
    for number in (2, 3):
        herd[number].broker.operations.is_draining = False
    herd.kill(herd[1])
    await herd.declare_dead(herd[1])
    await herd.until(lambda: all(row.state is DeliveryState.DELIVERED for row in herd.disk.rows(Delivery)))
    assert sorted(task_id for _, task_id in told) == sorted(task_ids)


def lose_the_answer_to_an_end(member: Member) -> None:
    """The next task that it ends and that somebody is to be told of is on disk, and nobody says so."""
    losses = [True]

    def is_lost(ops: tuple[Op, ...]) -> bool:
        return any(isinstance(op, Insert) and isinstance(op.row, Delivery) for op in ops) and bool(
            losses and losses.pop()
        )

    member.store.is_doubtful = is_lost


def is_all_told(herd: TaskHerd, count: int) -> bool:
    return [row.state for row in herd.disk.rows(Delivery)] == [DeliveryState.DELIVERED] * count


@in_task_herd(scheduler={"workers": 1, "max_inflight_per_agent": 1})
async def test_a_task_of_nobody_whose_end_was_not_answered_is_told_of(herd: TaskHerd) -> None:
    told = with_receiver(herd, lambda _: True)
    await herd.submit(herd[1], "ada/held")
    await herd.until(lambda: herd.sent)
    task_id = await herd.submit(herd[1], "ada/never", callback_url=CALLBACK_URL)
    lose_the_answer_to_an_end(herd[1])
    await herd[1].broker.tasking.verbs.cancel(ADA, task_id)
    await herd.until(lambda: is_all_told(herd, 1), within_s=30)
    assert told == [("nod_1", task_id)]
    herd.finished.add("ada/held")


@in_task_herd()
async def test_what_is_ended_for_a_dead_node_and_was_not_answered_is_told_of(herd: TaskHerd) -> None:
    told = with_receiver(herd, lambda _: True)
    herd[2].broker.operations.is_draining = True
    task_id = await herd.submit(herd[1], "ada/held", callback_url=CALLBACK_URL)
    await herd.until(lambda: herd.sent)
    herd[2].broker.operations.is_draining = False
    lose_the_answer_to_an_end(herd[2])
    herd.kill(herd[1])
    await herd.declare_dead(herd[1])
    await herd.until(lambda: is_all_told(herd, 1), within_s=30)
    assert told == [("nod_2", task_id)]


@in_task_herd()
async def test_a_task_that_ends_while_the_end_of_another_is_written_is_told_of_too(herd: TaskHerd) -> None:
    told = with_receiver(herd, lambda _: True)
    session = await herd.open(herd[1])
    wishes: dict[str, Any] = {"tab_id": session.tabs[0].tab_id, "callback_url": CALLBACK_URL}
    first = await herd.submit(herd[1], "ada/first-held", **wishes)
    await herd.until(lambda: herd.sent)
    second = await herd.submit(herd[1], "ada/second", **wishes)
    # The end of the first and the start of the second are written in one go, and the end is not answered.
    scheduler = herd[1].broker.tasking.scheduler
    scheduler._log._linger = lambda: asyncio.sleep(0.1)  # type: ignore[method-assign]
    lose_the_answer_to_an_end(herd[1])
    herd.finished.add("ada/first-held")
    await herd.until(lambda: herd.row(first).state is TaskState.DONE)
    live = scheduler.find(second)
    assert live is not None
    assert (live.row.state, herd.row(second).state) == (TaskState.RUNNING, TaskState.QUEUED)
    assert scheduler.cancel(live)
    await herd.until(lambda: herd.row(second).state is TaskState.CANCELLED)
    # Whoever dies now leaves it to others to tell of it.
    assert {row.id for row in herd.disk.rows(Delivery)} == {first, second}
    await herd.until(lambda: is_all_told(herd, 2), within_s=30)
    assert sorted(told) == sorted([("nod_1", first), ("nod_1", second)])
    assert herd.sent == ["ada/first-held"]
    await herd.release(session)


@in_task_herd(nodes=3)
async def test_what_was_ended_or_taken_on_for_a_dead_node_is_known_whatever_others_do_with_the_rest(
    herd: TaskHerd,
) -> None:
    told = with_receiver(herd, lambda _: True)
    session = await herd.open(herd[2])
    sample = herd.row(await herd.submit(herd[2], "ada/sample"))
    await herd.until(lambda: herd.states()["done"] == 1)
    gone = Node(id="nod_9", epoch=9, url="", pid=9, started_at=0, version=1)
    herd.disk._state.rows[Node][gone.id] = gone

    def left(name: str, **fields: Any) -> Task:
        request = sample.request.replace("sample", name)
        row = msgspec.structs.replace(sample, id=f"tsk_0{name}", node_id=gone.id, version=1, request=request)
        return msgspec.structs.replace(row, **{"state": TaskState.QUEUED, "attempts": 0, **fields})

    ended = left("ended", state=TaskState.RUNNING, attempts=1, callback_url=CALLBACK_URL)
    ours = left("ours", tab_id=session.tabs[0].tab_id)
    nobodys = left("nobodys")
    herd.disk._state.rows[Task].update({row.id: row for row in (ended, ours, nobodys)})
    # Another node runs what is nobody's before this one knows that it has made it so.
    lose_the_answer_to_an_end(herd[2])
    settling = asyncio.ensure_future(herd[2].broker.tasking.settle_node(gone))
    await herd.until(lambda: not herd.row(nobodys.id).node_id)
    herd[1].hints.hear(TASKS_TOPIC, "")
    await settling
    views = await herd.ended(herd[2], ended.id, ours.id, nobodys.id)
    assert [view.state for view in views] == ["failed", "done", "done"]
    await herd.until(lambda: is_all_told(herd, 1), within_s=30)
    assert told == [("nod_2", ended.id)]
    del herd.disk._state.rows[Node][gone.id]
    await herd.release(session)


@in_task_herd(scheduler={"workers": 1, "max_inflight_per_agent": 1, "queue_max_per_agent": 1})
async def test_a_task_that_was_rejected_and_of_which_nobody_knows_whether_it_is_kept_is_told_of(herd: TaskHerd) -> None:
    told = with_receiver(herd, lambda _: True)
    await herd.submit(herd[1], "ada/held")
    await herd.until(lambda: herd.sent)
    await asyncio.sleep(1.1)
    await herd.submit(herd[1], "ada/waits")
    lose_the_answer_to_an_end(herd[1])
    with pytest.raises(errors.QueueFull):
        await herd.submit(herd[1], "ada/many", callback_url=CALLBACK_URL)
    await herd.until(lambda: is_all_told(herd, 1), within_s=30)
    assert [node_id for node_id, _ in told] == ["nod_1"]
    herd.finished.add("ada/held")


@in_task_herd(scheduler={"workers": 1, "max_inflight_per_agent": 1})
async def test_a_node_that_is_too_late_to_end_a_task_keeps_nothing_of_it(herd: TaskHerd) -> None:
    with_receiver(herd, lambda _: True)
    await herd.submit(herd[1], "ada/held")
    await herd.until(lambda: herd.sent)
    task_id = await herd.submit(herd[1], "ada/never", callback_url=CALLBACK_URL)
    row = herd.row(task_id)
    ends = [herd[number].broker.tasking._pool.end(row, TaskEvent.CANCEL) for number in (1, 2)]  # type: ignore[union-attr]
    assert sum(ended is None for ended in await asyncio.gather(*ends)) == 1
    await herd.until(lambda: is_all_told(herd, 1))
    for number in (1, 2):
        kept = [value for value in vars(herd[number].broker.tasking).values() if isinstance(value, dict | list | set)]
        assert not any(kept), kept
    herd.finished.add("ada/held")


@in_task_herd(nodes=3)
async def test_the_results_of_a_dead_node_go_into_the_archive_in_their_time(herd: TaskHerd) -> None:
    for number in (2, 3):
        herd[number].broker.operations.is_draining = True
    task_id = await herd.submit(herd[1], "ada/1")
    await herd.ended(herd[1], task_id)
    for number in (2, 3):
        herd[number].broker.operations.is_draining = False
    herd.kill(herd[1])
    await herd.declare_dead(herd[1])
    await asyncio.sleep(herd.config.scheduler.result_ttl_s + 30)
    assert [row.id for row in herd.disk.rows(ArchivedTask)] == [task_id]
    assert (await herd.get(herd[2], task_id, caller=ADA)).result == "ada/1"
