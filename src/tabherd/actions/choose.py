"""Chooses among what a form offers: select and check.

Options are selected as a browser's own list does it, with `input` and `change`; checkboxes, radio buttons and switches
are clicked, so that whatever a page has made of them hears a real press, and looked at afterwards. A box that is
hidden behind its label is clicked there, as a person would.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from .. import wire
from ..browsers.port import TabPort
from ..errors import ElementNotActionable
from .locate import ATTACHED, ENABLED, PRESSABLE, Held, Search, locate, look
from .navigations import Navigations
from .pointer import press_on
from .progress import Progress
from .selectors import label_of, named_target
from .step import take_step
from .world import DocumentLost

# How long, and how often, a checkbox is looked at after it was pressed.
AGAIN_S: Final = 0.05
LOOKS: Final = 20
_STATE: Final = {"name": "checked", "argument": None}


async def select(tab: TabPort, action: wire.Select, progress: Progress) -> list[str]:
    """The values that are selected now."""
    search = Search(parts=named_target(action), label=label_of(action), needs=ENABLED, is_field=True)
    with Navigations(tab) as navigations:
        held = await take_step(
            tab, search, progress, "select", action.values, asked="hasOptions", navigations=navigations
        )
        selected: list[str] = held.answer["values"]
        if held.answer["isChanged"]:
            # A page that goes elsewhere on a choice has asked for it when this is answered.
            with suppress(DocumentLost):
                await held.world.run("addressOf")
            await navigations.settle()
    return selected


async def check(tab: TabPort, action: wire.Check, progress: Progress) -> bool:
    """Whether it is checked now."""
    label, parts = label_of(action), named_target(action)
    search = Search(parts=parts, label=label, needs=ATTACHED, is_field=True)
    state = await _state(tab, search, progress)
    if state["isChecked"] == action.checked:
        return action.checked
    if state["isRadio"] and not action.checked:
        raise ElementNotActionable(
            f"{label} is a radio button, which cannot be unchecked.", action="Check another one of its group."
        )
    await press_on(tab, Search(parts=parts, label=label, needs=PRESSABLE, is_field=True), progress)
    # A page's own kind of checkbox may take a moment to show it; and it may be gone with a page that went on.
    for _ in range(LOOKS):
        try:
            found = await look(tab, search, slice_ms=0, then=_STATE)
        except DocumentLost:
            return action.checked
        state = found.answer if isinstance(found, Held) else state
        if state["isChecked"] == action.checked:
            return action.checked
        await asyncio.sleep(AGAIN_S)
    raise ElementNotActionable(
        f"{label} was clicked, but is {'not' if action.checked else 'still'} checked.",
        action="Look at the page: it may have reacted in another way.",
    )


async def _state(tab: TabPort, search: Search, progress: Progress) -> dict[str, Any]:
    """Whether it is checked, and whether it is one of a group. Only read, so nothing is acted upon."""
    while True:
        with suppress(DocumentLost):
            found = await look(tab, search, slice_ms=0, then=_STATE)
            if isinstance(found, Held):
                state: dict[str, Any] = found.answer
                return state
        await locate(tab, search, progress)
