"""Work that comes to its end: whoever leaves in the middle of a verb leaves memory, disk and browser of one mind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.broker.house import ADA, ADMIN, House, Socket, agent, in_house

from tabherd import errors, wire
from tabherd.broker.patience import patiently, to_the_end
from tabherd.core.lifecycle import TabState

Verb = Callable[[House, wire.SessionView], Awaitable[Any]]
VERBS: dict[str, Verb] = {
    "open a tab": lambda house, session: house.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab()),
    "close a tab": lambda house, session: house.broker.commands.run(ADA, session.tabs[0].tab_id, wire.Close()),
    "take over": lambda house, session: house.broker.sessions.take_over(ADMIN, session.session_id, "bob"),
    "heartbeat": lambda house, session: house.beat(session),
    "hand off": lambda house, session: house.broker.tabs.hand_off(ADA, session.tabs[0].tab_id, None),
    "resume": lambda house, session: house.broker.tabs.resume(ADA, session.tabs[0].tab_id),
    "write state": lambda house, session: house.broker.sessions.put_state(
        ADA, session.session_id, wire.StorageState(cookies=[{"name": "login"}])
    ),
    "read state": lambda house, session: house.broker.sessions.state(ADA, session.session_id),
    "connect": lambda house, session: house.broker.sessions.connect(house.live(session), "socket", Socket()),
    "release": lambda house, session: house.release(session),
    "release into the pool": lambda house, session: house.release(session, disposition="pool"),
}


async def leave_after(house: House, session: wire.SessionView, verb: Verb, after_ms: int) -> None:
    """Ask for something and go away."""
    asking = asyncio.ensure_future(verb(house, session))
    await asyncio.sleep(after_ms / 1000)
    asking.cancel()
    await asyncio.wait([asking])
    await house.quiet()


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
@in_house()
async def test_a_caller_that_leaves_in_the_middle_of_a_verb_leaves_a_session_that_works(
    house: House, verb: Verb
) -> None:
    for after_ms in range(20):
        session = await house.open(key="shop")
        await leave_after(house, session, verb, after_ms)
        house.check_counts()
        row = house.row(session)
        if not house.is_bound(session):
            continue
        assert (house.live(session).row.fence, house.live(session).row.agent_id) == (row.fence, row.agent_id)
        owner = agent(row.agent_id)
        for tab in house.live(session).tabs.values():
            if tab.row.state is TabState.PAUSED:
                await house.broker.tabs.resume(owner, tab.row.id)
            await house.broker.commands.run(owner, tab.row.id, wire.Evaluate(expression="after"))
        await house.beat(session, owner, row.fence)
        await house.release(session, owner)


@in_house()
async def test_a_tab_whose_caller_left_before_it_was_there_is_closed(house: House) -> None:
    session = await house.open()
    for after_ms in range(8):
        await leave_after(house, session, VERBS["open a tab"], after_ms)
        for tab in [tab for tab in house.live(session).tabs.values() if tab.row.id != session.tabs[0].tab_id]:
            # It was there in time.
            await house.broker.commands.run(ADA, tab.row.id, wire.Close())
        assert (len(house.pages), house.stats().tabs) == (1, 1)


@in_house()
async def test_who_comes_back_from_giving_a_tab_back_finds_it_given_back(house: House) -> None:
    for after_ms in range(8):
        session = await house.open()
        tab_id = session.tabs[0].tab_id
        await house.broker.tabs.hand_off(ADA, tab_id, "alice")
        await leave_after(house, session, VERBS["resume"], after_ms)
        if house.tab(session).row.state is TabState.PAUSED:
            await house.broker.tabs.resume(ADA, tab_id)
        assert (await house.act(session)).ok


# --- The two of them --------------------------------------------------------------------------------------------


async def test_work_goes_on_when_its_caller_leaves() -> None:
    may_end, done, background = asyncio.Event(), [], set()

    async def work() -> str:
        await may_end.wait()
        done.append(True)
        return "done"

    asking = asyncio.ensure_future(to_the_end(work(), lambda left: background.add(asyncio.ensure_future(left))))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    may_end.set()
    await asyncio.gather(*background)
    assert done == [True]


async def test_who_stays_hears_how_the_work_ended() -> None:
    background: set[asyncio.Future[None]] = set()

    async def refuse() -> None:
        raise errors.StateConflict("no")

    with pytest.raises(errors.StateConflict):
        await to_the_end(refuse(), lambda left: background.add(asyncio.ensure_future(left)))
    await asyncio.gather(*background)


@in_house()
async def test_a_write_is_tried_until_the_store_takes_it_and_given_up_when_it_never_will(house: House) -> None:
    refusals = iter([errors.StoreUnavailable("away", cause="full")] * 5)

    async def write() -> str:
        for refusal in refusals:
            raise refusal
        return "written"

    assert await patiently(write) == "written"
    refusals = iter([errors.StoreUnavailable("closed", cause="closed", retryable=False)])
    with pytest.raises(errors.StoreUnavailable):
        await patiently(write)
