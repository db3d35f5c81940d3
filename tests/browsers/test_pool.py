"""Sizing, the warm stock and the choice of a seat, on virtual time."""

from __future__ import annotations

import asyncio

import pytest
from tests.sim.stage import Stage, on_stage

from tabherd.browsers import pool as pool_module
from tabherd.browsers.port import Seat
from tabherd.browsers.slot import Slot
from tabherd.cluster.fenced_store import fenced
from tabherd.core.caps import Caps
from tabherd.core.model import Browser


def test_browsers_are_added_when_callers_find_no_seat_up_to_the_maximum() -> None:
    async def play(stage: Stage) -> None:
        claims = [await stage.claim(wait_ms=5_000) for _ in range(6)]
        assert len(stage.alive) == 3
        assert sorted(len(slot.sessions) for slot in stage.pool.slots) == [2, 2, 2]
        for claim in claims:
            stage.admission.give_back(claim)

    on_stage(play, browsers_min=1, browsers_max=3, sessions_per_browser=2)


def test_callers_who_wait_for_the_replacement_of_a_crashed_browser_do_not_start_another_beside_it() -> None:
    async def play(stage: Stage) -> None:
        stage.alive[0].die("killed")
        await stage.until(lambda: bool(stage.gone))
        claim = await stage.claim(wait_ms=5_000)
        await asyncio.sleep(1)
        assert len(stage.alive) == 1
        stage.admission.give_back(claim)

    on_stage(play, browsers_max=3)


def test_callers_do_not_wait_for_a_browser_whose_circuit_is_open_when_another_can_be_started() -> None:
    async def play(stage: Stage) -> None:
        (slot,) = stage.pool.slots
        for _ in range(3):
            await stage.until(lambda: stage.pool.is_ready)
            stage.alive[0].die("killed")
            await stage.until(lambda: not stage.pool.is_ready)
        claim = await stage.claim(wait_ms=5_000)
        assert claim.slot is not slot
        stage.admission.give_back(claim)

    on_stage(play, browsers_max=3)


def test_a_browser_nobody_needs_is_given_back_down_to_the_minimum() -> None:
    async def play(stage: Stage) -> None:
        claims = [await stage.claim(wait_ms=5_000) for _ in range(3)]
        assert len(stage.alive) == 3
        for claim in claims:
            stage.admission.give_back(claim)
        await asyncio.sleep(30)
        assert len(stage.alive) == 3
        await stage.until(lambda: len(stage.alive) == 1, within_s=120)

    on_stage(play, browsers_min=1, browsers_max=3, sessions_per_browser=1)


def test_a_browser_is_started_before_the_stock_runs_out_of_seats_so_that_the_next_caller_does_not_wait() -> None:
    async def play(stage: Stage) -> None:
        await stage.until(lambda: stage.pool.stock_size == 2)
        await asyncio.sleep(5)
        assert len(stage.alive) == 1, "an idle pool stays as small as it may be"
        claims = [await stage.claim()]
        await asyncio.sleep(5)
        assert len(stage.alive) == 1, "there are seats for the stock"
        claims.append(await stage.claim())
        await stage.until(lambda: stage.pool.free_seats == 4)
        # It is kept as long as it may be needed, and only one more is.
        await asyncio.sleep(300)
        assert len(stage.processes) == len(stage.alive) == 2
        claims += [await stage.claim(wait_ms=0) for _ in range(2)]
        for claim in claims:
            stage.admission.give_back(claim)
        await stage.until(lambda: len(stage.alive) == 1, within_s=120)

    on_stage(play, browsers_min=1, browsers_max=3, sessions_per_browser=3, warm=2)


def test_no_browser_is_started_for_callers_that_the_pool_would_not_admit() -> None:
    async def play(stage: Stage) -> None:
        claims = [await stage.claim() for _ in range(2)]
        await asyncio.sleep(5)
        assert len(stage.alive) == 1
        for claim in claims:
            stage.admission.give_back(claim)

    on_stage(play, caps=Caps(max_active=3), browsers_max=3, sessions_per_browser=3, warm=2)


def test_the_stock_is_filled_to_its_size_and_taking_from_it_asks_nothing_of_the_browser() -> None:
    async def play(stage: Stage) -> None:
        await stage.until(lambda: stage.pool.stock_size == 3)
        await asyncio.sleep(5)
        assert stage.pool.stock_size == 3
        claim = await stage.claim()
        before = stage.now
        seat = await stage.pool.take(claim.slot)
        assert stage.now == before
        assert seat.context_id in stage.alive[0].contexts
        await stage.until(lambda: stage.pool.stock_size == 3)
        stage.admission.give_back(claim)

    on_stage(play, warm=3)


def test_refilling_takes_at_most_half_of_the_time() -> None:
    async def play(stage: Stage) -> None:
        (slot,) = stage.pool.slots
        busy_ms = await _time_spent_making(stage, slot, until_size=20)
        assert busy_ms[0] <= busy_ms[1] * 0.6

    on_stage(play, warm=20)


async def _time_spent_making(stage: Stage, slot: Slot, until_size: int) -> tuple[float, float]:
    """Seconds in which a seat was being made, and seconds in all, until the stock has that size."""
    spent = 0.0
    make = slot.make_seat

    async def timed() -> object:
        nonlocal spent
        began = stage.loop.time()
        seat = await make()
        spent += stage.loop.time() - began
        return seat

    slot.make_seat = timed  # type: ignore[method-assign, assignment]
    began = stage.loop.time()
    await stage.until(lambda: stage.pool.stock_size == until_size)
    return spent, stage.loop.time() - began


