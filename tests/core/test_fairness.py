"""Who is next: the least served first, nobody blocked by another's cap, and positions that come true."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabherd.core.fairness import (
    AgentLoad,
    Waiter,
    WaitQueue,
    aged_priority,
    jain_index,
    pick_agent,
    share_limit,
)
from tabherd.errors import QueueFull


def anybody(waiter: Waiter) -> bool:
    return True


def queue_of(*who: str, max_waiters: int = 1_000) -> WaitQueue:
    """A queue from words like `alice` or `alice:chatgpt`; the waiter ids are w1, w2, ..."""
    queue = WaitQueue(max_waiters)
    for number, word in enumerate(who, 1):
        agent_id, _, key = word.partition(":")
        queue.enter(f"w{number}", agent_id, key)
    return queue


def picked(queue: WaitQueue, active: dict[str, int] | None = None) -> str | None:
    waiter = queue.pick(active or {}, anybody)
    return waiter.id if waiter else None


# --- Callers waiting for a session ------------------------------------------------------------------------------


def test_an_empty_queue_has_nobody() -> None:
    assert picked(WaitQueue()) is None


def test_equals_go_by_arrival() -> None:
    queue = queue_of("bob", "alice", "carol")
    assert [picked(queue), picked(queue), picked(queue)] == ["w1", "w2", "w3"]


def test_the_agent_with_fewest_active_sessions_goes_first() -> None:
    assert picked(queue_of("bob", "alice"), {"bob": 2, "alice": 1}) == "w2"


def test_within_an_agent_arrival_decides() -> None:
    assert picked(queue_of("bob", "alice", "alice"), {"bob": 1}) == "w2"


def test_a_thousand_requests_of_one_agent_do_not_delay_another_ones_first() -> None:
    queue = queue_of(*["greedy"] * 900, "modest")
    active: Counter[str] = Counter(greedy=1)
    assert picked(queue, active) == "w901"


def test_a_waiter_at_its_keys_cap_does_not_block_another_key() -> None:
    queue = queue_of("alice:full", "alice:full", "alice:free")
    waiter = queue.pick({}, lambda waiter: waiter.key != "full")
    assert waiter is not None
    assert waiter.id == "w3"


def test_an_agent_at_its_cap_does_not_block_another_agent() -> None:
    queue = queue_of("alice", "bob")
    waiter = queue.pick({"bob": 5}, lambda waiter: waiter.agent_id != "alice")
    assert waiter is not None
    assert waiter.id == "w2"


def test_nobody_is_picked_when_nobody_is_admissible() -> None:
    queue = queue_of("alice", "bob")
    assert queue.pick({}, lambda waiter: False) is None
    assert len(queue) == 2


def test_admissibility_is_asked_once_per_agent_and_key() -> None:
    queue = queue_of(*["alice:full"] * 50, *["bob:full"] * 50)
    asked: list[Waiter] = []

    def refuse(waiter: Waiter) -> bool:
        asked.append(waiter)
        return False

    queue.pick({}, refuse)
    assert [waiter.id for waiter in asked] == ["w1", "w51"]


def test_who_withdrew_is_never_picked() -> None:
    queue = queue_of("alice", "bob")
    assert queue.withdraw("w1") is not None
    assert [picked(queue), picked(queue)] == ["w2", None]


def test_withdrawing_somebody_unknown_does_nothing() -> None:
    queue = queue_of("alice")
    assert queue.withdraw("w9") is None
    assert len(queue) == 1


def test_who_is_put_back_has_its_old_place() -> None:
    queue = queue_of("alice", "alice", "alice")
    first = queue.pick({}, anybody)
    assert first is not None
    queue.put_back(first)
    assert picked(queue) == "w1"


def test_a_full_queue_refuses_and_says_when_to_come_back() -> None:
    queue = queue_of("alice", "bob", max_waiters=2)
    with pytest.raises(QueueFull) as caught:
        queue.enter("w3", "carol", "", retry_after_ms=700)
    assert caught.value.retry_after_ms == 700
    assert caught.value.details == {"count": 2, "cap": 2}


def test_a_refused_waiter_leaves_no_trace() -> None:
    queue = queue_of("alice", max_waiters=1)
    with pytest.raises(QueueFull):
        queue.enter("w2", "bob", "")
    assert queue.position("w2") is None
    assert len(queue) == 1


def test_the_position_of_nobody_is_none() -> None:
    assert queue_of("alice").position("w9") is None


AGENTS = ("a", "b", "c", "d")


@given(
    who=st.lists(st.sampled_from(AGENTS), min_size=1, max_size=25),
    active=st.dictionaries(st.sampled_from(AGENTS), st.integers(0, 6)),
    gone=st.sets(st.integers(1, 25), max_size=8),
)
@settings(max_examples=80, deadline=None)
def test_positions_come_true_when_nothing_else_happens(who: list[str], active: dict[str, int], gone: set[int]) -> None:
    queue = queue_of(*who)
    for number in gone:
        queue.withdraw(f"w{number}")
    waiting = [f"w{number}" for number in range(1, len(who) + 1) if number not in gone]
    promised = {queue.position(waiter_id, active): waiter_id for waiter_id in waiting}
    held = Counter(active)
    for place in range(1, len(waiting) + 1):
        waiter = queue.pick(held, anybody)
        assert waiter is not None
        assert promised[place] == waiter.id
        held[waiter.agent_id] += 1
    assert len(queue) == 0


@given(
    who=st.lists(st.sampled_from(AGENTS), max_size=25),
    active=st.dictionaries(st.sampled_from(AGENTS), st.integers(0, 6)),
    count=st.integers(0, 30),
)
@settings(max_examples=80, deadline=None)
def test_the_first_ones_are_those_at_the_first_positions(who: list[str], active: dict[str, int], count: int) -> None:
    queue = queue_of(*who)
    positions = [queue.position(waiter.id, active) for waiter in queue.first(count, active)]
    assert positions == list(range(1, min(count, len(who)) + 1))


def test_the_oldest_is_who_came_first_whoevers_turn_it_is() -> None:
    queue = WaitQueue()
    assert queue.oldest is None
    for number, agent_id in enumerate(("bob", "alice", "bob"), 1):
        queue.enter(f"w{number}", agent_id, "", now=number * 100)
    assert queue.oldest.arrived_at == 100
    queue.withdraw("w1")
    assert queue.oldest.arrived_at == 200


@given(
    who=st.lists(st.tuples(st.sampled_from(AGENTS), st.sampled_from("xy")), max_size=20),
    active=st.dictionaries(st.sampled_from(AGENTS), st.integers(0, 4)),
    admissible=st.sets(st.tuples(st.sampled_from(AGENTS), st.sampled_from("xy"))),
)
@settings(max_examples=80, deadline=None)
def test_the_picked_one_is_the_least_of_all_admissible_ones(
    who: list[tuple[str, str]], active: dict[str, int], admissible: set[tuple[str, str]]
) -> None:
    queue = WaitQueue()
    entered = [queue.enter(str(number), agent_id, key) for number, (agent_id, key) in enumerate(who)]
    fitting = [waiter for waiter in entered if (waiter.agent_id, waiter.key) in admissible]
    expected = min(fitting, key=lambda waiter: (active.get(waiter.agent_id, 0), waiter.arrival), default=None)
    assert queue.pick(active, lambda waiter: (waiter.agent_id, waiter.key) in admissible) == expected


def test_every_agent_gets_the_same_when_all_ask_without_end() -> None:
    queue, held, ends = WaitQueue(), Counter[str](), list[str]()
    for number in range(400):
        # One agent asks four times as often as each other one.
        agent_id = "greedy" if number % 2 else f"modest{number % 8}"
        queue.enter(str(number), agent_id, "")
    for _ in range(40):
        waiter = queue.pick(held, anybody)
        assert waiter is not None
        held[waiter.agent_id] += 1
        ends.append(waiter.agent_id)
    assert jain_index(list(Counter(ends).values())) == pytest.approx(1.0)


# --- Agents whose tasks wait for a worker -----------------------------------------------------------------------


def test_the_agent_with_fewest_tasks_in_flight_is_picked() -> None:
    agents = [AgentLoad(agent_id="a", in_flight=2), AgentLoad(agent_id="b", in_flight=1, last_served_at=99)]
    assert pick_agent(agents, limit=10) == agents[1]


def test_ties_go_to_the_longest_unserved_agent() -> None:
    agents = [
        AgentLoad(agent_id="a", in_flight=1, last_served_at=20),
        AgentLoad(agent_id="b", in_flight=1, last_served_at=10),
    ]
    assert pick_agent(agents, limit=10) == agents[1]


def test_an_agent_at_the_limit_is_passed_over() -> None:
    assert pick_agent([AgentLoad(agent_id="a", in_flight=3)], limit=3) is None


def test_nobody_is_picked_of_nobody() -> None:
    assert pick_agent([], limit=3) is None


@pytest.mark.parametrize(
    ("workers", "active_agents", "max_per_agent", "expected"),
    [
        (20, 1, 10, 10),
        (4, 1, 10, 4),
        (4, 2, 10, 2),
        (20, 3, 10, 7),
        (4, 100, 10, 1),
        (20, 0, 10, 10),
    ],
)
def test_one_agents_share_is_an_even_part_of_the_workers(
    workers: int, active_agents: int, max_per_agent: int, expected: int
) -> None:
    assert share_limit(workers, active_agents, max_per_agent) == expected


@pytest.mark.parametrize(
    ("waited_ms", "aging_ms", "expected"),
    [(0, 60_000, 5), (59_999, 60_000, 5), (60_000, 60_000, 4), (600_000, 60_000, -5), (600_000, 0, 5), (-1, 10, 5)],
)
def test_waiting_raises_a_task_one_level_per_interval(waited_ms: int, aging_ms: int, expected: int) -> None:
    assert aged_priority(5, waited_ms, aging_ms) == expected


@pytest.mark.parametrize(
    ("values", "expected"), [([], 1.0), ([0, 0], 1.0), ([3, 3, 3], 1.0), ([4, 0, 0, 0], 0.25), ([1, 2, 3], 36 / 42)]
)
def test_the_jain_index_measures_evenness(values: list[float], expected: float) -> None:
    assert jain_index(values) == pytest.approx(expected)
