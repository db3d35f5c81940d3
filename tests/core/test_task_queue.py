"""Which task runs next, beside a plain model that looks at everything each time; and how honest positions are."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tabherd.core.fairness import jain_index
from tabherd.core.task_queue import Limits, TaskQueue, Waiting
from tabherd.errors import QueueFull

POOL = "pool"


def task(
    number: int, agent: str = "ada", lane: str = POOL, priority: int = 0, created_at: int | None = None
) -> Waiting:
    at = number if created_at is None else created_at
    return Waiting(
        id=f"t{number}",
        agent_id=agent,
        lane=lane,
        is_serial=lane != POOL,
        priority=priority,
        created_at=at,
        arrival=number,
    )


def queue_of(*tasks: Waiting, **limits: int) -> TaskQueue:
    queue = TaskQueue(Limits(**limits))
    for each in tasks:
        queue.add(each)
    return queue


def drain(queue: TaskQueue) -> list[str]:
    """The ids in the order in which one worker would run them."""
    order = []
    while (taken := queue.take()) is not None:
        order.append(taken.id)
        queue.finish(taken.id)
    return order


# --- Order ------------------------------------------------------------------------------------------------------


def test_within_an_agent_the_lower_priority_goes_first_and_equals_as_they_came() -> None:
    queue = queue_of(task(1, priority=5), task(2, priority=1), task(3, priority=5), priority_aging_ms=0)
    assert drain(queue) == ["t2", "t1", "t3"]


def test_waiting_makes_up_for_priority() -> None:
    late = task(2, priority=0, created_at=120_001)
    assert drain(queue_of(task(1, priority=2, created_at=0), late, priority_aging_ms=60_000)) == ["t1", "t2"]
    assert drain(queue_of(task(1, priority=2, created_at=0), late, priority_aging_ms=0)) == ["t2", "t1"]


def test_ever_new_urgent_tasks_do_not_starve_one_that_waits() -> None:
    queue = queue_of(task(0, priority=10, created_at=0), priority_aging_ms=1_000)
    for number in range(1, 100):
        queue.add(task(number, priority=0, created_at=number * 200))
        taken = queue.take()
        assert taken is not None
        queue.finish(taken.id)
        if taken.id == "t0":
            assert number * 200 <= 10_000 + 200
            return
    pytest.fail("it was never taken")


def test_agents_take_turns_however_much_one_of_them_asks_for() -> None:
    flood = [task(number, "greedy") for number in range(1, 6)]
    assert drain(queue_of(*flood, task(6, "ada"), task(7, "bob"))) == ["t1", "t6", "t7", "t2", "t3", "t4", "t5"]


def test_one_task_of_another_agent_goes_next_however_long_the_flood_is() -> None:
    queue = queue_of(*[task(number, "greedy") for number in range(5_000)], workers=1)
    first = queue.take()
    assert first is not None
    queue.add(task(5_000, "ada"))
    queue.finish(first.id)
    taken = queue.take()
    assert taken is not None
    assert taken.agent_id == "ada"


def test_who_waits_is_not_passed_by_ever_new_agents() -> None:
    queue = queue_of(task(0, "old"), task(1, "old"), task(2, "old"), workers=1)
    served: list[str] = []
    for number in range(3, 20):
        queue.add(task(number, f"new{number}"))
        taken = queue.take()
        assert taken is not None
        served.append(taken.agent_id)
        queue.finish(taken.id)
    assert served.count("old") == 3


def test_equal_demand_is_served_equally() -> None:
    queue = queue_of(*[task(n, f"a{n % 7}") for n in range(7 * 60)], workers=5)
    served: Counter[str] = Counter()
    flying: list[str] = []
    for _ in range(7 * 30):
        while (taken := queue.take()) is not None:
            served[taken.agent_id] += 1
            flying.append(taken.id)
        queue.finish(flying.pop(0))
    assert jain_index(list(served.values())) >= 0.98


# --- Limits -----------------------------------------------------------------------------------------------------


def test_no_more_are_in_flight_than_there_are_workers() -> None:
    queue = queue_of(*[task(n, f"a{n}") for n in range(9)], workers=4)
    assert [queue.take() is not None for _ in range(6)] == [True] * 4 + [False] * 2
    assert (queue.in_flight, queue.waiting) == (4, 5)


def test_one_agent_alone_has_as_many_as_one_may() -> None:
    queue = queue_of(*[task(n) for n in range(9)], workers=8, max_per_agent=3)
    assert [queue.take() is not None for _ in range(4)] == [True] * 3 + [False]


def test_while_another_waits_an_agent_has_no_more_than_its_share() -> None:
    # The other one's only task waits for a tab that is busy: its share is kept for it all the same.
    queue = queue_of(*[task(n) for n in range(9)], workers=4, max_per_agent=10)
    queue.block("tab_1")
    queue.add(task(10, "bob", "tab_1"))
    assert [queue.take() is not None for _ in range(3)] == [True, True, False]
    queue.unblock("tab_1")
    taken = queue.take()
    assert taken is not None
    assert taken.agent_id == "bob"


@pytest.mark.parametrize(("limit", "cap"), [({"queue_max": 2}, 2), ({"queue_max_per_agent": 2}, 2)])
def test_more_than_may_wait_are_refused(limit: dict[str, int], cap: int) -> None:
    queue = queue_of(task(1), task(2), **limit)
    with pytest.raises(QueueFull) as refused:
        queue.admit("ada")
    assert (refused.value.details["count"], refused.value.details["cap"]) == (2, cap)


def test_lower_limits_drop_nothing() -> None:
    queue = queue_of(*[task(n) for n in range(5)], workers=4)
    flying = [queue.take() for _ in range(4)]
    queue.set_limits(Limits(workers=1, queue_max=1, max_per_agent=1))
    assert queue.take() is None
    for each in flying:
        assert each is not None
        queue.finish(each.id)
    assert drain(queue) == ["t4"]


def test_another_aging_orders_anew_what_waits() -> None:
    queue = queue_of(task(1, priority=2, created_at=0), task(2, created_at=120_001), priority_aging_ms=0)
    queue.set_limits(Limits(priority_aging_ms=60_000))
    assert drain(queue) == ["t1", "t2"]


# --- Lanes ------------------------------------------------------------------------------------------------------


def test_a_tab_runs_one_task_at_a_time_and_keeps_no_worker_from_others() -> None:
    queue = queue_of(task(1, lane="tab_1"), task(2, lane="tab_1"), task(3, lane="tab_2"))
    taken = [queue.take(), queue.take(), queue.take()]
    assert [each and each.id for each in taken] == ["t1", "t3", None]
    queue.finish("t1")
    again = queue.take()
    assert again is not None
    assert again.id == "t2"


def test_a_tab_that_somebody_else_has_is_passed_over_until_it_is_free() -> None:
    queue = queue_of(task(1, lane="tab_1"), task(2, lane="tab_2"))
    queue.block("tab_1")
    assert drain(queue) == ["t2"]
    queue.unblock("tab_1")
    assert drain(queue) == ["t1"]


def test_a_tab_may_be_blocked_before_anything_waits_for_it() -> None:
    queue = queue_of()
    queue.block("tab_1")
    queue.add(task(1, lane="tab_1"))
    assert queue.take() is None


def with_parked_lanes() -> TaskQueue:
    """The best tasks of an agent were passed over, because others had their tabs, and wait on."""
    queue = queue_of(*[task(n, lane=f"tab_{n}", priority=9 - n) for n in range(8)], priority_aging_ms=1_000)
    for number in (5, 6, 7):
        queue.block(f"tab_{number}")
    taken = queue.take()
    assert taken is not None
    assert taken.id == "t4"
    queue.finish("t4")
    return queue


def test_what_was_passed_over_goes_first_when_its_tab_is_free() -> None:
    queue = with_parked_lanes()
    queue.unblock("tab_6")
    assert drain(queue) == ["t6", "t3", "t2", "t1", "t0"]
    queue.unblock("tab_5")
    queue.unblock("tab_7")
    assert drain(queue) == ["t7", "t5"]


def test_what_comes_for_a_tab_that_was_passed_over_is_not_forgotten_for_what_waits_there() -> None:
    queue = with_parked_lanes()
    queue.add(task(8, lane="tab_5", priority=-9))
    assert queue.remove("t7")
    for number in (5, 6, 7):
        queue.unblock(f"tab_{number}")
    assert drain(queue) == ["t8", "t6", "t5", "t3", "t2", "t1", "t0"]


def test_another_aging_orders_anew_what_was_passed_over() -> None:
    queue = with_parked_lanes()
    # Each is a level more urgent than the one that came a millisecond before: now they are equal, and go as they came.
    queue.set_limits(Limits(priority_aging_ms=1))
    for number in (5, 6, 7):
        queue.unblock(f"tab_{number}")
    assert drain(queue) == ["t0", "t1", "t2", "t3", "t5", "t6", "t7"]


def test_a_task_that_is_put_back_has_its_old_place() -> None:
    queue = queue_of(task(1), task(2))
    taken = queue.take()
    assert taken is not None
    queue.put_back(taken.id)
    assert drain(queue) == ["t1", "t2"]


def test_the_agent_of_a_task_that_is_put_back_keeps_its_turn() -> None:
    queue = queue_of(task(1, "ada"), task(2, "bob"), workers=2)
    taken = [queue.take(), queue.take()]
    assert [each and each.id for each in taken] == ["t1", "t2"]
    # Bob was served after ada, and begins anew.
    queue.finish("t2")
    queue.add(task(3, "bob"))
    queue.put_back("t1")
    assert drain(queue) == ["t1", "t3"]


# --- Against a plain model --------------------------------------------------------------------------------------

AGENTS = ["ada", "bob", "cyd", "eve"]
LANES = [POOL, "tab_1", "tab_2", "tab_3", "tab_4", "tab_5", "tab_6"]
STRICT_MS = 1 << 60


class Model(RuleBasedStateMachine):
    """The queue beside a list that is searched from end to end."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = Limits(workers=4, max_per_agent=3, priority_aging_ms=50)
        self.queue = TaskQueue(self.limits)
        self.waiting: dict[str, Waiting] = {}
        self.flying: dict[str, Waiting] = {}
        self.blocked: set[str] = set()
        self.served: dict[str, int] = {}
        self.joined: dict[str, int] = {}
        self.taken = self.joins = self.number = 0

    @rule(
        agent=st.sampled_from(AGENTS), lane=st.sampled_from(LANES), priority=st.integers(-2, 2), age=st.integers(0, 200)
    )
    def add(self, agent: str, lane: str, priority: int, age: int) -> None:
        self.number += 1
        new = task(self.number, agent, lane, priority, self.number * 10 - age)
        self._join(agent)
        self.waiting[new.id] = new
        self.queue.add(new)

    @rule()
    def take(self) -> None:
        expected = self._next()
        got = self.queue.take()
        assert (got and got.id) == (expected and expected.id)
        if expected is not None:
            self.flying[expected.id] = self.waiting.pop(expected.id)
            self.taken += 1
            self.served[expected.agent_id] = self.taken

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), is_over=st.booleans())
    def end(self, data: st.DataObject, is_over: bool) -> None:
        ended = self.flying.pop(data.draw(st.sampled_from(sorted(self.flying))))
        if is_over:
            self._forget(ended.agent_id)
            self.queue.finish(ended.id)
        else:
            self.queue.put_back(ended.id)
            self.waiting[ended.id] = ended

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        left = self.waiting.pop(data.draw(st.sampled_from(sorted(self.waiting))))
        assert self.queue.remove(left.id)
        assert not self.queue.remove(left.id)
        self._forget(left.agent_id)

    @rule(lane=st.sampled_from(LANES), is_blocked=st.booleans())
    def somebody_else(self, lane: str, is_blocked: bool) -> None:
        (self.blocked.add if is_blocked else self.blocked.discard)(lane)
        (self.queue.block if is_blocked else self.queue.unblock)(lane)

    @rule(workers=st.integers(1, 8), max_per_agent=st.integers(1, 8), aging_ms=st.sampled_from([0, 5, 50]))
    def limits_change(self, workers: int, max_per_agent: int, aging_ms: int) -> None:
        self.limits = Limits(workers=workers, max_per_agent=max_per_agent, priority_aging_ms=aging_ms)
        self.queue.set_limits(self.limits)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def position(self, data: st.DataObject) -> None:
        asked = self.waiting[data.draw(st.sampled_from(sorted(self.waiting)))]
        told = self.queue.position(asked.id)
        assert told is not None
        exact, at_most = self._position(asked)
        assert exact <= told <= at_most

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def ahead_in_lane(self, data: st.DataObject) -> None:
        asked = self.waiting[data.draw(st.sampled_from(sorted(self.waiting)))]
        ahead = sum(
            each.lane == asked.lane and (each.agent_id != asked.agent_id or self._rank(each) < self._rank(asked))
            for each in self.waiting.values()
        )
        assert self.queue.ahead_in_lane(asked.id) == ahead + (asked.lane in self._busy())

    @invariant()
    def counts_are_recounts(self) -> None:
        assert (self.queue.waiting, self.queue.in_flight) == (len(self.waiting), len(self.flying))
        recount = {
            agent: (
                sum(each.agent_id == agent for each in self.waiting.values()),
                sum(each.agent_id == agent for each in self.flying.values()),
            )
            for agent in AGENTS
        }
        assert self.queue.by_agent() == {agent: counts for agent, counts in recount.items() if counts != (0, 0)}

    def _join(self, agent: str) -> None:
        if agent not in self.joined:
            self.joins += 1
            self.joined[agent], self.served[agent] = self.joins, self.taken - 1

    def _forget(self, agent: str) -> None:
        if not any(each.agent_id == agent for each in (*self.waiting.values(), *self.flying.values())):
            del self.joined[agent], self.served[agent]

    def _busy(self) -> set[str]:
        return self.blocked | {each.lane for each in self.flying.values() if each.is_serial}

    def _rank(self, each: Waiting) -> tuple[int, int]:
        return each.created_at + (self.limits.priority_aging_ms or STRICT_MS) * each.priority, each.arrival

    def _place(self, agent: str) -> tuple[int, int]:
        """Who was served longest ago, then who came first."""
        return self.served[agent], self.joined[agent]

    def _next(self) -> Waiting | None:
        if len(self.flying) >= self.limits.workers:
            return None
        busy = self._busy()
        in_flight = Counter(each.agent_id for each in self.flying.values())
        best = min(
            (each for each in self.waiting.values() if each.lane not in busy),
            key=lambda each: (in_flight[each.agent_id], self._place(each.agent_id), self._rank(each)),
            default=None,
        )
        if best is None:
            return None
        is_alone = all(each.agent_id == best.agent_id for each in self.waiting.values())
        share = self.limits.max_per_agent if is_alone else -(-self.limits.workers // len(self.joined))
        return None if in_flight[best.agent_id] >= min(self.limits.max_per_agent, share) else best

    def _position(self, asked: Waiting) -> tuple[int, int]:
        """By the rule, agent by agent; and at the most, because some who come earlier may have no more tasks."""
        in_flight = Counter(each.agent_id for each in self.flying.values())
        waiting = Counter(each.agent_id for each in self.waiting.values())
        agent, share = asked.agent_id, self.limits.workers // len(self.joined)
        own = sum(self._rank(each) < self._rank(asked) for each in self.waiting.values() if each.agent_id == agent)
        # The tasks of an agent up to its share come while others are filled up to the same level; the rest in rounds.
        level = min(share, in_flight[agent] + own)
        rounds = own - max(0, level - in_flight[agent])
        before = earlier = 0
        for other in waiting.keys() - {agent}:
            # Who has more in flight than it will have by then has no earlier turn.
            is_earlier = self._place(other) < self._place(agent) and (rounds > 0 or in_flight[other] <= level)
            before += min(waiting[other], max(0, level - in_flight[other]) + rounds + is_earlier)
            earlier += is_earlier
        return own + before + 1, own + before + earlier + 1


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)


