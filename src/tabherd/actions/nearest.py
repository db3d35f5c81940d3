"""Looks into the frames beside a place where nothing was found: what is wanted may be in one of them.

Their documents are entered as an action would enter them, so that those of other origins are seen too. It is advice
for whoever gives up, so it has a short limit of its own, and a frame that does not answer is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from ..errors import StateConflict
from .selectors import Part, text_of
from .world import DocumentLost, World

CANDIDATES_MAX: Final = 3
LIMIT_S: Final = 0.5
# Before all that are only similar: the very thing, in another document.
_EXACT: Final = 2.0

Candidate = dict[str, Any]


async def beside(world: World, prefix: str, frames: Iterable[dict[str, str]], parts: list[Part]) -> list[Candidate]:
    """What these parts find in the frames, or nearly find, with the way there."""
    found: list[Candidate] = []
    try:
        async with asyncio.timeout(LIMIT_S):
            for frame in frames:
                found += await _in_frame(world, prefix, frame, parts)
    except TimeoutError:
        # Those that have answered are told.
        return found
    return found


async def _in_frame(world: World, prefix: str, frame: dict[str, str], parts: list[Part]) -> list[Candidate]:
    try:
        if not await world.run("holdRef", frame["ref"]):
            return []
        answer = await (await world.enter()).run("nearest", {"parts": parts})
    except (DocumentLost, StateConflict):
        # It is only advice: a document that cannot be read has none to give.
        return []
    inner = f"{prefix}{frame['ref']}"
    # In the main document a frame has a selector of its own; further down its ref says where it is.
    way = f"ref={inner}" if prefix else frame["selector"]
    told = [in_document(candidate, f"{inner}.") | {"frame": way} for candidate in answer["candidates"]]
    if answer["isHere"]:
        selector = " >> ".join([way, *(text_of(part) for part in parts)])
        return [candidate | {"selector": selector, "score": _EXACT} for candidate in told]
    return told


def best(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The nearest of them all, without the marks they were given for it."""
    ranked = sorted(candidates, key=lambda each: -float(each["score"]))[:CANDIDATES_MAX]
    return [{name: value for name, value in each.items() if name != "score"} for each in ranked]


def in_document(told: Any, prefix: str) -> Any:
    """The same with refs that say in which frames they are."""
    match told:
        case dict():
            return {
                name: f"{prefix}{value}" if name == "ref" else in_document(value, prefix)
                for name, value in told.items()
            }
        case list():
            return [in_document(each, prefix) for each in told]
        case _:
            return told
