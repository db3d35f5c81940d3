"""Who is next: among callers who wait for a session, and among agents whose tasks wait for a worker.

Both follow one idea: whoever has the least goes first, and among equals whoever has waited longest. So one agent
that asks a thousand times does not delay another that asks once, and nobody who is admissible starves.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice

import msgspec

from ..errors import QueueFull

# --- Callers waiting for a session ------------------------------------------------------------------------------


class Waiter(msgspec.Struct, frozen=True, kw_only=True):
    """A caller that waits for a session."""

    id: str
    agent_id: str
    key: str
    # Its number in the order of arrival, which it keeps when it is put back.
    arrival: int
    # When that was, in milliseconds.
    arrived_at: int = 0


class WaitQueue:
    """Those who wait for a session of one pool: bounded, and fair across agents.

    `pick` costs O(agents), plus one step per waiter of an agent whose first ones cannot be admitted; `position` costs
    O(agents); the rest O(log waiters). Nothing here exceeds `max_waiters`.
    """

    __slots__ = ("_arrivals", "_by_agent", "_by_id", "max_waiters")

    def __init__(self, max_waiters: int = 1_000) -> None:
        # May change; who waits already is not sent away.
        self.max_waiters = max_waiters
        self._arrivals = 0
        self._by_id: dict[str, Waiter] = {}
        # Each agent's waiters in order of arrival; agents without any are not listed.
        self._by_agent: dict[str, list[Waiter]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def enter(
        self, waiter_id: str, agent_id: str, key: str, *, retry_after_ms: int | None = None, now: int = 0
    ) -> Waiter:
        """Queue up, or raise `QueueFull`, which then says when to come back."""
        assert waiter_id not in self._by_id, f"waiter {waiter_id} entered twice"
        if len(self._by_id) >= self.max_waiters:
            raise QueueFull(
                f"{len(self._by_id)} callers wait for a session already.",
                retry_after_ms=retry_after_ms,
                count=len(self._by_id),
                cap=self.max_waiters,
            )
        self._arrivals += 1
        waiter = Waiter(id=waiter_id, agent_id=agent_id, key=key, arrival=self._arrivals, arrived_at=now)
        self._insert(waiter)
        return waiter

    def withdraw(self, waiter_id: str) -> Waiter | None:
        """It left, or its time ran out: it will not be picked. None if it is not here (any more)."""
        waiter = self._by_id.get(waiter_id)
        if waiter is not None:
            self._remove(waiter)
        return waiter

    def pick(self, active_by_agent: Mapping[str, int], is_admissible: Callable[[Waiter], bool]) -> Waiter | None:
        """Take out who is next; None when nobody is admissible."""
        best = self.find(active_by_agent, is_admissible)
        if best is not None:
            self._remove(best)
        return best

    def find(self, active_by_agent: Mapping[str, int], is_admissible: Callable[[Waiter], bool]) -> Waiter | None:
        """Who is next: of the admissible ones the agent with the fewest active sessions, then by arrival.

        `is_admissible` says whether the caps leave room; it must depend on agent and key alone, and is asked at most
        once per agent and key. Whoever is not admissible is passed over and blocks nobody.
        """
        best: Waiter | None = None
        best_turn = (0, 0)
        for agent_id, waiters in self._by_agent.items():
            active = active_by_agent.get(agent_id, 0)
            full_keys: set[str] = set()
            for waiter in waiters:
                if best is not None and best_turn < (active, waiter.arrival):
                    break
                if waiter.key in full_keys:
                    continue
                if is_admissible(waiter):
                    best, best_turn = waiter, (active, waiter.arrival)
                    break
                full_keys.add(waiter.key)
        return best

    def put_back(self, waiter: Waiter) -> None:
        """It was picked, but what it was picked for was taken meanwhile: it gets its old place."""
        assert waiter.id not in self._by_id
        self._insert(waiter)

    def position(self, waiter_id: str, active_by_agent: Mapping[str, int] | None = None) -> int | None:
        """Its 1-based place in the order of grants if every waiter were admissible; None if it is not here."""
        waiter = self._by_id.get(waiter_id)
        if waiter is None:
            return None
        active = active_by_agent or {}
        # Each grant makes the agent's next waiter wait for everybody else to have as much: its own n-th waiter goes
        # when the agent has n more sessions, so the order is by (active + n, arrival).
        own = self._by_agent[waiter.agent_id]
        level = active.get(waiter.agent_id, 0) + _index(own, waiter)
        ahead = 0
        for agent_id, waiters in self._by_agent.items():
            earlier = min(len(waiters), max(0, level - active.get(agent_id, 0)))
            ahead += earlier
            is_at_level = active.get(agent_id, 0) + earlier == level and earlier < len(waiters)
            if is_at_level and waiters[earlier].arrival < waiter.arrival:
                ahead += 1
        return ahead + 1

    def first(self, count: int, active_by_agent: Mapping[str, int]) -> list[Waiter]:
        """So many of all waiters in the order of their positions. O(agents), plus O(log agents) for each of them."""

        def turns(agent_id: str, waiters: list[Waiter]) -> Iterator[tuple[int, int, Waiter]]:
            active = active_by_agent.get(agent_id, 0)
            return ((active + ahead, waiter.arrival, waiter) for ahead, waiter in enumerate(waiters))

        # No two arrivals are the same, so that waiters themselves are never compared.
        merged = merge(*(turns(agent_id, waiters) for agent_id, waiters in self._by_agent.items()))
        return [waiter for _, _, waiter in islice(merged, count)]

    @property
    def oldest(self) -> Waiter | None:
        """Who has waited longest. O(agents)."""
        return min((waiters[0] for waiters in self._by_agent.values()), key=_arrival, default=None)

    def of_agent(self, agent_id: str) -> Sequence[Waiter]:
        """Its waiters, in order of arrival."""
        return self._by_agent.get(agent_id, ())

    def _insert(self, waiter: Waiter) -> None:
        self._by_id[waiter.id] = waiter
        insort(self._by_agent.setdefault(waiter.agent_id, []), waiter, key=_arrival)

    def _remove(self, waiter: Waiter) -> None:
        del self._by_id[waiter.id]
        waiters = self._by_agent[waiter.agent_id]
        del waiters[_index(waiters, waiter)]
        if not waiters:
            del self._by_agent[waiter.agent_id]


def _arrival(waiter: Waiter) -> int:
    return waiter.arrival


def _index(waiters: Sequence[Waiter], waiter: Waiter) -> int:
    return bisect_left(waiters, waiter.arrival, key=_arrival)


# --- Agents whose tasks wait for a worker -----------------------------------------------------------------------


class AgentLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent with queued tasks has now."""

    agent_id: str
    in_flight: int
    # When a task of it was last started; 0 if never.
    last_served_at: int = 0