# --- Positions --------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from(AGENTS), st.integers(0, 3)), max_size=30))
@settings(max_examples=100, deadline=None)
def test_positions_are_never_too_low_and_exact_for_the_first_task_of_each_agent(asked: list[tuple[str, int]]) -> None:
    tasks = [task(number, agent, priority=priority) for number, (agent, priority) in enumerate(asked)]
    queue = queue_of(*tasks, workers=1)
    told = {each.id: queue.position(each.id) for each in tasks}
    agents: set[str] = set()
    by_id = {each.id: each for each in tasks}
    for place, task_id in enumerate(drain(queue), 1):
        position = told[task_id]
        assert position is not None
        if by_id[task_id].agent_id not in agents:
            agents.add(by_id[task_id].agent_id)
            assert position == place
        assert place <= position <= len(tasks)


def test_positions_are_exact_where_all_have_the_same() -> None:
    tasks = [task(number, f"a{number % 5}") for number in range(100)]
    queue = queue_of(*tasks, workers=1)
    told = [queue.position(each.id) for each in tasks]
    assert told == list(range(1, 101))
    assert drain(queue) == [each.id for each in tasks]


def test_who_has_less_than_its_share_in_flight_is_told_that_it_goes_first() -> None:
    queue = queue_of(*[task(number, "greedy") for number in range(8)], workers=4, max_per_agent=4)
    while queue.take() is not None:
        pass
    for number in range(8, 11):
        queue.add(task(number, "ada"))
    assert [queue.position(f"t{number}") for number in (8, 9)] == [1, 2]
    # Then they take turns, and who came last begins.
    assert [queue.position(f"t{number}") for number in (10, 4, 5)] == [3, 4, 5]


def test_a_task_that_does_not_wait_has_no_position() -> None:
    queue = queue_of(task(1))
    assert queue.position("t2") is None
    queue.take()
    assert queue.position("t1") is None


# --- Cost -------------------------------------------------------------------------------------------------------


def test_what_is_stale_is_swept_out() -> None:
    """Tasks that are better than those that wait, and leave before they are taken, collect no memory."""
    queue = queue_of(*[task(number, lane=f"tab_{number}") for number in range(10)], workers=1)
    for number in range(10, 5_000):
        queue.add(task(number, lane=f"tab_{number % 10}", priority=-number))
        assert queue.remove(f"t{number}")
    assert len(queue._agents["ada"]._heads) < 200


def test_lanes_that_nobody_needs_are_forgotten_and_their_bits_used_again() -> None:
    queue = queue_of(workers=2)
    for number in range(1_000):
        lane = POOL if number % 3 else f"tab_{number}"
        queue.block(f"other_{number}")
        queue.add(task(number, lane=lane))
        assert drain(queue) == [f"t{number}"]
        queue.unblock(f"other_{number}")
    assert queue._lanes == {}
    assert max(queue._spare) < 1 << 4
    assert queue._free == 0
