"""`growth`: what submitting and claiming a task costs when many wait, beside what it costs when few do.

- *Submit* (admit, add, and the position that is told) and *claim* (take and finish) in the queue itself, with 100 tasks
  of 10 agents and with up to 1,000,000 of 10,000, in turns, for tasks spread over few and many tabs, on none, all on
  one busy tab, and with most tabs busy. The figures are ratios of medians.
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
from bench.rig.crowded_queue import SHAPES, CrowdedQueue, Shape
from bench.rig.instant import agent, as_in_the_server, instant_broker
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


def run() -> dict[str, Figure]:
    return uvloop.run(_durable_figures()) | _restart_figures()


def run_long() -> dict[str, Figure]:
    return _queue_figures(LARGE)


def run_short() -> dict[str, Figure]:
    return _queue_figures(MIDDLE)


# --- The queue itself ---------------------------------------------------------------------------------------------


def _queue_figures(large: tuple[int, int]) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for shape in SHAPES:
        figures |= _shape_figures(shape, large)
        # A million tasks are enough for one machine.
        gc.collect()
    return figures


def _shape_figures(shape: Shape, large: tuple[int, int]) -> dict[str, Figure]:
    few, many = CrowdedQueue(shape, *SMALL), CrowdedQueue(shape, *large)
    with as_in_the_server():
        # Not counted: caches fill.
        for queue in (few, many):
            queue.go_on(STEPS)
            for costs in (queue.costs.submit, queue.costs.position, queue.costs.claim):
                costs.clear()
        for _ in range(ROUNDS):
            few.go_on(STEPS)
            many.go_on(STEPS)
    return {
        f"submit_{shape.name}": _grown(few.costs.submit, many.costs.submit, BAR_GROWTH),
        f"position_{shape.name}": _grown(few.costs.position, many.costs.position, None),
        f"claim_{shape.name}": _grown(few.costs.claim, many.costs.claim, BAR_GROWTH),
    }


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
