"""Dialogs of pages, as commands answer them and tell of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from tests.broker.house import ADA, House, in_house
from tests.broker.queueing import failure_of, hold

from tabherd import errors, wire
from tabherd.browsers.dialogs import TOLD_MAX


def open_dialog(house: House, session: wire.SessionView, kind: str = "confirm", message: str = "Sure?") -> bool:
    """A script of the session's first page opens one; whether it is accepted."""
    port = house.tab(session).port
    assert port is not None
    accepted: bool = port.dialogs.reply({"type": kind, "message": message}).params["accept"]
    return accepted


def page_does(house: House, what: Callable[[str], Any]) -> None:
    """What becomes of an expression in a page from now on."""

    async def perform(tab: Any, action: Any, progress: Any) -> Any:
        progress.acts()
        return what(action.expression)

    house.broker.commands._performing._perform = perform


@in_house()
async def test_a_command_tells_which_dialogs_opened_and_how_they_were_answered(house: House) -> None:
    session = await house.open()
    page_does(house, lambda _: open_dialog(house, session, "confirm", "Delete?"))
    done = await house.act(session, dialogs="accept")
    assert done.result is True
    assert done.dialogs == (wire.DialogView(type="confirm", message="Delete?", is_accepted=True),)
    assert await house.broker.commands.get(ADA, done.command_id) == done


@in_house()
async def test_without_a_wish_they_are_answered_as_the_pool_has_it(house: House) -> None:
    session = await house.open()
    page_does(house, lambda _: open_dialog(house, session))
    assert (await house.act(session)).result is False


@in_house(dialogs="accept")
async def test_a_pool_may_accept_and_a_command_dismiss(house: House) -> None:
    session = await house.open()
    page_does(house, lambda _: open_dialog(house, session))
    assert (await house.act(session)).result is True
    assert (await house.act(session, dialogs="dismiss")).result is False


@in_house()
async def test_the_pools_policy_may_change_while_pages_are_open(house: House) -> None:
    session = await house.open()
    pool = msgspec.structs.replace(house.config.pools["default"], dialogs="accept")
    changes = house.broker.settings.apply(msgspec.structs.replace(house.config, pools={"default": pool}))
    assert (changes.changed, changes.needs_restart) == (("pools.default.dialogs",), ())
    assert open_dialog(house, session) is True


@in_house()
async def test_one_that_opened_between_commands_is_told_by_the_next_and_not_again(house: House) -> None:
    session = await house.open()
    assert open_dialog(house, session, "alert", "Your session has expired.") is False
    first, second = await house.act(session, "1"), await house.act(session, "2")
    assert [(dialog.message, dialog.is_earlier) for dialog in first.dialogs] == [("Your session has expired.", True)]
    assert second.dialogs == ()


@in_house()
async def test_an_error_tells_of_them_as_well(house: House) -> None:
    session = await house.open()

    def fails(_: str) -> None:
        open_dialog(house, session, "alert", "wrong password")
        raise errors.JavascriptError("The page threw: no")

    page_does(house, fails)
    error = await failure_of(asyncio.ensure_future(house.act(session)))
    assert [dialog["message"] for dialog in error.details["dialogs"]] == ["wrong password"]
    ended = await house.broker.commands.get(ADA, error.details["commandId"])
    assert [dialog.message for dialog in ended.dialogs] == ["wrong password"]


@in_house()
async def test_a_command_whose_time_runs_out_tells_of_them(house: House) -> None:
    session = await house.open()
    running = asyncio.ensure_future(house.act(session, "hang", timeout_ms=500))
    await house.until(lambda: house.page(session).active)
    open_dialog(house, session, "alert", "wait")
    error = await failure_of(running)
    assert error.code == "command_timed_out"
    assert [dialog["message"] for dialog in error.details["dialogs"]] == ["wait"]


@in_house()
async def test_the_rest_of_many_is_counted(house: House) -> None:
    session = await house.open()
    page_does(house, lambda _: [open_dialog(house, session) for _ in range(TOLD_MAX + 5)] and None)
    done = await house.act(session)
    assert (len(done.dialogs), done.more_dialogs) == (TOLD_MAX, 5)


@in_house()
async def test_each_step_answers_by_its_own_wish_and_tells_of_its_own(house: House) -> None:
    session = await house.open()
    page_does(house, lambda label: open_dialog(house, session, "confirm", label))
    steps = wire.Steps(
        steps=[
            wire.Evaluate(expression="1", dialogs="accept"),
            wire.Evaluate(expression="2"),
        ]
    )
    done = await house.broker.commands.run(ADA, session.tabs[0].tab_id, steps)
    assert [step["result"] for step in done.result] == [True, False]
    assert [[dialog["message"] for dialog in step["dialogs"]] for step in done.result] == [["1"], ["2"]]
    assert done.dialogs == ()


@in_house()
async def test_a_step_that_fails_tells_of_them_in_its_error(house: House) -> None:
    session = await house.open()

    def fails(_: str) -> None:
        open_dialog(house, session, "alert", "no")
        raise errors.JavascriptError("The page threw: no")

    page_does(house, fails)
    steps = wire.Steps(steps=[wire.Evaluate(expression="1")])
    done = await house.broker.commands.run(ADA, session.tabs[0].tab_id, steps)
    assert done.error is not None
    assert [dialog["message"] for dialog in done.error["details"]["dialogs"]] == ["no"]


@in_house()
async def test_a_command_that_is_over_has_no_say_any_more(house: House) -> None:
    session = await house.open()
    done = await house.act(session, dialogs="accept")
    assert done.dialogs == ()
    assert open_dialog(house, session) is False


@in_house()
async def test_a_page_that_was_rebuilt_has_the_pools_policy(house: House) -> None:
    session = await house.open()
    lost = await hold(house, session)
    house.crash(session)
    await failure_of(lost)
    await house.quiet()
    assert open_dialog(house, session) is False
    assert [dialog.is_earlier for dialog in (await house.act(session)).dialogs] == [True]


@in_house()
async def test_a_page_that_floods_its_visitor_is_frozen_while_it_is_left_and_no_longer(house: House) -> None:
    session = await house.open()
    seen: list[bool] = []
    plain = house.broker.commands._performing._perform

    async def perform(tab: Any, action: Any, progress: Any) -> Any:
        seen.append(house.page(session).is_frozen)
        return await plain(tab, action, progress)

    house.broker.commands._performing._perform = perform
    await house.goto(session, "https://shop.test/1")
    for _ in range(TOLD_MAX + 1):
        open_dialog(house, session)
    await house.goto(session, "https://shop.test/2")
    assert (seen, house.page(session).is_frozen) == ([False, True], False)


@in_house()
async def test_who_repeats_a_command_by_its_key_hears_of_the_same_dialogs(house: House) -> None:
    session = await house.open()
    page_does(house, lambda _: open_dialog(house, session))
    first = await house.act(session, idempotency_key="k")
    again = await house.act(session, idempotency_key="k")
    assert (again.command_id, again.dialogs) == (first.command_id, first.dialogs)
    assert len(again.dialogs) == 1
