"""How many tasks all nodes together have, as one of them knows it, and whether one more may wait.

What waits on this node is known exactly; the rest by what was counted at the last look, about a second ago, and what
came in and went here since. So nodes that are all asked at once may together take in a little more than the bound: what
the others took in between two looks. An agent that comes to a node for the first time is counted at the next look.
"""

from __future__ import annotations

from typing import Final

from ..config import Config
from ..core.task_queue import TaskQueue
from ..errors import QueueFull
from ..store.task_claims import Look, TaskClaims

# Agents that have submitted here lately, and are counted at a look.
AGENTS_MAX: Final = 100


class TaskTally:
    """The counts of one node."""

    def __init__(self, *, config: Config, claims: TaskClaims, queue: TaskQueue) -> None:
        self._config = config
        self._claims = claims
        # What waits on this node.
        self._queue = queue
        # What was counted last, without what waited on this node then: in all, and by agent.
        self.seen = Look()
        self._elsewhere = 0
        self._elsewhere_by_agent: dict[str, int] = {}
        # Tasks of nobody that have come in here since, without those that this node has claimed.
        self._since = 0
        self._since_by_agent: dict[str, int] = {}
        # Agents that have submitted here, the latest last.
        self._agents: dict[str, None] = {}

    @property
    def may_wait(self) -> bool:
        """Whether there may be tasks of nobody."""
        return self.seen.unclaimed + self._since > 0

    @property
    def waiting(self) -> int:
        """Tasks that wait, on all nodes."""
        return max(0, self._elsewhere + self._since) + self._queue.waiting

    def reconfigure(self, config: Config) -> None:
        self._config = config

    def moved(self, agent_id: str, count: int) -> None:
        """So many more tasks are nobody's; or fewer, which are this node's."""
        self._since += count
        self._since_by_agent[agent_id] = self._since_by_agent.get(agent_id, 0) + count

    def check_room(self, agent_id: str, arriving: int, arriving_of_agent: int) -> None:
        """Raise `QueueFull` unless one more task of that agent may wait, besides those that were admitted just now."""
        limits, queue = self._config.scheduler, self._queue
        self._agents.pop(agent_id, None)
        self._agents[agent_id] = None
        if len(self._agents) > AGENTS_MAX:
            del self._agents[next(iter(self._agents))]
        count = self.waiting + arriving
        if count >= limits.queue_max:
            raise QueueFull(f"{count} tasks wait already.", count=count, cap=limits.queue_max)
        known = self._elsewhere_by_agent.get(agent_id, 0) + self._since_by_agent.get(agent_id, 0)
        own = max(0, known) + queue.waiting_of(agent_id) + arriving_of_agent
        if own >= limits.queue_max_per_agent:
            cap = limits.queue_max_per_agent
            raise QueueFull(f"{own} tasks of this agent wait already.", count=own, cap=cap, agentId=agent_id)

    async def look(self) -> Look:
        """Count anew."""
        limits, agents = self._config.scheduler, tuple(self._agents)
        since_by_agent = self._since_by_agent
        here, here_by_agent = self._queue.waiting, {agent_id: self._queue.waiting_of(agent_id) for agent_id in agents}
        self._since, self._since_by_agent = 0, {}
        try:
            self.seen = await self._claims.look(
                tuple(self._config.pools), agents, limits.queue_max + 1, limits.queue_max_per_agent + 1
            )
        except BaseException:
            # Still to be counted, besides what has come in meanwhile.
            for agent_id, count in since_by_agent.items():
                self.moved(agent_id, count)
            raise
        self._elsewhere = max(0, self.seen.waiting - here)
        self._elsewhere_by_agent = {
            agent_id: max(0, count - here_by_agent[agent_id]) for agent_id, count in self.seen.by_agent.items()
        }
        return self.seen
