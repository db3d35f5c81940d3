"""Takes a step with an element in the same task of the page as the look that found it ready.

The page has no moment to change in between, and the round trip of a second message is saved. A look whose step may
follow is a short one: while it is under way the page counts as acted upon, so whoever gives up then is not told that
it is untouched. The long waiting is done by looks that take no step.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ..browsers.port import TabPort
from .locate import RETRY_S, Held, Search, locate, look
from .navigations import Navigations
from .progress import Progress
from .world import DocumentLost

# What an element lacks that only a step can tell is asked for again so often.
AGAIN_S: Final = 0.05


async def take_step(
    tab: TabPort,
    search: Search,
    progress: Progress,
    name: str,
    argument: Any = None,
    *,
    asked: str | None = None,
    navigations: Navigations | None = None,
) -> Held:
    """The element as it was when it was ready, with the answer of the step; what never will work is raised.

    A step that may find something missing itself has another one, `asked`, that changes nothing and finds the same.
    `navigations` then knows of those that the step has begun, and of none that was going on while it was waited for.
    """
    then = {"name": name, "argument": argument}
    while True:
        progress.acts()
        if navigations is not None:
            navigations.start_anew()
        try:
            outcome = await look(tab, search, slice_ms=0, then=then)
        except DocumentLost:
            progress.waits("page", target=search.label)
            await asyncio.sleep(RETRY_S)
            continue
        if isinstance(outcome, Held):
            return outcome
        _waits(progress, search, outcome)
        await locate(tab, search, progress)
        if asked is not None:
            await _until(tab, search, progress, {"name": asked, "argument": argument})


async def _until(tab: TabPort, search: Search, progress: Progress, then: dict[str, Any]) -> None:
    """Returns when a step that changes nothing finds nothing missing, or cannot be taken because the page goes on."""
    while True:
        try:
            outcome = await look(tab, search, slice_ms=0, then=then)
        except DocumentLost:
            return
        if isinstance(outcome, Held):
            return
        _waits(progress, search, outcome)
        await asyncio.sleep(AGAIN_S)


def _waits(progress: Progress, search: Search, outcome: dict[str, Any]) -> None:
    progress.waits(outcome.pop("unmet"), target=search.label, **outcome)
