"""`visits`: jobs per second that each get an isolated session of their own: load a page, click on it once, be gone.

This is what pools of browsers are made for, so it is the fairest comparison with them: puppeteer-cluster (a context, or
a browser, for each worker), Crawlee's crawler with a context for each request, browserless and Playwright with a
browser for each session. All run the same build, as many jobs at once, and each checks that its page counted the click.

Ours are tasks without a tab, for which the server leases a session, and whose steps, results and ends are on disk when
they are done. *Sessions over HTTP* are the same without tasks: callers that open a session with the page, click, look
and release it. The peers keep nothing on disk.
"""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat
from typing import Final

from bench import Figure
from bench.rig.ledger import Ledger, sqlite_ledger, wait_done
from bench.rig.peer_browsers import PEERS, RunningPeer, each_of, running_peers
from bench.rig.server import Server, running
from bench.rig.site import DESK_PATH, small_page
from tabherd.edge.server import STORE_FILE

ROUNDS: Final = 5
# Jobs that are under way at once.
AT_ONCE: Final = 4
VISITS: Final = 40
# Of those with a browser for each session: they take ten times as long.
FEW: Final = 12
SLOW: Final = ("browserless", "Playwright for Node, a launch each")
COUNT: Final = "window.clicks"
# Than every peer that is installed.
BAR_AHEAD: Final = 1.0


def run() -> dict[str, Figure]:
    settings = {
        "pools__default__max_active": AT_ONCE,
        "scheduler__workers": AT_ONCE,
        "scheduler__max_inflight_per_agent": AT_ONCE,
        "scheduler__deadline_ms": 300_000,
    }
    with (
        small_page() as site,
        running(**settings) as server,
        sqlite_ledger(server.state / STORE_FILE) as ledger,
        running_peers(PEERS, places=AT_ONCE) as (peers, absent),
    ):
        url = site + DESK_PATH
        ours: list[float] = []
        sessions: list[float] = []
        theirs: dict[str, list[float]] = {}
        for turn in range(1 + ROUNDS):
            # The first, which is shorter, is for what is made at first use.
            share = 1 if turn else 4
            measured = each_of(peers, absent, partial(_visits_of, share=share, url=url))
            by_tasks, by_sessions = (
                _tasks(server, ledger, url, VISITS // share),
                _sessions(server, url, VISITS // share),
            )
            if turn:
                ours.append(by_tasks)
                sessions.append(by_sessions)
                for name, per_s in measured.items():
                    theirs.setdefault(name, []).append(per_s)
    theirs = {name: samples for name, samples in theirs.items() if name not in absent}
    figures = {
        f"visits_per_s_{AT_ONCE}_at_once": Figure.median_of(
            ours, "/s", others={"sessions over HTTP": sessions, **theirs}, absent=absent
        )
    }
    for name, samples in theirs.items():
        figures[f"visits_to_{_label(name)}"] = _ratio(ours, samples)
    return figures


def _visits_of(peer: RunningPeer, share: int, url: str) -> float:
    return peer.visits_per_s(_count(peer.name) // share, AT_ONCE, url)


def _count(peer: str) -> int:
    return FEW if peer in SLOW else VISITS


def _label(name: str) -> str:
    return "_".join("".join(letter if letter.isalnum() else " " for letter in name.lower()).split())


def _ratio(ours: list[float], theirs: list[float]) -> Figure:
    """The median of the ratios of runs that were side by side."""
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return Figure(ours=statistics.median(ratios), unit="ratio", at_least=BAR_AHEAD, spread=(min(ratios), max(ratios)))


def _tasks(server: Server, ledger: Ledger, url: str, count: int) -> float:
    steps = [
        {"kind": "navigate", "url": url},
        {"kind": "click", "selector": "#go"},
        {"kind": "evaluate", "expression": COUNT},
    ]
    with server.caller() as caller:
        before, began_s = ledger.done(), time.perf_counter()
        tasks = list(repeat({"steps": steps}, count))
        batch = caller.call("POST", "/tasks/batch", {"agentId": "visitor", "tasks": tasks})
        wait_done(ledger, before + count)
        per_s = count / (time.perf_counter() - began_s)
        for task in batch["tasks"]:
            result = caller.call("GET", f"/tasks/{task['taskId']}")["result"]
            assert result[-1]["result"] == 1, f"the click was lost: {result}"
    return per_s


def _sessions(server: Server, url: str, count: int) -> float:
    tickets = iter(range(count))

    def visit() -> None:
        with server.caller() as caller:
            for _ in tickets:
                session = caller.open(agentId="visitor", url=url)
                caller.act(session.tab_id, "click", selector="#go")
                assert caller.evaluate(session.tab_id, COUNT) == 1
                caller.release(session)

    began_s = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for done in [threads.submit(visit) for _ in range(AT_ONCE)]:
            done.result()
    return count / (time.perf_counter() - began_s)
