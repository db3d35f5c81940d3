"""Types and presses keys, as real input (`isTrusted`): type, press.

Characters that are on the keyboard are keys, with the events that belong to them; all others are inserted as text, as
an input method does: a run of them at once, so that what is one character to a reader (a family, a flag, a letter with
its accents) is never seen in pieces. Key events leave in bounded batches, so that a long text neither waits a round
trip per key nor floods the browser.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from .. import wire
from ..browsers.port import TabPort
from .keys import KEYPAD, MODIFIERS, NAMED, TYPED, Key, chord_of, modifier_bits, needs_shift, strokes_of
from .locate import EDITABLE, ENABLED, Search
from .navigations import Navigations
from .progress import Progress
from .selectors import label_of, named_target, target_of
from .step import take_step
from .world import DocumentLost, World

# Messages in flight while a text is typed without pauses.
BATCH: Final = 64

# A method and its parameters.
_Message = tuple[str, dict[str, Any]]


async def type_text(tab: TabPort, action: wire.Type, progress: Progress) -> None:
    search = Search(parts=named_target(action), label=label_of(action), needs=EDITABLE, is_field=True)
    held = await take_step(tab, search, progress, "focusEnd")
    before = _chord([NAMED["End"]]) if held.answer == "press End" else ()
    strokes = strokes_of(action.text)
    with Navigations(tab) as navigations:
        if action.delay_ms:
            await _send(tab, list(before))
            for stroke in strokes:
                await _send(tab, list(_typing(stroke)))
                await asyncio.sleep(action.delay_ms / 1000)
        else:
            messages = [*before, *(message for stroke in strokes for message in _typing(stroke))]
            for start in range(0, len(messages), BATCH):
                await _send(tab, messages[start : start + BATCH])
        await _settled(tab, navigations)


async def press(tab: TabPort, action: wire.Press, progress: Progress) -> None:
    chord = chord_of(action.key)
    parts = target_of(action)
    if parts is not None:
        search = Search(parts=parts, label=label_of(action), needs=ENABLED, is_field=True)
        await take_step(tab, search, progress, "focus")
    progress.acts()
    with Navigations(tab) as navigations:
        await _send(tab, list(_chord(chord)))
        await _settled(tab, navigations)


async def _settled(tab: TabPort, navigations: Navigations) -> None:
    # Answered on the channel that tells about navigations, so those that the keys began are known afterwards. They may
    # have sent the page away already.
    with suppress(DocumentLost):
        await (await World.of(tab)).run("addressOf")
    await navigations.settle()


def _typing(stroke: str) -> Iterator[_Message]:
    key = TYPED.get(stroke)
    if key is None:
        yield "Input.insertText", {"text": stroke}
        return
    # Shift is told as being down, but its own events are left out: a page that counts keys counts characters.
    bits = MODIFIERS["Shift"] if needs_shift(stroke) else 0
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
        "isKeypad": key.location == KEYPAD,
    }


def _up(key: Key, bits: int) -> _Message:
    return "Input.dispatchKeyEvent", {
        "type": "keyUp",
        "modifiers": bits,
        "windowsVirtualKeyCode": key.number,
        "code": key.code,
        "key": key.key,
        "location": key.location,
        "isKeypad": key.location == KEYPAD,
    }


async def _send(tab: TabPort, messages: list[_Message]) -> None:
    await asyncio.gather(*(tab.call(method, params) for method, params in messages))
