"""Waits for an element, a text, an address, a function or a time to come; the caller's deadline is the only end of it.

Elements are looked for in slices, an address is waited for by the events that change it, and a function of the page
is asked again and again. The page may go from document to document meanwhile.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final

from .. import wire
from ..browsers.port import TabPort
from ..errors import InvalidRequest, JavascriptError, StaleRef
from .evaluate import evaluate
from .locate import ATTACHED, RETRY_S, VISIBLE, Held, Search, locate, look
from .progress import Progress
from .selectors import label_of, target_of
from .world import DocumentLost, World

# How often a function, and an element that should go, are asked for.
AGAIN_S: Final = 0.05
_CHOICES: Final = "selector, ref, text, url, ms or function"


async def wait(tab: TabPort, action: wire.Wait, progress: Progress) -> Any:
    """What the function came to; else nothing."""
    parts = target_of(action)
    given = [one for one in (parts, action.text, action.url, action.ms, action.function) if one is not None]
    if len(given) != 1:
        raise InvalidRequest(f"Wait for exactly one thing: {_CHOICES}.", field="selector")
    if parts is not None:
        await _for_element(tab, parts, label_of(action), action.state, progress)
    elif action.text is not None:
        part = {"by": "text", "body": action.text, "isExact": False}
        await _for_element(tab, [part], f"the text '{action.text[:100]}'", action.state, progress)
    elif action.url is not None:
        await _for_url(tab, action.url, progress)
    elif action.ms is not None:
        progress.waits("time", ms=action.ms)
        await asyncio.sleep(action.ms / 1000)
    elif action.function is not None:
        return await _for_function(tab, action.function, progress)
    return None


async def _for_element(tab: TabPort, parts: list[dict[str, Any]], label: str, state: str, progress: Progress) -> None:
    needs = VISIBLE if state in ("visible", "hidden") else ATTACHED
    search = Search(parts=parts, label=label, needs=needs, is_strict=False)
    if state in ("visible", "attached"):
        await locate(tab, search, progress)
        return
    is_seen = False
    while True:
        try:
            found = await look(tab, search, slice_ms=0)
        except StaleRef:
            if is_seen:
                # What the ref named has gone, which is what was waited for.
                return
            raise
        except DocumentLost:
            # The document that had it is gone; the next one says whether it has it too.
            await asyncio.sleep(RETRY_S)
            continue
        if not isinstance(found, Held):
            return
        is_seen = True
        progress.waits(state, target=label, element=found.element)
        await asyncio.sleep(AGAIN_S)


async def _for_url(tab: TabPort, wanted: str, progress: Progress) -> None:
    fits = _pattern(wanted)
    moved = asyncio.Event()

    def on_moved(_: Mapping[str, Any]) -> None:
        moved.set()

    stops = [tab.listen(event, on_moved) for event in ("Page.frameNavigated", "Page.navigatedWithinDocument")]
    # Fails when the page or the browser goes, so that nobody waits for what cannot come.
    gone = tab.expect("wait")
    try:
        while True:
            moved.clear()
            address = await _address(tab)
            if fits.search(address):
                return
            progress.waits("url", url=address, wanted=wanted)
            move = asyncio.ensure_future(moved.wait())
            try:
                await asyncio.wait((move, gone), return_when=asyncio.FIRST_COMPLETED)
            finally:
                move.cancel()
            if gone.done():
                gone.result()
    finally:
        for stop in stops:
            stop()
        gone.cancel()


def _pattern(wanted: str) -> re.Pattern[str]:
    """The address contains it; with * in it, the whole address is like it."""
    if "*" not in wanted:
        return re.compile(re.escape(wanted))
    return re.compile(r"\A" + ".*".join(re.escape(piece) for piece in re.split(r"\*+", wanted)) + r"\Z", re.DOTALL)


async def _address(tab: TabPort) -> str:
    while True:
        try:
            return str(await (await World.of(tab)).run("addressOf"))
        except DocumentLost:
            await asyncio.sleep(RETRY_S)


async def _for_function(tab: TabPort, function: str, progress: Progress) -> Any:
    # It is the page's own code: who knows what it does.
    progress.acts()
    progress.waiting_for = "function"
    # A function is called; any other expression is its own value. The newline ends a comment it may end with.
    expression = f"(async () => {{ const it = ({function}\n); return typeof it === 'function' ? it() : it; }})()"
    while True:
        try:
            value = await evaluate(tab, expression)
        except JavascriptError as error:
            if error.details.get("reason") != "navigated":
                raise
        else:
            if value:
                return value
        await asyncio.sleep(AGAIN_S)
