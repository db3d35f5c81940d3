"""Waits for an element until it can be acted upon; the caller's deadline is the only end of it.

A look runs in the page for a slice of time and is answered with the element, with a refusal that waiting cannot cure
(an invalid selector, a stale ref, several candidates), or with the condition that is still unmet, which is published
for whoever gives up, with what is in its way or what is nearest to it. A document that is replaced meanwhile is no
failure: the next one is looked at.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from ..browsers.port import TabPort
from . import nearest
from .mistakes import misreading
from .progress import Progress
from .refusal import refusal, unusable
from .selectors import Part, text_of
from .world import DocumentLost, World

# A first look is short, so that even a short-lived caller learns what was missing.
SLICES_MS: Final = (40, 80, 160)
SLICE_MAX_MS: Final = 250
# Between two documents there is a moment without one.
RETRY_S: Final = 0.02
# Frames beside the place where nothing is found are looked into after the second slice, and then every so many.
WIDE_EVERY: Final = 8

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
    # What came of the step that was to follow the look.
    answer: Any = None

    async def step(self, name: str, argument: Any = None) -> dict[str, Any]:
        """Do something with it; `done` or `unmet` is in the answer, and what never will work is raised."""
        answer: dict[str, Any] = await self.world.run("step", {"name": name, "argument": argument})
        if "failed" in answer:
            raise unusable(self.search.label, self.element, answer["failed"])
        return answer


async def locate(tab: TabPort, search: Search, progress: Progress) -> Held:
    """The element, as soon as it is ready."""
    # Until the first look is answered nothing is known of the element: a page that is busy with itself has not told.
    if not progress.waiting_for:
        progress.waits("page", target=search.label)
    round_ = turn = 0
    aside: list[nearest.Candidate] = []
    while True:
        slice_ms = SLICES_MS[turn] if turn < len(SLICES_MS) else SLICE_MAX_MS
        try:
            sight = await _look(tab, search, slice_ms, round_, is_advised=True)
            if isinstance(sight, Held):
                return sight
            if turn % WIDE_EVERY == 1:
                aside = await sight.beside()
        except DocumentLost:
            await asyncio.sleep(RETRY_S)
        else:
            round_ = sight.round
            progress.waits(sight.condition, target=search.label, **sight.told(aside))
        turn += 1


async def look(
    tab: TabPort,
    search: Search,
    slice_ms: int,
    *,
    then: dict[str, Any] | None = None,
    is_advised: bool = False,
) -> Held | dict[str, Any]:
    """The element, or what it lacks at the end of the slice, and what to know about that when it is advised.

    `then` is a step for it, taken as soon as it is ready.
    """
    sight = await _look(tab, search, slice_ms, then=then, is_advised=is_advised)
    if isinstance(sight, Held):
        return sight
    return {"unmet": sight.condition, **sight.told(await sight.beside() if is_advised else [])}


class _Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What a look has seen instead of a ready element."""

    # The document in which it ended, and the refs of the frames around that, each with a dot behind it.
    world: World
    prefix: str
    # Which condition is unmet, and the number of the next try.
    condition: str
    round: int
    # What else there is to tell, in wire spelling.
    details: dict[str, Any]
    # Where nothing fits: the parts that found nothing, and the frames in which they might find something.
    parts: list[Part]
    frames: list[dict[str, str]]

    async def beside(self) -> list[nearest.Candidate]:
        return await nearest.beside(self.world, self.prefix, self.frames, self.parts)

    def told(self, aside: list[nearest.Candidate]) -> dict[str, Any]:
        """The details, with the nearest candidates from here and from the frames."""
        near = nearest.best([*self.details.get("candidates", ()), *(aside if self.frames else ())])
        rest = {name: value for name, value in self.details.items() if name != "candidates" and value is not None}
        return {**rest, "candidates": near} if near else rest


async def _look(
    tab: TabPort,
    search: Search,
    slice_ms: int,
    round_: int = 0,
    *,
    then: dict[str, Any] | None = None,
    is_advised: bool,
) -> Held | _Sight:
    world, rest = await World.of(tab), search.parts
    # The documents around, from the outermost on; each holds the frame that leads on.
    around: list[World] = []
    while True:
        order = {
            "parts": rest,
            "needs": search.needs,
            "isStrict": search.is_strict,
            "isField": search.is_field,
            "sliceMs": slice_ms,
            "round": round_,
            "then": then,
            "isAdvised": is_advised,
        }
        answer: dict[str, Any] = await world.run("locate", order)
        if "refused" in answer:
            prefix, _ = await _entered(around)
            raise refusal(search.label, nearest.in_document(answer["refused"], prefix))
        if "failed" in answer:
            raise unusable(search.label, answer["element"], answer["failed"])
        if "unmet" in answer:
            return await _sight(around, world, answer, search, rest)
        done = answer["done"]
        if "frame" not in done:
            break
        # Each frame takes one part at least, so this ends.
        around.append(world)
        world, rest = await world.enter(), rest[done["frame"] + 1 :]
    if "x" in done:
        point = await _in_page(around, done)
        if "unmet" in point:
            await world.run("releaseGuard")
            return await _sight([], world, point, search, rest)
        done |= point["done"]
    x, y = done.get("x", 0), done.get("y", 0)
    told, element = done.get("answer"), done["element"]
    return Held(world=world, search=search, element=element, is_framed=bool(around), x=x, y=y, answer=told)


async def _entered(around: list[World]) -> tuple[str, str | None]:
    """The refs of the frames that were entered, each with a dot behind it, and the line of the last."""
    prefix, line = "", None
    for world in around:
        frame: dict[str, str] | None = await world.run("entered")
        if frame is None:
            raise DocumentLost("the frame is gone")
        prefix, line = f"{prefix}{frame['ref']}.", frame["element"]
    return prefix, line


async def _sight(around: list[World], world: World, answer: dict[str, Any], search: Search, rest: list[Part]) -> _Sight:
    """Reads what the script has answered, in the document that `rest` is left for."""
    prefix, frame = await _entered(around)
    details: dict[str, Any] = nearest.in_document(answer, prefix)
    at, round_, _ = details.pop("part", None), details.pop("round", 0), details.pop("frames", None)
    if details.pop("isProse", None) is not None:
        details["hint"] = misreading(rest[at]["body"])
    if at is not None and len(search.parts) > 1:
        details |= _failing(search.parts, len(search.parts) - len(rest) + at)
        if at == 0 and frame is not None:
            details["frame"] = frame
    return _Sight(
        world=world,
        prefix=prefix,
        condition=details.pop("unmet"),
        round=round_,
        details=details,
        parts=[] if at is None else rest[at:],
        frames=answer.get("frames", []),
    )


def _failing(parts: list[Part], at: int) -> dict[str, str]:
    """At which part of the way nothing was found, and what it was looked for in."""
    told = {"part": text_of(parts[at])}
    return {**told, "inside": text_of(parts[at - 1])} if at > 0 else told


async def _in_page(around: list[World], at: dict[str, Any]) -> dict[str, Any]:
    """A point of the innermost document in the coordinates of the page, through the frames around it."""
    answer: dict[str, Any] = {"done": {"x": at["x"], "y": at["y"]}}
    for place in range(len(around) - 1, -1, -1):
        answer = await around[place].run("through", answer["done"])
        if "unmet" in answer:
            prefix, _ = await _entered(around[:place])
            return dict(nearest.in_document(answer, prefix))
    return answer
