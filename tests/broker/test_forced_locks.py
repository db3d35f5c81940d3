"""An operator frees a stuck lock: over for its holder at once, under a larger fence for the next, and told by whom."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.house import ADA, ADMIN, BOB, House, in_house
from tests.broker.locking import NAME, ask, drop, is_free, program_takes, renew, rows, take
from tests.broker.queueing import WAIT, begin, failure_of, hold, labels, lock, tickets, view

from tabherd import errors, wire
from tabherd.broker.events import Event


def ends(house: House, *types: str) -> list[Event]:
    """Events of these types since the last look."""
    found = []
    while (event := house.told.take()) is not None:
        if event.type in types:
            found.append(event)
    return found


async def trail(house: House, verb: str) -> list[tuple[str, str]]:
    page = await house.broker.auditor.list(ADMIN, agent_id=None, session_id=None, tab_id=None, limit=1_000, cursor="")
    return [(entry.agent_id, entry.detail) for entry in page.entries if entry.verb == verb]


async def locked(house: House, session: wire.SessionView) -> wire.TabLockView:
    return await (await lock(house, session))


# --- Tab locks --------------------------------------------------------------------------------------------------


@in_house()
async def test_a_tab_lock_that_is_forced_lets_the_next_one_in_and_its_ticket_is_of_no_use(house: House) -> None:
    session = await house.open(access="shared")
    held = await locked(house, session)
    waiting = await begin(house, session, "next", BOB, **WAIT)
    house.broker.tab_locks.force(ADMIN, held.tab_id)
    assert (await waiting).ok
    assert isinstance(await failure_of(await lock(house, session, ticket=held.ticket)), errors.LockNotFound)
    with pytest.raises(errors.LockNotFound):
        house.broker.tab_locks.unlock(ADA, held.tab_id, held.ticket)
    assert tickets(house) == {}


@in_house()
async def test_event_and_trail_say_who_forced_a_tab_lock(house: House) -> None:
    session = await house.open()
    held = await locked(house, session)
    house.broker.tab_locks.force(ADMIN, held.tab_id)
    (event,) = ends(house, "lock_released", "lock_expired")
    assert (event.fields["reason"], event.fields["by"], event.fields["agentId"]) == ("forced", "root", "ada")
    assert await trail(house, "lock_released") == [("root", "forced, held by ada")]


@in_house()
async def test_a_command_of_the_holder_that_runs_when_its_tab_lock_is_forced_is_finished_first(house: House) -> None:
    session = await house.open(access="shared")
    held = await locked(house, session)
    running = await hold(house, session)
    waiting = await begin(house, session, "next", BOB, **WAIT)
    house.broker.tab_locks.force(ADMIN, held.tab_id)
    await asyncio.sleep(3)
    assert labels(house) == ["first-held"]
    house.finish("first-held")
    assert (await running).ok
    assert (await waiting).ok


@in_house()
async def test_only_an_admin_forces_a_tab_lock(house: House) -> None:
    session = await house.open(access="shared")
    held = await locked(house, session)
    for caller in (ADA, BOB):
        with pytest.raises(errors.Forbidden):
            house.broker.tab_locks.force(caller, held.tab_id)
    assert view(house, session).holder is not None


@in_house()
async def test_a_tab_lock_that_is_another_controllers_by_now_is_not_forced(house: House) -> None:
    session = await house.open()
    held = await locked(house, session)
    with pytest.raises(errors.StateConflict):
        house.broker.tab_locks.force(ADMIN, held.tab_id, holder="bob")
    assert view(house, session).holder is not None
    house.broker.tab_locks.force(ADMIN, held.tab_id, holder="ada")
    assert view(house, session).holder is None


@in_house()
async def test_a_tab_lock_that_nobody_holds_cannot_be_forced(house: House) -> None:
    session = await house.open()
    with pytest.raises(errors.LockNotFound):
        house.broker.tab_locks.force(ADMIN, session.tabs[0].tab_id)


# --- Named locks ------------------------------------------------------------------------------------------------


@in_house()
async def test_a_named_lock_that_is_forced_is_lost_to_its_holder_and_the_next_has_a_larger_fence(house: House) -> None:
    held = await take(house)
    asking = await ask(house)
    await house.broker.named_locks.force(ADMIN, NAME)
    assert (await asking).fence > held.fence
    with pytest.raises(errors.LockLost):
        await renew(house, held)
    with pytest.raises(errors.LockNotFound):
        await drop(house, held)


@in_house()
async def test_a_named_lock_that_is_forced_leaves_neither_row_nor_hold(house: House) -> None:
    await take(house)
    await house.broker.named_locks.force(ADMIN, NAME)
    assert rows(house) == []
    assert is_free(house)


@in_house()
async def test_event_and_trail_say_who_forced_a_named_lock(house: House) -> None:
    await take(house, controller="worker")
    await house.broker.named_locks.force(ADMIN, NAME)
    (event,) = ends(house, "lock.released", "lock.lost", "lock.expired")
    assert (event.fields["reason"], event.fields["by"], event.fields["agentId"]) == ("forced", "root", "ada")
    assert await trail(house, "lock.released") == [("root", f"{NAME}: forced, held by ada/worker")]


@in_house()
async def test_only_an_admin_forces_a_named_lock(house: House) -> None:
    await take(house)
    for caller in (ADA, BOB):
        with pytest.raises(errors.Forbidden):
            await house.broker.named_locks.force(caller, NAME)
    assert not is_free(house)


@in_house()
async def test_a_named_lock_that_is_somebody_elses_by_now_is_not_forced(house: House) -> None:
    first = await take(house)
    await drop(house, first)
    second = await take(house, BOB)
    with pytest.raises(errors.StateConflict) as refused:
        await house.broker.named_locks.force(ADMIN, NAME, fence=first.fence)
    assert refused.value.details["holder"] == "bob"
    await house.broker.named_locks.force(ADMIN, NAME, fence=second.fence)
    assert is_free(house)


@in_house()
async def test_what_a_program_outside_holds_cannot_be_forced(house: House) -> None:
    await program_takes(house)
    with pytest.raises(errors.LockNotFound):
        await house.broker.named_locks.force(ADMIN, NAME)
    assert not is_free(house)


@in_house()
async def test_a_named_lock_is_not_forced_while_the_store_is_away(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = await take(house)

    async def refuse(*_: Any) -> None:
        raise errors.StoreUnavailable("It is away.")

    with monkeypatch.context() as away:
        away.setattr(house.store, "apply", refuse)
        with pytest.raises(errors.StoreUnavailable):
            await house.broker.named_locks.force(ADMIN, NAME)
    assert (await renew(house, held)).fence == held.fence


# --- Commands ---------------------------------------------------------------------------------------------------


@in_house()
async def test_the_trail_says_who_cancelled_the_command_of_another(house: House) -> None:
    session = await house.open()
    await hold(house, session)
    for sender in ("theirs", "own"):
        waiting = await begin(house, session, sender, **WAIT)
        (queued,) = house.tab(session).waiting
        await house.broker.commands.cancel(ADMIN if sender == "theirs" else ADA, queued)
        assert (await waiting).outcome == "cancelled"
    assert await trail(house, "cancel") == [("root", "evaluate of ada")]
