"""Who is taken for gone and when, through the whole broker, over hours of virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.house import ADA, ADMIN, BOB, House, Socket, in_house

from tabherd import errors, wire
from tabherd.broker.sessions import Sessions

# Browsers are asked once a minute here: an hour of probes would only make the tests slower.
CALM = {"probe_every_ms": 60_000}


async def ended(house: House, session: wire.SessionView, within_s: float = 10_000) -> tuple[str, int]:
    """Wait for the end of a session: its reason, and how many seconds it took."""
    waited_ms = await house.until(lambda: house.row(session).ended_at, within_s)
    await house.quiet()
    return house.row(session).end_reason, round(waited_ms / 1000)


def keep_watching(house: House, session: wire.SessionView) -> None:
    """Fail in the very moment in which the session is not there."""

    def look() -> bool:
        assert house.is_bound(session), "reaped"
        assert not house.live(session).is_ending, "about to be reaped"
        return False

    house.loop.watches.append(look)


# --- Beats ------------------------------------------------------------------------------------------------------


@in_house(**CALM)
async def test_a_legitimate_hour_with_a_beat_every_60_s_is_never_reaped(house: House) -> None:
    session = await house.open(tier="pro")
    began = house.now
    keep_watching(house, session)
    while house.now - began < 3_500_000:
        await asyncio.sleep(60)
        assert (await house.beat(session)).fence == session.fence
        assert house.now - house.row(session).heartbeat_at < 60_000
    assert (await house.act(session)).ok
    house.loop.watches.clear()


@in_house(**CALM)
async def test_beats_that_are_late_but_less_than_180_s_apart_keep_it(house: House) -> None:
    session = await house.open(tier="pro")
    keep_watching(house, session)
    for _ in range(15):
        await asyncio.sleep(178)
        await house.beat(session)
    house.loop.watches.clear()


@in_house(**CALM)
async def test_three_missed_beats_and_no_other_sign_of_life_end_it(house: House) -> None:
    session = await house.open(tier="pro")
    await asyncio.sleep(500 / 10)
    await house.beat(session)
    assert await ended(house, session) == ("stale", 180)
    assert house.metric("lease_reaped_total", reason="stale") == 1
    with pytest.raises(errors.LeaseLost):
        await house.beat(session)


@in_house(**CALM)
async def test_a_heartbeat_that_is_first_keeps_the_session_from_the_reaper_who_came_after_it(house: House) -> None:
    session = await house.open()
    await house.beat(session)
    await asyncio.sleep(179)
    async with house.live(session).mutex:
        beating = asyncio.ensure_future(house.beat(session))
        await asyncio.sleep(5)  # The reaper has taken its verdict and waits for its turn behind the beat.
    assert (await beating).fence == session.fence
    await asyncio.sleep(60)
    assert (await house.act(session)).ok


@pytest.mark.parametrize(
    "taken_s", [pytest.param(179, id="before the reaper comes"), pytest.param(200, id="while the reaper waits")]
)
@in_house(**CALM)
async def test_whoever_waited_for_the_answer_to_a_heartbeat_was_there_until_then(
    house: House, monkeypatch: pytest.MonkeyPatch, taken_s: int
) -> None:
    session = await house.open()
    await house.beat(session)
    save = Sessions._update

    async def save_slowly(self: Sessions, live: Any, row: Any) -> Any:
        await asyncio.sleep(taken_s)
        return await save(self, live, row)

    monkeypatch.setattr(Sessions, "_update", save_slowly)
    await house.beat(session)
    monkeypatch.undo()
    await asyncio.sleep(120)
    assert (await house.act(session)).ok


@in_house(**CALM)
async def test_a_heartbeat_that_comes_after_the_reaper_hears_that_the_session_is_over(house: House) -> None:
    session = await house.open()
    await house.beat(session)
    await asyncio.sleep(179)
    async with house.live(session).mutex:
        await asyncio.sleep(5)
        beating = asyncio.ensure_future(house.beat(session))
        await asyncio.sleep(0.1)
    with pytest.raises(errors.LeaseLost):
        await beating
    assert house.row(session).end_reason == "stale"
    assert house.pages == []


@pytest.mark.parametrize("seed", range(6))
@in_house(**CALM, idle_ttl_s=180)
async def test_a_beat_and_the_reaper_in_one_moment_have_one_winner(house: House, seed: int) -> None:
    house.chance.seed(seed)
    session = await house.open()
    await house.beat(session)
    await asyncio.sleep(180 - 0.003)
    answers = await asyncio.gather(*(_beat_after(house, session, n / 1000) for n in range(8)), return_exceptions=True)
    won = [answer for answer in answers if isinstance(answer, wire.HeartbeatAnswer)]
    lost = [answer for answer in answers if isinstance(answer, errors.LeaseLost)]
    assert len(won) + len(lost) == 8
    await house.quiet()
    assert house.is_bound(session) == bool(won)
    if won:
        assert (await house.act(session)).ok


async def _beat_after(house: House, session: wire.SessionView, after_s: float) -> wire.HeartbeatAnswer:
    await asyncio.sleep(after_s)
    return await house.beat(session)


# --- Named processes --------------------------------------------------------------------------------------------


@in_house(**CALM)
async def test_a_live_owner_process_keeps_it_for_the_whole_hour_without_a_single_beat(house: House) -> None:
    session = await house.open(tier="pro", owner=wire.Owner(pid=house.new_pid()))
    keep_watching(house, session)
    await asyncio.sleep(3_500)
    house.loop.watches.clear()
    assert (await house.act(session)).ok


@in_house(**CALM)
async def test_a_live_owner_with_an_old_heartbeat_is_kept_and_reaped_once_it_is_dead(house: House) -> None:
    pid = house.new_pid()
    session = await house.open(tier="pro", owner=wire.Owner(pid=pid))
    await house.beat(session)
    await asyncio.sleep(7 * 60)
    assert house.is_bound(session)
    house.end_process(pid)
    assert await ended(house, session) == ("owner_dead", 2)
    assert house.pages == []


@pytest.mark.parametrize("later_s", [0, 1])
@pytest.mark.parametrize("sign", ["beat", "command"])
@in_house(**CALM)
async def test_a_sign_of_life_that_follows_a_proven_death_saves_the_session(
    house: House, sign: str, later_s: int
) -> None:
    """Also in the same millisecond: a server that was busy hears of both at once."""
    pid = house.new_pid()
    session = await house.open(owner=wire.Owner(pid=pid))
    await house.act(session)
    house.end_process(pid)
    await asyncio.sleep(later_s)
    await (house.beat(session) if sign == "beat" else house.act(session))
    await asyncio.sleep(100)
    assert (await house.act(session)).ok
    # From then on it is silence that counts.
    assert await ended(house, session) == ("stale", 180)


@pytest.mark.parametrize("sign", ["admin", "owner", "tabs", "state", "guest's command", "guest's lock"])
@in_house(**CALM)
async def test_neither_a_read_nor_a_guest_follows_a_proven_death(house: House, sign: str) -> None:
    pid = house.new_pid()
    session = await house.open(owner=wire.Owner(pid=pid), access="shared")
    house.end_process(pid)
    await asyncio.sleep(1)
    match sign:
        case "admin":
            await house.broker.sessions.get(ADMIN, session.session_id)
        case "owner":
            await house.broker.sessions.get(ADA, session.session_id)
        case "tabs":
            await house.broker.tabs.of_session(ADMIN, session.session_id)
        case "state":
            await house.broker.sessions.state(ADMIN, session.session_id)
        case "guest's command":
            await house.act(session, caller=BOB)
        case "guest's lock":
            await house.broker.tab_locks.lock(BOB, session.tabs[0].tab_id, wire.LockTab())
    assert await ended(house, session) == ("owner_dead", 1)


@in_house(**CALM)
async def test_a_command_that_was_heard_before_the_proof_is_no_successor_however_close(house: House) -> None:
    pid = house.new_pid()
    session = await house.open(owner=wire.Owner(pid=pid))
    acting = asyncio.ensure_future(house.act(session))
    await house.until(lambda: house.live(session).has_work)
    house.end_process(pid)
    await acting
    assert await ended(house, session) == ("owner_dead", 2)


@in_house(**CALM)
async def test_a_socket_that_is_opened_after_the_proof_is_a_successor(house: House) -> None:
    pid = house.new_pid()
    session = await house.open(owner=wire.Owner(pid=pid))
    house.end_process(pid)
    await house.broker.sessions.connect(house.live(session), "successor", Socket())
    await asyncio.sleep(600)
    assert house.is_bound(session)


@in_house(**CALM)
async def test_a_death_is_heard_at_once_and_not_at_the_next_look(house: House) -> None:
    pid = house.new_pid()
    session = await house.open(owner=wire.Owner(pid=pid))
    await house.beat(session)
    await asyncio.sleep(7)
    began = house.now
    house.end_process(pid)
    await house.until(lambda: house.row(session).ended_at)
    assert 2_000 <= house.now - began <= 2_100


@in_house(**CALM, max_active=1)
async def test_whoever_waits_has_the_place_of_a_dead_owner_after_its_grace(house: House) -> None:
    pid = house.new_pid()
    await house.open(owner=wire.Owner(pid=pid))
    waiting = asyncio.ensure_future(house.open(BOB, wait_ms=60_000))
    await asyncio.sleep(1)
    began = house.now
    house.end_process(pid)
    assert (await house.act(await waiting, caller=BOB)).ok
    assert house.now - began <= 2_500


# --- Connections ------------------------------------------------------------------------------------------------


@in_house(**CALM)
async def test_a_connection_bound_session_ends_10_s_after_its_last_socket(house: House) -> None:
    session = await house.open()
    live, sessions = house.live(session), house.broker.sessions
    for name in ("one", "two"):
        await sessions.connect(live, name, Socket())
    await asyncio.sleep(1_000)
    sessions.disconnect(live, "one")
    await asyncio.sleep(60)
    assert house.is_bound(session)
    sessions.disconnect(live, "two")
    assert await ended(house, session) == ("disconnected", 10)


@in_house(**CALM)
async def test_a_socket_that_comes_back_in_time_keeps_it(house: House) -> None:
    session = await house.open()
    live, sessions = house.live(session), house.broker.sessions
    await sessions.connect(live, "one", Socket())
    sessions.disconnect(live, "one")
    await asyncio.sleep(9)
    await sessions.connect(live, "two", Socket())
    await asyncio.sleep(300)
    assert (await house.act(session)).ok


@in_house(**CALM)
async def test_a_closed_socket_is_no_reason_while_a_command_runs(house: House) -> None:
    session = await house.open()
    live, sessions = house.live(session), house.broker.sessions
    await sessions.connect(live, "one", Socket())
    running = asyncio.ensure_future(house.act(session, "long-held", timeout_ms=600_000))
    sessions.disconnect(live, "one")
    await asyncio.sleep(100)
    house.finish("long-held")
    assert (await running).ok


# --- Others -----------------------------------------------------------------------------------------------------


@in_house(**CALM)
async def test_a_bare_http_session_ends_180_s_after_the_last_command_or_read(house: House) -> None:
    session = await house.open()
    await asyncio.sleep(150)
    await house.act(session)
    await asyncio.sleep(150)
    await house.broker.sessions.get(ADA, session.session_id)
    assert await ended(house, session) == ("idle", 180)


@in_house(**CALM)
async def test_that_somebody_else_reads_a_shared_session_is_no_sign_of_its_owners_life(house: House) -> None:
    session = await house.open(access="shared")
    await asyncio.sleep(170)
    for reader in (BOB, ADMIN):
        await house.broker.sessions.get(reader, session.session_id)
        await house.broker.tabs.of_session(reader, session.session_id)
    assert (await ended(house, session))[1] <= 11


@in_house(**CALM)
async def test_kept_alive_it_ends_with_its_deadline_and_120_s_and_not_before(house: House) -> None:
    session = await house.open(deadline_ms=900_000, keep_alive=True)
    assert await ended(house, session) == ("deadline", 1_020)


@in_house(**CALM)
async def test_past_its_deadline_it_serves_nothing_although_it_is_reaped_only_later(house: House) -> None:
    session = await house.open(deadline_ms=100_000)
    await asyncio.sleep(100)
    with pytest.raises(errors.LeaseLost):
        await house.act(session)
    assert house.sent == []
    for _ in range(2):
        await house.beat(session)
        await asyncio.sleep(50)
    assert await ended(house, session) == ("deadline", 20)


@in_house(**CALM)
async def test_a_person_who_has_a_tab_keeps_it_and_silence_counts_from_when_it_is_given_back(house: House) -> None:
    session = await house.open()
    tab_id = session.tabs[0].tab_id
    await house.broker.tabs.hand_off(ADA, tab_id, "alice")
    await asyncio.sleep(900)
    await house.broker.tabs.resume(ADA, tab_id)
    assert await ended(house, session) == ("idle", 180)


@in_house(**CALM)
async def test_the_deadline_also_ends_what_a_person_has(house: House) -> None:
    session = await house.open(deadline_ms=100_000)
    await house.broker.tabs.hand_off(ADA, session.tabs[0].tab_id, "alice")
    assert await ended(house, session) == ("deadline", 220)


@in_house(**CALM)
async def test_a_command_that_runs_or_waits_is_a_sign_of_life(house: House) -> None:
    session = await house.open()
    running = asyncio.ensure_future(house.act(session, "long-held", timeout_ms=600_000))
    await asyncio.sleep(500)
    assert house.is_bound(session)
    house.finish("long-held")
    await running
    assert await ended(house, session) == ("idle", 180)


@in_house(**CALM)
async def test_a_session_that_is_being_recovered_is_reaped_by_the_same_rules(house: House) -> None:
    pid = house.new_pid()
    session = await house.open(owner=wire.Owner(pid=pid))
    house.launcher._fail_rate = 1.0
    house.process(session).die("killed")
    await house.until(lambda: house.live(session).browser is None)
    await asyncio.sleep(30)
    house.end_process(pid)
    assert await ended(house, session) == ("owner_dead", 2)
    assert house.stats().active == 0


@in_house(**CALM)
async def test_the_owner_is_told_once_when_80_percent_of_the_time_is_over(house: House) -> None:
    session = await house.open(deadline_ms=100_000, keep_alive=True)
    created_at = house.row(session).created_at
    told = []
    for _ in range(10):
        await asyncio.sleep(20)
        while (event := house.told.take()) is not None:
            told += [event] if event.type == "session_expiring" else []
    assert [(event.at_ms - created_at, event.fields["expiresAt"]) for event in told] == [(80_000, session.expires_at)]
    assert told[0].fields["sessionId"] == session.session_id


# --- Forgetting -------------------------------------------------------------------------------------------------


@in_house(**CALM)
async def test_what_ended_is_readable_for_an_hour_and_then_forgotten(house: House) -> None:
    session = await house.open()
    answer = await house.act(session)
    await house.release(session)
    await asyncio.sleep(3_500)
    assert (await house.broker.sessions.get(ADA, session.session_id)).state == "closed"
    await asyncio.sleep(200)
    with pytest.raises(errors.SessionNotFound):
        await house.broker.sessions.get(ADMIN, session.session_id)
    with pytest.raises(errors.CommandNotFound):
        await house.broker.commands.get(ADMIN, answer.command_id)
