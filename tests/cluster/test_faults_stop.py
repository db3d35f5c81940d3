"""A node is stopped for so long that others take over, and goes on: nothing that waited in it does anything.

Played once, looked at by each test. Scripts report whether they run in the page of before, which has a mark, or in the
one that the other node has made.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec
import pytest
from tests.cdp_life.wire_client import WireClient, wire_client
from tests.server.conftest import act, open_session, value_of
from tests.server.effects_site import LOOP, EffectsSite

from .rig import Cluster, ClusterNode, code_of, is_silent, tab_of, until

pytestmark = [pytest.mark.server, pytest.mark.browser]

MARK = "window.mark = 'old'"


def report(who: str) -> str:
    """Tells the site who does something, and in which page."""
    return f"fetch('/effect?who=' + (window.mark ?? 'new') + '-{who}&at=' + Date.now()).then(() => 1)"


class Stop(msgspec.Struct, kw_only=True):
    """What came of it."""

    cluster: Cluster
    stopped: ClusterNode
    other: ClusterNode
    session: dict[str, Any]
    # Whose owner wanted to give it back while the node was stopped.
    given_back: dict[str, Any]
    epoch_before: int
    # What was answered to a command and to a release that waited in the stopped node's sockets.
    command: httpx.Response
    release: httpx.Response
    # How its CDP client was told that its socket is over, and one that was connected through the other node.
    close: tuple[int, str]
    close_through: tuple[int, str]


@pytest.fixture(scope="module")
def stop(pair: Cluster, effects: EffectsSite) -> Stop:
    return asyncio.run(play(pair, effects))


async def play(pair: Cluster, effects: EffectsSite) -> Stop:
    stopped, other = pair.nodes
    with stopped.client() as here, stopped.client() as here_too, other.client() as there:
        session, given_back = (
            open_session(here, agentId=name, url=effects.url(), keepAlive=True) for name in ("ada", "bob")
        )
        value_of(here, tab_of(session), f"{MARK}; {LOOP % 'old-page'}; 1")
        # Connected already: what they send waits in sockets that the node has accepted.
        here_too.get("/health")
        through = there.get(f"/sessions/{session['sessionId']}").json()["webSocketDebuggerUrl"]
        epoch_before = pair.epoch_of(stopped)
        async with wire_client(session["webSocketDebuggerUrl"]) as client, wire_client(through) as client_through:
            pages = [await client.page(), await client_through.page()]
            stopped.freeze()
            try:
                command = asyncio.ensure_future(
                    asyncio.to_thread(act, here, tab_of(session), "evaluate", expression=report("http"))
                )
                release = asyncio.ensure_future(
                    asyncio.to_thread(
                        here_too.delete, f"/sessions/{given_back['sessionId']}", params={"fence": given_back["fence"]}
                    )
                )
                for socket, page in zip((client, client_through), pages, strict=True):
                    await send_report(socket, page)
                for one in (session, given_back):
                    await asyncio.to_thread(until, lambda one=one: pair.is_active_on(one, other))
            finally:
                stopped.thaw()
            heard = await command, await release
            closes = await client.closed(), await client_through.closed()
        await asyncio.to_thread(pair.until_whole)
    return Stop(
        cluster=pair,
        stopped=stopped,
        other=other,
        session=session,
        given_back=given_back,
        epoch_before=epoch_before,
        command=heard[0],
        release=heard[1],
        close=closes[0],
        close_through=closes[1],
    )


async def send_report(client: WireClient, page: str) -> None:
    await client.send("Runtime.evaluate", {"expression": report("cdp")}, page)


def test_a_command_that_waited_in_its_sockets_is_refused_and_never_reaches_the_page(
    stop: Stop, effects: EffectsSite
) -> None:
    assert code_of(stop.command) == (503, "store_unavailable")
    assert effects.count("old-http") == effects.count("new-http") == 0


def test_cdp_frames_that_waited_in_its_sockets_never_reach_the_page(stop: Stop, effects: EffectsSite) -> None:
    assert effects.count("old-cdp") == effects.count("new-cdp") == 0


def test_a_release_that_waited_in_its_sockets_ends_nothing(stop: Stop) -> None:
    assert code_of(stop.release) == (503, "store_unavailable")
    assert stop.cluster.is_active_on(stop.given_back, stop.other)


def test_its_cdp_clients_are_told_that_their_life_is_over_and_why(stop: Stop) -> None:
    assert stop.close == (1001, "The server ends.")


def test_it_comes_back_by_itself_as_a_new_life_of_the_same_process(stop: Stop) -> None:
    assert stop.cluster.epoch_of(stop.stopped) > stop.epoch_before
    with stop.stopped.client() as client:
        session = open_session(client, agentId="new")
        assert session["node"] == stop.stopped.id
        assert value_of(client, tab_of(session), "6 * 7") == 42


def test_it_passes_on_what_was_its_own_before(stop: Stop) -> None:
    with stop.stopped.client() as client:
        assert value_of(client, tab_of(stop.session), "window.mark ?? 'new'") == "new"
        now = client.get(f"/sessions/{stop.session['sessionId']}").json()
        assert (now["node"], now["fence"]) == (stop.other.id, stop.session["fence"])


def test_the_page_of_before_is_gone(stop: Stop, effects: EffectsSite) -> None:
    until(lambda: is_silent(effects, "old-page"))


def test_counters_are_what_a_recount_says(stop: Stop) -> None:
    stop.cluster.until_counted()
