"""Writes a page down as a compact accessibility tree, with refs that later actions accept.

    heading "Sign in" [level=1]
    textbox "E-mail" [ref=kqa1] value="a@b.test"
    - link "Terms" [ref=kqa2] "of use"
    iframe "Card" [ref=kqa3]
      textbox "Number" [ref=kqa3.mzf1]

How things are read is said in `snapshot.js`, how they are written in `outline.js`, and what a ref means later, also
when the page was drawn anew meanwhile, in `refs.js`. Frames are written in their places, also those of other origins;
those side by side are asked at the same time. The whole is bounded in size and in time and says so where it was cut.
"""

from __future__ import annotations

import asyncio
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
# How long one document may be gone through, and all frames together be asked.
DOCUMENT_MS: Final = 1_000
FRAMES_S: Final = 5.0
TRIES: Final = 5
_CUT: Final = "... (cut: the page is larger; take a snapshot of a part with selector or ref, or interactive only)"
_MODAL: Final = "... (this dialog is modal: the rest of the page cannot be used until it is closed, and is left out)"


async def snapshot(tab: TabPort, action: wire.Snapshot, progress: Progress) -> str:
    # Nothing is changed: a page that is too busy to answer need not be replaced for it.
    progress.waits("page")
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
        # What is left of the bounds.
        self._chars = CHARS_MAX
        self._frames = FRAMES_MAX
        # When the frames have had their time; set when the first is asked.
        self._frames_end: float | None = None
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
        lines = self._bounded(lines)
        return "\n".join([*lines, _CUT] if self._is_cut else lines)

    def _bounded(self, lines: list[str]) -> list[str]:
        """Frames that were asked at the same time may together be longer than each was allowed to be."""
        chars = 0
        for number, line in enumerate(lines):
            chars += len(line) + 1
            if chars > CHARS_MAX:
                self._is_cut = True
                return lines[:number]
        return lines

    async def _document(self, world: World, prefix: str, *, is_part: bool) -> list[str]:
        order = {
            "isPart": is_part,
            "isInteractive": self._is_interactive,
            "prefix": prefix,
            "charsMax": self._chars,
            "timeMs": DOCUMENT_MS,
        }
        answer: dict[str, Any] = await world.run("snapshot", order)
        if "unmet" in answer:
            raise DocumentLost("the element is gone")
        done = answer["done"]
        lines: list[str] = done["lines"]
        self._chars = max(0, self._chars - sum(len(line) + 1 for line in lines))
        self._is_cut = self._is_cut or done["isCut"]
        inner = await self._inside(world, prefix, done["frames"])
        # From the last to the first, so that the places of the others stay where they are.
        for frame, below in reversed(list(zip(done["frames"], inner, strict=True))):
            indent = "  " * frame["depth"]
            lines[frame["line"] + 1 : frame["line"] + 1] = [indent + line for line in below]
        return [*lines, _MODAL] if done["isModal"] else lines

    async def _inside(self, world: World, prefix: str, frames: list[dict[str, Any]]) -> list[list[str]]:
        """What is in each of these frames of one document."""
        if not frames:
            return []
        # The script holds one element at a time.
        frame_ids = [await self._frame_id(world, frame["ref"]) for frame in frames]
        asked = [
            self._frame(world, frame_id, f"{prefix}{frame['ref']}.")
            for frame, frame_id in zip(frames, frame_ids, strict=True)
        ]
        # All are waited for, so that nothing goes on when one of them is the end of it.
        told = await asyncio.gather(*asked, return_exceptions=True)
        for each in told:
            if isinstance(each, BaseException):
                raise each
        return [each for each in told if not isinstance(each, BaseException)]

    async def _frame_id(self, world: World, ref: str) -> str | None:
        if self._frames == 0 or self._chars == 0:
            self._is_cut = True
            return None
        self._frames -= 1
        try:
            return await world.held_frame_id() if await world.run("holdRef", ref) else None
        except DocumentLost:
            return None

    async def _frame(self, world: World, frame_id: str | None, prefix: str) -> list[str]:
        if frame_id is None:
            return []
        if self._frames_end is None:
            self._frames_end = asyncio.get_running_loop().time() + FRAMES_S
        try:
            async with asyncio.timeout_at(self._frames_end):
                inside = await World.in_frame(self._tab, world.port, frame_id)
                return await self._document(inside, prefix, is_part=False)
        except TimeoutError:
            self._is_cut = True
            return []
        except DocumentLost:
            # It is loading, or has just gone; the rest of the page stands.
            return []
