"""`action`: what one action costs through HTTP, beside Playwright and beside the bare CDP call, in turns.

Three browsers of one build show the same page: the broker's, one that Playwright drives over CDP, and one that nobody
is in but the direct calls. Requests are bytes on a kept connection; Playwright is its Python client. `evaluate` has a
limit: one `Runtime.evaluate` on a socket. `snapshot` is beside Playwright's `aria_snapshot`, `text` beside its
`inner_text`; `snapshot_1000` is that of a page of more than a thousand elements. After the last round the pages must
show that every click and word arrived, in theirs as in ours.

How long a snapshot is for a model is estimated, rather too high (`bench/rig/tokens.py`), for pages like those that
agents meet (`bench/rig/ordinary`).

Headless-shell, and in the long run full Chromium, whose figures begin with `full_`.
"""

from __future__ import annotations

import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import uvloop
from playwright.async_api import Page as PlaywrightPage
from playwright.async_api import async_playwright

from bench import Figure, percentile
from bench.rig.caller import Caller, now_ms
from bench.rig.direct import FULL, HEADLESS_SHELL, DirectPage, launched
from bench.rig.server import running
from bench.rig.site import CROWDED_PATH, DESK_PATH, ORDINARY, ORDINARY_PATH, small_page
from bench.rig.tokens import tokens_in

ROUNDS: Final = 200
# Not counted: whatever is made at first use.
WARM_UP: Final = 5
BAR_EVALUATE: Final = 2.0
BAR_PLAYWRIGHT: Final = 1.0
BAR_SNAPSHOT_MS: Final = 50
BAR_TOKENS: Final = 1_000
CROWDED_ELEMENTS: Final = 1_000
OURS: Final = "ours"
DIRECT: Final = "direct"
PLAYWRIGHT: Final = "Playwright"
EXPRESSION: Final = "1 + 1"
CROWDED_SNAPSHOT: Final = "snapshot_1000"
BUTTON: Final = "#go"
FIELD: Final = "#name"
COUNT: Final = "document.body.querySelectorAll('*').length"
STATE: Final = "[window.clicks, document.querySelector('#name').value]"

# An action; it is told the number of the round.
Act: TypeAlias = Callable[[int], Awaitable[Any]]
# Milliseconds, by the action and by who did it.
Samples: TypeAlias = dict[str, dict[str, list[float]]]


def run() -> dict[str, Figure]:
    return _figures(uvloop.run(_measure(HEADLESS_SHELL)), "") | uvloop.run(_tokens())


def run_long() -> dict[str, Figure]:
    return _figures(uvloop.run(_measure(FULL)), "full_")


def _figures(samples: Samples, prefix: str) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for action, by in samples.items():
        others = {who: theirs for who, theirs in by.items() if who != OURS}
        bar = BAR_SNAPSHOT_MS if action == CROWDED_SNAPSHOT else None
        figures[f"{prefix}{action}_p50"] = Figure.median_of(by[OURS], "ms", others=others, at_most=bar)
        figures[f"{prefix}{action}_p99"] = Figure(
            ours=percentile(by[OURS], 99),
            unit="ms",
            others={who: percentile(theirs, 99) for who, theirs in others.items()},
        )
    bars = (("evaluate", DIRECT, BAR_EVALUATE), *((each, PLAYWRIGHT, BAR_PLAYWRIGHT) for each in ("click", "fill")))
    for action, other, ratio in bars:
        by = samples[action]
        figures[f"{prefix}{action}_to_{other.lower()}"] = Figure(
            ours=statistics.median(by[OURS]) / statistics.median(by[other]), unit="ratio", at_most=ratio
        )
    return figures


async def _tokens() -> dict[str, Figure]:
    """How long the snapshots of ordinary pages are."""
    figures = {}
    with small_page() as site, running(pools__default__browser=HEADLESS_SHELL) as server, server.caller() as caller:
        async with _playwright_page(HEADLESS_SHELL, site) as page:
            tab_id = caller.open(keepAlive=True).tab_id
            for name in ORDINARY:
                address = f"{site}{ORDINARY_PATH}{name}"
                caller.act(tab_id, "navigate", url=address)
                await page.goto(address)
                theirs = tokens_in(await page.locator("body").aria_snapshot())
                figures[f"tokens_{name}"] = Figure(
                    ours=tokens_in(caller.act(tab_id, "snapshot")),
                    unit="tokens",
                    others={PLAYWRIGHT: theirs},
                    at_most=BAR_TOKENS,
                )
    return figures


