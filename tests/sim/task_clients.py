"""Agents that have tasks in a simulated history.

They submit one by one and in batches, on tabs, on sessions and on neither, look, wait, list, cancel at any moment, and
ask again under the same key when they heard nothing. What they ask for and hear is told to `task_rules`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from tabherd import errors, wire

from .clients import AGENTS, ConnectionLost, caller_of
from .script import Deed
from .webhook_rules import CALLBACK_URL

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
    # Somebody wants to hear of its end.
    has_callback: bool = False

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
            "callback_url": CALLBACK_URL if self.has_callback else None,
        }


def parse(expression: str) -> tuple[str, int]:
    """The label and the step."""
    _, _, label, step = expression.split("|")[:4]
    return label, int(step)


class TaskClients:
    """Whoever submits tasks."""

    def __init__(self, world: World) -> None:
        self._world = world

    def start(self) -> None:
        chance = self._world.script.chance("task clients")
        for number in range(chance.choice((0, 0, 1, 1, 2))):
            self._world.start(self._client(chance.choice(AGENTS), f"submitter {number + 1}", chance.randrange(1, 4)))

    async def _client(self, agent: str, who: str, rounds: int) -> None:
        """One who has no session."""
        for _ in range(rounds):
            deed = self._world.script.deed(who)
            if deed is None:
                continue
            deed.begin()
            await asyncio.sleep(deed.random() * 0.8)
            await self._world.quietly(self._submit_some(deed, agent, None))
            if deed.random() < 0.3:
                await self._world.quietly(self._list(deed, agent))

    async def submit_on(self, deed: Deed, agent: str, view: wire.SessionView) -> None:
        """Tasks for a session that the agent has, between its own commands."""
        await asyncio.sleep(deed.random() * 0.02)
        await self._submit_some(deed, agent, view)

    # --- Submitting -----------------------------------------------------------------------------------------

    def _ask(self, deed: Deed, agent: str, view: wire.SessionView | None) -> Asked:
        world = self._world
        deadline_ms, is_idempotent = deed.choice(DEADLINES_MS), deed.random() < 0.35
        asked = Asked(
            label=world.mint("task"),
            agent=agent,
            steps=deed.choice((1, 1, 1, 2, 3)),
            priority=deed.choice((-1, 0, 0, 0, 1, 3)),
            deadline_at=None if deadline_ms is None else world.clock_ms() + deadline_ms,
            is_idempotent=is_idempotent,
            has_key=deed.random() < 0.3,
            # Those that may be repeated more often, and for as long as can be: they are there to be interrupted.
            hangs=deed.random() < (0.3 if is_idempotent else 0.1),
            has_callback=deed.random() < 0.3,
        )
        if asked.hangs and is_idempotent:
            asked.deadline_at = None
        if view is not None and deed.random() < 0.9:
            if deed.random() < 0.5:
                asked.tab_id = view.tabs[0].tab_id
            else:
                asked.session_id = view.session_id
        world.task_rules.ask(asked)
        return asked

    async def _submit_some(self, deed: Deed, agent: str, view: wire.SessionView | None) -> None:
        if deed.random() < 0.3:
            most = 4 if deed.random() < 0.8 else 10
            batch = [self._ask(deed, agent, view) for _ in range(deed.randrange(2, most))]
            await self._submit_batch(agent, batch)
            if deed.random() < 0.5:
                await self._follow(deed, deed.choice(batch))
            return
        asked = self._ask(deed, agent, view)
        if asked.has_key and deed.random() < 0.3:
            # Twice in the same moment, as a client with an impatient proxy does.
            await asyncio.gather(self._submit(deed, asked), self._submit(deed, asked))
        else:
            await self._submit(deed, asked)
        await self._follow(deed, asked)

    async def _submit(self, deed: Deed, asked: Asked) -> None:
        world, caller = self._world, caller_of(asked.agent, 0)
        request = wire.SubmitTask(**asked.fields)
        leaves_after = deed.random() * 0.008 if deed.random() < 0.25 else None
        world.tell(f"{asked.agent} submits {asked.label}")
        try:
            answer = await world.call(
                "submit task", lambda broker: broker.tasking.verbs.submit(caller, request), leaves_after
            )
        except errors.QueueFull as error:
            world.task_rules.rejected(asked, str(error.details["taskId"]))
        except (errors.TabherdError, ConnectionLost, asyncio.CancelledError) as error:
            world.tell(f"{asked.label} of {asked.agent} is not acknowledged: {error!r}")
        else:
            world.task_rules.acknowledged(asked, answer.task_id)

    async def _submit_batch(self, agent: str, batch: list[Asked]) -> None:
        world, caller = self._world, caller_of(agent, 0)
        request = wire.SubmitBatch(tasks=[wire.TaskFields(**asked.fields) for asked in batch])
        world.tell(f"{agent} submits {batch[0].label} to {batch[-1].label} at once")
        try:
            answer = await world.call("submit batch", lambda broker: broker.tasking.verbs.submit_batch(caller, request))
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

    async def _follow(self, deed: Deed, asked: Asked) -> None:
        """Whoever submitted it goes on with something about it."""
        world = self._world
        await asyncio.sleep(deed.choice((0.0, 0.005, 0.03, 0.3)) * deed.random())
        if asked.has_key and deed.random() < 0.6:
            await self._submit(deed, asked)
        task_id = world.task_rules.id_of(asked)
        if task_id is None:
            return
        if deed.random() < 0.4:
            await self._look(deed, asked, task_id, 0)
        if deed.random() < 0.35:
            await self._cancel(deed, asked, task_id)
        if deed.random() < 0.4:
            await self._look(deed, asked, task_id, deed.choice((20, 500, 5_000)))

    async def _look(self, deed: Deed, asked: Asked, task_id: str, wait_ms: int) -> None:
        world, caller = self._world, caller_of(asked.agent, 0)
        leaves_after = chance_s if (chance_s := deed.random()) < 0.1 else None
        try:
            view = await world.call(
                "look at task", lambda broker: broker.tasking.verbs.get(caller, task_id, wait_ms), leaves_after
            )
        except asyncio.CancelledError:
            return
        world.task_rules.told(task_id, view.state, f"{asked.label}, looked at for {wait_ms} ms")

    async def _cancel(self, deed: Deed, asked: Asked, task_id: str) -> None:
        world, caller = self._world, caller_of(asked.agent, 0)
        await asyncio.sleep(deed.random() * deed.choice((0.01, 0.05, 0.5)))
        world.tell(f"{asked.label} is to be cancelled")
        try:
            view = await world.call("cancel task", lambda broker: broker.tasking.verbs.cancel(caller, task_id))
        except errors.StateConflict as error:
            world.task_rules.told(task_id, str(error.details["state"]), f"{asked.label}, too late to be cancelled")
        else:
            world.task_rules.told(task_id, view.state, f"{asked.label}, cancelled")

    async def _list(self, deed: Deed, agent: str) -> None:
        """All pages, a few at a time."""
        world, caller, cursor, seen = self._world, caller_of(agent, 0), "", set[str]()
        state = deed.choice((None, None, "queued", "running", "done", "failed"))
        for _ in range(20):
            page = await world.call(
                "list tasks",
                lambda broker: broker.tasking.verbs.list(caller, state=state, limit=3, cursor=cursor),  # noqa: B023
            )
            for view in page.tasks:
                if view.task_id in seen or view.agent_id != agent or state not in (None, view.state):
                    world.violate(f"{view.task_id} of {view.agent_id} is in {agent}'s list of {state} tasks")
                seen.add(view.task_id)
                world.task_rules.told(view.task_id, view.state, "listed")
            if page.next_cursor is None:
                return
            cursor = page.next_cursor
