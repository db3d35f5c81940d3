"""Tab locks: a gate held across several commands, for as long as its lease lasts and its holder is there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.house import ADA, ADMIN, BOB, CYD, House, agent, in_house
from tests.broker.queueing import ACTIONS, WAIT, begin, failure_of, hold, labels, lock, tickets, view

from tabherd import errors, wire
from tabherd.broker.events import Event
from tabherd.broker.views import rfc3339

# Another connection of the same agent.
ADA_2 = agent("ada", "ada-2")


def told(house: House, *types: str) -> list[Event]:
    """Events of these types since the last look."""
    found = []
    while (event := house.told.take()) is not None:
        if event.type in types:
            found.append(event)
    return found


def unlock(house: House, held: wire.TabLockView, caller: Any = ADA) -> None:
    house.broker.tab_locks.unlock(caller, held.tab_id, held.ticket)


async def locked(house: House, session: wire.SessionView, caller: Any = ADA, **fields: Any) -> wire.TabLockView:
    return await (await lock(house, session, caller, **fields))


# --- Holding ----------------------------------------------------------------------------------------------------


@in_house()
async def test_under_a_lock_its_holder_goes_on_and_others_are_refused_or_wait(house: House) -> None:
    session = await house.open(access="shared")
    held = await locked(house, session)
    waiting = await begin(house, session, "waits", BOB, **WAIT)
    assert isinstance(await failure_of(await begin(house, session, "refused", CYD)), errors.TabLocked)
    assert isinstance(await failure_of(await begin(house, session, "mine too", ADA_2)), errors.TabLocked)
    assert [(await house.act(session, label)).ok for label in ("one", "two")] == [True, True]
    assert labels(house) == ["one", "two"]
    unlock(house, held)
    assert (await waiting).ok


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: type(action).__name__)
@in_house()
async def test_a_lock_binds_every_kind_of_command(house: House, action: wire.AnyAction | wire.Steps) -> None:
    session = await house.open()
    await locked(house, session)
    with pytest.raises(errors.TabLocked) as caught:
        await house.broker.commands.run(ADA_2, session.tabs[0].tab_id, action)
    assert caught.value.details["holder"] == "ada"


@in_house()
async def test_a_lock_says_whose_it_is_and_when_it_ends(house: House) -> None:
    session = await house.open()
    held = await locked(house, session, lock_lease_ms=4_000)
    expires_at = rfc3339(house.now + 4_000)
    assert (held.lock_owner_controller_id, held.lock_lease_ms, held.lock_expires_at) == ("ada", 4_000, expires_at)
    holder = view(house, session).holder
    assert holder is not None
    assert (holder.reason, holder.controller_id, holder.expires_at) == ("tab_lock", "ada", expires_at)
    (event,) = told(house, "lock_acquired")
    assert event.fields["lockOwnerControllerId"] == "ada"
    assert (event.fields["lockLeaseMs"], event.fields["lockExpiresAt"]) == (4_000, expires_at)
    refusal = await failure_of(await begin(house, session, "refused", ADA_2))
    assert (refusal.retry_after_ms, refusal.details["lockExpiresAt"]) == (4_000, house.now + 4_000)


@in_house()
async def test_a_lock_lasts_thirty_seconds_unless_told_otherwise(house: House) -> None:
    session = await house.open()
    assert (await locked(house, session)).lock_lease_ms == 30_000


@in_house()
async def test_a_lock_lasts_a_minute_past_the_deadline_of_its_session_at_the_most(house: House) -> None:
    session = await house.open(deadline_ms=10_000)
    last = house.row(session).deadline_at + 60_000
    held = await locked(house, session, lock_lease_ms=3_600_000)
    assert held.lock_expires_at == rfc3339(last)
    await asyncio.sleep(5)
    renewed = await locked(house, session, lock_lease_ms=3_600_000, ticket=held.ticket)
    assert renewed.lock_expires_at == rfc3339(last)


@in_house()
async def test_a_lock_that_was_waited_for_ends_no_later(house: House) -> None:
    session = await house.open(deadline_ms=10_000)
    await hold(house, session)
    asked = await lock(house, session, ADA_2, lock_lease_ms=3_600_000, **WAIT)
    await asyncio.sleep(5)
    house.finish("first-held")
    assert (await asked).lock_expires_at == rfc3339(house.row(session).deadline_at + 60_000)


@in_house()
async def test_to_ask_for_a_lock_that_one_holds_is_a_conflict_that_names_it(house: House) -> None:
    session = await house.open()
    held = await locked(house, session)
    error = await failure_of(await lock(house, session))
    assert isinstance(error, errors.StateConflict)
    assert error.details["ticket"] == held.ticket


@in_house()
async def test_who_waits_for_a_lock_in_vain_hears_so_and_leaves_no_trace(house: House) -> None:
    session = await house.open()
    held = await locked(house, session)
    error = await failure_of(await lock(house, session, ADA_2, timeout_ms=500, **WAIT))
    assert isinstance(error, errors.QueueWaitTimedOut)
    assert (error.details["holder"], error.details["position"]) == ("ada", 1)
    assert tickets(house) == {"ada": 1}
    unlock(house, held)
    assert view(house, session).holder is None


# --- Renewing ---------------------------------------------------------------------------------------------------


@in_house()
async def test_its_ticket_starts_the_lease_anew_from_any_connection_of_its_agent(house: House) -> None:
    session = await house.open()
    held = await locked(house, session, lock_lease_ms=4_000)
    for _ in range(5):
        await asyncio.sleep(3)
        held = await locked(house, session, ADA_2, lock_lease_ms=4_000, ticket=held.ticket)
    assert held.lock_owner_controller_id == "ada"
    await asyncio.sleep(3)
    assert view(house, session).holder is not None
    assert len(told(house, "lock_renewed")) == 5


@in_house()
async def test_another_agent_can_neither_renew_a_lock_nor_give_it_back(house: House) -> None:
    session = await house.open(access="shared")
    held = await locked(house, session, lock_lease_ms=4_000)
    assert isinstance(await failure_of(await lock(house, session, BOB, ticket=held.ticket)), errors.NotOwner)
    with pytest.raises(errors.NotOwner):
        unlock(house, held, BOB)
    holder = view(house, session).holder
    assert holder is not None
    assert holder.expires_at == held.lock_expires_at


@in_house()
async def test_of_a_private_session_another_agent_cannot_even_see_the_lock(house: House) -> None:
    session = await house.open()
    held = await locked(house, session)
    assert isinstance(await failure_of(await lock(house, session, BOB)), errors.TabNotFound)
    with pytest.raises(errors.TabNotFound):
        unlock(house, held, BOB)


@in_house()
async def test_an_admin_may_give_any_lock_back(house: House) -> None:
    session = await house.open()
    held = await locked(house, session)
    unlock(house, held, ADMIN)
    assert view(house, session).holder is None
    assert tickets(house) == {}


@in_house()
async def test_a_ticket_opens_only_the_lock_that_it_is_of(house: House) -> None:
    session = await house.open()
    held = await locked(house, session)
    with pytest.raises(errors.LockNotFound):
        house.broker.tab_locks.unlock(ADA, held.tab_id, "lck_of_another")
    assert isinstance(await failure_of(await lock(house, session, ticket="lck_of_another")), errors.LockNotFound)
    assert view(house, session).holder is not None


# --- The end of a lock ------------------------------------------------------------------------------------------


@in_house()
async def test_a_lock_ends_by_its_timer_which_tells_and_lets_the_next_one_in(house: House) -> None:
    session = await house.open(access="shared")
    held = await locked(house, session, lock_lease_ms=2_000)
    ends_at = house.now + 2_000
    waiting = await begin(house, session, "next", BOB, **WAIT)
    await house.until(lambda: labels(house) == ["next"])
    assert house.now == pytest.approx(ends_at, abs=5)
    assert (await waiting).ok
    (event,) = told(house, "lock_expired")
    assert (event.fields["ticket"], event.fields["lockOwnerControllerId"]) == (held.ticket, "ada")
    assert tickets(house) == {}


@in_house()
async def test_a_lock_expires_although_nobody_looks(house: House) -> None:
    session = await house.open()
    held = await locked(house, session, lock_lease_ms=2_000)
    await asyncio.sleep(2.1)
    assert [event.type for event in told(house, "lock_expired")] == ["lock_expired"]
    assert isinstance(await failure_of(await lock(house, session, ticket=held.ticket)), errors.LockNotFound)
    with pytest.raises(errors.LockNotFound):
        unlock(house, held)


@in_house()
async def test_a_command_that_runs_when_the_lock_of_its_sender_expires_is_finished_first(house: House) -> None:
    session = await house.open(access="shared")
    await locked(house, session, lock_lease_ms=2_000)
    running = await hold(house, session)
    waiting = await begin(house, session, "next", BOB, **WAIT)
    await house.until(lambda: told(house, "lock_expired"))
    await asyncio.sleep(3)
    assert labels(house) == ["first-held"]
    house.finish("first-held")
    assert (await running).ok
    assert (await waiting).ok


@in_house()
async def test_a_lock_that_was_given_back_tells_nothing_when_its_lease_would_have_ended(house: House) -> None:
    session = await house.open()
    unlock(house, await locked(house, session, lock_lease_ms=2_000))
    again = await locked(house, session, lock_lease_ms=60_000)
    await asyncio.sleep(10)
    ends = told(house, "lock_released", "lock_expired")
    assert [(event.type, event.fields["reason"]) for event in ends] == [("lock_released", "released")]
    assert view(house, session).holder is not None
    unlock(house, again)


@in_house()
async def test_everybody_who_meets_the_lock_of_another_is_told_of(house: House) -> None:
    session = await house.open(access="shared")
    await locked(house, session, lock_lease_ms=9_000)
    await failure_of(await begin(house, session, "refused", BOB))
    await begin(house, session, "waits", CYD, **WAIT)
    await house.act(session, "mine")
    met = told(house, "lock_conflict")
    assert [event.fields["controllerId"] for event in met] == ["bob", "cyd"]
    assert {event.fields["lockOwnerControllerId"] for event in met} == {"ada"}
    assert {event.fields["lockLeaseMs"] for event in met} == {9_000}


@in_house()
async def test_whoever_is_refused_for_the_command_of_another_is_told_of_and_for_its_own_is_not(house: House) -> None:
    session = await house.open(access="shared")
    began = house.now
    await begin(house, session, "held", timeout_ms=9_000)
    for caller in (BOB, ADA):
        assert isinstance(await failure_of(await begin(house, session, "refused", caller)), errors.TabBusy)
    (met,) = told(house, "lock_conflict")
    assert (met.fields["controllerId"], met.fields["lockOwnerControllerId"]) == ("bob", "ada")
    assert (met.fields["lockLeaseMs"], met.fields["lockExpiresAt"]) == (9_000, rfc3339(began + 9_000))
    house.finish("held")


@in_house()
async def test_a_lock_ends_with_its_tab(house: House) -> None:
    session = await house.open()
    await house.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab())
    held = await locked(house, session)
    waiting = [await lock(house, session, ADA_2, **WAIT), await begin(house, session, "late", ADA_2, **WAIT)]
    await house.broker.commands.run(ADA, held.tab_id, wire.Close())
    assert [type(await failure_of(one)) for one in waiting] == [errors.TabNotFound] * 2
    assert [event.fields["reason"] for event in told(house, "lock_released")] == ["tab_closed"]
    assert tickets(house) == {}
    await asyncio.sleep(60)
    assert not told(house, "lock_expired")


@in_house()
async def test_a_lock_ends_with_its_session(house: House) -> None:
    session = await house.open()
    await locked(house, session)
    waiting = await lock(house, session, ADA_2, **WAIT)
    await house.release(session)
    assert isinstance(await failure_of(waiting), errors.LeaseLost)
    assert [event.fields["reason"] for event in told(house, "lock_released")] == ["tab_closed"]
    assert tickets(house) == {}


@in_house()
async def test_a_lock_does_not_pass_to_who_takes_the_session_over(house: House) -> None:
    session = await house.open()
    held = await locked(house, session)
    waiting = await lock(house, session, ADA_2, **WAIT)
    await house.broker.sessions.take_over(ADMIN, session.session_id, "bob")
    assert isinstance(await failure_of(waiting), errors.LeaseLost)
    assert (await house.act(session, "mine now", BOB)).ok
    assert [event.fields["reason"] for event in told(house, "lock_released")] == ["taken_over"]
    assert isinstance(await failure_of(await lock(house, session, ticket=held.ticket)), errors.LeaseLost)
    assert tickets(house) == {}


@in_house()
async def test_a_lock_outlives_the_death_of_the_page(house: House) -> None:
    session = await house.open(access="shared")
    await locked(house, session)
    house.crash(session)
    await house.quiet()
    assert isinstance(await failure_of(await begin(house, session, "refused", BOB)), errors.TabLocked)
    assert (await house.act(session, "mine")).ok


@in_house()
async def test_a_disconnect_releases_locks_and_withdraws_who_waits_for_one(house: House) -> None:
    mine, theirs = await house.open(access="shared"), await house.open(BOB, access="shared")
    await locked(house, mine)
    kept = await locked(house, theirs, BOB)
    asked = await lock(house, theirs, ADA, **WAIT)
    waiting = await begin(house, mine, "next", BOB, **WAIT)
    house.broker.drop_controller("ada")
    assert (await waiting).ok
    assert isinstance(await failure_of(asked), errors.LockNotFound)
    assert [event.fields["reason"] for event in told(house, "lock_released")] == ["disconnected"]
    assert tickets(house) == {"bob": 1}
    assert view(house, theirs).holder is not None
    unlock(house, kept, BOB)
    assert view(house, theirs).holder is None


@pytest.mark.parametrize("end", ["disconnect", "close"])
@in_house()
async def test_a_lock_that_ends_in_the_moment_of_its_grant_is_counted_once(house: House, end: str) -> None:
    session = await house.open(access="shared")
    first = await locked(house, session)
    asked = await lock(house, session, BOB, **WAIT)
    # Granted here, but who asked for it has not run since.
    unlock(house, first)
    if end == "disconnect":
        house.broker.drop_controller("bob")
    else:
        house.broker._registry.unbind_tab(house.tab(session), "closed")
        house.is_counted = False
    assert isinstance(await failure_of(asked), errors.LockNotFound | errors.TabNotFound)
    assert tickets(house) == {}
    assert house.live(session).row.id == session.session_id
    if end == "disconnect":
        assert view(house, session).holder is None


@in_house()
async def test_who_leaves_while_it_waits_for_a_lock_is_not_given_it(house: House) -> None:
    session = await house.open()
    held = await locked(house, session)
    asked = await lock(house, session, ADA_2, **WAIT)
    asked.cancel()
    await asyncio.wait([asked])
    unlock(house, held)
    assert view(house, session).holder is None
    assert tickets(house) == {}


@in_house()
async def test_a_lock_is_no_reason_to_take_the_session_for_idle(house: House) -> None:
    session = await house.open(deadline_ms=900_000)
    await locked(house, session, lock_lease_ms=600_000)
    await asyncio.sleep(599)
    assert house.is_bound(session)


# --- Refusals of the node ---------------------------------------------------------------------------------------


@in_house()
async def test_a_stopping_node_gives_no_lock(house: House) -> None:
    session = await house.open()
    house.operations.stop()
    assert isinstance(await failure_of(await lock(house, session)), errors.Draining)


@in_house()
async def test_an_old_fence_gets_no_lock(house: House) -> None:
    session = await house.open()
    assert isinstance(await failure_of(await lock(house, session, fence=session.fence - 1)), errors.LeaseLost)
    assert (await locked(house, session, fence=session.fence)).ticket
