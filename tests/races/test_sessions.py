"""Races that tabherd runs itself, for sessions and tabs: its verbs with their guards, and with the guard taken out.

A whole broker on virtual time; each scene holds one caller at the point that matters, and lets the other one through.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.house import ADA, ADMIN, BOB, House, agent, in_house
from tests.broker.queueing import WAIT, begin, failure_of, hold, labels, lock
from tests.races.scene import with_and_without
from tests.sim.ablations import ABLATIONS

from tabherd import errors, wire
from tabherd.broker import leases, sessions
from tabherd.broker.idempotency import Keys
from tabherd.broker.order import SessionMutex
from tabherd.broker.registry import LiveTab
from tabherd.broker.tabs import Tabs
from tabherd.core.lifecycle import TabEvent, TabState
from tabherd.core.model import changed


def take_out(monkeypatch: pytest.MonkeyPatch, guard: str) -> None:
    """Switch off one of the safeguards that the simulator knows."""
    ABLATIONS[guard](monkeypatch)


@with_and_without
@in_house()
async def test_h1_the_reaper_ends_a_session_whose_command_came_first(
    house: House, monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    if not is_guarded:
        take_out(monkeypatch, "a heartbeat that came first saves the session")
    session = await house.open()
    await house.beat(session)
    await asyncio.sleep(179)
    async with house.live(session).mutex:
        # The reaper has taken its verdict, and waits for its turn.
        await asyncio.sleep(5)
        command = await hold(house, session, "order-held")
    await asyncio.sleep(5)
    house.finish("order-held")
    if is_guarded:
        assert (await command).ok
        assert house.is_bound(session)
    else:
        assert isinstance(await failure_of(command), errors.LeaseLost)
        assert house.row(session).end_reason == "stale"


async def _pause_as_it_was(self: Tabs, tab: LiveTab, by: str, fence: int) -> None:
    """A handoff that believes what it saw before it waited for its turn."""
    async with tab.session.mutex:
        tab.row = changed(tab.row, state=TabState.READY)
        await self._move(tab, TabEvent.PAUSE)
        tab.gate.pause(by, self._clock())


@with_and_without
@in_house()
async def test_h7_two_people_are_handed_the_same_tab(
    house: House, monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    if not is_guarded:
        monkeypatch.setattr(Tabs, "_pause", _pause_as_it_was)
    session = await house.open()
    tab_id = session.tabs[0].tab_id
    async with house.live(session).mutex:
        # Both find the tab ready, and wait for their turn.
        asked = [asyncio.ensure_future(house.broker.tabs.hand_off(ADA, tab_id, by)) for by in ("kim", "lee")]
        await asyncio.sleep(1)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    told = [type(answer) for answer in answers]
    assert told == ([wire.TabView, errors.StateConflict] if is_guarded else [wire.TabView, wire.TabView])
    await house.broker.tabs.resume(ADA, tab_id)


@with_and_without
@in_house()
async def test_h7_two_admins_take_over_the_same_session(
    house: House, monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    """Without the session's mutex both decide by the same row, and only the guarded write saves it from one of them."""

    async def nothing(*args: Any) -> None:
        return None

    session = await house.open()
    if not is_guarded:
        monkeypatch.setattr(SessionMutex, "__aenter__", nothing)
        monkeypatch.setattr(SessionMutex, "__aexit__", nothing)
    taking = (house.broker.sessions.take_over(ADMIN, session.session_id, name) for name in ("bob", "cyd"))
    answers = await asyncio.gather(*taking, return_exceptions=True)
    views = [answer for answer in answers if isinstance(answer, wire.SessionView)]
    assert len(views) == (2 if is_guarded else 1)
    # One after the other: the second took it from the first, not from who had it before both.
    assert house.row(session).taken_from == ("bob" if is_guarded else "ada")
    assert house.row(session).fence == max(view.fence for view in views) > session.fence


@with_and_without
@in_house()
async def test_h8_a_command_that_waited_is_sent_to_somebody_elses_session(
    house: House, monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    if not is_guarded:
        take_out(monkeypatch, "the lease is checked again after a wait")
    session = await house.open()
    await hold(house, session, "first-held")
    late = await begin(house, session, "late", **WAIT)
    await house.broker.sessions.take_over(ADMIN, session.session_id, "bob")
    await asyncio.wait([late])
    assert ("late" in labels(house)) is not is_guarded
    assert house.row(session).agent_id == "bob"


@with_and_without
@in_house()
async def test_h8_a_command_that_waited_is_sent_to_a_session_that_has_ended(
    house: House, monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    """Whoever works with it is never reaped, but another program of the same agent may give it back."""
    if not is_guarded:
        take_out(monkeypatch, "the lease is checked again after a wait")
        monkeypatch.setattr(leases, "turn_away", vars(sessions)["turn_away"])
    session, other = await house.open(), agent("ada", "another program")
    await (await lock(house, session, other))
    late = await begin(house, session, "late", **WAIT)
    await house.release(session, other)
    await asyncio.wait([late])
    assert ("late" in labels(house)) is not is_guarded
    assert isinstance(late.exception(), errors.LeaseLost) is is_guarded


@with_and_without
@in_house()
async def test_m2_every_witness_of_a_dead_page_rebuilds_it(
    house: House, monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    if not is_guarded:
        take_out(monkeypatch, "a page that died is rebuilt once")
    session = await house.open()
    house.crash(session)
    await house.quiet()
    assert house.tab(session).row.generation == (2 if is_guarded else 3)


@with_and_without
@in_house()
async def test_m8_a_command_is_run_twice_under_one_key(
    house: House, monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    async def find_nothing(*args: Any) -> None:
        return None

    async def claim_nothing(self: Keys, row: Any) -> str:
        return str(row.command_id)

    if not is_guarded:
        monkeypatch.setattr(Keys, "find", find_nothing)
        monkeypatch.setattr(Keys, "claim", claim_nothing)
    session = await house.open()
    callers = ADA, agent("ada", "ada-again")
    sent = [await begin(house, session, "buy", caller, idempotency_key="order-7", **WAIT) for caller in callers]
    views = await asyncio.gather(*sent)
    assert labels(house) == (["buy"] if is_guarded else ["buy", "buy"])
    assert len({view.command_id for view in views}) == (1 if is_guarded else 2)


@with_and_without
@in_house()
async def test_m9_the_next_command_starts_while_one_that_timed_out_is_still_at_work(
    house: House, monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    """Its time is over, but it is not: the tab is nobody's until its page has been replaced."""
    if not is_guarded:
        take_out(monkeypatch, "a tab is quarantined after a timeout")
    session = await house.open(access="shared")
    with pytest.raises(errors.CommandTimedOut):
        await house.act(session, "hang", timeout_ms=100)
    following = await begin(house, session, "next", BOB, **WAIT)
    await asyncio.wait([following])
    if is_guarded:
        assert following.result().ok
        assert [target for target, _ in house.sent] == sorted({target for target, _ in house.sent})
    else:
        # The house looks at every page before a command is sent to it.
        with pytest.raises(AssertionError, match="starts while hang is at work"):
            following.result()
