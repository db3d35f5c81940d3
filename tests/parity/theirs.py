"""Playwright's side of a situation: the same pages, in a browser of the same build that it is connected to over CDP."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from playwright.async_api import Browser, Error, Page, async_playwright
from tests.actions.site import serving

from tabherd.browsers.chromium import ChromiumBrowser

from .ours import LOOKS, put_on
from .situation import PATIENT_MS, End, Outcome, Situation

# What its message says of a refusal that no waiting would have cured.
_REFUSALS: Final[tuple[tuple[str, End], ...]] = (
    ("strict mode violation", "ambiguous"),
    ("is not a valid selector|is not a valid XPath|Unexpected token|while parsing", "invalid_selector"),
    ("net::ERR_", "navigation_failed"),
    (
        "Element is not an? |Not a checkbox|cannot be filled|Malformed value|Cannot type text|does not have"
        "|Cannot uncheck|did not change its state",
        "wrong_kind",
    ),
)
# What its call log says of the element, look for look: the last line of these tells what it lacked in the end.
_LACKS: Final[tuple[tuple[str, End], ...]] = (
    ("element is not visible|resolved to hidden|inside a hidden frame", "not_visible"),
    ("element is not enabled", "disabled"),
    ("element is not editable", "read_only"),
    ("element is not stable", "unstable"),
    ("intercepts pointer events|element is inert", "covered"),
    ("element is outside of the viewport", "outside"),
    ("did not find some options", "no_option"),
    ("option being selected is not enabled", "disabled"),
    ("element was detached from the DOM", "not_found"),
)
_NAVIGATED: Final = "Execution context was destroyed"
_FOUND: Final = re.compile(r"locator resolved to")
_SOUGHT: Final = re.compile(r"waiting for .*(locator|frame)", re.IGNORECASE)


@asynccontextmanager
async def connected(browser: ChromiumBrowser) -> AsyncIterator[Browser]:
    """Playwright, connected to that browser. It attaches to every page there is, so ours are in another."""
    async with async_playwright() as playwright:
        client = await playwright.chromium.connect_over_cdp(browser.row.endpoint)
        try:
            yield client
        finally:
            await client.close()


async def fresh_page(client: Browser) -> Page:
    """A page in a context of its own."""
    # Without a viewport of its own, so that both have the browser's.
    context = await client.new_context(no_viewport=True)
    return await context.new_page()


async def their_outcome(client: Browser, situation: Situation) -> Outcome:
    """What comes of it. It is the measure, so on a busy machine it gets more tries, with more time each."""
    for limit_ms in _limits(situation):
        page = await fresh_page(client)
        try:
            outcome = await _outcome(page, situation, limit_ms)
        finally:
            await page.context.close()
        if outcome.end == _wanted(situation):
            break
    return outcome


async def their_outcome_on(page: Page, situation: Situation) -> Outcome:
    """The same on a page on which others were played before."""
    for limit_ms in _limits(situation):
        # The mouse goes to the corner where it was at the start.
        await page.mouse.move(0, 0)
        outcome = await _outcome(page, situation, limit_ms)
        if outcome.end == _wanted(situation):
            break
    return outcome


def _limits(situation: Situation) -> list[int]:
    limits = (situation.limit_ms, 4 * situation.limit_ms, 20 * situation.limit_ms, PATIENT_MS)
    return [min(limit_ms, PATIENT_MS) for limit_ms in limits]


def _wanted(situation: Situation) -> End:
    return situation.end if situation.theirs_pinned is None else situation.theirs_pinned.end


async def _outcome(page: Page, situation: Situation, limit_ms: int) -> Outcome:
    async with serving() as site:
        put_on(site, situation)
        page.set_default_timeout(PATIENT_MS)
        await page.goto(site.origin + "/")
        page.set_default_timeout(limit_ms)
        end: End = "ok"
        try:
            await situation.theirs(page)
        except Error as error:
            end = _called(error)
        return Outcome(end=end, seen=await _seen(page, situation.seen))


async def _seen(page: Page, expression: str) -> Any:
    for _ in range(LOOKS):
        try:
            return await page.evaluate(expression)
        except Error as error:
            # What was done has sent the page on.
            if _NAVIGATED not in error.message:
                raise
    raise AssertionError("the page does not come to rest")


def _called(error: Error) -> End:
    message, _, log = error.message.partition("Call log:")
    for pattern, end in _REFUSALS:
        if re.search(pattern, message):
            return end
    lacked = [end for line in log.splitlines() for pattern, end in _LACKS if re.search(pattern, line)]
    if lacked:
        return lacked[-1]
    if error.name != "TimeoutError":
        return "javascript_error"
    return "not_found" if _SOUGHT.search(log) and not _FOUND.search(log) else "timed_out"
