"""The last minutes in numbers: what is counted, over which time, and what is kept of it."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest
from tests.broker.house import ADA, ADMIN, BOB, House, in_house
from tests.sim.fakes import SimBrowser

from tabherd import errors, wire
from tabherd.broker.caller import Caller
from tabherd.broker.history import INTERVAL_MS, SAMPLES_MAX, Sample
from tabherd.browsers.port import Usage


def history(house: House, limit: int = SAMPLES_MAX) -> wire.History:
    return house.broker.history.view(ADA, limit)


def series(house: House) -> wire.HistorySeries:
    return history(house).series


async def next_sample(house: House) -> None:
    """Until the interval that runs now is over and looked at."""
    ends_at = (house.now // INTERVAL_MS + 1) * INTERVAL_MS
    await house.until(lambda: (ring := house.broker.history._ring) and (ring[-1][0] + 1) * INTERVAL_MS >= ends_at)


def number_of(view: wire.History) -> float:
    return datetime.fromisoformat(view.begins_at).timestamp() * 1000 / view.interval_ms


@in_house()
async def test_every_interval_has_one_sample_at_whole_multiples_of_its_length(house: House) -> None:
    await next_sample(house)
    began = number_of(history(house))
    await asyncio.sleep(20.5)
    view = history(house)
    assert (view.interval_ms, number_of(view)) == (INTERVAL_MS, began)
    assert began == int(began)
    assert len(view.series.commands) == 11
    assert None not in view.series.sessions
    # What it tells ends with the last interval that is over.
    assert began + len(view.series.commands) == house.now // INTERVAL_MS


@in_house()
async def test_before_the_first_interval_is_over_there_is_nothing_to_tell(house: House) -> None:
    view = house.broker.history.view(ADA)
    assert all(getattr(view.series, name) == [] for name in Sample.__struct_fields__)
    assert number_of(view) == house.now // INTERVAL_MS


@in_house()
async def test_only_the_last_ten_minutes_are_kept(house: House) -> None:
    await asyncio.sleep(1_000)
    view = history(house)
    assert len(view.series.sessions) == len(house.broker.history._ring) == SAMPLES_MAX
    assert number_of(view) + SAMPLES_MAX == house.now // INTERVAL_MS


@in_house()
async def test_as_many_intervals_are_told_as_were_asked_for(house: House) -> None:
    await asyncio.sleep(60)
    view = history(house, 3)
    assert len(view.series.sessions) == 3
    assert number_of(view) + 3 == house.now // INTERVAL_MS


@in_house()
async def test_commands_are_counted_per_second_and_failures_among_them(house: House) -> None:
    session = await house.open()
    await next_sample(house)
    for label in ("one", "two", "three"):
        await house.act(session, label)
    running = asyncio.ensure_future(house.act(session, "long hang", timeout_ms=100))
    await next_sample(house)
    with pytest.raises(errors.CommandTimedOut):
        await running
    told = series(house)
    assert (told.commands[-1], told.commands_failed[-1]) == (2.0, 0.5)
    await next_sample(house)
    assert (series(house).commands[-1], series(house).commands_failed[-1]) == (0.0, 0.0)


@in_house()
async def test_one_that_its_sender_cancelled_is_no_failure(house: House) -> None:
    session = await house.open()
    await next_sample(house)
    running = asyncio.ensure_future(house.act(session, "long held"))
    await house.until(lambda: house.tab(session).gate.running)
    command_id = house.tab(session).gate.running.id
    await house.broker.commands.cancel(ADA, command_id)
    assert (await running).outcome == "cancelled"
    await next_sample(house)
    assert (series(house).commands[-1], series(house).commands_failed[-1]) == (0.5, 0.0)


@in_house()
async def test_times_of_commands_are_those_of_the_interval_alone(house: House) -> None:
    session = await house.open()
    metrics = house.broker.metrics
    await next_sample(house)
    for _ in range(100):
        metrics.command_seconds.observe(0.3, "click")
    await next_sample(house)
    for _ in range(90):
        metrics.command_seconds.observe(0.004, "click")
    for _ in range(10):
        # Of whichever kind.
        metrics.command_seconds.observe(0.7, "navigate")
    await next_sample(house)
    told = series(house)
    assert 250 < told.command_p50_ms[-2] <= told.command_p95_ms[-2] <= 500
    assert 2.5 < told.command_p50_ms[-1] <= 5
    assert 500 < told.command_p95_ms[-1] <= 1_000
    await next_sample(house)
    assert (series(house).command_p50_ms[-1], series(house).command_p95_ms[-1]) == (None, None)
    await house.release(session)


@in_house()
async def test_a_time_beyond_every_bound_is_told_as_the_last_one(house: House) -> None:
    await next_sample(house)
    house.broker.metrics.gate_wait_seconds.observe(5_000)
    await next_sample(house)
    assert series(house).gate_wait_p50_ms[-1] == 120_000


@in_house()
async def test_the_wait_in_the_gate_is_told_beside_the_time_of_commands(house: House) -> None:
    session = await house.open()
    await next_sample(house)
    first = asyncio.ensure_future(house.act(session, "first held"))
    second = asyncio.ensure_future(house.act(session, "second", wait_policy="wait_with_timeout"))
    await asyncio.sleep(7)
    house.finish("first held")
    await asyncio.gather(first, second)
    await next_sample(house)
    # The second had to wait for all of that.
    assert series(house).gate_wait_p95_ms[-1] > 5_000


@in_house(max_active=1)
async def test_what_is_there_is_told_as_of_the_end_of_the_interval(house: House) -> None:
    session = await house.open()
    waiting = [asyncio.ensure_future(house.open(BOB, wait_ms=100_000)) for _ in range(2)]
    running = asyncio.ensure_future(house.act(session, "held"))
    await next_sample(house)
    told = series(house)
    assert (told.sessions[-1], told.sessions_waiting[-1], told.tabs_held[-1]) == (1, 2, 1)
    for waiter in waiting:
        waiter.cancel()
    house.finish("held")
    await running
    await next_sample(house)
    told = series(house)
    assert (told.sessions[-1], told.sessions_waiting[-1], told.tabs_held[-1]) == (1, 0, 0)
    await house.release(session)
    await next_sample(house)
    assert series(house).sessions[-1] == 0


@in_house()
async def test_tasks_are_counted_as_they_come_and_go(house: House) -> None:
    session = await house.open()
    tab_id = session.tabs[0].tab_id
    running = asyncio.ensure_future(house.act(session, "first held"))
    await next_sample(house)
    tasks = house.broker.tasking.verbs
    for label in ("one", "two"):
        await tasks.submit(ADA, wire.SubmitTask(action="evaluate", tab_id=tab_id, params={"expression": label}))
    await next_sample(house)
    told = series(house)
    assert (told.tasks_submitted[-1], told.tasks_done[-1], told.tasks_failed[-1]) == (1.0, 0.0, 0.0)
    house.finish("first held")
    await running
    await house.until(lambda: house.metric("tasks_total", outcome="done") == 2)
    await next_sample(house)
    told = series(house)
    assert (told.tasks_submitted[-1], told.tasks_done[-1], told.tasks_queued[-1]) == (0.0, 1.0, 0)


@in_house()
async def test_memory_and_processor_time_are_null_until_a_browser_was_measured(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await next_sample(house)
    assert (series(house).memory_bytes[-1], series(house).cpu_percent[-1]) == (None, None)

    async def probe(browser: SimBrowser) -> Usage:
        return usage

    usage = Usage(pss_bytes=5_000, cpu_ms=1_000, processes=2)
    monkeypatch.setattr(SimBrowser, "probe", probe)
    await asyncio.sleep(5)
    assert series(house).memory_bytes[-1] == 5_000
    assert series(house).cpu_percent[-1] is not None


@in_house()
async def test_a_look_that_comes_late_leaves_a_hole_and_makes_no_peak(house: House) -> None:
    session = await house.open()
    await next_sample(house)
    await house.act(session)
    # Nothing else could run for that long.
    house.loop.now_s += 9.5
    before = len(series(house).commands)
    await house.until(lambda: len(series(house).commands) > before)
    told = series(house).commands
    assert told[before:-1] == [None] * 3
    # One command in about ten seconds, although only one interval tells of it.
    assert told[-1] == pytest.approx(0.1, abs=0.02)


@in_house()
async def test_a_clock_that_is_put_back_starts_the_history_anew(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await asyncio.sleep(30)
    behind_ms = 0
    keeper = house.broker.history
    monkeypatch.setattr(keeper, "_clock", lambda: house.now - behind_ms)
    behind_ms = 3_600_000
    await asyncio.sleep(10)
    view = keeper.view(ADA)
    assert 3 <= len(view.series.sessions) <= 5
    assert number_of(view) + len(view.series.sessions) == (house.now - behind_ms) // INTERVAL_MS


@in_house()
async def test_looking_twice_in_one_interval_makes_one_sample(house: House) -> None:
    await next_sample(house)
    before = len(history(house).series.sessions)
    for _ in range(3):
        house.broker.history.look()
    assert len(history(house).series.sessions) == before


@in_house()
async def test_whoever_may_browse_may_see_it_and_nobody_else(house: House) -> None:
    for caller in (ADA, ADMIN):
        house.broker.history.view(caller)
    with pytest.raises(errors.Forbidden):
        house.broker.history.view(Caller(agent_id="t", scopes=frozenset({"tasks"}), controller_id="t"))


def test_a_sample_has_exactly_what_is_told() -> None:
    assert Sample.__struct_fields__ == wire.HistorySeries.__struct_fields__
