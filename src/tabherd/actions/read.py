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
from .locate import ATTACHED, RETRY_S, Search, look
from .progress import Progress
from .selectors import label_of, target_of
from .world import DocumentLost, World

# A page that goes from document to document for ever is given up on.
TRIES: Final = 5


async def text(tab: TabPort, action: wire.Text, progress: Progress) -> str:
    """What a person would see of it."""
    return await _read(tab, action, "text")


async def html(tab: TabPort, action: wire.Html, progress: Progress) -> str:
    """Its markup as it stands now, scripts and all."""
    return await _read(tab, action, "html")


async def _read(tab: TabPort, action: wire.Aimed, what: Literal["text", "html"]) -> str:
    parts = target_of(action)
    for _ in range(TRIES):
        try:
            if parts is None:
                answer: dict[str, Any] = await (await World.of(tab)).run("readPage", {"name": what})
            else:
                search = Search(parts=parts, label=label_of(action), needs=ATTACHED, is_strict=False)
                answer = await _element(tab, search, what)
        except DocumentLost:
            await asyncio.sleep(RETRY_S)
            continue
        return str(answer["done"])
    raise StateConflict("The page keeps going to other documents, so it could not be read.")


async def _element(tab: TabPort, search: Search, what: str) -> dict[str, Any]:
    found = await look(tab, search, slice_ms=0)
    answer = found if isinstance(found, dict) else await found.step(what)
    if "unmet" in answer:
        raise ElementNotFound(f"No element matches {search.label}.", target=search.label)
    return answer
