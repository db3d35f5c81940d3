"""Turns at a tab: the order, the two wait policies, the one deadline, the limits, and what a refusal says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.broker.house import ADA, BOB, CYD, House, agent, in_house
from tests.broker.queueing import WAIT, begin, failure_of, hold, labels, lock, tickets, view

from tabherd import errors, wire
from tabherd.broker.views import rfc3339

# --- Order ------------------------------------------------------------------------------------------------------


@in_house()
async def test_one_tab_serves_its_callers_in_the_order_in_which_they_came(house: House) -> None:
    session = await house.open(access="shared")
    await hold(house, session, "0-held")
    callers = [BOB, CYD, ADA, agent("ada", "ada-2"), BOB, CYD]
    waiting = [await begin(house, session, str(n), caller, **WAIT) for n, caller in enumerate(callers, 1)]
    house.finish("0-held")
    await asyncio.gather(*waiting)
    assert labels(house) == ["0-held", "1", "2", "3", "4", "5", "6"]


@in_house()
async def test_of_two_commands_on_a_tab_the_second_starts_only_when_the_first_has_ended(house: House) -> None:
    session = await house.open()
    await hold(house, session)
    second = await begin(house, session, "second", **WAIT)
    await asyncio.sleep(10)
    assert labels(house) == ["first-held"]
    house.finish("first-held")
    assert (await second).queued_ms >= 10_000


@in_house()
async def test_tabs_of_one_session_do_not_wait_for_each_other(house: House) -> None:
    session = await house.open()
    other = await house.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab())
    await hold(house, session)
    beside = await house.broker.commands.run(ADA, other.tab_id, wire.Evaluate(expression="beside"))
    assert (beside.ok, beside.queued_ms) == (True, 0)


@in_house()
async def test_a_waiter_that_leaves_is_never_sent_and_the_next_moves_up(house: House) -> None:
    session = await house.open()
    await hold(house, session)
    gone, stays = [await begin(house, session, label, **WAIT) for label in ("gone", "stays")]
    gone.cancel()
    await asyncio.wait([gone])
    assert [waiter.position for waiter in view(house, session).waiters] == [1]
    house.finish("first-held")
    assert (await stays).ok
    assert labels(house) == ["first-held", "stays"]


@in_house()
async def test_commands_and_locks_stand_in_one_queue(house: House) -> None:
    session = await house.open(access="shared")
    await hold(house, session)
    before = await begin(house, session, "before", CYD, **WAIT)
    locking = await lock(house, session, BOB, **WAIT)
    after = await begin(house, session, "after", CYD, **WAIT)
    house.finish("first-held")
    assert (await before).ok
    held = await locking
    await asyncio.sleep(5)
    assert labels(house) == ["first-held", "before"]
    house.broker.tab_locks.unlock(BOB, held.tab_id, held.ticket)
    assert (await after).ok


# --- Wait policies and the deadline -----------------------------------------------------------------------------


@in_house()
async def test_without_a_word_about_waiting_a_busy_tab_refuses_at_once(house: House) -> None:
    session = await house.open()
    await hold(house, session)
    before = house.now
    assert isinstance(await failure_of(await begin(house, session, "second")), errors.TabBusy)
    assert house.now == before
    assert labels(house) == ["first-held"]


@in_house()
async def test_who_waits_in_vain_hears_so_when_its_time_is_over(house: House) -> None:
    session = await house.open()
    await hold(house, session)
    before = house.now
    error = await failure_of(await begin(house, session, "late", timeout_ms=700, **WAIT))
    assert isinstance(error, errors.QueueWaitTimedOut)
    assert house.now - before == pytest.approx(700, abs=1)
    house.finish("first-held")
    await asyncio.sleep(5)
    assert labels(house) == ["first-held"]


@in_house()
async def test_queue_and_execution_share_one_deadline(house: House) -> None:
    session = await house.open()
    await hold(house, session)
    before = house.now
    second = await begin(house, session, "hang", timeout_ms=1_000, **WAIT)
    await asyncio.sleep(0.6)
    house.finish("first-held")
    assert isinstance(await failure_of(second), errors.CommandTimedOut)
    assert house.now - before == pytest.approx(1_000, abs=1)
    assert labels(house) == ["first-held", "hang"]


@in_house()
async def test_a_command_without_a_time_has_thirty_seconds(house: House) -> None:
    session = await house.open()
    before = house.now
    await failure_of(await begin(house, session, "hang"))
    assert house.now - before == pytest.approx(30_000, abs=1)


@in_house()
async def test_a_command_has_a_tenth_of_a_second_however_little_it_asks_for(house: House) -> None:
    session = await house.open()
    before = house.now
    await failure_of(await begin(house, session, "hang", timeout_ms=1))
    assert house.now - before == pytest.approx(100, abs=1)


@in_house()
async def test_no_command_outlasts_the_deadline_of_its_session(house: House) -> None:
    session = await house.open(deadline_ms=5_000)
    opened_at = house.row(session).created_at
    await asyncio.sleep(2)
    assert isinstance(await failure_of(await begin(house, session, "hang", timeout_ms=60_000)), errors.CommandTimedOut)
    assert house.now == pytest.approx(opened_at + 5_000, abs=2)


@in_house()
async def test_nobody_waits_for_a_tab_past_the_deadline_of_its_session(house: House) -> None:
    session = await house.open(deadline_ms=5_000)
    await hold(house, session)
    waiting = await begin(house, session, "late", timeout_ms=60_000, **WAIT)
    assert isinstance(await failure_of(waiting), errors.QueueWaitTimedOut)
    assert house.now <= house.row(session).deadline_at + 1


# --- Limits -----------------------------------------------------------------------------------------------------


async def fill(house: House, session: wire.SessionView, count: int, caller: Callable[[int], Any]) -> None:
    """Put so many commands into the queue of the tab."""
    for n in range(count):
        sent = await begin(house, session, f"{n}-held", caller(n), **WAIT)
        assert not sent.done(), await failure_of(sent)


@in_house()
async def test_a_tab_takes_twenty_tickets(house: House) -> None:
    session = await house.open()
    await fill(house, session, 20, lambda n: agent("ada", f"ada-{n // 5}"))
    error = await failure_of(await begin(house, session, "one too many", **WAIT))
    assert error.code == "tab_queue_limit_exceeded"
    assert (error.details["count"], error.details["cap"]) == (20, 20)


@in_house()
async def test_one_controller_takes_ten_of_them_and_others_still_get_in(house: House) -> None:
    session = await house.open()
    await fill(house, session, 10, lambda n: ADA)
    error = await failure_of(await begin(house, session, "one too many", **WAIT))
    assert error.code == "tab_queue_limit_exceeded"
    assert (error.details["count"], error.details["cap"]) == (10, 10)
    other = await begin(house, session, "another", agent("ada", "ada-2"), **WAIT)
    assert len(view(house, session).waiters) == 10
    assert not other.done()


@in_house(sessions_per_browser=25)
async def test_one_controller_takes_a_hundred_tickets_over_all_tabs(house: House) -> None:
    sessions = [await house.open() for _ in range(11)]
    for session in sessions[:10]:
        await fill(house, session, 10, lambda n: ADA)
    assert tickets(house) == {"ada": 100}
    error = await failure_of(await begin(house, sessions[10], "one too many", **WAIT))
    assert error.code == "controller_queue_limit_exceeded"
    assert (error.details["count"], error.details["cap"]) == (100, 100)
    assert (await house.act(sessions[10], "not mine", agent("ada", "ada-2"))).ok


# --- Refusals ---------------------------------------------------------------------------------------------------

# How a tab comes to be held; BOB is the one who has it.
Holding = Callable[[House, wire.SessionView], Coroutine[Any, Any, Any]]


async def by_a_command(house: House, session: wire.SessionView) -> None:
    await hold(house, session, caller=BOB)


async def by_a_lock(house: House, session: wire.SessionView) -> None:
    await (await lock(house, session, BOB))


async def by_a_quarantine(house: House, session: wire.SessionView) -> None:
    # The page that is to be replaced does not go away.
    house.process(session).is_hung = True
    await failure_of(await begin(house, session, "hang", BOB, timeout_ms=100))


@pytest.mark.parametrize(
    ("holding", "code", "reason"),
    [
        (by_a_command, "tab_busy", "command"),
        (by_a_lock, "tab_locked", "tab_lock"),
        (by_a_quarantine, "tab_busy", "quarantine"),
    ],
)
@in_house()
async def test_who_will_not_wait_hears_who_has_the_tab_since_when_who_waits_and_when_to_return(
    house: House, holding: Holding, code: str, reason: str
) -> None:
    session = await house.open(access="shared")
    since = house.now
    await holding(house, session)
    await begin(house, session, "before", CYD, timeout_ms=60_000, **WAIT)
    error = await failure_of(await begin(house, session, "refused", CYD))
    assert (error.code, error.details["reason"], error.details["holder"]) == (code, reason, "bob")
    assert since <= error.details["since"] <= house.now
    assert (error.details["queueDepth"], error.details["position"]) == (1, 2)
    assert error.retryable
    assert error.retry_after_ms
    house.is_counted = reason != "quarantine"


@in_house()
async def test_a_page_that_is_rebuilt_is_busy_without_a_holder(house: House) -> None:
    session = await house.open()
    house.process(session).is_hung = True
    house.crash(session)
    error = await failure_of(await begin(house, session, "refused"))
    assert (error.code, error.details["reason"], error.details["holder"]) == ("tab_busy", "rebuild", "")
    assert error.retry_after_ms
    house.is_counted = False


@in_house()
async def test_who_waited_in_vain_and_who_found_no_place_hear_as_much(house: House) -> None:
    session = await house.open()
    await hold(house, session)
    late = await begin(house, session, "late", timeout_ms=500, **WAIT)
    await fill(house, session, 8, lambda n: ADA)
    full = await failure_of(await begin(house, session, "full", **WAIT))
    waited = await failure_of(late)
    for error, position in ((full, 10), (waited, 1)):
        assert (error.details["holder"], error.details["queueDepth"], error.details["position"]) == ("ada", 9, position)
        assert error.details["since"] <= house.now
        assert error.retry_after_ms


@in_house()
async def test_under_a_handoff_the_refusal_names_the_person_and_promises_nothing(house: House) -> None:
    session = await house.open()
    await house.broker.tabs.hand_off(ADA, session.tabs[0].tab_id, "Grace")
    error = await failure_of(await begin(house, session, "refused"))
    assert (error.code, error.details["holder"], error.retryable) == ("tab_paused_handoff", "Grace", False)
    assert error.retry_after_ms is None


# --- Accounts ---------------------------------------------------------------------------------------------------


@in_house()
async def test_a_ticket_is_counted_until_its_command_has_ended_whichever_way(house: House) -> None:
    session = await house.open()
    await hold(house, session)
    assert tickets(house) == {"ada": 1}
    late = await begin(house, session, "late", timeout_ms=300, **WAIT)
    gone = await begin(house, session, "gone", **WAIT)
    cancelled = await begin(house, session, "hang", **WAIT)
    await failure_of(await begin(house, session, "refused"))
    assert tickets(house) == {"ada": 4}
    await failure_of(late)
    gone.cancel()
    await asyncio.wait([gone])
    assert tickets(house) == {"ada": 2}
    house.finish("first-held")
    await failure_of(cancelled)
    await house.quiet()
    assert tickets(house) == {}


@in_house()
async def test_tickets_of_an_ended_session_are_nobodys(house: House) -> None:
    session = await house.open(access="shared")
    running = await hold(house, session)
    waiting = [await begin(house, session, "late", BOB, **WAIT), await lock(house, session, CYD, **WAIT)]
    await house.release(session)
    assert isinstance(await failure_of(running), errors.LeaseLost)
    assert {type(await failure_of(one)) for one in waiting} == {errors.LeaseLost}
    assert tickets(house) == {}


@in_house()
async def test_a_reader_sees_who_has_the_tab_since_when_and_who_waits(house: House) -> None:
    session = await house.open(access="shared")
    since = house.now
    await hold(house, session)
    await asyncio.sleep(1)
    await begin(house, session, "later", BOB, **WAIT)
    await lock(house, session, CYD, **WAIT)
    seen = view(house, session)
    assert seen.holder is not None
    assert (seen.holder.reason, seen.holder.controller_id, seen.holder.kind) == ("command", "ada", "evaluate")
    assert seen.holder.since == rfc3339(since)
    assert [(one.position, one.controller_id, one.agent_id, one.kind, one.since) for one in seen.waiters] == [
        (1, "bob", "bob", "evaluate", rfc3339(house.now)),
        (2, "cyd", "cyd", "tab_lock", rfc3339(house.now)),
    ]
    assert seen.expected_wait_ms > 0


@in_house()
async def test_depth_wait_and_hold_are_measured(house: House) -> None:
    session = await house.open()
    first = await hold(house, session)
    second = await begin(house, session, "second", **WAIT)
    assert house.metric("gate_depth") == 1
    await asyncio.sleep(2)
    house.finish("first-held")
    await asyncio.gather(first, second)
    assert house.metric("gate_depth") == 0
    assert house.metric("gate_wait_seconds_count") == 2
    assert house.metric("gate_wait_seconds_sum") == pytest.approx(2, abs=0.1)
    assert house.metric("gate_hold_seconds_count") == 2
    assert house.metric("gate_hold_seconds_sum") == pytest.approx(2, abs=0.1)


@in_house()
async def test_whoever_has_a_shared_tab_is_named_with_its_agent(house: House) -> None:
    session = await house.open(access="shared")
    running = await hold(house, session, caller=BOB)
    holder = view(house, session).holder
    assert holder is not None
    assert (holder.reason, holder.agent_id) == ("command", "bob")
    house.finish("first-held")
    await running
    await (await lock(house, session, CYD))
    holder = view(house, session).holder
    assert holder is not None
    assert (holder.reason, holder.agent_id) == ("tab_lock", "cyd")
