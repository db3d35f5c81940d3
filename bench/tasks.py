"""`tasks`: tasks per second from submission over HTTP until every one of them is done on disk.

- *no-op*: the real front door, scheduler and SQLite, with tasks that run nothing: what a queue of jobs costs that does
  not know what they do. Submitted in batches of 50, and one by one, from another process.
- *idle*: the same with the whole way of a command (turn, fence, marks, audit) to pages that do nothing: what a task
  costs the server. Beside it, the same actions as direct commands.
- *click*: real clicks on 8 real tabs, in batches, beside the same clicks as direct commands over HTTP on the same tabs,
  one after the other on each, which is the limit. After the last round every page must have counted every click.
"""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from bench import Figure
from bench.rig.caller import Caller
from bench.rig.idle_server import IdleServer, idle_server
from bench.rig.server import cpu_s, running
from bench.rig.site import DESK_PATH, small_page
from bench.rig.submitter import Order, Submitted, submit
from tabherd.edge.server import STORE_FILE

ROUNDS: Final = 3
BATCH: Final = 50
# Agents, each with tabs of its own.
AGENTS: Final = 4
TABS: Final = 20
BATCHED: Final = 20_000
SINGLE: Final = 8_000
COMMANDS: Final = 4_000
# Connections in all; a caller waits for each answer before it sends the next request.
BATCH_CONNECTIONS: Final = 8
SINGLE_CONNECTIONS: Final = 32
CLICK_TABS: Final = 8
CLICKS: Final = 1_600
DIRECT_CLICKS: Final = 800
CLICK_CONNECTIONS: Final = 4
NOOP: Final = {"action": "evaluate", "params": {"expression": "1 + 1"}}
NOOP_COMMAND: Final = {"kind": "evaluate", "expression": "1 + 1"}
CLICK: Final = {"action": "click", "selector": "#go"}
CLICK_COMMAND: Final = {"kind": "click", "selector": "#go"}

BAR_BATCHED_PER_S: Final = 5_000.0
BAR_SINGLE_PER_S: Final = 2_000.0
BAR_CLICKS_PER_S: Final = 300.0
# Until a benchmark that does not come to its end is given up.
DONE_LIMIT_S: Final = 100.0
POLL_S: Final = 0.005


class Target(Protocol):
    """A server that tasks are submitted to."""

    @property
    def url(self) -> str: ...

    @property
    def token(self) -> str: ...

    @property
    def pid(self) -> int: ...


class Tab(msgspec.Struct, frozen=True):
    """A tab, and whose it is."""

    id: str
    agent_id: str


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """So many tasks or commands, from the first request to the last end."""

    count: int
    seconds: float
    # Of the server, with all its threads.
    cpu_s: float
    submitted: Submitted

    @property
    def per_s(self) -> float:
        return self.count / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.count * 1e6

    @property
    def submitter_busy(self) -> float:
        """How much of a core its process needed."""
        return self.submitted.cpu_s / (self.submitted.ended_s - self.submitted.began_s)


def run() -> dict[str, Figure]:
    return _noop_figures() | _idle_figures() | _click_figures()


# --- No-ops -------------------------------------------------------------------------------------------------------


def _noop_figures() -> dict[str, Figure]:
    with idle_server(runs_commands=False) as server, server.caller() as caller:
        tabs = _open(caller, TABS)
        batched, single = _rounds(lambda share: (_batched(server, tabs, share), _single(server, tabs, share)))
    return {
        "noop_batched_per_s": _rate(batched, at_least=BAR_BATCHED_PER_S),
        "noop_batched_cpu": _cpu(batched),
        "noop_batch_answer_p50": _answers(batched),
        "noop_single_per_s": _rate(single, at_least=BAR_SINGLE_PER_S),
        "noop_single_cpu": _cpu(single),
        "noop_single_answer_p50": _answers(single),
        "noop_submitter_busy": Figure(
            ours=100 * max(run.submitter_busy for run in (*batched, *single)), unit="% of a core"
        ),
    }


