"""Pages and browsers that die under sessions: what comes back, once, and what those who used them hear."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.house import ADA, ADMIN, BOB, House, agent, in_house

from tabherd import errors, wire
from tabherd.browsers.port import TabGone, Viewport
from tabherd.core.lifecycle import LeaseState

# Browsers that die often are no reason to wait here.
PATIENT = {"breaker_crashes": 1_000}
SIZE = wire.Viewport(width=640, height=480)


async def rebuilt(house: House, session: wire.SessionView, generation: int = 2) -> None:
    """Until the session's first tab can be used again."""
    await house.until(lambda: house.tab(session).row.generation == generation)
    await house.until(lambda: not house.tab(session).gate.is_held)


async def logged_in(house: House, caller: Any = ADA, name: str = "ada", **request: Any) -> wire.SessionView:
    """A session with something to lose, that has been written down."""
    session = await house.open(caller, **request)
    context = house.page(session).context
    await house.goto(session, f"https://shop.test/{name}", caller)
    context.cookies.append({"name": "login", "value": name})
    context.local_storage["https://shop.test"] = {"cart": name}
    await house.act(session, caller=caller)
    await asyncio.sleep(6)
    return session


def assert_logged_in(house: House, session: wire.SessionView, name: str = "ada") -> None:
    page = house.page(session)
    assert page.url == f"https://shop.test/{name}"
    assert page.context.cookies == [{"name": "login", "value": name}]
    assert page.context.local_storage == {"https://shop.test": {"cart": name}}


# --- A page dies ------------------------------------------------------------------------------------------------


@in_house()
async def test_a_page_that_died_is_opened_again_at_its_address_in_the_same_context(house: House) -> None:
    session = await logged_in(house, viewport=SIZE)
    old = house.page(session)
    house.crash(session)
    await rebuilt(house, session)
    page = house.page(session)
    assert page is not old
    assert page.context is old.context
    assert page.viewport == Viewport(width=640, height=480)
    assert_logged_in(house, session)
    view = house.broker.tabs.get(ADA, session.tabs[0].tab_id)
    assert (view.tab_id, view.generation, view.state) == (session.tabs[0].tab_id, 2, "ready")
    assert house.row(session).fence == session.fence
    assert (await house.act(session, fence=session.fence)).ok


@pytest.mark.parametrize("callers", [3, 50])
@in_house()
async def test_however_many_callers_see_the_page_die_there_is_one_new_page(house: House, callers: int) -> None:
    session = await house.open(access="shared")
    process, context = house.process(session), house.page(session).context

    async def call(number: int) -> Any:
        # Some are at it when it dies, some come in the middle of the rebuild, some after it.
        await asyncio.sleep(number % 10 / 500)
        policy = "wait_with_timeout" if number % 2 else "fail_fast"
        return await house.act(session, f"{number}", agent(f"a{number}"), wait_policy=policy)

    calls = [asyncio.ensure_future(call(number)) for number in range(callers)]
    await house.until(lambda: house.sent)
    house.crash(session)
    answers = await asyncio.gather(*calls, return_exceptions=True)
    await rebuilt(house, session)
    made = [target for target in process.made.values() if target.context is context]
    assert len(made) == 2
    assert house.tab(session).row.generation == 2
    codes = {answer.code for answer in answers if isinstance(answer, errors.TabherdError)}
    assert codes <= {"outcome_unknown", "browser_crashed", "tab_busy", "tab_queue_limit_exceeded"}
    assert (await house.act(session)).ok


@pytest.mark.parametrize("witnesses", [3, 50])
@in_house()
async def test_however_many_witnesses_report_a_death_there_is_one_rebuild(house: House, witnesses: int) -> None:
    session = await logged_in(house)
    process, dead = house.process(session), house.page(session)
    house.crash(session)
    for number in range(witnesses):
        house.broker._recovery.page_crashed(house.tab(session), dead.target_id)
        await asyncio.sleep(number % 5 / 1000)
    await rebuilt(house, session)
    await house.quiet()
    assert len(process.made) == 2
    assert house.tab(session).row.generation == 2
    assert house.page(session).url == "https://shop.test/ada", "one death was taken for many"
    assert [kind for kind, _ in house.news()].count("tab.crashed") == 1


