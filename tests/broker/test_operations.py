"""Restarting, draining and looking, on a whole broker with fake browsers and virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.house import ADA, ADMIN, BOB, House, in_house
from tests.sim.fakes import SimBrowser

from tabherd import errors, wire
from tabherd.broker.caller import Caller
from tabherd.broker.views import rfc3339
from tabherd.browsers.port import Usage

# --- Restarting one browser -------------------------------------------------------------------------------------


@in_house()
async def test_a_restart_recovers_the_sessions_with_its_own_reason_and_the_pool_serves_on(house: House) -> None:
    session = await house.open()
    old = house.ready_id
    answer = house.operations.restart_browser(ADMIN, old)
    assert (answer.browser_id, answer.state, answer.sessions) == (old, "draining", 1)
    fresh = await house.open()
    assert (await house.act(fresh)).ok
    assert house.ready_id != old
    assert (await house.act(session, wait_policy="wait_with_timeout")).ok
    assert house.row(session).browser_id == house.ready_id
    told = list(house.news())
    assert ("browser.stopped", "restarted") in told
    assert ("session_recovered", "browser_restarted") in told
    assert "browser.crashed" not in [kind for kind, _ in told]


@pytest.mark.parametrize("label", ["held", "hang"], ids=["that hears of it", "that does not hear of it"])
@in_house()
async def test_a_command_that_runs_in_a_restarted_browser_has_an_unknown_outcome(house: House, label: str) -> None:
    session = await house.open()
    running = asyncio.ensure_future(house.act(session, label))
    await house.until(lambda: any(page.active for page in house.pages))
    house.operations.restart_browser(ADMIN, house.ready_id)
    with pytest.raises(errors.OutcomeUnknown):
        await running


@in_house()
async def test_a_browser_that_is_restarted_takes_no_session_from_the_first_moment(house: House) -> None:
    house.operations.restart_browser(ADMIN, house.ready_id)
    assert house.operations.stats(ADMIN).pools["default"].free_seats == 0
    await house.open()
    # Nobody was sent there and then served elsewhere.
    assert house.browsers[0].sessions_served == 1


@in_house()
async def test_restarts_are_no_crashes(house: House) -> None:
    for _ in range(6):
        house.operations.restart_browser(ADMIN, house.ready_id)
        assert await house.until(lambda: not house.is_ready) <= 50
        # A start takes up to 100 ms here: nothing waits for a breaker.
        assert await house.until(lambda: house.is_ready) <= 300
    (browser,) = house.browsers
    assert (browser.circuit, browser.last_failure) == ("closed", "")
    assert house.metric("browser_crashes_total") == 0


@in_house()
async def test_a_restart_does_not_wait_for_an_open_circuit(house: House) -> None:
    house.launcher._fail_rate = 1.0
    next(iter(house.processes.values())).die("killed")
    await house.until(lambda: house.browsers[0].state == "broken")
    (broken,) = house.browsers
    assert broken.circuit == "open"
    assert "exits at once" in broken.last_failure
    house.launcher._fail_rate = 0.0
    house.operations.restart_browser(ADMIN, broken.browser_id)
    assert await house.until(lambda: house.is_ready) <= 300
    assert house.browsers[0].circuit == "closed"


@in_house()
async def test_a_browser_that_just_starts_is_neither_restarted_nor_drained(house: House) -> None:
    next(iter(house.processes.values())).die("killed")
    await house.until(lambda: house.browsers[0].state == "starting")
    (starting,) = house.browsers
    for verb in (house.operations.restart_browser, house.operations.drain_browser):
        with pytest.raises(errors.StateConflict) as refused:
            verb(ADMIN, starting.browser_id)
        assert refused.value.details["state"] == "starting"


# --- Draining one browser ---------------------------------------------------------------------------------------


@in_house()
async def test_a_drained_browser_keeps_its_sessions_and_is_replaced_at_once(house: House) -> None:
    session = await house.open()
    old = house.ready_id
    assert house.operations.drain_browser(ADMIN, old).state == "draining"
    fresh = await house.open()
    assert house.broker._registry.session(fresh.session_id).row.browser_id != old
    assert (await house.act(session)).ok
    assert house.processes[old].is_alive
    await house.broker.sessions.release(ADA, session.session_id)
    await house.replaced(old)
    assert not house.processes[old].is_alive
    assert [browser.state for browser in house.browsers] == ["ready"]
    assert [news for news in house.news() if news[0] in ("browser.draining", "browser.stopped")] == [
        ("browser.draining", None),
        ("browser.stopped", "drained"),
    ]


@in_house()
async def test_draining_a_browser_again_changes_nothing(house: House) -> None:
    await house.open()
    old = house.ready_id
    for _ in range(3):
        assert house.operations.drain_browser(ADMIN, old).state == "draining"
    await house.until(lambda: house.is_ready)
    assert len(house.browsers) == 2
    assert [kind for kind, _ in house.news()].count("browser.draining") == 1


@in_house()
async def test_a_drained_browser_can_still_be_restarted_and_leaves_no_second_replacement(house: House) -> None:
    session = await house.open()
    old = house.ready_id
    house.operations.drain_browser(ADMIN, old)
    await house.until(lambda: house.is_ready)
    house.operations.restart_browser(ADMIN, old)
    await house.until(lambda: old not in [browser.browser_id for browser in house.browsers])
    assert [browser.state for browser in house.browsers] == ["ready"]
    await house.until(lambda: house.live(session).browser is not None)
    assert (await house.act(session)).ok


@in_house(recycle_sessions=1)
async def test_a_recycled_browser_is_told_with_the_reason_and_ends_as_planned(house: House) -> None:
    session = await house.open()
    await house.until(lambda: len(house.browsers) == 2)
    await house.broker.sessions.release(ADA, session.session_id)
    await house.until(lambda: len(house.browsers) == 1)
    told = list(house.news())
    assert ("browser.recycled", "sessions") in told
    assert ("browser.stopped", "recycled") in told


# --- Who may ----------------------------------------------------------------------------------------------------


@in_house()
async def test_a_browser_that_does_not_exist_is_not_found(house: House) -> None:
    for verb in (house.operations.restart_browser, house.operations.drain_browser):
        with pytest.raises(errors.BrowserNotFound):
            verb(ADMIN, "brw_none")


@in_house()
async def test_only_an_admin_may_restart_and_drain(house: House) -> None:
    verbs: list[Callable[[Caller], Any]] = [
        lambda caller: house.operations.restart_browser(caller, house.ready_id),
        lambda caller: house.operations.drain_browser(caller, house.ready_id),
        house.operations.drain,
        house.operations.resume,
    ]
    for verb in verbs:
        with pytest.raises(errors.Forbidden):
            verb(ADA)
    assert house.is_ready
    assert list(house.news()) == []


# --- Draining the node ------------------------------------------------------------------------------------------


@in_house()
async def test_a_draining_node_admits_no_session_while_open_ones_go_on_until_it_is_taken_back(house: House) -> None:
    session = await house.open()
    assert house.operations.drain(ADMIN) == wire.NodeDrain(draining=True, sessions=1)
    assert not house.is_ready
    with pytest.raises(errors.Draining) as refused:
        await house.open()
    assert refused.value.retry_after_ms
    assert (await house.act(session)).ok
    house.operations.drain(ADMIN)
    assert house.operations.resume(ADMIN) == wire.NodeDrain(draining=False, sessions=1)
    house.operations.resume(ADMIN)
    assert house.is_ready
    await house.open()
    assert [kind for kind, _ in house.news() if kind.startswith("node.")] == ["node.draining", "node.ready"]


@in_house(max_active=1)
async def test_whoever_waits_for_a_session_when_the_drain_begins_is_turned_away_at_once(house: House) -> None:
    await house.open()
    waiting = [asyncio.ensure_future(house.open(wait_ms=100_000)) for _ in range(3)]
    await asyncio.sleep(1)
    began = house.loop.clock_ms()
    house.operations.drain(ADMIN)
    for answer in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(answer, errors.Draining)
    assert house.loop.clock_ms() - began < 10
    assert house.operations.stats(ADMIN).pools["default"].waiting == 0


@in_house(max_active=1)
async def test_a_place_that_is_given_back_during_a_drain_goes_to_nobody(house: House) -> None:
    session = await house.open()
    waiting = asyncio.ensure_future(house.open(wait_ms=100_000))
    await asyncio.sleep(1)
    live = house.broker._registry.session(session.session_id)
    assert live is not None
    house.operations.drain(ADMIN)
    house.is_counted = False
    # In the same turn of the loop, before the waiter could leave the queue by itself.
    house.broker._admissions["default"].give_back(live.claim)
    with pytest.raises(errors.Draining):
        await waiting
    assert house.operations.stats(ADMIN).pools["default"].active == 0


@in_house(max_active=1)
async def test_a_waiter_that_leaves_in_the_moment_of_the_drain_just_leaves(house: House) -> None:
    await house.open()
    waiting = asyncio.ensure_future(house.open(wait_ms=100_000))
    await asyncio.sleep(1)
    house.operations.drain(ADMIN)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@in_house()
async def test_a_stopping_node_takes_no_command_either_and_does_not_come_back(house: House) -> None:
    session = await house.open()
    await house.broker.drain()
    with pytest.raises(errors.Draining):
        await house.act(session)
    with pytest.raises(errors.Draining):
        house.operations.resume(ADMIN)
    assert house.broker.is_draining


@in_house()
async def test_a_stopping_node_waits_for_the_commands_that_run(house: House) -> None:
    session = await house.open()
    running = asyncio.ensure_future(house.act(session))
    await asyncio.sleep(0)
    await house.broker.drain()
    assert running.done()
    assert running.result().ok


# --- Looking ----------------------------------------------------------------------------------------------------


@in_house(warm=2)
async def test_every_browser_is_shown_with_what_it_has(house: House) -> None:
    await house.until(lambda: house.browsers[0].stock == 2)
    await house.open()
    (browser,) = house.browsers
    assert (browser.pool, browser.state, browser.circuit, browser.suspect) == ("default", "ready", "closed", False)
    assert (browser.sessions, browser.sessions_served, browser.last_failure) == (1, 1, "")
    assert browser.memory_bytes is None


@in_house()
async def test_a_browser_that_misses_a_probe_is_shown_as_suspect(house: House) -> None:
    next(iter(house.processes.values())).is_hung = True
    await house.until(lambda: house.browsers[0].suspect)
    assert house.browsers[0].state == "ready"


@in_house()
async def test_memory_and_processor_time_are_those_of_the_last_measurement(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([Usage(pss_bytes=5, cpu_ms=1_000, processes=2), Usage(pss_bytes=7, cpu_ms=1_500, processes=3)])
    latest = Usage()

    async def probe(browser: SimBrowser) -> Usage:
        return latest

    monkeypatch.setattr(SimBrowser, "probe", probe)
    await asyncio.sleep(3)
    assert house.browsers[0].memory_bytes is None
    assert house.browsers[0].cpu_percent is None
    latest = next(readings)
    await asyncio.sleep(5)
    latest = next(readings)
    await asyncio.sleep(5)
    (browser,) = house.browsers
    assert (browser.memory_bytes, browser.cpu_ms, browser.processes) == (7, 1_500, 3)
    # Half a second of work in the five seconds between the two.
    assert browser.cpu_percent == pytest.approx(10, abs=0.5)
    next(iter(house.processes.values())).die("killed")
    latest = Usage()
    await house.until(lambda: house.browsers[0].browser_id != browser.browser_id and house.is_ready)
    assert house.browsers[0].memory_bytes is None
    assert house.browsers[0].cpu_percent is None


@in_house(max_active=1, sessions_per_browser=5, warm=1)
async def test_stats_count_what_each_pool_has(house: House) -> None:
    await house.open()
    asked_at = house.now
    waiting = [asyncio.ensure_future(house.open(wait_ms=100_000)) for _ in range(3)]
    await house.until(lambda: (house.stats().stock, house.stats().waiting) == (1, 3))
    assert house.operations.stats(BOB) == wire.Stats(
        node="nod_1",
        draining=False,
        sessions=1,
        pools={
            "default": wire.PoolStats(
                active=1,
                pooled=0,
                tabs=1,
                waiting=3,
                waiting_since=rfc3339(asked_at),
                capacity=1,
                free_seats=4,
                stock=1,
                browsers=1,
            ),
        },
    )
    for waiter in waiting:
        waiter.cancel()


@in_house(max_active=1, sessions_per_browser=5)
async def test_an_agent_is_told_where_its_own_callers_stand_in_the_queue(house: House) -> None:
    await house.open()
    waiting = [
        asyncio.ensure_future(house.open(caller, wait_ms=100_000, key=key))
        for caller, key in ((ADA, "first"), (BOB, ""), (ADA, "second"))
    ]
    await house.until(lambda: house.stats().waiting == 3)
    # Bob has nothing yet, so he comes before Ada, who has one and waits for two.
    places = [
        [(place.agent_id, place.key, place.position) for place in house.operations.stats(who).pools["default"].waiters]
        for who in (ADA, BOB)
    ]
    assert places == [[("ada", "first", 2), ("ada", "second", 3)], [("bob", "", 1)]]
    for waiter in waiting:
        waiter.cancel()


@in_house(max_active=1, sessions_per_browser=5)
async def test_an_admin_who_asks_is_told_where_everybody_stands_and_since_when(house: House) -> None:
    await house.open()
    waiting = []
    for caller in (ADA, BOB, ADA):
        waiting.append(asyncio.ensure_future(house.open(caller, wait_ms=100_000)))
        await asyncio.sleep(1)
    came = house.now - 3_000

    def told(who: Caller, *, of_all: bool) -> list[tuple[str, int, str]]:
        waiters = house.operations.stats(who, of_all=of_all).pools["default"].waiters
        return [(waiter.agent_id, waiter.position, waiter.since) for waiter in waiters]

    ada, bob = [("ada", 2, rfc3339(came)), ("ada", 3, rfc3339(came + 2_000))], ("bob", 1, rfc3339(came + 1_000))
    assert told(ADMIN, of_all=True) == [bob, *ada]
    # Agents see their own, whatever they ask for; an admin has none of its own.
    assert told(ADA, of_all=True) == told(ADA, of_all=False) == ada
    assert told(ADMIN, of_all=False) == []
    assert house.stats().waiting_since == rfc3339(came)
    for waiter in waiting:
        waiter.cancel()
    await house.until(lambda: house.stats().waiting == 0)
    assert house.stats().waiting_since is None


@in_house(max_active=1)
async def test_gauges_say_what_is_there_when_they_are_read(house: House) -> None:
    session = await house.open()
    waiting = asyncio.ensure_future(house.open(wait_ms=100_000))
    await asyncio.sleep(1)
    assert house.metric("sessions", pool="default", state="active") == 1
    assert house.metric("acquire_waiters", pool="default") == 1
    assert house.metric("pool_capacity", pool="default") == 1
    assert house.metric("browser_circuit", state="closed") == 1
    assert house.metric("browsers", state="ready") == 1
    waiting.cancel()
    ending = asyncio.ensure_future(house.broker.sessions.release(ADA, session.session_id))
    await house.until(lambda: house.metric("sessions", pool="default", state="closing") == 1)
    await ending
    opening = asyncio.ensure_future(house.open())
    await house.until(lambda: house.metric("sessions", pool="default", state="reserved") == 1)
    await opening
    assert house.metric("sessions", pool="default", state="closing") == 0
    assert house.metric("acquire_waiters", pool="default") == 0
