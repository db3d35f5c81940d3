"""Tabs that are given back and taken again: who gets which, how clean it is, and what is closed instead."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.house import ADA, ADMIN, BOB, CYD, House, in_house
from tests.sim.fakes import SimTab

from tabherd import errors, wire
from tabherd.broker.opening import Opening
from tabherd.browsers.port import Viewport
from tabherd.core.lifecycle import LeaseState
from tabherd.core.model import Session, Tab

SHARED = {"isolation": "shared"}


async def pooled(house: House, count: int = 1, key: str = "shop", reuse: str = "same-agent") -> list[str]:
    """Put so many tabs of ada into the stock, one after the other: their pages' target ids, oldest first."""
    sessions = [await house.open(key=key, reuse=reuse) for _ in range(count)]
    pages = []
    for session in sessions:
        pages.append(house.tab(session).row.target_id)
        await house.release(session, disposition="pool")
        await asyncio.sleep(1)
    return pages


def target_of(house: House, session: wire.SessionView) -> str:
    return house.tab(session).row.target_id


# --- Taking -----------------------------------------------------------------------------------------------------


@in_house()
async def test_the_tab_that_was_given_back_last_is_taken_first(house: House) -> None:
    pages = await pooled(house, 3)
    taken = [target_of(house, await house.open(key="shop")) for _ in range(3)]
    assert taken == pages[::-1]


@in_house()
async def test_a_checkout_is_a_new_lease_and_the_one_before_is_over(house: House) -> None:
    first = await house.open(key="shop", reuse="same-agent")
    await house.release(first, disposition="pool")
    assert house.row(first).state is LeaseState.POOLED
    second = await house.open(key="shop")
    assert second.session_id != first.session_id
    assert second.fence > first.fence
    assert (house.row(first).state, house.row(first).end_reason) == (LeaseState.CLOSED, "checked_out")
    for stale in (first, second):
        with pytest.raises(errors.TabherdError) as refused:
            await house.act(first, fence=stale.fence)
        assert refused.value.code in ("lease_lost", "tab_not_found")
    assert (await house.act(second, fence=second.fence)).ok


@in_house()
async def test_a_tab_of_another_key_is_not_taken(house: House) -> None:
    (page,) = await pooled(house)
    for key in ("", "bank"):
        assert target_of(house, await house.open(key=key)) != page
    assert house.stats().pooled == 1


@in_house()
async def test_a_page_that_was_kept_for_its_agent_is_for_nobody_else(house: House) -> None:
    (page,) = await pooled(house)
    assert target_of(house, await house.open(BOB, key="shop")) != page
    assert target_of(house, await house.open(ADA, key="shop")) == page


@in_house()
async def test_of_two_takers_one_has_the_tab(house: House) -> None:
    (page,) = await pooled(house)
    one, other = await asyncio.gather(house.open(key="shop"), house.open(key="shop"))
    assert [target_of(house, one), target_of(house, other)].count(page) == 1
    assert target_of(house, one) != target_of(house, other)


@in_house()
async def test_a_dead_tab_is_dropped_and_the_next_one_is_tried(house: House) -> None:
    pages = await pooled(house, 3)
    process = next(iter(house.processes.values()))
    for page in pages[1:]:
        process.targets[page].is_crashed = True  # Without a word: its browser has not noticed.
    session = await house.open(key="shop")
    assert target_of(house, session) == pages[0]
    assert house.stats().pooled == 0
    assert sorted(row.end_reason for row in house.disk.rows(Session) if row.ended_at) == ["checked_out", "dead", "dead"]


@in_house()
async def test_when_all_are_dead_the_caller_gets_a_new_one(house: House) -> None:
    (page,) = await pooled(house)
    next(iter(house.processes.values())).targets[page].is_crashed = True
    session = await house.open(key="shop")
    assert target_of(house, session) != page
    assert (await house.act(session)).ok


