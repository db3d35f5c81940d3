"""`growth`: what submitting and claiming a task costs when many wait, beside what it costs when few do.

- *Submit* (admit, add, and the position that is told) and *claim* (take and finish) in the queue itself, with 100 tasks
  of 10 agents and with up to 1,000,000 of 10,000, in turns, for tasks spread over few and many tabs, on none, all on
  one busy tab, and with most tabs busy. The figures are ratios of medians.
- The *curve*: the same for one shape at several sizes in between.
- *Durable* submissions through the broker onto SQLite, one after the other, with 100 and with 100,000 waiting.
- *Restart*: a real server on a store in which 100,000 tasks wait, until it is ready and has begun to run them.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import uvloop

from bench import Figure
from bench.rig.backlog import fill
from bench.rig.caller import now_ms
from bench.rig.crowded_queue import SHAPES, Costs, CrowdedQueue, Shape
from bench.rig.instant import agent, as_in_the_server, instant_broker
from bench.rig.plot import Plot, points
from bench.rig.server import Server, imports_s, running
from tabherd import wire
from tabherd.actions.progress import Progress
from tabherd.browsers.port import TabPort
from tabherd.core.model import Node
from tabherd.edge.server import STORE_FILE
from tabherd.store.sqlite import SqliteStore

BAR_GROWTH: Final = 1.5
# Tasks and agents.
SMALL: Final = (100, 10)
MIDDLE: Final = (100_000, 1_000)
LARGE: Final = (1_000_000, 10_000)
# For the curve, and whose: tasks and agents, tasks spread over 20 tabs.
CURVE: Final = (SMALL, (1_000, 100), (10_000, 1_000), MIDDLE)
CURVE_SHAPE: Final = next(shape for shape in SHAPES if shape.name == "20_tabs")
ROUNDS: Final = 20
STEPS: Final = 300

DURABLE_ROUNDS: Final = 10
DURABLE_STEPS: Final = 50
RESTARTS: Final = 3
RESTART_TASKS: Final = 100_000
RESTART_AGENTS: Final = 1_000
BAR_RESTART_S: Final = 3.0
# Until a server that does not begin to run tasks is given up.
DISPATCH_LIMIT_MS: Final = 60_000.0


def run() -> dict[str, Figure | Plot]:
    return {**uvloop.run(_durable_figures()), **_restart_figures()}


def run_long() -> dict[str, Figure | Plot]:
    return {**_queue_figures(LARGE), "growth_cost": _curve((*CURVE, LARGE))}


def run_short() -> dict[str, Figure | Plot]:
    return {**_queue_figures(MIDDLE), "growth_cost": _curve(CURVE)}


# --- The queue itself ---------------------------------------------------------------------------------------------


def _queue_figures(large: tuple[int, int]) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for shape in SHAPES:
        figures |= _shape_figures(shape, large)
        # A million tasks are enough for one machine.
        gc.collect()
    return figures


def _shape_figures(shape: Shape, large: tuple[int, int]) -> dict[str, Figure]:
    few, many = _in_turns(shape, (SMALL, large))
    return {
        f"submit_{shape.name}": _grown(few.submit, many.submit, BAR_GROWTH),
        f"position_{shape.name}": _grown(few.position, many.position, None),
        f"claim_{shape.name}": _grown(few.claim, many.claim, BAR_GROWTH),
    }


def _curve(sizes: Sequence[tuple[int, int]]) -> Plot:
    costs = _in_turns(CURVE_SHAPE, sizes)
    tasks = [count for count, _ in sizes]

    def line(samples: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
        return points(list(zip(tasks, (statistics.median(each) * 1e6 for each in samples), strict=True)))

    return Plot(
        title="What a task costs in the queue, by how many wait",
        x="tasks that wait, of a tenth (from 100,000 on, a hundredth) as many agents",
        y="us (median)",
        series={
            "submit": line([each.submit for each in costs]),
            "its position": line([each.position for each in costs]),
            "claim": line([each.claim for each in costs]),
        },
        is_log_x=True,
    )


def _in_turns(shape: Shape, sizes: Sequence[tuple[int, int]]) -> list[Costs]:
    """What each step costs in a queue of each size."""
    queues = [CrowdedQueue(shape, *size) for size in sizes]
    with as_in_the_server():
        # Not counted: caches fill.
        for queue in queues:
            queue.go_on(STEPS)
            for costs in (queue.costs.submit, queue.costs.position, queue.costs.claim):
                costs.clear()
        for _ in range(ROUNDS):
            for queue in queues:
                queue.go_on(STEPS)
    return [queue.costs for queue in queues]


def _grown(few_s: Sequence[float], many_s: Sequence[float], at_most: float | None, scale: float = 1e6) -> Figure:
    """How many times as much, with what it was."""
    unit = "us" if scale == 1e6 else "ms"
    before, after = statistics.median(few_s) * scale, statistics.median(many_s) * scale
    others = {f"{unit} with few": before, f"{unit} with many": after}
    return Figure(ours=after / before, unit="ratio", others=others, at_most=at_most)


# --- Through the broker, onto the disk ----------------------------------------------------------------------------


async def _durable_figures() -> dict[str, Figure]:
    """Nothing that is claimed ever ends, so what was submitted goes on waiting."""
    samples: dict[int, list[float]] = {}
    counts = ((100, 10), (RESTART_TASKS, RESTART_AGENTS))
    with tempfile.TemporaryDirectory(prefix="tabherd-bench-") as directory, as_in_the_server():
        async with AsyncExitStack() as stack:
            brokers = []
            for tasks, agents in counts:
                store = SqliteStore(Path(directory) / f"{tasks}.db")
                stack.push_async_callback(store.close)
                await fill(store, "nod_bench", tasks, agents)
                scheduler = {"queue_max": 10 * RESTART_TASKS, "queue_max_per_agent": 10 * RESTART_TASKS}
                broker = await stack.enter_async_context(instant_broker(store, _for_ever, scheduler=scheduler))
                brokers.append((tasks, agents, broker))
                samples[tasks] = []
            for turn in range(1 + DURABLE_ROUNDS):
                for tasks, agents, broker in brokers:
                    for number in range(DURABLE_STEPS):
                        caller = agent(f"agent-{number % agents}")
                        began = now_ms()
                        await broker.tasking.verbs.submit(caller, _task())
                        if turn:
                            samples[tasks].append((now_ms() - began) / 1000)
    few, many = samples.values()
    return {f"durable_submit_{RESTART_TASKS}_queued": _grown(few, many, BAR_GROWTH, scale=1e3)}


async def _for_ever(page: TabPort, action: wire.AnyAction, progress: Progress) -> Any:
    await asyncio.get_running_loop().create_future()


def _task() -> wire.SubmitTask:
    return wire.SubmitTask(action="evaluate", params={"expression": "1 + 1"}, deadline=1 << 50)


# --- Starting again -----------------------------------------------------------------------------------------------


def _restart_figures() -> dict[str, Figure]:
    """From the start of the process."""
    with running() as server:
        server.stop()
        empty = [_restart(server, 0)[0] for _ in range(RESTARTS)]
        asyncio.run(_fill(server.state / STORE_FILE))
        started = [_restart(server, 1) for _ in range(RESTARTS)]
    others = {"empty store": empty, "starting Python and importing": [imports_s() for _ in range(RESTARTS)]}
    dispatching = [dispatching_s for _, dispatching_s in started]
    return {
        f"restart_{RESTART_TASKS}_ready": Figure.median_of([ready_s for ready_s, _ in started], "s", others=others),
        f"restart_{RESTART_TASKS}_dispatching": Figure.median_of(dispatching, "s", at_most=BAR_RESTART_S),
    }


def _restart(server: Server, running_min: int) -> tuple[float, float]:
    """Seconds until it is ready, and until so many tasks run; it is killed then, with its tasks on disk."""
    began = now_ms()
    server.start()
    ready_s = (now_ms() - began) / 1000
    with server.caller() as caller:
        while caller.call("GET", "/scheduler/stats")["metrics"]["dispatchTotal"] < running_min:
            if now_ms() - began > DISPATCH_LIMIT_MS:
                raise RuntimeError("no task was run")
    dispatching_s = (now_ms() - began) / 1000
    server.stop()
    return ready_s, dispatching_s


async def _fill(path: Path) -> None:
    store = SqliteStore(path)
    try:
        (node,) = await store.select(Node, {})
        await fill(store, node.id, RESTART_TASKS, RESTART_AGENTS)
    finally:
        await store.close()