async def _measure(kind: str) -> Samples:
    with small_page() as site, running(pools__default__browser=kind) as server, server.caller() as caller:
        desk, crowded = site + DESK_PATH, site + CROWDED_PATH
        tab_id = caller.open(keepAlive=True, url=desk).tab_id
        async with launched(kind) as lonely, _playwright_page(kind, desk) as page:
            bare = await lonely.new_page()
            await bare.load(desk)
            samples = await _in_turns(_actions(caller, tab_id, page, bare))
            turns = WARM_UP + ROUNDS
            expected = [turns, _word(turns - 1)]
            assert caller.evaluate(tab_id, STATE) == expected
            assert await page.evaluate(STATE) == expected
            # By itself, so that what it does to the processor's caches is not measured with the others.
            caller.act(tab_id, "navigate", url=crowded)
            await page.goto(crowded)
            assert caller.evaluate(tab_id, COUNT) >= CROWDED_ELEMENTS
            both: dict[str, Act] = {
                OURS: _ours(caller, tab_id, "snapshot"),
                PLAYWRIGHT: lambda turn: page.locator("body").aria_snapshot(),
            }
            samples |= await _in_turns({CROWDED_SNAPSHOT: both})
    return samples


async def _in_turns(actions: dict[str, dict[str, Act]]) -> Samples:
    samples: Samples = {action: {who: [] for who in by} for action, by in actions.items()}
    for turn in range(WARM_UP + ROUNDS):
        for action, by in actions.items():
            # In either order, so that nobody always comes after the same one.
            for who, act in list(by.items())[:: 1 if turn % 2 else -1]:
                began = now_ms()
                await act(turn)
                if turn >= WARM_UP:
                    samples[action][who].append(now_ms() - began)
    return samples


@asynccontextmanager
async def _playwright_page(kind: str, url: str) -> AsyncIterator[PlaywrightPage]:
    """The page in a browser of its own that Playwright is connected to."""
    async with launched(kind) as browser, async_playwright() as playwright:
        driven = await playwright.chromium.connect_over_cdp(browser.endpoint)
        try:
            page = await (await driven.new_context()).new_page()
            await page.goto(url)
            yield page
        finally:
            await driven.close()


def _actions(caller: Caller, tab_id: str, page: PlaywrightPage, bare: DirectPage) -> dict[str, dict[str, Act]]:
    """By name, and by who does it."""

    async def fill_ours(turn: int) -> None:
        caller.act(tab_id, "fill", selector=FIELD, value=_word(turn))

    return {
        "evaluate": {
            OURS: _ours(caller, tab_id, "evaluate", expression=EXPRESSION),
            DIRECT: lambda turn: bare.evaluate(EXPRESSION),
            PLAYWRIGHT: lambda turn: page.evaluate(EXPRESSION),
        },
        "click": {OURS: _ours(caller, tab_id, "click", selector=BUTTON), PLAYWRIGHT: lambda turn: page.click(BUTTON)},
        "fill": {OURS: fill_ours, PLAYWRIGHT: lambda turn: page.fill(FIELD, _word(turn))},
        "snapshot": {
            OURS: _ours(caller, tab_id, "snapshot"),
            PLAYWRIGHT: lambda turn: page.locator("body").aria_snapshot(),
        },
        "text": {OURS: _ours(caller, tab_id, "text"), PLAYWRIGHT: lambda turn: page.inner_text("body")},
    }


def _ours(caller: Caller, tab_id: str, kind: str, **params: Any) -> Act:
    async def act(turn: int) -> None:
        caller.act(tab_id, kind, **params)

    return act


def _word(turn: int) -> str:
    return f"word {turn}"
