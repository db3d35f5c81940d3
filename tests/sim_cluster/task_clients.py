"""Agents that have tasks in a simulated cluster: submitted, looked at and cancelled at whichever node, alone and in
batches, on sessions of any node and on none.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from tests.sim.clients import AGENTS, caller_of
from tests.sim.webhook_rules import CALLBACK_URL

from tabherd import errors, wire
from tabherd.broker.broker import Broker
from tabherd.core.lifecycle import LeaseState
from tabherd.core.model import Session

from .chance import begin
from .front_door import Call, ConnectionLost

if TYPE_CHECKING:
    from .world import World

# How long a task may take from its submission on.
DEADLINES_MS = (400, 1_500, 4_000, 8_000)
# How many are submitted at once; the most are more than an agent may have waiting.
BATCHES = (1, 1, 1, 1, 1, 1, 1, 2, 2, 4, 4, 12)
# How many of a batch somebody looks after.
FOLLOWED_MAX = 4
# How often somebody is to be called at the end.
CALLBACK_RATE = 0.4
PATIENCE_S = 12.0
# What a client that heard nothing may hear.
UNHEARD = (errors.TabherdError, ConnectionLost, asyncio.CancelledError)


class Asked(msgspec.Struct, kw_only=True):
    """What somebody wanted to be done."""

    label: str
    agent: str
    fields: dict[str, Any]
    is_idempotent: bool
    has_key: bool


class TaskClients:
    """Whoever submits tasks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.choices

    def start(self) -> None:
        for agent in AGENTS:
            chance = self._world.script.chance(f"{agent}'s tasks")
            if chance.random() < 0.6:
                self._world.start(self._client(agent, chance.randrange(1, 5)))

    async def _client(self, agent: str, rounds: int) -> None:
        for _ in range(rounds):
            deed = self._world.script.deed(f"{agent}'s task")
            if deed is None:
                continue
            begin(deed)
            await asyncio.sleep(self._chance.random() * 4)
            batch = [self._ask(agent) for _ in range(self._chance.choice(BATCHES))]
            ids = await self._submit(batch) if len(batch) == 1 else await self._submit_batch(agent, batch)
            for task_id in ids[:FOLLOWED_MAX]:
                await self._world.quietly(self._follow(agent, task_id))

    async def submit_on(self, agent: str, **where: str) -> None:
        """A few on that tab or session, which run one after the other."""
        batch = [self._ask(agent) for _ in range(self._chance.choice((1, 2, 3)))]
        for asked in batch:
            asked.fields |= {"session_id": None, **where}
        await (self._submit(batch) if len(batch) == 1 else self._submit_batch(agent, batch))

    def _ask(self, agent: str) -> Asked:
        chance, world = self._chance, self._world
        label, is_idempotent, has_key = world.mint("task"), chance.random() < 0.4, chance.random() < 0.3
        does = "hang" if chance.random() < 0.15 else ""
        steps = ["|".join((agent, f"{label}.{n}", "-", "", "")) for n in range(2)]
        what: dict[str, Any] = (
            {"action": "evaluate", "params": {"expression": "|".join((agent, label, "-", "", does))}}
            if chance.random() < 0.8
            else {"steps": [wire.Evaluate(expression=step) for step in steps]}
        )
        own = [
            row.id
            for row in world.database.rows(Session).values()
            if row.agent_id == agent and row.state is LeaseState.ACTIVE
        ]
        fields = {
            **what,
            "session_id": chance.choice(own) if own and chance.random() < 0.4 else None,
            "deadline": world.loop.clock_ms() + chance.choice(DEADLINES_MS),
            "idempotency_key": label if has_key else None,
            "idempotent": is_idempotent,
            "priority": chance.choice((0, 0, 1)),
            "callback_url": CALLBACK_URL if chance.random() < CALLBACK_RATE else None,
        }
        asked = Asked(label=label, agent=agent, fields=fields, is_idempotent=is_idempotent, has_key=has_key)
        world.task_rules.ask(asked)
        return asked

    async def _submit(self, batch: list[Asked]) -> list[str]:
        """One task; again under the same key, if it has one and nothing was heard."""
        world, (asked,) = self._world, batch
        request = wire.SubmitTask(**asked.fields)

        async def submit(broker: Broker, _: str) -> wire.SubmittedTask:
            return await broker.tasking.verbs.submit(caller_of(asked.agent, 0), request)

        ids: list[str] = []
        for _ in range(2 if asked.has_key else 1):
            try:
                answer: wire.SubmittedTask = await world.call(Call("POST", submit), PATIENCE_S)
            except UNHEARD as error:
                world.tell(f"{asked.label} is not acknowledged: {error!r}")
            else:
                world.task_rules.acknowledged(asked, answer.task_id)
                ids = [answer.task_id]
        return ids

    async def _submit_batch(self, agent: str, batch: list[Asked]) -> list[str]:
        world = self._world
        request = wire.SubmitBatch(tasks=[wire.TaskFields(**asked.fields) for asked in batch])

        async def submit(broker: Broker, _: str) -> wire.SubmittedBatch:
            return await broker.tasking.verbs.submit_batch(caller_of(agent, 0), request)

        try:
            answer: wire.SubmittedBatch = await world.call(Call("POST", submit), PATIENCE_S)
        except UNHEARD as error:
            world.tell(f"a batch from {batch[0].label} on is not acknowledged: {error!r}")
            return []
        ids = []
        for asked, item in zip(batch, answer.tasks, strict=True):
            if item.error is None:
                world.task_rules.acknowledged(asked, item.task_id)
                ids.append(item.task_id)
        return ids

    async def _follow(self, agent: str, task_id: str) -> None:
        """Look at it, wait for it, or think better of it."""
        world, chance, caller = self._world, self._chance, caller_of(agent, 0)
        await asyncio.sleep(chance.random() * chance.choice((0.02, 0.5)))
        if chance.random() < 0.3:

            async def cancel(broker: Broker, _: str) -> wire.TaskView:
                return await broker.tasking.verbs.cancel(caller, task_id)

            view: wire.TaskView = await world.call(Call("POST", cancel), PATIENCE_S)
            world.task_rules.told(task_id, view.state)
        if chance.random() < 0.6:
            wait_ms = chance.choice((0, 500, 5_000))

            async def get(broker: Broker, _: str) -> wire.TaskView:
                return await broker.tasking.verbs.get(caller, task_id, wait_ms)

            view = await world.call(Call("GET", get), PATIENCE_S)
            world.task_rules.told(task_id, view.state)