@in_house()
async def test_the_one_at_work_is_unknown_those_who_waited_were_not_sent_and_newcomers_are_told(house: House) -> None:
    session = await house.open()
    running = asyncio.ensure_future(house.act(session, "running-held"))
    await house.until(lambda: house.page(session).active)
    waiting = [
        asyncio.ensure_future(house.act(session, f"waiting-{n}", wait_policy="wait_with_timeout")) for n in range(3)
    ]
    await asyncio.sleep(1)
    house.crash(session)
    with pytest.raises(errors.TabBusy) as busy:
        await house.act(session, "newcomer")
    assert busy.value.details["reason"] == "rebuild"
    with pytest.raises(errors.OutcomeUnknown) as unknown:
        await running
    outcome = await house.broker.commands.get(ADA, unknown.value.details["commandId"])
    assert outcome.outcome == "outcome_unknown"
    for command in waiting:
        with pytest.raises(errors.BrowserCrashed):
            await command
    assert [label for _, label in house.sent] == ["running-held"]
    await rebuilt(house, session)
    assert (await house.act(session)).ok


@in_house()
async def test_a_command_that_does_not_notice_the_death_of_its_page_is_told(house: House) -> None:
    session = await house.open()
    running = asyncio.ensure_future(house.act(session, "hang"))
    await house.until(lambda: house.page(session).active)
    house.crash(session)
    with pytest.raises(errors.OutcomeUnknown):
        await running
    assert (await house.act(session, wait_policy="wait_with_timeout")).ok


@in_house()
async def test_who_comes_during_the_rebuild_and_may_wait_is_served_by_the_new_page(house: House) -> None:
    session = await logged_in(house)
    house.crash(session)
    await asyncio.sleep(0)
    assert (await house.act(session, "patient", wait_policy="wait_with_timeout")).ok
    assert house.sent[-1] == (house.page(session).target_id, "patient")
    assert house.page(session).url == "https://shop.test/ada"


@in_house()
async def test_a_rebuild_never_opens_an_address_under_a_running_command(house: House) -> None:
    session = await logged_in(house)
    running = asyncio.ensure_future(house.act(session, "hang"))
    await house.until(lambda: house.page(session).active)
    process, known = house.process(session), set(house.process(session).made)

    def look() -> bool:
        fresh = [target.url for id, target in process.made.items() if id not in known]
        assert running.done() or fresh in ([], ["about:blank"]), "a page goes somewhere while a command runs"
        return False

    house.loop.watches.append(look)
    house.crash(session)
    await rebuilt(house, session)
    assert house.page(session).url == "https://shop.test/ada"
    house.loop.watches.remove(look)
    with pytest.raises(errors.OutcomeUnknown):
        await running


@in_house()
async def test_without_leave_to_navigate_the_tab_is_dead_and_says_where_it_was(house: House) -> None:
    session = await logged_in(house, allow_navigate=False)
    house.crash(session)
    await house.quiet()
    for _ in range(2):
        with pytest.raises(errors.TabDead) as dead:
            await house.act(session, wait_policy="wait_with_timeout")
        assert dead.value.details["lastUrl"] == "https://shop.test/ada"
    assert house.pages == []
    # Another tab of the same session still has its cookies.
    tab = await house.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab())
    assert (await house.broker.commands.run(ADA, tab.tab_id, wire.Evaluate(expression="other"))).ok
    await house.broker.commands.run(ADA, session.tabs[0].tab_id, wire.Close())


@in_house()
async def test_a_neighbours_tab_at_the_same_address_is_never_taken(house: House) -> None:
    mine = await logged_in(house)
    theirs = await house.open(BOB)
    await house.goto(theirs, "https://shop.test/ada", BOB)
    neighbour = house.page(theirs)
    house.crash(mine)
    await rebuilt(house, mine)
    assert house.page(mine) is not neighbour
    assert house.page(theirs) is neighbour
    assert house.tab(theirs).row.generation == 1


@in_house()
async def test_a_page_that_keeps_crashing_is_left_blank(house: House) -> None:
    session = await logged_in(house)
    for death in range(1, 5):
        house.crash(session)
        await rebuilt(house, session, death + 1)
        assert house.page(session).url == ("https://shop.test/ada" if death < 4 else "about:blank")


