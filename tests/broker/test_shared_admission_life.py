"""Callers that leave, nodes that drain or die and answers that are lost while several nodes share their places.

Every scene ends with a recount: whatever happened, no count stays moved and nobody waits who is not there.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.herd import Herd, Member, in_herd, run_in_herd
from tests.broker.house import ADA, ADMIN, BOB, CYD, agent

from tabherd import errors, wire
from tabherd.cluster.elsewhere import Elsewhere
from tabherd.cluster.fenced_store import fenced
from tabherd.core.caps import waiting_counter
from tabherd.core.lifecycle import LEASE, LeaseState, is_terminal
from tabherd.core.model import Session, Waiter
from tabherd.store.base import IN_DOUBT, Add, Insert, Op, Outcome

# More writes than any scene has from a caller's coming to its session.
STEPS_MAX = 100


def drain(member: Member) -> None:
    member.broker.operations.drain(ADMIN)


async def refused_draining(opening: Any) -> bool:
    try:
        await opening
    except errors.Draining:
        return True
    return False


# --- Callers that leave -----------------------------------------------------------------------------------------


async def leave_at(herd: Herd, step: int, granter: int) -> bool:
    """Bob, at node 2, leaves after so many moments; whether he did so before he had his session."""
    session = await herd.open(herd[1], ADA)
    drain(herd[2 if granter == 1 else 1])
    bob = asyncio.create_task(herd.open(herd[2], BOB))
    steps = 0

    def on_step() -> None:
        nonlocal steps
        steps += 1
        if steps == step:
            bob.cancel()

    for member in herd.members.values():
        member.store.on_step = on_step
    await asyncio.sleep(0.1)
    await herd.release(session, ADA)
    answer = (await asyncio.gather(bob, return_exceptions=True))[0]
    for member in herd.members.values():
        member.store.on_step = lambda: None
    if isinstance(answer, wire.SessionView):
        await herd.release(answer, BOB)
    else:
        assert isinstance(answer, asyncio.CancelledError)
    # The place is there for the next one.
    await herd.open(herd[granter], CYD, wait_ms=10_000)
    return isinstance(answer, asyncio.CancelledError)


@pytest.mark.parametrize("granter", [1, 2])
def test_a_caller_that_leaves_at_any_moment_leaves_nothing_behind(granter: int) -> None:
    left: list[bool] = []

    async def play(herd: Herd) -> None:
        left.append(await leave_at(herd, len(left) + 1, granter))

    while not left or left[-1]:
        assert len(left) < STEPS_MAX, "it never gets its session"
        run_in_herd(play, max_active=1)
    # Its row, its grant, its taking up and its session's binding, before and after each, at the least.
    assert len(left) > 8


@in_herd(max_active=1)
async def test_a_caller_that_left_after_it_was_granted_does_not_keep_others_waiting(herd: Herd) -> None:
    session = await herd.open(herd[1])
    drain(herd[2])
    bob = asyncio.create_task(herd[2].broker.sessions.open(BOB, wire.OpenSession(wait_ms=60_000)))
    await herd.until(lambda: herd.disk.rows(Waiter))
    herd.loses = lambda topic: topic == "granted"
    await herd.release(session)
    await herd.until(lambda: any(row.granted_by for row in herd.disk.rows(Waiter)))
    bob.cancel()
    began = herd.now
    await herd.open(herd[1], CYD)
    assert herd.now - began < 500


@in_herd(max_active=1)
async def test_whose_time_ends_in_the_moment_of_a_grant_elsewhere_is_passed_on(herd: Herd) -> None:
    session = await herd.open(herd[1])
    drain(herd[2])
    herd.loses = lambda topic: True
    bob = asyncio.create_task(herd.open(herd[2], BOB, wait_ms=1_600))
    await herd.until(lambda: herd.disk.rows(Waiter))
    # Between the look after one second and the end.
    await asyncio.sleep(1.3)
    await herd.release(session)
    assert herd.home(await bob).node.id == "nod_1"


@in_herd(max_active=1)
async def test_a_row_without_a_caller_is_removed(herd: Herd) -> None:
    herd[1].store.is_doubtful = lambda ops: any(isinstance(op, Insert) and isinstance(op.row, Waiter) for op in ops)
    session = await herd.open(herd[2])
    with pytest.raises(errors.StoreUnavailable):
        await herd.open(herd[1], BOB)
    herd[1].store.is_doubtful = lambda ops: False
    await herd.until(lambda: not herd.disk.rows(Waiter), within_s=2)
    await herd.release(session)


@in_herd(max_active=1)
async def test_a_place_that_was_granted_to_a_caller_who_hears_that_nobody_knows_whether_it_waits_goes_back(
    herd: Herd,
) -> None:
    session = await herd.open(herd[1])
    apply = herd[1].store.apply

    async def answer_late_and_lose_it(*ops: Op) -> Outcome:
        outcome = await apply(*ops)
        if any(isinstance(op, Insert) and isinstance(op.row, Waiter) for op in ops):
            await asyncio.sleep(2)
            raise errors.StoreUnavailable("the answer was lost", cause=IN_DOUBT)
        return outcome

    herd[1].store.apply = answer_late_and_lose_it  # type: ignore[method-assign]
    asking = asyncio.create_task(herd.open(herd[1], BOB))
    await herd.until(lambda: herd.disk.rows(Waiter))
    await herd.release(session)
    with pytest.raises(errors.StoreUnavailable):
        await asking
    await herd.until(lambda: herd.active == 0, within_s=2)


@in_herd(max_active=1)
async def test_a_node_that_others_have_declared_dead_ends_its_browsers_also_while_it_keeps_places(herd: Herd) -> None:
    session = await herd.open(herd[1])
    # Its caller never comes.
    lost = asyncio.create_task(herd[2].broker.sessions.open(BOB, wire.OpenSession(wait_ms=60_000)))
    await herd.until(lambda: herd.disk.rows(Waiter))
    drain(herd[2])
    await herd.release(session)
    with pytest.raises(Elsewhere):
        await lost
    get = herd[1].store.get

    async def refuse(table: Any, id: str) -> Any:
        if table is Session:
            raise fenced()
        return await get(table, id)

    herd[1].is_alive = False
    herd[1].store.get = refuse  # type: ignore[method-assign,assignment]
    await herd[1].broker.stop()
    assert not any(process.is_alive for process in herd[1].processes.values())
    await herd.declare_dead(herd[1])


@in_herd()
async def test_a_row_of_a_caller_that_nobody_knows_is_removed_by_the_next_look(herd: Herd) -> None:
    ghost = Waiter(id="wtr_ghost", node_id="nod_1", pool="default", agent_id="ada")
    await herd.disk.apply(Add(waiting_counter("default"), 1), Insert(ghost))
    await herd.until(lambda: not herd.disk.rows(Waiter), within_s=2)


@in_herd()
async def test_a_reservation_whose_answer_is_lost_is_settled(herd: Herd) -> None:
    def is_reservation(ops: tuple[Op, ...]) -> bool:
        return any(isinstance(op, Insert) and isinstance(op.row, Session) for op in ops)

    herd[1].store.is_doubtful = is_reservation
    with pytest.raises(errors.StoreUnavailable):
        await herd.open(herd[1], BOB)
    await herd.until(lambda: herd.active == 0, within_s=2)


@pytest.mark.parametrize("has_landed", [True, False])
@in_herd(max_pooled=1, pooled_ttl_s=60)
async def test_a_pooled_tab_whose_reservation_was_not_answered_is_given_to_nobody_before_it_is_known_whose_it_is(
    herd: Herd, has_landed: bool
) -> None:
    session = await herd.open(herd[1])
    await herd[1].broker.sessions.release(ADA, session.session_id, None, "pool")
    await herd.until(lambda: [row for row in herd.disk.rows(Session) if row.state is LeaseState.POOLED])
    apply, lost = herd[1].store.apply, [True]

    async def lose(*ops: Op) -> Outcome:
        if lost and any(isinstance(op, Insert) and isinstance(op.row, Session) for op in ops):
            lost.clear()
            if has_landed:
                await apply(*ops)
            raise errors.StoreUnavailable("the answer was lost", cause=IN_DOUBT)
        return await apply(*ops)

    herd[1].store.apply = lose  # type: ignore[method-assign]
    with pytest.raises(errors.StoreUnavailable):
        await herd.open(herd[1], reuse="same-agent")
    again = await herd.open(herd[1], reuse="same-agent")
    await herd[1].broker.sessions.release(ADA, again.session_id, None, "close")
    # Until whatever was left in the pool has been closed there.
    await asyncio.sleep(90)
    assert herd.active == 0
    assert not [row for row in herd.disk.rows(Session) if not is_terminal(LEASE, row.state)]


@in_herd(nodes=3, max_active=1)
async def test_whoever_does_not_come_to_its_place_in_time_waits_again(herd: Herd) -> None:
    session = await herd.open(herd[1])
    for member in (herd[2], herd[3]):
        drain(member)
    # So it does not know whom to pass its caller on to.
    herd[2].membership.unknown = {"nod_1"}
    waiting = asyncio.create_task(herd.open(herd[2], BOB))
    await herd.until(lambda: herd.disk.rows(Waiter))
    await herd.release(session)
    await herd.until(lambda: any(row.granted_by for row in herd.disk.rows(Waiter)))
    drain(herd[1])
    herd[3].broker.operations.resume(ADMIN)
    assert herd.home(await waiting).node.id == "nod_3"


# --- Nodes that compete -----------------------------------------------------------------------------------------


@in_herd(nodes=4, sessions_per_browser=1)
async def test_of_several_nodes_that_have_a_place_for_a_caller_one_gives_it(herd: Herd) -> None:
    await herd.open(herd[1], ADA)
    await herd.open(herd[1], BOB)
    assert sum(member.store.conflicts for member in herd.members.values()) > 0
    rows = [row for row in herd.disk.rows(Session) if row.agent_id == "bob"]
    assert [row.state for row in rows] == [LeaseState.ACTIVE]


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_when_many_come_leave_and_end_on_every_node(seed: int) -> None:
    async def play(herd: Herd) -> None:
        most = 0

        async def live(number: int) -> None:
            nonlocal most
            caller = agent(f"a{number % 5}")
            for _ in range(4):
                asking = asyncio.create_task(
                    herd.open(herd[herd.chance.randint(1, 3)], caller, wait_ms=20_000, key=f"k{number % 2}")
                )
                if herd.chance.random() < 0.3:
                    await asyncio.sleep(herd.chance.random() * 0.3)
                    asking.cancel()
                (answer,) = await asyncio.gather(asking, return_exceptions=True)
                if isinstance(answer, wire.SessionView):
                    most = max(most, herd.active)
                    await asyncio.sleep(herd.chance.random() * 0.1)
                    await herd.release(answer, caller)
                else:
                    assert isinstance(answer, asyncio.CancelledError), answer

        herd.loses = lambda topic: herd.chance.random() < 0.2
        await asyncio.gather(*(live(number) for number in range(20)))
        assert most <= 6

    run_in_herd(play, nodes=3, seed=seed, max_active=6, max_active_per_key=4, max_active_per_agent=2)


# --- Nodes that drain -------------------------------------------------------------------------------------------


@in_herd()
async def test_a_new_caller_of_a_node_that_drains_gets_a_place_elsewhere(herd: Herd) -> None:
    drain(herd[1])
    assert herd.home(await herd.open(herd[1])).node.id == "nod_2"


@in_herd(max_active=1)
async def test_those_who_wait_on_a_node_that_drains_wait_for_the_others(herd: Herd) -> None:
    session = await herd.open(herd[2])
    waiting = asyncio.create_task(herd.open(herd[1], BOB))
    await herd.until(lambda: herd[1].waiting)
    drain(herd[1])
    await herd.release(session)
    assert herd.home(await waiting).node.id == "nod_2"


@in_herd(nodes=1, max_active=1)
async def test_a_node_that_drains_alone_refuses(herd: Herd) -> None:
    await herd.open(herd[1])
    waiting = asyncio.create_task(refused_draining(herd.open(herd[1], BOB)))
    await herd.until(lambda: herd[1].waiting)
    drain(herd[1])
    assert await waiting
    assert await refused_draining(herd.open(herd[1], CYD))


@in_herd(max_active=1)
async def test_a_node_that_drains_refuses_those_who_cannot_be_passed_on(herd: Herd) -> None:
    await herd.open(herd[2])
    request = wire.OpenSession(wait_ms=60_000)
    waiting = asyncio.create_task(refused_draining(herd[1].broker.sessions.lease(BOB, request, is_local=True)))
    await herd.until(lambda: herd[1].waiting)
    drain(herd[1])
    assert await waiting
    assert await refused_draining(herd[1].broker.sessions.lease(CYD, request, is_local=True))


@in_herd(max_active=1)
async def test_those_who_wait_on_a_node_that_drains_are_refused_once_it_is_alone(herd: Herd) -> None:
    await herd.open(herd[1])
    waiting = asyncio.create_task(refused_draining(herd.open(herd[1], BOB)))
    await herd.until(lambda: herd[1].waiting)
    drain(herd[1])
    herd.kill(herd[2])
    await herd.declare_dead(herd[2])
    assert await waiting


@in_herd(max_active=1)
async def test_a_node_that_stops_sends_everybody_away(herd: Herd) -> None:
    await herd.open(herd[2])
    waiting = asyncio.create_task(refused_draining(herd.open(herd[1], BOB)))
    await herd.until(lambda: herd[1].waiting)
    herd[1].broker.operations.stop()
    assert await waiting


@in_herd(max_active=1)
async def test_a_place_that_was_kept_on_a_node_that_drains_now_is_still_its_callers(herd: Herd) -> None:
    session = await herd.open(herd[1])
    drain(herd[2])
    herd.delay_s = 0.5
    waiting = asyncio.create_task(herd.open(herd[2], BOB))
    await herd.until(lambda: herd.disk.rows(Waiter))
    await herd.release(session)
    await herd.until(lambda: any(row.granted_by for row in herd.disk.rows(Waiter)))
    drain(herd[1])
    assert herd.home(await waiting).node.id == "nod_1"


# --- Nodes that die ---------------------------------------------------------------------------------------------


@in_herd(max_active=1)
async def test_waiters_of_a_dead_node_are_forgotten(herd: Herd) -> None:
    session = await herd.open(herd[1])
    lost = [asyncio.create_task(herd.open(herd[2], agent(f"a{n}"))) for n in range(3)]
    await herd.until(lambda: len(herd.disk.rows(Waiter)) == 3)
    herd.kill(herd[2])
    await herd.declare_dead(herd[2])
    assert herd.disk.rows(Waiter) == []
    await herd.release(session)
    await herd.open(herd[1], CYD, wait_ms=100)
    assert not any(task.done() for task in lost)


@in_herd(max_active=1)
async def test_whoever_was_granted_a_place_by_a_node_that_died_waits_again(herd: Herd) -> None:
    session = await herd.open(herd[1])
    drain(herd[2])
    herd.loses = lambda topic: True
    waiting = asyncio.create_task(herd.open(herd[2], BOB))
    await herd.until(lambda: herd.disk.rows(Waiter))
    await herd.release(session)
    await herd.until(lambda: any(row.granted_by for row in herd.disk.rows(Waiter)))
    herd.kill(herd[1])
    herd[2].broker.operations.resume(ADMIN)
    await herd.declare_dead(herd[1])
    assert herd.home(await waiting).node.id == "nod_2"


@in_herd(max_active=2)
async def test_a_node_that_starts_again_forgets_the_callers_of_its_former_life(herd: Herd) -> None:
    sessions = [await herd.open(herd[1], ADA), await herd.open(herd[1], BOB)]
    lost = asyncio.create_task(herd.open(herd[2], CYD))
    await herd.until(lambda: herd.disk.rows(Waiter))
    await herd.restart(2)
    assert herd.disk.rows(Waiter) == []
    assert not lost.done()
    for session, caller in zip(sessions, (ADA, BOB), strict=True):
        await herd.release(session, caller)
    await herd.open(herd[2], wait_ms=100)
