"""Idempotency keys: what was asked twice under one key is done once, and everybody hears the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.house import ADA, BOB, House, agent, in_house
from tests.broker.queueing import WAIT, begin, failure_of, hold, labels

from tabherd import errors, wire
from tabherd.broker.idempotency import KEPT_MS
from tabherd.core.model import Command, Idempotency

KEY: dict[str, Any] = {"idempotency_key": "order-7"}


@in_house()
async def test_the_same_key_and_body_is_answered_with_the_first_outcome(house: House) -> None:
    session = await house.open()
    first = await house.act(session, "buy", **KEY)
    assert await house.act(session, "buy", **KEY) == first
    assert labels(house) == ["buy"]


@in_house()
async def test_a_failure_is_an_outcome_like_any_other(house: House) -> None:
    session = await house.open()
    first = await failure_of(await begin(house, session, "hang", timeout_ms=100, **KEY))
    await house.quiet()
    second = await failure_of(await begin(house, session, "hang", timeout_ms=100, **KEY))
    assert isinstance(first, errors.CommandTimedOut)
    assert second.to_wire() == first.to_wire()
    assert labels(house) == ["hang"]


@in_house()
async def test_another_body_under_the_same_key_is_a_conflict_that_names_the_first(house: House) -> None:
    session = await house.open()
    first = await house.act(session, "buy", **KEY)
    error = await failure_of(await begin(house, session, "sell", **KEY))
    assert isinstance(error, errors.IdempotencyConflict)
    assert error.details["commandId"] == first.command_id
    assert labels(house) == ["buy"]


@in_house()
async def test_the_same_action_on_another_tab_is_another_body(house: House) -> None:
    session = await house.open()
    other = await house.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab())
    await house.act(session, "buy", **KEY)
    with pytest.raises(errors.IdempotencyConflict):
        await house.broker.commands.run(ADA, other.tab_id, wire.Evaluate(expression="buy", **KEY))


@in_house()
async def test_a_key_is_its_agents_own(house: House) -> None:
    session = await house.open(access="shared")
    mine, theirs = await house.act(session, "buy", **KEY), await house.act(session, "buy", BOB, **KEY)
    assert mine.command_id != theirs.command_id
    assert labels(house) == ["buy", "buy"]


@in_house()
async def test_a_key_is_the_same_from_every_connection_of_its_agent(house: House) -> None:
    session = await house.open()
    first = await house.act(session, "buy", **KEY)
    assert await house.act(session, "buy", agent("ada", "ada-2"), **KEY) == first


@pytest.mark.parametrize("policy", [{}, WAIT], ids=["without waiting", "waiting"])
@in_house()
async def test_the_same_key_twice_at_once_is_run_once_and_both_hear_of_it(house: House, policy: dict[str, Any]) -> None:
    session = await house.open()
    sent = [await begin(house, session, "buy", **policy, **KEY) for _ in range(5)]
    views = await asyncio.gather(*sent)
    assert {view.command_id for view in views} == {views[0].command_id}
    assert {view.ok for view in views} == {True}
    assert labels(house) == ["buy"]


@in_house()
async def test_another_body_under_a_key_that_is_just_being_used_is_a_conflict_too(house: House) -> None:
    session = await house.open()
    sent = {label: await begin(house, session, label, **KEY) for label in ("buy", "sell")}
    await asyncio.wait(sent.values())
    # Which of them the disk lets in first is chance; that the other is refused is not.
    (done,) = labels(house)
    assert sent.pop(done).result().ok
    (refused,) = sent.values()
    assert isinstance(await failure_of(refused), errors.IdempotencyConflict)


@in_house()
async def test_who_repeats_a_key_while_its_command_runs_waits_for_that_ones_outcome(house: House) -> None:
    session = await house.open()
    first = await begin(house, session, "buy-held", **KEY)
    await house.until(lambda: house.page(session).active)
    second = await begin(house, session, "buy-held", **KEY)
    await asyncio.sleep(5)
    assert not second.done()
    house.finish("buy-held")
    assert await second == await first


@in_house()
async def test_who_repeats_a_key_hears_that_its_command_was_cut_off(house: House) -> None:
    """The first caller leaves: for the second that is an outcome, not an end of its own."""
    session = await house.open()
    first = await begin(house, session, "buy-held", **KEY)
    await house.until(lambda: house.page(session).active)
    second = await begin(house, session, "buy-held", **KEY)
    first.cancel()
    await asyncio.wait([second])
    assert not second.cancelled()
    assert ((await second).ok, (await second).outcome) == (False, "cancelled")
    house.finish("buy-held")
    await house.quiet()
    assert labels(house) == ["buy-held"]


@in_house()
async def test_who_leaves_while_it_waits_for_the_others_outcome_does_not_end_it(house: House) -> None:
    session = await house.open()
    first = await begin(house, session, "buy-held", **KEY)
    await house.until(lambda: house.page(session).active)
    second = await begin(house, session, "buy-held", **KEY)
    await asyncio.sleep(1)
    second.cancel()
    await asyncio.wait([second])
    house.finish("buy-held")
    assert (await first).ok


@in_house()
async def test_a_key_is_kept_for_five_minutes(house: House) -> None:
    session = await house.open(keep_alive=True)
    first = await house.act(session, "buy", **KEY)
    await asyncio.sleep(KEPT_MS / 1000 - 2)
    assert await house.act(session, "buy", **KEY) == first
    await asyncio.sleep(3)
    again = await house.act(session, "buy", **KEY)
    assert again.command_id != first.command_id
    assert labels(house) == ["buy", "buy"]
    # The key stands for the second one from here on.
    assert await house.act(session, "buy", **KEY) == again


@in_house()
async def test_a_key_does_not_grow_old_while_its_command_runs(house: House) -> None:
    session = await house.open()
    long: dict[str, Any] = {**KEY, **WAIT, "timeout_ms": 1_000_000}
    first = await begin(house, session, "buy-held", **long)
    await asyncio.sleep(KEPT_MS / 1000 + 10)
    second = await begin(house, session, "buy-held", **long)
    await asyncio.sleep(1)
    house.finish("buy-held")
    assert await second == await first
    assert labels(house) == ["buy-held"]


@in_house()
async def test_the_key_is_on_disk_before_anything_is_sent_and_the_outcome_before_it_is_told(house: House) -> None:
    session = await house.open()
    sending = await begin(house, session, "buy-held", **KEY)
    await house.until(lambda: house.sent)
    (row,) = house.disk.rows(Idempotency)
    house.finish("buy-held")
    assert (await sending).command_id == row.command_id
    assert row.command_id in [command.id for command in house.disk.rows(Command)]


@in_house()
async def test_a_command_that_nobody_saw_end_is_unknown_and_not_run_again(house: House) -> None:
    session = await house.open()
    await begin(house, session, "buy-held", **KEY)
    await house.until(lambda: house.page(session).active)
    await house.kill()
    for _ in range(2):
        assert isinstance(await failure_of(await begin(house, session, "buy-held", **KEY)), errors.OutcomeUnknown)
    assert labels(house) == ["buy-held"]


@in_house()
async def test_an_outcome_that_was_told_is_told_again_after_a_kill(house: House) -> None:
    session = await house.open()
    first = await house.act(session, "buy", **KEY)
    await house.kill()
    assert await house.act(session, "buy", **KEY) == first
    assert labels(house) == ["buy"]


@in_house()
async def test_a_key_that_was_refused_at_the_gate_is_not_used_up(house: House) -> None:
    session = await house.open()
    await hold(house, session)
    assert isinstance(await failure_of(await begin(house, session, "buy", **KEY)), errors.TabBusy)
    house.finish("first-held")
    await house.quiet()
    assert (await house.act(session, "buy", **KEY)).ok
