"""`tasks`: tasks per second from submission over HTTP until every one of them is done on disk.

- *no-op*: the real front door, scheduler and SQLite, with tasks that run nothing: what a queue of jobs costs that does
  not know what they do. Submitted in batches of 50, and one by one, from another process.
- *idle*: the same with the whole way of a command (turn, fence, marks, audit) to pages that do nothing: what a task
  costs the server. Beside it, the same actions as direct commands.
- *PostgreSQL*: the no-ops again with the server's rows in PostgreSQL, whose commits wait for the disk, beside two other
  queues on the same PostgreSQL with jobs that do nothing. Ours come over HTTP; theirs are submitted by their own
  libraries, straight to the database.
- *click*: real clicks on 8 real tabs, in batches, beside the same clicks as direct commands over HTTP on the same tabs,
  one after the other on each, which is the limit; and beside peers that click on as many pages of theirs, by their own
  library in one process, without a queue on disk. After the last round every page must have counted every click.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, Protocol

import msgspec

from bench import Figure
from bench.rig import peer_queues
from bench.rig.caller import Caller
from bench.rig.idle_server import idle_server
from bench.rig.ledger import Ledger, postgres_ledger, sqlite_ledger, wait_done
from bench.rig.peer_browsers import CLUSTER_BROWSER, CLUSTER_CONTEXT, CRAWLEE, each_of, running_peers
from bench.rig.peer_queues import PEERS, PGQUEUER, Peer
from bench.rig.postgres import Postgres, running_postgres
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
CLICK_PEERS: Final = (CLUSTER_CONTEXT, CLUSTER_BROWSER, CRAWLEE)
PEER_CLICKS: Final = 400
NOOP: Final = {"action": "evaluate", "params": {"expression": "1 + 1"}}
NOOP_COMMAND: Final = {"kind": "evaluate", "expression": "1 + 1"}
CLICK: Final = {"action": "click", "selector": "#go"}
CLICK_COMMAND: Final = {"kind": "click", "selector": "#go"}

BAR_BATCHED_PER_S: Final = 5_000.0
BAR_SINGLE_PER_S: Final = 2_000.0
BAR_CLICKS_PER_S: Final = 300.0
# On PostgreSQL: fewer, for each commit waits for the disk.
POSTGRES_BATCHED: Final = 8_000
# As many tasks as are under way at once, which is what a disk that each waits for asks for; the others have 1,000.
POSTGRES_TABS: Final = 200
POSTGRES_SINGLE: Final = 2_000
# What such a number is divided by for a queue that would take minutes for all.
SLOW_PART: Final = {"Procrastinate": 16}
BAR_TO_PGQUEUER: Final = 1.0


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
    return _noop_figures() | _idle_figures() | _postgres_figures() | _click_figures()


# --- No-ops -------------------------------------------------------------------------------------------------------


def _noop_figures() -> dict[str, Figure]:
    with (
        idle_server(runs_commands=False) as server,
        server.caller() as caller,
        sqlite_ledger(server.store) as ledger,
    ):
        tabs = _open(caller, TABS)
        batched, single = _rounds(
            lambda share: (
                _batched(server, ledger, tabs, BATCHED // share),
                _single(server, ledger, tabs, SINGLE // share),
            )
        )
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
    with idle_server() as server, server.caller() as caller, sqlite_ledger(server.store) as ledger:
        tabs = _open(caller, TABS)
        batched, single, commands = _rounds(
            lambda share: (
                _batched(server, ledger, tabs, BATCHED // share),
                _single(server, ledger, tabs, SINGLE // share),
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


def _batched(server: Target, ledger: Ledger, tabs: Sequence[Tab], count: int) -> Run:
    return _tasks(server, ledger, _batches(tabs, NOOP), count // BATCH, BATCH, BATCH_CONNECTIONS)


def _single(server: Target, ledger: Ledger, tabs: Sequence[Tab], count: int) -> Run:
    return _tasks(server, ledger, _singles(tabs, NOOP), count, 1, SINGLE_CONNECTIONS)


# --- No-ops on PostgreSQL -----------------------------------------------------------------------------------------


def _postgres_figures() -> dict[str, Figure]:
    with running_postgres(is_durable=True) as postgres, ExitStack() as stack:
        server = stack.enter_context(idle_server(runs_commands=False, store=postgres.url))
        tabs = _open(stack.enter_context(server.caller()), POSTGRES_TABS)
        ledger = stack.enter_context(postgres_ledger(postgres.url))
        workers = [_PeerWorker(peer, postgres, stack) for peer in PEERS]
        batched, single, *theirs = _rounds(
            lambda share: (
                _batched(server, ledger, tabs, POSTGRES_BATCHED // share),
                _single(server, ledger, tabs, POSTGRES_SINGLE // share),
                *(worker.run(POSTGRES_BATCHED // share, BATCH, BATCH_CONNECTIONS) for worker in workers),
                *(worker.run(POSTGRES_SINGLE // share, 1, SINGLE_CONNECTIONS) for worker in workers),
            )
        )
    names = [peer.name for peer in PEERS]
    others_batched = dict(zip(names, theirs[: len(PEERS)], strict=True))
    others_single = dict(zip(names, theirs[len(PEERS) :], strict=True))
    return {
        "postgres_noop_batched_per_s": _rate(batched, others_batched),
        "postgres_noop_batched_cpu": _cpu(batched, others_batched),
        "postgres_noop_batched_to_pgqueuer": _ratio(batched, others_batched[PGQUEUER.name], BAR_TO_PGQUEUER),
        "postgres_noop_single_per_s": _rate(single, others_single),
        "postgres_noop_single_cpu": _cpu(single, others_single),
        "postgres_noop_single_to_pgqueuer": _ratio(single, others_single[PGQUEUER.name], BAR_TO_PGQUEUER),
    }


class _PeerWorker:
    """Another queue, with its worker at work until the stack is left."""

    def __init__(self, peer: Peer, postgres: Postgres, stack: ExitStack) -> None:
        self._peer = peer
        self._postgres = postgres
        self._pid = stack.enter_context(peer_queues.working(peer, postgres))
        url = postgres.url_of(peer.database)
        self._ledger = stack.enter_context(postgres_ledger(url, peer.unfinished, peer.done))

    def run(self, count: int, batch: int, connections: int) -> Run:
        """Submit jobs, and wait until all are done on disk."""
        requests = count // SLOW_PART.get(self._peer.name, 1) // batch

        def send() -> Submitted:
            return peer_queues.submit(
                self._peer, self._postgres, requests=requests, batch=batch, connections=connections
            )

        return _until_done(self._pid, self._ledger, requests * batch, send)


# --- Clicks -------------------------------------------------------------------------------------------------------


def _click_figures() -> dict[str, Figure]:
    settings: dict[str, Any] = {"scheduler__queue_max_per_agent": CLICKS, "scheduler__deadline_ms": 300_000}
    with (
        small_page() as site,
        running(**settings) as server,
        server.caller() as caller,
        sqlite_ledger(server.state / STORE_FILE) as ledger,
        running_peers(CLICK_PEERS, places=CLICK_TABS) as (peers, absent),
    ):
        tabs = _open(caller, CLICK_TABS, url=site + DESK_PATH)
        clicked = 0
        theirs: dict[str, list[float]] = {}

        def measure(share: int) -> tuple[Run, ...]:
            nonlocal clicked
            runs = (
                _tasks(server, ledger, _batches(tabs, CLICK), CLICKS // share // BATCH, BATCH, CLICK_CONNECTIONS),
                _direct(server, _commands(tabs, CLICK_COMMAND), DIRECT_CLICKS // share, len(tabs)),
            )
            clicked += sum(each.count for each in runs)
            per_tab = PEER_CLICKS // CLICK_TABS // share
            by_peers = each_of(peers, absent, lambda peer: peer.clicks_per_s(CLICK_TABS, per_tab, site + DESK_PATH))
            for name, per_s in by_peers.items():
                theirs.setdefault(name, []).append(per_s)
            return runs

        tasks, commands = _rounds(measure)
        # By another connection: while the peers were at work, nobody used the first.
        with server.caller() as reader:
            counted = sum(reader.evaluate(tab.id, "window.clicks") for tab in tabs)
        assert counted == clicked, f"{counted} of {clicked} clicks arrived"
    direct = {"direct commands": commands}
    return {
        f"click_per_s_{CLICK_TABS}_tabs": _beside(
            _rate(tasks, direct, at_least=BAR_CLICKS_PER_S),
            # The first is for what is made at first use.
            {name: statistics.median(samples[1:]) for name, samples in theirs.items() if name not in absent},
            absent,
        ),
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
    server: Target, ledger: Ledger, posts: list[tuple[str, Any]], requests: int, per_request: int, connections: int
) -> Run:
    """Submit them, and wait until all are done on disk."""
    order = _order(server, posts, requests, connections)
    return _until_done(server.pid, ledger, requests * per_request, lambda: submit(order))


def _until_done(pid: int, ledger: Ledger, count: int, send: Callable[[], Submitted]) -> Run:
    """From the first of so many to the last that is done on disk; by the process that does them."""
    before, before_cpu_s = ledger.done(), cpu_s(pid)
    submitted = send()
    wait_done(ledger, before + count)
    seconds = time.perf_counter() - submitted.began_s
    return Run(count=count, seconds=seconds, cpu_s=cpu_s(pid) - before_cpu_s, submitted=submitted)


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


def _beside(figure: Figure, others: Mapping[str, float], absent: Mapping[str, str]) -> Figure:
    return msgspec.structs.replace(figure, others={**figure.others, **others}, absent=dict(absent))


def _ratio(runs: Sequence[Run], others: Sequence[Run], at_least: float) -> Figure:
    """The median of the ratios of runs that were side by side."""
    ratios = [run.per_s / other.per_s for run, other in zip(runs, others, strict=True)]
    return Figure(ours=statistics.median(ratios), unit="ratio", at_least=at_least, spread=(min(ratios), max(ratios)))


def _cpu(runs: Sequence[Run], others: Mapping[str, Sequence[Run]] | None = None) -> Figure:
    theirs = {name: [run.cpu_us for run in each] for name, each in (others or {}).items()}
    return Figure.median_of([run.cpu_us for run in runs], "CPU us", others=theirs)


def _answers(runs: Sequence[Run]) -> Figure:
    return Figure.median_of([answer for run in runs for answer in run.submitted.answers_ms], "ms")


def _median(runs: Sequence[Run]) -> float:
    return statistics.median(run.per_s for run in runs)
