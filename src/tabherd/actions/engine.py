"""Performs one action on one tab and answers with its result, or with an error from the tree.

Invariants:
- `BrowserGone` passes through: only the broker knows what becomes of the session. No other error of the browser layer
  does: a page that closed or crashed under the action, and whatever Chromium refuses, become typed errors here.
- There is no timeout in here. The caller holds the one deadline and cancels; every action then takes its listeners
  and half-done waits with it.

A new kind is a function and a line in the table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from .. import wire
from ..browsers.port import CdpFailure, TabGone, TabPort
from ..errors import OutcomeUnknown, StateConflict, TabDead
from .evaluate import evaluate
from .navigate import navigate
from .screenshot import screenshot
from .text import text

PERFORMERS: Final[Mapping[type[wire.Action], Callable[[TabPort, Any], Awaitable[Any]]]] = {
    wire.Navigate: navigate,
    wire.Evaluate: evaluate,
    wire.Text: text,
    wire.Screenshot: screenshot,
}


async def perform(tab: TabPort, action: wire.AnyAction) -> Any:
    """Do it, and return what goes into the command's `result`."""
    try:
        return await PERFORMERS[type(action)](tab, action)
    except TabGone as gone:
        if gone.was_sent:
            raise OutcomeUnknown(str(gone)) from gone
        raise TabDead(str(gone)) from gone
    except CdpFailure as failure:
        raise StateConflict(
            f"The page does not allow this now: {failure.message}.", method=failure.method, error=failure.message
        ) from failure
