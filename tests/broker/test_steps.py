"""Steps: several actions as one command, on one turn, each reported however the command ends."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from typing import Any

import msgspec
import pytest
from tests.broker.house import ADA, House, agent, in_house
from tests.broker.queueing import WAIT, begin, failure_of, labels, view

from tabherd import errors, wire
from tabherd.actions.progress import Progress
from tabherd.broker.caller import Caller
from tabherd.core.lifecycle import LeaseState


async def run_steps(house: House, session: wire.SessionView, *names: str, **fields: Any) -> wire.CommandView:
    steps = [wire.Evaluate(expression=name) for name in names]
    return await house.broker.commands.run(ADA, session.tabs[0].tab_id, wire.Steps(steps=list(steps), **fields))


def command_id_of(house: House, session: wire.SessionView) -> str:
    """Of the command that runs."""
    running = house.tab(session).gate.running
    assert running is not None
    return running.id


@in_house()
async def test_steps_have_one_turn_and_nobody_comes_in_between(house: House) -> None:
    session = await house.open()
    steps = asyncio.ensure_future(run_steps(house, session, "1-held", "2", "3"))
    await house.until(lambda: house.page(session).active)
    other = await begin(house, session, "other", agent("ada", "ada-2"), **WAIT)
    house.finish("1-held")
    done = await steps
    assert (await other).ok
    assert labels(house) == ["1-held", "2", "3", "other"]
    assert [(step["kind"], step["ok"], step["result"]) for step in done.result] == [
        ("evaluate", True, "1-held"),
        ("evaluate", True, "2"),
        ("evaluate", True, "3"),
    ]


@in_house()
async def test_the_first_step_that_fails_is_the_last_and_each_is_reported(house: House) -> None:
    session = await house.open()
    plain = house.broker.commands._performing._perform

    async def second_fails(tab: Any, action: Any, progress: Progress) -> Any:
        if action.expression == "2":
            raise errors.JavascriptError("The page threw: no")
        return await plain(tab, action, progress)

    house.broker.commands._performing._perform = second_fails
    done = await run_steps(house, session, "1", "2", "3")
    assert (done.ok, done.outcome) == (False, "failed")
    assert [step["ok"] for step in done.result] == [True, False]
    assert done.result[1]["error"]["code"] == "javascript_error"
    assert done.error == done.result[1]["error"]
    assert labels(house) == ["1"]
    assert await house.broker.commands.get(ADA, done.command_id) == done


@in_house()
async def test_when_the_time_of_steps_runs_out_those_that_are_done_are_reported(house: House) -> None:
    session = await house.open()
    error = await failure_of(asyncio.ensure_future(run_steps(house, session, "1", "2", "hang", "4", timeout_ms=900)))
    assert error.code == "command_timed_out"
    assert [(step["ok"], step["result"]) for step in error.details["steps"]] == [(True, "1"), (True, "2")]
    assert labels(house) == ["1", "2", "hang"]


@in_house()
async def test_steps_that_end_in_waiting_for_an_element_report_those_that_are_done(house: House) -> None:
    session = await house.open()
    plain = house.broker.commands._performing._perform

    async def second_never_comes(tab: Any, action: Any, progress: Progress) -> Any:
        if action.expression == "2":
            progress.waits("attached", target="#missing")
            await asyncio.get_running_loop().create_future()
        return await plain(tab, action, progress)

    house.broker.commands._performing._perform = second_never_comes
    error = await failure_of(asyncio.ensure_future(run_steps(house, session, "1", "2", timeout_ms=900)))
    assert error.code == "element_not_found"
    assert [(step["ok"], step["result"]) for step in error.details["steps"]] == [(True, "1")]
    assert view(house, session).state == "ready"


@in_house()
async def test_a_step_that_waits_in_vain_ends_at_its_own_time_and_leaves_the_page(house: House) -> None:
    session = await house.open()
    plain = house.broker.commands._performing._perform

    async def second_never_comes(tab: Any, action: Any, progress: Progress) -> Any:
        if action.expression == "2":
            progress.waits("attached", target="#missing")
            await asyncio.get_running_loop().create_future()
        return await plain(tab, action, progress)

    house.broker.commands._performing._perform = second_never_comes
    steps = [wire.Evaluate(expression=name, timeout_ms=300 if name == "2" else None) for name in ("1", "2", "3")]
    began = house.now
    done = await house.broker.commands.run(ADA, session.tabs[0].tab_id, wire.Steps(steps=steps, timeout_ms=60_000))
    assert [(step["ok"], (step["error"] or {}).get("code")) for step in done.result] == [
        (True, None),
        (False, "element_not_found"),
    ]
    assert (300 <= house.now - began < 1_000, view(house, session).state) == (True, "ready")


@in_house()
async def test_a_step_whose_own_time_ran_out_at_work_ends_as_a_command_that_did(house: House) -> None:
    session = await house.open()
    steps = [wire.Evaluate(expression="1"), wire.Evaluate(expression="hang", timeout_ms=300), wire.Text()]
    running = house.broker.commands.run(ADA, session.tabs[0].tab_id, wire.Steps(steps=steps, timeout_ms=60_000))
    error = await failure_of(asyncio.ensure_future(running))
    assert error.code == "command_timed_out"
    assert [(step["kind"], step["ok"]) for step in error.details["steps"]] == [("evaluate", True), ("evaluate", False)]
    # What it began may go on in the page, which is replaced before anybody else has it.
    assert (await begin(house, session, "next", **WAIT)).done() is False
    await house.quiet()
    assert labels(house) == ["1", "hang", "next"]


@in_house()
async def test_steps_that_are_cut_off_report_those_that_are_done(house: House) -> None:
    session = await house.open()
    cancelled = asyncio.ensure_future(run_steps(house, session, "1", "2-held"))
    await house.until(lambda: house.page(session).active == "2-held")
    await house.broker.commands.cancel(ADA, command_id_of(house, session))
    assert [(step["ok"], step["result"]) for step in (await cancelled).result] == [(True, "1")]
    await house.quiet()
    lost = asyncio.ensure_future(run_steps(house, session, "3", "4-held"))
    await house.until(lambda: house.page(session).active == "4-held")
    house.crash(session)
    error = await failure_of(lost)
    assert error.code == "outcome_unknown"
    assert [(step["ok"], step["result"]) for step in error.details["steps"]] == [(True, "3")]


@in_house()
async def test_steps_need_the_scopes_of_all_their_actions(house: House) -> None:
    session = await house.open()
    only_browse = Caller(agent_id="ada", scopes=frozenset({"browse"}), controller_id="ada")
    steps = wire.Steps(steps=[wire.Text(), wire.Evaluate(expression="1")])
    with pytest.raises(errors.Forbidden):
        await house.broker.commands.run(only_browse, session.tabs[0].tab_id, steps)
    assert labels(house) == []


@in_house()
async def test_no_step_begins_once_the_end_of_the_session_is_on_disk_however_late_that_is_heard(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await house.open()
    mark = house.broker.leases._mark_closing

    async def late(*args: Any) -> Any:
        row = await mark(*args)
        await asyncio.sleep(5)
        return row

    monkeypatch.setattr(house.broker.leases, "_mark_closing", late)
    steps = asyncio.ensure_future(run_steps(house, session, "1-held", "2"))
    await house.until(lambda: house.page(session).active)
    releasing = asyncio.ensure_future(house.release(session))
    await house.until(lambda: house.row(session).state is LeaseState.CLOSING)
    house.finish("1-held")
    await releasing
    assert (await failure_of(steps)).code == "lease_lost"
    assert labels(house) == ["1-held"]


@in_house()
async def test_steps_go_on_when_the_store_does_not_take_the_end_of_the_session(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await house.open()

    async def refuse(*args: Any) -> Any:
        await asyncio.sleep(5)
        raise errors.StoreUnavailable("The store is away.", cause="away")

    monkeypatch.setattr(house.broker.leases, "_mark_closing", refuse)
    steps = asyncio.ensure_future(run_steps(house, session, "1-held", "2"))
    await house.until(lambda: house.page(session).active)
    releasing = asyncio.ensure_future(house.release(session))
    await house.until(lambda: house.live(session).is_ending)
    house.finish("1-held")
    assert (await failure_of(releasing)).code == "store_unavailable"
    assert (await steps).ok
    assert labels(house) == ["1-held", "2"]


# --- Long results -----------------------------------------------------------------------------------------------


def answering(house: House, value: Any) -> None:
    """Have every action of that house answer so."""

    async def answer(tab: Any, action: Any, progress: Progress) -> Any:
        if action.expression == "fails":
            raise errors.JavascriptError("The page threw: no")
        return value

    house.broker.commands._performing._perform = answer


LONG = msgspec.Raw(b"[" + b"[]," * 500_000 + b"0]")


@in_house()
async def test_of_a_long_result_nothing_is_read_on_its_way_to_the_caller(house: House) -> None:
    session = await house.open()
    answering(house, LONG)
    tracemalloc.start()
    try:
        view = await house.broker.commands.run(ADA, session.tabs[0].tab_id, wire.Evaluate(expression="1"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert bytes(view.result) == bytes(LONG)
    # The text itself, some times; the objects would be 28 MB.
    assert peak < 5 * len(LONG)


@in_house()
async def test_long_results_of_steps_come_whole_also_when_a_later_one_fails(house: House) -> None:
    session = await house.open()
    answering(house, LONG)
    view = await run_steps(house, session, "1", "fails")
    assert (view.ok, view.error is not None and view.error["code"]) == (False, "javascript_error")
    steps = json.loads(msgspec.json.encode(view.result))
    assert [(step["ok"], step["result"]) for step in steps] == [(True, json.loads(bytes(LONG))), (False, None)]
