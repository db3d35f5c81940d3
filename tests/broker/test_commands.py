"""Commands: one outcome each, cancelled by whom they belong to, cut off without anything of them going on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.house import ADA, ADMIN, BOB, CYD, House, agent, in_house
from tests.broker.queueing import ACTIONS, WAIT, Sent, begin, failure_of, hold, labels, lock, tickets, view
from tests.sim.fakes import SimTab

from tabherd import errors, wire
from tabherd.actions.progress import Progress
from tabherd.broker.caller import Caller


def running_id(house: House, session: wire.SessionView) -> str:
    holder = view(house, session).holder
    assert holder is not None
    assert holder.command_id is not None
    return holder.command_id


def queued_ids(house: House, session: wire.SessionView) -> list[str]:
    return list(house.tab(session).waiting)


async def outcome(house: House, command_id: str, caller: Caller = ADA) -> str:
    return (await house.broker.commands.get(caller, command_id)).outcome


Perform = Callable[[SimTab, wire.AnyAction, Progress], Any]


def perform_with(house: House, perform: Perform) -> None:
    """Let this act on pages."""
    house.broker.commands._performing._perform = perform  # type: ignore[assignment]


# --- What is refused at the door --------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["Control+V", "Control+Shift+v", "Meta+v", "Shift+Insert"])
@in_house()
async def test_no_session_pastes_what_others_of_its_browser_have_copied(house: House, key: str) -> None:
    session = await house.open()
    tab_id = session.tabs[0].tab_id
    for request in (wire.Press(key=key), wire.Steps(steps=[wire.Press(key="a"), wire.Press(key=key)])):
        with pytest.raises(errors.PolicyDenied):
            await house.broker.commands.run(ADA, tab_id, request)


@in_house(source="attach", endpoint="http://127.0.0.1:9222")
async def test_no_session_pastes_what_others_of_an_attached_browser_have_selected(house: House) -> None:
    session = await house.open()
    clicks = (wire.Click(selector="a", button="middle"), wire.Dblclick(selector="a", button="middle"))
    for request in (*clicks, wire.Steps(steps=[wire.Press(key="a"), clicks[0]])):
        with pytest.raises(errors.PolicyDenied) as refused:
            await house.broker.commands.run(ADA, session.tabs[0].tab_id, request)
        assert refused.value.details["field"] == "button"


@in_house(isolation="browser")
async def test_a_session_with_a_browser_to_itself_may_paste(house: House) -> None:
    session = await house.open()
    pressed: list[str] = []

    async def perform(tab: SimTab, action: wire.AnyAction, progress: Progress) -> None:
        assert isinstance(action, wire.Press)
        pressed.append(action.key)

    perform_with(house, perform)
    await house.broker.commands.run(ADA, session.tabs[0].tab_id, wire.Press(key="Control+V"))
    assert pressed == ["Control+V"]


# --- One outcome ------------------------------------------------------------------------------------------------


@in_house()
async def test_an_outcome_can_be_read_while_the_command_waits_while_it_runs_and_afterwards(house: House) -> None:
    session = await house.open()
    first = await hold(house, session)
    second = await begin(house, session, "second-held", **WAIT)
    running, (queued,) = running_id(house, session), queued_ids(house, session)
    assert [await outcome(house, id) for id in (running, queued)] == ["running", "queued"]
    house.finish("first-held")
    assert (await first).command_id == running
    await house.until(lambda: house.page(session).active == "second-held")
    assert [await outcome(house, id) for id in (running, queued)] == ["completed", "running"]
    house.finish("second-held")
    assert (await second).command_id == queued
    assert await house.broker.commands.get(ADA, queued) == await second


@in_house()
async def test_every_end_has_its_outcome(house: House) -> None:
    session = await house.open()
    done = await house.act(session, "one")
    await hold(house, session)
    late = await failure_of(await begin(house, session, "late", timeout_ms=100, **WAIT))
    house.finish("first-held")
    await house.quiet()
    hung = await failure_of(await begin(house, session, "hang", timeout_ms=100))
    await house.quiet()
    dying = await hold(house, session, "dying-held")
    house.crash(session)
    lost = await failure_of(dying)
    await house.quiet()
    ends = {done.command_id: "completed"}
    ends |= {error.details["commandId"]: end for error, end in ((late, "timed_out"), (hung, "timed_out"))}
    ends[lost.details["commandId"]] = "outcome_unknown"
    assert {id: await outcome(house, id) for id in ends} == ends


@in_house()
async def test_a_command_of_another_agent_does_not_exist(house: House) -> None:
    session = await house.open()
    done = await house.act(session, "one")
    with pytest.raises(errors.CommandNotFound):
        await house.broker.commands.get(BOB, done.command_id)
    assert await outcome(house, done.command_id, ADMIN) == "completed"


@in_house()
async def test_a_command_that_nobody_saw_end_before_a_kill_has_an_unknown_outcome(house: House) -> None:
    session = await house.open()
    await hold(house, session)
    await begin(house, session, "waits", **WAIT)
    ids = [running_id(house, session), *queued_ids(house, session)]
    await house.kill()
    assert [await outcome(house, id) for id in ids] == ["outcome_unknown"] * 2


@in_house()
async def test_what_was_never_accepted_is_no_command(house: House) -> None:
    with pytest.raises(errors.CommandNotFound):
        await house.broker.commands.get(ADA, "cmd_nonsense")


# --- Timeouts ---------------------------------------------------------------------------------------------------


@in_house()
async def test_after_a_timeout_the_next_command_waits_until_the_page_is_another(house: House) -> None:
    session = await house.open()
    old = house.page(session)
    error = await failure_of(await begin(house, session, "hang", timeout_ms=100))
    assert (error.code, error.retryable) == ("command_timed_out", False)
    assert not error.details["effectsMayContinue"]
    seen = view(house, session)
    assert seen.holder is not None
    assert (seen.state, seen.holder.reason, seen.holder.controller_id) == ("quarantined", "quarantine", "ada")
    assert (await house.act(session, "next", **WAIT)).ok
    assert old.is_closed
    assert house.sent == [(old.target_id, "hang"), (house.page(session).target_id, "next")]
    assert view(house, session).generation == seen.generation + 1


@in_house()
async def test_a_page_that_is_to_be_kept_stays_and_the_outcome_says_that_effects_may_go_on(house: House) -> None:
    session = await house.open()
    kept = house.page(session)
    error = await failure_of(await begin(house, session, "hang", timeout_ms=100, on_timeout="keep"))
    assert error.code == "command_timed_out"
    assert error.details["effectsMayContinue"]
    await house.quiet()
    assert not kept.is_closed
    assert (view(house, session).state, view(house, session).generation) == ("ready", 1)
    kept.active = None
    assert (await house.act(session, "next")).ok
    assert house.sent[-1] == (kept.target_id, "next")


@in_house()
async def test_a_command_that_waited_for_an_element_fails_as_that_and_leaves_the_page(house: House) -> None:
    session = await house.open()

    async def never_comes(tab: SimTab, action: wire.AnyAction, progress: Progress) -> None:
        progress.waits("attached", target="#missing")
        await asyncio.get_running_loop().create_future()

    perform_with(house, never_comes)
    before = house.now
    error = await failure_of(await begin(house, session, "click", timeout_ms=400))
    assert house.now - before == pytest.approx(400, abs=1)
    assert (error.code, error.details["waitingFor"]) == ("element_not_found", "attached")
    seen = view(house, session)
    assert (seen.state, seen.generation, seen.holder) == ("ready", 1, None)


@in_house()
async def test_who_waits_behind_a_command_that_times_out_gets_its_turn(house: House) -> None:
    session = await house.open()
    hung = await begin(house, session, "hang", timeout_ms=100)
    waiting = [await begin(house, session, label, **WAIT) for label in ("next", "last")]
    await failure_of(hung)
    assert [(await one).ok for one in waiting] == [True, True]
    assert labels(house) == ["hang", "next", "last"]


# --- Cancelling -------------------------------------------------------------------------------------------------


@in_house()
async def test_a_command_that_waits_is_cancelled_without_having_been_sent(house: House) -> None:
    session = await house.open()
    first = await hold(house, session)
    waiting = await begin(house, session, "second", **WAIT)
    (queued,) = queued_ids(house, session)
    told = await house.broker.commands.cancel(ADA, queued)
    assert (told.outcome, (await waiting).outcome) == ("cancelled", "cancelled")
    house.finish("first-held")
    assert (await first).ok
    assert labels(house) == ["first-held"]
    assert await outcome(house, queued) == "cancelled"


@in_house()
async def test_of_a_command_that_is_cancelled_while_it_runs_nothing_goes_on(house: House) -> None:
    session = await house.open()
    old = house.page(session)
    running = await begin(house, session, "hang")
    await house.until(lambda: old.active)
    waiting = await begin(house, session, "next", **WAIT)
    told = await house.broker.commands.cancel(ADA, running_id(house, session))
    assert (told.outcome, (await running).outcome) == ("cancelled", "cancelled")
    assert (await waiting).ok
    assert old.is_closed


@in_house()
async def test_a_cancelled_command_that_had_not_touched_the_page_leaves_it(house: House) -> None:
    session = await house.open()
    page = house.page(session)

    async def looks(tab: SimTab, action: wire.AnyAction, progress: Progress) -> None:
        progress.waits("attached", target="#missing")
        await asyncio.get_running_loop().create_future()

    perform_with(house, looks)
    running = await begin(house, session, "click")
    await asyncio.sleep(1)
    await house.broker.commands.cancel(ADA, running_id(house, session))
    assert (await running).outcome == "cancelled"
    await house.quiet()
    assert (house.page(session), view(house, session).generation) == (page, 1)


@in_house()
async def test_only_who_sent_a_command_or_an_admin_may_cancel_it(house: House) -> None:
    session = await house.open(access="shared")
    mine = await hold(house, session)
    theirs = await begin(house, session, "theirs", BOB, **WAIT)
    running, (queued,) = running_id(house, session), queued_ids(house, session)
    for caller, command_id in ((CYD, running), (CYD, queued), (BOB, running), (ADA, queued)):
        with pytest.raises(errors.NotOwner):
            await house.broker.commands.cancel(caller, command_id)
    assert (await house.broker.commands.cancel(ADMIN, queued)).outcome == "cancelled"
    assert (await house.broker.commands.cancel(agent("ada", "ada-2"), running)).outcome == "cancelled"
    assert [(await one).outcome for one in (mine, theirs)] == ["cancelled"] * 2


@in_house()
async def test_a_command_in_a_private_session_cannot_be_found_by_others_to_be_cancelled(house: House) -> None:
    session = await house.open()
    await hold(house, session)
    with pytest.raises(errors.CommandNotFound):
        await house.broker.commands.cancel(BOB, running_id(house, session))
    assert house.page(session).active


@in_house()
async def test_to_cancel_what_has_ended_is_a_conflict_that_says_how_it_ended(house: House) -> None:
    session = await house.open()
    done = await house.act(session, "one")
    with pytest.raises(errors.StateConflict) as caught:
        await house.broker.commands.cancel(ADA, done.command_id)
    assert caught.value.details["outcome"] == "completed"


@in_house()
async def test_the_owner_hears_with_its_next_heartbeat_what_an_admin_cancelled_and_hears_it_once(house: House) -> None:
    session = await house.open()
    await hold(house, session)
    command_id = running_id(house, session)
    await house.broker.commands.cancel(ADMIN, command_id)
    assert (await house.beat(session)).cancel == [command_id]
    assert (await house.beat(session)).cancel == []


# --- Disconnects ------------------------------------------------------------------------------------------------


@in_house()
async def test_a_disconnect_withdraws_what_waits_and_ends_what_runs_with_its_page(house: House) -> None:
    session, beside = await house.open(access="shared"), await house.open(access="shared")
    old = house.page(session)
    running = await begin(house, session, "hang")
    await house.until(lambda: old.active)
    mine = await begin(house, session, "mine", **WAIT)
    theirs = await begin(house, session, "theirs", BOB, **WAIT)
    untouched = await hold(house, beside, "beside-held", CYD)
    house.broker.drop_controller("ada")
    assert [(await one).outcome for one in (running, mine)] == ["cancelled"] * 2
    assert (await theirs).ok
    assert old.is_closed
    assert labels(house) == ["hang", "beside-held", "theirs"]
    house.finish("beside-held")
    assert (await untouched).ok
    assert tickets(house) == {}


@in_house()
async def test_a_disconnect_touches_nothing_of_another_connection_of_the_same_agent(house: House) -> None:
    session = await house.open()
    running = await hold(house, session, caller=agent("ada", "ada-2"))
    house.broker.drop_controller("ada")
    house.finish("first-held")
    assert (await running).ok


@in_house()
async def test_a_caller_that_leaves_takes_its_running_command_along(house: House) -> None:
    session = await house.open()
    old = house.page(session)
    running = await begin(house, session, "hang")
    await house.until(lambda: old.active)
    command_id = running_id(house, session)
    running.cancel()
    assert (await house.act(session, "next", **WAIT)).ok
    assert old.is_closed
    assert await outcome(house, command_id) == "cancelled"


# --- Ownership --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: type(action).__name__)
@in_house()
async def test_for_another_agent_the_tab_does_not_exist_whatever_it_wants_there(
    house: House, action: wire.AnyAction | wire.Steps
) -> None:
    session = await house.open()
    with pytest.raises(errors.TabNotFound):
        await house.broker.commands.run(BOB, session.tabs[0].tab_id, action)
    assert (tickets(house), house.sent, house.page(session).is_closed) == ({}, [], False)


# --- Decided again after the wait -------------------------------------------------------------------------------


@in_house()
async def test_a_command_that_waited_is_not_sent_when_the_session_has_another_owner_by_then(house: House) -> None:
    session = await house.open()
    first = await hold(house, session)
    waiting = await begin(house, session, "late", **WAIT)
    await house.broker.sessions.take_over(ADMIN, session.session_id, "bob")
    assert [type(await failure_of(one)) for one in (first, waiting)] == [errors.LeaseLost] * 2
    assert labels(house) == ["first-held"]


@in_house()
async def test_a_command_whose_sender_leaves_in_the_moment_of_its_grant_is_not_sent(house: House) -> None:
    session = await house.open(access="shared")
    held = await (await lock(house, session))
    waiting = await begin(house, session, "late", BOB, **WAIT)
    # Granted here, but its task has not run since.
    house.broker.tab_locks.unlock(ADA, held.tab_id, held.ticket)
    house.broker.drop_controller("bob")
    assert (await waiting).outcome == "cancelled"
    assert labels(house) == []
    assert view(house, session).holder is None


@in_house()
async def test_a_command_that_is_granted_while_the_session_changes_hands_is_not_sent(house: House) -> None:
    session = await house.open(access="shared")
    held = await (await lock(house, session))
    waiting = await begin(house, session, "late", BOB, **WAIT)
    house.broker.tab_locks.unlock(ADA, held.tab_id, held.ticket)
    house.live(session).is_changing_hands = True
    assert isinstance(await failure_of(waiting), errors.LeaseLost)
    house.live(session).is_changing_hands = False
    assert labels(house) == []


@in_house()
async def test_a_command_with_an_old_fence_does_not_even_queue(house: House) -> None:
    session = await house.open()
    await hold(house, session)
    stale: Sent = await begin(house, session, "late", fence=session.fence - 1, **WAIT)
    assert isinstance(await failure_of(stale), errors.LeaseLost)
    assert view(house, session).waiters == []


@in_house()
async def test_a_stopping_node_takes_no_command(house: House) -> None:
    session = await house.open()
    house.operations.stop()
    assert isinstance(await failure_of(await begin(house, session, "late")), errors.Draining)
