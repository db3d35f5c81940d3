"""A task is for the lease that it was submitted under: it survives a crash with it, and never acts under another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.broker.house import ADA, ADMIN, BOB, House, in_house
from tests.broker.task_herd import TaskHerd, in_task_herd
from tests.broker.tasking import check_counters, ended, get, labels, rows, submit, with_scheduler

from tabherd import wire
from tabherd.broker.caller import AGENT_SCOPES, Caller
from tabherd.core.lifecycle import TaskState
from tabherd.core.model import Node, Task, changed
from tabherd.store.base import Insert, Op, Outcome

# Who may use any session.
ROOT = Caller(agent_id="root", scopes=AGENT_SCOPES | {"admin"}, controller_id="root")
NAMED = ("tab", "session")


async def give(house: House, session: wire.SessionView, *agents: str) -> None:
    """An admin gives the session to one after the other."""
    for agent_id in agents:
        await house.broker.sessions.take_over(ADMIN, session.session_id, agent_id)


def named(session: wire.SessionView, by: str) -> dict[str, str]:
    """How a task names where it is to run."""
    return {"tab_id": session.tabs[0].tab_id} if by == "tab" else {"session_id": session.session_id}


async def keep_worker(house: House) -> None:
    """The only worker has something else to do until `held` may end."""
    house.broker.tasking.reconfigure(with_scheduler(house, workers=1))
    other = await house.open(BOB)
    await submit(house, "held", BOB, tab_id=other.tabs[0].tab_id)
    await house.until(lambda: "held" in labels(house))


async def check_lost(house: House, *task_ids: str) -> None:
    """They have failed because their lease is over, and touched nothing."""
    for view in await ended(house, *task_ids):
        assert (view.state, view.code, view.attempts) == ("failed", "lease_lost", 0)
    assert set(labels(house)) <= {"held"}
    check_counters(house)


# --- One node ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", NAMED)
@pytest.mark.parametrize("agents", [("bob", "ada"), ("ada",)], ids=["by way of another", "at once"])
@in_house()
async def test_a_task_does_not_run_under_a_later_lease_of_its_own_agent(
    house: House, agents: Sequence[str], by: str
) -> None:
    session = await house.open()
    await keep_worker(house)
    task_id = await submit(house, "late", **named(session, by))
    await give(house, session, *agents)
    house.finish("held")
    await check_lost(house, task_id)


@pytest.mark.parametrize("by", NAMED)
@in_house()
async def test_nor_after_the_server_was_killed(house: House, by: str) -> None:
    session = await house.open()
    await keep_worker(house)
    task_id = await submit(house, "late", **named(session, by))
    await give(house, session, "bob", "ada")
    await house.kill()
    await check_lost(house, task_id)


@pytest.mark.parametrize("by", NAMED)
@in_house()
async def test_an_admins_task_does_not_run_under_the_lease_of_the_next_owner(house: House, by: str) -> None:
    session = await house.open()
    await keep_worker(house)
    task_id = await submit(house, "late", ROOT, **named(session, by))
    await give(house, session, "bob")
    house.finish("held")
    await check_lost(house, task_id)


@in_house()
async def test_a_guests_task_does_not_run_under_the_lease_of_the_next_owner(house: House) -> None:
    session = await house.open(access="shared")
    await keep_worker(house)
    task_id = await submit(house, "late", BOB, tab_id=session.tabs[0].tab_id)
    await give(house, session, "cyd")
    house.finish("held")
    await check_lost(house, task_id)


@pytest.mark.parametrize("by", NAMED)
@in_house()
async def test_who_had_the_session_hears_that_the_lease_is_lost_however_the_task_names_it(
    house: House, by: str
) -> None:
    session = await house.open()
    await keep_worker(house)
    task_id = await submit(house, "late", **named(session, by))
    await give(house, session, "bob")
    house.finish("held")
    await check_lost(house, task_id)


@in_house()
async def test_a_task_is_for_the_lease_that_its_submitter_found_however_long_it_is_written(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await house.open()
    apply, may_go = house.store.apply, asyncio.Event()

    async def slowly(*ops: Op) -> Outcome:
        if isinstance(ops[0], Insert) and isinstance(ops[0].row, Task):
            await may_go.wait()
        return await apply(*ops)

    monkeypatch.setattr(house.store, "apply", slowly)
    submitted = asyncio.ensure_future(submit(house, "late", tab_id=session.tabs[0].tab_id))
    await asyncio.sleep(0.1)
    await give(house, session, "bob", "ada")
    may_go.set()
    await check_lost(house, await submitted)


@in_house()
async def test_a_task_that_waits_for_a_tab_that_a_person_has_ends_when_the_session_is_given_away(house: House) -> None:
    session = await house.open()
    tab_id = session.tabs[0].tab_id
    await house.broker.tabs.hand_off(ADA, tab_id, "eve")
    task_id = await submit(house, "late", tab_id=tab_id)
    await asyncio.sleep(1)
    assert (await get(house, task_id)).state == "queued"
    await give(house, session, "bob")
    # The new holder's session is not kept busy by what will never be done.
    assert await house.until(lambda: house.live(session).tasks == 0) < 100
    await check_lost(house, task_id)


@in_house()
async def test_a_session_that_was_leased_for_a_task_and_given_away_is_not_given_back_by_it(house: House) -> None:
    task_id = await submit(house, "x-held")
    await house.until(lambda: labels(house) == ["x-held"])
    (live,) = list(house.broker.registry)
    await house.broker.sessions.take_over(ADMIN, live.row.id, "ada")
    (view,) = await ended(house, task_id)
    assert (view.state, view.code) == ("failed", "lease_lost")
    await house.quiet()
    assert house.broker.registry.session(live.row.id) is live
    await house.broker.sessions.release(ADA, live.row.id)


@in_house()
async def test_a_task_survives_the_crash_of_its_browser_and_that_of_the_server_with_its_lease(house: House) -> None:
    session = await house.open()
    await keep_worker(house)
    task_id = await submit(house, "later", tab_id=session.tabs[0].tab_id)
    assert rows(house)[task_id].fence == session.fence
    await house.lose_browser(session)
    await house.recovered(session)
    await house.kill()
    assert (await ended(house, task_id))[0].state == "done"


@in_house()
async def test_a_task_of_before_there_were_fences_runs_as_it_did(house: House) -> None:
    session = await house.open()
    await keep_worker(house)
    task_id = await submit(house, "later", tab_id=session.tabs[0].tab_id)
    house.disk._state.rows[Task][task_id] = changed(rows(house)[task_id], fence=0)
    await give(house, session, "bob", "ada")
    await house.kill()
    assert (await ended(house, task_id))[0].state == "done"


# --- Several nodes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", NAMED)
@in_task_herd()
async def test_the_task_of_a_dead_node_does_not_run_under_a_later_lease(herd: TaskHerd, by: str) -> None:
    session = await herd.open(herd[2])
    sample = herd.row(await herd.submit(herd[2], "ada/1", tab_id=session.tabs[0].tab_id))
    await herd.until(lambda: herd.states()["done"] == 1)
    gone = Node(id="nod_9", epoch=9, url="", pid=9, started_at=0, version=1)
    names: dict[str, Any] = {"tab_id": "", "session_id": "", **named(session, by)}
    left = changed(sample, id="tsk_0left", state=TaskState.QUEUED, node_id=gone.id, version=1, attempts=0, **names)
    herd.disk._state.rows[Node][gone.id] = gone
    herd.disk._state.rows[Task][left.id] = left
    for agent_id in ("bob", "ada"):
        await herd[2].broker.sessions.take_over(ADMIN, session.session_id, agent_id)
    async with asyncio.timeout(5):
        await asyncio.gather(*(member.broker.tasking.settle_node(gone) for member in herd.members.values()))
    (view,) = await herd.ended(herd[2], left.id)
    assert (view.state, view.code) == ("failed", "lease_lost")
    assert herd.sent == ["ada/1"]
    del herd.disk._state.rows[Node][gone.id]
    await herd.release(session)


@in_task_herd()
async def test_a_session_that_goes_and_comes_back_while_it_is_written_that_its_task_is_sent_is_another_lease(
    herd: TaskHerd, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await herd.open(herd[1])
    twin = herd[1].claims  # type: ignore[attr-defined]
    write, given = twin.write, []

    async def slowly(changes: Sequence[Task]) -> set[str]:
        written: set[str] = await write(changes)
        for agent_id in ("bob", "ada") if not given else ():
            given.append(await herd[1].broker.sessions.take_over(ADMIN, session.session_id, agent_id))
        return written

    monkeypatch.setattr(twin, "write", slowly)
    task_id = await herd.submit(herd[1], "ada/late", session_id=session.session_id)
    (view,) = await herd.ended(herd[1], task_id)
    assert len(given) == 2
    assert (view.state, view.code) == ("failed", "lease_lost")
    assert herd.sent == []
    await herd.release(session)
