"""A node is cut off from the database for a short time, by a network that says nothing: a pause, and nothing else."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.cdp_life.wire_client import wire_client
from tests.server.conftest import act, open_session, release, value_of
from tests.server.effects_site import EffectsSite

from .reporting import PAUSED, REPORT, is_paused, until_distrust
from .rig import Cluster, code_of, tab_of, until

pytestmark = [pytest.mark.server, pytest.mark.browser]

# However long a busy machine takes over it, the cut is a short one.
TIMES = {"CLUSTER__DEAD_AFTER_S": "120"}


async def test_after_a_short_cut_all_goes_on_and_what_cdp_clients_sent_meanwhile_is_done(
    pair: Cluster, effects: EffectsSite
) -> None:
    node, other = pair.nodes
    epochs = [pair.epoch_of(each) for each in pair.nodes]
    # With the same token, which the node knows by now: it cannot ask the database about another.
    with node.client() as here, other.client(node.admin_token) as there:
        session = open_session(here, agentId="ada", url=effects.url())
        value_of(here, tab_of(session), "window.mark = 'kept'")
        async with wire_client(session["webSocketDebuggerUrl"]) as client:
            page = await client.page()
            node.wire.swallow()
            cut_at_s = time.monotonic()
            try:
                await asyncio.to_thread(until, lambda: is_paused(here, session, "short"))
                await until_distrust(cut_at_s)
                assert code_of(here.post("/sessions", json={"agentId": "ada"})) == PAUSED
                held = await client.send("Runtime.evaluate", {"expression": REPORT % "held"}, page)
                # Commands to it through the other node, which is well, are refused there.
                assert code_of(act(there, tab_of(session), "evaluate", expression="1")) == PAUSED
                assert effects.count("kept-held") == 0
            finally:
                node.wire.mend()
            await client.result(held)
        await asyncio.to_thread(until, lambda: not is_paused(here, session, "short"))
        assert value_of(there, tab_of(session), "window.mark") == "kept"
        release(here, session)
    assert effects.count("kept-held") == 1
    assert [pair.epoch_of(each) for each in pair.nodes] == epochs
