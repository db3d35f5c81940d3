"""Pages that die before they are behind a tab: in the warm stock, and on their way into a session."""

from __future__ import annotations

import asyncio

from tests.broker.house import House, in_house

from tabherd.browsers.port import Seat


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
