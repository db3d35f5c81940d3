"""Who is let in, in which order, and what the others are told, on virtual time."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from tests.sim.stage import Stage, on_stage

from tabherd.broker.claim import Claim
from tabherd.broker.stock import PooledTab
from tabherd.core.caps import Caps
from tabherd.core.lifecycle import LeaseState, TabState
from tabherd.core.model import Session, Tab
from tabherd.errors import Capacity, NoBrowser, QueueFull


async def pool_tab(stage: Stage, claim: Claim, reuse: str = "never") -> PooledTab:
    """Give the place back and leave a tab in the stock, as a release into the pool does."""
    slot = claim.slot
    assert slot is not None
    assert slot.browser is not None
    seat = await slot.make_seat()
    row = Session(
        id=claim.session_id,
        state=LeaseState.POOLED,
        agent_id=claim.agent_id,
        pool="default",
        key=claim.key,
        browser_id=slot.row.id,
        context_id=seat.context_id,
        reuse=reuse,
        pooled_at=stage.now,
    )
    tab = Tab(
        id=stage.mint("tab"),
        session_id=row.id,
        node_id="nod_1",
        browser_id=slot.row.id,
        state=TabState.READY,
        target_id=seat.tab.target_id,
    )
    pooled = PooledTab(row, tab, slot.browser, seat.tab, slot)
    stage.admission.give_to_stock(claim, pooled)
    return pooled


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
                is_full = stage.admission.full(agent, "") is not None
                estimate = stage.admission.retry_after_ms(position, 4)
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


# --- Pooled tabs ------------------------------------------------------------------------------------------------


def test_a_pooled_tab_goes_to_the_next_of_its_key_with_its_seat() -> None:
    async def play(stage: Stage) -> None:
        pooled = await pool_tab(stage, await stage.claim("ada", "shop"))
        assert (stage.admission.active, stage.admission.tabs, stage.pool.free_seats) == (0, 1, 1)
        other = await stage.claim("bob", "bank")
        assert other.pooled is None
        claim = await stage.claim("bob", "shop")
        assert claim.pooled is pooled
        assert sorted(pooled.slot.sessions) == sorted([other.session_id, claim.session_id])
        assert stage.pool.free_seats == 0

    on_stage(play, sessions_per_browser=2, browsers_max=1)


def test_a_place_that_nothing_was_done_with_goes_back_with_its_pooled_tab() -> None:
    async def play(stage: Stage) -> None:
        pooled = await pool_tab(stage, await stage.claim("ada", "shop"))
        stage.admission.abandon(await stage.claim("bob", "shop"))
        assert (stage.admission.active, len(stage.admission.stock)) == (0, 1)
        assert pooled.slot.sessions == {pooled.row.id}

    on_stage(play)


@pytest.mark.parametrize("reuse", ["never", "any"])
def test_who_waits_is_served_by_the_tab_that_is_given_back(reuse: str) -> None:
    async def play(stage: Stage) -> None:
        held = await stage.claim("ada", "shop")
        waiting = asyncio.ensure_future(stage.claim("bob", "shop", wait_ms=60_000))
        await asyncio.sleep(1)
        pooled = await pool_tab(stage, held, reuse)
        assert (await waiting).pooled is pooled

    on_stage(play, caps=Caps(max_active=1))


def test_the_oldest_pooled_tab_makes_room_for_a_caller_that_finds_no_seat_even_one_that_does_not_wait() -> None:
    async def play(stage: Stage) -> None:
        claims = [await stage.claim("ada", "shop") for _ in range(3)]
        oldest, *others = [await pool_tab(stage, claim) for claim in claims]
        claim = await stage.claim("bob", "bank", wait_ms=0)
        assert claim.pooled is None
        assert oldest.row.context_id not in stage.alive[0].contexts
        assert sorted(stage.admission.stock._tabs) == sorted(pooled.row.id for pooled in others)
        assert stage.pool.free_seats == 0

    on_stage(play, sessions_per_browser=3, browsers_max=1)


def test_the_oldest_pooled_tab_makes_room_when_all_tabs_are_open() -> None:
    async def play(stage: Stage) -> None:
        await pool_tab(stage, await stage.claim("ada", "shop"))
        await pool_tab(stage, await stage.claim("ada", "bank"))
        claim = await stage.claim("bob", "mail", wait_ms=0)
        assert [pooled.row.key for pooled in stage.admission.stock._tabs.values()] == ["bank"]
        await stage.admission.claim_tab(claim)
        assert (len(stage.admission.stock), stage.admission.tabs) == (0, 2)
        with pytest.raises(Capacity) as refused:
            await stage.admission.claim_tab(claim)
        assert {"reason": "tab_cap", "count": 2, "cap": 2}.items() <= refused.value.details.items()
        with pytest.raises(Capacity) as refused:
            await stage.claim("bob", "mail", wait_ms=0)
        assert refused.value.details["reason"] == "tab_cap"
        assert refused.value.retry_after_ms
        stage.admission.drop_tabs(claim)
        await stage.claim("bob", "mail", wait_ms=0)

    on_stage(play, caps=Caps(max_tabs=2))


def test_no_tab_is_closed_for_a_caller_that_a_cap_keeps_out() -> None:
    async def play(stage: Stage) -> None:
        first, second = await stage.claim("ada", "shop"), await stage.claim("ada", "bank")
        await pool_tab(stage, second)
        with pytest.raises(Capacity) as refused:
            await stage.claim("bob", "shop", wait_ms=0)
        assert refused.value.details["reason"] == "key_cap"
        assert len(stage.admission.stock) == 1
        stage.admission.give_back(first)

    on_stage(play, caps=Caps(max_active_per_key=1), sessions_per_browser=2, browsers_max=1)


def test_many_callers_that_need_room_each_get_the_place_of_one_tab() -> None:
    async def play(stage: Stage) -> None:
        for claim in [await stage.claim("ada", "shop") for _ in range(5)]:
            await pool_tab(stage, claim)
        claims = await asyncio.gather(*(stage.claim(f"a{n}", "bank", wait_ms=5_000) for n in range(3)))
        assert len({claim.session_id for claim in claims}) == 3
        assert (len(stage.admission.stock), stage.admission.active) == (2, 3)

    on_stage(play, sessions_per_browser=5, browsers_max=1)


def test_a_tab_that_was_found_dead_is_followed_by_the_next_one_or_by_its_own_seat() -> None:
    async def play(stage: Stage) -> None:
        older, newer = [await pool_tab(stage, claim) for claim in [await stage.claim("ada", "shop") for _ in "ab"]]
        claim = await stage.claim("ada", "shop")
        assert claim.pooled is newer
        stage.admission.next_pooled(claim)
        assert claim.pooled is older
        stage.admission.next_pooled(claim)
        assert claim.pooled is None
        assert claim.slot is not None
        assert claim.slot.sessions == {claim.session_id}

    on_stage(play)


# --- Sessions whose browser died --------------------------------------------------------------------------------


def test_a_session_that_lost_its_browser_is_seated_before_all_who_wait() -> None:
    async def play(stage: Stage) -> None:
        claims = [await stage.claim("ada") for _ in range(2)]
        waiting = [asyncio.ensure_future(stage.claim(f"b{n}", wait_ms=60_000)) for n in range(2)]
        await asyncio.sleep(1)
        stage.alive[0].die("killed")
        await stage.until(lambda: stage.gone)
        slots = await asyncio.gather(*(stage.admission.reseat(claim) for claim in claims))
        assert not any(turn.done() for turn in waiting)
        assert [claim.slot for claim in claims] == slots
        assert all(slot.sessions == {claim.session_id for claim in claims} for slot in slots)
        for claim in claims:
            stage.admission.give_back(claim)
        assert {(await turn).agent_id for turn in waiting} == {"b0", "b1"}

    on_stage(play, sessions_per_browser=2, browsers_max=1)


def test_a_pooled_tab_gives_way_to_a_session_that_lost_its_browser() -> None:
    async def play(stage: Stage) -> None:
        await stage.until(lambda: stage.pool.free_seats == 2)
        claim, other = await stage.claim("ada"), await stage.claim("bob", "shop")
        assert claim.slot is not other.slot
        pooled = await pool_tab(stage, other)
        assert claim.slot is not None
        stage.processes[claim.slot.row.id].die("killed")
        await stage.until(lambda: stage.gone)
        assert await stage.admission.reseat(claim) is pooled.slot
        assert len(stage.admission.stock) == 0

    on_stage(play, sessions_per_browser=1, browsers_min=2, browsers_max=2)


def test_whoever_stops_waiting_in_the_moment_in_which_it_is_seated_gives_the_seat_back() -> None:
    async def play(stage: Stage) -> None:
        held = await stage.claim("ada")
        homeless = stage.admission.adopt("ses-homeless", "bob", "", None, 1)
        seating = asyncio.ensure_future(stage.admission.reseat(homeless))
        await asyncio.sleep(1)
        # Both in one turn of the loop, before the one that waits can run.
        stage.admission.give_back(held)
        seating.cancel()
        await asyncio.wait([seating])
        assert seating.cancelled()
        assert all(not slot.sessions for slot in stage.pool.slots)

    on_stage(play, sessions_per_browser=1, browsers_max=1)
