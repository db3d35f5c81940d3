"""Fills a field: what was in it is replaced, with the events that a person's input fires.

Text goes in as real input, so `beforeinput` and `input` are the browser's own, limits on the length hold, and `change`
comes when the focus moves on; fields that have a picker (date, time, colour, range) are set and fire both events. What
cannot be filled is refused with the action that is meant.

Text that would go elsewhere, because the page has moved the focus since, is swallowed by a guard in the page, and the
field is looked for again: it may have been replaced by another one.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from .. import wire
from ..browsers.port import TabPort
from ..errors import ElementNotActionable
from .keys import NAMED
from .locate import EDITABLE, Held, Search
from .navigations import Navigations
from .progress import Progress
from .selectors import label_of, named_target
from .step import take_step
from .world import DocumentLost

# A field that loses the focus so often will not keep it.
TRIES: Final = 5


async def fill(tab: TabPort, action: wire.Fill, progress: Progress) -> None:
    search = Search(parts=named_target(action), label=label_of(action), needs=EDITABLE, is_field=True)
    went_to = None
    for _ in range(TRIES):
        with Navigations(tab) as navigations:
            held = await take_step(tab, search, progress, "fill", action.value, navigations=navigations)
            if held.answer is not None:
                text = held.answer["text"]
                await _replace(tab, action.value if text is None else text)
            # Asked on the channel that tells about navigations, so those that the text began are known by now.
            verdict = await _verdict(held)
            if verdict["isTaken"]:
                await navigations.settle()
                return
        went_to = verdict["wentTo"] or went_to
    raise ElementNotActionable(
        f"{search.label} does not keep the focus: the page takes it away before the text comes.",
        action="Fill the field that has the focus instead, or use the action `type`.",
        element=held.element,
        **({} if went_to is None else {"wentTo": went_to}),
    )


async def _verdict(held: Held) -> dict[str, Any]:
    """Whether the text came to the field, and where it would have gone instead."""
    try:
        verdict: dict[str, Any] = await held.world.run("releaseInput")
    except DocumentLost:
        # The text has sent the page away.
        return {"isTaken": True}
    return verdict


async def _replace(tab: TabPort, text: str) -> None:
    """Put the text where the selection is."""
    if text:
        await tab.call("Input.insertText", {"text": text})
        return
    key = NAMED["Delete"]
    event = {"windowsVirtualKeyCode": key.number, "code": key.code, "key": key.key}
    await asyncio.gather(
        tab.call("Input.dispatchKeyEvent", {"type": "rawKeyDown", **event}),
        tab.call("Input.dispatchKeyEvent", {"type": "keyUp", **event}),
    )
