"""Types and presses keys, as real input (`isTrusted`): type, press.

Characters that are on the keyboard are keys, with the events that belong to them; all others are inserted as text, as
an input method does. Key events leave in bounded batches, so that a long text neither waits a round trip per key nor
floods the browser.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from .. import wire
from ..browsers.port import TabPort
from .keys import MODIFIERS, NAMED, TYPED, Key, chord_of, modifier_bits, needs_shift
from .locate import EDITABLE, ENABLED, Search, locate
from .navigations import Navigations
from .progress import Progress
from .selectors import label_of, named_target, target_of
from .world import DocumentLost, World

# Messages in flight while a text is typed without pauses.
BATCH: Final = 64

# A method and its parameters.
_Message = tuple[str, dict[str, Any]]


async def type_text(tab: TabPort, action: wire.Type, progress: Progress) -> None:
    search = Search(parts=named_target(action), label=label_of(action), needs=EDITABLE, is_field=True)
    if await focused(tab, search, progress, "focusEnd") == "press End":
        await _send(tab, list(_chord([NAMED["End"]])))
    with Navigations(tab) as navigations:
        if action.delay_ms:
            for char in action.text:
                await _send(tab, list(_typing(char)))
                await asyncio.sleep(action.delay_ms / 1000)
        else:
            messages = [message for char in action.text for message in _typing(char)]
            for start in range(0, len(messages), BATCH):
                await _send(tab, messages[start : start + BATCH])
        await _settled(tab, navigations)


async def press(tab: TabPort, action: wire.Press, progress: Progress) -> None:
    chord = chord_of(action.key)
    parts = target_of(action)
    if parts is not None:
        search = Search(parts=parts, label=label_of(action), needs=ENABLED, is_field=True)
        await focused(tab, search, progress, "focus")
    progress.acts()
    with Navigations(tab) as navigations:
        await _send(tab, list(_chord(chord)))
        await _settled(tab, navigations)


async def focused(tab: TabPort, search: Search, progress: Progress, how: str) -> Any:
    """Returns when the element has the focus, with what is left to do."""
    while True:
        held = await locate(tab, search, progress)
        progress.acts()
        try:
            answer = await held.step(how)
        except DocumentLost:
            continue
        if "done" in answer:
            return answer["done"]


async def _settled(tab: TabPort, navigations: Navigations) -> None:
    # Answered on the channel that tells about navigations, so those that the keys began are known afterwards. They may
    # have sent the page away already.
    with suppress(DocumentLost):
        await (await World.of(tab)).run("addressOf")
    await navigations.settle()


def _typing(char: str) -> Iterator[_Message]:
    key = TYPED.get(char)
    if key is None:
        yield "Input.insertText", {"text": char}
        return
    # Shift is told as being down, but its own events are left out: a page that counts keys counts characters.
    bits = MODIFIERS["Shift"] if needs_shift(char) else 0
    yield _down(key, bits)
    yield _up(key, bits)


def _chord(chord: list[Key]) -> Iterator[_Message]:
    held: list[str] = []
    for key in chord:
        if key.key in MODIFIERS:
            held.append(key.key)
        yield _down(key, modifier_bits(held))
    for key in reversed(chord):
        if key.key in MODIFIERS:
            held.remove(key.key)
        yield _up(key, modifier_bits(held))


def _down(key: Key, bits: int) -> _Message:
    return "Input.dispatchKeyEvent", {
        "type": "keyDown" if key.text else "rawKeyDown",
        "modifiers": bits,
        "windowsVirtualKeyCode": key.number,
        "code": key.code,
        "key": key.key,
        "text": key.text,
        "unmodifiedText": key.text,
        "location": key.location,
    }


def _up(key: Key, bits: int) -> _Message:
    return "Input.dispatchKeyEvent", {
        "type": "keyUp",
        "modifiers": bits,
        "windowsVirtualKeyCode": key.number,
        "code": key.code,
        "key": key.key,
        "location": key.location,
    }


async def _send(tab: TabPort, messages: list[_Message]) -> None:
    await asyncio.gather(*(tab.call(method, params) for method, params in messages))