def turn(agent: AgentLoad) -> tuple[int, int, str]:
    """The order of agents, lowest first: fewest in flight, then longest unserved; the id makes it total."""
    return (agent.in_flight, agent.last_served_at, agent.agent_id)


def pick_agent(agents: Iterable[AgentLoad], limit: int) -> AgentLoad | None:
    """Whose task goes next: the lowest `turn` of those below the limit of tasks in flight. O(agents)."""
    return min((agent for agent in agents if agent.in_flight < limit), key=turn, default=None)


def share_limit(workers: int, active_agents: int, max_per_agent: int) -> int:
    """How many tasks of one agent may be in flight while `active_agents` (itself included) have or want some."""
    share = -(-workers // max(1, active_agents))
    return max(1, min(max_per_agent, share))


def aged_priority(priority: int, waited_ms: int, priority_aging_ms: int) -> int:
    """Lower goes first; each full `priority_aging_ms` of waiting lowers it by one. 0 ms is strict priority."""
    if priority_aging_ms <= 0:
        return priority
    return priority - max(0, waited_ms) // priority_aging_ms


def jain_index(values: Sequence[float]) -> float:
    """How evenly something is shared: 1 when all have the same, 1/n when one has everything."""
    squares = sum(value * value for value in values)
    if not squares:
        return 1.0
    return sum(values) ** 2 / (len(values) * squares)
