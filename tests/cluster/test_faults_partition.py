"""A node is cut off from the database for long, by a network that says nothing: it distrusts itself before others act.

That costs the node its sessions, and none of its writes land late.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec
import pytest
from tests.cdp_life.wire_client import wire_client
from tests.server.conftest import open_session, value_of
from tests.server.effects_site import EffectsSite

from .reporting import PAUSED, REPORT, is_paused
from .rig import DEAD_AFTER_S, Cluster, ClusterNode, code_of, tab_of, until

pytestmark = [pytest.mark.server, pytest.mark.browser]

TOO_LATE = {"agentId": "too-late"}


class Cut(msgspec.Struct, kw_only=True):
    """What came of it."""

    cluster: Cluster
    node: ClusterNode
    other: ClusterNode
    session: dict[str, Any]
    given_back: dict[str, Any]
    epoch_before: int
    last_beat_ms: int
    # To a release and to a wish for a token, whose writes were on their way when the network was cut.
    release: httpx.Response | None
    token: httpx.Response | None
    # How its CDP client was told that its socket is over.
    close: tuple[int, str]


@pytest.fixture(scope="module")
def cut(pair: Cluster, effects: EffectsSite) -> Cut:
    """Played once, looked at by each test."""
    return asyncio.run(play(pair, effects))


async def play(pair: Cluster, effects: EffectsSite) -> Cut:
    pair.until_whole()
    node, other = pair.nodes
    epoch_before = pair.epoch_of(node)
    with node.client() as here, node.client() as releaser, node.client() as operator:
        session, given_back = (
            open_session(here, agentId=name, url=effects.url(), keepAlive=True) for name in ("ada", "bob")
        )
        value_of(here, tab_of(session), "window.mark = 'old'")
        async with wire_client(session["webSocketDebuggerUrl"]) as client:
            page = await client.page()
            node.wire.swallow()
            try:
                # The first is on its way then, and the second waits behind it.
                wishing = asyncio.create_task(asyncio.to_thread(late, operator, "POST", "/agents", json=TOO_LATE))
                path = f"/sessions/{given_back['sessionId']}?fence={given_back['fence']}"
                releasing = asyncio.create_task(asyncio.to_thread(late, releaser, "DELETE", path))
                await asyncio.to_thread(until, lambda: is_paused(here, session, "http"))
                await client.send("Runtime.evaluate", {"expression": REPORT % "cdp"}, page)
                for one in (session, given_back):
                    await asyncio.to_thread(until, lambda one=one: pair.is_active_on(one, other))
                last_beat_ms = pair.value("SELECT at FROM beats WHERE id = %s", node.id)
                assert is_paused(here, session, "http")
            finally:
                node.wire.mend()
            close = await client.closed()
            answers = await releasing, await wishing
        await asyncio.to_thread(pair.until_whole)
    return Cut(
        cluster=pair,
        node=node,
        other=other,
        session=session,
        given_back=given_back,
        epoch_before=epoch_before,
        last_beat_ms=last_beat_ms,
        release=answers[0],
        token=answers[1],
        close=close,
    )


def late(client: httpx.Client, method: str, path: str, **options: Any) -> httpx.Response | None:
    """What the node answers; None when it ends the connection instead."""
    try:
        return client.request(method, path, **options)
    except httpx.HTTPError:
        return None


def test_nothing_it_was_sent_reaches_the_page_once_others_may_act(cut: Cut, effects: EffectsSite) -> None:
    done = [effect.at for effect in effects.effects if effect.who == "old-http"]
    assert max(done, default=0) < cut.last_beat_ms + DEAD_AFTER_S * 1000
    assert effects.count("old-cdp") == effects.count("new-cdp") == 0


def test_a_write_that_was_on_its_way_when_it_was_cut_off_does_not_land_when_the_network_is_back(cut: Cut) -> None:
    assert cut.release is None or code_of(cut.release) == PAUSED
    assert cut.cluster.is_active_on(cut.given_back, cut.other)
    with cut.other.client() as client:
        assert value_of(client, tab_of(cut.given_back), "1") == 1


def test_not_even_a_write_lands_late_that_rests_on_no_row_of_others(cut: Cut) -> None:
    assert cut.token is None or code_of(cut.token) == PAUSED
    assert cut.cluster.value("SELECT count(*) FROM credentials WHERE agent_id = %s", TOO_LATE["agentId"]) == 0


def test_its_cdp_client_is_told_that_the_socket_is_over(cut: Cut) -> None:
    assert cut.close == (1001, "The server ends.")


def test_it_comes_back_by_itself_with_a_new_epoch_and_serves(cut: Cut) -> None:
    assert cut.cluster.epoch_of(cut.node) > cut.epoch_before
    with cut.node.client() as client:
        assert value_of(client, tab_of(cut.session), "window.mark ?? 'new'") == "new"
        assert open_session(client, agentId="new")["node"] == cut.node.id


def test_counters_are_what_a_recount_says(cut: Cut) -> None:
    cut.cluster.until_counted()
