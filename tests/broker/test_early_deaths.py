"""Pages that die, or come, when nobody looks for them: in the stock, on their way into a session, while that ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.broker.house import ADA, House, in_house

from tabherd import wire
from tabherd.browsers.port import PageEnd, Seat
from tabherd.core.model import Tab
from tabherd.errors import StoreUnavailable


def stock(house: House) -> list[Seat]:
    return [seat for slot in house.broker._pools["default"].slots for seat in slot.stock]


@in_house(warm=1)
async def test_a_page_that_died_in_the_stock_is_given_to_nobody(house: House) -> None:
    await house.until(lambda: len(stock(house)) == 1)
    (seat,) = stock(house)
    (process,) = house.processes.values()
    process.crash_page(process.targets[seat.tab.target_id])
    session = await house.open()
    assert house.tab(session).row.target_id != seat.tab.target_id
    assert (await house.act(session)).ok
    await house.until(lambda: seat.context_id not in process.contexts)


@in_house()
async def test_a_page_that_died_while_its_session_was_opened_is_replaced(house: House) -> None:
    opening = asyncio.ensure_future(house.open())
    await house.until(lambda: bool(house.pages))
    (page,) = house.pages
    (process,) = house.processes.values()
    process.crash_page(page)
    session = await opening
    await house.until(lambda: house.tab(session).row.generation == 2)
    await house.until(lambda: not house.tab(session).gate.is_held)
    assert (await house.act(session)).ok


@in_house()
async def test_a_tab_whose_browser_died_while_it_was_written_down_comes_back_with_the_others(house: House) -> None:
    session = await house.open()
    opening = asyncio.ensure_future(house.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab()))
    await house.until(lambda: len(house.disk.rows(Tab)) == 2)
    house.process(session).die("killed")
    tab = await opening
    await house.recovered(session)
    assert house.broker.tabs.get(ADA, tab.tab_id).generation == 2
    assert (await house.act(session)).ok


async def _fail_to_release(house: House, session: wire.SessionView, meanwhile: Callable[[], object]) -> None:
    """A release that the store refuses, and what happens in the browser while it is tried."""
    house.store._fail_rate = 1.0
    releasing = asyncio.ensure_future(house.release(session))
    await house.until(lambda: house.live(session).is_ending)
    meanwhile()
    with pytest.raises(StoreUnavailable):
        await releasing
    house.store._fail_rate = 0.0


@in_house()
async def test_a_page_that_died_while_its_session_could_not_be_ended_is_replaced(house: House) -> None:
    session = await house.open()
    await _fail_to_release(house, session, lambda: house.crash(session))
    await house.until(lambda: house.tab(session).row.generation == 2)
    await house.until(lambda: not house.tab(session).gate.is_held)
    assert (await house.act(session)).ok


@in_house()
async def test_a_popup_of_a_session_that_could_not_be_ended_is_taken_in(house: House) -> None:
    session = await house.open()
    await _fail_to_release(house, session, lambda: house.popup(session))
    await house.until(lambda: len(house.live(session).tabs) == 2)
    await house.quiet()
    house.check_counts()


@in_house()
async def test_the_end_of_a_page_that_was_closed_with_its_session_is_not_kept(house: House) -> None:
    session = await house.open()
    # The fake tells nobody of what it closes with a context; Chromium does, when the tab is nobody's already.
    house.broker.registry.ended_early(house.tab(session).row.target_id, PageEnd.CLOSED)
    await house.release(session)
    assert not house.broker.registry._early_ends
