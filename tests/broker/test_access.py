"""Who may see and use what: strangers find nothing, shared sessions are used by many and released by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.broker.house import ADA, ADMIN, BOB, CYD, House, in_house

from tabherd import errors, wire
from tabherd.broker.caller import Caller

Verb = Callable[[House, wire.SessionView], Awaitable[Any]]
BLIND = Caller(agent_id="bob", scopes=frozenset({"tasks"}), controller_id="blind")


async def _look(house: House, session: wire.SessionView) -> wire.TabView:
    return house.broker.tabs.get(BOB, session.tabs[0].tab_id)


# What bob may not do in a session of ada that is shared.
OWNERS_VERBS: dict[str, Verb] = {
    "heartbeat": lambda house, session: house.beat(session, BOB),
    "release": lambda house, session: house.release(session, BOB),
    "release with the fence": lambda house, session: house.release(session, BOB, fence=session.fence),
    "open a tab": lambda house, session: house.broker.commands.open_tab(BOB, session.session_id, wire.OpenTab()),
    "read state": lambda house, session: house.broker.sessions.state(BOB, session.session_id),
    "write state": lambda house, session: house.broker.sessions.put_state(
        BOB, session.session_id, wire.StorageState(cookies=[{"name": "bob"}])
    ),
    "give a page files": lambda house, session: house.broker.commands.run(
        BOB, session.tabs[0].tab_id, wire.Upload(selector="#a", files=[])
    ),
    "give a page files in steps": lambda house, session: house.broker.commands.run(
        BOB, session.tabs[0].tab_id, wire.Steps(steps=[wire.Text(), wire.Upload(selector="#a", files=[])])
    ),
    "hand off": lambda house, session: house.broker.tabs.hand_off(BOB, session.tabs[0].tab_id, None),
    "resume": lambda house, session: house.broker.tabs.resume(BOB, session.tabs[0].tab_id),
}
# What he may.
SHARED_VERBS: dict[str, Verb] = {
    "read": lambda house, session: house.broker.sessions.get(BOB, session.session_id),
    "command": lambda house, session: house.act(session, "bobs", BOB),
    "command with the fence": lambda house, session: house.act(session, "bobs", BOB, fence=session.fence),
    "look at the tab": _look,
}


@pytest.mark.parametrize("verb", [*OWNERS_VERBS.values(), *SHARED_VERBS.values()], ids=[*OWNERS_VERBS, *SHARED_VERBS])
@in_house()
async def test_for_a_stranger_an_exclusive_session_does_not_exist(house: House, verb: Verb) -> None:
    session = await house.open()
    row = house.row(session)
    with pytest.raises((errors.SessionNotFound, errors.TabNotFound)):
        await verb(house, session)
    assert (house.sent, house.row(session), house.page(session).context.cookies) == ([], row, [])


@pytest.mark.parametrize("verb", OWNERS_VERBS.values(), ids=OWNERS_VERBS)
@in_house()
async def test_of_a_shared_session_only_the_owner_may_do_this(house: House, verb: Verb) -> None:
    session = await house.open(access="shared")
    row = house.row(session)
    with pytest.raises(errors.NotOwner):
        await verb(house, session)
    assert (house.row(session), house.page(session).context.cookies) == (row, [])
    assert (await house.act(session)).ok


@pytest.mark.parametrize("verb", SHARED_VERBS.values(), ids=SHARED_VERBS)
@in_house()
async def test_what_others_may_do_in_a_shared_session(house: House, verb: Verb) -> None:
    session = await house.open(access="shared")
    await verb(house, session)
    with pytest.raises(errors.LeaseLost):
        await house.act(session, "stale", BOB, fence=session.fence - 1)


@in_house()
async def test_whose_credential_may_not_browse_sees_no_shared_session(house: House) -> None:
    session = await house.open(access="shared")
    with pytest.raises(errors.SessionNotFound):
        await house.broker.sessions.get(BLIND, session.session_id)
    with pytest.raises(errors.TabNotFound):
        await house.act(session, caller=BLIND)


@in_house()
async def test_the_controllers_of_a_shared_session_meet_at_the_gate(house: House) -> None:
    session = await house.open(access="shared")
    running = asyncio.ensure_future(house.act(session, "adas-held"))
    await house.until(lambda: house.page(session).active)
    with pytest.raises(errors.TabBusy) as busy:
        await house.act(session, "hasty", BOB)
    assert busy.value.details["holder"] == "ada"
    waiting = [
        asyncio.ensure_future(house.act(session, caller.agent_id, caller, wait_policy="wait_with_timeout"))
        for caller in (BOB, CYD, BOB)
    ]
    await asyncio.sleep(1)
    view = house.broker.tabs.get(CYD, session.tabs[0].tab_id)
    assert [waiter.agent_id for waiter in view.waiters] == ["bob", "cyd", "bob"]
    house.finish("adas-held")
    assert (await running).ok
    assert all(answer.ok for answer in await asyncio.gather(*waiting))
    assert [label for _, label in house.sent] == ["adas-held", "bob", "cyd", "bob"]


@in_house()
async def test_one_command_never_starts_before_the_other_has_ended_and_the_page_is_as_the_first_left_it(
    house: House,
) -> None:
    """A send and a poll of one session: the poll finds the address that the send has written."""
    session = await house.open()
    sending = asyncio.ensure_future(house.act(session, "send-held"))
    await house.until(lambda: house.page(session).active)
    polling = asyncio.ensure_future(house.act(session, "poll", wait_policy="wait_with_timeout"))
    await asyncio.sleep(1)
    assert [label for _, label in house.sent] == ["send-held"]
    house.process(session).move_page(house.page(session), "https://chat.test/c/1")
    house.finish("send-held")
    await asyncio.gather(sending, polling)
    assert [label for _, label in house.sent] == ["send-held", "poll"]
    assert house.broker.tabs.get(ADA, session.tabs[0].tab_id).url == "https://chat.test/c/1"


@in_house()
async def test_agents_list_their_own_sessions_in_pages_and_admins_all(house: House) -> None:
    mine = [(await house.open()).session_id for _ in range(3)]
    others = [(await house.open(caller)).session_id for caller in (BOB, CYD)]
    sessions = house.broker.sessions
    page = await sessions.list(ADA, limit=2)
    rest = await sessions.list(ADA, limit=2, cursor=page.next_cursor or "")
    assert [view.session_id for view in (*page.sessions, *rest.sessions)] == mine
    assert rest.next_cursor is None
    assert [view.session_id for view in (await sessions.list(ADMIN)).sessions] == [*mine, *others]
    assert [view.session_id for view in (await sessions.list(ADMIN, agent_id="bob")).sessions] == others[:1]


@in_house()
async def test_sessions_are_listed_by_several_states_and_the_newest_first(house: House) -> None:
    sessions = house.broker.sessions
    ids = []
    for _ in range(3):
        await asyncio.sleep(1)
        ids.append((await house.open()).session_id)
    await sessions.release(ADA, ids[1])

    async def listed(**filters: Any) -> list[str]:
        return [view.session_id for view in (await sessions.list(ADA, **filters)).sessions]

    assert await listed(state="active,recovering") == [ids[0], ids[2]]
    assert await listed(state="active,closed", newest_first=True) == ids[::-1]
    page = await sessions.list(ADA, limit=2, newest_first=True)
    assert await listed(limit=2, newest_first=True, cursor=page.next_cursor) == ids[:1]
    with pytest.raises(errors.InvalidRequest, match="'gone' is none of"):
        await sessions.list(ADA, state="active,gone")


@in_house()
async def test_looking_at_the_list_is_no_sign_of_life_and_a_command_is_one(house: House) -> None:
    session = await house.open()
    (before,) = (await house.broker.sessions.list(ADMIN)).sessions
    await asyncio.sleep(5)
    (later,) = (await house.broker.sessions.list(ADMIN)).sessions
    assert later.seen_at == before.seen_at
    await house.act(session, "one")
    (after,) = (await house.broker.sessions.list(ADMIN)).sessions
    assert after.seen_at > later.seen_at


@in_house()
async def test_the_tabs_of_shared_sessions_are_listed_for_everybody_and_those_of_others_are_not(house: House) -> None:
    shared = await house.open(access="shared")
    await house.open()
    assert [view.session_id for view in house.broker.tabs.list(BOB).tabs] == [shared.session_id]


@in_house()
async def test_an_admin_may_do_everything_in_any_session(house: House) -> None:
    session = await house.open()
    assert (await house.act(session, caller=ADMIN)).ok
    await house.broker.commands.open_tab(ADMIN, session.session_id, wire.OpenTab())
    await house.beat(session, ADMIN)
    await house.release(session, ADMIN)
    assert house.pages == []


@in_house()
async def test_an_admin_opens_sessions_for_anybody(house: House) -> None:
    session = await house.open(ADMIN, agent_id="bob")
    assert session.agent_id == "bob"
    assert (await house.act(session, caller=BOB)).ok


@in_house()
async def test_a_tab_of_another_session_is_not_reached_through_ones_own(house: House) -> None:
    one, other = await house.open(), await house.open()
    with pytest.raises(errors.LeaseLost):
        await house.act(one, session_id=other.session_id, fence=other.fence)
    assert house.sent == []


@in_house()
async def test_late_users_of_an_ended_session_hear_why_and_strangers_nothing(house: House) -> None:
    session = await house.open()
    await house.release(session)
    with pytest.raises(errors.LeaseLost) as lost:
        await house.act(session)
    assert lost.value.details["reason"] == "released"
    with pytest.raises(errors.LeaseLost):
        await house.release(session)
    with pytest.raises(errors.TabNotFound):
        await house.act(session, caller=BOB)
    with pytest.raises(errors.SessionNotFound):
        await house.release(session, BOB)
