"""Settings of nodes that share a store: what follows from it, and what contradicts itself."""

from __future__ import annotations

from typing import Any

import pytest

from tabherd.config import parse
from tabherd.errors import InvalidRequest

REMOTE = "postgresql://tabherd@db.internal/tabherd"


@pytest.mark.parametrize(
    ("store", "server", "host"),
    [
        (REMOTE, {}, "0.0.0.0"),
        ("postgres://tabherd@10.0.0.5:6432/tabherd", {"port": 1}, "0.0.0.0"),
        (REMOTE, {"host": "127.0.0.1"}, "127.0.0.1"),
        ("postgresql://tabherd@127.0.0.1/tabherd", {}, "127.0.0.1"),
        ("postgresql:///tabherd?host=/run/postgresql", {}, "127.0.0.1"),
        ("postgresql:///tabherd?host=db.internal", {}, "0.0.0.0"),
        ("", {}, "127.0.0.1"),
    ],
)
def test_a_node_whose_database_is_elsewhere_can_be_reached_by_others(
    store: str, server: dict[str, Any], host: str
) -> None:
    assert parse({"store": store, "server": server}).server.host == host


def test_such_a_node_is_not_open_to_everybody() -> None:
    with pytest.raises(InvalidRequest, match="without auth"):
        parse({"store": REMOTE, "auth": {"enabled": False}})


@pytest.mark.parametrize(
    "times", [{"pause_after_s": 5}, {"pause_after_s": 12}, {"dead_after_s": 7}, {"beat_s": 4}], ids=str
)
def test_a_node_has_to_distrust_itself_before_others_act(times: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse({"cluster": times})
    assert refused.value.details["field"] == "cluster.pause_after_s"


@pytest.mark.parametrize(
    "url", ["node.internal:7722", "https://node.internal", "http://", "http://node/path", "http://n:x"]
)
def test_what_is_not_the_address_of_a_node_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse({"cluster": {"url": url}})
    assert refused.value.details["field"] == "cluster.url"


def test_files_of_one_machine_are_no_locks_for_several() -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse({"store": REMOTE, "locks": {"url": "file:///tmp/locks"}})
    assert refused.value.details["field"] == "locks.url"
