"""Which task runs next: fair across agents, by aged priority within one, and never one whose tab is busy.

Invariants:
- The agent with the fewest tasks in flight goes first, ties by who was served longest ago; within an agent the task
  with the lowest aged priority, ties by arrival. A task whose lane is busy is passed over and delays nobody.
- Never more than `workers` tasks are in flight, nor more of one agent than its limit; while another agent waits, that
  is at most its share of the workers.
- Every task is in exactly one place: waiting, in flight, or gone.

A lane is what runs one task at a time (a tab), or as many as it likes (the pool, for tasks that bring no tab). Most
lanes are one agent's own: the agent offers the best task of all its own free lanes. A lane that several agents wait for
offers its best agent while it is free. The best of all offers is taken; so a busy lane costs nothing, however many
tasks wait in it. All steps cost O(log tasks), plus, when a task ends, one per shared lane in which its agent waits.

An agent that comes joins the round behind those who wait, but before whoever was served last: it waits for its turn,
and nobody who waits is passed by ever new agents.

Offers are not changed when they grow stale but looked at again when they come up. That is sound because the offer that
stands never comes up late: whatever makes an agent's turn earlier is offered anew at once, and the old one, which comes
up later, no longer counts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush
from typing import TypeAlias

import msgspec

from ..errors import QueueFull
from .fairness import share_limit
from .lengths import Lengths

# Lower goes first: aged priority, then arrival.
Rank: TypeAlias = tuple[int, int, int]
# Fewest in flight, longest unserved, then who came first: the order of agents.
Turn: TypeAlias = tuple[int, int, int]
# An agent's turn, the rank of its best task in that lane, and its id.
Offer: TypeAlias = tuple[Turn, Rank, str]

# Stale offers are swept out when there are this many more than live ones.
SLACK = 64


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the queue is held to; may change at any time, and never drops what was accepted."""

    # Tasks that wait, in all and of one agent.
    queue_max: int = 10_000
    queue_max_per_agent: int = 1_000
    # Tasks in flight, in all and of one agent.
    workers: int = 20
    max_per_agent: int = 10
    # Each that a task has waited makes up for one level of priority; 0: never.
    priority_aging_ms: int = 60_000


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A task as the queue sees it."""

    id: str
    agent_id: str
    # Where it runs.
    lane: str
    # Whether that takes one task at a time.
    is_serial: bool = True
    # Lower goes first.
    priority: int = 0
    created_at: int = 0
    # In the order of arrival; makes the order total.
    arrival: int = 0


class _Stall:
    """What one agent has waiting in one lane."""

    __slots__ = ("offer", "ranks")

    def __init__(self) -> None:
        # A heap of its tasks by rank, which may have some that have left.
        self.ranks: list[tuple[Rank, str]] = []
        # The one among the lane's offers that counts.
        self.offer: Offer | None = None


class _Agent:
    """What one agent has."""

    __slots__ = ("free", "id", "in_flight", "joined", "offer", "ranks", "served", "shared", "stalls")

    def __init__(self, id: str, served: int, joined: int) -> None:
        self.id = id
        self.in_flight = 0
        # Which of all tasks that were taken was its last one.
        self.served = served
        # In which order it came.
        self.joined = joined
        # The ranks of its waiting tasks, best first.
        self.ranks: list[Rank] = []
        # Where it has tasks that wait, by lane; and which of these others wait for, too.
        self.stalls: dict[str, _Stall] = {}
        self.shared: set[str] = set()
        # A heap of the best task of each of its own lanes that is free; looked at again when one comes up.
        self.free: list[tuple[Rank, str]] = []
        # The one among the queue's offers that counts, of its own lanes.
        self.offer: Offer | None = None

    @property
    def turn(self) -> Turn:
        return (self.in_flight, self.served, self.joined)


class _Lane:
    """What waits for one tab, or for the pool."""

    __slots__ = ("agents", "is_blocked", "is_running", "name", "offer", "offers", "owner", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        # Somebody else has it.
        self.is_blocked = False
        # It runs a task, and takes one at a time.
        self.is_running = False
        # Agents that have tasks here, and the only one, as long as it is.
        self.agents: set[str] = set()
        self.owner: str | None = None
        # Of a shared lane: one of each agent counts, and comes up no later than its turn.
        self.offers: list[Offer] = []
        # The one among the queue's offers that counts.
        self.offer: Offer | None = None
        self.waiting = 0

    @property
    def is_free(self) -> bool:
        return not self.is_blocked and not self.is_running

    @property
    def is_needed(self) -> bool:
        return bool(self.agents) or not self.is_free


class TaskQueue:
    """The tasks of one node that wait or are in flight."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: dict[str, Waiting] = {}
        self._in_flight: dict[str, Waiting] = {}
        self._agents: dict[str, _Agent] = {}
        self._lanes: dict[str, _Lane] = {}
        # One of each agent, for its own lanes (no name), and one of each shared lane that is free counts; each comes up
        # no later than its turn.
        self._offers: list[tuple[Offer, str]] = []
        # How many tasks the agents have waiting.
        self._lengths = Lengths()
        # The turns of the agents that have tasks waiting, in order.
        self._turns: list[Turn] = []
        self._served = 0
        self._joined = 0

    # --- What it is told --------------------------------------------------------------------------------------------

    def admit(self, agent_id: str, arriving: int = 0, arriving_of_agent: int = 0) -> None:
        """Raise `QueueFull` unless one more task of that agent may wait, besides those that were admitted just now."""
        agent = self._agents.get(agent_id)
        own = arriving_of_agent + (0 if agent is None else len(agent.ranks))
        count = arriving + len(self._waiting)
        if count >= self._limits.queue_max:
            raise QueueFull(f"{count} tasks wait already.", count=count, cap=self._limits.queue_max)
        if own >= self._limits.queue_max_per_agent:
            cap = self._limits.queue_max_per_agent
            raise QueueFull(f"{own} tasks of this agent wait already.", count=own, cap=cap, agentId=agent_id)

    def add(self, task: Waiting) -> None:
        """It waits from now on; whether it may was asked before."""
        assert task.id not in self._waiting, f"{task.id} waits already"
        assert task.id not in self._in_flight, f"{task.id} is in flight"
        self._waiting[task.id] = task
        agent = self._agents.get(task.agent_id)
        if agent is None:
            self._joined += 1
            agent = self._agents[task.agent_id] = _Agent(task.agent_id, self._served - 1, self._joined)
        lane = self._lanes.get(task.lane)
        if lane is None:
            lane = self._lanes[task.lane] = _Lane(task.lane)
        rank = self._rank(task)
        if not agent.ranks:
            insort(self._turns, agent.turn)
        self._lengths.move(len(agent.ranks), len(agent.ranks) + 1)
        insort(agent.ranks, rank)
        stall = agent.stalls.get(task.lane)
        if stall is None:
            stall = agent.stalls[task.lane] = _Stall()
            self._join(agent, lane)
        heappush(stall.ranks, (rank, task.id))
        lane.waiting += 1
        if stall.ranks[0][1] == task.id:
            self._offer(agent, lane)

    def take(self) -> Waiting | None:
        """The task that runs next, which is in flight from now on; None while none may."""
        if len(self._in_flight) >= self._limits.workers:
            return None
        while self._offers:
            offer, name = self._offers[0]
            side = self._side(offer, name)
            if side is None or side.offer != offer:
                heappop(self._offers)
                continue
            best = self._best(side)
            if best != offer:
                heappop(self._offers)
                side.offer = None
                self._advertise(side, best)
                continue
            agent = self._agents[offer[2]]
            if agent.in_flight >= self._limit_of(agent):
                # Everybody else has at least as many.
                return None
            return self._take(agent, self._lanes[name or agent.free[0][1]])
        return None

    def finish(self, task_id: str) -> None:
        """A task that was in flight is over."""
        task = self._in_flight.pop(task_id)
        agent = self._agents[task.agent_id]
        self._set_turn(agent, agent.in_flight - 1, agent.served)
        self._advertise(agent, self._best_own(agent))
        for name in agent.shared:
            self._offer(agent, self._lanes[name])
        self._forget(agent)
        if task.is_serial:
            lane = self._lanes[task.lane]
            lane.is_running = False
            self._freed(lane)

    def put_back(self, task_id: str) -> None:
        """A task that was in flight waits again, at its old place."""
        task = self._in_flight[task_id]
        self.finish(task_id)
        self.add(task)

    def remove(self, task_id: str) -> bool:
        """A task that waits leaves; False if it does not wait."""
        task = self._waiting.pop(task_id, None)
        if task is None:
            return False
        self._leave(task)
        return True

    def block(self, name: str) -> None:
        """Somebody else has this lane: nothing of it is taken until it is unblocked."""
        self._lanes.setdefault(name, _Lane(name)).is_blocked = True

    def unblock(self, name: str) -> None:
        """Its tasks may be taken again. Idempotent."""
        lane = self._lanes.get(name)
        if lane is not None and lane.is_blocked:
            lane.is_blocked = False
            self._freed(lane)

    def set_limits(self, limits: Limits) -> None:
        """Hold it to these from now on; more than they allow is worked off, not dropped."""
        is_aging_changed = limits.priority_aging_ms != self._limits.priority_aging_ms
        self._limits = limits
        if is_aging_changed:
            waiting = list(self._waiting.values())
            for task in waiting:
                self.remove(task.id)
            for task in waiting:
                self.add(task)

    # --- What it tells ----------------------------------------------------------------------------------------------

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def flying(self) -> list[str]:
        """The ids of those in flight."""
        return list(self._in_flight)

    def lane_of(self, task_id: str) -> str | None:
        """Where a task runs, that waits or is in flight."""
        task = self._waiting.get(task_id) or self._in_flight.get(task_id)
        return None if task is None else task.lane

    def by_agent(self) -> dict[str, tuple[int, int]]:
        """How many tasks of each agent wait, and how many are in flight."""
        return {agent.id: (len(agent.ranks), agent.in_flight) for agent in self._agents.values()}

    def position(self, task_id: str) -> int | None:
        """Its 1-based place in the order in which tasks start, if all lanes were free and nobody came; None: not here.

        Agents take turns: before an agent's n-th task, each whose turn comes earlier has had n, and each other one
        n - 1, unless it has fewer. Exact for an agent's first task; for later ones it may be too high by the number of
        agents whose turn comes earlier and who have fewer tasks, never too low.
        """
        task = self._waiting.get(task_id)
        if task is None:
            return None
        agent = self._agents[task.agent_id]
        own = bisect_left(agent.ranks, self._rank(task))
        full_rounds = self._lengths.sum_up_to(own) - own
        # Of the last round, those who have their turn before, as far as they have tasks left.
        left = self._lengths.sum_up_to(own + 1) - self._lengths.sum_up_to(own) - 1
        return own + full_rounds + min(bisect_left(self._turns, agent.turn), left) + 1

    def ahead_in_lane(self, task_id: str) -> int:
        """How many tasks of the same lane may run before it; an upper bound."""
        task = self._waiting[task_id]
        lane = self._lanes[task.lane]
        return lane.waiting - 1 + (0 if lane.is_free else 1)

    # --- Parts ------------------------------------------------------------------------------------------------------

    def _rank(self, task: Waiting) -> Rank:
        # That each level of priority is worth so much waiting is the same as a later arrival for each level: it can be
        # said once and for all, and never has to be compared again as time goes by.
        aging_ms = self._limits.priority_aging_ms
        if aging_ms:
            return (0, task.created_at + task.priority * aging_ms, task.arrival)
        return (task.priority, task.created_at, task.arrival)

    def _limit_of(self, agent: _Agent) -> int:
        # Others wait if anybody but this agent does.
        if len(self._waiting) == len(agent.ranks):
            return self._limits.max_per_agent
        return share_limit(self._limits.workers, len(self._agents), self._limits.max_per_agent)

    def _head(self, agent: _Agent, lane: _Lane) -> tuple[Rank, str] | None:
        """The agent's best task of that lane that still waits."""
        stall = agent.stalls.get(lane.name)
        while stall is not None and stall.ranks:
            if stall.ranks[0][1] in self._waiting:
                return stall.ranks[0]
            heappop(stall.ranks)
        return None

    def _offer_of(self, agent: _Agent, lane: _Lane) -> Offer | None:
        head = self._head(agent, lane)
        return None if head is None else (agent.turn, head[0], agent.id)

    def _join(self, agent: _Agent, lane: _Lane) -> None:
        """The agent has tasks in that lane from now on."""
        if not lane.agents:
            lane.owner = agent.id
        elif lane.owner is not None:
            first, lane.owner = self._agents[lane.owner], None
            first.shared.add(lane.name)
            self._offer(first, lane)
        if lane.owner is None:
            agent.shared.add(lane.name)
        lane.agents.add(agent.id)

    def _side(self, offer: Offer, name: str) -> _Agent | _Lane | None:
        """Whose offer it is."""
        return self._lanes.get(name) if name else self._agents.get(offer[2])

    def _offer(self, agent: _Agent, lane: _Lane) -> None:
        """Have what the agent offers there come up no later than it should."""
        if lane.owner is not None:
            self._offer_own(agent, lane)
            return
        offer, stall = self._offer_of(agent, lane), agent.stalls[lane.name]
        if offer is None or (stall.offer is not None and stall.offer <= offer):
            return
        stall.offer = offer
        heappush(lane.offers, offer)
        if len(lane.offers) > 2 * len(lane.agents) + SLACK:
            lane.offers = [each for each in lane.offers if self._stands(each, lane)]
            heapify(lane.offers)
        if lane.is_free:
            self._advertise(lane, offer)

    def _offer_own(self, agent: _Agent, lane: _Lane) -> None:
        head = self._head(agent, lane)
        if head is None or not lane.is_free:
            return
        heappush(agent.free, (head[0], lane.name))
        if len(agent.free) > 2 * len(agent.stalls) + SLACK:
            # Each once, and only those that may still come up.
            agent.free = sorted({(rank, name) for rank, name in agent.free if name in agent.stalls})
        self._advertise(agent, self._best_own(agent))

    def _advertise(self, side: _Agent | _Lane, offer: Offer | None) -> None:
        """Have what an agent or a free lane offers come up no later than it should."""
        if offer is None or (side.offer is not None and side.offer <= offer):
            return
        side.offer = offer
        heappush(self._offers, (offer, side.name if isinstance(side, _Lane) else ""))
        if len(self._offers) > 2 * (len(self._lanes) + len(self._agents)) + SLACK:
            known = ((each, name, self._side(each, name)) for each, name in self._offers)
            self._offers = [(each, name) for each, name, found in known if found is not None and found.offer == each]
            heapify(self._offers)

    def _stands(self, offer: Offer, lane: _Lane) -> bool:
        """Whether it is the one of its agent that counts."""
        agent = self._agents.get(offer[2])
        stall = None if agent is None else agent.stalls.get(lane.name)
        return stall is not None and stall.offer == offer

    def _best(self, side: _Agent | _Lane) -> Offer | None:
        """The best offer of the agent's own lanes, or of the lane, that holds."""
        if isinstance(side, _Agent):
            return self._best_own(side)
        return self._best_shared(side) if side.is_free else None

    def _best_own(self, agent: _Agent) -> Offer | None:
        while agent.free:
            rank, name = agent.free[0]
            lane = self._lanes.get(name)
            is_own = lane is not None and lane.owner == agent.id and lane.is_free
            head = self._head(agent, lane) if lane is not None and is_own else None
            if head is not None and head[0] == rank:
                return (agent.turn, rank, agent.id)
            heappop(agent.free)
            if head is not None and head[0] > rank:
                # The one that was best has left.
                heappush(agent.free, (head[0], name))
        return None

    def _best_shared(self, lane: _Lane) -> Offer | None:
        while lane.offers:
            offer = lane.offers[0]
            if not self._stands(offer, lane):
                heappop(lane.offers)
                continue
            agent = self._agents[offer[2]]
            current = self._offer_of(agent, lane)
            if current == offer:
                return offer
            # Its turn has moved back since.
            heappop(lane.offers)
            agent.stalls[lane.name].offer = None
            self._offer(agent, lane)
        return None

    def _take(self, agent: _Agent, lane: _Lane) -> Waiting:
        head = self._head(agent, lane)
        assert head is not None, "an offer that holds has a task"
        task = self._waiting.pop(head[1])
        self._served += 1
        self._set_turn(agent, agent.in_flight + 1, self._served)
        self._in_flight[task.id] = task
        lane.is_running = task.is_serial
        self._leave(task)
        return task

    def _set_turn(self, agent: _Agent, in_flight: int, served: int) -> None:
        if agent.ranks:
            del self._turns[bisect_left(self._turns, agent.turn)]
        agent.in_flight, agent.served = in_flight, served
        if agent.ranks:
            insort(self._turns, agent.turn)

    def _freed(self, lane: _Lane) -> None:
        """The lane may be free again: what it has to offer is offered."""
        if lane.owner is not None:
            self._offer_own(self._agents[lane.owner], lane)
        elif lane.is_free:
            self._advertise(lane, self._best_shared(lane))
        if not lane.is_needed:
            del self._lanes[lane.name]

    def _leave(self, task: Waiting) -> None:
        """Take a task that waits no more out of everything; what is stale in heaps is dropped when it comes up."""
        agent, lane = self._agents[task.agent_id], self._lanes[task.lane]
        self._lengths.move(len(agent.ranks), len(agent.ranks) - 1)
        del agent.ranks[bisect_left(agent.ranks, self._rank(task))]
        if not agent.ranks:
            del self._turns[bisect_left(self._turns, agent.turn)]
        lane.waiting -= 1
        if self._head(agent, lane) is None:
            del agent.stalls[lane.name]
            agent.shared.discard(lane.name)
            lane.agents.discard(agent.id)
            if not lane.agents:
                lane.owner = None
            if not lane.is_needed:
                del self._lanes[lane.name]
        self._forget(agent)

    def _forget(self, agent: _Agent) -> None:
        if not agent.ranks and not agent.in_flight:
            del self._agents[agent.id]
