"""Nodes whose clocks are five minutes fast and slow, beside one that is right: they agree, as the database rules."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest
from tests.cdp_life.wire_client import wire_client
from tests.server.conftest import act, open_session, value_of
from tests.server.effects_site import EffectsSite

from .rig import DEAD_AFTER_S, NOW_MS, SETTINGS, Cluster, code_of, tab_of, until

pytestmark = [pytest.mark.server, pytest.mark.browser]

OFF_S = (0, 300, -300)
# Far less than the clocks are off, and far more than anything here takes.
ROOM_S = 100
PATCHED = Path(__file__).parent / "wrong_clock"


@pytest.fixture(scope="module")
def skewed(empty_cluster: Cluster) -> Cluster:
    for off_s in OFF_S:
        empty_cluster.add(env={"PYTHONPATH": str(PATCHED), "CLOCK_OFF_S": str(off_s)})
    with ThreadPoolExecutor(len(OFF_S)) as starters:
        list(starters.map(lambda node: node.start(), empty_cluster.nodes))
    empty_cluster.until_whole()
    return empty_cluster


def now_s(cluster: Cluster) -> float:
    return float(cluster.value(f"SELECT {NOW_MS}")) / 1000


def test_their_clocks_are_wrong_indeed(skewed: Cluster) -> None:
    for node, off_s in zip(skewed.nodes, OFF_S, strict=True):
        shown = subprocess.check_output([sys.executable, "-c", "import time; print(time.time())"], env=node.env)
        assert abs(float(shown) - time.time() - off_s) < ROOM_S


def test_nobody_is_declared_dead_however_long_they_beat(skewed: Cluster) -> None:
    beats = "SELECT min(version) FROM beats"
    epochs = [skewed.epoch_of(node) for node in skewed.nodes]
    enough = skewed.value(beats) + 1.5 * DEAD_AFTER_S / float(SETTINGS["CLUSTER__BEAT_S"])
    until(lambda: skewed.value(beats) >= enough)
    assert [skewed.epoch_of(node) for node in skewed.nodes] == epochs


def test_beats_and_rows_tell_the_databases_time(skewed: Cluster) -> None:
    with skewed.nodes[0].client() as client:
        for number in range(3):
            with skewed.nodes[number].client() as own:
                session = open_session(own, agentId=f"a{number}")
            begun = datetime.fromisoformat(session["createdAt"]).timestamp()
            assert abs(begun - now_s(skewed)) < ROOM_S
        assert max(view["beatAgeMs"] for view in client.get("/nodes").json()["nodes"]) < ROOM_S * 1000


def test_ids_sort_by_when_they_were_made_wherever_that_was(skewed: Cluster) -> None:
    made = []
    for number in (1, 2, 0, 2, 1, 0):
        with skewed.nodes[number].client() as client:
            made.append(open_session(client, agentId="ids")["sessionId"])
    assert made == sorted(made)


@pytest.mark.parametrize("number", [1, 2])
def test_a_lease_lasts_until_its_deadline_and_no_longer(skewed: Cluster, number: int) -> None:
    with skewed.nodes[number].client() as client, skewed.nodes[0].client() as right:
        session = open_session(client, agentId="short", deadlineMs=8_000)
        assert value_of(right, tab_of(session), "1") == 1
        until(lambda: code_of(act(right, tab_of(session), "evaluate", expression="1")) == (409, "lease_lost"))
    assert now_s(skewed) >= datetime.fromisoformat(session["expiresAt"]).timestamp()


@pytest.mark.parametrize("number", [1, 2])
def test_a_task_ends_at_the_deadline_that_its_caller_gave(skewed: Cluster, effects: EffectsSite, number: int) -> None:
    with skewed.nodes[number].client() as client:
        session = open_session(client, agentId="late", url=effects.url())
        due_s = now_s(skewed) + 5
        deadline = datetime.fromtimestamp(due_s).astimezone().isoformat()
        params = {"expression": "new Promise(() => {})"}
        body = {"agentId": "late", "action": "evaluate", "params": params, "tabId": tab_of(session)}
        task_id = client.post("/tasks", json={**body, "deadline": deadline}).json()["taskId"]
        view = client.get(f"/tasks/{task_id}", params={"waitMs": 60_000}).json()
    assert (view["state"], view["code"]) == ("failed", "deadline_exceeded")
    assert 0 <= datetime.fromisoformat(view["completedAt"]).timestamp() - due_s + 0.1 < ROOM_S


def test_a_hop_from_a_node_with_a_wrong_clock_is_believed(skewed: Cluster) -> None:
    with skewed.nodes[1].client() as fast, skewed.nodes[2].client() as slow:
        session = open_session(fast, agentId="far")
        assert session["node"] == skewed.nodes[1].id
        assert value_of(slow, tab_of(session), "6 * 7") == 42


async def test_an_address_of_a_socket_is_good_for_as_long_as_its_session(skewed: Cluster) -> None:
    with skewed.nodes[0].client() as right, skewed.nodes[1].client() as fast:
        # Shorter than that node's clock is fast.
        session = open_session(right, agentId="socket", deadlineMs=120_000, keepAlive=True)
        address = fast.get(f"/sessions/{session['sessionId']}").json()["webSocketDebuggerUrl"]
    async with wire_client(address) as client:
        assert await client.value("6 * 7", await client.page()) == 42
