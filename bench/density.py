"""`density`: what an idle isolated session weighs, beside a browser of its own for each; and how many fit.

Every session has the same small page loaded. Weight is the proportional set size of the browser with all its
processes, divided by the sessions in it. One kind is alive at a time: processes of the same build share its code, and
a neighbour would make each other's share look smaller. Several of each peer run together for the same reason.
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
from bench.rig.memory import pss_mb, tree_pss_mb
from bench.rig.server import running
from bench.rig.site import small_page

PER_BROWSER: Final = (25, 50)
SHELLS: Final = 5
FULLS: Final = 3
# Until a page that has loaded has become quiet.
SETTLE_S: Final = 4.0
# Ours per session, of one browser of that kind per session.
BAR_SHELL: Final = 1 / 4
BAR_FULL: Final = 1 / 12

CROWD: Final = 500
CROWD_PER_BROWSER: Final = 50
# Callers that open sessions at once.
CROWD_CALLERS: Final = 8
# Nobody touches the first session until the last is open.
IDLE_TTL_S: Final = 3_600


def run() -> dict[str, Figure]:
    with small_page() as url:
        ours = {count: _browser_mb(url, count) for count in PER_BROWSER}
        shell_mb = uvloop.run(_own_browser_mb(url, HEADLESS_SHELL, SHELLS))
        full_mb = uvloop.run(_own_browser_mb(url, FULL, FULLS))
    others = {"one headless-shell each": shell_mb, "one full Chromium each": full_mb}
    figures: dict[str, Figure] = {}
    for count, each_mb in ours.items():
        figures[f"session_pss_at_{count}"] = Figure(ours=each_mb, unit="MB", others=others)
    for count, each_mb in ours.items():
        # The bars are set for the smaller browser, which has more of its own weight to share out.
        is_held = count == PER_BROWSER[0]
        figures[f"to_headless_shell_at_{count}"] = Figure(
            ours=each_mb / shell_mb, unit="ratio", at_most=BAR_SHELL if is_held else None
        )
        figures[f"to_full_chromium_at_{count}"] = Figure(
            ours=each_mb / full_mb, unit="ratio", at_most=BAR_FULL if is_held else None
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
        browsers_mb = sum(tree_pss_mb(pid) for pid in callers[0].browser_pids())
        broker_mb = pss_mb(server.pid)
    return {
        f"live_of_{CROWD}": Figure(ours=len(answers_ms), unit="sessions", at_least=CROWD),
        f"open_{CROWD}": Figure(ours=opened_s, unit="s"),
        f"evaluate_p50_among_{CROWD}": Figure.median_of(answers_ms, "ms"),
        f"evaluate_p99_among_{CROWD}": Figure(ours=percentile(answers_ms, 99), unit="ms"),
        f"browsers_pss_with_{CROWD}": Figure(ours=browsers_mb, unit="MB"),
        f"broker_pss_with_{CROWD}": Figure(ours=broker_mb, unit="MB"),
        f"session_pss_among_{CROWD}": Figure(ours=(browsers_mb + broker_mb) / CROWD, unit="MB"),
    }


def _browser_mb(url: str, count: int) -> float:
    """Per session, in one browser of a server that is full."""
    settings = {
        "pools__default__browsers_max": 1,
        "pools__default__sessions_per_browser": count,
        "pools__default__warm": 0,
    }
    with running(**settings) as server, server.caller() as caller:
        _open([caller], count, url)
        time.sleep(SETTLE_S)
        (pid,) = caller.browser_pids()
        return tree_pss_mb(pid) / count


async def _own_browser_mb(url: str, kind: str, count: int) -> float:
    """Per session, with a browser for each."""
    async with AsyncExitStack() as stack:
        browsers = [await stack.enter_async_context(launched(kind)) for _ in range(count)]
        for browser in browsers:
            page = await browser.first_page()
            await page.load(url)
        time.sleep(SETTLE_S)
        return sum(tree_pss_mb(browser.pid) for browser in browsers) / count


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
