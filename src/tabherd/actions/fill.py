"""Fills a field: what was in it is replaced, with the events that a person's input fires.

Text goes in as real input, so `beforeinput` and `input` are the browser's own and limits on the length hold; fields
that have a picker (date, time, colour, range) are set and fire both events. What cannot be filled is refused with the
action that is meant.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from .. import wire
from ..browsers.port import TabPort
from .keys import NAMED
from .locate import EDITABLE, Search, locate
from .progress import Progress
from .selectors import label_of, named_target
from .world import DocumentLost


async def fill(tab: TabPort, action: wire.Fill, progress: Progress) -> None:
    search = Search(parts=named_target(action), label=label_of(action), needs=EDITABLE, is_field=True)
    while True:
        held = await locate(tab, search, progress)
        progress.acts()
        try:
            answer = await held.step("fill", action.value)
        except DocumentLost:
            continue
        if "unmet" not in answer:
            break
    if answer["done"] != "insert":
        return
    if action.value:
        await tab.call("Input.insertText", {"text": action.value})
    else:
        await _delete(tab)
    # What was typed may have sent the page on already.
    with suppress(DocumentLost):
        await held.step("filled")


async def _delete(tab: TabPort) -> None:
    key = NAMED["Delete"]
    event = {"windowsVirtualKeyCode": key.number, "code": key.code, "key": key.key}
    await asyncio.gather(
        tab.call("Input.dispatchKeyEvent", {"type": "rawKeyDown", **event}),
        tab.call("Input.dispatchKeyEvent", {"type": "keyUp", **event}),
    )
