"""`acquire`: from asking for a session to its first evaluate, over HTTP, beside what Chromium itself needs for it.

Warm and cold come from two pools of one server. The limit is a context and a tab made over CDP on the same build,
without a broker, until the page answers; the peer is a headless-shell launched for each session. All of it takes turns,
round by round. The bare calls alone return before the page exists (its process is still starting), while a session that
is answered has a tab that has answered; their time is shown for what it is.

The other peers share browsers, or launch one for each client: puppeteer-cluster, Crawlee's browser pool, browserless.
Each measures itself, in its own process: from asking for an isolated session to the first answer of its page.

The same for a client of the CDP endpoint: Playwright connects, which leases a session, and evaluates in the page that
it finds; beside it, Playwright launches a browser of the same build, opens a page, and evaluates.

Before each warm acquire the stock has had time to be refilled: the warm figures are those of a hit. What a caller
meets who asks faster than the stock is refilled is the burst.
"""

from __future__ import annotations

import statistics
import time
from typing import Final

import uvloop
from playwright.async_api import Playwright, async_playwright

from bench import Figure, percentile
from bench.rig.caller import Caller, Opened, now_ms
from bench.rig.direct import HEADLESS_SHELL, DirectBrowser, DirectPage, found, launched
from bench.rig.peer_browsers import (
    BROWSERLESS,
    CLUSTER_BROWSER,
    CLUSTER_CONTEXT,
    CRAWLEE,
    RunningPeer,
    each_of,
    running_peers,
)
from bench.rig.plot import Plot, distribution
from bench.rig.server import Server, running

ROUNDS: Final = 100
# One launch in so many rounds: each takes as long as a hundred acquires.
LAUNCH_EVERY: Final = 10
# Playwright's connect and launch, once in so many.
PLAYWRIGHT_EVERY: Final = 5
# The other peers, once in so many.
PEERS_EVERY: Final = 5
PEERS: Final = (CLUSTER_CONTEXT, CLUSTER_BROWSER, CRAWLEE, BROWSERLESS)
BURSTS: Final = 5
BURST: Final = 20
WARM: Final = 4
# After everything that leaves work behind: a refill, a context being disposed of.
PAUSE_S: Final = 0.15
BURST_PAUSE_S: Final = 1.5
POLL_S: Final = 0.02
BAR_MS: Final = 10.0
BAR_RATIO: Final = 0.3
# How many times as long as a connect a launch takes.
BAR_LAUNCH: Final = 3.0

# Making a session or context with its tab, and the first evaluate in it, each in milliseconds.
Sample = tuple[float, float]


def run() -> dict[str, Figure | Plot]:
    return uvloop.run(_measure())


async def _measure() -> dict[str, Figure | Plot]:
    warm: list[Sample] = []
    cold: list[Sample] = []
    direct: list[Sample] = []
    launches: list[float] = []
    bursts: list[float] = []
    direct_bursts: list[float] = []
    connects: list[float] = []
    playwright_launches: list[float] = []
    theirs: dict[str, list[float]] = {}
    # The session of a client that has left is over at once: the next one must find a warm context.
    settings = {"pools__default__warm": WARM, "pools__default__disconnect_grace_s": 0, "pools__cold__warm": 0}
    with (
        running(**settings) as server,
        running_peers(PEERS, places=WARM) as (peers, absent),
    ):
        # Not counted: some launch a browser at first use.
        each_of(peers, absent, RunningPeer.acquire_ms)
        # A connection that nobody uses for long is closed, so it is made last.
        async with launched() as browser, async_playwright() as playwright:
            with server.caller() as caller:
                for turn in range(ROUNDS):
                    warm.append(_acquire(caller, "default", WARM))
                    cold.append(_acquire(caller, "cold", 0))
                    direct.append(await _acquire_directly(browser))
                    if turn % LAUNCH_EVERY == 0:
                        launches.append(await _launch())
                    if turn % PLAYWRIGHT_EVERY == 0:
                        connects.append(await _connect_playwright(playwright, server, caller))
                        playwright_launches.append(await _launch_playwright(playwright))
                    if turn % PEERS_EVERY == 0:
                        for name, took_ms in each_of(peers, absent, _acquire_of).items():
                            theirs.setdefault(name, []).append(took_ms)
                for _ in range(BURSTS):
                    bursts.append(_burst(caller))
                    direct_bursts.append(await _burst_directly(browser))
    theirs = {name: samples for name, samples in theirs.items() if name not in absent}
    return {
        **_figures(warm, cold, direct, launches, theirs, absent),
        "bare_calls_p50": Figure.median_of([made for made, _ in direct], "ms"),
        f"burst_of_{BURST}_each": Figure.median_of(bursts, "ms", others={"direct": direct_bursts}),
        **_playwright_figures(connects, playwright_launches),
        "acquire_latency": Plot(
            title="From asking for a session to its first answer",
            x="ms",
            y="% of sessions that had answered",
            series={
                "tabherd, warm": distribution([sum(sample) for sample in warm]),
                "tabherd, cold": distribution([sum(sample) for sample in cold]),
                "direct new context": distribution([sum(sample) for sample in direct]),
                **{name: distribution(samples) for name, samples in theirs.items()},
                "Playwright's own launch": distribution(playwright_launches),
            },
            is_log_x=True,
        ),
    }


