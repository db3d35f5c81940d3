"""Who is let in, in which order, and what the others are told, on virtual time."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from tests.sim.stage import Stage, on_stage

from tabherd.core.lease import Caps
from tabherd.errors import Capacity, NoBrowser, QueueFull


def test_exactly_as_many_as_the_cap_are_let_in() -> None:
    async def play(stage: Stage) -> None:
        asked = await asyncio.gather(*(stage.claim(f"a{n}") for n in range(20)), return_exceptions=True)
        refused = [answer for answer in asked if isinstance(answer, Capacity)]
        assert len(asked) - len(refused) == 5
        assert {error.details["reason"] for error in refused} == {"pool_cap"}
        assert {(error.details["count"], error.details["cap"]) for error in refused} == {(5, 5)}
        assert all(error.retry_after_ms for error in refused)

    on_stage(play, caps=Caps(max_active=5))


def test_a_key_at_its_cap_blocks_nobody_else() -> None:
    async def play(stage: Stage) -> None:
        first = await stage.claim("ada", "shop")
        blocked = asyncio.ensure_future(stage.claim("ada", "shop", wait_ms=60_000))
        await asyncio.sleep(1)
        await stage.claim("ada", "bank")
        assert not blocked.done()
        stage.admission.give_back(first)
        assert (await blocked).key == "shop"

    on_stage(play, caps=Caps(max_active_per_key=1))


def test_whoever_has_the_fewest_sessions_goes_first_then_whoever_came_first() -> None:
    async def play(stage: Stage) -> None:
        held = [await stage.claim("greedy") for _ in range(3)]
        order: list[str] = []

        async def wait(agent: str) -> None:
            claim = await stage.claim(agent, wait_ms=60_000)
            order.append(agent)
            held.append(claim)

        waiting = [asyncio.ensure_future(wait(agent)) for agent in ("greedy", "ada", "bob", "ada")]
        await asyncio.sleep(1)
        for claim in held[:3]:
            stage.admission.give_back(claim)
            await asyncio.sleep(0.1)
        assert order == ["ada", "bob", "greedy"]
        waiting[3].cancel()

    on_stage(play, caps=Caps(max_active=3))


def test_a_caller_that_left_is_never_granted() -> None:
    async def play(stage: Stage) -> None:
        held = await stage.claim()
        gone = asyncio.ensure_future(stage.claim("gone", wait_ms=60_000))
        stays = asyncio.ensure_future(stage.claim("stays", wait_ms=60_000))
        await asyncio.sleep(1)
        gone.cancel()
        stage.admission.give_back(held)
        claim = await stays
        assert gone.cancelled()
        stage.admission.give_back(claim)
        assert stage.admission._claims == {}

    on_stage(play, caps=Caps(max_active=1))


def test_a_caller_that_leaves_in_the_moment_of_its_grant_gives_the_place_back() -> None:
    async def play(stage: Stage) -> None:
        held = await stage.claim()
        gone = asyncio.ensure_future(stage.claim("gone", wait_ms=60_000))
        await asyncio.sleep(1)
        stage.admission.give_back(held)
        gone.cancel()
        await asyncio.wait([gone])
        assert gone.cancelled()
        assert stage.admission._claims == {}
        assert all(not slot.sessions for slot in stage.pool.slots)

    on_stage(play, caps=Caps(max_active=1))


def test_a_grant_in_the_moment_in_which_the_time_ends_counts() -> None:
    async def play(stage: Stage) -> None:
        held = await stage.claim("ada")
        waiting = asyncio.ensure_future(stage.claim("bob", wait_ms=100))
        await asyncio.sleep(0.05)
        # The timer of the wait and this one fire in one turn of the loop, before the waiter can run.
        stage.loop.call_at(stage.loop.now_s + 0.05, stage.admission.give_back, held)
        claim = await waiting
        stage.admission.give_back(claim)
        assert stage.admission.active == 0

    on_stage(play, caps=Caps(max_active=1))


def test_a_wait_that_ends_in_vain_says_where_the_caller_stood() -> None:
    async def play(stage: Stage) -> None:
        await stage.claim("ada")
        ahead = asyncio.ensure_future(stage.claim("ada", wait_ms=60_000))
        await asyncio.sleep(0)
        with pytest.raises(Capacity) as refused:
            await stage.claim("ada", wait_ms=500)
        assert refused.value.details["position"] == 2
        assert refused.value.details["reason"] == "agent_cap"
        ahead.cancel()

    on_stage(play, caps=Caps(max_active_per_agent=1))


def test_the_queue_is_bounded_and_more_is_refused_as_unavailable() -> None:
    async def play(stage: Stage) -> None:
        await stage.claim()
        waiting = [asyncio.ensure_future(stage.claim(wait_ms=60_000)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull) as refused:
            await stage.claim()
        assert refused.value.status == 503
        for waiter in waiting:
            waiter.cancel()

    on_stage(play, caps=Caps(max_active=1), max_waiters=3)


def test_without_a_browser_the_refusal_says_why_and_waiters_are_served_by_the_replacement() -> None:
    async def play(stage: Stage) -> None:
        stage.alive[0].die("killed")
        await stage.until(lambda: not stage.pool.is_ready)
        waiting = asyncio.ensure_future(stage.claim("patient", wait_ms=5_000))
        with pytest.raises(NoBrowser) as refused:
            await stage.claim("hasty")
        assert refused.value.retry_after_ms is not None
        assert (await waiting).agent_id == "patient"

    on_stage(play)


def test_the_estimate_is_right_on_average() -> None:
    """A pool of 4 under load, holds of 1 to 9 s: what callers are told against what they really wait."""

    async def play(stage: Stage) -> None:
        chance = Random(2)
        told: list[float] = []
        waited: list[float] = []

        async def use(agent: str) -> None:
            for _ in range(40):
                began = stage.now
                position = stage.admission.waiting + 1
                is_full = stage.admission._full(agent, "") is not None
                estimate = stage.admission._retry_after_ms(position, 4)
                claim = await stage.claim(agent, wait_ms=120_000)
                if is_full and len(stage.admission._hold_times._recent_ms) >= 20:
                    told.append(estimate)
                    waited.append(stage.now - began)
                await asyncio.sleep(chance.uniform(1, 9))
                stage.admission.give_back(claim)

        await asyncio.gather(*(use(f"a{n}") for n in range(12)))
        assert len(told) > 200
        assert 0.8 <= sum(told) / sum(waited) <= 1.25

    on_stage(play, caps=Caps(max_active=4))