def test_the_stock_is_not_refilled_in_the_first_moments_of_a_session() -> None:
    async def play(stage: Stage) -> None:
        await stage.until(lambda: stage.pool.stock_size == 1)
        # Until nothing of the filling goes on any more.
        await asyncio.sleep(1)
        await stage.pool.take((await stage.claim()).slot)
        contexts = len(stage.alive[0].contexts)
        await asyncio.sleep(pool_module.REFILL_AFTER_S * 0.9)
        assert len(stage.alive[0].contexts) == contexts
        await stage.until(lambda: stage.pool.stock_size == 1)

    on_stage(play, warm=1)


def test_a_steady_stream_of_sessions_does_not_put_off_the_refill() -> None:
    async def play(stage: Stage) -> None:
        hits = 0
        for _ in range(20):
            claim = await stage.claim()
            hits += stage.pool.stock_size
            await stage.pool.take(claim.slot)
            await asyncio.sleep(pool_module.REFILL_AFTER_S * 0.6)
        assert hits >= 5

    on_stage(play, warm=1)


def test_the_stock_is_not_refilled_while_a_caller_waits_for_a_cold_seat() -> None:
    async def play(stage: Stage) -> None:
        await stage.until(lambda: stage.pool.stock_size == 1)
        # Until nothing of the filling goes on any more.
        await asyncio.sleep(1)
        (slot,) = stage.pool.slots
        make, making = slot.make_seat, 0

        async def slowly() -> Seat:
            nonlocal making
            making += 1
            await asyncio.sleep(pool_module.REFILL_AFTER_S * 4)
            return await make()

        slot.make_seat = slowly  # type: ignore[method-assign]
        warm, cold = await stage.claim(), await stage.claim()
        await stage.pool.take(warm.slot)
        await stage.pool.take(cold.slot)
        assert making == 1
        await stage.until(lambda: stage.pool.stock_size == 1)

    on_stage(play, warm=1)


def test_seats_made_under_other_settings_are_not_handed_out() -> None:
    async def play(stage: Stage) -> None:
        await stage.until(lambda: stage.pool.stock_size == 2)
        old = {seat.context_id for slot in stage.pool.slots for seat in slot.stock}
        stage.pool.reconfigure(stage.policy(warm=1))
        assert stage.pool.stock_size == 0
        await stage.until(lambda: stage.pool.stock_size == 1)
        assert not old & set(stage.alive[0].contexts)

    on_stage(play, warm=2)


def test_the_stock_never_takes_the_last_seats() -> None:
    async def play(stage: Stage) -> None:
        claims = [await stage.claim() for _ in range(3)]
        for claim in claims:
            await stage.pool.take(claim.slot)
        await asyncio.sleep(5)
        assert len(stage.alive[0].contexts) <= 4

    on_stage(play, warm=4, sessions_per_browser=4, browsers_max=1)


def test_a_session_goes_where_a_warm_seat_is_else_where_fewest_are() -> None:
    async def play(stage: Stage) -> None:
        spread = [await stage.claim() for _ in range(4)]
        assert sorted(len(slot.sessions) for slot in stage.pool.slots) == [2, 2]
        stage.pool.reconfigure(stage.policy(warm=1))
        await stage.until(lambda: stage.pool.stock_size == 1)
        (warm,) = [slot for slot in stage.pool.slots if slot.stock]
        assert (await stage.claim()).slot is warm
        assert spread[0].slot is not spread[1].slot

    on_stage(play, browsers_min=2)


def test_where_there_can_be_only_one_the_replacement_starts_when_the_drained_one_is_gone() -> None:
    async def play(stage: Stage) -> None:
        (first,) = stage.alive
        claim = await stage.claim()
        claim.slot.drain("drained")
        stage.pool.slot_changed(claim.slot)
        await asyncio.sleep(10)
        assert stage.alive == [first]
        stage.admission.give_back(claim)
        await stage.until(lambda: not first.is_alive)
        await stage.until(lambda: stage.pool.is_ready)
        assert len(stage.pool.slots) == len(stage.alive) == 1

    on_stage(play, is_single=True, browsers_max=1)


def test_where_there_can_be_only_one_it_is_not_recycled_while_a_session_is_in_it() -> None:
    async def play(stage: Stage) -> None:
        (first,) = stage.alive
        claim = await stage.claim()
        await stage.pool.take(claim.slot)
        await asyncio.sleep(10)
        # It is due, but others can still come.
        assert stage.pool.is_ready
        stage.admission.give_back(claim)
        await stage.until(lambda: not first.is_alive)
        await stage.until(lambda: stage.pool.is_ready)

    on_stage(play, is_single=True, browsers_max=1, recycle_sessions=1)


def test_a_slot_whose_row_cannot_be_written_is_not_tried_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(stage: Stage) -> None:
        tries = 0

        async def refuse(self: Stage, row: Browser) -> None:
            nonlocal tries
            tries += 1
            raise fenced()

        monkeypatch.setattr(stage.pool, "record", lambda row: refuse(stage, row))
        stage.alive[0].die("killed")
        await stage.until(lambda: tries > 0)
        await asyncio.sleep(10)
        assert 5 <= tries <= 20
        monkeypatch.undo()
        await stage.until(lambda: stage.pool.is_ready, within_s=2)

    on_stage(play)
