"""Our side of a situation: the engine on a fresh page in a context of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.actions.driving import act, ask
from tests.actions.site import Site, serving
from tests.browsers.real import blank_tab

from tabherd import wire
from tabherd.actions.engine import perform
from tabherd.actions.progress import Progress
from tabherd.browsers.chromium import ChromiumBrowser
from tabherd.browsers.driver import ChromiumTab
from tabherd.errors import CommandTimedOut, JavascriptError, TabherdError

from .situation import OTHER, End, Outcome, Situation

# How our errors are called here: by code, and where the page was found wanting by what it lacked.
_CODES: Final[dict[str, End]] = {
    "element_not_found": "not_found",
    "element_not_actionable": "wrong_kind",
    "ambiguous_target": "ambiguous",
    "invalid_selector": "invalid_selector",
    "javascript_error": "javascript_error",
    "navigation_failed": "navigation_failed",
    "command_timed_out": "timed_out",
}
_LACKS: Final[dict[str, End]] = {
    "visible": "not_visible",
    "enabled": "disabled",
    "editable": "read_only",
    "stable": "unstable",
    "receives_events": "covered",
    "option": "no_option",
    "option_enabled": "disabled",
    "hidden": "timed_out",
    "detached": "timed_out",
}
# How often, and how far apart, an end that is late is looked for.
LATE_LOOKS: Final = 1_200
LATE_LOOK_S: Final = 0.05
# How often a page that goes on to another is asked what it has seen.
LOOKS: Final = 20
_OUTSIDE: Final = "outside of the viewport"


def put_on(site: Site, situation: Situation) -> None:
    """Have the site serve the pages of the situation."""
    site.own = {path: html.replace(OTHER, site.other_origin) for path, html in situation.pages.items()}


class Stage:
    """A page on which a situation can be played again and again: each time its documents are loaded anew."""

    def __init__(self, tab: ChromiumTab, site: Site, situation: Situation) -> None:
        self._tab = tab
        self._site = site
        self._situation = situation

    async def play(self) -> Outcome:
        await act(self._tab, wire.Navigate(url=self._site.origin + "/"))
        end = await self._end()
        return Outcome(end=end, seen=await _seen(self._tab, self._situation.seen))

    async def clear(self) -> None:
        """The mouse goes to the corner where it was at the start."""
        await self._tab.call("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": 0, "y": 0})

    async def _end(self) -> End:
        for action in self._situation.ours:
            try:
                await _within(self._tab, action, self._situation.our_limit_ms / 1000, self._situation.our_end)
            except TabherdError as error:
                return _called(error)
        return "ok"


@asynccontextmanager
async def staged(browser: ChromiumBrowser, situation: Situation) -> AsyncIterator[Stage]:
    """A fresh page in a context of its own."""
    async with serving() as site:
        put_on(site, situation)
        tab = await blank_tab(browser)
        try:
            yield Stage(tab, site, situation)
        finally:
            await browser.close_tab(tab.target_id)


async def our_outcome(browser: ChromiumBrowser, situation: Situation) -> Outcome:
    async with staged(browser, situation) as stage:
        return await stage.play()


async def our_outcome_on(tab: ChromiumTab, situation: Situation) -> Outcome:
    """The same on a page on which others were played before."""
    async with serving() as site:
        put_on(site, situation)
        stage = Stage(tab, site, situation)
        await stage.clear()
        return await stage.play()


async def _within(tab: ChromiumTab, action: wire.AnyAction, limit_s: float, wanted: End) -> None:
    """As the broker does it: at the limit the action is ended, and told is what it waited for.

    But what is asked here is what the page lacks: on a busy machine its scripts, and our looks at it, may take longer
    than a short limit.
    """
    progress = Progress()
    running = asyncio.ensure_future(perform(tab, action, progress))
    try:
        await asyncio.wait([running], timeout=limit_s)
        for _ in range(LATE_LOOKS):
            # Nothing is known before a look is answered: of one by itself, and of one that may act at once.
            is_known = progress.waiting_for not in ("page", "") and (failure := progress.failure()) is not None
            if running.done() or (is_known and _called(failure) == wanted):
                break
            await asyncio.wait([running], timeout=LATE_LOOK_S)
        if not running.done():
            raise progress.failure() or CommandTimedOut("Its time ran out while it ran.")
        running.result()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _seen(tab: ChromiumTab, expression: str) -> Any:
    for _ in range(LOOKS):
        try:
            return await ask(tab, expression)
        except JavascriptError as error:
            # What was done has sent the page on.
            if error.details.get("reason") != "navigated":
                raise
    raise AssertionError("the page does not come to rest")


def _called(error: TabherdError) -> End:
    if error.details.get("reason") == _OUTSIDE:
        return "outside"
    return _LACKS.get(error.details.get("waitingFor", ""), _CODES[error.code])
