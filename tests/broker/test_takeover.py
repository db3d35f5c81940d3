"""An admin gives a session to another agent: nothing of the old holder reaches it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.broker.house import ADA, ADMIN, BOB, House, Socket, agent, in_house
from tests.broker.queueing import labels

from tabherd import errors, wire
from tabherd.core.lifecycle import TabState


async def take_over(house: House, session: wire.SessionView, agent_id: str = "bob") -> wire.SessionView:
    return await house.broker.sessions.take_over(ADMIN, session.session_id, agent_id)


Verb = Callable[[House, wire.SessionView], Awaitable[Any]]
VERBS: dict[str, Verb] = {
    "get": lambda house, session: house.broker.sessions.get(ADA, session.session_id),
    "heartbeat": lambda house, session: house.beat(session),
    "release": lambda house, session: house.release(session),
    "command": lambda house, session: house.act(session, "late"),
    "command with the old fence": lambda house, session: house.act(session, "late", fence=session.fence),
    "open a tab": lambda house, session: house.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab()),
    "list its tabs": lambda house, session: house.broker.tabs.of_session(ADA, session.session_id),
    "read state": lambda house, session: house.broker.sessions.state(ADA, session.session_id),
    "write state": lambda house, session: house.broker.sessions.put_state(
        ADA, session.session_id, wire.StorageState(cookies=[{"name": "ada"}])
    ),
    "hand off": lambda house, session: house.broker.tabs.hand_off(ADA, session.tabs[0].tab_id, None),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
@in_house()
async def test_the_former_agent_hears_lease_lost_on_every_verb(house: House, verb: Verb) -> None:
    session = await house.open()
    taken = await take_over(house, session)
    row = house.row(session)
    with pytest.raises(errors.LeaseLost):
        await verb(house, session)
    assert house.sent == []
    assert house.page(taken).context.cookies == []
    assert house.row(session) == row


@in_house()
async def test_who_never_had_it_hears_that_there_is_no_such_session(house: House) -> None:
    session = await house.open()
    await take_over(house, session)
    with pytest.raises(errors.SessionNotFound):
        await house.broker.sessions.get(agent("eve"), session.session_id)


@in_house()
async def test_only_an_admin_may(house: House) -> None:
    session = await house.open()
    with pytest.raises(errors.Forbidden):
        await house.broker.sessions.take_over(BOB, session.session_id, "bob")
    assert (await house.act(session, fence=session.fence)).ok


@in_house()
async def test_the_new_owner_has_the_same_page_if_nothing_was_at_work_in_it(house: House) -> None:
    session = await house.open()
    await house.goto(session, "https://shop.test/cart")
    page = house.page(session)
    taken = await take_over(house, session)
    assert house.page(taken) is page
    assert taken.tabs[0].url == "https://shop.test/cart"
    assert (await house.act(taken, caller=BOB, fence=taken.fence)).ok


@in_house()
async def test_the_old_holders_sockets_are_detached_before_the_new_one_can_begin(house: House) -> None:
    session, socket = await house.open(), Socket()
    live = house.live(session)
    await house.broker.sessions.connect(live, "socket-1", socket)

    def look() -> bool:
        assert live.row.agent_id == "ada" or socket.detached, "it is bob's while ada's socket still reaches the page"
        return False

    house.loop.watches.append(look)
    taken = await take_over(house, session)
    house.loop.watches.clear()
    assert [error.code for error in socket.detached] == ["lease_lost"]
    assert live.connections == {}
    # The old socket's close, which comes late, says nothing about the new owner.
    house.broker.sessions.disconnect(live, "socket-1")
    await asyncio.sleep(60)
    assert (await house.act(taken, caller=BOB)).ok


@in_house()
async def test_a_socket_that_the_old_holder_opens_meanwhile_does_not_bind_the_new_one(house: House) -> None:
    session, socket = await house.open(), Socket()
    taking = asyncio.ensure_future(take_over(house, session))
    await house.until(lambda: house.live(session).is_changing_hands)
    with pytest.raises(errors.LeaseLost):
        await house.broker.sessions.connect(house.live(session), "late", socket)
    taken = await taking
    assert len(socket.detached) == 1
    await asyncio.sleep(60)
    assert (await house.act(taken, caller=BOB)).ok


@in_house()
async def test_what_runs_is_cut_off_what_waits_is_never_sent_and_the_page_is_replaced(house: House) -> None:
    session = await house.open()
    running = asyncio.ensure_future(house.act(session, "running-held"))
    await house.until(lambda: house.page(session).active)
    waiting = asyncio.ensure_future(house.act(session, "waiting", wait_policy="wait_with_timeout"))
    await asyncio.sleep(1)
    old = house.page(session)
    taken = await take_over(house, session)
    for command in (running, waiting):
        with pytest.raises(errors.LeaseLost):
            await command
    assert (await house.act(taken, "bobs", BOB, wait_policy="wait_with_timeout")).ok
    assert old.is_closed, "the command of the old holder could still be at work"
    assert [label for _, label in house.sent] == ["running-held", "bobs"]
    assert house.tab(taken).row.generation == 2


@in_house()
async def test_a_command_that_hangs_does_not_outlive_the_takeover_either(house: House) -> None:
    session = await house.open()
    running = asyncio.ensure_future(house.act(session, "hang"))
    await house.until(lambda: house.page(session).active)
    old = house.page(session)
    taken = await take_over(house, session)
    with pytest.raises(errors.LeaseLost):
        await running
    await house.act(taken, "bobs", BOB, wait_policy="wait_with_timeout")
    assert old.is_closed


@in_house()
async def test_while_it_changes_hands_nobody_is_let_in(house: House) -> None:
    session = await house.open()
    taking = asyncio.ensure_future(take_over(house, session))
    await house.until(lambda: house.live(session).is_changing_hands)
    for caller in (ADA, ADMIN):
        with pytest.raises(errors.LeaseLost):
            await house.act(session, caller=caller)
    taken = await taking
    assert (await house.act(taken, caller=BOB)).ok


@in_house(max_active_per_agent=1)
async def test_counts_move_with_the_owner(house: House) -> None:
    session = await house.open()
    await take_over(house, session)
    await house.open(wait_ms=0)
    with pytest.raises(errors.Capacity) as refused:
        await house.open(BOB, wait_ms=0)
    assert refused.value.details["reason"] == "agent_cap"


@in_house(max_active_per_agent=1)
async def test_an_agent_at_its_cap_is_given_nothing_and_the_holder_keeps_it(house: House) -> None:
    session = await house.open()
    await house.open(BOB)
    with pytest.raises(errors.Capacity) as refused:
        await take_over(house, session)
    assert {"reason": "agent_cap", "count": 1, "cap": 1}.items() <= refused.value.details.items()
    assert refused.value.retry_after_ms
    assert (await house.act(session, fence=session.fence)).ok


@in_house(max_active_per_agent=1)
async def test_to_its_own_agent_it_has_a_new_fence_and_trips_no_cap(house: House) -> None:
    session = await house.open()
    taken = await take_over(house, session, "ada")
    assert taken.fence > session.fence
    with pytest.raises(errors.LeaseLost):
        await house.act(session, fence=session.fence)
    assert (await house.act(session, fence=taken.fence)).ok


@in_house(max_active_per_agent=2)
async def test_of_many_takeovers_at_once_each_has_its_own_fence_and_no_cap_is_passed(house: House) -> None:
    sessions = [await house.open(agent(name)) for name in ("a", "b", "c", "d")]
    answers = await asyncio.gather(*(take_over(house, session) for session in sessions), return_exceptions=True)
    taken = [answer for answer in answers if isinstance(answer, wire.SessionView)]
    refused = [answer for answer in answers if isinstance(answer, errors.Capacity)]
    assert (len(taken), len(refused)) == (2, 2)
    assert len({view.fence for view in taken}) == 2


@in_house()
async def test_evidence_of_the_old_owners_life_or_death_does_not_count_for_the_new_one(house: House) -> None:
    pid = house.new_pid()
    session = await house.open(owner=wire.Owner(pid=pid))
    taken = await take_over(house, session)
    house.end_process(pid)
    await asyncio.sleep(60)
    assert (await house.act(taken, caller=BOB)).ok
    await asyncio.sleep(200)
    assert house.row(session).end_reason == "idle"


@in_house()
async def test_commands_that_were_cancelled_for_the_old_owner_are_not_told_to_the_new_one(house: House) -> None:
    session = await house.open()
    house.live(session).cancelled.append("cmd_1")
    taken = await take_over(house, session)
    assert (await house.beat(taken, BOB)).cancel == []


@in_house()
async def test_a_session_that_is_being_recovered_can_be_taken_over(house: House) -> None:
    session = await house.open()
    house.process(session).die("killed")
    await house.until(lambda: house.live(session).browser is None)
    taken = await take_over(house, session)
    await house.until(lambda: house.live(session).browser is not None)
    assert house.row(session).fence == taken.fence
    assert house.row(session).agent_id == "bob"
    assert (await house.act(taken, caller=BOB, fence=taken.fence)).ok


@in_house()
async def test_the_takeover_is_told_with_both_agents(house: House) -> None:
    session = await house.open()
    list(house.news())
    taken = await take_over(house, session)
    event = house.told.take()
    assert event is not None
    assert (event.type, event.fields["agentId"], event.fields["formerAgentId"]) == ("session.taken_over", "bob", "ada")
    assert event.fields["fence"] == taken.fence


@in_house()
async def test_the_new_agent_has_its_whole_time_from_when_it_is_its(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await house.open()
    change = house.broker.sessions._change_owner

    async def late(*args: Any) -> Any:
        row = await change(*args)
        # The store takes so long to answer.
        await asyncio.sleep(100)
        return row

    monkeypatch.setattr(house.broker.sessions, "_change_owner", late)
    taken = await take_over(house, session)
    live = house.broker.registry.session(taken.session_id)
    assert live is not None
    assert live.seen_at == house.broker.clock()


def begin_steps(house: House, session: wire.SessionView, *names: str) -> asyncio.Future[wire.CommandView]:
    steps = wire.Steps(steps=[wire.Evaluate(expression=name) for name in names])
    return asyncio.ensure_future(house.broker.commands.run(ADA, session.tabs[0].tab_id, steps))


@in_house()
async def test_no_step_of_the_old_holder_begins_once_it_is_on_disk_however_late_that_is_heard(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await house.open()
    change = house.broker.sessions._change_owner

    async def late(*args: Any) -> Any:
        row = await change(*args)
        await asyncio.sleep(5)
        return row

    monkeypatch.setattr(house.broker.sessions, "_change_owner", late)
    steps = begin_steps(house, session, "1-held", "2")
    await house.until(lambda: house.page(session).active)
    taking = asyncio.ensure_future(take_over(house, session))
    await house.until(lambda: house.row(session).agent_id == "bob")
    house.finish("1-held")
    taken = await taking
    with pytest.raises(errors.LeaseLost) as lost:
        await steps
    assert [step["result"] for step in lost.value.details["steps"]] == ["1-held"]
    assert (await house.act(taken, "bobs", BOB, wait_policy="wait_with_timeout")).ok
    assert labels(house) == ["1-held", "bobs"]


@in_house()
async def test_steps_go_on_when_the_takeover_is_refused(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await house.open()

    async def refuse(*args: Any) -> Any:
        await asyncio.sleep(5)
        raise errors.Capacity("Bob has enough.")

    monkeypatch.setattr(house.broker.sessions, "_change_owner", refuse)
    steps = begin_steps(house, session, "1-held", "2")
    await house.until(lambda: house.page(session).active)
    taking = asyncio.ensure_future(take_over(house, session))
    await house.until(lambda: house.live(session).is_changing_hands)
    house.finish("1-held")
    await asyncio.sleep(1)
    assert labels(house) == ["1-held"]
    with pytest.raises(errors.Capacity):
        await taking
    assert (await steps).ok
    assert labels(house) == ["1-held", "2"]


# What its holder may ask of a session that takes its turn behind a takeover, and would change or show it.
LATE_VERBS: dict[str, Callable[[House, wire.SessionView], Awaitable[Any]]] = {
    "put state": lambda house, session: house.broker.sessions.put_state(
        ADA, session.session_id, wire.StorageState(cookies=[{"name": "ada"}])
    ),
    "read state": lambda house, session: house.broker.sessions.state(ADA, session.session_id),
    "open a tab": lambda house, session: house.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab()),
    "close a tab": lambda house, session: house.broker.commands.run(
        ADA, session.tabs[0].tab_id, wire.Close(fence=session.fence)
    ),
    "hand off": lambda house, session: house.broker.tabs.hand_off(ADA, session.tabs[0].tab_id, None),
}


@pytest.mark.parametrize("verb", LATE_VERBS)
@in_house()
async def test_what_the_old_holder_asked_for_behind_a_takeover_is_not_done_to_the_new_ones_session(
    house: House, verb: str
) -> None:
    session = await house.open()
    live = house.live(session)
    async with live.mutex:
        taking = asyncio.ensure_future(take_over(house, session))
        await asyncio.sleep(0.5)
        late = asyncio.ensure_future(LATE_VERBS[verb](house, session))
        await asyncio.sleep(0.5)
    await taking
    with pytest.raises(errors.LeaseLost):
        await late
    await house.quiet()
    assert house.row(session).agent_id == "bob"
    assert [(tab.row.id, tab.row.state) for tab in live.tabs.values()] == [(session.tabs[0].tab_id, TabState.READY)]
    assert [page.context.cookies for page in house.pages] == [[]]