@in_house()
async def test_a_page_that_spins_is_not_handed_out(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = await pooled(house, 2)
    spinning = next(iter(house.processes.values())).targets[pages[1]]

    async def ping(tab: SimTab) -> None:
        if tab.target is spinning:
            await house.loop.create_future()

    monkeypatch.setattr(SimTab, "ping", ping)
    began = house.now
    assert target_of(house, await house.open(key="shop")) == pages[0]
    assert house.now - began < 1_500
    assert spinning.is_closed


@in_house(max_active=1)
async def test_a_taker_that_leaves_leaves_the_counts_right(house: House) -> None:
    for after_ms in range(0, 30, 2):
        await house.quiet()
        if not house.stats().pooled:
            await pooled(house)
        opening = asyncio.ensure_future(house.open(key="shop"))
        await asyncio.sleep(after_ms / 1000)
        opening.cancel()
        await asyncio.wait([opening])
        if not opening.cancelled():
            await house.release(opening.result())
        await house.quiet()
        house.check_counts()
        assert house.stats().active == 0


@in_house()
async def test_a_taker_whose_reservation_fails_leaves_the_tab_in_the_stock(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    (page,) = await pooled(house)

    async def fail(*_: object) -> None:
        raise errors.StoreUnavailable("the disk is full", cause="full")

    with monkeypatch.context() as broken:
        broken.setattr(Opening, "_reserve", fail)
        with pytest.raises(errors.StoreUnavailable):
            await house.open(key="shop")
    assert (house.stats().pooled, house.stats().active) == (1, 0)
    assert target_of(house, await house.open(key="shop")) == page


# --- How clean it is --------------------------------------------------------------------------------------------


@in_house()
async def test_by_default_a_fresh_context_takes_the_used_ones_place(house: House) -> None:
    session = await house.open(key="shop", viewport=wire.Viewport(width=300, height=200))
    await house.goto(session, "https://shop.test/account")
    used = house.page(session)
    used.context.cookies.append({"name": "login"})
    used.context.local_storage["https://shop.test"] = {"cart": "3"}
    await house.release(session, disposition="pool")
    assert used.is_closed
    assert house.stats().pooled == 1
    for caller in (BOB, ADA):
        taken = await house.open(caller, key="shop")
        page = house.page(taken)
        assert page is not used
        assert (page.context.cookies, page.context.local_storage, page.url) == ([], {}, "about:blank")
        assert page.viewport is None
        assert taken.tabs[0].url == "about:blank"
        await house.release(taken, caller, disposition="pool")


@in_house()
async def test_nobody_can_have_the_tab_while_it_is_not_clean_yet(house: House) -> None:
    session = await house.open(key="shop")
    used = house.page(session)
    releasing = asyncio.ensure_future(house.release(session, disposition="pool"))
    taken = await house.open(BOB, key="shop")
    await releasing
    assert house.page(taken).context is not used.context


@in_house()
async def test_with_same_agent_the_page_is_as_it_was(house: House) -> None:
    session = await house.open(key="shop", reuse="same-agent")
    await house.goto(session, "https://shop.test/cart")
    house.page(session).context.cookies.append({"name": "login"})
    await house.release(session, disposition="pool")
    again = await house.open(key="shop", reuse="same-agent")
    assert again.tabs[0].url == "https://shop.test/cart"
    assert house.page(again).context.cookies == [{"name": "login"}]


@in_house(**SHARED)
async def test_in_a_shared_pool_a_release_pools_and_the_page_stays_for_the_next_of_its_key(house: House) -> None:
    session = await house.open(key="shop")
    await house.goto(session, "https://shop.test/cart")
    page = house.page(session)
    await house.release(session)
    assert house.row(session).state is LeaseState.POOLED
    other = await house.open(BOB, key="bank")
    assert house.page(other) is not page
    taken = await house.open(BOB, key="shop")
    assert house.page(taken) is page
    assert taken.tabs[0].url == "https://shop.test/cart"


@in_house(**SHARED)
async def test_in_a_shared_pool_close_closes_the_tab(house: House) -> None:
    session = await house.open(key="shop")
    await house.release(session, disposition="close")
    assert house.pages == []
    assert house.stats().pooled == 0


@in_house()
async def test_elsewhere_a_release_closes_unless_told_otherwise(house: House) -> None:
    session = await house.open(key="shop")
    await house.release(session)
    assert house.row(session).state is LeaseState.CLOSED
    assert house.stats().pooled == 0


@in_house()
async def test_a_pooled_tab_gets_the_size_that_its_next_holder_asks_for(house: House) -> None:
    await pooled(house)
    session = await house.open(key="shop", viewport=wire.Viewport(width=640, height=480))
    assert house.page(session).viewport == Viewport(width=640, height=480)


@in_house()
async def test_of_several_tabs_one_is_kept_and_popups_are_closed(house: House) -> None:
    session = await house.open(key="shop", reuse="same-agent")
    popup = house.popup(session)
    await house.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab())
    await house.quiet()
    assert house.stats().tabs == 3
    await house.release(session, disposition="pool")
    assert popup.is_closed
    assert (house.stats().pooled, house.stats().tabs, len(house.pages)) == (1, 1, 1)


@in_house()
async def test_a_tab_with_a_command_at_work_is_closed_instead(house: House) -> None:
    session = await house.open(key="shop", reuse="same-agent")
    running = asyncio.ensure_future(house.act(session, "hang"))
    await house.until(lambda: house.page(session).active)
    await house.release(session, disposition="pool")
    with pytest.raises(errors.LeaseLost):
        await running
    assert house.row(session).state is LeaseState.CLOSED
    assert house.pages == []


@in_house()
async def test_of_a_session_at_work_in_another_tab_nothing_is_kept(house: House) -> None:
    session = await house.open(key="shop", reuse="same-agent")
    other = await house.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab())
    running = asyncio.ensure_future(house.broker.commands.run(ADA, other.tab_id, wire.Evaluate(expression="hang")))
    await house.until(lambda: any(page.active for page in house.pages))
    await house.release(session, disposition="pool")
    with pytest.raises(errors.LeaseLost):
        await running
    assert (house.stats().pooled, house.pages) == (0, [])


