"""What a task is told about its standing, and who waits for whom, against what really happens, on virtual time.

Every task takes exactly `TASK_MS` here, so what was told can be held against the real starts: a position is off by no
more than there are workers, and an ETA by no more than two tasks' time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

from tests.broker.house import ADMIN, House, agent, in_house
from tests.broker.tasking import ended, submit, with_scheduler

from tabherd import wire
from tabherd.actions.progress import Progress
from tabherd.broker.caller import Caller
from tabherd.core.fairness import jain_index

TASK_MS = 1_000
WORKERS = 4
TABS_EACH = 6


class Starts:
    """When the tasks of a house were started, by their labels; each takes as long as every other."""

    def __init__(self, house: House) -> None:
        self.at_ms: dict[str, int] = {}
        self._house = house
        house.broker.commands._performing._perform = self._perform  # type: ignore[assignment]

    async def _perform(self, page: Any, action: wire.AnyAction, progress: Progress) -> str:
        assert isinstance(action, wire.Evaluate)
        self.at_ms[action.expression] = self._house.now
        progress.acts()
        await asyncio.sleep(TASK_MS / 1000)
        return action.expression


async def tabs_of(house: House, caller: Caller, count: int = TABS_EACH) -> list[str]:
    """Tabs enough that none is busy when its agent's turn comes."""
    return [(await house.open(caller, keep_alive=True)).tabs[0].tab_id for _ in range(count)]


def reconfigure(house: House, **scheduler: Any) -> None:
    settings = {"workers": WORKERS, "max_inflight_per_agent": WORKERS, "deadline_ms": 86_400_000, **scheduler}
    house.broker.tasking.reconfigure(with_scheduler(house, **settings))


@in_house(sessions_per_browser=100)
async def test_positions_and_etas_are_what_happens(house: House) -> None:
    reconfigure(house)
    starts, chance = Starts(house), Random(7)
    agents = [agent(name) for name in ("ada", "bob", "cyd", "dan", "eve")]
    tabs = {caller.agent_id: await tabs_of(house, caller) for caller in agents}
    # A few ends teach the server how long a task takes.
    for number in range(8):
        caller = agents[number % len(agents)]
        await ended(house, await submit(house, f"first-{number}", caller, tab_id=tabs[caller.agent_id][0]))
    labels: dict[str, str] = {}
    for number in range(60):
        caller, label = chance.choice(agents), f"task-{number}"
        fields = {"tab_id": tabs[caller.agent_id][number % TABS_EACH], "priority": chance.choice((0, 0, 1, -1))}
        labels[await submit(house, label, caller, **fields)] = label
    asked_ms = house.now
    views = {task_id: await house.broker.tasking.verbs.get(ADMIN, task_id) for task_id in labels}
    told = {task_id: view for task_id, view in views.items() if view.state == "queued"}
    assert len(told) > 50
    await ended(house, *labels)

    order = sorted(told, key=lambda task_id: starts.at_ms[labels[task_id]])
    for place, task_id in enumerate(order, 1):
        view, began_ms = told[task_id], starts.at_ms[labels[task_id]]
        assert view.position is not None
        assert view.eta_ms is not None
        assert abs(view.position - place) <= WORKERS, (labels[task_id], view.position, place)
        assert abs(view.eta_ms - (began_ms - asked_ms)) <= 2 * TASK_MS, (labels[task_id], view.eta_ms, began_ms)


@in_house(sessions_per_browser=100)
async def test_a_position_is_told_at_submission_and_gets_better_until_the_task_starts(house: House) -> None:
    reconfigure(house, workers=1)
    Starts(house)
    ada = agent("ada")
    (tab_id,) = await tabs_of(house, ada, 1)
    submitted = []
    for number in range(5):
        request = wire.SubmitTask(action="evaluate", params={"expression": f"{number}"}, tab_id=tab_id)
        submitted.append(await house.broker.tasking.verbs.submit(ada, request))
    # The first is started at once, and counts no more.
    assert [task.position for task in submitted[1:]] == [1, 2, 3, 4]
    last = submitted[-1].task_id
    seen = []
    for _ in range(5):
        await asyncio.sleep(TASK_MS / 1000)
        seen.append((await house.broker.tasking.verbs.get(ada, last)).position)
    assert seen == sorted(seen, key=lambda position: -(position or 0))
    assert seen[-1] is None


@in_house(sessions_per_browser=100)
async def test_a_flood_of_one_agent_delays_the_only_task_of_another_by_one_tasks_time_at_the_most(house: House) -> None:
    reconfigure(house, queue_max_per_agent=5_000)
    starts = Starts(house)
    greedy, ada = agent("greedy"), agent("ada")
    flooded = await tabs_of(house, greedy, WORKERS)
    (own,) = await tabs_of(house, ada, 1)
    for number in range(5_000):
        await submit(house, f"flood-{number}", greedy, tab_id=flooded[number % WORKERS])
    await house.until(lambda: len(starts.at_ms) >= WORKERS)
    asked_ms = house.now
    await ended(house, await submit(house, "only", ada, tab_id=own))
    assert starts.at_ms["only"] - asked_ms <= TASK_MS
    assert len(starts.at_ms) < 5_000, "the flood was still there"


@in_house(sessions_per_browser=100)
async def test_equal_demand_is_served_equally(house: House) -> None:
    """Ten agents that each ask for more than there is, with as many tabs as they like."""
    reconfigure(house, workers=7)
    starts = Starts(house)
    agents = [agent(f"agent-{number}") for number in range(10)]
    for caller in agents:
        tabs = await tabs_of(house, caller, 3)
        for number in range(60):
            await submit(house, f"{caller.agent_id}/{number}", caller, tab_id=tabs[number % 3])
    began_ms = house.now
    await house.until(lambda: house.now >= began_ms + 40 * TASK_MS)
    served = Counter(label.partition("/")[0] for label in starts.at_ms)
    assert sum(served.values()) < 10 * 60, "everybody still had demand"
    assert jain_index([served[caller.agent_id] for caller in agents]) >= 0.98
