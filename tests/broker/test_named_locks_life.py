"""Named locks and everything around them that lives and dies: processes, connections, programs, store and server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from tests.broker.house import ADA, ADMIN, BOB, CYD, House, in_house
from tests.broker.lock_backend import PROGRAM
from tests.broker.locking import NAME, ask, drop, is_free, program_takes, renew, rows, take, told

from tabherd import errors, wire
from tabherd.locks.base import LockStoreUnavailable, key_of, named_key

# --- Processes and connections ----------------------------------------------------------------------------------


@in_house()
async def test_a_lock_is_free_when_the_process_dies_that_it_was_bound_to(house: House) -> None:
    pid = house.new_pid()
    lock = await take(house, owner=wire.Owner(pid=pid), lease_ms=3_600_000)
    asking = await ask(house)
    house.end_process(pid)
    assert (await asking).acquired
    assert ("lock.released", "owner_dead") in told(house)
    with pytest.raises(errors.LockLost):
        await renew(house, lock)


@in_house()
async def test_a_lock_of_a_connection_has_no_lease_and_ends_with_it(house: House) -> None:
    locks = house.broker.named_locks
    lock = await locks.acquire(ADA, NAME, wire.AcquireLock(), controller="1", connection_id="ws_1")
    other = await locks.acquire(BOB, "other", wire.AcquireLock(), controller="2", connection_id="ws_2")
    assert (lock.lease_ms, lock.expires_at) == (None, None)
    await asyncio.sleep(1_000)
    locks.drop_connection("ws_1")
    await house.quiet()
    assert is_free(house)
    assert not is_free(house, other.name)


# --- Other programs ---------------------------------------------------------------------------------------------


@in_house()
async def test_what_another_program_holds_is_busy_here(house: House) -> None:
    hold = await program_takes(house)
    with pytest.raises(errors.LockTimedOut):
        await take(house)
    assert not (await take(house, skip=True)).acquired
    await hold.release()
    assert (await take(house)).acquired


@in_house()
async def test_what_a_caller_holds_is_busy_for_other_programs(house: House) -> None:
    await take(house)
    assert await house.locks.try_acquire(named_key(NAME), PROGRAM) is None


@in_house()
async def test_who_waits_here_gets_what_another_program_gives_back(house: House) -> None:
    hold = await program_takes(house)
    asking = await ask(house)
    await hold.release()
    assert (await asking).acquired


@in_house()
async def test_the_line_keeps_its_place_in_the_backend_when_its_first_one_leaves(house: House) -> None:
    hold = await program_takes(house)
    gone, stays = await ask(house, BOB), await ask(house, CYD)
    gone.cancel()
    await hold.release()
    assert (await stays).agent_id == "cyd"
    assert len(house.locks.patience_s) == 1


@in_house()
async def test_the_backend_is_asked_no_more_when_nobody_waits(house: House) -> None:
    await program_takes(house)
    asking = await ask(house)
    await house.until(lambda: bool(house.locks.patience_s))
    asking.cancel()
    assert await house.until(lambda: not house.broker.named_locks._grants.competing) < 1_000


@in_house()
async def test_a_lock_that_the_backend_lost_is_lost_to_its_holder(house: House) -> None:
    lock = await take(house)
    house.locks.holds[named_key(NAME)].lose()
    with pytest.raises(errors.LockLost):
        await renew(house, lock)
    assert ("lock.lost", "backend_lost") in told(house)
    await house.quiet()
    assert (await take(house, BOB)).fence > lock.fence


# --- Trouble ----------------------------------------------------------------------------------------------------


@in_house()
async def test_a_backend_that_is_away_is_an_error_and_not_busy(house: House) -> None:
    house.locks.broken = LockStoreUnavailable("It is away.")
    with pytest.raises(errors.StoreUnavailable):
        await take(house, skip=True)


@in_house()
async def test_who_waits_outlasts_a_backend_that_is_away(house: House) -> None:
    house.locks.broken = LockStoreUnavailable("It is away.")
    asking = await ask(house)
    await asyncio.sleep(5)
    house.locks.broken = None
    assert (await asking).acquired


@in_house()
async def test_who_waited_in_vain_for_a_backend_hears_that_it_was_away(house: House) -> None:
    house.locks.broken = LockStoreUnavailable("It is away.")
    asking = await ask(house, wait_ms=3_000)
    with pytest.raises(errors.StoreUnavailable):
        await asking


@in_house()
async def test_a_holder_keeps_its_lock_while_the_store_is_away(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = await take(house, lease_ms=2_000)
    with monkeypatch.context() as away:
        away.setattr(house.store, "apply", _refuse)
        for _ in range(5):
            await asyncio.sleep(1)
            with pytest.raises(errors.StoreUnavailable):
                await renew(house, lock)
    assert (await renew(house, lock)).acquired


@in_house()
async def test_nobody_gets_a_lock_before_its_end_is_written(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await take(house, lease_ms=1_000)
    asking = await ask(house)
    with monkeypatch.context() as away:
        away.setattr(house.store, "apply", _refuse)
        await asyncio.sleep(5)
        assert not asking.done()
    assert (await asking).acquired


async def _refuse(*_: Any) -> None:
    raise errors.StoreUnavailable("It is away.")


@in_house()
async def test_while_the_server_drains_holders_keep_their_locks_and_nobody_gets_one(house: House) -> None:
    lock = await take(house)
    asking = await ask(house)
    house.operations.drain(ADMIN)
    with pytest.raises(errors.Draining):
        await asking
    with pytest.raises(errors.Draining):
        await take(house, BOB, "another")
    assert (await renew(house, lock)).acquired
    await drop(house, lock)


# --- Bounds -----------------------------------------------------------------------------------------------------


def limited(house: House, **limits: int) -> None:
    house.config = house.broker.settings.current
    house.broker.settings.apply(replace(house.config, locks=replace(house.config.locks, **limits)))


@in_house()
async def test_a_line_that_is_full_takes_nobody(house: House) -> None:
    limited(house, waiters_per_name=1)
    await take(house)
    await ask(house)
    with pytest.raises(errors.QueueFull) as caught:
        await take(house, CYD, wait_ms=1_000)
    assert (caught.value.status, caught.value.retry_after_ms) == (429, 1_000)


@in_house()
async def test_all_lines_together_are_bounded(house: House) -> None:
    limited(house, waiters_max=1)
    await take(house, name="a")
    await take(house, name="b")
    await ask(house, name="a")
    with pytest.raises(errors.QueueFull):
        await take(house, CYD, name="b", wait_ms=1_000)


@in_house()
async def test_only_so_many_locks_are_held_at_once(house: House) -> None:
    limited(house, held_max=1)
    lock = await take(house, name="a")
    with pytest.raises(errors.Capacity):
        await take(house, name="b")
    await drop(house, lock)
    assert (await take(house, name="b")).acquired


# --- Lives of the server ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["kill", "restart"])
@in_house()
async def test_a_holder_keeps_its_lock_through_a_restart(house: House, how: str) -> None:
    lock = await take(house, controller="me")
    await getattr(house, how)()
    with pytest.raises(errors.LockTimedOut):
        await take(house, BOB)
    with pytest.raises(errors.LockReentered):
        await take(house, controller="me")
    assert (await renew(house, lock)).fence == lock.fence
    await drop(house, lock)
    assert (await take(house, BOB)).fence > lock.fence


@in_house()
async def test_a_lock_survives_two_restarts(house: House) -> None:
    lock = await take(house)
    await house.kill()
    await house.kill()
    assert (await renew(house, lock)).fence == lock.fence


@in_house()
async def test_a_lock_whose_lease_ended_meanwhile_is_free_after_a_restart(house: House) -> None:
    await take(house, lease_ms=1_000)
    await house.broker.stop()
    await asyncio.sleep(2)
    # Whoever has it by now took it from nobody.
    await program_takes(house)
    await house.kill()
    assert rows(house) == []
    assert ("lock.expired", "expired") in told(house)


@in_house()
async def test_the_lease_goes_on_through_a_restart(house: House) -> None:
    await take(house, lease_ms=5_000)
    await house.kill()
    assert 4_000 < await house.until(lambda: is_free(house)) <= 5_100


@in_house()
async def test_a_lock_that_somebody_else_had_meanwhile_is_lost(house: House) -> None:
    lock = await take(house)
    await house.broker.stop()
    await (await program_takes(house)).release()
    await house.kill()
    with pytest.raises(errors.LockLost):
        await renew(house, lock)
    assert is_free(house)
    assert ("lock.lost", "taken_meanwhile") in told(house)


@in_house()
async def test_a_lock_that_somebody_else_has_by_now_is_lost(house: House) -> None:
    lock = await take(house)
    await house.broker.stop()
    hold = await program_takes(house)
    house.locks.die = lambda: None  # type: ignore[method-assign]
    await house.kill()
    with pytest.raises(errors.LockLost):
        await renew(house, lock)
    await hold.release()
    assert (await take(house, BOB)).acquired


@in_house()
async def test_a_lock_of_a_connection_does_not_outlive_the_server(house: House) -> None:
    await house.broker.named_locks.acquire(ADA, NAME, wire.AcquireLock(), controller="1", connection_id="ws_1")
    await house.kill()
    assert is_free(house)
    assert rows(house) == []


@in_house()
async def test_a_lock_whose_process_died_while_the_server_was_down_is_free(house: House) -> None:
    pid = house.new_pid()
    await take(house, owner=wire.Owner(pid=pid), lease_ms=3_600_000)
    await house.broker.stop()
    house.pids.discard(pid)
    await house.kill()
    assert await house.until(lambda: is_free(house)) < 1_000


# --- Looking ----------------------------------------------------------------------------------------------------


@in_house()
async def test_everybody_sees_names_and_times_but_not_the_holders_of_others(house: House) -> None:
    lock = await take(house)
    await ask(house)
    seen = {caller.agent_id: (await house.broker.named_locks.list(caller)).locks[0] for caller in (ADA, BOB, ADMIN)}
    assert {view.acquired_at for view in seen.values()} == {lock.acquired_at}
    assert {view.waiters for view in seen.values()} == {1}
    assert (seen["ada"].holder, seen["root"].holder, seen["bob"].holder) == ("ada", "ada", None)
    assert (seen["bob"].agent_id, seen["bob"].fence) == (None, None)


@in_house()
async def test_monitoring_shows_the_locks_of_every_program(house: House) -> None:
    await take(house, name="ours", controller="me")
    await program_takes(house, "theirs")
    await asyncio.sleep(3)
    page = await house.broker.named_locks.advisory(ADMIN)
    ours, theirs = page.advisory_locks
    assert page.count == 2
    assert (ours.label, ours.holder, ours.held) == ("ours", "ada/me", True)
    assert (theirs.label, theirs.holder, theirs.pid, theirs.host) == ("theirs", "a script", 77, "elsewhere")
    assert theirs.held_ms == pytest.approx(3_000, abs=100)


@in_house()
async def test_monitoring_tells_two_numbers_from_a_name_and_begins_with_what_is_held_longest(house: House) -> None:
    await program_takes(house, "z")
    await asyncio.sleep(1)
    assert await house.locks.try_acquire(key_of(1, -42), PROGRAM) is not None
    await asyncio.sleep(1)
    await take(house, name="1:-42")
    await asyncio.sleep(1)
    await program_takes(house, "a")
    page = await house.broker.named_locks.advisory(ADMIN)
    assert page.count == 4
    assert [(lock.label, lock.namespace, lock.key, lock.holder) for lock in page.advisory_locks] == [
        ("z", None, None, "a script"),
        ("1:-42", 1, -42, "a script"),
        ("1:-42", None, None, "ada"),
        ("a", None, None, "a script"),
    ]


@in_house()
async def test_monitoring_tells_an_agent_only_of_its_own_holders(house: House) -> None:
    await take(house, name="ours")
    await program_takes(house, "theirs")
    ours, theirs = (await house.broker.named_locks.advisory(ADA)).advisory_locks
    assert (ours.holder, ours.pid, theirs.holder, theirs.pid) == ("ada", None, None, None)


@in_house()
async def test_monitoring_counts_who_waits_here_once(house: House) -> None:
    await program_takes(house)
    for caller in (ADA, BOB):
        await ask(house, caller)
    await house.until(lambda: bool(house.locks.patience_s))
    (seen,) = (await house.broker.named_locks.advisory(ADMIN)).advisory_locks
    assert seen.waiters == 2
