"""Who is next among those who wait on several nodes."""

from __future__ import annotations

from tabherd.core.caps import Caps
from tabherd.core.line import Line, counters_of
from tabherd.core.model import Waiter


def waiter(id: str, agent_id: str = "ada", key: str = "", at: int = 0) -> Waiter:
    return Waiter(id=id, node_id="nod_1", pool="p", agent_id=agent_id, key=key, arrived_at=at)


def order(line: Line) -> list[str]:
    """In which everybody is taken who can be."""
    taken = []
    while (row := line.take(lambda agent_id, key: True)) is not None:
        taken.append(row.id)
    return taken


def test_whoever_has_fewest_sessions_is_next_then_whoever_came_first() -> None:
    rows = [waiter("a1", at=1), waiter("a2", at=2), waiter("b1", "bob", at=3), waiter("c1", "cyd", at=4)]
    line = Line("p", Caps(), rows, {"active:p:agent:ada": 1})
    assert order(line) == ["b1", "c1", "a1", "a2"]


def test_those_who_came_in_one_moment_are_told_apart_by_their_ids() -> None:
    assert order(Line("p", Caps(), [waiter("b"), waiter("a")], {})) == ["a", "b"]


def test_what_was_taken_counts_at_once() -> None:
    rows = [waiter("a1", at=1), waiter("a2", at=2), waiter("b1", "bob", at=3)]
    assert order(Line("p", Caps(), rows, {})) == ["a1", "b1", "a2"]


def test_whoever_is_at_a_cap_blocks_nobody() -> None:
    rows = [waiter("a1", at=1), waiter("b1", "bob", at=2), waiter("k1", "cyd", "shop", at=3), waiter("k2", "dan", at=4)]
    counts = {"active:p:agent:ada": 2, "active:p:agent:bob": 1, "active:p:key:shop": 3}
    caps = Caps(max_active_per_agent=2, max_active_per_key=3)
    assert order(Line("p", caps, rows, counts)) == ["k2", "b1"]


def test_no_more_are_taken_than_the_pool_has_room_for() -> None:
    line = Line("p", Caps(max_active=5), [waiter(f"w{n}", f"agent{n}") for n in range(4)], {"active:p": 3})
    assert not line.is_exhausted
    assert order(line) == ["w0", "w1"]
    assert line.is_exhausted
    assert line.active == 5


def test_whom_the_node_has_no_place_for_is_passed_over() -> None:
    rows = [waiter("a1", at=1), waiter("b1", "bob", at=2)]
    line = Line("p", Caps(), rows, {})
    taken = line.take(lambda agent_id, key: agent_id == "bob")
    assert taken is not None
    assert taken.id == "b1"
    assert [row.id for row in line.waiting()] == ["a1"]


def test_some_of_them_keep_their_order_and_count_what_all_have() -> None:
    rows = [waiter("a1", at=1), waiter("b1", "bob", at=2), waiter("c1", "cyd", at=3)]
    line = Line("p", Caps(), rows, {"active:p:agent:bob": 1}).only(lambda row: row.id != "a1")
    assert order(line) == ["c1", "b1"]


def test_positions_are_those_of_the_order() -> None:
    rows = [waiter("a1", at=1), waiter("a2", at=2), waiter("b1", "bob", at=3)]
    line = Line("p", Caps(), rows, {"active:p:agent:ada": 1})
    assert [line.position(id) for id in ("b1", "a1", "a2", "gone")] == [1, 2, 3, None]


def test_only_counters_that_decide_something_are_asked_for() -> None:
    rows = [waiter("a1", key="shop")]
    assert counters_of("p", Caps(), rows) == {"active:p", "active:p:agent:ada"}
    assert "active:p:key:shop" in counters_of("p", Caps(max_active_per_key=1), rows)


def test_the_cap_that_is_nearest_to_the_caller_is_named() -> None:
    caps = Caps(max_active=1, max_active_per_agent=1)
    line = Line("p", caps, [waiter("a1")], {"active:p": 1, "active:p:agent:ada": 1})
    full = line.full("ada", "")
    assert full is not None
    assert (full.reason, line.count(full)) == ("agent_cap", 1)
