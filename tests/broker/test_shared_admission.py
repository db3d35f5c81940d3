"""Callers of several nodes and the places of all of them, on virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.herd import Herd, in_herd
from tests.broker.house import ADA, ADMIN, BOB, CYD, agent

from tabherd import errors, wire
from tabherd.cluster.elsewhere import Elsewhere
from tabherd.core.fairness import jain_index
from tabherd.core.model import Waiter


async def granted(asked: list[asyncio.Task[wire.SessionView]]) -> list[wire.SessionView]:
    """Those of the callers that got a session."""
    answers = await asyncio.gather(*asked, return_exceptions=True)
    wrong = [error for error in answers if isinstance(error, BaseException) and not isinstance(error, errors.Capacity)]
    assert not wrong, wrong
    return [answer for answer in answers if not isinstance(answer, BaseException)]


@in_herd(nodes=3, max_active=7)
async def test_the_cap_of_a_pool_is_that_of_all_nodes_together(herd: Herd) -> None:
    asked = [asyncio.create_task(herd.open(herd[1 + n % 3], agent(f"a{n}"), wait_ms=500)) for n in range(30)]
    sessions = await granted(asked)
    assert len(sessions) == herd.active == 7


@in_herd(sessions_per_browser=2)
async def test_a_caller_of_a_full_node_gets_a_place_on_another(herd: Herd) -> None:
    here = [await herd.open(herd[1]) for _ in range(2)]
    there = await herd.open(herd[1])
    assert {herd.home(session).node.id for session in here} == {"nod_1"}
    assert herd.home(there).node.id == "nod_2"


@in_herd(sessions_per_browser=1)
async def test_a_caller_that_does_not_want_to_wait_still_gets_a_place_of_another_node(herd: Herd) -> None:
    await herd.open(herd[1])
    assert herd.home(await herd.open(herd[1], wait_ms=0)).node.id == "nod_2"


@in_herd(max_active=1)
async def test_a_caller_that_does_not_want_to_wait_is_refused_at_once_when_a_cap_is_reached(herd: Herd) -> None:
    await herd.open(herd[1])
    began = herd.now
    with pytest.raises(errors.Capacity) as refused:
        await herd.open(herd[2], BOB, wait_ms=0)
    assert herd.now - began < 100
    assert refused.value.details["reason"] == "pool_cap"
    assert (refused.value.details["count"], refused.value.details["cap"]) == (1, 1)


@in_herd(max_active=1)
async def test_a_place_that_is_given_back_goes_to_a_caller_of_another_node(herd: Herd) -> None:
    first = await herd.open(herd[1])
    waiting = asyncio.create_task(herd.open(herd[2], BOB))
    await herd.until(lambda: herd[2].waiting)
    await herd.release(first)
    assert (await waiting).agent_id == "bob"


@in_herd(max_active=1)
async def test_lost_hints_cost_no_more_than_time(herd: Herd) -> None:
    herd.loses = lambda topic: True
    first = await herd.open(herd[1])
    waiting = asyncio.create_task(herd.open(herd[2], BOB))
    await herd.until(lambda: herd[2].waiting)
    await herd.release(first)
    began = herd.now
    assert (await waiting).agent_id == "bob"
    assert herd.now - began < 2_200


@in_herd(nodes=3, max_active=6, sessions_per_browser=2)
async def test_agents_get_equal_shares_however_unevenly_they_ask_and_wherever(herd: Herd) -> None:
    # Ada has most callers, all at the node where hers are in each other's way.
    crowd = {"ada": 24, "bob": 6, "cyd": 3}
    served = dict.fromkeys(crowd, 0)
    ends_at = herd.now + 6_000

    async def use(name: str, number: int) -> None:
        node = herd[1] if name == "ada" else herd[2 + number % 2]
        while herd.now < ends_at:
            session = await herd.open(node, agent(name))
            await asyncio.sleep(0.2)
            if herd.now < ends_at:
                served[name] += 1
            await herd.release(session, agent(name))

    await asyncio.gather(*(use(name, number) for name, count in crowd.items() for number in range(count)))
    assert jain_index(list(served.values())) >= 0.98, served
    # At most 6 at a time for a fifth of a second each, and the way from one to the next.
    assert sum(served.values()) > 0.75 * 6 * 6 / 0.2, served


@in_herd(max_active=2)
async def test_whoever_has_fewest_sessions_in_the_whole_cluster_is_next(herd: Herd) -> None:
    first = await herd.open(herd[1], ADA)
    second = await herd.open(herd[2], BOB)
    order: list[str] = []

    async def wait(at: int, caller: Any) -> wire.SessionView:
        session = await herd.open(herd[at], caller)
        order.append(caller.agent_id)
        return session

    tasks = []
    for at, caller in ((1, ADA), (1, ADA), (2, CYD)):
        tasks.append(asyncio.create_task(wait(at, caller)))
        await herd.until(lambda: len(herd.disk.rows(Waiter)) == len(tasks))
    await herd.release(second, BOB)
    await herd.until(lambda: order)
    await herd.release(first, ADA)
    await herd.until(lambda: len(order) == 2)
    assert order == ["cyd", "ada"]
    await herd.release(await tasks[2], CYD)
    await asyncio.gather(*tasks)


@in_herd(max_active=1)
async def test_nobody_overtakes_those_who_wait_on_another_node(herd: Herd) -> None:
    first = await herd.open(herd[1])
    # Whoever would have to be told knows nothing.
    herd.loses = lambda topic: True
    waiting = asyncio.create_task(herd.open(herd[2], BOB))
    await herd.until(lambda: herd.disk.rows(Waiter))
    await herd.release(first)
    late = asyncio.create_task(herd.open(herd[1], CYD))
    session = await waiting
    assert not late.done()
    await herd.release(session, BOB)
    await late


@in_herd(max_active_per_agent=1)
async def test_a_waiter_at_its_own_cap_blocks_nobody_on_any_node(herd: Herd) -> None:
    first = await herd.open(herd[1], ADA)
    blocked = asyncio.create_task(herd.open(herd[1], ADA))
    await herd.until(lambda: herd.disk.rows(Waiter))
    for at in (1, 2):
        await herd.open(herd[at], agent(f"free{at}"), wait_ms=100)
    assert not blocked.done()
    await herd.release(first, ADA)
    await blocked


@in_herd(sessions_per_browser=1)
async def test_a_local_caller_waits_for_its_own_node_alone(herd: Herd) -> None:
    first = await herd.open(herd[1])
    lease = herd[1].broker.sessions.lease(BOB, wire.OpenSession(wait_ms=60_000), is_local=True)
    waiting = asyncio.create_task(lease)
    await asyncio.sleep(5)
    assert not waiting.done()
    await herd.release(first)
    assert (await waiting).row.node_id == "nod_1"


@in_herd(max_active=1)
async def test_a_wait_in_vain_says_where_the_caller_stood_among_those_of_all_nodes(herd: Herd) -> None:
    session = await herd.open(herd[1])
    ahead = asyncio.create_task(herd.open(herd[1], BOB))
    await herd.until(lambda: herd.disk.rows(Waiter))
    with pytest.raises(errors.Capacity) as refused:
        await herd.open(herd[2], CYD, wait_ms=3_000)
    assert refused.value.details["position"] == 2
    assert refused.value.retry_after_ms
    await herd.release(session)
    await ahead


@in_herd(max_active=1, max_waiters=2)
async def test_callers_of_all_nodes_together_are_bounded(herd: Herd) -> None:
    session = await herd.open(herd[1])
    waiting = [asyncio.create_task(herd.open(herd[at], agent(f"a{at}"))) for at in (1, 2)]
    await herd.until(lambda: len(herd.disk.rows(Waiter)) == 2)
    with pytest.raises(errors.QueueFull) as refused:
        await herd.open(herd[2], CYD)
    assert refused.value.status == 503
    assert refused.value.retry_after_ms
    await herd.release(session)
    first, *_ = (await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED))[0]
    await herd.release(first.result(), agent(first.result().agent_id))
    await asyncio.gather(*waiting)


@in_herd(max_pooled=1)
async def test_each_node_keeps_as_many_pooled_tabs_as_it_may(herd: Herd) -> None:
    opened = [await herd.open(herd[at]) for at in (1, 1, 2)]
    for session in opened:
        member = herd.home(session)
        await member.broker.sessions.release(ADA, session.session_id, disposition="pool")
    await herd.until(lambda: all(not member.admission.is_evicting for member in herd.alive))
    assert [len(member.admission.stock) for member in herd.alive] == [1, 1]


@in_herd(max_tabs=2)
async def test_tabs_are_bounded_on_each_node(herd: Herd) -> None:
    homes = [herd.home(await herd.open(herd[1], agent(f"a{n}"))).node.id for n in range(4)]
    assert homes == ["nod_1", "nod_1", "nod_2", "nod_2"]


@in_herd(max_active=1)
async def test_a_place_that_nobody_comes_for_is_given_to_the_next(herd: Herd) -> None:
    session = await herd.open(herd[1])
    asked = wire.OpenSession(wait_ms=60_000)
    lost = asyncio.create_task(herd[2].broker.sessions.open(BOB, asked))
    await herd.until(lambda: herd.disk.rows(Waiter))
    herd[2].broker.operations.drain(ADMIN)
    await herd.release(session)
    # The request that is passed on never arrives.
    with pytest.raises(Elsewhere) as elsewhere:
        await lost
    assert elsewhere.value.node_id == "nod_1"
    began = herd.now
    await herd.open(herd[1], CYD)
    assert 3_000 < herd.now - began < 8_000


@in_herd(max_active=1)
async def test_a_caller_that_comes_too_late_for_its_place_waits_where_it_came_to(herd: Herd) -> None:
    session = await herd.open(herd[1])
    late = herd[2].broker.sessions.open(BOB, wire.OpenSession(wait_ms=60_000), grant="ses_gone")
    waiting = asyncio.create_task(late)
    await herd.until(lambda: herd.disk.rows(Waiter))
    await herd.release(session)
    assert herd.home(await waiting).node.id == "nod_2"


@in_herd(max_active=1)
async def test_a_place_is_kept_for_nobody_but_its_caller(herd: Herd) -> None:
    session = await herd.open(herd[1])
    waiting = asyncio.create_task(herd[2].broker.sessions.open(BOB, wire.OpenSession(wait_ms=60_000)))
    await herd.until(lambda: herd.disk.rows(Waiter))
    herd[2].broker.operations.drain(ADMIN)
    await herd.release(session)
    with pytest.raises(Elsewhere) as elsewhere:
        await waiting
    asked = wire.OpenSession(wait_ms=0)
    with pytest.raises(errors.Capacity):
        await herd[1].broker.sessions.open(CYD, asked, grant=elsewhere.value.grant)
    assert (await herd[1].broker.sessions.open(BOB, asked, grant=elsewhere.value.grant)).agent_id == "bob"
