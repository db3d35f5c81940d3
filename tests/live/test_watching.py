"""Watching: one screencast for all, each viewer at its own pace, and nobody who may not."""

from __future__ import annotations

import asyncio

import pytest
from picows import WSHandshakeError
from picows.websockets import InvalidStatus
from tests.edge.control_house import until

from tabherd.broker import live
from tabherd.browsers.screencast import Look
from tabherd.wire.live import LIVE_UNDER_WAY_MAX

from .stage import ADMIN, Stage, staged
from .viewer import LIMIT_S, watching

pytestmark = pytest.mark.asyncio(loop_scope="module")

Refused = (InvalidStatus, WSHandshakeError)


async def test_a_viewer_is_told_at_once_what_is_the_case(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        state = await viewer.state()
        assert state["tab"]["tabId"] == tab
        assert (state["tab"]["state"], state["driver"], state["mayDrive"], state["viewers"]) == ("ready", None, True, 1)


async def test_a_frame_arrives_with_its_header(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        (await stage.cast()).paint(b"\xff\xd8picture")
        picture = await viewer.picture()
        assert picture.jpeg == b"\xff\xd8picture"
        assert picture.header == {"seq": 1, "width": 800, "height": 600, "scrollX": 0, "scrollY": 0, "capturedAt": 1}


async def test_all_viewers_share_one_screencast_which_ends_with_the_last(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as one:
        await one.state()
        async with stage.watch(tab) as two:
            await one.state(lambda state: state["viewers"] == 2)
            cast = await stage.cast()
            cast.paint()
            await one.picture()
            await two.picture()
        await one.state(lambda state: state["viewers"] == 1)
        assert not cast.over.is_set()
    await until(cast.over.is_set)
    assert len(stage.casts) == 1


async def test_a_newcomer_gets_the_last_frame_at_once(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as one:
        (await stage.cast()).paint(b"still here")
        await one.picture()
        async with stage.watch(tab) as two:
            assert (await two.picture()).jpeg == b"still here"


async def test_a_viewer_that_does_not_acknowledge_gets_two_frames_and_later_the_newest(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab, acks=False) as slow, stage.watch(tab) as fast:
        await slow.state()
        cast = await stage.cast()
        for number in range(1, 11):
            cast.paint(b"%d" % number)
            # The fast one is not held up by the slow one.
            await fast.until(lambda number=number: fast.pictures and fast.pictures[-1].header["seq"] == number)
        assert [picture.jpeg for picture in fast.pictures] == [b"%d" % number for number in range(1, 11)]
        assert [picture.jpeg for picture in slow.pictures] == [b"1", b"2"]
        assert LIVE_UNDER_WAY_MAX == 2
        await slow.say("ack", seq=2)
        await slow.picture(after=2)
        assert [picture.jpeg for picture in slow.pictures] == [b"1", b"2", b"10"]


async def test_an_acknowledgement_of_what_was_never_sent_changes_nothing(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab, acks=False) as viewer:
        await viewer.state()
        cast = await stage.cast()
        for number in range(3):
            cast.paint(b"%d" % number)
        await viewer.say("ack", seq=0)
        await viewer.say("ack", seq=-5)
        # Answered in order: what was sent before was taken in.
        await viewer.say("nonsense")
        await viewer.next("error")
        assert len(viewer.pictures) == 2


async def test_chromium_is_asked_for_more_only_when_a_viewer_took_the_frame(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab, acks=False) as viewer:
        cast = await stage.cast()
        for number in range(5):
            cast.paint(b"%d" % number)
        await viewer.picture(after=1)
        assert cast.takes == 2
        await viewer.say("ack", seq=1)
        await viewer.picture(after=4)
        assert cast.takes == 3


async def test_the_screencast_is_as_large_as_the_largest_viewer_wants(stage: Stage) -> None:
    tab, token = await stage.house.open_tab(), await stage.token("ada")
    async with watching(stage.url, tab, token, width=200, height=900, quality=30) as one:
        cast = await stage.cast()
        assert cast.look == Look(width=200, height=900, quality=30)
        async with watching(stage.url, tab, token, width=400, height=100, quality=80):
            await until(lambda: cast.look == Look(width=400, height=900, quality=80))
        await until(lambda: cast.look == Look(width=200, height=900, quality=30))
        await one.say("size", width=50, height=60, quality=10)
        await until(lambda: cast.look == Look(width=50, height=60, quality=10))


async def test_watching_is_no_sign_of_the_owners_life(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    session = stage.house.live(tab)
    async with stage.watch(tab) as viewer:
        seen_at = session.seen_at
        await viewer.state()
        await viewer.say("size", width=50, height=60)
        await viewer.say("mouse", event="move", x=1, y=1)
        await viewer.next("error")
        assert session.connections == {}
        assert session.seen_at == seen_at
        assert not session.has_work


async def test_where_the_page_goes_is_told(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        await viewer.state()
        live_tab = stage.broker.registry.tab(tab)
        assert live_tab is not None
        stage.broker.tabs.page_moved(live_tab.row.target_id, "http://example.test/", "An example")
        state = await viewer.state(lambda state: state["tab"]["title"] == "An example")
        assert state["tab"]["url"] == "http://example.test/"


async def test_what_agents_do_with_the_tab_is_told(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        await viewer.state()
        running = asyncio.ensure_future(stage.run(tab, "held-1"))
        await viewer.state(lambda state: state["tab"]["holder"] and state["tab"]["holder"]["kind"] == "evaluate")
        waiting = asyncio.ensure_future(stage.run(tab, "2", wait_policy="wait_with_timeout"))
        state = await viewer.state(lambda state: state["tab"]["waiters"])
        assert [waiter["agentId"] for waiter in state["tab"]["waiters"]] == ["ada"]
        stage.house.pages.finish("held-1")
        await asyncio.gather(running, waiting)
        await viewer.state(lambda state: state["tab"]["holder"] is None)


async def test_a_page_that_crashed_is_watched_on_as_it_was_rebuilt(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        first = await stage.cast()
        first.paint(b"before")
        await viewer.picture()
        stage.crash(tab)
        second = await stage.cast(1)
        await viewer.state(lambda state: state["tab"]["generation"] == 2 and state["tab"]["state"] == "ready")
        assert first.over.is_set()
        assert second.url != first.url
        second.paint(b"after")
        assert (await viewer.picture(after=1)).jpeg == b"after"


async def test_a_screencast_that_breaks_is_begun_again(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        (await stage.cast()).over.set()
        (await stage.cast(1)).paint(b"again")
        assert (await viewer.picture()).jpeg == b"again"


# --- Who may --------------------------------------------------------------------------------------------------------


async def test_what_a_caller_may_not_see_does_not_exist_for_it(stage: Stage) -> None:
    tab = await stage.house.open_tab("ada")
    with pytest.raises(Refused, match="404"):
        async with stage.watch(tab, "bob"):
            pass
    assert stage.casts == []


async def test_without_a_credential_nobody_gets_in(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    with pytest.raises(Refused, match="401"):
        async with watching(stage.url, tab):
            pass


async def test_the_scope_browse_is_needed(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    token = await stage.house.token("ada", "tasks")
    with pytest.raises(Refused, match="403"):
        async with watching(stage.url, tab, token):
            pass


async def test_a_page_of_another_origin_is_refused_whatever_it_brings(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    with pytest.raises(Refused, match="403"):
        async with watching(stage.url, tab, await stage.token("ada"), headers={"Origin": "http://evil.test"}):
            pass


async def test_an_admin_sees_and_may_drive_every_tab(stage: Stage) -> None:
    tab = await stage.house.open_tab("ada")
    async with stage.watch(tab, "root") as viewer:
        assert (await viewer.state())["mayDrive"] is True


async def test_others_see_a_shared_tab_and_may_not_drive_it(stage: Stage) -> None:
    tab = await stage.house.open_tab("ada", access="shared")
    async with stage.watch(tab, "bob") as viewer:
        assert (await viewer.state())["mayDrive"] is False
        await viewer.say("take")
        assert (await viewer.next("error"))["code"] == "not_owner"


async def test_more_viewers_than_that_are_turned_away(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "VIEWERS_MAX", 1)
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as one:
        await one.state()
        async with stage.watch(tab) as two:
            assert (await two.next("ended"))["error"]["code"] == "capacity"
            assert (await two.closed())[0] == 4429


# --- The end --------------------------------------------------------------------------------------------------------


async def test_the_end_of_the_tab_is_told_before_the_close(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        await viewer.state()
        live_tab = stage.broker.registry.tab(tab)
        assert live_tab is not None
        await stage.broker.tabs.close(live_tab)
        assert (await viewer.next("ended"))["error"]["code"] == "tab_not_found"
        assert (await viewer.closed())[0] == 4404
    await until((await stage.cast()).over.is_set)


async def test_the_end_of_the_session_is_told_before_the_close(stage: Stage) -> None:
    session = await stage.house.open()
    async with stage.watch(session.tabs[0].tab_id) as viewer:
        await viewer.state()
        await stage.broker.sessions.release(ADMIN, session.session_id)
        assert (await viewer.next("ended"))["error"]["code"] == "lease_lost"
        assert (await viewer.closed())[0] == 4409


async def test_whoever_may_not_see_a_session_that_changed_hands_is_cut_off_and_others_stay(stage: Stage) -> None:
    session = await stage.house.open("ada")
    tab = session.tabs[0].tab_id
    async with stage.watch(tab, "ada") as ada, stage.watch(tab, "root") as root:
        await ada.state()
        await root.state(lambda state: state["viewers"] == 2)
        await stage.broker.sessions.take_over(ADMIN, session.session_id, "bob")
        assert (await ada.next("ended"))["error"]["code"] == "lease_lost"
        assert (await ada.closed())[0] == 4409
        await root.state(lambda state: state["viewers"] == 1 and state["tab"]["agentId"] == "bob")
        # It is the session's guest as before, so that the next change waits for it as well.
        assert list(stage.house.live(tab).guests) == [f"live_{tab}"]
        await stage.broker.sessions.release(ADMIN, session.session_id)
        assert (await root.next("ended"))["error"]["code"] == "lease_lost"


async def test_a_revoked_credential_ends_it(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    token, credential = await stage.house.credentials.create("ada", ("browse",))
    async with watching(stage.url, tab, token) as viewer:
        await viewer.state()
        await stage.house.credentials.revoke(credential.id)
        assert (await viewer.next("ended"))["error"]["code"] == "unauthenticated"
        assert (await viewer.closed())[0] == 4401


async def test_a_server_that_stops_says_so() -> None:
    async with staged() as stage:
        tab = await stage.house.open_tab()
        async with stage.watch(tab) as viewer:
            await viewer.state()
            stage.house.front.should_exit = True
            assert (await viewer.next("ended"))["error"]["code"] == "draining"
            await viewer.closed()


# --- What is said ---------------------------------------------------------------------------------------------------


async def test_a_message_that_cannot_be_read_costs_itself_and_many_the_connection(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        await viewer.say("mouse", event="move", x="left", y=0)
        error = await viewer.next("error")
        assert (error["code"], error["refused"]) == ("invalid_request", "message")
        for _ in range(20):
            await viewer.connection.send("no json")
        assert (await viewer.closed())[0] == 1008


async def test_a_flood_slows_its_sender_and_nobody_else(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab, "root") as flood, stage.watch(tab) as calm:
        await calm.state()
        for _ in range(3_000):
            await flood.say("size", width=100, height=100)
        (await stage.cast()).paint()
        async with asyncio.timeout(LIMIT_S):
            await calm.picture()
            await calm.say("nonsense")
            await calm.next("error")


async def test_who_watches_and_what_was_sent_is_counted(stage: Stage) -> None:
    tab = await stage.house.open_tab()
    async with stage.watch(tab) as viewer:
        before = figure(stage, "live_frames_total")
        (await stage.cast()).paint()
        await viewer.picture()
        assert figure(stage, "live_frames_total") == before + 1
        assert figure(stage, "live_viewers") == 1
    await until(lambda: figure(stage, "live_viewers") == 0)


def figure(stage: Stage, name: str) -> float:
    """What Prometheus would read."""
    lines = stage.broker.metrics.render().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"tabherd_{name} "))
