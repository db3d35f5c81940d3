"""How nodes come and go: three at once on an empty database, one that is a copy of another, one that leaves in order.

The times are so long that nothing here can be the work of a node that was missed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.cli.running import call
from tests.server.conftest import open_session, value_of
from tests.server.effects_site import EffectsSite

from .rig import Cluster, ClusterNode, tab_of, until

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Longer than any test waits.
LONG_TIMES = {"CLUSTER__PAUSE_AFTER_S": "500", "CLUSTER__DEAD_AFTER_S": "600"}


@pytest.fixture(scope="module")
def three(empty_cluster: Cluster) -> Cluster:
    empty_cluster.start(3, LONG_TIMES)
    return empty_cluster


def test_nodes_that_start_at_once_on_an_empty_database_know_each_other_and_share_their_keys(three: Cluster) -> None:
    epochs = [three.epoch_of(node) for node in three.nodes]
    assert len(set(epochs)) == 3
    names = [name for (name,) in three.rows("SELECT id FROM secrets")]
    assert sorted(names) == ["nodes", "tickets", "webhooks"]
    with three.nodes[0].client() as first, three.nodes[1].client() as second, three.nodes[2].client() as third:
        session = open_session(first, agentId="ada", keepAlive=True)
        assert [value_of(client, tab_of(session), "1") for client in (first, second, third)] == [1, 1, 1]


def test_a_copy_of_a_living_node_is_refused_with_what_to_do(three: Cluster, tmp_path: Path) -> None:
    original = three.nodes[0]
    epoch = three.epoch_of(original)
    copy = tmp_path / "copy"
    # What says who a node is; its browsers' profiles are not needed for that.
    copy.mkdir(mode=0o700)
    for name in ("node.json", "admin.token"):
        shutil.copy2(original.state / name, copy / name)
    refused = call(copy, "up", env=original.env)
    assert refused.returncode == 1
    assert f"Another server at {original.url} is node {original.id} already" in refused.stderr
    assert "Give each server a state directory of its own (TABHERD_STATE); never copy one." in refused.stderr
    assert three.epoch_of(original) == epoch
    with original.client() as client:
        assert value_of(client, tab_of(open_session(client, agentId="bob")), "1") == 1


def test_a_node_that_leaves_in_order_hands_its_sessions_on_at_once(three: Cluster, effects: EffectsSite) -> None:
    leaving = three.nodes[2]
    leaving_id = leaving.id
    with leaving.client() as client:
        session = open_session(client, agentId="ada", url=effects.url("/field"), keepAlive=True)
        assert session["node"] == leaving_id
        value_of(client, tab_of(session), "document.cookie = 'who=ada; max-age=999'")
    leaving.stop()
    stayed = three.nodes[:2]
    until(lambda: any(three.is_active_on(session, node) for node in stayed))
    with stayed[0].client() as client:
        found = value_of(client, tab_of(session), "[document.cookie, location.pathname]")
        assert found == ["who=ada", "/field"]
        assert client.get(f"/sessions/{session['sessionId']}").json()["fence"] == session["fence"]
    for node in stayed:
        until(lambda node=node: leaving_id not in three.states_at(node))
    three.until_counted()


def test_the_one_that_left_comes_back_as_a_new_life(three: Cluster) -> None:
    returning = three.nodes[2]
    before = max(three.epoch_of(node) for node in three.nodes[:2])
    returning.start()
    three.until_whole()
    assert three.epoch_of(returning) > before
    assert_serves(returning)


def assert_serves(node: ClusterNode) -> None:
    with node.client() as client:
        session = open_session(client, agentId="new")
        assert session["node"] == node.id
        assert value_of(client, tab_of(session), "1") == 1
