"""Pools and verbs follow settings that change under them, and nobody who has something loses it."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import msgspec
import pytest
from tests.broker.house import ADA, ADMIN, BOB, House, in_house

from tabherd import errors, wire
from tabherd.broker.caller import Caller
from tabherd.broker.settings import Changes
from tabherd.broker.views import rfc3339
from tabherd.config import parse


def change(house: House, pool: dict[str, Any] | None = None, **sections: Any) -> Changes:
    """Settings that differ from those the house began with only in these."""
    default = {"browsers_max": 1, "warm": 0} | (pool or {})
    return house.broker.settings.apply(parse({"pools": {"default": default}, **sections}))


@in_house(max_active=1)
async def test_a_raised_cap_admits_at_once_who_waits(house: House) -> None:
    await house.open()
    waiting = asyncio.ensure_future(house.open(BOB))
    await house.until(lambda: house.stats().waiting == 1)
    began = house.now
    change(house, {"max_active": 2})
    await waiting
    assert house.now - began < 1_000
    assert house.stats().capacity == 2


@in_house(max_active=3)
async def test_a_lowered_cap_ends_no_session_and_admits_none_until_there_is_room(house: House) -> None:
    sessions = [await house.open() for _ in range(3)]
    change(house, {"max_active": 1})
    assert [(await house.act(each)).ok for each in sessions] == [True] * 3
    for each in sessions[1:]:
        await house.release(each)
    with pytest.raises(errors.Capacity):
        await house.open(BOB, wait_ms=0)
    await house.release(sessions[0])
    await house.open(BOB, wait_ms=0)


@in_house(max_active=1, max_waiters=3)
async def test_a_shorter_queue_sends_nobody_away_who_waits(house: House) -> None:
    session = await house.open()
    waiting = [asyncio.ensure_future(house.open(BOB, wait_ms=100_000)) for _ in range(3)]
    await house.until(lambda: house.stats().waiting == 3)
    change(house, {"max_active": 1, "max_waiters": 1})
    with pytest.raises(errors.QueueFull):
        await house.open(ADA)
    change(house, {"max_active": 3, "max_waiters": 1})
    await house.release(session)
    assert len(await asyncio.gather(*waiting)) == 3


@in_house(sessions_per_browser=3)
async def test_fewer_sessions_per_browser_end_none_and_leave_the_others_their_seats(house: House) -> None:
    sessions = [await house.open() for _ in range(3)]
    change(house, {"sessions_per_browser": 1, "browsers_max": 4})
    # The first browser has two more than it would be given today; the second is not made to pay for them.
    await house.open(BOB)
    assert len(house.browsers) == 2
    assert [(await house.act(each)).ok for each in sessions] == [True] * 3


@in_house()
async def test_more_browsers_are_started_when_the_fewest_are_more(house: House) -> None:
    change(house, {"browsers_min": 2, "browsers_max": 2})
    await house.until(lambda: [each.state for each in house.browsers] == ["ready", "ready"])


@in_house(browsers_min=2, browsers_max=2, sessions_per_browser=1)
async def test_a_browser_above_a_lowered_maximum_is_not_replaced(house: House) -> None:
    sessions = [await house.open(), await house.open(BOB)]
    change(house, {"browsers_min": 1, "browsers_max": 1, "sessions_per_browser": 1})
    house.operations.drain_browser(ADMIN, house.browsers[0].browser_id)
    assert len(house.browsers) == 2
    assert (await house.act(sessions[0])).ok
    await house.release(sessions[0])
    await house.release(sessions[1], BOB)
    await house.until(lambda: len(house.browsers) == 1)


@in_house(warm=3)
async def test_the_stock_follows(house: House) -> None:
    await house.until(lambda: house.stats().stock == 3)
    change(house, {"warm": 1})
    await house.until(lambda: house.stats().stock == 1)


@in_house(warm=3)
async def test_a_change_that_is_not_about_browsers_leaves_the_stock_alone(house: House) -> None:
    await house.until(lambda: house.stats().stock == 3)
    change(house, {"warm": 3, "idle_ttl_s": 7})
    assert house.stats().stock == 3


@in_house()
async def test_a_probe_limit_that_changes_holds_for_the_browser_that_runs(house: House) -> None:
    process = next(iter(house.processes.values()))
    change(house, {"probe_every_ms": 50, "probe_limit_ms": 60_000})
    process.is_hung = True
    await asyncio.sleep(30)
    assert process.is_alive


@in_house(probe_every_ms=60_000)
async def test_a_browser_that_runs_is_asked_as_often_as_the_settings_in_force_say(house: House) -> None:
    process = next(iter(house.processes.values()))
    change(house, {"probe_every_ms": 100})
    await asyncio.sleep(1)
    process.is_hung = True
    await asyncio.sleep(20)
    assert not process.is_alive


@in_house()
async def test_a_crash_is_counted_by_the_rules_in_force(house: House) -> None:
    change(house, {"breaker_crashes": 1})
    next(each for each in house.processes.values() if each.is_alive).die("crashed")
    await house.until(lambda: house.browsers[0].circuit == "open")


@in_house()
async def test_deadlines_and_timeouts_of_what_comes_next_follow(house: House) -> None:
    change(house, tiers={"quick": 5}, gate={"timeout_ms": 700})
    session = await house.open(tier="quick")
    assert house.row(session).deadline_at - house.now <= 5_000
    began = house.now
    outcome = await asyncio.gather(house.act(session, "hang"), return_exceptions=True)
    assert isinstance(outcome[0], errors.CommandTimedOut)
    assert 700 <= house.now - began < 3_000


@in_house()
async def test_what_a_session_was_promised_when_it_was_opened_stays(house: House) -> None:
    session = await house.open(tier="pro")
    promised = house.row(session).deadline_at
    change(house, tiers={"pro": 1})
    assert house.row(session).deadline_at == promised
    assert (await house.act(session)).ok


# Every setting of the scheduler, one way and another; above and below what is queued and what runs.
FLIPS: tuple[dict[str, Any], ...] = (
    {"workers": 1, "queue_max": 1, "queue_max_per_agent": 1, "deadline_ms": 1},
    {"workers": 50, "max_inflight_per_agent": 1, "attempts_max": 1, "priority_aging_ms": 0},
    {"enabled": False, "result_ttl_s": 1},
    {"workers": 4, "max_inflight_per_agent": 4, "queue_max": 100_000, "queue_max_per_agent": 100_000},
)


async def submit(house: House, caller: Caller, tab_id: str, label: str) -> str:
    deadline = rfc3339(house.now + 24 * 3_600_000)
    request = wire.SubmitTask(action="evaluate", params={"expression": label}, tab_id=tab_id, deadline=deadline)
    return (await house.broker.tasking.verbs.submit(caller, request)).task_id


@in_house()
async def test_reloads_while_a_thousand_tasks_flow_lose_none_and_run_none_twice(house: House) -> None:
    owners = [ADA] * 4 + [BOB] * 4
    tabs = [(caller, (await house.open(caller)).tabs[0].tab_id) for caller in owners]
    names = [f"task {number}" for number in range(1_000)]
    work = [submit(house, *tabs[each % len(tabs)], name) for each, name in enumerate(names)]
    task_ids = await asyncio.gather(*work)
    flips = itertools.cycle([parse({"scheduler": flip}).scheduler for flip in FLIPS])
    before, reloads = house.broker.settings.current, 0
    while house.broker.tasking.verbs.stats().queue.total_queued:
        house.broker.settings.apply(msgspec.structs.replace(before, scheduler=next(flips)))
        reloads += 1
        await asyncio.sleep(0.1)
    house.broker.settings.apply(before)
    views = [await house.broker.tasking.verbs.get(ADMIN, task_id, 60_000) for task_id in task_ids]
    assert {view.state for view in views} == {"done"}
    assert sorted(label for _, label in house.sent if label.startswith("task ")) == sorted(names)
    assert reloads > 2 * len(FLIPS)
