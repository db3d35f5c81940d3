"""Answers of several nodes, put together."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tabherd import wire
from tabherd.edge.everywhere import merge_browsers, merge_stats
from tabherd.edge.joining import reachable


def pool(capacity: int, shared_cap: int = 0, **counts: int) -> wire.PoolStats:
    none = dict.fromkeys(("active", "pooled", "tabs", "waiting", "free_seats", "stock", "browsers"), 0)
    return wire.PoolStats(capacity=capacity, shared_cap=shared_cap, **(none | counts))


def stats(node: str, sessions: int, **pools: wire.PoolStats) -> wire.Stats:
    return wire.Stats(node=node, draining=False, sessions=sessions, pools=pools)


def test_what_nodes_have_is_added_up() -> None:
    merged = merge_stats(
        stats("a", 2, default=pool(10, active=2, free_seats=8)),
        [stats("b", 3, default=pool(10, active=3, free_seats=7), shop=pool(4, active=1))],
        [],
    )
    assert (merged.node, merged.sessions) == ("a", 5)
    assert (merged.pools["default"].active, merged.pools["default"].free_seats) == (5, 15)
    assert merged.pools["shop"].active == 1


def test_waiters_of_all_nodes_stand_in_one_line_and_the_longest_wait_is_that_of_all() -> None:
    def waiting(since: str, *positions: int) -> wire.Stats:
        waiters = [wire.SessionWaiter(agent_id="ada", key="", position=at, expected_wait_ms=0) for at in positions]
        line = msgspec.structs.replace(pool(1), waiting_since=since, waiters=waiters)
        return stats("a", 0, default=line)

    merged = merge_stats(
        waiting("2025-01-01T00:00:07.000Z", 2, 3),
        [stats("b", 0, default=pool(1)), waiting("2025-01-01T00:00:05.000Z", 1, 4)],
        [],
    ).pools["default"]
    assert [waiter.position for waiter in merged.waiters] == [1, 2, 3, 4]
    assert merged.waiting_since == "2025-01-01T00:00:05.000Z"


@pytest.mark.parametrize(("shared_cap", "capacity"), [(0, 30), (12, 12), (100, 30)])
def test_nodes_can_have_together_what_they_can_alone_unless_less_was_asked_for(shared_cap: int, capacity: int) -> None:
    others = [stats(name, 0, default=pool(10, shared_cap)) for name in ("b", "c")]
    merged = merge_stats(stats("a", 0, default=pool(10, shared_cap)), others, [])
    assert merged.pools["default"].capacity == capacity


@pytest.mark.parametrize(("missing", "said"), [([], msgspec.UNSET), (["nod_2"], ["nod_2"])])
def test_nodes_that_did_not_answer_are_named(missing: list[str], said: Any) -> None:
    assert merge_browsers(wire.BrowserPage(browsers=[]), [], missing).unreachable == said


@pytest.mark.parametrize(
    ("listens_at", "told"),
    [
        ("http://127.0.0.1:7722", "http://127.0.0.1:7722"),
        ("http://0.0.0.0:7722", "http://127.0.0.1:7722"),
        ("http://[::]:7722", "http://127.0.0.1:7722"),
    ],
)
def test_listening_everywhere_is_told_as_the_address_that_leads_to_the_database(listens_at: str, told: str) -> None:
    assert reachable(listens_at, "postgresql://tabherd@127.0.0.1:5432/tabherd") == told
