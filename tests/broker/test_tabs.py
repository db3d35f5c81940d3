"""The tabs of a session: opening and closing, popups, borrowed ones, and tabs that a person takes over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.herd import Herd, in_herd
from tests.broker.house import ADA, ADMIN, BOB, House, in_house
from tests.sim.fakes import Target

from tabherd import errors, wire
from tabherd.broker.tabs import TABS_PER_SESSION_MAX
from tabherd.browsers.port import TabGone, TabPort, Viewport
from tabherd.core.lifecycle import TabState
from tabherd.core.model import Tab
from tabherd.store.base import IN_DOUBT, Insert, Op, Outcome

SHARED = {"isolation": "shared"}


async def open_tab(house: House, session: wire.SessionView, **request: str) -> wire.TabView:
    return await house.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab(**request))


async def tabs_of(house: House, session: wire.SessionView) -> list[str]:
    await house.quiet()
    return [tab.tab_id for tab in (await house.broker.tabs.of_session(ADA, session.session_id)).tabs]


async def popup_of(house: House, session: wire.SessionView) -> tuple[wire.TabView, Target]:
    page = house.popup(session)
    await house.quiet()
    views = house.broker.tabs.list(ADA).tabs
    return next(view for view in views if view.provenance == "popup"), page


# --- Opening and closing ----------------------------------------------------------------------------------------


@in_house()
async def test_a_tab_is_opened_at_an_address_and_closed_again(house: House) -> None:
    session = await house.open(viewport=wire.Viewport(width=300, height=200))
    tab = await open_tab(house, session, url="https://shop.test/")
    assert (tab.url, tab.provenance, tab.state, tab.generation) == ("https://shop.test/", "created", "ready", 1)
    assert await tabs_of(house, session) == [session.tabs[0].tab_id, tab.tab_id]
    assert {page.viewport for page in house.pages} == {Viewport(width=300, height=200)}
    await house.broker.commands.run(ADA, tab.tab_id, wire.Close())
    assert await tabs_of(house, session) == [session.tabs[0].tab_id]
    assert len(house.pages) == 1
    with pytest.raises(errors.TabNotFound):
        house.broker.tabs.get(ADA, tab.tab_id)


@in_house()
async def test_a_tab_whose_first_page_cannot_be_opened_is_closed_again(house: House) -> None:
    session = await house.open()

    async def fail(*_: object) -> None:
        raise errors.NavigationFailed("The site is down.")

    house.broker.commands._performing._perform = fail
    with pytest.raises(errors.NavigationFailed):
        await open_tab(house, session, url="https://shop.test/")
    assert await tabs_of(house, session) == [session.tabs[0].tab_id]
    assert house.stats().tabs == 1


@in_house()
async def test_a_tab_is_written_down_before_commands_can_find_it(house: House) -> None:
    session = await house.open()

    def look() -> bool:
        stored = {tab.id for tab in house.disk.rows(Tab)}
        assert {tab.row.id for tab in house.broker._registry.tabs} <= stored
        return False

    house.loop.watches.append(look)
    for _ in range(3):
        await open_tab(house, session)
    house.popup(session)
    assert len(await tabs_of(house, session)) == 5
    house.loop.watches.remove(look)


@in_house()
async def test_whoever_waits_for_a_tab_that_is_closed_hears_that_it_is_gone(house: House) -> None:
    session = await house.open()
    await open_tab(house, session)
    running = asyncio.ensure_future(house.act(session, "first-held"))
    await house.until(lambda: house.page(session).active)
    closing = asyncio.ensure_future(
        house.broker.commands.run(ADA, session.tabs[0].tab_id, wire.Close(wait_policy="wait_with_timeout"))
    )
    await asyncio.sleep(1)
    waiting = asyncio.ensure_future(house.act(session, "late", wait_policy="wait_with_timeout"))
    await asyncio.sleep(1)
    house.finish("first-held")
    assert (await running).ok
    assert (await closing).ok
    with pytest.raises(errors.TabNotFound):
        await waiting
    assert [label for _, label in house.sent] == ["first-held"]


@in_house()
async def test_a_tab_can_be_opened_in_no_session_of_another(house: House) -> None:
    session = await house.open()
    with pytest.raises(errors.SessionNotFound):
        await house.broker.commands.open_tab(BOB, session.session_id, wire.OpenTab())
    assert house.stats().tabs == 1


# --- Popups -----------------------------------------------------------------------------------------------------


@in_house()
async def test_a_popup_belongs_to_the_session_that_caused_it_and_counts(house: House) -> None:
    session = await house.open()
    other = await house.open(BOB)
    view, page = await popup_of(house, session)
    assert (view.session_id, view.opener_tab_id) == (session.session_id, session.tabs[0].tab_id)
    assert (view.url, view.state) == ("https://shop.test/pop", "ready")
    assert house.stats().tabs == 3
    assert (await house.broker.commands.run(ADA, view.tab_id, wire.Evaluate(expression="in popup"))).ok
    assert house.sent == [(page.target_id, "in popup")]
    with pytest.raises(errors.TabNotFound):
        await house.broker.commands.run(BOB, view.tab_id, wire.Evaluate(expression="not mine"))
    await house.release(session)
    assert page.is_closed
    assert [page.target_id for page in house.pages] == [house.page(other).target_id]


@pytest.mark.parametrize(
    ("is_opened", "is_answered", "is_left"), [(True, False, False), (True, True, True), (False, False, True)]
)
@in_house()
async def test_a_popup_that_does_not_answer_is_closed_unless_a_client_sees_to_it(
    house: House, is_opened: bool, is_answered: bool, is_left: bool
) -> None:
    session = await house.open()
    browser, opener = house.live(session).browser, house.page(session)
    assert browser is not None

    async def does_not_answer(target_id: str) -> TabPort:
        raise TabGone("The page exists but does not answer.", was_sent=False)

    browser.attach_tab = does_not_answer  # type: ignore[method-assign]
    if is_answered:
        house.broker._registry.take_dialogs(opener.target_id)
    opener_id = opener.target_id if is_opened else ""
    process = house.process(session)
    page = process.open_page("new", opener.context, "https://shop.test/pop", opener_id)
    if not is_opened:
        # As Chromium tells of one that a client made; the fake takes it for a person's.
        assert process.listener is not None
        process.listener.page_opened(process.describe(page))
    await house.quiet()
    assert len(house.live(session).tabs) == 1
    assert page.is_closed is not is_left


@in_house()
async def test_windows_that_a_timed_out_command_opened_go_with_its_page_and_older_ones_stay(house: House) -> None:
    session = await house.open()
    older, _ = await popup_of(house, session)
    running = asyncio.create_task(house.act(session, "hang", timeout_ms=500))
    await asyncio.sleep(0.1)
    house.popup(session)
    await house.until(lambda: len(house.live(session).tabs) == 3)
    with pytest.raises(errors.CommandTimedOut):
        await running
    await house.until(lambda: len(house.live(session).tabs) == 2)
    assert older.tab_id in house.live(session).tabs


@in_house(**SHARED)
async def test_in_a_shared_profile_the_opener_says_whose_popup_it_is(house: House) -> None:
    mine, theirs = await house.open(), await house.open(BOB)
    _, page = await popup_of(house, mine)
    process = house.process(mine)
    process.open_page("user-1", process.profile, "https://mail.test/", "not-ours")
    assert len(await tabs_of(house, mine)) == 2
    assert len(house.live(theirs).tabs) == 1
    await house.release(mine, disposition="close")
    assert page.is_closed
    assert not process.targets["user-1"].is_closed


@in_house(max_tabs=2, max_active=1)
async def test_a_popup_that_the_pool_has_no_room_for_is_closed(house: House) -> None:
    session = await house.open()
    first, second = house.popup(session), house.popup(session)
    assert len(await tabs_of(house, session)) == 2
    assert [first.is_closed, second.is_closed].count(True) == 1
    assert house.stats().tabs == 2


@in_house()
async def test_a_session_that_opens_windows_without_end_is_stopped(house: House) -> None:
    session = await house.open()
    for _ in range(TABS_PER_SESSION_MAX + 10):
        house.popup(session)
    assert len(await tabs_of(house, session)) == TABS_PER_SESSION_MAX
    assert len(house.pages) == TABS_PER_SESSION_MAX


@pytest.mark.parametrize("after_ms", [0, 1, 2, 4, 6, 8, 10, 15, 20])
@in_house()
async def test_a_popup_that_closes_itself_at_once_leaves_nothing(house: House, after_ms: int) -> None:
    session = await house.open()
    popup = house.popup(session)
    await asyncio.sleep(after_ms / 1000)
    house.process(session).close_page(popup)
    assert await tabs_of(house, session) == [session.tabs[0].tab_id]
    assert house.stats().tabs == 1
    assert len(house.disk.rows(Tab)) == 1


@in_house()
async def test_a_popup_that_comes_when_the_session_ends_leaves_nothing(house: House) -> None:
    for after_ms in range(0, 16, 2):
        session = await house.open()
        releasing = asyncio.ensure_future(house.release(session))
        await asyncio.sleep(after_ms / 1000)
        if house.is_bound(session) and house.tab(session).row.target_id in house.process(session).targets:
            house.popup(session)
        await releasing
        await house.quiet()
        assert (house.pages, house.disk.rows(Tab), house.stats().tabs) == ([], [], 0)


@in_house()
async def test_a_page_that_closes_itself_is_one_tab_less_and_no_reason_to_open_it_again(house: House) -> None:
    session = await house.open()
    view, page = await popup_of(house, session)
    running = asyncio.ensure_future(
        house.broker.commands.run(ADA, view.tab_id, wire.Evaluate(expression="in popup-held"))
    )
    await house.until(lambda: page.active)
    house.process(session).close_page(page)
    with pytest.raises(errors.TabherdError) as ended:
        await running
    assert ended.value.code in ("lease_lost", "outcome_unknown", "tab_not_found")
    assert await tabs_of(house, session) == [session.tabs[0].tab_id]
    assert ("tab.closed", "closed_by_page") in list(house.news())
    assert (await house.act(session)).ok


@in_house()
async def test_a_popup_that_crashes_is_rebuilt_as_the_popup_that_it_is(house: House) -> None:
    session = await house.open()
    view, page = await popup_of(house, session)
    house.process(session).crash_page(page)
    await house.quiet()
    again = house.broker.tabs.get(ADA, view.tab_id)
    assert (again.provenance, again.generation, again.url) == ("popup", 2, "https://shop.test/pop")


@in_house()
async def test_where_a_page_goes_by_itself_is_seen(house: House) -> None:
    session = await house.open()
    house.process(session).move_page(house.page(session), "https://shop.test/next", "Next")
    view = house.broker.tabs.get(ADA, session.tabs[0].tab_id)
    assert (view.url, view.title) == ("https://shop.test/next", "Next")


# --- Borrowed tabs ----------------------------------------------------------------------------------------------


def users_tab(house: House, session: wire.SessionView, name: str, url: str) -> Target:
    process = house.process(session)
    return process.open_page(name, process.profile, url)


@pytest.mark.parametrize("end", ["close the tab", "release", "release into the pool", "stop"])
@in_house(**SHARED)
async def test_a_borrowed_tab_is_driven_and_then_let_go_never_closed(house: House, end: str) -> None:
    session = await house.open()
    page = users_tab(house, session, "mail", "https://mail.test/inbox")
    tab = await open_tab(house, session, borrow="mail.test")
    assert (tab.provenance, tab.url) == ("borrowed", "https://mail.test/inbox")
    assert (await house.broker.commands.run(ADA, tab.tab_id, wire.Evaluate(expression="read"))).ok
    assert house.sent == [("mail", "read")]
    match end:
        case "close the tab":
            await house.broker.commands.run(ADA, tab.tab_id, wire.Close())
        case "release":
            await house.release(session, disposition="close")
        case "release into the pool":
            await house.release(session, disposition="pool")
        case "stop":
            await house.broker.stop()
    assert not page.is_closed


@in_house(**SHARED)
async def test_an_ambiguous_name_is_answered_with_the_candidates(house: House) -> None:
    session = await house.open()
    for folder in ("inbox", "sent"):
        users_tab(house, session, folder, f"https://mail.test/{folder}")
    with pytest.raises(errors.AmbiguousTarget) as ambiguous:
        await open_tab(house, session, borrow="mail.test")
    candidates = ambiguous.value.details["candidates"]
    assert [page["url"] for page in candidates] == ["https://mail.test/inbox", "https://mail.test/sent"]
    with pytest.raises(errors.TabNotFound):
        await open_tab(house, session, borrow="bank.test")
    assert house.stats().tabs == 1


@in_house(**SHARED)
async def test_what_a_session_has_cannot_be_borrowed_by_another(house: House) -> None:
    mine, theirs = await house.open(), await house.open(BOB)
    await house.goto(theirs, "https://bank.test/", BOB)
    with pytest.raises(errors.TabNotFound):
        await open_tab(house, mine, borrow="bank.test")
    users_tab(house, mine, "mail", "https://mail.test/inbox")
    await house.broker.commands.open_tab(BOB, theirs.session_id, wire.OpenTab(borrow="mail"))
    with pytest.raises(errors.TabNotFound):
        await open_tab(house, mine, borrow="mail")


@in_house()
async def test_where_contexts_are_private_there_is_nothing_to_borrow(house: House) -> None:
    session = await house.open()
    users_tab(house, session, "mail", "https://mail.test/inbox")
    with pytest.raises(errors.InvalidRequest):
        await open_tab(house, session, borrow="mail")
    with pytest.raises(errors.InvalidRequest):
        await open_tab(house, session, borrow="mail", url="https://shop.test/")
    assert house.stats().tabs == 1


# --- Handoff ----------------------------------------------------------------------------------------------------


@in_house()
async def test_while_a_person_has_the_tab_agents_are_refused_or_wait_and_then_go_on_in_order(house: House) -> None:
    session = await house.open()
    tab_id = session.tabs[0].tab_id
    view = await house.broker.tabs.hand_off(ADA, tab_id, "alice")
    assert view.holder is not None
    assert (view.state, view.holder.reason, view.holder.controller_id) == ("paused", "handoff", "alice")
    with pytest.raises(errors.TabPausedHandoff) as paused:
        await house.act(session, "hasty")
    assert paused.value.details["holder"] == "alice"
    waiting = [
        asyncio.ensure_future(house.act(session, f"{n}", wait_policy="wait_with_timeout", timeout_ms=600_000))
        for n in range(3)
    ]
    await asyncio.sleep(300)
    assert house.sent == []
    await house.broker.tabs.resume(ADA, tab_id)
    assert all(answer.ok for answer in await asyncio.gather(*waiting))
    assert [label for _, label in house.sent] == ["0", "1", "2"]


@in_house()
async def test_what_runs_when_a_person_takes_the_tab_finishes_first(house: House) -> None:
    session = await house.open()
    running = asyncio.ensure_future(house.act(session, "running-held"))
    await house.until(lambda: house.page(session).active)
    await house.broker.tabs.hand_off(ADA, session.tabs[0].tab_id, None)
    house.finish("running-held")
    assert (await running).ok
    with pytest.raises(errors.TabPausedHandoff):
        await house.act(session)


@in_house()
async def test_a_command_that_was_never_proven_stopped_costs_the_page_only_when_the_person_is_done(
    house: House,
) -> None:
    session = await house.open()
    tab_id, page = session.tabs[0].tab_id, house.page(session)
    running = asyncio.ensure_future(house.act(session, "hang", timeout_ms=5_000))
    await house.until(lambda: page.active)
    await house.broker.tabs.hand_off(ADA, tab_id, "alice")
    with pytest.raises(errors.CommandTimedOut):
        await running
    await asyncio.sleep(60)
    assert not page.is_closed, "it was replaced under the person's hands"
    await house.broker.tabs.resume(ADA, tab_id)
    assert (await house.act(session, "next", wait_policy="wait_with_timeout")).ok
    assert page.is_closed


@in_house()
async def test_a_command_that_ends_unproven_while_a_handoff_fails_costs_the_page_before_the_next_one(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await house.open()
    tab_id, page = session.tabs[0].tab_id, house.page(session)
    running = asyncio.ensure_future(house.act(session, "hang", timeout_ms=5_000))
    await house.until(lambda: page.active)
    waiting = asyncio.ensure_future(house.act(session, "next", wait_policy="wait_with_timeout", timeout_ms=60_000))

    async def slow_and_broken(*_: Any) -> Any:
        with pytest.raises(errors.CommandTimedOut):
            await running
        raise errors.StoreUnavailable("The disk is full.", retry_after_ms=1_000)

    with monkeypatch.context() as patch:
        patch.setattr(house.broker.tabs._store, "apply", slow_and_broken)
        with pytest.raises(errors.StoreUnavailable):
            await house.broker.tabs.hand_off(ADA, tab_id, "alice")
    assert (await waiting).ok
    assert page.is_closed


@in_house()
async def test_a_tab_is_handed_off_and_given_back_once(house: House) -> None:
    session = await house.open()
    tab_id, tabs = session.tabs[0].tab_id, house.broker.tabs
    with pytest.raises(errors.StateConflict):
        await tabs.resume(ADA, tab_id)
    await tabs.hand_off(ADA, tab_id, "alice")
    with pytest.raises(errors.StateConflict):
        await tabs.hand_off(ADA, tab_id, "bernd")
    with pytest.raises(errors.TabNotFound):
        await tabs.resume(BOB, tab_id)
    await tabs.resume(ADMIN, tab_id)
    with pytest.raises(errors.StateConflict):
        await tabs.resume(ADA, tab_id)


@in_house()
async def test_a_page_that_a_person_has_comes_back_and_is_still_theirs(house: House) -> None:
    session = await house.open()
    tab_id = session.tabs[0].tab_id
    await house.broker.tabs.hand_off(ADA, tab_id, "alice")
    house.crash(session)
    await house.until(lambda: house.tab(session).row.generation == 2)
    await house.quiet()
    assert house.tab(session).row.state is TabState.PAUSED
    with pytest.raises(errors.TabPausedHandoff):
        await house.act(session)
    await house.broker.tabs.resume(ADA, tab_id)
    assert (await house.act(session)).ok


@in_house()
async def test_a_session_with_a_paused_tab_can_be_released(house: House) -> None:
    session = await house.open()
    await house.broker.tabs.hand_off(ADA, session.tabs[0].tab_id, "alice")
    waiting = asyncio.ensure_future(house.act(session, wait_policy="wait_with_timeout"))
    await asyncio.sleep(1)
    await house.release(session)
    with pytest.raises(errors.LeaseLost):
        await waiting
    assert house.pages == []


# --- A store that does not answer -------------------------------------------------------------------------------


def is_new_tab(ops: tuple[Op, ...]) -> bool:
    return any(isinstance(op, Insert) and isinstance(op.row, Tab) for op in ops)


@in_herd()
async def test_a_new_tab_that_is_on_disk_although_nobody_heard_so_is_there(herd: Herd) -> None:
    session = await herd.open(herd[1])
    node = herd.home(session)
    node.store.is_doubtful = is_new_tab
    tab = await node.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab())
    assert node.broker.registry.tab(tab.tab_id) is not None
    assert len(herd.disk.rows(Tab)) == 2
    await herd.release(session)
    # What is counted is compared with the rows at every write; none is left that nobody has in mind.
    assert herd.disk.rows(Tab) == []


@in_herd()
async def test_a_new_tab_that_was_lost_on_its_way_to_the_store_is_refused_and_leaves_nothing(
    herd: Herd, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await herd.open(herd[1])
    node = herd.home(session)
    apply = node.store.apply

    async def lose(*ops: Op) -> Outcome:
        if is_new_tab(ops):
            raise errors.StoreUnavailable("the question was lost", cause=IN_DOUBT)
        return await apply(*ops)

    monkeypatch.setattr(node.store, "apply", lose)
    with pytest.raises(errors.StoreUnavailable):
        await node.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab())
    assert len(herd.disk.rows(Tab)) == 1
    await herd.release(session)
    assert herd.disk.rows(Tab) == []