@in_house()
async def test_a_page_that_dies_of_its_address_is_left_blank_and_its_session_lives(house: House) -> None:
    session = await logged_in(house)

    async def dies(tab: Any, action: wire.AnyAction, progress: Any) -> Any:
        house.process(session).targets[tab.target_id].is_crashed = True
        raise TabGone("The page crashed.", was_sent=True)

    house.broker._recovery._perform = dies
    house.crash(session)
    await rebuilt(house, session)
    assert (house.page(session).url, house.page(session).is_crashed) == ("about:blank", False)
    assert [page.target_id for page in house.pages] == [house.page(session).target_id]
    assert (await house.act(session, "next")).ok


@in_house()
async def test_a_page_that_crashes_now_and_then_always_comes_back(house: House) -> None:
    session = await logged_in(house, keep_alive=True)
    for death in range(1, 8):
        house.crash(session)
        await rebuilt(house, session, death + 1)
        assert house.page(session).url == "https://shop.test/ada"
        await asyncio.sleep(30)


# --- A timeout --------------------------------------------------------------------------------------------------


@in_house()
async def test_after_a_timeout_the_page_is_replaced_by_a_blank_one_before_anybody_is_let_in(house: House) -> None:
    session = await logged_in(house)
    old = house.page(session)
    with pytest.raises(errors.CommandTimedOut):
        await house.act(session, "hang", timeout_ms=1_000)
    assert (await house.act(session, "next", wait_policy="wait_with_timeout")).ok
    assert old.is_closed
    assert (house.page(session).url, house.tab(session).row.generation) == ("about:blank", 2)


# --- A browser dies ---------------------------------------------------------------------------------------------


@in_house(**PATIENT)
async def test_a_session_whose_browser_died_is_back_in_another_one_with_all_it_had(house: House) -> None:
    session = await logged_in(house, viewport=SIZE)
    other = await house.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab(url="https://shop.test/help"))
    await house.quiet()
    old = house.process(session).row.id
    await house.lose_browser(session)
    assert house.metric("browser_crashes_total") == 1
    assert house.row(session).browser_id == old
    await house.recovered(session)
    assert house.row(session).browser_id != old
    assert house.row(session).fence == session.fence
    assert_logged_in(house, session)
    views = {view.tab_id: view for view in house.broker.tabs.list(ADA).tabs}
    assert {id: (view.generation, view.url) for id, view in views.items()} == {
        session.tabs[0].tab_id: (2, "https://shop.test/ada"),
        other.tab_id: (2, "https://shop.test/help"),
    }
    assert [page.viewport for page in house.pages] == [Viewport(width=640, height=480)] * 2
    assert [news for news in house.news() if news[0].startswith(("session_", "session.rec"))] == [
        ("session.recovering", "browser_crashed"),
        ("session_recovered", "browser_crashed"),
    ]


@in_house(**PATIENT)
async def test_commands_under_a_browsers_death_end_like_those_under_a_pages(house: House) -> None:
    session = await house.open()
    running = asyncio.ensure_future(house.act(session, "running-held"))
    await house.until(lambda: house.page(session).active)
    waiting = asyncio.ensure_future(house.act(session, "waiting", wait_policy="wait_with_timeout"))
    await asyncio.sleep(1)
    await house.lose_browser(session)
    with pytest.raises(errors.OutcomeUnknown):
        await running
    with pytest.raises(errors.BrowserCrashed) as crashed:
        await waiting
    assert crashed.value.retryable
    assert (await house.act(session, "later", wait_policy="wait_with_timeout")).ok
    assert [label for _, label in house.sent] == ["running-held", "later"]


@in_house(**PATIENT, browsers_max=2, sessions_per_browser=20, max_active=40)
async def test_all_20_sessions_of_a_browser_come_back_though_only_5_seats_are_free_at_first(house: House) -> None:
    callers = {f"a{n}": agent(f"a{n}") for n in range(35)}
    sessions = {name: await logged_in(house, caller, name, keep_alive=True) for name, caller in callers.items()}
    victim = house.process(sessions["a0"])
    hit = [name for name, session in sessions.items() if house.process(session) is victim]
    assert len(hit) == 20
    victim.die("killed")
    await house.until(lambda: house.live(sessions["a0"]).browser is None)
    await house.until(lambda: sum(house.live(sessions[name]).browser is not None for name in hit) == 5)
    assert all(len(slot.sessions) <= 20 for slot in house.broker._pools["default"].slots)
    for name in hit:
        await house.recovered(sessions[name])
        assert_logged_in(house, sessions[name], name)
        assert house.tab(sessions[name]).row.generation == 2
        assert (await house.act(sessions[name], caller=callers[name], fence=sessions[name].fence)).ok
    untouched = [name for name in sessions if name not in hit]
    assert {house.tab(sessions[name]).row.generation for name in untouched} == {1}


