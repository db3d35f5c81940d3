"""Waits for an element until it can be acted upon; the caller's deadline is the only end of it.

A look runs in the page for a slice of time and is answered with the element, with a refusal that waiting cannot cure
(an invalid selector, a stale ref, several candidates), or with the condition that is still unmet, which is published
for whoever gives up. A document that is replaced meanwhile is no failure: the next one is looked at.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from ..browsers.port import TabPort
from ..errors import AmbiguousTarget, ElementNotActionable, InvalidSelector, StaleRef
from .progress import Progress
from .selectors import Part
from .world import DocumentLost, World

# A first look is short, so that even a short-lived caller learns what was missing.
SLICES_MS: Final = (40, 80, 160)
SLICE_MAX_MS: Final = 250
# Between two documents there is a moment without one.
RETRY_S: Final = 0.02

# What a press needs, what a field needs, and what is enough to be seen.
PRESSABLE: Final = ("visible", "enabled", "stable", "receives_events")
EDITABLE: Final = ("visible", "enabled", "editable")
ENABLED: Final = ("visible", "enabled")
VISIBLE: Final = ("visible",)
STILL: Final = ("visible", "stable")
ATTACHED: Final = ()


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """Which element, and how ready it has to be."""

    parts: list[Part]
    # How it is called in messages.
    label: str
    needs: tuple[str, ...]
    # Several matches are refused; otherwise the first is taken.
    is_strict: bool = True
    # A label stands for its field.
    is_field: bool = False


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """An element that was ready a moment ago. The script in its document holds it."""

    world: World
    search: Search
    # A line to recognise it by.
    element: str
    # Whether it is inside a frame.
    is_framed: bool = False
    # Its middle in the viewport of the page, when it was asked to be stable.
    x: float = 0
    y: float = 0

    async def step(self, name: str, argument: Any = None) -> dict[str, Any]:
        """Do something with it; `done` or `unmet` is in the answer, and what never will work is raised."""
        answer: dict[str, Any] = await self.world.run("step", {"name": name, "argument": argument})
        if "failed" in answer:
            raise ElementNotActionable(
                f"{self.search.label} cannot be used like that: {answer['failed']}.",
                action="Choose another element or another action.",
                element=self.element,
            )
        return answer


async def locate(tab: TabPort, search: Search, progress: Progress) -> Held:
    """The element, as soon as it is ready."""
    # Until the first look is answered nothing is known of the element: a page that is busy with itself has not told.
    progress.waits("page", target=search.label)
    round_ = turn = 0
    while True:
        slice_ms = SLICES_MS[turn] if turn < len(SLICES_MS) else SLICE_MAX_MS
        try:
            outcome = await look(tab, search, slice_ms, round_)
        except DocumentLost:
            await asyncio.sleep(RETRY_S)
        else:
            if isinstance(outcome, Held):
                return outcome
            round_ = outcome.pop("round", round_ + 1)
            progress.waits(outcome.pop("unmet"), target=search.label, **outcome)
        turn += 1


async def look(tab: TabPort, search: Search, slice_ms: int, round_: int = 0) -> Held | dict[str, Any]:
    """The element, or what it lacks at the end of the slice."""
    world, frames, rest = await World.of(tab), [], search.parts
    while True:
        order = {
            "parts": rest,
            "needs": search.needs,
            "isStrict": search.is_strict,
            "isField": search.is_field,
            "sliceMs": slice_ms,
            "round": round_,
        }
        answer: dict[str, Any] = await world.run("locate", order)
        if "refused" in answer:
            raise _refusal(search, answer["refused"])
        if "unmet" in answer:
            return answer
        done = answer["done"]
        if "frame" not in done:
            break
        # Each frame takes one part at least, so this ends.
        frames.append(world)
        world, rest = await world.enter(), rest[done["frame"] + 1 :]
    if "x" in done:
        point = await _in_page(frames, done)
        if "unmet" in point:
            await world.run("releaseGuard")
            return point
        done |= point["done"]
    x, y = done.get("x", 0), done.get("y", 0)
    return Held(world=world, search=search, element=done["element"], is_framed=bool(frames), x=x, y=y)


async def _in_page(frames: list[World], at: dict[str, Any]) -> dict[str, Any]:
    """A point of the innermost document in the coordinates of the page, through the frames around it."""
    answer: dict[str, Any] = {"done": {"x": at["x"], "y": at["y"]}}
    for frame in reversed(frames):
        answer = await frame.run("through", answer["done"])
        if "unmet" in answer:
            break
    return answer


def _refusal(search: Search, refused: dict[str, Any]) -> InvalidSelector | StaleRef | AmbiguousTarget:
    match refused:
        case {"stale": ref}:
            return StaleRef(f"The element of {search.label} is no longer in the page.", ref=ref)
        case {"invalid": error, "part": part}:
            return InvalidSelector(
                f"{search.label} is not a valid selector: {error}", field="selector", error=error, part=part
            )
        case {"count": count, "candidates": candidates}:
            return AmbiguousTarget(
                f"{search.label} fits {count} elements.",
                action="Use the ref of one of the candidates, or a selector that fits one element only.",
                count=count,
                candidates=candidates,
            )
        case _:
            raise AssertionError(f"the script refused in a way of its own: {refused}")
