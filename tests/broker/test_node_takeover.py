"""What becomes of the sessions of a node that is over, on virtual time: nothing is lost, and nothing is had twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.broker.herd import Herd, Member, in_herd
from tests.broker.house import ADA

from tabherd import errors, wire
from tabherd.core.lifecycle import LEASE, LeaseState, NodeState, is_terminal
from tabherd.core.model import Node, Session, Tab, changed
from tabherd.store.base import Applied, Update


def open_rows(herd: Herd) -> list[Session]:
    return [row for row in herd.disk.rows(Session) if not is_terminal(LEASE, row.state)]


def is_whole(herd: Herd, sessions: list[wire.SessionView]) -> bool:
    """Whether each of them is active on a living node that has it, with its tabs."""
    rows = {row.id: row for row in herd.disk.rows(Session)}
    for session in sessions:
        row = rows[session.session_id]
        if row.state is not LeaseState.ACTIVE or not herd.members[row.node_id].is_alive:
            return False
        live = herd.members[row.node_id].broker.registry.session(row.id)
        if live is None or live.browser is None:
            return False
    return True


async def dead(herd: Herd, member: Member, boot_id: str = "") -> Node:
    """Killed and declared dead, with nobody at its things yet; on a machine of its own, if that is named."""
    herd.kill(member)
    member.is_gone = True
    outcome = await herd.disk.apply(Update(changed(member.node, state=NodeState.DEAD, boot_id=boot_id)))
    assert isinstance(outcome, Applied)
    (gone,) = outcome.rows
    assert isinstance(gone, Node)
    return gone


@in_herd(nodes=3)
async def test_its_sessions_are_back_on_the_others_under_the_same_ids_and_fences(herd: Herd) -> None:
    sessions = [await herd.open(herd[1]) for _ in range(6)]
    herd.kill(herd[1])
    await herd.declare_dead(herd[1])
    await herd.until(lambda: is_whole(herd, sessions))
    rows = {row.id: row for row in open_rows(herd)}
    assert {id: row.fence for id, row in rows.items()} == {each.session_id: each.fence for each in sessions}
    tabs = {tab.id: tab.node_id for tab in herd.disk.rows(Tab)}
    assert tabs == {each.tabs[0].tab_id: rows[each.session_id].node_id for each in sessions}
    shares = Counter(row.node_id for row in rows.values())
    assert set(shares) == {"nod_2", "nod_3"}, "each survivor takes its share"


@in_herd(nodes=2)
async def test_when_nothing_is_left_of_it_it_is_forgotten(herd: Herd) -> None:
    await herd.open(herd[1])
    herd.kill(herd[1])
    await herd.declare_dead(herd[1])
    states = {node.id: node.state for node in herd.disk.rows(Node)}
    assert states == {"nod_1": NodeState.GONE, "nod_2": NodeState.UP}


@in_herd(nodes=2)
async def test_a_node_that_is_back_keeps_what_was_not_claimed_by_then(herd: Herd) -> None:
    session = await herd.open(herd[1])
    gone = await dead(herd, herd[1])
    row = next(row for row in open_rows(herd) if row.id == session.session_id)
    # Between the look of the other one and its claim.
    await herd.disk.apply(Update(changed(gone, state=NodeState.UP)))
    assert await herd[2].broker._takeover._claim(gone, row) is None
    assert open_rows(herd) == [row]
    await end_everything(herd)


@in_herd(nodes=2)
async def test_of_two_that_claim_a_session_one_has_it(herd: Herd) -> None:
    session = await herd.open(herd[1])
    gone = await dead(herd, herd[1])
    row = next(row for row in open_rows(herd) if row.id == session.session_id)
    takeover = herd[2].broker._takeover
    first, second = await asyncio.gather(takeover._claim(gone, row), takeover._claim(gone, row))
    assert (first is None) != (second is None)
    claimed = first or second
    assert claimed is not None
    await herd[2].broker._adoption.take_up(claimed, "node_died")
    await herd.until(lambda: is_whole(herd, [session]))


@in_herd(nodes=3, sessions_per_browser=2)
async def test_a_node_without_a_seat_leaves_them_to_one_that_has_some(herd: Herd) -> None:
    full = [await herd.open(herd[2]) for _ in range(2)]
    lost = [await herd.open(herd[1]) for _ in range(2)]
    herd.kill(herd[1])
    await herd.declare_dead(herd[1])
    await herd.until(lambda: is_whole(herd, [*full, *lost]))
    assert {row.node_id for row in open_rows(herd) if row.id in {each.session_id for each in lost}} == {"nod_3"}


@in_herd(nodes=2, sessions_per_browser=2)
async def test_when_all_are_full_its_sessions_wait_before_everybody_else(herd: Herd) -> None:
    mine = [await herd.open(herd[2]) for _ in range(2)]
    lost = await herd.open(herd[1])
    herd.kill(herd[1])
    await herd.declare_dead(herd[1])
    newcomer = asyncio.ensure_future(herd.open(herd[2]))
    await asyncio.sleep(5)
    await herd.release(mine[0])
    await herd.until(lambda: is_whole(herd, [lost]))
    assert not newcomer.done()
    await herd.release(mine[1])
    await herd.release(await newcomer)


@in_herd(nodes=2)
async def test_what_was_being_opened_or_ended_or_is_too_late_is_settled(herd: Herd) -> None:
    sessions = [await herd.open(herd[1], deadline_ms=600_000) for _ in range(2)]
    short = await herd.open(herd[1], deadline_ms=2_000)
    gone = await dead(herd, herd[1])
    closing, reserved = (next(row for row in open_rows(herd) if row.id == each.session_id) for each in sessions)
    await herd.disk.apply(Update(changed(closing, state=LeaseState.CLOSING)))
    await asyncio.sleep(3)
    await herd[2].broker._takeover.run(gone)
    states = {row.id: row.state for row in herd.disk.rows(Session)}
    assert states[closing.id] is LeaseState.CLOSED
    assert is_terminal(LEASE, states[short.session_id])
    await herd.until(lambda: is_whole(herd, [sessions[1]]))
    assert states[reserved.id] is not LeaseState.CLOSED


@pytest.mark.parametrize("step", range(1, 60, 3))
@in_herd(nodes=3)
async def test_a_survivor_that_dies_in_the_middle_leaves_the_rest_to_the_next(herd: Herd, step: int) -> None:
    sessions = [await herd.open(herd[1]) for _ in range(3)]
    gone = await dead(herd, herd[1])
    steps = 0

    def die_at_that_step() -> None:
        nonlocal steps
        steps += 1
        if steps == step:
            herd.kill(herd[2])

    herd[2].store.on_step = die_at_that_step
    works: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(member.broker._inherit(gone)) for member in (herd[2], herd[3])
    ]
    await asyncio.sleep(5)
    works[0].cancel()
    await asyncio.gather(*works, return_exceptions=True)
    if not herd[2].is_alive:
        await herd.declare_dead(herd[2])
    await herd.until(lambda: is_whole(herd, sessions))


async def end_everything(herd: Herd) -> None:
    """So that the scene ends with counts that fit: what is left of the dead goes with them."""
    for member in herd.members.values():
        if not member.is_alive:
            rows = [row for row in herd.disk.rows(Node) if row.id == member.node.id]
            for row in rows:
                await herd.disk.apply(Update(changed(row, state=NodeState.DEAD)))
                (again,) = [each for each in herd.disk.rows(Node) if each.id == member.node.id]
                await asyncio.gather(*(other.broker._inherit(again) for other in herd.alive))
    await asyncio.sleep(1)


@in_herd(nodes=2)
async def test_a_process_of_another_machine_is_not_taken_for_dead_by_whoever_cannot_see_it(herd: Herd) -> None:
    herd[1].broker._owners._alive.add(77)  # type: ignore[attr-defined]
    session = await herd.open(herd[1], owner=wire.Owner(pid=77))
    await herd[2].broker._inherit(await dead(herd, herd[1], "elsewhere"))
    await herd.until(lambda: is_whole(herd, [session]))
    await asyncio.sleep(30)
    assert is_whole(herd, [session])


@in_herd(nodes=2)
async def test_what_a_node_had_leased_for_its_own_tasks_ends_with_it(herd: Herd) -> None:
    session = await herd.open(herd[1], owner=wire.Owner(pid=herd[1].node.pid))
    await herd[2].broker._inherit(await dead(herd, herd[1], "elsewhere"))
    (row,) = [row for row in herd.disk.rows(Session) if row.id == session.session_id]
    assert (row.state, row.end_reason) == (LeaseState.CLOSED, "owner_dead")


@in_herd(nodes=2)
async def test_a_node_that_was_stopped_between_two_steps_does_not_send_the_next(herd: Herd) -> None:
    session = await herd.open(herd[1])
    process = next(iter(herd[1].processes.values()))
    page = next(page for page in process.targets.values() if page.context in process.contexts.values())
    commands = herd[1].broker.commands

    def refuse() -> None:
        """As of its second step it has not beaten for a while."""
        if page.is_touched:
            raise errors.StoreUnavailable("paused", cause="paused")

    commands._performing._refuse_untrusted = refuse
    steps = wire.Steps(steps=[wire.Evaluate(expression=name) for name in ("first", "second")])
    view = await commands.run(ADA, session.tabs[0].tab_id, steps)
    assert [step["ok"] for step in view.result] == [True, False]
    assert view.result[1]["error"]["code"] == "store_unavailable"