@in_house(**PATIENT)
async def test_a_browser_that_dies_again_under_the_rebuild_only_delays_it(house: House) -> None:
    session = await logged_in(house)
    await house.lose_browser(session)
    await house.until(lambda: any(process.contexts for process in house.processes.values()))
    next(process for process in house.processes.values() if process.is_alive).die("killed again")
    await house.recovered(session)
    assert_logged_in(house, session)


@in_house(**PATIENT)
async def test_a_session_that_loses_every_browser_it_gets_is_given_up(house: House) -> None:
    session = await house.open(key="shop")
    for _ in range(3):
        await house.lose_browser(session)
        await house.recovered(session)
    house.process(session).die("killed")
    await house.until(lambda: house.row(session).ended_at)
    await house.quiet()
    assert (house.row(session).state, house.row(session).end_reason) == (LeaseState.LOST, "keeps_crashing")
    assert ("session_lost", "keeps_crashing") in list(house.news())
    with pytest.raises(errors.LeaseLost):
        await house.act(session)
    assert house.stats().active == 0


@in_house(**PATIENT)
async def test_without_leave_to_navigate_the_session_is_recovered_with_its_tab_dead(house: House) -> None:
    session = await logged_in(house, allow_navigate=False)
    await house.lose_browser(session)
    await house.recovered(session)
    with pytest.raises(errors.TabDead) as dead:
        await house.act(session)
    assert dead.value.details["lastUrl"] == "https://shop.test/ada"
    assert house.pages == []
    tab = await house.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab())
    await house.quiet()
    page = next(page for page in house.pages if page.target_id)
    assert page.context.cookies == [{"name": "login", "value": "ada"}]
    assert tab.generation == 1


# --- Meanwhile --------------------------------------------------------------------------------------------------


@in_house(**PATIENT)
async def test_a_session_can_be_released_at_any_moment_of_its_recovery(house: House) -> None:
    for after_ms in range(0, 240, 15):
        session = await house.open()
        await house.lose_browser(session)
        await asyncio.sleep(after_ms / 1000)
        await house.release(session, fence=session.fence)
        await house.quiet()
        house.check_counts()
        assert house.row(session).state is LeaseState.CLOSED
        await house.until(lambda: house.is_ready)


@in_house(**PATIENT)
async def test_a_heartbeat_counts_during_the_recovery(house: House) -> None:
    session = await house.open()
    house.launcher._fail_rate = 1.0
    await house.lose_browser(session)
    for _ in range(6):
        await asyncio.sleep(60)
        assert (await house.beat(session)).fence == session.fence
    assert await house.state(session) == "recovering"
    house.launcher._fail_rate = 0.0
    await house.recovered(session)
    assert (await house.act(session)).ok


@in_house(**PATIENT)
async def test_the_deadline_ends_a_session_that_no_browser_could_be_had_for(house: House) -> None:
    session = await house.open(deadline_ms=100_000, keep_alive=True)
    house.launcher._fail_rate = 1.0
    await house.lose_browser(session)
    await house.until(lambda: house.row(session).ended_at)
    await house.quiet()
    assert house.row(session).end_reason == "deadline"
    assert house.stats().active == 0


@in_house(**PATIENT)
async def test_verbs_that_need_the_browser_say_that_it_died(house: House) -> None:
    session = await house.open()
    house.launcher._fail_rate = 1.0
    await house.lose_browser(session)
    with pytest.raises(errors.BrowserCrashed):
        await house.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab())
    with pytest.raises(errors.BrowserCrashed):
        await house.broker.sessions.state(ADMIN, session.session_id)
    with pytest.raises(errors.BrowserCrashed):
        await house.broker.sessions.put_state(ADA, session.session_id, wire.StorageState())
    house.launcher._fail_rate = 0.0
    await house.recovered(session)
