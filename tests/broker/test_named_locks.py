"""Named locks: one holder at a time, in the order of arrival, for as long as its lease lasts."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.house import ADA, ADMIN, BOB, CYD, House, in_house
from tests.broker.locking import NAME, ask, drop, is_free, renew, rows, take, told

from tabherd import errors
from tabherd.broker import lock_grants
from tabherd.broker.caller import Caller
from tabherd.broker.lock_holds import LiveLock
from tabherd.broker.views import rfc3339

OWN_TICKET = "a-secret-of-my-own-making"
NO_LOCKS = Caller(agent_id="eve", scopes=frozenset({"browse"}), controller_id="eve")


# --- Holding ----------------------------------------------------------------------------------------------------


@in_house()
async def test_a_lock_says_whose_it_is_and_until_when(house: House) -> None:
    lock = await take(house, controller="worker", lease_ms=4_000)
    assert (lock.name, lock.holder, lock.agent_id, lock.acquired) == (NAME, "ada/worker", "ada", True)
    (row,) = rows(house)
    assert (lock.lease_ms, lock.expires_at) == (4_000, rfc3339(row.acquired_at + 4_000))
    assert told(house) == [("lock.acquired", None)]


@in_house()
async def test_a_lock_lasts_thirty_seconds_unless_told_otherwise(house: House) -> None:
    assert (await take(house)).lease_ms == 30_000


@in_house()
async def test_a_second_caller_is_refused_and_told_who_has_it(house: House) -> None:
    lock = await take(house)
    with pytest.raises(errors.LockTimedOut) as caught:
        await take(house, BOB)
    assert caught.value.details == {
        "name": NAME,
        "holder": "ada",
        "since": lock.acquired_at,
        "expiresAt": lock.expires_at,
        "position": 1,
    }


@in_house()
async def test_locks_of_different_names_do_not_meet(house: House) -> None:
    await take(house, ADA, "a")
    assert (await take(house, BOB, "b")).acquired


@in_house()
async def test_what_is_held_is_a_row_and_what_is_free_is_none(house: House) -> None:
    lock = await take(house)
    assert [row.id for row in rows(house)] == [NAME]
    await drop(house, lock)
    assert rows(house) == []
    assert is_free(house)


@in_house()
async def test_the_store_knows_no_ticket_that_could_be_used(house: House) -> None:
    lock = await take(house)
    assert lock.ticket not in str(rows(house))


@in_house()
async def test_each_holder_has_a_larger_fence_than_the_one_before(house: House) -> None:
    fences = []
    for _ in range(3):
        lock = await take(house)
        fences.append(lock.fence)
        await drop(house, lock)
    await house.restart()
    fences.append((await take(house)).fence)
    assert fences == sorted(set(fences))


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "\x00"], ids=["empty", "long", "line break", "nul"])
@in_house()
async def test_what_cannot_be_a_name_is_refused(house: House, name: str) -> None:
    with pytest.raises(errors.InvalidRequest):
        await take(house, name=name)


@in_house()
async def test_locks_need_their_scope(house: House) -> None:
    with pytest.raises(errors.Forbidden):
        await take(house, NO_LOCKS)


@in_house()
async def test_an_acquisition_whose_answer_was_lost_can_be_repeated(house: House) -> None:
    first = await take(house, ticket=OWN_TICKET, controller="me")
    again = await take(house, ticket=OWN_TICKET, controller="me", wait_ms=1_000)
    assert (again.fence, again.ticket) == (first.fence, OWN_TICKET)


# --- Waiting ----------------------------------------------------------------------------------------------------


@in_house()
async def test_who_waits_is_served_in_the_order_of_arrival(house: House) -> None:
    lock, order = await take(house), []
    waiting = [await ask(house, caller) for caller in (BOB, CYD, BOB, CYD)]
    for number, asking in enumerate(waiting):
        asking.add_done_callback(lambda _, number=number: order.append(number))
    for asking, caller in zip(waiting, (BOB, CYD, BOB, CYD), strict=True):
        await drop(house, lock, ADMIN)
        lock = await asking
        assert lock.agent_id == caller.agent_id
    assert order == [0, 1, 2, 3]


@in_house()
async def test_who_waited_in_vain_hears_so_and_leaves_no_trace(house: House) -> None:
    lock = await take(house)
    asking = await ask(house, wait_ms=500)
    with pytest.raises(errors.LockTimedOut):
        await asking
    await drop(house, lock)
    assert is_free(house)
    assert house.metric("lock_timeouts_total") == 1


@in_house()
async def test_who_left_while_it_waited_is_passed_over(house: House) -> None:
    lock = await take(house)
    gone, next_one = await ask(house, BOB), await ask(house, CYD)
    gone.cancel()
    await drop(house, lock)
    assert (await next_one).agent_id == "cyd"


@in_house()
async def test_who_leaves_while_its_grant_is_written_is_granted_nothing(house: House) -> None:
    lock = await take(house)
    gone, next_one = await ask(house, BOB), await ask(house, CYD)
    await drop(house, lock)
    await house.until(lambda: any(row.agent_id == "bob" for row in rows(house)))
    gone.cancel()
    got = await next_one
    assert (got.agent_id, [row.agent_id for row in rows(house)]) == ("cyd", ["cyd"])


@in_house()
async def test_nothing_is_held_when_the_only_waiter_leaves_while_its_grant_is_written(house: House) -> None:
    lock = await take(house)
    gone = await ask(house)
    await drop(house, lock)
    await house.until(lambda: any(row.agent_id == "bob" for row in rows(house)))
    gone.cancel()
    await house.until(lambda: is_free(house) and not rows(house))
    assert (await take(house, CYD)).acquired


@in_house()
async def test_what_a_caller_was_granted_as_it_left_is_given_to_the_next(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = await take(house)
    gone, next_one = await ask(house, BOB), await ask(house, CYD)
    tell = lock_grants.Waiter.tell

    def leave_when_told(waiter: lock_grants.Waiter, live: LiveLock | None) -> None:
        tell(waiter, live)
        if waiter.asked.agent_id == "bob":
            gone.cancel()

    monkeypatch.setattr(lock_grants.Waiter, "tell", leave_when_told)
    await drop(house, lock)
    assert await house.until(next_one.done) < 1_000
    assert ("lock.released", "caller_left") in told(house)


@in_house()
async def test_waiting_is_measured(house: House) -> None:
    lock = await take(house)
    asking = await ask(house)
    await asyncio.sleep(2)
    await drop(house, lock)
    await asking
    assert house.metric("lock_wait_seconds_sum") == pytest.approx(2, abs=0.5)
    assert house.metric("locks_held") == 1


# --- Skipping ---------------------------------------------------------------------------------------------------


@in_house()
async def test_who_skips_is_told_that_it_is_busy_without_an_error(house: House) -> None:
    await take(house)
    skipped = await take(house, BOB, skip=True)
    assert (skipped.acquired, skipped.holder, skipped.ticket, skipped.fence) == (False, "ada", None, None)
    assert house.metric("lock_skips_total") == 1


@in_house()
async def test_who_skips_has_it_when_it_is_free(house: House) -> None:
    assert (await take(house, skip=True)).acquired


@in_house()
async def test_who_skips_does_not_wait(house: House) -> None:
    with pytest.raises(errors.InvalidRequest):
        await take(house, skip=True, wait_ms=1)


@in_house()
async def test_repeated_skips_are_counted_until_one_succeeds(house: House) -> None:
    lock = await take(house)
    for _ in range(3):
        await take(house, BOB, skip=True)
    (seen,) = (await house.broker.named_locks.advisory(ADMIN)).advisory_locks
    # One of them is the backend's own.
    assert (seen.skips, seen.consecutive_skips) == (4, 3)
    await drop(house, lock)
    await take(house, BOB, skip=True)
    (seen,) = (await house.broker.named_locks.advisory(ADMIN)).advisory_locks
    assert (seen.skips, seen.consecutive_skips) == (4, 0)


# --- Re-entrancy and circles ------------------------------------------------------------------------------------


@in_house()
async def test_a_controller_that_has_the_lock_is_refused_at_once(house: House) -> None:
    await take(house, controller="me")
    with pytest.raises(errors.LockReentered):
        await take(house, controller="me", wait_ms=60_000)
    with pytest.raises(errors.LockReentered):
        await take(house, controller="me")


@in_house()
async def test_a_controller_that_waits_for_the_lock_is_refused_at_once(house: House) -> None:
    await take(house)
    await ask(house, controller="me")
    with pytest.raises(errors.LockReentered):
        await take(house, BOB, controller="me", wait_ms=60_000)


@in_house()
async def test_a_controller_that_skips_what_it_has_is_told_that_it_is_busy(house: House) -> None:
    await take(house, controller="me")
    assert not (await take(house, controller="me", skip=True)).acquired


@in_house()
async def test_the_same_controller_name_of_another_agent_is_somebody_else(house: House) -> None:
    lock = await take(house, ADA, controller="me")
    asking = await ask(house, BOB, controller="me")
    await drop(house, lock)
    assert (await asking).holder == "bob/me"


@in_house()
async def test_who_would_close_a_circle_is_refused_at_once(house: House) -> None:
    one, two = await take(house, ADA, "a", "1"), await take(house, BOB, "b", "2")
    waiting = await ask(house, ADA, "b", "1")
    with pytest.raises(errors.LockDeadlock) as caught:
        await take(house, BOB, "a", "2", wait_ms=60_000)
    assert caught.value.details["circle"] == ["a", "b"]
    await drop(house, two, BOB)
    assert (await waiting).acquired
    assert one.acquired


@in_house()
async def test_a_circle_of_three_is_found(house: House) -> None:
    for caller, name in ((ADA, "a"), (BOB, "b"), (CYD, "c")):
        await take(house, caller, name, "1")
    await ask(house, ADA, "b", "1")
    await ask(house, BOB, "c", "1")
    with pytest.raises(errors.LockDeadlock):
        await take(house, CYD, "a", "1", wait_ms=60_000)


# --- Leases -----------------------------------------------------------------------------------------------------


@in_house()
async def test_a_lock_that_is_not_renewed_is_free_when_its_lease_ends(house: House) -> None:
    lock = await take(house, lease_ms=1_000)
    asking = await ask(house)
    waited_ms = await house.until(asking.done)
    assert 990 <= waited_ms <= 1_100
    assert ("lock.expired", "expired") in told(house)
    with pytest.raises(errors.LockLost):
        await renew(house, lock)


@in_house()
async def test_a_lock_that_is_renewed_is_held_as_long_as_that_goes_on(house: House) -> None:
    lock = await take(house, lease_ms=1_000)
    for _ in range(5):
        await asyncio.sleep(0.8)
        assert (await renew(house, lock)).expires_at == rfc3339(rows(house)[0].expires_at)
    assert not is_free(house)


@in_house()
async def test_a_renewal_may_ask_for_another_lease(house: House) -> None:
    lock = await take(house, lease_ms=1_000)
    renewed = await renew(house, lock, lease_ms=9_000)
    assert (renewed.lease_ms, rows(house)[0].lease_ms) == (9_000, 9_000)


@in_house()
async def test_only_its_ticket_renews_and_frees_a_lock(house: House) -> None:
    await take(house)
    with pytest.raises(errors.LockLost):
        await house.broker.named_locks.renew(ADA, NAME, "guess")
    with pytest.raises(errors.LockNotFound):
        await house.broker.named_locks.release(ADA, NAME, "guess")


@in_house()
async def test_a_ticket_is_of_no_use_to_another_agent(house: House) -> None:
    lock = await take(house)
    with pytest.raises(errors.NotOwner):
        await renew(house, lock, BOB)
    with pytest.raises(errors.NotOwner):
        await drop(house, lock, BOB)


@in_house()
async def test_the_ticket_of_the_holder_before_touches_nothing(house: House) -> None:
    old = await take(house)
    await drop(house, old)
    await take(house, BOB)
    with pytest.raises(errors.LockNotFound):
        await drop(house, old)
    assert not is_free(house)
