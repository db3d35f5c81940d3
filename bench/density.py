"""`density`: what an idle isolated session weighs, beside a browser of its own for each; and how many fit.

Every session has the same small page loaded. Weight is the proportional set size of the browser with all its
processes, divided by the sessions in it. The limit is as many contexts in one browser without a broker.

One kind is alive at a time: processes of the same build share its code, and a neighbour would make each other's share
look smaller. Several of each peer run together, as they would in earnest; the more of them, the less of the code each
has to bear, so the weight without mapped files, which does not depend on how many there are, is shown as well.

The peers that share browsers, or give each session one, hold as many sessions as ours at each point of the curve, or
as many as those with a browser each are given here. Only browsers are weighed, not the programs that drive them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from typing import Final

import uvloop

from bench import Figure, percentile
from bench.rig.caller import Caller, Opened, now_ms
from bench.rig.direct import FULL, HEADLESS_SHELL, launched
from bench.rig.memory import Weight, strangers, weight, weight_of_trees
from bench.rig.peer_browsers import (
    BROWSERLESS,
    CLUSTER_BROWSER,
    CLUSTER_CONTEXT,
    CRAWLEE,
    PLAYWRIGHT_LAUNCH,
    Absent,
    Peer,
    running_peer,
)
from bench.rig.plot import Plot, points
from bench.rig.server import running
from bench.rig.site import small_page

PER_BROWSER: Final = (25, 50)
# Before those, for the curve.
FEWER: Final = (1, 5, 10)
# Peers whose sessions share a browser, and those whose sessions have one each: as many sessions as are weighed.
SHARING: Final = {CLUSTER_CONTEXT: PER_BROWSER, CRAWLEE: PER_BROWSER}
ALONE: Final = {CLUSTER_BROWSER: (1, 5), BROWSERLESS: (1, 5), PLAYWRIGHT_LAUNCH: (1, 5)}
SHELLS: Final = 5
FULLS: Final = 3
# Until a page that has loaded has become quiet.
SETTLE_S: Final = 4.0
# How long the browsers of others, such as of a test that runs, are waited for.
STRANGERS_LIMIT_S: Final = 60.0
POLL_S: Final = 0.05
# Ours per session, of one browser of that kind per session.
BAR_SHELL: Final = 1 / 4
BAR_FULL: Final = 1 / 12

_ONE_SHELL: Final = f"one headless-shell each, of {SHELLS}"
_ONE_FULL: Final = f"one full Chromium each, of {FULLS}"

CROWD: Final = 500
CROWD_PER_BROWSER: Final = 50
# Callers that open sessions at once.
CROWD_CALLERS: Final = 8
# Nobody touches the first session until the last is open.
IDLE_TTL_S: Final = 3_600


def run() -> dict[str, Figure | Plot]:
    counts = (*FEWER, *PER_BROWSER)
    theirs: dict[str, dict[int, Weight]] = {}
    absent: dict[str, str] = {}
    with small_page() as url:
        ours = {count: _session_weight(url, count) for count in counts}
        limit = {count: uvloop.run(_context_weight(url, count)) for count in counts}
        for peer, held in (SHARING | ALONE).items():
            try:
                theirs[peer.name] = {count: _peer_weight(peer, url, count) for count in held}
            except Absent as why:
                absent[peer.name] = str(why)
        shell = uvloop.run(_own_browser_weight(url, HEADLESS_SHELL, SHELLS))
        full = uvloop.run(_own_browser_weight(url, FULL, FULLS))
        in_full = _session_weight(url, PER_BROWSER[0], FULL)
        as_they_come = uvloop.run(_context_weight(url, PER_BROWSER[0], FULL))
    figures: dict[str, Figure | Plot] = {}
    for count in PER_BROWSER:
        each = ours[count]
        peers = {"direct contexts": limit[count], _ONE_SHELL: shell, _ONE_FULL: full}
        # Those with a browser each weigh the same however many there are.
        peers |= {name: weights.get(count, weights[max(weights)]) for name, weights in theirs.items()}
        figures[f"session_pss_at_{count}"] = Figure(
            ours=each.pss_mb, unit="MB", others={name: other.pss_mb for name, other in peers.items()}, absent=absent
        )
        figures[f"session_pss_without_files_at_{count}"] = Figure(
            ours=each.own_mb, unit="MB", others={name: other.own_mb for name, other in peers.items()}, absent=absent
        )
        # The bars are set for the smaller browser, which has fewer to share its own weight.
        is_held = count == PER_BROWSER[0]
        for name, alone, bar in (("headless_shell", shell, BAR_SHELL), ("full_chromium", full, BAR_FULL)):
            figures[f"to_{name}_at_{count}"] = Figure(
                ours=each.pss_mb / alone.pss_mb, unit="ratio", at_most=bar if is_held else None
            )
            figures[f"to_{name}_without_files_at_{count}"] = Figure(ours=each.own_mb / alone.own_mb, unit="ratio")
    figures[f"full_session_pss_at_{PER_BROWSER[0]}"] = Figure(
        ours=in_full.pss_mb, unit="MB", others={"contexts of full Chromium as it comes": as_they_come.pss_mb}
    )
    curves = {"tabherd": ours, "direct contexts": limit, **theirs}
    figures["density_memory"] = Plot(
        title="Memory of all browsers, by the number of isolated sessions",
        x="sessions, each with the same page, idle",
        y="MB (proportional set size)",
        series={
            **{name: points([(n, n * each.pss_mb) for n, each in curve.items()]) for name, curve in curves.items()},
            "one full Chromium each": points([(1, full.pss_mb), (FULLS, FULLS * full.pss_mb)]),
        },
        is_log_x=True,
        is_log_y=True,
    )
    return figures


def run_long() -> dict[str, Figure]:
    """As many sessions as the bar asks for, all alive, each asked something."""
    settings = {
        "pools__default__browsers_max": CROWD // CROWD_PER_BROWSER,
        "pools__default__sessions_per_browser": CROWD_PER_BROWSER,
        "pools__default__max_active": CROWD,
        "pools__default__idle_ttl_s": IDLE_TTL_S,
        "pools__default__warm": 0,
    }
    with small_page() as url, running(**settings) as server, ExitStack() as stack:
        callers = [stack.enter_context(server.caller()) for _ in range(CROWD_CALLERS)]
        began = now_ms()
        sessions = _open(callers, CROWD, url)
        opened_s = (now_ms() - began) / 1000
        time.sleep(SETTLE_S)
        answers_ms = [_asked_ms(callers[0], session) for session in sessions]
        browsers_mb = weight_of_trees(callers[0].browser_pids()).pss_mb
        broker_mb = weight(server.pid).pss_mb
    return {
        f"live_of_{CROWD}": Figure(ours=len(answers_ms), unit="sessions", at_least=CROWD),
        f"open_{CROWD}": Figure(ours=opened_s, unit="s"),
        f"evaluate_p50_among_{CROWD}": Figure.median_of(answers_ms, "ms"),
        f"evaluate_p99_among_{CROWD}": Figure(ours=percentile(answers_ms, 99), unit="ms"),
        f"browsers_pss_with_{CROWD}": Figure(ours=browsers_mb, unit="MB"),
        f"broker_pss_with_{CROWD}": Figure(ours=broker_mb, unit="MB"),
        f"session_pss_among_{CROWD}": Figure(ours=(browsers_mb + broker_mb) / CROWD, unit="MB"),
    }


def _session_weight(url: str, count: int, kind: str = HEADLESS_SHELL) -> Weight:
    """Of one session, in the one browser of a server that is full."""
    settings = {
        "pools__default__browser": kind,
        "pools__default__browsers_max": 1,
        "pools__default__sessions_per_browser": count,
        "pools__default__warm": 0,
    }
    with running(**settings) as server, server.caller() as caller:
        _open([caller], count, url)
        return _settled(caller.browser_pids()) / count


async def _context_weight(url: str, count: int, kind: str = HEADLESS_SHELL) -> Weight:
    """Of one context, in a browser with so many."""
    async with launched(kind, is_as_it_comes=True) as browser:
        for _ in range(count):
            page = await browser.new_page()
            await page.load(url)
        return _settled([browser.pid]) / count


async def _own_browser_weight(url: str, kind: str, count: int) -> Weight:
    """Of one session, with a browser for each."""
    async with AsyncExitStack() as stack:
        browsers = [await stack.enter_async_context(launched(kind, is_as_it_comes=True)) for _ in range(count)]
        for browser in browsers:
            page = await browser.first_page()
            await page.load(url)
        return _settled([browser.pid for browser in browsers]) / count


def _peer_weight(peer: Peer, url: str, count: int) -> Weight:
    """Of one session, among so many that a peer has open; raises `Absent`."""
    with running_peer(peer, places=count) as running_now:
        return _settled(running_now.hold(count, url)) / count


def _settled(pids: list[int]) -> Weight:
    """What these browsers weigh when they are quiet, and nobody else's take a part of it."""
    time.sleep(SETTLE_S)
    limit = time.monotonic() + STRANGERS_LIMIT_S
    while strangers(pids):
        if time.monotonic() > limit:
            raise RuntimeError("Other browsers of the same build run on this machine: end them, or nothing is known.")
        time.sleep(POLL_S)
    return weight_of_trees(pids)


def _open(callers: list[Caller], count: int, url: str) -> list[Opened]:
    """So many sessions with the page loaded, shared out among the callers."""

    def part(caller: Caller, numbers: Iterable[int]) -> list[Opened]:
        return [caller.open(agentId=f"agent-{number}", url=url) for number in numbers]

    with ThreadPoolExecutor(len(callers)) as threads:
        parts = [
            threads.submit(part, caller, range(first, count, len(callers))) for first, caller in enumerate(callers)
        ]
        return [session for each in parts for session in each.result()]


def _asked_ms(caller: Caller, session: Opened) -> float:
    began = now_ms()
    title = caller.evaluate(session.tab_id, "document.title")
    assert title == "Small page ready", f"{session.session_id} answered {title!r}"
    return now_ms() - began
