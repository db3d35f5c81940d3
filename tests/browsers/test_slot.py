"""One supervised place: death, hanging, the circuit breaker and recycling, on virtual time."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.sim.fakes import SimBrowser
from tests.sim.stage import Stage, on_stage

from tabherd.core.breaker import BreakerState
from tabherd.core.lifecycle import BrowserState
from tabherd.core.model import Browser


def test_a_dead_browser_is_told_of_and_replaced_at_once() -> None:
    async def play(stage: Stage) -> None:
        (first,) = stage.alive
        first.die("killed")
        assert await stage.until(lambda: bool(stage.gone)) <= 10
        # A start takes up to 100 ms here; nothing is added to it.
        assert await stage.until(lambda: stage.pool.is_ready) <= 150
        assert stage.gone == [(first.row.id, "killed")]

    on_stage(play)


def test_a_browser_that_misses_one_probe_gets_no_new_sessions_and_with_the_second_it_is_killed() -> None:
    async def play(stage: Stage) -> None:
        (first,) = stage.alive
        (slot,) = stage.pool.slots
        first.is_hung = True
        suspected_ms = await stage.until(lambda: slot.is_suspect)
        assert suspected_ms <= 2_100
        assert slot.free_seats == 0
        assert first.is_alive
        killed_ms = suspected_ms + await stage.until(lambda: not first.is_alive)
        assert 2_000 <= killed_ms <= 3_200
        assert killed_ms + await stage.until(lambda: stage.pool.is_ready) <= 4_000

    on_stage(play)


def test_a_browser_that_does_not_answer_but_works_is_given_more_time_and_not_for_ever() -> None:
    async def play(stage: Stage) -> None:
        (first,) = stage.alive
        (slot,) = stage.pool.slots
        first.is_hung = first.is_at_work = True
        suspected_ms = await stage.until(lambda: slot.is_suspect)
        killed_ms = suspected_ms + await stage.until(lambda: not first.is_alive)
        assert 5_000 <= killed_ms <= 6_300

    on_stage(play)


def test_a_browser_that_answers_again_in_time_takes_sessions_again() -> None:
    async def play(stage: Stage) -> None:
        (first,) = stage.alive
        (slot,) = stage.pool.slots
        first.is_hung = True
        await stage.until(lambda: slot.is_suspect)
        first.is_hung = False
        await stage.until(lambda: slot.is_ready)
        assert first.is_alive

    on_stage(play)


def test_three_crashes_open_the_circuit_and_one_start_is_tried_when_it_has_been_open_long_enough() -> None:
    async def play(stage: Stage) -> None:
        (slot,) = stage.pool.slots
        for _ in range(3):
            await stage.until(lambda: stage.pool.is_ready)
            stage.alive[0].die("killed")
            await stage.until(lambda: not stage.pool.is_ready)
        await stage.until(lambda: slot.row.state is BrowserState.BROKEN)
        assert slot.breaker.state(stage.now) is BreakerState.OPEN
        started = len(stage.processes)
        refusal = stage.pool.refusal()
        assert "killed" in refusal.message
        assert refusal.retry_after_ms is not None
        assert 29_000 <= refusal.retry_after_ms <= 30_000
        await asyncio.sleep(29)
        assert len(stage.processes) == started
        await stage.until(lambda: stage.pool.is_ready, within_s=5)
        assert len(stage.processes) == started + 1

    on_stage(play)


def test_a_binary_that_cannot_start_opens_the_circuit_and_says_why() -> None:
    async def play(stage: Stage) -> None:
        stage.launcher._fail_rate = 1.0
        stage.alive[0].die("killed")
        (slot,) = stage.pool.slots
        await stage.until(lambda: slot.row.state is BrowserState.BROKEN)
        assert "exits at once" in stage.pool.refusal().message

    on_stage(play)


@pytest.mark.parametrize("failure", ["dies", "hangs"])
def test_a_browser_that_fails_between_its_start_and_its_first_answer_takes_no_session_and_is_replaced(
    failure: str,
) -> None:
    async def play(stage: Stage) -> None:
        launch, begun = stage.launcher.launch, []

        async def launch_broken(row: Browser) -> SimBrowser:
            browser = await launch(row)
            begun.append(row.id)
            stage.launcher.launch = launch  # type: ignore[method-assign]
            if failure == "dies":
                browser.process.die("killed at once")
            else:
                browser.process.is_hung = True
            return browser

        stage.launcher.launch = launch_broken  # type: ignore[method-assign]
        stage.alive[0].die("killed")
        await stage.until(lambda: bool(begun))
        await stage.until(lambda: stage.pool.is_ready)
        (slot,) = stage.pool.slots
        assert slot.row.id not in begun
        assert stage.gone[1:] == [(begun[0], "It did not answer when it had started.")]
        assert slot.breaker.crashes[1:]
        assert not stage.processes[begun[0]].is_alive

    on_stage(play)


@pytest.mark.parametrize(
    "limit",
    [{"recycle_sessions": 2}, {"recycle_age_ms": 5_000}],
    ids=["served enough sessions", "lived long enough"],
)
def test_a_browser_is_recycled_but_never_under_a_live_session(limit: dict[str, int]) -> None:
    async def play(stage: Stage) -> None:
        (first,) = stage.alive
        claims = [await stage.claim(), await stage.claim()]
        for claim in claims:
            await stage.pool.take(claim.slot)
        await asyncio.sleep(10)
        assert first.is_alive
        # Its replacement is there already, and new sessions go to that one.
        fresh = await stage.claim()
        assert fresh.slot is not claims[0].slot
        assert claims[0].slot.row.state is BrowserState.DRAINING
        stage.admission.give_back(claims[0])
        await asyncio.sleep(10)
        assert first.is_alive
        stage.admission.give_back(claims[1])
        await stage.until(lambda: not first.is_alive, within_s=5)
        stage.admission.give_back(fresh)

    on_stage(play, **limit)


def test_a_private_browser_ends_with_its_session() -> None:
    async def play(stage: Stage) -> None:
        (first,) = stage.alive
        claim = await stage.claim()
        await stage.pool.take(claim.slot)
        stage.admission.give_back(claim)
        await stage.until(lambda: not first.is_alive, within_s=5)
        again = await stage.claim(wait_ms=1_000)
        assert again.slot is not claim.slot

    on_stage(play, is_private=True, sessions_per_browser=1)


def test_a_pool_that_stops_while_a_browser_is_being_retired_ends_that_browser_too() -> None:
    async def slow_disk(row: Browser) -> None:
        await asyncio.sleep(1)

    async def play(stage: Stage) -> None:
        stage.pool._listener = msgspec.structs.replace(stage.pool._listener, record=slow_disk)
        claim = await stage.claim()
        claim.slot.drain("drained", leave=True)
        stage.admission.give_back(claim)
        # It is not in use any more, but its process still runs; stopping now must not forget it.
        await stage.until(lambda: claim.slot.browser is None)
        assert stage.alive

    on_stage(play)
