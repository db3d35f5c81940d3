"""Chooses among what a form offers: select and check.

Options are selected as a browser's own list does it, with `input` and `change`; checkboxes, radio buttons and switches
are clicked, so that whatever a page has made of them hears a real press, and looked at afterwards.
"""

from __future__ import annotations

import asyncio
from typing import Final

from .. import wire
from ..browsers.port import TabPort
from ..errors import ElementNotActionable
from .locate import ENABLED, PRESSABLE, Held, Search, locate, look
from .pointer import press_on
from .progress import Progress
from .selectors import label_of, named_target
from .world import DocumentLost

# Options and states that come late are asked for again so often.
AGAIN_S: Final = 0.05
# How often a checkbox is looked at after it was pressed.
LOOKS: Final = 20


async def select(tab: TabPort, action: wire.Select, progress: Progress) -> list[str]:
    """The values that are selected now."""
    search = Search(parts=named_target(action), label=label_of(action), needs=ENABLED, is_field=True)
    while True:
        held = await locate(tab, search, progress)
        progress.acts()
        try:
            answer = await held.step("select", action.values)
        except DocumentLost:
            continue
        if "done" in answer:
            selected: list[str] = answer["done"]
            return selected
        # Nothing was selected: the page may still be fetching its options.
        progress.waits(answer.pop("unmet"), target=search.label, **answer)
        await asyncio.sleep(AGAIN_S)


async def check(tab: TabPort, action: wire.Check, progress: Progress) -> bool:
    """Whether it is checked now."""
    label = label_of(action)
    parts = named_target(action)
    search = Search(parts=parts, label=label, needs=ENABLED, is_field=True)
    state = await _state(tab, search, progress)
    if state["isChecked"] == action.checked:
        return action.checked
    if state["isRadio"] and not action.checked:
        raise ElementNotActionable(
            f"{label} is a radio button, which cannot be unchecked.", action="Check another one of its group."
        )
    pressable = Search(parts=parts, label=label, needs=PRESSABLE, is_field=True)
    await press_on(tab, pressable, progress)
    # A page's own kind of checkbox may take a moment to show it; and it may be gone with a page that went on.
    for _ in range(LOOKS):
        try:
            found = await look(tab, search, slice_ms=0)
            state = (await found.step("checked")).get("done", state) if isinstance(found, Held) else state
        except DocumentLost:
            return action.checked
        if state["isChecked"] == action.checked:
            return action.checked
        await asyncio.sleep(AGAIN_S)
    raise ElementNotActionable(
        f"{label} was clicked, but is {'not' if action.checked else 'still'} checked.",
        action="Look at the page: it may have reacted in another way.",
    )


async def _state(tab: TabPort, search: Search, progress: Progress) -> dict[str, bool]:
    while True:
        held = await locate(tab, search, progress)
        try:
            answer = await held.step("checked")
        except DocumentLost:
            continue
        if "done" in answer:
            state: dict[str, bool] = answer["done"]
            return state
