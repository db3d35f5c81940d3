"""Caps: what counts against which counter, and what the refusal says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabherd.core.caps import (
    CapReason,
    Caps,
    cap_counters,
    capacity_refusal,
    derive_max_active,
    pooled_counters,
    tab_counter,
)


def test_a_session_counts_against_its_key_its_agent_and_its_pool() -> None:
    caps = Caps(max_active=16, max_active_per_key=5, max_active_per_agent=3)
    assert [(one.counter, one.cap, one.reason) for one in cap_counters("shared", "chatgpt", "alice", caps)] == [
        ("active:shared:key:chatgpt", 5, "key_cap"),
        ("active:shared:agent:alice", 3, "agent_cap"),
        ("active:shared", 16, "pool_cap"),
    ]


def test_uncapped_counters_are_counted_all_the_same() -> None:
    assert [one.cap for one in cap_counters("shared", "chatgpt", "alice", Caps())] == [None, None, None]


def test_the_empty_key_is_never_capped() -> None:
    counters = cap_counters("shared", "", "alice", Caps(max_active_per_key=1))
    assert [one.reason for one in counters] == ["agent_cap", "pool_cap"]


def test_a_pooled_tab_counts_against_its_key_and_its_pool() -> None:
    caps = Caps(max_pooled=14, max_pooled_per_key=5)
    assert [(one.counter, one.cap, one.reason) for one in pooled_counters("shared", "chatgpt", caps)] == [
        ("pooled:shared:key:chatgpt", 5, "key_cap"),
        ("pooled:shared", 14, "pool_cap"),
    ]


def test_a_pooled_tab_of_the_empty_key_counts_against_its_pool_only() -> None:
    assert [one.counter for one in pooled_counters("shared", "", Caps(max_pooled_per_key=1))] == ["pooled:shared"]


def test_uncapped_pooled_tabs_are_counted_all_the_same() -> None:
    assert [one.cap for one in pooled_counters("shared", "chatgpt", Caps())] == [None, None]


@pytest.mark.parametrize(("max_tabs", "cap"), [(20, 20), (0, None)])
def test_a_page_counts_against_its_pool(max_tabs: int, cap: int | None) -> None:
    one = tab_counter("a:b", Caps(max_tabs=max_tabs))
    assert (one.counter, one.cap, one.reason) == ("tabs:a%3Ab", cap, "tab_cap")


def test_a_colon_in_a_name_does_not_reach_another_pools_counter() -> None:
    of_key = {one.counter for one in cap_counters("a", "b", "alice", Caps())}
    of_odd_pool = {one.counter for one in cap_counters("a:key:b", "", "alice", Caps())}
    assert not of_key & of_odd_pool


def test_a_name_that_looks_escaped_is_not_the_name_it_looks_like() -> None:
    assert cap_counters("a:b", "", "alice", Caps()) != cap_counters("a%3Ab", "", "alice", Caps())


names = st.text(alphabet="a:%35A", max_size=5)


@given(one=st.tuples(names, names, names), other=st.tuples(names, names, names))
@settings(max_examples=150, deadline=None)
def test_counters_are_shared_only_by_the_same_bucket(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    def buckets(names: tuple[str, str, str]) -> dict[str, tuple[str, ...]]:
        pool, key, agent_id = names
        meaning: dict[CapReason, tuple[str, ...]] = {
            "key_cap": ("key", pool, key),
            "agent_cap": ("agent", pool, agent_id),
            "pool_cap": ("pool", pool),
            "tab_cap": ("tabs", pool),
        }
        kinds = {
            "active": cap_counters(pool, key, agent_id, Caps()),
            "pooled": pooled_counters(pool, key, Caps()),
            "tabs": (tab_counter(pool, Caps()),),
        }
        return {one.counter: (kind, *meaning[one.reason]) for kind, counters in kinds.items() for one in counters}

    first, second = buckets(one), buckets(other)
    assert all(first[counter] == second[counter] for counter in first.keys() & second.keys())


@pytest.mark.parametrize(
    ("memory_bytes", "expected"), [(0, 1), (64 << 20, 1), (8 << 30, 76), (24 << 30, 230), (1 << 40, 500)]
)
def test_the_pools_cap_follows_the_memory(memory_bytes: int, expected: int) -> None:
    assert derive_max_active(memory_bytes) == expected


@pytest.mark.parametrize("reason", ["key_cap", "agent_cap", "pool_cap", "tab_cap"])
def test_a_capacity_refusal_says_which_cap_how_full_and_when_to_return(reason: CapReason) -> None:
    body = capacity_refusal(reason, 5, 5, 3, 1_500).to_wire()
    assert body["details"] == {"reason": reason, "count": 5, "cap": 5, "position": 3}
    assert (body["code"], body["retryAfterMs"], body["retryable"]) == ("capacity", 1_500, True)


def test_a_caller_that_did_not_queue_gets_no_position() -> None:
    assert "position" not in capacity_refusal("pool_cap", 5, 5, None, 50).details
