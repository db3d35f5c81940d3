"""Several nodes that share tasks on one store and one virtual clock.

What every scene keeps, without saying so: a task that was sent to a page says so on disk at that moment, and is of the
node that sends it; none that is not idempotent is sent twice, nor after it was over; at the end every one is over.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
from tests.broker.claim_twin import ClaimTwin, Turns
from tests.broker.herd import Herd, Member, run_in_herd
from tests.broker.house import ADA, ADMIN, Play
from tests.sim.fakes import SimTab, sim_perform

from tabherd import config, wire
from tabherd.actions.progress import Progress
from tabherd.broker.broker import Broker
from tabherd.broker.caller import Caller
from tabherd.cluster.elsewhere import Elsewhere
from tabherd.core.lifecycle import TASK, TaskState, is_terminal
from tabherd.core.model import ArchivedTask, Task

# How often a request is passed on before somebody must have answered it.
HOPS_MAX = 50


class TaskHerd(Herd):
    """The nodes, and what their tasks have done."""

    def __init__(self, *, scheduler: dict[str, Any] | None = None, **settings: Any) -> None:
        self._turns: Turns | None = None
        # Labels of tasks in the order in which they were sent to a page, and where.
        self.sent: list[str] = []
        self.sent_by: list[str] = []
        # Labels of tasks that may end; those that end in "held" wait for that.
        self.finished: set[str] = set()
        # What must not happen, and did.
        self.violations: list[str] = []
        self.running: Counter[str] = Counter()
        self._scheduler = scheduler or {}
        # Of all lives.
        self._brokers: list[Broker] = []
        super().__init__(**settings)

    @property
    def turns(self) -> Turns:
        if self._turns is None:
            self._turns = Turns(self.disk)
        return self._turns

    def _add(self, number: int) -> Member:
        self.config = msgspec.structs.replace(self.config, scheduler=config.Scheduler(**self._scheduler))
        member = super()._add(number)
        self._brokers.append(member.broker)
        return member

    async def clear(self) -> None:
        for broker in self._brokers:
            # Those of the dead would go on with the next task when one is cleared away.
            broker.operations.is_stopping = True
        await super().clear()

    def claims_of(self, member: Member) -> ClaimTwin:
        member.claims = twin = ClaimTwin(self.turns, member.node, lambda: member.life.step(1.0))  # type: ignore[attr-defined]
        return twin

    async def perform(self, tab: SimTab, action: wire.AnyAction, progress: Progress) -> Any:  # type: ignore[override]
        if not isinstance(action, wire.Evaluate):
            return await sim_perform(tab, action, progress)
        label = action.expression
        agent, _, name = label.partition("/")
        self._check_sent(label)
        self.sent.append(label)
        progress.acts()
        self.running[agent] += 1
        try:
            if name.endswith("held"):
                while label not in self.finished:
                    await tab.browser._life.alive()
                    await asyncio.sleep(0.005)
            else:
                await asyncio.sleep(0.02)
        finally:
            self.running[agent] -= 1
        await tab.browser._life.alive()
        return label

    def _check_sent(self, label: str) -> None:
        (row,) = [row for row in self.rows() if row.request.find(f'"{label}"') >= 0]
        self.sent_by.append(row.node_id)
        if row.state is not TaskState.RUNNING:
            self.violations.append(f"{label} is sent, and on disk it is {row.state}")
        if label in self.sent and not row.is_idempotent:
            self.violations.append(f"{label} is sent twice")

    # --- Verbs ----------------------------------------------------------------------------------------------

    async def submit(self, at: Member, label: str, caller: Caller = ADA, **fields: Any) -> str:
        """A task that evaluates the label; its id. As a client does it, through the front door of that node."""
        request = wire.SubmitTask(
            action="evaluate", params={"expression": label}, **{"deadline": self.now + 600_000, **fields}
        )
        return (await self.ask(at, lambda verbs: verbs.submit(caller, request))).task_id

    async def get(self, at: Member, task_id: str, wait_ms: int = 0, caller: Caller = ADMIN) -> wire.TaskView:
        return await self.ask(at, lambda verbs: verbs.get(caller, task_id, wait_ms))

    async def ended(self, at: Member, *task_ids: str) -> list[wire.TaskView]:
        return [await self.get(at, task_id, 120_000) for task_id in task_ids]

    async def ask(self, at: Member, call: Callable[[Any], Any]) -> Any:
        """Passed on as often as it takes: a task may move while it is asked for."""
        for _ in range(HOPS_MAX):
            try:
                return await call(at.broker.tasking.verbs)
            except Elsewhere as elsewhere:
                at = self.members[elsewhere.node_id]
                await asyncio.sleep(self.delay_s)
        raise AssertionError("nobody has it")

    # --- What is there --------------------------------------------------------------------------------------

    def rows(self) -> list[Task]:
        return [*self.disk.rows(Task), *self.disk.rows(ArchivedTask)]

    def row(self, task_id: str) -> Task:
        return next(row for row in self.rows() if row.id == task_id)

    def states(self) -> Counter[str]:
        return Counter(str(row.state) for row in self.rows())

    def check(self) -> None:
        super().check()
        assert not self.violations, self.violations
        left = [row for row in self.rows() if not is_terminal(TASK, row.state)]
        assert not left, left
        for member in self.alive:
            scheduler = member.broker.tasking.scheduler
            assert scheduler.count_live == scheduler.queue.waiting == scheduler.queue.in_flight == 0


def in_task_herd(**settings: Any) -> Callable[[Play], Callable[..., None]]:
    """Make a test of a scene that is played by nodes with these settings; what else it takes are fixtures."""

    def as_test(play: Play) -> Callable[..., None]:
        def test(**fixtures: Any) -> None:
            run_in_task_herd(lambda herd: play(herd, **fixtures), **settings)

        test.__name__, test.__doc__, test.__module__ = play.__name__, play.__doc__, play.__module__
        _, *others = inspect.signature(play).parameters.values()
        test.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
        return test

    return as_test


def run_in_task_herd(play: Callable[[TaskHerd], Any], **settings: Any) -> None:
    run_in_herd(play, kind=TaskHerd, **settings)