def _idle_figures() -> dict[str, Figure]:
    with idle_server() as server, server.caller() as caller:
        tabs = _open(caller, TABS)
        batched, single, commands = _rounds(
            lambda share: (
                _batched(server, tabs, share),
                _single(server, tabs, share),
                _direct(server, _commands(tabs, NOOP_COMMAND), COMMANDS // share, len(tabs)),
            )
        )
    direct = {"direct commands": commands}
    return {
        "idle_batched_per_s": _rate(batched, direct),
        "idle_batched_cpu": _cpu(batched, direct),
        "idle_single_per_s": _rate(single, direct),
        "idle_single_cpu": _cpu(single, direct),
    }


def _rounds(measure: Callable[[int], tuple[Run, ...]]) -> list[list[Run]]:
    """What is measured, side by side, round after round; the first, a share of it, is for what is made at first use."""
    measure(4)
    return [list(samples) for samples in zip(*(measure(1) for _ in range(ROUNDS)), strict=True)]


def _batched(server: IdleServer, tabs: Sequence[Tab], share: int) -> Run:
    return _tasks(server, server.store, _batches(tabs, NOOP), BATCHED // share // BATCH, BATCH, BATCH_CONNECTIONS)


def _single(server: IdleServer, tabs: Sequence[Tab], share: int) -> Run:
    return _tasks(server, server.store, _singles(tabs, NOOP), SINGLE // share, 1, SINGLE_CONNECTIONS)


# --- Clicks -------------------------------------------------------------------------------------------------------


def _click_figures() -> dict[str, Figure]:
    settings: dict[str, Any] = {"scheduler__queue_max_per_agent": CLICKS, "scheduler__deadline_ms": 300_000}
    with small_page() as site, running(**settings) as server, server.caller() as caller:
        tabs = _open(caller, CLICK_TABS, url=site + DESK_PATH)
        store, clicked = server.state / STORE_FILE, 0

        def measure(share: int) -> tuple[Run, ...]:
            nonlocal clicked
            runs = (
                _tasks(server, store, _batches(tabs, CLICK), CLICKS // share // BATCH, BATCH, CLICK_CONNECTIONS),
                _direct(server, _commands(tabs, CLICK_COMMAND), DIRECT_CLICKS // share, len(tabs)),
            )
            clicked += sum(each.count for each in runs)
            return runs

        tasks, commands = _rounds(measure)
        counted = sum(caller.evaluate(tab.id, "window.clicks") for tab in tabs)
        assert counted == clicked, f"{counted} of {clicked} clicks arrived"
    direct = {"direct commands": commands}
    return {
        f"click_per_s_{CLICK_TABS}_tabs": _rate(tasks, direct, at_least=BAR_CLICKS_PER_S),
        "click_cpu": _cpu(tasks, direct),
        "click_to_direct": Figure(ours=_median(tasks) / _median(commands), unit="ratio"),
    }


# --- What is sent -------------------------------------------------------------------------------------------------


def _open(caller: Caller, count: int, **session: Any) -> list[Tab]:
    """Tabs of several agents."""
    agents = [f"agent-{number % AGENTS}" for number in range(count)]
    return [Tab(caller.open(agentId=agent, keepAlive=True, **session).tab_id, agent) for agent in agents]


def _batches(tabs: Sequence[Tab], task: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Each is one agent's, and spread over all tabs of that agent."""
    by_agent: dict[str, list[str]] = {}
    for tab in tabs:
        by_agent.setdefault(tab.agent_id, []).append(tab.id)
    return [
        ("/tasks/batch", {"agentId": agent, "tasks": [{"tabId": ids[n % len(ids)], **task} for n in range(BATCH)]})
        for agent, ids in by_agent.items()
    ]


def _singles(tabs: Sequence[Tab], task: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [("/tasks", {"agentId": tab.agent_id, "tabId": tab.id, **task}) for tab in tabs]


def _commands(tabs: Sequence[Tab], command: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Where two meet on a tab, the second waits."""
    return [(f"/tabs/{tab.id}/action", {"waitPolicy": "wait_with_timeout", **command}) for tab in tabs]


# --- Runs ---------------------------------------------------------------------------------------------------------


def _tasks(
    server: Target, store: Path, posts: list[tuple[str, Any]], requests: int, per_request: int, connections: int
) -> Run:
    """Submit them, and wait until all are done on disk."""
    count = requests * per_request
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as disk:
        before, before_cpu_s = _done(disk), cpu_s(server.pid)
        submitted = submit(_order(server, posts, requests, connections))
        until_s = time.perf_counter() + DONE_LIMIT_S
        while (done := _done(disk) - before) < count:
            if time.perf_counter() > until_s:
                raise RuntimeError(f"{done} of {count} tasks were done after {DONE_LIMIT_S} s")
            time.sleep(POLL_S)
        seconds = time.perf_counter() - submitted.began_s
    return Run(count=count, seconds=seconds, cpu_s=cpu_s(server.pid) - before_cpu_s, submitted=submitted)


def _done(disk: sqlite3.Connection) -> int:
    """How many are done, also of those that were moved to the archive meanwhile."""
    (count,) = disk.execute(
        "SELECT (SELECT count(*) FROM tasks WHERE state = 'done')"
        " + (SELECT count(*) FROM archived_tasks WHERE state = 'done')"
    ).fetchone()
    return int(count)


def _direct(server: Target, posts: list[tuple[str, Any]], requests: int, connections: int) -> Run:
    """Send them as commands, one after the other on each connection."""
    before_cpu_s = cpu_s(server.pid)
    submitted = submit(_order(server, posts, requests, connections))
    return Run(
        count=requests,
        seconds=submitted.ended_s - submitted.began_s,
        cpu_s=cpu_s(server.pid) - before_cpu_s,
        submitted=submitted,
    )


def _order(server: Target, posts: list[tuple[str, Any]], requests: int, connections: int) -> Order:
    return Order(url=server.url, token=server.token, posts=posts, requests=requests, connections=connections)


# --- Figures ------------------------------------------------------------------------------------------------------


def _rate(
    runs: Sequence[Run], others: Mapping[str, Sequence[Run]] | None = None, *, at_least: float | None = None
) -> Figure:
    samples = [run.per_s for run in runs]
    return Figure(
        ours=_median(runs),
        unit="/s",
        others={name: _median(theirs) for name, theirs in (others or {}).items()},
        at_least=at_least,
        spread=(min(samples), max(samples)),
    )


def _cpu(runs: Sequence[Run], others: Mapping[str, Sequence[Run]] | None = None) -> Figure:
    theirs = {name: [run.cpu_us for run in each] for name, each in (others or {}).items()}
    return Figure.median_of([run.cpu_us for run in runs], "CPU us", others=theirs)


def _answers(runs: Sequence[Run]) -> Figure:
    return Figure.median_of([answer for run in runs for answer in run.submitted.answers_ms], "ms")


def _median(runs: Sequence[Run]) -> float:
    return statistics.median(run.per_s for run in runs)
