"""Writes a page down as a compact accessibility tree, with refs that later actions accept.

    heading "Sign in" [level=1]
    textbox "E-mail" [ref=kqa1] value="a@b.test"
    iframe "Card" [ref=kqa2]
      textbox "Number" [ref=kqa2.mzf1]

Frames are written in their places, also those of other origins. An element keeps its ref in every snapshot of the same
document, and a ref is never reused. The whole is bounded in size and says so where it was cut.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

from .. import wire
from ..browsers.port import TabPort
from ..errors import StateConflict
from .locate import ATTACHED, RETRY_S, Search, locate
from .progress import Progress
from .selectors import label_of, target_of
from .world import DocumentLost, World

# About 15 000 tokens: more is of no use to a reader, who can ask for a part instead.
CHARS_MAX: Final = 60_000
FRAMES_MAX: Final = 100
TRIES: Final = 5
_CUT: Final = "... (cut: the page is larger; take a snapshot of a part with selector or ref, or interactive only)"
_REF: Final = re.compile(r" \[ref=([a-z]+[0-9]+)\]")


async def snapshot(tab: TabPort, action: wire.Snapshot, progress: Progress) -> str:
    for _ in range(TRIES):
        try:
            return await _Writer(tab, action.interactive).write(action, progress)
        except DocumentLost:
            await asyncio.sleep(RETRY_S)
    raise StateConflict("The page keeps going to other documents, so it could not be written down.")


class _Writer:
    """One snapshot while it is being written."""

    def __init__(self, tab: TabPort, is_interactive: bool) -> None:
        self._tab = tab
        self._is_interactive = is_interactive
        # What is left of the two bounds.
        self._chars = CHARS_MAX
        self._frames = FRAMES_MAX
        self._is_cut = False

    async def write(self, action: wire.Snapshot, progress: Progress) -> str:
        parts = target_of(action)
        if parts is None:
            lines = await self._document(await World.of(self._tab), "", is_part=False)
        else:
            search = Search(parts=parts, label=label_of(action), needs=ATTACHED)
            held = await locate(self._tab, search, progress)
            # A ref inside a frame has the refs of the frames before it; a selector into a frame has none to give.
            prefix = action.ref.rpartition(".")[0] if action.ref is not None else ""
            lines = await self._document(held.world, f"{prefix}." if prefix else "", is_part=True)
        return "\n".join([*lines, _CUT] if self._is_cut else lines)

    async def _document(self, world: World, prefix: str, *, is_part: bool) -> list[str]:
        order = {"isPart": is_part, "isInteractive": self._is_interactive, "charsMax": self._chars}
        answer: dict[str, Any] = await world.run("snapshot", order)
        if "unmet" in answer:
            raise DocumentLost("the element is gone")
        done = answer["done"]
        lines: list[str] = done["lines"]
        self._chars = max(0, self._chars - sum(len(line) + 1 for line in lines))
        self._is_cut = self._is_cut or done["isCut"]
        inner = [(frame, await self._frame(world, prefix, frame)) for frame in done["frames"]]
        if prefix:
            lines = [_REF.sub(rf" [ref={prefix}\1]", line, count=1) for line in lines]
        # From the last to the first, so that the places of the others stay where they are.
        for frame, below in reversed(inner):
            indent = "  " * frame["depth"]
            lines[frame["line"] + 1 : frame["line"] + 1] = [indent + line for line in below]
        return lines

    async def _frame(self, world: World, prefix: str, frame: dict[str, Any]) -> list[str]:
        if self._frames == 0 or self._chars == 0:
            self._is_cut = True
            return []
        self._frames -= 1
        try:
            if not await world.run("holdRef", frame["ref"]):
                return []
            return await self._document(await world.enter(), f"{prefix}{frame['ref']}.", is_part=False)
        except DocumentLost:
            # It is loading, or has just gone; the rest of the page stands.
            return []
