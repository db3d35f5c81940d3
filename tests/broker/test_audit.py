"""The audit trail: who did what to which tab or session."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.house import ADA, ADMIN, BOB, House, agent, in_house
from tests.broker.queueing import WAIT, begin, failure_of, hold, lock

from tabherd import errors, wire


async def trail(house: House, **filters: Any) -> list[wire.AuditEntry]:
    named = {"agent_id": None, "session_id": None, "tab_id": None, "limit": 1_000, "cursor": ""}
    return (await house.broker.auditor.list(ADMIN, **{**named, **filters})).entries


@in_house()
async def test_every_command_leaves_who_sent_it_what_it_was_and_how_it_ended(house: House) -> None:
    session = await house.open()
    tab_id = session.tabs[0].tab_id
    done = await house.act(session, "one", agent("ada", "ada-2"))
    failed = await failure_of(await begin(house, session, "hang", timeout_ms=100))
    entries = await trail(house, tab_id=tab_id)
    told = [(one.agent_id, one.controller_id, one.verb, one.detail, one.command_id) for one in entries]
    assert told == [
        ("ada", "ada-2", "evaluate", "completed", done.command_id),
        ("ada", "ada", "evaluate", "timed_out", failed.details["commandId"]),
    ]
    assert {(one.session_id, one.tab_id) for one in entries} == {(session.session_id, tab_id)}


@in_house()
async def test_a_command_that_never_got_its_turn_is_in_the_trail_and_one_that_was_refused_is_not(house: House) -> None:
    session = await house.open()
    await hold(house, session)
    await failure_of(await begin(house, session, "refused", agent("ada", "refused")))
    await failure_of(await begin(house, session, "late", agent("ada", "late"), timeout_ms=100, **WAIT))
    assert [(one.controller_id, one.detail) for one in await trail(house)][-1] == ("late", "timed_out")
    assert "refused" not in [one.controller_id for one in await trail(house)]


@in_house()
async def test_the_life_of_a_lock_is_in_the_trail(house: House) -> None:
    session = await house.open()
    held = await (await lock(house, session))
    await (await lock(house, session, ticket=held.ticket))
    house.broker.tab_locks.unlock(ADMIN, held.tab_id, held.ticket)
    entries = [one for one in await trail(house, tab_id=held.tab_id) if one.verb.startswith("lock_")]
    assert [(one.verb, one.detail, one.controller_id) for one in entries] == [
        ("lock_acquired", "", "ada"),
        ("lock_renewed", "", "ada"),
        ("lock_released", "released", "ada"),
    ]


@in_house()
async def test_what_is_done_to_sessions_and_tabs_is_in_the_trail_with_who_did_it(house: House) -> None:
    session = await house.open()
    tab = await house.broker.commands.open_tab(ADA, session.session_id, wire.OpenTab())
    await house.broker.tabs.hand_off(ADA, tab.tab_id, "Grace")
    await house.broker.tabs.resume(ADA, tab.tab_id)
    await house.broker.sessions.take_over(ADMIN, session.session_id, "bob")
    await house.release(session, BOB)
    done = [(one.agent_id, one.verb) for one in await trail(house, session_id=session.session_id)]
    for entry in (("ada", "open_tab"), ("ada", "handoff"), ("ada", "resume"), ("root", "takeover"), ("bob", "release")):
        assert entry in done


@in_house()
async def test_the_trail_is_read_in_pages_oldest_first_and_by_agent(house: House) -> None:
    session = await house.open(access="shared")
    for n in range(5):
        await house.act(session, str(n), ADA if n % 2 else BOB)
    filters: dict[str, Any] = {"agent_id": "bob", "session_id": None, "tab_id": None}
    first = await house.broker.auditor.list(ADMIN, **filters, limit=2, cursor="")
    assert first.next_cursor is not None
    last = await house.broker.auditor.list(ADMIN, **filters, limit=2, cursor=first.next_cursor)
    assert last.next_cursor is None
    read = [*first.entries, *last.entries]
    assert [one.agent_id for one in read] == ["bob"] * 3
    assert [one.at for one in read] == sorted(one.at for one in read)


@in_house()
async def test_the_trail_is_read_in_pages_newest_first(house: House) -> None:
    session = await house.open()
    for n in range(5):
        await house.act(session, str(n))
    forward = [one.id for one in await trail(house)]
    backward: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = await house.broker.auditor.list(
            ADMIN, agent_id=None, session_id=None, tab_id=None, limit=2, cursor=cursor, newest_first=True
        )
        backward += [one.id for one in page.entries]
        cursor = page.next_cursor
    assert backward == forward[::-1]


@in_house()
async def test_the_trail_outlives_the_broker(house: House) -> None:
    session = await house.open()
    done = await house.act(session, "one")
    await house.restart()
    assert done.command_id in [one.command_id for one in await trail(house)]


@in_house()
async def test_only_an_admin_reads_the_trail(house: House) -> None:
    with pytest.raises(errors.Forbidden):
        await house.broker.auditor.list(ADA, agent_id="ada", session_id=None, tab_id=None, limit=10, cursor="")
