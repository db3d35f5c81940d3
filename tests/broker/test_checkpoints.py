"""What is kept of a session so that it can go on in another browser: when it is read, written and forgotten."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from tests.broker.house import ADA, ADMIN, House, in_house
from tests.sim.fakes import SimBrowser

from tabherd import errors, wire
from tabherd.broker import checkpoints
from tabherd.broker.checkpoints import BURST, COOKIES_MAX_CHARS, ORIGINS_MAX
from tabherd.browsers import storage
from tabherd.core.model import Checkpoint, Tab
from tabherd.store.base import Op, Outcome, Put

SHOP = "https://shop.test"


def stored(house: House) -> Checkpoint | None:
    rows = house.disk.rows(Checkpoint)
    assert len(rows) <= 1
    return rows[0] if rows else None


def cookies(house: House) -> Any:
    row = stored(house)
    return None if row is None else json.loads(row.cookies)


def origins(house: House) -> Any:
    row = stored(house)
    return None if row is None else json.loads(row.origins)


@in_house()
async def test_cookies_storage_and_address_are_on_disk_soon_after_a_command(house: House) -> None:
    session = await house.open()
    context = house.page(session).context
    await house.goto(session, f"{SHOP}/cart")
    context.cookies.append({"name": "login"})
    context.local_storage[SHOP] = {"cart": "3"}
    await asyncio.sleep(0.5)
    assert cookies(house) == [{"name": "login"}]
    assert origins(house) == {SHOP: {"cart": "3"}}
    assert house.disk.rows(Tab)[0].url == f"{SHOP}/cart"


@in_house()
async def test_where_a_page_goes_by_itself_is_kept_as_well(house: House) -> None:
    session = await house.open()
    house.page(session).context.cookies.append({"name": "login"})
    house.process(session).move_page(house.page(session), f"{SHOP}/home")
    await asyncio.sleep(0.5)
    assert cookies(house) == [{"name": "login"}]
    assert house.disk.rows(Tab)[0].url == f"{SHOP}/home"


@in_house()
async def test_after_a_few_at_once_a_busy_session_is_looked_at_every_five_seconds(house: House) -> None:
    session = await house.open(keep_alive=True)
    context = house.page(session).context
    taken = []
    for number in range(120):
        context.cookies[:] = [{"name": "count", "value": number}]
        await house.act(session)
        await asyncio.sleep(0.5)
        row = stored(house)
        if row is not None and row.taken_at not in taken:
            taken.append(row.taken_at)
    spent_s = (taken[-1] - taken[0]) / 1000
    assert BURST < len(taken) <= BURST + 1 + spent_s / 5
    assert max(later - earlier for earlier, later in itertools.pairwise(taken)) < 6_500


@in_house()
async def test_what_has_not_changed_is_not_written_again(house: House) -> None:
    session = await house.open()
    house.page(session).context.cookies.append({"name": "login"})
    for _ in range(5):
        await house.act(session)
        await asyncio.sleep(10)
    row = stored(house)
    assert row is not None
    assert row.version == 1


@in_house()
async def test_storage_is_read_before_the_broker_leaves_a_page(house: House) -> None:
    session = await house.open()
    context = house.page(session).context
    await house.goto(session, f"{SHOP}/")
    await asyncio.sleep(60)
    context.local_storage[SHOP] = {"draft": "last words"}
    await house.goto(session, "https://bank.test/")
    await asyncio.sleep(0.5)
    assert origins(house) == {SHOP: {"draft": "last words"}, "https://bank.test": {}}


@in_house()
async def test_storage_is_not_read_from_a_page_in_which_a_command_is_at_work(house: House) -> None:
    session = await house.open()
    context = house.page(session).context
    await house.goto(session, f"{SHOP}/")
    running = asyncio.ensure_future(house.act(session, "long-held"))
    await house.until(lambda: house.page(session).active)
    context.cookies.append({"name": "login"})
    context.local_storage[SHOP] = {"half": "done"}
    await asyncio.sleep(1)
    assert cookies(house) == [{"name": "login"}], "cookies answer even then"
    assert origins(house) == {}
    house.finish("long-held")
    await running
    await asyncio.sleep(6)
    assert origins(house) == {SHOP: {"half": "done"}}


@in_house()
async def test_of_many_origins_those_that_were_seen_last_are_kept(house: House) -> None:
    session = await house.open()
    context = house.page(session).context
    for number in range(ORIGINS_MAX + 3):
        context.local_storage[f"https://site{number}.test"] = {"n": str(number)}
        await house.goto(session, f"https://site{number}.test/")
    await asyncio.sleep(6)
    assert list(origins(house)) == [f"https://site{number}.test" for number in range(3, ORIGINS_MAX + 3)]


@in_house()
async def test_more_cookies_than_fit_leave_the_last_good_ones(house: House) -> None:
    session = await house.open()
    context = house.page(session).context
    context.cookies.append({"name": "login"})
    await house.act(session)
    await asyncio.sleep(6)
    context.cookies.append({"name": "big", "value": "x" * COOKIES_MAX_CHARS})
    await house.goto(session, f"{SHOP}/")
    await asyncio.sleep(6)
    assert cookies(house) == [{"name": "login"}]
    assert house.disk.rows(Tab)[0].url == f"{SHOP}/"


@pytest.mark.parametrize("disposition", ["close", "pool"])
@in_house()
async def test_the_checkpoint_ends_with_its_session(house: House, disposition: str) -> None:
    session = await house.open(key="shop")
    house.page(session).context.cookies.append({"name": "login"})
    await house.act(session)
    await asyncio.sleep(6)
    assert stored(house) is not None
    await house.release(session, disposition=disposition)
    await asyncio.sleep(10)
    assert stored(house) is None
    assert house.broker._checkpoints._drafts == {}


@in_house()
async def test_a_checkpoint_that_is_due_when_the_session_ends_is_not_written(house: House) -> None:
    for after_ms in range(180, 240, 5):
        session = await house.open()
        house.page(session).context.cookies.append({"name": "login"})
        await house.act(session)
        await asyncio.sleep(after_ms / 1000)
        await house.release(session)
        await asyncio.sleep(1)
        assert stored(house) is None


@in_house(isolation="shared", profile_dir="/nowhere/profile")
async def test_where_the_profile_outlives_its_browser_cookies_are_not_copied(house: House) -> None:
    session = await house.open()
    house.process(session).profile.cookies.append({"name": "login"})
    house.process(session).profile.local_storage[SHOP] = {"cart": "3"}
    await house.goto(session, f"{SHOP}/")
    await asyncio.sleep(1)
    assert cookies(house) == []


@in_house(breaker_crashes=1_000)
async def test_a_page_that_was_pooled_is_kept_again_from_the_moment_it_is_taken(house: House) -> None:
    session = await house.open(key="shop", reuse="same-agent")
    house.page(session).context.cookies.append({"name": "login"})
    await house.release(session, disposition="pool")
    again = await house.open(key="shop")
    await asyncio.sleep(1)
    assert cookies(house) == [{"name": "login"}]
    await house.lose_browser(again)
    await house.recovered(again)
    assert house.page(again).context.cookies == [{"name": "login"}]


# --- Reading and writing state ----------------------------------------------------------------------------------


@in_house()
async def test_the_state_of_a_session_opens_another_one(house: House) -> None:
    one = await house.open()
    await house.goto(one, f"{SHOP}/")
    house.page(one).context.cookies.append({"name": "login"})
    house.page(one).context.local_storage[SHOP] = {"cart": "3"}
    state = await house.broker.sessions.state(ADA, one.session_id)
    assert state == wire.StorageState(
        cookies=[{"name": "login"}],
        origins=[wire.OriginStorage(origin=SHOP, local_storage=[wire.StorageItem(name="cart", value="3")])],
    )
    other = await house.open(storage_state=state)
    context = house.page(other).context
    assert (context.cookies, context.local_storage) == ([{"name": "login"}], {SHOP: {"cart": "3"}})


def let_pages_take(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """As on a busy machine: so long after it was asked a page says what its localStorage has, if anybody waits."""
    at_once = SimBrowser.local_storage

    async def later(self: SimBrowser, target_id: str, patience_s: float = 0.0) -> tuple[str, dict[str, str]] | None:
        limit_s = max(storage.READ_LIMIT_S, patience_s)
        await asyncio.sleep(min(seconds, limit_s))
        return await at_once(self, target_id) if seconds <= limit_s else None

    monkeypatch.setattr(SimBrowser, "local_storage", later)


@in_house()
async def test_whoever_asks_for_the_state_of_a_session_waits_for_a_page_that_is_slow_to_tell_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await house.open()
    await house.goto(session, f"{SHOP}/")
    await asyncio.sleep(10)
    house.page(session).context.local_storage[SHOP] = {"cart": "3"}
    let_pages_take(monkeypatch, 1.0)
    state = await house.broker.sessions.state(ADA, session.session_id)
    assert state.origins == [wire.OriginStorage(origin=SHOP, local_storage=[wire.StorageItem(name="cart", value="3")])]


@in_house()
async def test_pages_that_never_tell_it_are_not_waited_for_one_after_the_other(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await house.open()
    for _ in range(4):
        await house.broker.tabs.open(ADA, session.session_id, wire.OpenTab())
    let_pages_take(monkeypatch, 1_000.0)
    began = house.now
    await house.broker.sessions.state(ADA, session.session_id)
    assert house.now - began < 1_000 * (checkpoints.READ_LIMIT_S + 5 * storage.READ_LIMIT_S)


@in_house(breaker_crashes=1_000)
async def test_state_that_was_written_into_a_session_survives_its_browser(house: House) -> None:
    state = wire.StorageState(
        cookies=[{"name": "login"}],
        origins=[wire.OriginStorage(origin=SHOP, local_storage=[wire.StorageItem(name="cart", value="3")])],
    )
    session = await house.open()
    await house.broker.sessions.put_state(ADA, session.session_id, state)
    await house.lose_browser(session)
    await house.recovered(session)
    assert await house.broker.sessions.state(ADA, session.session_id) == state


@in_house(breaker_crashes=1_000)
async def test_state_that_a_session_was_opened_with_survives_its_browser(house: House) -> None:
    state = wire.StorageState(
        cookies=[{"name": "login"}],
        origins=[wire.OriginStorage(origin=SHOP, local_storage=[wire.StorageItem(name="cart", value="3")])],
    )
    session = await house.open(storage_state=state)
    await asyncio.sleep(1)
    await house.lose_browser(session)
    await house.recovered(session)
    assert await house.broker.sessions.state(ADA, session.session_id) == state


@in_house()
async def test_state_is_written_in_turn_with_everything_else_that_changes_the_session(house: House) -> None:
    session = await house.open()
    async with house.live(session).mutex:
        releasing = asyncio.ensure_future(house.release(session))
        await asyncio.sleep(1)
        writing = asyncio.ensure_future(
            house.broker.sessions.put_state(ADMIN, session.session_id, wire.StorageState(cookies=[{"name": "late"}]))
        )
        await asyncio.sleep(1)
    await releasing
    with pytest.raises(errors.LeaseLost):
        await writing


@in_house()
async def test_one_whose_writing_was_not_answered_goes_with_its_session(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await house.open()
    apply, is_lost = house.store.apply, True

    async def unheard(*ops: Op) -> Outcome:
        nonlocal is_lost
        outcome = await apply(*ops)
        if is_lost and any(isinstance(op, Put) and isinstance(op.row, Checkpoint) for op in ops):
            is_lost = False
            raise errors.StoreUnavailable("Nobody can tell.", cause="in_doubt")
        return outcome

    monkeypatch.setattr(house.store, "apply", unheard)
    live = house.live(session)
    house.broker._checkpoints.note(live, {SHOP: {"cart": "1"}})
    await house.broker._checkpoints.take(live)
    assert not is_lost
    assert stored(house) is not None
    await house.release(session)
    assert stored(house) is None