def _figures(
    warm: list[Sample],
    cold: list[Sample],
    direct: list[Sample],
    launches: list[float],
    theirs: dict[str, list[float]],
    absent: dict[str, str],
) -> dict[str, Figure]:
    bare = [made for made, _ in direct]
    usable = [made + answered for made, answered in direct]
    limits = {"direct": usable, "one headless-shell each": launches}
    figures: dict[str, Figure] = {}
    for name, samples, is_held in (("warm", warm, True), ("cold", cold, False)):
        opened = [open_ms for open_ms, _ in samples]
        answered = [open_ms + evaluate_ms for open_ms, evaluate_ms in samples]
        bar_ms, bar_ratio = (BAR_MS, BAR_RATIO) if is_held else (None, None)
        # What peers measure ends with an answer of the page.
        for step, ours, peers, missing in (
            ("open", opened, limits, {}),
            ("first_evaluate", answered, limits | theirs, absent),
        ):
            figures[f"{name}_{step}_p50"] = Figure.median_of(ours, "ms", others=peers, absent=missing, at_most=bar_ms)
            figures[f"{name}_{step}_p99"] = Figure(
                ours=percentile(ours, 99),
                unit="ms",
                others={peer: percentile(theirs, 99) for peer, theirs in peers.items()},
            )
            figures[f"{name}_{step}_to_direct"] = Figure(
                ours=statistics.median(ours) / statistics.median(usable), unit="ratio", at_most=bar_ratio
            )
        figures[f"{name}_open_to_bare_calls"] = Figure(
            ours=statistics.median(opened) / statistics.median(bare), unit="ratio"
        )
    return figures


def _playwright_figures(connects: list[float], launches: list[float]) -> dict[str, Figure]:
    return {
        "playwright_connect_first_evaluate_p50": Figure.median_of(
            connects, "ms", others={"Playwright's own launch": launches}
        ),
        "playwright_launch_to_connect": Figure(
            ours=statistics.median(launches) / statistics.median(connects), unit="ratio", at_least=BAR_LAUNCH
        ),
    }


def _acquire(caller: Caller, pool: str, stock: int) -> Sample:
    """With that many warm contexts in stock."""
    _wait_for_stock(caller, pool, stock)
    began = now_ms()
    session = caller.open(pool=pool)
    opened = now_ms()
    caller.evaluate(session.tab_id)
    evaluated = now_ms()
    caller.release(session)
    return opened - began, evaluated - opened


def _wait_for_stock(caller: Caller, pool: str, stock: int) -> None:
    while caller.stock(pool) < stock:
        time.sleep(POLL_S)
    time.sleep(PAUSE_S)


async def _acquire_directly(browser: DirectBrowser) -> Sample:
    time.sleep(PAUSE_S)
    began = now_ms()
    page = await browser.new_page()
    opened = now_ms()
    await page.evaluate()
    evaluated = now_ms()
    await browser.dispose(page)
    return opened - began, evaluated - opened


async def _launch() -> float:
    time.sleep(PAUSE_S)
    began = now_ms()
    async with launched() as browser:
        page = await browser.first_page()
        await page.evaluate()
        return now_ms() - began


def _acquire_of(peer: RunningPeer) -> float:
    time.sleep(PAUSE_S)
    return peer.acquire_ms()


async def _connect_playwright(playwright: Playwright, server: Server, caller: Caller) -> float:
    _wait_for_stock(caller, "default", WARM)
    began = now_ms()
    browser = await playwright.chromium.connect_over_cdp(f"{server.url}?token={server.token}")
    try:
        (page,) = browser.contexts[0].pages
        assert await page.evaluate("1 + 1") == 2
        return now_ms() - began
    finally:
        await browser.close()


async def _launch_playwright(playwright: Playwright) -> float:
    program = found(HEADLESS_SHELL).path
    time.sleep(PAUSE_S)
    began = now_ms()
    browser = await playwright.chromium.launch(executable_path=program)
    try:
        page = await browser.new_page()
        assert await page.evaluate("1 + 1") == 2
        return now_ms() - began
    finally:
        await browser.close()


def _burst(caller: Caller) -> float:
    """Milliseconds per session, one after the other without a pause."""
    time.sleep(BURST_PAUSE_S)
    sessions: list[Opened] = []
    began = now_ms()
    for _ in range(BURST):
        session = caller.open()
        caller.evaluate(session.tab_id)
        sessions.append(session)
    each_ms = (now_ms() - began) / BURST
    for session in sessions:
        caller.release(session)
    return each_ms


async def _burst_directly(browser: DirectBrowser) -> float:
    time.sleep(BURST_PAUSE_S)
    pages: list[DirectPage] = []
    began = now_ms()
    for _ in range(BURST):
        page = await browser.new_page()
        await page.evaluate()
        pages.append(page)
    each_ms = (now_ms() - began) / BURST
    for page in pages:
        await browser.dispose(page)
    return each_ms
