"""The soak: a crowd at work for an hour, a Chromium killed every minute; does anything grow, slow down or stick?

Growth that ends (caches fill, the allocator has what it needs) is told from growth that does not: slopes are given for
the whole time after the first minutes, and for its second half alone.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from tests.cli.running import running_server
from tests.server.conftest import environment_of, kill_browser
from tests.server.local_site import serving

from tabherd import AsyncTabherd, TabherdError

from .agents import Browsing
from .crowd import crowd_at_work
from .figures import jain, percentile, slope_of
from .ledger import Answered, Ledger
from .rigs import python_path
from .sampling import Sample, Sampler
from .site import CountingSite

SAMPLE_S: Final = 10.0
KILL_S: Final = 60.0
# A server that has just started fills what it will need: that is no growth.
WARMING_SHARE: Final = 0.1
# As long as sessions may take to end after the crowd has left.
CALM_S: Final = 60.0
GROWING: Final = (
    "rss_mb",
    "pss_mb",
    "fds",
    "threads",
    "tasks",
    "blocks_k",
    "malloc_mb",
    "store_mb",
    "state_mb",
    "browsers_pss_mb",
)
TIMED: Final = ("command", "acquire", "task", "lock", "ws", "cdp")


class Report(msgspec.Struct, kw_only=True):
    """What came of it."""

    minutes: float
    agents: int
    seed: int
    kills: int = 0
    samples: list[Sample] = []
    # Per minute: for each kind of answer how many, p50 and p99 in ms.
    latencies: list[dict[str, Any]] = []
    # Of each quantity: per hour after the first minutes, and in the second half, with the interval of 95 %.
    slopes: dict[str, Any] = {}
    # Of each kind of answer: p99 of the first and the last third.
    p99: dict[str, Any] = {}
    done: dict[str, int] = {}
    refused: dict[str, int] = {}
    jain: float = 1.0
    crosstalk: list[str] = []
    surprises: list[str] = []
    stuck: list[str] = []
    # What is still there when everybody has left.
    left: dict[str, int] = {}

    @property
    def is_good(self) -> bool:
        return not (self.crosstalk or self.surprises or self.stuck or any(self.left.values()))


def run(*, minutes: float, agents: int, think_s: float, seed: int, place: Path, tell: Callable[[str], None]) -> Report:
    """Start a server, let the crowd at it, and end both."""
    place.mkdir(parents=True, exist_ok=True)
    state = place / "state"
    pool = {"browsers_max": 4, "sessions_per_browser": 25, "max_active": 90}
    settings = environment_of({f"POOLS__DEFAULT__{name.upper()}": str(value) for name, value in pool.items()})
    inside = {"PYTHONPATH": python_path(), "CAMPAIGN_DIR": str(state)}
    report = Report(minutes=minutes, agents=agents, seed=seed)
    ledger = Ledger(place / "ledger.jsonl")
    with serving(CountingSite()) as site, running_server(state, settings | inside):
        try:
            asyncio.run(_soak(report, ledger, site, state, think_s, tell))
        finally:
            ledger.close()
            _conclude(report, ledger, site)
            (place / "soak.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    return report


async def _soak(
    report: Report, ledger: Ledger, site: CountingSite, state: Path, think_s: float, tell: Callable[[str], None]
) -> None:
    began_s = time.monotonic()
    over_s = began_s + report.minutes * 60
    async with AsyncTabherd(environ={"TABHERD_STATE": str(state)}) as admin:
        sampler = Sampler(state, admin, began_s)
        killing = asyncio.create_task(_kill(report, ledger, admin))
        try:
            crowd = crowd_at_work([state], site, ledger, agents=report.agents, think_s=think_s, seed=report.seed)
            async with crowd:
                await _watch(report, ledger, sampler, state, over_s, tell)
                killing.cancel()
        finally:
            killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)
        report.left = await _calm(admin)


async def _watch(
    report: Report, ledger: Ledger, sampler: Sampler, state: Path, over_s: float, tell: Callable[[str], None]
) -> None:
    """Look every few seconds; once in a while say how it goes."""
    census_at = [over_s - report.minutes * 60 * share for share in (0.66, 0.02)]
    for number in range(int(report.minutes * 60 / SAMPLE_S) + 1):
        if time.monotonic() >= over_s:
            return
        try:
            sample = await sampler.look()
        except TabherdError as error:
            ledger.surprise(f"the server cannot be looked at: {error.code}: {error.message}")
        else:
            report.samples.append(sample)
            report.stuck += sample.stuck
            if number % 6 == 0:
                tell(
                    f"{sample.at_s:6.0f} s  rss {sample.rss_mb:.1f} MB  fds {sample.fds}  tasks {sample.tasks}"
                    f"  blocks {sample.blocks_k:.0f} k  malloc {sample.malloc_mb:.1f} MB"
                    f"  store {sample.store_mb:.1f} MB  sessions {sample.sessions}  waiting {sample.waiting}"
                    f"  done {sum(ledger.turns.values())}  kills {report.kills}  surprises {len(ledger.surprises)}"
                )
        if census_at and time.monotonic() >= census_at[0]:
            census_at.pop(0)
            (state / "census.ask").touch()
        await asyncio.sleep(max(0.0, min(SAMPLE_S, over_s - time.monotonic())))


async def _kill(report: Report, ledger: Ledger, admin: AsyncTabherd) -> None:
    """One of the browsers that serve, every minute."""
    chance = Random(report.seed)
    while True:
        await asyncio.sleep(KILL_S)
        try:
            pids = [view.pid for view in await admin.browsers() if view.state == "ready" and view.pid]
        except TabherdError as error:
            ledger.surprise(f"the browsers are not told: {error.code}: {error.message}")
            continue
        if pids:
            kill_browser(chance.choice(pids))
            report.kills += 1


async def _calm(admin: AsyncTabherd) -> dict[str, int]:
    """What is left when everybody has gone; sessions whose acknowledgement was lost end by themselves."""
    give_up_s = time.monotonic() + CALM_S
    while True:
        stats = await admin.stats()
        queue = (await admin.scheduler_stats()).queue
        left = {
            "sessions": stats.sessions,
            "tabs": sum(pool.tabs for pool in stats.pools.values()),
            "waiters": sum(pool.waiting for pool in stats.pools.values()),
            "locks": len(await admin.locks()),
            "tasks": queue.total_queued + queue.total_inflight,
        }
        if not any(left.values()) or time.monotonic() >= give_up_s:
            return left
        await asyncio.sleep(0.5)


# --- What it comes to -------------------------------------------------------------------------------------------


def _conclude(report: Report, ledger: Ledger, site: CountingSite) -> None:
    report.refused = dict(ledger.refused)
    report.surprises = ledger.surprises
    report.crosstalk = site.crosstalk
    report.done = dict(Counter(answer.kind for answer in ledger.answered))
    browsing = [done for name, done in ledger.turns.items() if name.startswith(Browsing.kind)]
    report.jain = jain(browsing)
    if ledger.answered:
        report.latencies = _per_minute(ledger.answered)
        report.p99 = _thirds(ledger.answered)
    if report.samples:
        warm = [one for one in report.samples if one.at_s >= report.samples[-1].at_s * WARMING_SHARE]
        late = [one for one in report.samples if one.at_s >= report.samples[-1].at_s / 2]
        report.slopes = {name: {"all": _slope(warm, name), "second half": _slope(late, name)} for name in GROWING}


def _slope(samples: Sequence[Sample], name: str) -> dict[str, float]:
    found: dict[str, float] = msgspec.to_builtins(
        slope_of([one.at_s for one in samples], [float(getattr(one, name)) for one in samples])
    )
    return found | {"last": float(getattr(samples[-1], name))}


def _per_minute(answered: Sequence[Answered]) -> list[dict[str, Any]]:
    began_s = min(answer.at_s for answer in answered)
    minutes: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for answer in answered:
        minutes[int((answer.at_s - began_s) / 60)][answer.kind].append(answer.ms)
    return [
        {
            kind: {"count": len(found), "p50": percentile(found, 0.5), "p99": percentile(found, 0.99)}
            for kind, found in minutes[minute].items()
        }
        for minute in sorted(minutes)
    ]


def _thirds(answered: Sequence[Answered]) -> dict[str, Any]:
    first, last = min(answer.at_s for answer in answered), max(answer.at_s for answer in answered)
    third_s = (last - first) / 3
    found: dict[str, Any] = {}
    for kind in TIMED:
        mine = [answer for answer in answered if answer.kind == kind]
        early = [answer.ms for answer in mine if answer.at_s <= first + third_s]
        late = [answer.ms for answer in mine if answer.at_s >= last - third_s]
        found[kind] = {
            "count": len(mine),
            "p50 first": percentile(early, 0.5),
            "p50 last": percentile(late, 0.5),
            "p99 first": percentile(early, 0.99),
            "p99 last": percentile(late, 0.99),
        }
    return found


def markdown(report: Report) -> str:
    """The same, to be read."""
    lines = [
        f"{report.minutes:g} min, {report.agents} agents, {report.kills} Chromium killed, seed {report.seed}; "
        f"done {json.dumps(report.done)}",
        "",
        "| quantity | at the end | per hour (95 %) | per hour, second half (95 %) |",
        "|---|---|---|---|",
    ]
    for name, slopes in report.slopes.items():
        both = [
            f"{slope['per_h']:+.2f} ({slope['low']:+.2f} .. {slope['high']:+.2f})"
            for slope in (slopes["all"], slopes["second half"])
        ]
        lines.append(f"| {name} | {slopes['all']['last']:g} | {both[0]} | {both[1]} |")
    lines += ["", "| answer | count | p50 first / last third (ms) | p99 first / last third (ms) |", "|---|---|---|---|"]
    for kind, found in report.p99.items():
        pairs = [f"{found[f'{which} first']} / {found[f'{which} last']}" for which in ("p50", "p99")]
        lines.append(f"| {kind} | {found['count']} | {pairs[0]} | {pairs[1]} |")
    lines += [
        "",
        f"Cross-talk {len(report.crosstalk)}, surprises {len(report.surprises)}, stuck {len(report.stuck)}, "
        f"left over {report.left}, Jain index of those that browse {report.jain}.",
        f"Refusals that were heard: {json.dumps(dict(sorted(report.refused.items())))}.",
    ]
    return "\n".join([*lines, *(f"- {what}" for what in (report.crosstalk + report.surprises + report.stuck)[:20])])
