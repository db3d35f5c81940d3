"""Opening, renewing and ending sessions: caps, fences, deadlines, and nothing left behind by whoever leaves."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.broker.house import ADA, ADMIN, BOB, House, agent, in_house, run_in_house

from tabherd import errors, wire
from tabherd.broker.order import LockOrderViolated, Rank, held
from tabherd.core import lease
from tabherd.core.lifecycle import LEASE, LeaseState, is_terminal
from tabherd.core.model import Session, Tab

SECOND = 1_000


def open_rows(house: House) -> list[Session]:
    return [row for row in house.disk.rows(Session) if not is_terminal(LEASE, row.state)]


def assert_nothing_left(house: House) -> None:
    assert open_rows(house) == []
    assert house.disk.rows(Tab) == []
    assert house.disk.counters() == {}
    assert house.pages == []
    assert (house.stats().active, house.stats().tabs) == (0, 0)


# --- Reserve before create, record before bind ------------------------------------------------------------------


def observe(house: House) -> Counter[str]:
    """Look at disk, browsers and registry at every turn of the loop; what was seen of each kind."""
    seen: Counter[str] = Counter()

    def look() -> bool:
        rows = {row.id: row for row in open_rows(house)}
        tabs = {tab.id: tab for tab in house.disk.rows(Tab)}
        reserved = sum(row.state is LeaseState.RESERVED for row in rows.values())
        contexts = sum(len(process.contexts) for process in house.processes.values())
        assert contexts <= len(rows), "something was created that nobody had reserved"
        assert len(house.pages) <= len(tabs) + reserved, "a page was made that no row speaks of"
        for live in house.broker._registry:
            row = rows.get(live.row.id)
            assert row is not None, "a session is bound that has no lease"
            assert row.state in (*lease.HELD_STATES, LeaseState.CLOSING), "it is bound before it is recorded"
            assert row.context_id == live.row.context_id
            assert row.fence == live.row.fence
            for tab in live.tabs.values():
                assert tabs[tab.row.id].target_id == tab.row.target_id, "a target is bound that its row does not name"
                seen["bound"] += 1
        seen["reserved"] += reserved
        seen["turns"] += 1
        return False

    house.loop.watches.append(look)
    return seen


@pytest.mark.parametrize("seed", range(8))
def test_no_observer_ever_sees_a_bound_target_without_its_lease_or_a_tab_nobody_reserved(seed: int) -> None:
    async def play(house: House) -> None:
        seen = observe(house)

        async def use(name: str) -> None:
            for _ in range(3):
                session = await house.open(agent(name), wait_ms=60_000)
                await house.act(session, caller=agent(name))
                await house.release(session, agent(name))

        async def hasty(name: str, after_s: float) -> None:
            opening = asyncio.ensure_future(house.open(agent(name), wait_ms=60_000))
            await asyncio.sleep(after_s)
            opening.cancel()
            await asyncio.wait([opening])

        await asyncio.gather(*(use(f"a{n}") for n in range(6)), *(hasty(f"b{n}", n / 200) for n in range(8)))
        await house.quiet()
        assert seen["reserved"] > 100
        assert seen["bound"] > 100
        house.loop.watches.clear()
        assert_nothing_left(house)

    run_in_house(play, seed=seed, max_active=3)


@in_house()
async def test_a_caller_that_leaves_at_any_moment_of_the_opening_leaves_nothing(house: House) -> None:
    left = 0
    for half_ms in range(80):
        opening = asyncio.ensure_future(house.open())
        await asyncio.sleep(half_ms / 2000)
        left += opening.cancel()
        await asyncio.wait([opening])
        if not opening.cancelled():
            await house.release(opening.result())
        await house.quiet()
        assert_nothing_left(house)
    assert left > 10, "most of them were there too early or too late"


@in_house(max_active=1)
async def test_a_refused_caller_leaves_nothing(house: House) -> None:
    session = await house.open()
    rows, pages = len(house.disk.rows(Session)), len(house.pages)
    with pytest.raises(errors.Capacity):
        await house.open(BOB, wait_ms=0)
    assert (len(house.disk.rows(Session)), len(house.pages), house.stats().waiting) == (rows, pages, 0)
    await house.release(session)
    assert_nothing_left(house)


@in_house()
async def test_an_opening_whose_first_page_fails_leaves_nothing(house: House) -> None:
    async def fail(*_: object) -> None:
        raise errors.NavigationFailed("The site is down.")

    house.broker.opening._perform = fail
    with pytest.raises(errors.NavigationFailed):
        await house.open(url="https://shop.test/")
    assert_nothing_left(house)
    assert house.disk.rows(Session)[0].end_reason == "not_created"


@in_house()
async def test_what_could_never_be_granted_is_refused_before_anything_happens(house: House) -> None:
    for request in ({"tier": "profi"}, {"pool": "nowhere"}, {"reuse": "any"}):
        with pytest.raises(errors.InvalidRequest) as refused:
            await house.open(**request)
        assert refused.value.details["field"] in request
    with pytest.raises(errors.Forbidden):
        await house.open(BOB, agent_id="ada")
    assert house.disk.rows(Session) == []


# --- Caps -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("caps", "reason"),
    [
        ({"max_active": 5}, "pool_cap"),
        ({"max_active": 12, "max_active_per_key": 5}, "key_cap"),
        ({"max_active": 12, "max_active_per_agent": 5}, "agent_cap"),
        ({"max_tabs": 5, "max_active": 5}, "pool_cap"),
    ],
)
def test_exactly_as_many_as_the_cap_win_and_the_others_hear_which_cap_how_full_and_when(
    caps: dict[str, int], reason: str
) -> None:
    async def play(house: House) -> None:
        answers = await asyncio.gather(*(house.open(key="shop", wait_ms=0) for _ in range(9)), return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, errors.Capacity)]
        assert (len(answers) - len(refused), len(refused)) == (5, 4)
        for error in refused:
            assert {"reason": reason, "count": 5, "cap": 5}.items() <= error.details.items()
            assert error.details["position"] >= 1
            assert error.retry_after_ms

    run_in_house(play, **caps)


@in_house(max_active=6, max_active_per_key=3)
async def test_one_key_cannot_starve_another(house: House) -> None:
    greedy = [asyncio.ensure_future(house.open(key="shop", wait_ms=60_000)) for _ in range(20)]
    await asyncio.sleep(1)
    assert sum(opening.done() for opening in greedy) == 3
    for _ in range(3):
        await house.open(BOB, key="bank", wait_ms=0)
    for opening in greedy:
        opening.cancel()


@in_house(max_active_per_key=1)
async def test_the_empty_key_is_never_capped(house: House) -> None:
    for _ in range(4):
        await house.open(wait_ms=0)


@in_house(max_tabs=2, max_active=2)
async def test_real_tabs_count_and_not_only_sessions(house: House) -> None:
    session = await house.open()
    await house.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab())
    with pytest.raises(errors.Capacity) as refused:
        await house.open(BOB, wait_ms=0)
    assert refused.value.details["reason"] == "tab_cap"
    with pytest.raises(errors.Capacity) as refused:
        await house.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab())
    assert {"reason": "tab_cap", "count": 2, "cap": 2}.items() <= refused.value.details.items()


# --- Fences -----------------------------------------------------------------------------------------------------


@in_house()
async def test_the_fence_grows_at_grant_checkout_and_takeover_and_stays_at_recovery(house: House) -> None:
    first = await house.open(key="shop")
    second = await house.open(key="bank")
    assert second.fence > first.fence
    await house.release(first, disposition="pool")
    third = await house.open(key="shop")
    assert third.fence > second.fence
    fourth = await house.broker.sessions.take_over(ADMIN, second.session_id, "bob")
    assert fourth.fence > third.fence
    await house.lose_browser(third)
    await house.recovered(third)
    assert house.row(third).fence == third.fence
    assert (await house.beat(third)).fence == third.fence


@in_house()
async def test_with_a_stale_fence_no_verb_does_anything(house: House) -> None:
    session = await house.open()
    before = house.row(session)
    for fence in (session.fence - 1, session.fence + 1):
        with pytest.raises(errors.LeaseLost):
            await house.release(session, fence=fence)
        with pytest.raises(errors.LeaseLost):
            await house.beat(session, fence=fence)
        with pytest.raises(errors.LeaseLost):
            await house.act(session, "stale", fence=fence)
    assert house.sent == []
    assert house.row(session) == before


@pytest.mark.parametrize("named", [True, False], ids=["with a fence", "without one"])
@pytest.mark.parametrize("disposition", ["close", "pool"])
@in_house()
async def test_a_release_that_waited_for_its_turn_ends_nothing_of_the_next_owner(
    house: House, named: bool, disposition: str
) -> None:
    session = await house.open()
    async with house.live(session).mutex:
        taking = asyncio.ensure_future(house.broker.sessions.take_over(ADMIN, session.session_id, "bob"))
        await asyncio.sleep(1)
        fence = session.fence if named else None
        releasing = asyncio.ensure_future(house.release(session, fence=fence, disposition=disposition))
        await asyncio.sleep(1)
    taken = await taking
    with pytest.raises(errors.LeaseLost):
        await releasing
    assert (await house.act(taken, caller=BOB, fence=taken.fence)).ok


@in_house()
async def test_a_heartbeat_that_waited_for_its_turn_does_not_count_for_the_next_owner(house: House) -> None:
    session = await house.open()
    async with house.live(session).mutex:
        taking = asyncio.ensure_future(house.broker.sessions.take_over(ADMIN, session.session_id, "bob"))
        await asyncio.sleep(1)
        beating = asyncio.ensure_future(house.beat(session))
        await asyncio.sleep(1)
    await taking
    with pytest.raises(errors.LeaseLost):
        await beating
    assert not house.row(session).is_beating


@in_house()
async def test_of_two_releases_one_ends_the_session_and_the_other_hears_that_it_is_over(house: House) -> None:
    session = await house.open()
    answers = await asyncio.gather(house.release(session), house.release(session), return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["LeaseLost", "NoneType"]
    assert_nothing_left(house)


@in_house()
async def test_a_release_goes_on_when_its_caller_leaves(house: House) -> None:
    session = await house.open()
    releasing = asyncio.ensure_future(house.release(session))
    await house.until(lambda: house.live(session).is_ending)
    releasing.cancel()
    await house.quiet()
    assert_nothing_left(house)


@in_house()
async def test_a_release_turns_away_what_runs_and_what_waits(house: House) -> None:
    session = await house.open()
    running = asyncio.ensure_future(house.act(session, "running-held"))
    await house.until(lambda: house.page(session).active)
    waiting = asyncio.ensure_future(house.act(session, "waiting", wait_policy="wait_with_timeout"))
    await asyncio.sleep(1)
    await house.release(session)
    for command in (running, waiting):
        with pytest.raises(errors.LeaseLost) as lost:
            await command
        assert (await house.broker.commands.get(ADA, lost.value.details["commandId"])).outcome == "cancelled"
    assert [label for _, label in house.sent] == ["running-held"]
    assert_nothing_left(house)


# --- Order of locks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [Rank.LEASE, Rank.STORE])
@in_house()
async def test_whoever_has_a_lease_or_the_store_cannot_take_a_session(house: House, rank: Rank) -> None:
    session = await house.open()
    with held(rank), pytest.raises(LockOrderViolated):
        await house.broker.leases.end(house.live(session), "released")
    assert (await house.act(session)).ok


@in_house()
async def test_whoever_has_a_session_cannot_take_another(house: House) -> None:
    one, other = await house.open(), await house.open(BOB)
    async with house.live(one).mutex:
        with pytest.raises(LockOrderViolated):
            await house.broker.leases.end(house.live(other), "released")


# --- Deadlines --------------------------------------------------------------------------------------------------


@in_house(tiers={"pro": 3_600})
async def test_a_tier_that_changes_is_for_new_leases_only(house: House) -> None:
    before = await house.open(tier="pro")
    house.config.tiers["pro"] = 60
    after = await house.open(tier="pro")
    await house.beat(before)
    lives = [(house.row(view).deadline_at - house.row(view).created_at) // SECOND for view in (before, after)]
    assert lives == [3_600, 60]


@in_house()
async def test_an_explicit_deadline_wins_over_the_tier(house: House) -> None:
    session = await house.open(tier="pro", deadline_ms=5_000)
    assert house.row(session).deadline_at - house.row(session).created_at == 5_000


@in_house()
async def test_a_command_never_gets_past_the_deadline_of_its_session(house: House) -> None:
    session = await house.open(deadline_ms=10_000)
    with pytest.raises(errors.CommandTimedOut):
        await house.act(session, "hang", timeout_ms=60_000)
    assert house.row(session).deadline_at <= house.now < house.row(session).deadline_at + 100
    with pytest.raises(errors.LeaseLost):
        await house.act(session, "late")
    assert "late" not in [label for _, label in house.sent]


@in_house()
async def test_a_command_that_waits_when_the_deadline_comes_is_never_sent(house: House) -> None:
    session = await house.open(deadline_ms=10_000)
    running = asyncio.ensure_future(house.act(session, "running-hang", timeout_ms=60_000))
    await house.until(lambda: house.page(session).active)
    with pytest.raises(errors.QueueWaitTimedOut):
        await house.act(session, "late", timeout_ms=60_000, wait_policy="wait_with_timeout")
    await asyncio.wait([running])
    assert [label for _, label in house.sent] == ["running-hang"]


@in_house()
async def test_nothing_moves_a_deadline(house: House) -> None:
    session = await house.open(deadline_ms=100_000)
    deadline_at = house.row(session).deadline_at
    for _ in range(4):
        await asyncio.sleep(20)
        assert (await house.beat(session)).expires_at == session.expires_at
        await house.act(session)
    taken = await house.broker.sessions.take_over(ADMIN, session.session_id, "bob")
    assert taken.expires_at == session.expires_at
    await house.lose_browser(taken)
    await house.recovered(taken)
    assert house.row(session).deadline_at == deadline_at


# --- Reading ----------------------------------------------------------------------------------------------------


@in_house()
async def test_an_ended_session_can_still_be_read_with_the_reason(house: House) -> None:
    session = await house.open()
    await house.release(session)
    view = await house.broker.sessions.get(ADA, session.session_id)
    assert (view.state, view.end_reason, view.tabs) == ("closed", "released", [])


@in_house()
async def test_what_the_owner_says_that_it_is_doing_is_shown_and_told_once_until_it_says_something_else(
    house: House,
) -> None:
    session = await house.open()
    sessions, told = house.broker.sessions, house.events.subscribe(types=["session.phase"])
    for phase in ("poll", None, "poll", "watch"):
        await sessions.heartbeat(ADA, session.session_id, wire.Heartbeat(fence=session.fence, phase=phase))
        assert (await sessions.get(ADMIN, session.session_id)).phase == (phase or "poll")
    (listed,) = (await sessions.list(ADA)).sessions
    assert listed.phase == "watch"
    said = {"sessionId": session.session_id, "agentId": "ada"}
    assert [told.take().fields for _ in range(2)] == [said | {"phase": "poll"}, said | {"phase": "watch"}]
    assert told.take() is None


@in_house()
async def test_a_heartbeat_whose_caller_leaves_while_it_is_written_is_known_of(house: House) -> None:
    session = await house.open(reuse="same-agent")
    beating = asyncio.ensure_future(house.beat(session))
    await house.until(lambda: house.row(session).is_beating)
    beating.cancel()
    await house.release(session, disposition="pool")
    assert house.row(session).state is LeaseState.POOLED


@in_house()
async def test_a_new_owner_has_its_whole_time_from_when_it_hears_of_its_session(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = house.broker.opening
    record = opening._record_bound

    async def late(*args: Any) -> Any:
        rows = await record(*args)
        # The store takes so long to answer.
        await asyncio.sleep(100)
        return rows

    monkeypatch.setattr(opening, "_record_bound", late)
    session = await house.open()
    live = house.broker.registry.session(session.session_id)
    assert live is not None
    assert live.seen_at == house.broker.clock()
