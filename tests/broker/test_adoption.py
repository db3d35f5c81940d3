"""A broker that starts again: what it finds, what it takes up, what it brings back and what it clears away."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.house import ADA, ADMIN, BOB, House, Socket, in_house

from tabherd import errors, wire
from tabherd.browsers.port import Viewport
from tabherd.core.lifecycle import LeaseState
from tabherd.core.model import Session, Tab

PATIENT = {"breaker_crashes": 1_000}


async def logged_in(house: House, **request: object) -> wire.SessionView:
    session = await house.open(**request)
    await house.goto(session, "https://shop.test/cart")
    house.page(session).context.cookies.append({"name": "login"})
    house.page(session).context.local_storage["https://shop.test"] = {"cart": "3"}
    await house.act(session)
    await asyncio.sleep(6)
    return session


def assert_logged_in(house: House, session: wire.SessionView) -> None:
    page = house.page(session)
    assert page.url == "https://shop.test/cart"
    assert page.context.cookies == [{"name": "login"}]
    assert page.context.local_storage == {"https://shop.test": {"cart": "3"}}


# --- Browsers that ran on ---------------------------------------------------------------------------------------


@in_house()
async def test_a_session_goes_on_under_the_same_ids_fence_and_page(house: House) -> None:
    session = await logged_in(house, viewport=wire.Viewport(width=300, height=200))
    page, generation = house.page(session), house.tab(session).row.generation
    page.viewport = None  # It was the old connection's, and is gone with it.
    await house.kill()
    assert house.page(session) is page
    assert page.viewport == Viewport(width=300, height=200)
    assert (house.tab(session).row.generation, house.row(session).fence) == (generation, session.fence)
    assert (await house.act(session, fence=session.fence)).ok
    assert ("session_recovered", "broker_restarted") in list(house.news())
    house.check_counts()


@in_house()
async def test_what_the_old_broker_still_tries_has_no_effect(house: House) -> None:
    session = await house.open()
    old = house.broker
    await house.kill()
    late = asyncio.ensure_future(old.sessions.release(ADA, session.session_id))
    await asyncio.sleep(10)
    assert not late.done()
    assert (await house.act(session)).ok


@in_house()
async def test_a_pooled_tab_is_still_there_for_the_next_of_its_key(house: House) -> None:
    session = await house.open(key="shop", reuse="same-agent")
    page = house.page(session)
    await house.release(session, disposition="pool")
    await house.kill()
    house.check_counts()
    assert house.stats().pooled == 1
    again = await house.open(key="shop")
    assert house.page(again) is page
    assert again.fence > session.fence


@in_house(max_active=2)
async def test_what_was_taken_up_counts_against_the_caps(house: House) -> None:
    one = await house.open()
    await house.open(BOB)
    await house.kill()
    with pytest.raises(errors.Capacity):
        await house.open(wait_ms=0)
    await house.release(one)
    await house.open(wait_ms=0)


@in_house()
async def test_killed_at_any_moment_of_an_opening_nothing_is_left_but_what_the_caller_was_told(house: House) -> None:
    for after_ms in range(0, 40, 2):
        opening = asyncio.ensure_future(house.open())
        await asyncio.sleep(after_ms / 1000)
        await house.kill()
        await house.quiet()
        house.check_counts()
        if opening.done():
            await house.release(opening.result())
        else:
            # Its row may be there with a session that nobody knows of: it ends like any that is silent.
            await house.until(lambda: not house.stats().active, 1_000)
        await house.quiet()
        assert (house.pages, house.disk.rows(Tab), house.disk.counters()) == ([], [], {})


@in_house()
async def test_killed_at_any_moment_of_a_release_nothing_is_left(house: House) -> None:
    # Those whose broker was killed are never answered.
    asked: list[asyncio.Future[None]] = []
    for after_ms in range(0, 30, 2):
        session = await house.open(key="shop")
        disposition = "pool" if after_ms % 4 else "close"
        asked.append(asyncio.ensure_future(house.release(session, disposition=disposition)))
        await asyncio.sleep(after_ms / 1000)
        await house.kill()
        await house.quiet()
        house.check_counts()
        if house.is_bound(session):
            await house.release(session)
        house.broker._pooling.evict_on(house.ready_id)
        await house.quiet()
        assert (house.pages, house.disk.rows(Tab), house.disk.counters()) == ([], [], {})


@in_house()
async def test_a_context_that_no_row_knows_is_disposed_of(house: House) -> None:
    session = await house.open()
    process = house.process(session)
    browser = house.live(session).browser
    assert browser is not None
    stray = await browser.new_context()
    await house.kill()
    assert stray not in process.contexts
    assert (await house.act(session)).ok


@in_house()
async def test_a_page_that_was_gone_is_opened_again(house: House) -> None:
    session = await logged_in(house)
    process, page = house.process(session), house.page(session)
    process.listener = None  # Nobody hears of it.
    process.close_page(page)
    await house.kill()
    await house.until(lambda: house.tab(session).row.generation == 2)
    assert_logged_in(house, session)


@in_house()
async def test_a_page_in_which_a_command_was_at_work_is_replaced_and_its_outcome_is_unknown(house: House) -> None:
    session = await logged_in(house)
    page = house.page(session)
    started: list[str] = []
    running = asyncio.ensure_future(
        house.broker.commands.run(
            ADA,
            session.tabs[0].tab_id,
            wire.Evaluate(expression="hang"),
            lambda command_id, _: started.append(command_id),
        )
    )
    await house.until(lambda: page.active)
    await house.kill()
    assert not running.done()
    assert (await house.act(session, "next", wait_policy="wait_with_timeout")).ok
    assert page.is_closed
    assert house.tab(session).row.generation == 2
    assert (await house.broker.commands.get(ADA, started[0])).outcome == "outcome_unknown"


@in_house()
async def test_a_page_that_the_sessions_own_page_opened_meanwhile_is_its_own(house: House) -> None:
    session = await house.open()
    house._lives[-1].is_dead = True
    popup = house.popup(session)
    await house.kill()
    await house.quiet()
    views = house.broker.tabs.list(ADA).tabs
    assert sorted(view.provenance for view in views) == ["created", "popup"]
    await house.release(session)
    assert popup.is_closed


@in_house()
async def test_a_person_keeps_the_tab_over_a_restart(house: House) -> None:
    session = await house.open()
    tab_id = session.tabs[0].tab_id
    await house.broker.tabs.hand_off(ADA, tab_id, "alice")
    await house.kill()
    with pytest.raises(errors.TabPausedHandoff):
        await house.act(session)
    await house.broker.tabs.resume(ADA, tab_id)
    assert (await house.act(session)).ok


@in_house(**PATIENT)
async def test_what_was_kept_of_a_session_is_still_kept_and_goes_on_being_kept(house: House) -> None:
    session = await logged_in(house)
    await house.kill()
    await house.goto(session, "https://bank.test/")
    house.page(session).context.local_storage["https://bank.test"] = {"pin": "1"}
    await house.act(session)
    await asyncio.sleep(6)
    await house.lose_browser(session)
    await house.recovered(session)
    context = house.page(session).context
    assert context.cookies == [{"name": "login"}]
    assert context.local_storage == {"https://shop.test": {"cart": "3"}, "https://bank.test": {"pin": "1"}}


# --- Silence ----------------------------------------------------------------------------------------------------


@in_house()
async def test_the_time_without_a_broker_is_nobodys_silence(house: House) -> None:
    session = await house.open()
    await house.beat(session)
    await asyncio.sleep(100)
    house._lives[-1].is_dead = True
    await asyncio.sleep(300)
    await house.kill()
    await asyncio.sleep(100)
    assert (await house.beat(session)).fence == session.fence


@in_house()
async def test_a_session_that_lived_by_its_sockets_waits_for_them_to_come_back(house: House) -> None:
    sessions = [await house.open() for _ in range(2)]
    for session in sessions:
        await house.broker.sessions.connect(house.live(session), "old", Socket())
    await house.kill()
    await house.broker.sessions.connect(house.live(sessions[0]), "new", Socket())
    assert 9_000 < await house.until(lambda: house.row(sessions[1]).ended_at) < 11_000
    assert (await house.act(sessions[0])).ok


@in_house()
async def test_an_owner_that_died_while_there_was_no_broker_is_noticed(house: House) -> None:
    pid = house.new_pid()
    session = await house.open(owner=wire.Owner(pid=pid))
    alive = await house.open(BOB, owner=wire.Owner(pid=house.new_pid()))
    house._lives[-1].is_dead = True
    house.pids.discard(pid)
    await house.kill()
    await house.until(lambda: house.row(session).ended_at, 10)
    assert house.row(session).end_reason == "owner_dead"
    await asyncio.sleep(600)
    assert (await house.act(alive, caller=BOB)).ok


@in_house()
async def test_that_silence_counts_from_the_start_of_a_broker_is_no_sign_of_an_owner_that_is_dead(house: House) -> None:
    """The proof may be a millisecond older than that."""
    pid = house.new_pid()
    session = await house.open(owner=wire.Owner(pid=pid))
    house.pids.discard(pid)
    await house.kill()
    live = house.live(session)
    live.seen_at = house.broker.clock() + 1
    await house.until(lambda: house.row(session).ended_at, 10)
    assert house.row(session).end_reason == "owner_dead"


@in_house()
async def test_a_deadline_that_passed_meanwhile_is_not_set_anew(house: House) -> None:
    session = await house.open(deadline_ms=50_000, keep_alive=True)
    deadline_at = house.row(session).deadline_at
    house._lives[-1].is_dead = True
    await asyncio.sleep(60)
    await house.kill()
    with pytest.raises(errors.LeaseLost):
        await house.act(session)
    await house.until(lambda: house.row(session).ended_at)
    assert house.row(session).end_reason == "deadline"
    assert house.row(session).deadline_at == deadline_at


# --- Browsers that are gone -------------------------------------------------------------------------------------


@in_house(**PATIENT)
async def test_broker_and_browser_killed_together_the_session_comes_back_from_its_checkpoint(house: House) -> None:
    session = await logged_in(house, viewport=wire.Viewport(width=300, height=200))
    house._lives[-1].is_dead = True
    house.process(session).die("killed")
    await house.kill()
    await house.until(lambda: house.is_bound(session) and house.live(session).browser)
    await house.quiet()
    assert_logged_in(house, session)
    assert house.page(session).viewport == Viewport(width=300, height=200)
    assert (house.tab(session).row.generation, house.row(session).fence) == (2, session.fence)
    assert (await house.act(session, fence=session.fence)).ok


@in_house(**PATIENT)
async def test_an_orderly_stop_keeps_sessions_for_the_next_start(house: House) -> None:
    session = await logged_in(house)
    house.page(session).context.cookies.append({"name": "last", "value": "minute"})
    await house.restart()
    assert house.is_bound(session)
    await house.until(lambda: house.live(session).browser)
    await house.quiet()
    assert house.page(session).context.cookies == [{"name": "login"}, {"name": "last", "value": "minute"}]
    assert house.page(session).url == "https://shop.test/cart"
    assert (await house.act(session, fence=session.fence)).ok


@in_house(**PATIENT)
async def test_a_pooled_tab_whose_browser_is_gone_is_settled(house: House) -> None:
    session = await house.open(key="shop")
    await house.release(session, disposition="pool")
    await house.restart()
    assert house.row(session).state is LeaseState.CLOSED
    house.check_counts()


@in_house(**PATIENT)
async def test_a_session_whose_deadline_passed_is_not_brought_back(house: House) -> None:
    session = await house.open(deadline_ms=50_000, keep_alive=True)
    await house.broker.stop()
    await asyncio.sleep(60)
    house._begin()
    await house.broker.start()
    assert not house.is_bound(session)
    assert house.row(session).end_reason == "deadline"


@pytest.mark.parametrize("after_ms", range(0, 240, 20))
@in_house(**PATIENT)
async def test_killed_in_the_middle_of_a_recovery_the_next_life_ends_it(house: House, after_ms: int) -> None:
    session = await logged_in(house)
    await house.lose_browser(session)
    await asyncio.sleep(after_ms / 1000)
    await house.kill()
    await house.until(lambda: house.is_bound(session) and house.live(session).browser)
    await house.quiet()
    assert_logged_in(house, session)
    assert house.row(session).fence == session.fence
    house.check_counts()


@in_house(**PATIENT)
async def test_a_stale_fence_is_stale_in_the_next_life_too(house: House) -> None:
    session = await house.open()
    taken = await house.broker.sessions.take_over(ADMIN, session.session_id, "bob")
    await house.kill()
    with pytest.raises(errors.LeaseLost):
        await house.release(session, fence=session.fence)
    fresh = await house.open()
    assert fresh.fence > taken.fence
    assert len([row for row in house.disk.rows(Session) if row.state is LeaseState.ACTIVE]) == 2
