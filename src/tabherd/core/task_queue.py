"""Which task runs next: fair across agents, by aged priority within one, and never one whose tab is busy.

Invariants:
- The agent with the fewest tasks in flight goes first, ties by who was served longest ago; within an agent the task
  with the lowest aged priority, ties by arrival. A task whose lane is busy is passed over and delays nobody.
- Never more than `workers` tasks are in flight, nor more of one agent than its limit; while another agent waits, that
  is at most its share of the workers.
- Every task is in exactly one place: waiting, in flight, or gone.

A lane is what runs one task at a time (a tab), or as many as it likes (the pool, for tasks that bring no tab). Each has
a bit. The lanes that are free are one number, the lanes in which an agent has tasks another: who may go next is the
first of the round that has a bit in common with the free ones, and a lane that becomes busy or free changes one bit,
however many agents and tasks wait in it. All agents that have nothing in flight are in one round; those that have are
no more than there are workers, and are looked at one by one, but only when none of the others can go.

An agent that comes joins the round behind those who wait, but before whoever was served last: it waits for its turn,
and nobody who waits is passed by ever new agents.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import msgspec

from ..errors import QueueFull
from .agent_tasks import AgentTasks, Rank
from .fairness import share_limit
from .lengths import Lengths
from .round import Round

# A rank is the aged priority, then the arrival, in one number: how many have ever arrived fits into so many bits, and
# no wait is as long as a level of strict priority.
ARRIVAL_BITS = 48
STRICT_MS = 1 << 53


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
    # In the order of arrival, no two alike; makes the order total.
    arrival: int = 0


class _Lane:
    """What waits for one tab, or for the pool."""

    __slots__ = ("bit", "is_blocked", "is_running", "name", "waiting")

    def __init__(self, name: str, bit: int) -> None:
        self.name = name
        self.bit = bit
        # Somebody else has it.
        self.is_blocked = False
        # It runs a task, and takes one at a time.
        self.is_running = False
        self.waiting = 0

    @property
    def is_free(self) -> bool:
        return not self.is_blocked and not self.is_running


class TaskQueue:
    """The tasks of one node that wait or are in flight."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # By id, and by rank.
        self._waiting: dict[str, Waiting] = {}
        self._ranked: dict[Rank, Waiting] = {}
        self._in_flight: dict[str, Waiting] = {}
        self._agents: dict[str, AgentTasks] = {}
        # All agents have a place in it; those that have something in flight want nothing there.
        self._round: Round[AgentTasks] = Round()
        # The agents that have tasks in flight and others that wait, by turn: fewest in flight, then longest unserved.
        self._flying: list[tuple[int, int, AgentTasks]] = []
        # Who was served last, while it is here.
        self._last: AgentTasks | None = None
        # How many tasks the agents have waiting.
        self._lengths = Lengths()
        # Lanes that are waited for or busy; bits that lanes have had, and that are to be had again.
        self._lanes: dict[str, _Lane] = {}
        self._spare: list[int] = []
        # The bits of those that are free.
        self._free = 0

    # --- What it is told --------------------------------------------------------------------------------------------

    def admit(self, agent_id: str, arriving: int = 0, arriving_of_agent: int = 0) -> None:
        """Raise `QueueFull` unless one more task of that agent may wait, besides those that were admitted just now."""
        agent = self._agents.get(agent_id)
        own = arriving_of_agent + (0 if agent is None else agent.ranks.count)
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
        agent = self._agents.get(task.agent_id) or self._join(task.agent_id)
        lane = self._lanes.get(task.lane) or self._open(task.lane)
        rank = self._rank(task)
        assert rank not in self._ranked, f"{task.id} has the arrival of another"
        self._waiting[task.id] = self._ranked[rank] = task
        lane.waiting += 1
        if agent.lanes & lane.bit:
            agent.add(rank, lane.bit, is_free=lane.is_free)
        else:
            self._hide(agent)
            agent.add(rank, lane.bit, is_free=lane.is_free)
            self._show(agent)
        self._lengths.grown(agent.ranks.count)

    def take(self) -> Waiting | None:
        """The task that runs next, which is in flight from now on; None while none may."""
        if len(self._in_flight) >= self._limits.workers:
            return None
        agent = self._next()
        if agent is None or (agent.in_flight and agent.in_flight >= self._limit_of(agent)):
            # Everybody else has at least as many.
            return None
        task = self._ranked[agent.best(self._free)]
        lane = self._lanes[task.lane]
        if task.is_serial:
            lane.is_running = True
            self._free &= ~lane.bit
        self._hide(agent)
        self._leave(task, agent, lane)
        agent.in_flight += 1
        self._in_flight[task.id] = task
        self._round.leave(agent)
        self._round.seat(agent)
        self._show(agent)
        self._last = agent
        self._close(lane)
        return task

    def finish(self, task_id: str) -> None:
        """A task that was in flight is over."""
        self._forget(self._agents[self._land(task_id).agent_id])

    def put_back(self, task_id: str) -> None:
        """A task that was in flight waits again, at its old place, and its agent keeps its turn."""
        self.add(self._land(task_id))

    def remove(self, task_id: str) -> bool:
        """A task that waits leaves; False if it does not wait."""
        task = self._waiting.get(task_id)
        if task is None:
            return False
        agent, lane = self._agents[task.agent_id], self._lanes[task.lane]
        self._hide(agent)
        self._leave(task, agent, lane)
        self._show(agent)
        self._forget(agent)
        self._close(lane)
        return True

    def block(self, name: str) -> None:
        """Somebody else has this lane: nothing of it is taken until it is unblocked."""
        lane = self._lanes.get(name) or self._open(name)
        lane.is_blocked = True
        self._free &= ~lane.bit

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
            self._rank_anew()

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

    def standing_in(self, name: str) -> tuple[int, bool]:
        """How many tasks wait in that lane, and whether something keeps them from being taken."""
        lane = self._lanes.get(name)
        return (0, False) if lane is None else (lane.waiting, not lane.is_free)

    def waiting_of(self, agent_id: str) -> int:
        """How many tasks of that agent wait."""
        agent = self._agents.get(agent_id)
        return 0 if agent is None else agent.ranks.count

    def count_of(self, agent_id: str) -> int:
        """How many tasks of that agent wait or are in flight."""
        agent = self._agents.get(agent_id)
        return 0 if agent is None else agent.ranks.count + agent.in_flight

    def lane_of(self, task_id: str) -> str | None:
        """Where a task runs, that waits or is in flight."""
        task = self._waiting.get(task_id) or self._in_flight.get(task_id)
        return None if task is None else task.lane

    def by_agent(self) -> dict[str, tuple[int, int]]:
        """How many tasks of each agent wait, and how many are in flight."""
        return {agent.id: (agent.ranks.count, agent.in_flight) for agent in self._agents.values()}

    def position(self, task_id: str) -> int | None:
        """Its 1-based place in the order in which tasks start, if all lanes were free, all tasks took equally long and
        nobody came; None: not here.

        Agents that have less than their share of the workers fill it first, lowest first; from then on all take turns,
        in the order of their places. Too high by as many at the most as have an earlier turn and no more tasks for it;
        and as those in flight end in bunches, off by no more than there are workers.
        """
        task = self._waiting.get(task_id)
        if task is None:
            return None
        agent = self._agents[task.agent_id]
        own = agent.ranks.index(self._rank(task))
        share = self._limits.workers // len(self._agents)
        # Up to this level of tasks in flight the others are served before it, and for so many rounds after that.
        level = min(share, agent.in_flight + own)
        rounds = own - max(0, level - agent.in_flight)
        # All as if they had nothing in flight, then those that have something as they are.
        turns = level + rounds
        ahead, more = self._lengths.sum_up_to(turns), self._lengths.at(turns + 1)
        if not agent.in_flight:
            ahead, more = ahead - own, more - 1
        flying = 0
        for in_flight, serial, other in self._flying:
            waiting = other.ranks.count
            if waiting > turns:
                ahead, more = ahead - turns, more - 1
            else:
                ahead -= waiting
            if other is not agent:
                # Whoever has more in flight than it will have by then has no earlier turn.
                served = rounds + (serial < agent.serial and (rounds > 0 or in_flight <= level))
                if in_flight < level:
                    served += level - in_flight
                flying += waiting if waiting < served else served
        return ahead + min(more, self._round.ahead(agent)) + flying + own + 1

    def ahead_in_lane(self, task_id: str) -> int:
        """How many tasks of the same lane may run before it: of its own agent those before it, of others all."""
        task = self._waiting[task_id]
        lane = self._lanes[task.lane]
        before, own = self._agents[task.agent_id].before(self._rank(task), lane.bit)
        return before + lane.waiting - own + (0 if lane.is_free else 1)

    # --- Agents -----------------------------------------------------------------------------------------------------

    def _join(self, id: str) -> AgentTasks:
        agent = self._agents[id] = AgentTasks(id)
        self._round.seat(agent)
        if self._last is not None:
            # Behind it again.
            last = self._last
            self._hide(last)
            self._round.leave(last)
            self._round.seat(last)
            self._show(last)
        return agent

    def _land(self, task_id: str) -> Waiting:
        """It is in flight no longer."""
        task = self._in_flight.pop(task_id)
        agent = self._agents[task.agent_id]
        self._hide(agent)
        agent.in_flight -= 1
        self._show(agent)
        if task.is_serial:
            lane = self._lanes[task.lane]
            lane.is_running = False
            self._freed(lane)
        return task

    def _forget(self, agent: AgentTasks) -> None:
        if not agent.lanes and not agent.in_flight:
            self._round.leave(agent)
            del self._agents[agent.id]
            if self._last is agent:
                self._last = None

    def _show(self, agent: AgentTasks) -> None:
        """Have it found, by its turn, for the lanes in which it waits."""
        if not agent.in_flight:
            self._round.want(agent, agent.lanes)
        elif agent.lanes:
            insort(self._flying, (agent.in_flight, agent.serial, agent))

    def _hide(self, agent: AgentTasks) -> None:
        """Its turn or its lanes are about to change; `_show` ends that."""
        if agent.in_flight and agent.lanes:
            del self._flying[bisect_left(self._flying, (agent.in_flight, agent.serial, agent))]

    def _next(self) -> AgentTasks | None:
        """Whose turn it is, of those who have a task in a free lane."""
        first = self._round.first(self._free)
        if first is not None:
            return first
        return next((agent for _, _, agent in self._flying if agent.lanes & self._free), None)

    def _limit_of(self, agent: AgentTasks) -> int:
        # Others wait if anybody but this agent does.
        if len(self._waiting) == agent.ranks.count:
            return self._limits.max_per_agent
        return share_limit(self._limits.workers, len(self._agents), self._limits.max_per_agent)

    # --- Tasks ------------------------------------------------------------------------------------------------------

    def _rank(self, task: Waiting) -> Rank:
        # That each level of priority is worth so much waiting is the same as a later arrival for each level: it can be
        # said once and for all, and never has to be compared again as time goes by.
        late_ms = task.priority * (self._limits.priority_aging_ms or STRICT_MS)
        return ((task.created_at + late_ms) << ARRIVAL_BITS) + task.arrival

    def _rank_anew(self) -> None:
        """The order within each agent is another one; turns and lanes stay."""
        self._ranked = {self._rank(task): task for task in self._waiting.values()}
        ranks: dict[str, dict[Rank, int]] = {agent_id: {} for agent_id in self._agents}
        for rank, task in self._ranked.items():
            ranks[task.agent_id][rank] = self._lanes[task.lane].bit
        for agent in self._agents.values():
            agent.rank_anew(ranks[agent.id])

    def _leave(self, task: Waiting, agent: AgentTasks, lane: _Lane) -> None:
        """It waits no more."""
        rank = self._rank(task)
        del self._waiting[task.id], self._ranked[rank]
        lane.waiting -= 1
        agent.remove(rank, lane.bit)
        self._lengths.shrunk(agent.ranks.count)

    # --- Lanes ------------------------------------------------------------------------------------------------------

    def _open(self, name: str) -> _Lane:
        bit = self._spare.pop() if self._spare else 1 << len(self._lanes)
        lane = self._lanes[name] = _Lane(name, bit)
        self._free |= lane.bit
        return lane

    def _freed(self, lane: _Lane) -> None:
        """One reason for its being busy is gone."""
        if lane.is_free:
            self._free |= lane.bit
        self._close(lane)

    def _close(self, lane: _Lane) -> None:
        """Forget it, unless it is needed."""
        if lane.is_free and not lane.waiting:
            del self._lanes[lane.name]
            self._free &= ~lane.bit
            self._spare.append(lane.bit)
