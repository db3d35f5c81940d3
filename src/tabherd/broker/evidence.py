"""What a command's answer tells besides its result: dialogs that opened, and how a page looks that did not allow it.

Invariants:
- Every dialog is told to one command: the one that ran when it opened, or else the next.
- A picture is taken while the tab is still the command's, and within a limit. Whatever becomes of it, the command fails
  with the error that it had.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from .. import wire
from ..actions.progress import Progress
from ..browsers.dialogs import Told
from ..browsers.port import BrowserGone, TabGone, TabPort
from ..errors import (
    AmbiguousTarget,
    ElementNotActionable,
    ElementNotFound,
    JavascriptError,
    NavigationFailed,
    StaleRef,
    StateConflict,
    TabherdError,
)
from .leases import Perform

# Enough for a tab that has to be brought to the front first (see `actions.screenshot`).
PICTURE_LIMIT_S: Final = 3.0
# Between two documents there is a moment without one.
RETRY_S: Final = 0.05
# A viewport can be large; what is larger as base64 is not sent along with an error.
PICTURE_MAX_CHARS: Final = 4 << 20
PICTURE: Final = wire.Screenshot(format="jpeg")

# What the page has answered, so that a look at it tells why.
_PAGE_ANSWERS: Final = frozenset(
    kind.code
    for kind in (
        ElementNotFound,
        ElementNotActionable,
        StaleRef,
        AmbiguousTarget,
        NavigationFailed,
        JavascriptError,
    )
)


def begin_dialogs(port: TabPort, action: wire.AnyAction) -> None:
    """From now on dialogs of the page are answered as this action wants it."""
    accepts = None if action.dialogs is None else action.dialogs == "accept"
    port.dialogs.begin(accepts, action.prompt_text)


def views_of(told: Told) -> tuple[wire.DialogView, ...]:
    return tuple(wire.DialogView(**msgspec.structs.asdict(dialog)) for dialog in told.dialogs)


def details_of(told: Told) -> dict[str, Any]:
    """For the details of an error and the record of an outcome; empty when nothing opened."""
    if not told.dialogs:
        return {}
    details: dict[str, Any] = {"dialogs": msgspec.to_builtins(views_of(told))}
    return {**details, "moreDialogs": told.more} if told.more else details


def is_page_answer(error: Mapping[str, Any]) -> bool:
    """Whether that error, as it is on the wire, is one of which a look at the page tells more."""
    return error["code"] in _PAGE_ANSWERS


async def photograph(perform: Perform, port: TabPort) -> dict[str, str]:
    """For the details of an error: the picture, or why there is none."""
    try:
        async with asyncio.timeout(PICTURE_LIMIT_S):
            picture = await _picture(perform, port)
    except TimeoutError:
        return {"screenshotError": f"The page could not be photographed within {PICTURE_LIMIT_S:.0f} s."}
    except (BrowserGone, TabGone, TabherdError) as error:
        return {"screenshotError": str(error)}
    if len(picture) > PICTURE_MAX_CHARS:
        return {"screenshotError": f"The picture would have {len(picture)} characters."}
    return {"screenshot": picture}


async def _picture(perform: Perform, port: TabPort) -> str:
    """As soon as there is a page: after a navigation that failed, Chromium's own is about to come."""
    while True:
        try:
            picture: str = await perform(port, PICTURE, Progress())
        except StateConflict:
            await asyncio.sleep(RETRY_S)
        else:
            return picture
