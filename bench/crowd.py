"""`crowd`: a hundred agents with mixed work on real tabs: is it shared out fairly, does any of it leak, or get lost?

There are four agents for each session that the pool admits. Each opens a session, acts in it by commands and by tasks,
reads, gives it back, and begins anew (`bench/rig/working_crowd.py`). What an agent finds must be its own, and every
click that was acknowledged must be in its page once.

Memory is weighed all the while: the broker, and its browsers with all their processes. *Growth* is what it was in the
last quarter, as a multiple of what it was in the second; in the first, things are made that stay. Results of tasks are
kept for a few seconds only, so that what is kept by design is not taken for growth.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from typing import Final

import msgspec
import uvloop

from bench import Figure, percentile
from bench.rig.caller import Caller, now_ms
from bench.rig.memory import weight, weight_of_trees
from bench.rig.plot import Plot, points
from bench.rig.server import Server, running
from bench.rig.site import BOOTH_PATH, small_page
from bench.rig.working_crowd import Found, work

AGENTS: Final = 100
SESSIONS: Final = 25
SHORT_S: Final = 45.0
LONG_S: Final = 180.0
WEIGH_EVERY_S: Final = 3.0
RESULT_TTL_S: Final = 5
# Of what came wrong, as many are named as a reader needs to look for the cause.
NAMED: Final = 3
BAR_JAIN: Final = 0.98
BAR_GROWTH: Final = 1.05


class Weighed(msgspec.Struct, kw_only=True):
    """What processes weighed at one time."""

    at_s: float
    broker_mb: float
    browsers_mb: float


def run() -> dict[str, Figure | Plot]:
    """Nothing is known from less than `run_short`."""
    return {}


def run_short() -> dict[str, Figure | Plot]:
    return uvloop.run(_measure(SHORT_S))


def run_long() -> dict[str, Figure | Plot]:
    return uvloop.run(_measure(LONG_S))


async def _measure(seconds: float) -> dict[str, Figure | Plot]:
    settings = {
        "pools__default__max_active": SESSIONS,
        "pools__default__sessions_per_browser": SESSIONS // 2 + 1,
        "pools__default__browsers_max": 2,
        "scheduler__result_ttl_s": RESULT_TTL_S,
        "scheduler__deadline_ms": 300_000,
        "gate__timeout_ms": 120_000,
    }
    with small_page() as site, running(**settings) as server, server.caller() as caller:
        scales = asyncio.create_task(_weigh(server, caller))
        try:
            found = await work(server, site + BOOTH_PATH, agents=AGENTS, seconds=seconds)
        finally:
            scales.cancel()
            await asyncio.wait((scales,))
        open_now = caller.call("GET", "/stats")["sessions"]
        queue = caller.call("GET", "/scheduler/stats")["queue"]
        weighed = [each for each in _WEIGHED if each.at_s <= seconds]
    left = open_now + queue["totalQueued"] + queue["totalInflight"]
    return _figures(found, seconds, left) | _memory(weighed)


# Filled by `_weigh`, which is cancelled when enough is known.
_WEIGHED: list[Weighed] = []


async def _weigh(server: Server, caller: Caller) -> None:
    _WEIGHED.clear()
    began = now_ms()
    while True:
        await asyncio.sleep(WEIGH_EVERY_S)
        # In a thread: reading what dozens of processes have takes a while, and agents must not wait for it.
        _WEIGHED.append(await asyncio.to_thread(_weighed, server.pid, caller, began))


def _weighed(pid: int, caller: Caller, began: float) -> Weighed:
    browsers = caller.browser_pids()
    return Weighed(
        at_s=(now_ms() - began) / 1000,
        broker_mb=weight(pid).pss_mb,
        browsers_mb=weight_of_trees(browsers).pss_mb,
    )


def _figures(found: Found, seconds: float, left: int) -> dict[str, Figure | Plot]:
    for what in (found.cross_talk, found.lost, found.repeated, found.errors):
        for each in what[:NAMED]:
            print(each)
    shares = list(found.worked.values())
    sessions = sum(shares)
    return {
        "jain_index": Figure(ours=found.jain, unit="of 1", at_least=BAR_JAIN),
        "sessions_per_agent": Figure.median_of(shares, "sessions"),
        "sessions_per_agent_least": Figure(ours=min(shares), unit="sessions", others={"most": max(shares)}),
        "cross_talk": Figure(ours=len(found.cross_talk), unit="readings", at_most=0),
        "lost": Figure(ours=len(found.lost), unit="clicks and tasks", at_most=0),
        "repeated": Figure(ours=len(found.repeated), unit="clicks", at_most=0),
        "refused_or_failed": Figure(ours=len(found.errors), unit="requests", at_most=0),
        "left_behind": Figure(ours=left, unit="sessions and tasks", at_most=0),
        "sessions_per_s": Figure(ours=sessions / seconds, unit="/s"),
        "commands_and_tasks": Figure(ours=found.commands + found.tasks, unit="acknowledged"),
        "wait_for_a_session_p50": Figure.median_of(found.opens_ms, "ms"),
        "wait_for_a_session_p99": Figure(ours=percentile(found.opens_ms, 99), unit="ms"),
        "work_in_a_session_p50": Figure.median_of(found.works_ms, "ms"),
        "crowd_fairness": Plot(
            title=f"Sessions that each of {AGENTS} agents worked in (Jain's index {found.jain:.4f})",
            x="agent",
            y="sessions",
            series={"sessions": points([(number, share) for number, share in enumerate(shares, 1)])},
            kind="bars",
            bar=sessions / len(shares),
            bar_name="an equal share",
        ),
    }


def _memory(weighed: Sequence[Weighed]) -> dict[str, Figure | Plot]:
    broker = [each.broker_mb for each in weighed]
    browsers = [each.browsers_mb for each in weighed]
    figures: dict[str, Figure | Plot] = {}
    for name, samples in (("broker", broker), ("browsers", browsers)):
        figures[f"{name}_memory"] = Figure.median_of(samples, "MB")
        figures[f"{name}_memory_growth"] = Figure(ours=_growth(samples), unit="ratio", at_most=BAR_GROWTH)
    figures["crowd_memory"] = Plot(
        title=f"Memory while {AGENTS} agents come and go on {SESSIONS} sessions",
        x="seconds",
        y="MB (proportional set size)",
        series={
            "browsers": points([(each.at_s, each.browsers_mb) for each in weighed]),
            "broker": points([(each.at_s, each.broker_mb) for each in weighed]),
        },
        is_log_y=True,
    )
    return figures


def _growth(samples: Sequence[float]) -> float:
    """The last quarter, as a multiple of the second."""
    quarter = len(samples) // 4
    return statistics.median(samples[-quarter:]) / statistics.median(samples[quarter : 2 * quarter])
