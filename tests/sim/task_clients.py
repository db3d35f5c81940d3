"""Agents that have tasks in a simulated history, and an operator who changes the limits under them.

They submit one by one and in batches, on tabs, on sessions and on neither, look, wait, list, cancel at any moment, and
ask again under the same key when they heard nothing. What they ask for and hear is told to `task_rules`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from tabherd import errors, wire
from tabherd.broker.broker import Broker

from .clients import AGENTS, ConnectionLost, caller_of

if TYPE_CHECKING:
    from .world import World

# Tells what a task does from what a direct command does.
_TASK = "task|"
# How long a task may take; None: what the settings say.
DEADLINES_MS = (150, 400, 1_500, 4_000, 4_000, None)


def is_task(expression: str) -> bool:
    """Whether it is a task that acts on the page."""
    return expression.startswith(_TASK)


class Asked(msgspec.Struct, kw_only=True):
    """What somebody wanted to be done."""

    label: str
    agent: str
    # Where; both empty: wherever there is room.
    tab_id: str = ""
    session_id: str = ""
    steps: int = 1
    priority: int = 0
    deadline_at: int | None = None
    is_idempotent: bool = False
    has_key: bool = False
    # It never ends by itself.
    hangs: bool = False

    def expression(self, step: int) -> str:
        return f"{_TASK}{self.agent}|{self.label}|{step}" + ("|hang" if self.hangs and step == self.steps - 1 else "")

    @property
    def fields(self) -> dict[str, Any]:
        """As it is submitted."""
        what: dict[str, Any] = (
            {"action": "evaluate", "params": {"expression": self.expression(0)}}
            if self.steps == 1
            else {"steps": [wire.Evaluate(expression=self.expression(step)) for step in range(self.steps)]}
        )
        return {
            **what,
            "tab_id": self.tab_id or None,
            "session_id": self.session_id or None,
            "priority": self.priority,
            "deadline": self.deadline_at,
            "idempotency_key": self.label if self.has_key else None,
            "idempotent": self.is_idempotent,
        }


def parse(expression: str) -> tuple[str, int]:
    """The label and the step."""
    _, _, label, step = expression.split("|")[:4]
    return label, int(step)


class TaskClients:
    """Whoever submits tasks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance

    def start(self) -> None:
        for agent in AGENTS:
            if self._chance.random() < 0.7:
                self._world.start(self._client(agent))
        self._world.start(self._operator())

    async def _client(self, agent: str) -> None:
        """One who has no session."""
        for _ in range(self._chance.randrange(1, 4)):
            await asyncio.sleep(self._chance.random() * 1.2)
            await self._world.quietly(self._submit_some(agent, None))
            if self._chance.random() < 0.3:
                await self._world.quietly(self._list(agent))

    async def submit_on(self, agent: str, view: wire.SessionView) -> None:
        """Tasks for a session that the agent has, between its own commands."""
        await asyncio.sleep(self._chance.random() * 0.02)
        await self._submit_some(agent, view)

    # --- Submitting -----------------------------------------------------------------------------------------

    def _ask(self, agent: str, view: wire.SessionView | None) -> Asked:
        chance, world = self._chance, self._world
        deadline_ms, is_idempotent = chance.choice(DEADLINES_MS), chance.random() < 0.35
        asked = Asked(
            label=world.mint("task"),
            agent=agent,
            steps=chance.choice((1, 1, 1, 2, 3)),
            priority=chance.choice((-1, 0, 0, 0, 1, 3)),
            deadline_at=None if deadline_ms is None else world.loop.clock_ms() + deadline_ms,
            is_idempotent=is_idempotent,
            has_key=chance.random() < 0.3,
            # Those that may be repeated more often, and for as long as can be: they are there to be interrupted.
            hangs=chance.random() < (0.3 if is_idempotent else 0.1),
        )
        if asked.hangs and is_idempotent:
            asked.deadline_at = None
        if view is not None and chance.random() < 0.9:
            if chance.random() < 0.5:
                asked.tab_id = view.tabs[0].tab_id
            else:
                asked.session_id = view.session_id
        world.task_rules.ask(asked)
        return asked

    async def _submit_some(self, agent: str, view: wire.SessionView | None) -> None:
        if self._chance.random() < 0.3:
            most = 5 if self._chance.random() < 0.8 else 12
            batch = [self._ask(agent, view) for _ in range(self._chance.randrange(2, most))]
            await self._submit_batch(agent, batch)
            if self._chance.random() < 0.5:
                await self._follow(self._chance.choice(batch))
            return
        asked = self._ask(agent, view)
        if asked.has_key and self._chance.random() < 0.3:
            # Twice in the same moment, as a client with an impatient proxy does.
            await asyncio.gather(self._submit(asked), self._submit(asked))
        else:
            await self._submit(asked)
        await self._follow(asked)

    async def _submit(self, asked: Asked) -> None:
        world, caller = self._world, caller_of(asked.agent, 0)
        request = wire.SubmitTask(**asked.fields)
        leaves_after = self._chance.random() * 0.008 if self._chance.random() < 0.25 else None
        try:
            answer = await world.call(lambda broker: broker.tasking.verbs.submit(caller, request), leaves_after)
        except errors.QueueFull as error:
            world.task_rules.rejected(asked, str(error.details["taskId"]))
        except (errors.TabherdError, ConnectionLost, asyncio.CancelledError) as error:
            world.tell(f"{asked.label} of {asked.agent} is not acknowledged: {error!r}")
        else:
            world.task_rules.acknowledged(asked, answer.task_id)

    async def _submit_batch(self, agent: str, batch: list[Asked]) -> None:
        world, caller = self._world, caller_of(agent, 0)
        request = wire.SubmitBatch(tasks=[wire.TaskFields(**asked.fields) for asked in batch])
        try:
            answer = await world.call(lambda broker: broker.tasking.verbs.submit_batch(caller, request))
        except (errors.TabherdError, ConnectionLost) as error:
            world.tell(f"a batch from {batch[0].label} on is not acknowledged: {error!r}")
            return
        for asked, item in zip(batch, answer.tasks, strict=True):
            if item.error is None:
                world.task_rules.acknowledged(asked, item.task_id)
            elif item.task_id:
                world.task_rules.rejected(asked, item.task_id)
            else:
                world.tell(f"{asked.label} of {agent} is refused: {item.error['code']}")

    # --- Afterwards -----------------------------------------------------------------------------------------

    async def _follow(self, asked: Asked) -> None:
        """Whoever submitted it goes on with something about it."""
        chance, world = self._chance, self._world
        await asyncio.sleep(chance.choice((0.0, 0.005, 0.03, 0.3)) * chance.random())
        if asked.has_key and chance.random() < 0.6:
            await self._submit(asked)
        task_id = world.task_rules.id_of(asked)
        if task_id is None:
            return
        if chance.random() < 0.4:
            await self._look(asked, task_id, 0)
        if chance.random() < 0.35:
            await self._cancel(asked, task_id)
        if chance.random() < 0.4:
            await self._look(asked, task_id, chance.choice((20, 500, 5_000)))

    async def _look(self, asked: Asked, task_id: str, wait_ms: int) -> None:
        world, caller = self._world, caller_of(asked.agent, 0)
        leaves_after = chance_s if (chance_s := self._chance.random()) < 0.1 else None
        try:
            view = await world.call(lambda broker: broker.tasking.verbs.get(caller, task_id, wait_ms), leaves_after)
        except asyncio.CancelledError:
            return
        world.task_rules.told(task_id, view.state, f"{asked.label}, looked at for {wait_ms} ms")

    async def _cancel(self, asked: Asked, task_id: str) -> None:
        world, caller = self._world, caller_of(asked.agent, 0)
        await asyncio.sleep(self._chance.random() * self._chance.choice((0.01, 0.05, 0.5)))
        world.tell(f"{asked.label} is to be cancelled")
        try:
            view = await world.call(lambda broker: broker.tasking.verbs.cancel(caller, task_id))
        except errors.StateConflict as error:
            world.task_rules.told(task_id, str(error.details["state"]), f"{asked.label}, too late to be cancelled")
        else:
            world.task_rules.told(task_id, view.state, f"{asked.label}, cancelled")

    async def _list(self, agent: str) -> None:
        """All pages, a few at a time."""
        world, caller, cursor, seen = self._world, caller_of(agent, 0), "", set[str]()
        state = self._chance.choice((None, None, "queued", "running", "done", "failed"))
        for _ in range(20):
            page = await world.call(
                lambda broker: broker.tasking.verbs.list(caller, state=state, limit=3, cursor=cursor)  # noqa: B023
            )
            for view in page.tasks:
                if view.task_id in seen or view.agent_id != agent or state not in (None, view.state):
                    world.violate(f"{view.task_id} of {view.agent_id} is in {agent}'s list of {state} tasks")
                seen.add(view.task_id)
                world.task_rules.told(view.task_id, view.state, "listed")
            if page.next_cursor is None:
                return
            cursor = page.next_cursor

    # --- The operator ---------------------------------------------------------------------------------------

    async def _operator(self) -> None:
        """Changes the limits of the scheduler now and then; in the end they are as at the start."""
        world, chance, usual = self._world, self._chance, self._world.config
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(chance.random() * 1.5)
            limits = msgspec.structs.replace(
                usual.scheduler,
                enabled=chance.random() < 0.7,
                workers=chance.choice((1, 2, 3, 5)),
                max_inflight_per_agent=chance.choice((1, 2, 4)),
                queue_max=chance.choice((1, 3, 20)),
                queue_max_per_agent=chance.choice((1, 4, 10)),
                priority_aging_ms=chance.choice((0, 100, 500)),
            )
            await world.quietly(self._set(msgspec.structs.replace(usual, scheduler=limits)))
        await asyncio.sleep(chance.random())
        await world.quietly(self._set(usual))

    async def _set(self, config: Any) -> None:
        world = self._world
        # In the file first: a broker that is killed meanwhile starts with it.
        world.config = config

        async def apply(broker: Broker) -> None:
            broker.settings.apply(config)

        world.tell(f"scheduler: {config.scheduler}")
        await world.call(apply)