@in_house()
async def test_a_session_whose_browser_is_gone_is_closed_instead(house: House) -> None:
    session = await house.open(key="shop", reuse="same-agent")
    house.process(session).die("killed")
    await house.until(lambda: house.live(session).browser is None)
    await house.release(session, disposition="pool")
    assert house.row(session).state is LeaseState.CLOSED


# --- What does not fit ------------------------------------------------------------------------------------------


@in_house(max_pooled=10, max_pooled_per_key=2)
async def test_over_the_cap_of_its_key_the_oldest_is_closed(house: House) -> None:
    bank = await pooled(house, 1, "bank")
    pages = await pooled(house, 4)
    assert house.stats().pooled == 3
    assert sorted(page.target_id for page in house.pages) == sorted(bank + pages[2:])


@in_house(max_pooled=3, max_pooled_per_key=2)
async def test_over_the_cap_of_the_pool_the_oldest_of_all_is_closed(house: House) -> None:
    shop = await pooled(house, 2, "shop")
    bank = await pooled(house, 2, "bank")
    assert house.stats().pooled == 3
    assert sorted(page.target_id for page in house.pages) == sorted(shop[1:] + bank)


@in_house(max_pooled=2, max_pooled_per_key=2)
async def test_many_that_are_given_back_at_once_stay_within_the_caps(house: House) -> None:
    sessions = [await house.open(key="shop") for _ in range(6)]
    await asyncio.gather(*(house.release(session, disposition="pool") for session in sessions))
    await house.quiet()
    assert (house.stats().pooled, house.stats().active, len(house.pages)) == (2, 0, 2)


@in_house(pooled_ttl_s=60)
async def test_a_tab_that_nobody_wants_is_closed_after_its_time(house: House) -> None:
    await pooled(house, 2)
    assert await house.until(lambda: house.stats().pooled == 1) <= 60_000
    assert await house.until(lambda: house.stats().pooled == 0) == pytest.approx(1_000, abs=100)
    await house.quiet()
    assert house.pages == []
    assert house.disk.rows(Tab) == []


@in_house(max_active=2, sessions_per_browser=2)
async def test_a_tab_that_was_pooled_makes_room_for_a_caller_of_another_key(house: House) -> None:
    pages = await pooled(house, 2)
    session = await house.open(BOB, key="bank", wait_ms=0)
    assert (await house.act(session, caller=BOB)).ok
    assert house.stats().pooled == 1
    assert [page.target_id for page in house.pages if page.target_id in pages] == pages[1:]


# --- Browsers that go -------------------------------------------------------------------------------------------


@in_house()
async def test_a_page_that_dies_in_the_stock_is_gone_at_once(house: House) -> None:
    (page,) = await pooled(house)
    process = next(iter(house.processes.values()))
    process.crash_page(process.targets[page])
    await house.quiet()
    assert house.stats().pooled == 0
    assert house.disk.rows(Tab) == []


@pytest.mark.parametrize("how", ["drained", "restarted", "killed"])
@in_house()
async def test_nothing_waits_in_a_browser_that_goes(house: House, how: str) -> None:
    await pooled(house, 3)
    old = house.ready_id
    if how == "drained":
        house.operations.drain_browser(ADMIN, old)
    elif how == "restarted":
        house.operations.restart_browser(ADMIN, old)
    else:
        house.processes[old].die("killed")
    await house.replaced(old)
    await house.quiet()
    assert (house.stats().pooled, house.stats().tabs) == (0, 0)
    assert (await house.act(await house.open(key="shop"))).ok


@in_house()
async def test_what_is_given_back_in_a_draining_browser_is_closed(house: House) -> None:
    session = await house.open(CYD, key="shop")
    house.operations.drain_browser(ADMIN, house.ready_id)
    await house.release(session, CYD, disposition="pool")
    assert house.row(session).state is LeaseState.CLOSED


@in_house()
async def test_a_browser_that_dies_while_a_tab_is_given_back_leaves_nothing(house: House) -> None:
    for after_ms in range(0, 30, 2):
        session = await house.open(key="shop")
        process = house.process(session)
        releasing = asyncio.ensure_future(house.release(session, disposition="pool"))
        await asyncio.sleep(after_ms / 1000)
        process.die("killed")
        await releasing
        await house.replaced(process.row.id)
        await house.quiet()
        house.check_counts()
        assert (house.stats().pooled, house.stats().active) == (0, 0)
