"""Reads the text or the HTML of a page, or of the first element that is named, as it is now.

Reading does not wait for an element: `wait` does. It changes nothing, so it is repeated on the next document when one
goes away under it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Literal

from .. import wire
from ..browsers.port import TabPort
from ..errors import ElementNotFound, StateConflict
from . import advice
from .evaluate import RESULT_MAX_CHARS
from .locate import ATTACHED, RETRY_S, Search, look
from .progress import Progress
from .selectors import label_of, target_of
from .world import DocumentLost, World

# A page that goes from document to document for ever is given up on.
TRIES: Final = 5


async def text(tab: TabPort, action: wire.Text, progress: Progress) -> str:
    """What a person would see of it."""
    return await _read(tab, action, "text", progress)


async def html(tab: TabPort, action: wire.Html, progress: Progress) -> str:
    """Its markup as it stands now, scripts and all."""
    return await _read(tab, action, "html", progress)


async def _read(tab: TabPort, action: wire.Aimed, what: Literal["text", "html"], progress: Progress) -> str:
    parts = target_of(action)
    # Nothing is changed: a page that is too busy to answer need not be replaced for it.
    progress.waits("page")
    for _ in range(TRIES):
        try:
            if parts is None:
                answer: dict[str, Any] = await (await World.of(tab)).run(
                    "readPage", {"name": what, "charsMax": RESULT_MAX_CHARS}
                )
            else:
                search = Search(parts=parts, label=label_of(action), needs=ATTACHED, is_strict=False)
                answer = await _element(tab, search, what)
        except DocumentLost:
            await asyncio.sleep(RETRY_S)
            continue
        if "long" in answer:
            raise _too_large(int(answer["long"]))
        return str(answer["done"])
    raise StateConflict("The page keeps going to other documents, so it could not be read.")


async def _element(tab: TabPort, search: Search, what: str) -> dict[str, Any]:
    found = await look(tab, search, slice_ms=0, is_advised=True)
    answer = found if isinstance(found, dict) else await found.step(what, RESULT_MAX_CHARS)
    if "unmet" in answer:
        told = {name: value for name, value in answer.items() if name != "unmet" and value is not None}
        message = advice.missing(search.label, told)
        raise ElementNotFound(message, action=advice.for_missing(told), target=search.label, **told)
    return answer


def _too_large(length: int) -> StateConflict:
    return StateConflict(
        f"The page has {length} characters there; an answer has {RESULT_MAX_CHARS} at most.",
        action="Read a part of it: name an element with selector or ref.",
        reason="too_large",
        lengthChars=length,
        maxChars=RESULT_MAX_CHARS,
    )
