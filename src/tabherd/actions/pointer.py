"""Presses and moves the mouse: click, dblclick, hover.

The element is waited for, the press goes to its middle as real input (`isTrusted`), and a guard in the page swallows a
press that would land on something else because the page has changed since the look; it is then tried again. The three
messages of a click leave together and are answered in order, also when the page opens a dialog: that is answered by
the driver. A press that sends the tab to another document returns when it is there.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from .. import wire
from ..browsers.port import TabPort
from .keys import modifier_bits
from .locate import PRESSABLE, Held, Search, locate
from .navigations import Navigations
from .progress import Progress
from .selectors import label_of, named_target
from .world import DocumentLost

# How often the mouse is moved before a frame that does not notice it is looked at anew.
MOVES: Final = 10
# After a try that missed, the first again at once: a page that flees from every press must not keep us busy.
PAUSES_S: Final = (0.0, 0.02, 0.1, 0.1, 0.5)
# What is disabled may be hovered: its tooltip often says why it is.
HOVERABLE: Final = ("visible", "stable", "receives_events")
_BUTTON_BITS: Final = {"left": 1, "right": 2, "middle": 4}


async def click(tab: TabPort, action: wire.Click, progress: Progress) -> None:
    await press_on(tab, _search(action), progress, button=action.button, modifiers=action.modifiers)


async def dblclick(tab: TabPort, action: wire.Dblclick, progress: Progress) -> None:
    await press_on(tab, _search(action), progress, button=action.button, modifiers=action.modifiers, times=2)


async def hover(tab: TabPort, action: wire.Hover, progress: Progress) -> None:
    search, bits = _search(action, HOVERABLE), modifier_bits(action.modifiers)
    pauses_s = _pauses_s()
    while True:
        held = await approached(tab, search, bits, progress)
        progress.acts()
        await _send(tab, [_mouse(held, "mouseMoved", bits)])
        verdict = await _verdict(held)
        if not verdict["isPassed"]:
            return
        progress.waits("stable", target=search.label, element=held.element)
        await asyncio.sleep(next(pauses_s))


async def press_on(
    tab: TabPort,
    search: Search,
    progress: Progress,
    *,
    button: str = "left",
    modifiers: Iterable[str] = (),
    times: int = 1,
) -> Held:
    """Press the element that is searched for, as soon as it is ready."""
    bits = modifier_bits(modifiers)
    pauses_s = _pauses_s()
    while True:
        held = await approached(tab, search, bits, progress)
        with Navigations(tab) as navigations:
            progress.acts()
            await _send(tab, _presses(held, button, bits, times))
            # Asked on the channel that tells about navigations, so those that the press began are known by now.
            verdict = await _verdict(held)
            if not verdict["isMissed"]:
                await navigations.settle()
                return held
        progress.waits("receives_events", target=search.label, element=held.element, coveredBy=verdict.get("coveredBy"))
        await asyncio.sleep(next(pauses_s))


def _search(action: wire.Aimed, needs: tuple[str, ...] = PRESSABLE) -> Search:
    return Search(parts=named_target(action), label=label_of(action), needs=needs)


def _pauses_s() -> Iterator[float]:
    """How long to wait after each try that missed, for as long as the caller has patience."""
    return itertools.chain(PAUSES_S, itertools.repeat(PAUSES_S[-1]))


async def approached(tab: TabPort, search: Search, bits: int, progress: Progress) -> Held:
    """The element, when input would reach it.

    Where frames are on the screen is known to Chromium's input only some frames after it is known to us: a press may
    still go to where the frame was before it was scrolled. So the mouse is moved there until the frame notices.
    """
    while True:
        held = await locate(tab, search, progress)
        if not held.is_framed:
            return held
        with suppress(DocumentLost):
            for _ in range(MOVES):
                await _send(tab, [_mouse(held, "mouseMoved", bits)])
                if await held.world.run("isReached"):
                    return held
        reason = "the mouse does not reach its frame"
        progress.waits("receives_events", target=search.label, element=held.element, reason=reason)


async def _verdict(held: Held) -> dict[str, Any]:
    """Whether the press was swallowed and by what, and whether the mouse passed the element by."""
    try:
        verdict: dict[str, Any] = await held.world.run("releaseGuard")
    except DocumentLost:
        # The press has sent the page away.
        return {"isMissed": False, "isPassed": False}
    return verdict


def _presses(held: Held, button: str, bits: int, times: int) -> Iterator[dict[str, Any]]:
    yield _mouse(held, "mouseMoved", bits)
    for count in range(1, times + 1):
        down = {"button": button, "clickCount": count}
        yield _mouse(held, "mousePressed", bits) | down | {"buttons": _BUTTON_BITS[button]}
        yield _mouse(held, "mouseReleased", bits) | down


def _mouse(held: Held, kind: str, bits: int) -> dict[str, Any]:
    return {"type": kind, "x": held.x, "y": held.y, "modifiers": bits}


async def _send(tab: TabPort, events: Iterable[dict[str, Any]]) -> None:
    await asyncio.gather(*(tab.call("Input.dispatchMouseEvent", event) for event in events))
