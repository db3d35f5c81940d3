"""Drags something to somewhere else with the real mouse: sliders, sortable lists, and HTML drag and drop.

Before anything is pressed both ends are waited for: what is dragged until it can be pressed, and the target until it is
there and, if it can be seen already, until nothing covers it. So a caller that gives up then has an untouched page.
A target that shows only while something is dragged is waited for with the button down, but not for long.

The mouse is pressed under the same guard as a click. A page that lets the browser carry something (HTML drag and drop)
has that intercepted and gets the drag events of it in the place of the mouse's.

Invariants:
- However it ends, the button is up, nothing is carried, and drags are not intercepted any more.
- A drag that is given up ends outside of the page, where nothing can be dropped and no click is made of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Self

import msgspec

from .. import wire
from ..browsers.port import TabPort
from ..errors import InvalidRequest, InvalidSelector, TabherdError
from .locate import ATTACHED, PRESSABLE, STILL, VISIBLE, Held, Search, locate, look
from .navigations import Navigations
from .pointer import approached
from .progress import Progress
from .selectors import parse, parse_ref
from .world import DocumentLost, World

# On how many points of the way the page hears of the mouse.
STEPS: Final = 6
# A first small move: from this distance on a press is a drag for most of what can be dragged.
NUDGE_PX: Final = 6.0
# How long a target may take to show up, or to stand still, while something is dragged.
TARGET_LIMIT_S: Final = 3.0
# How long Chromium may take to tell what the browser carries once the page has let it.
CARRY_LIMIT_S: Final = 2.0
# What a target needs that can be seen before the drag. It need not be enabled: nobody presses it.
UNCOVERED: Final = ("visible", "stable", "receives_events")
# A point outside of every page.
OUTSIDE: Final = -1.0


class Point(msgspec.Struct, frozen=True):
    """A place in the viewport of the page."""

    x: float
    y: float


async def drag(tab: TabPort, action: wire.Drag, progress: Progress) -> None:
    source, target = _end_of(action.from_, "from"), _end_of(action.to, "to")
    with Hand(tab) as hand, Navigations(tab) as navigations:
        await hand.prepare()
        while True:
            likely = await _expected(tab, target, progress)
            if await _taken(tab, hand, source, progress):
                break
        await hand.move(_towards(hand.at, likely, NUDGE_PX))
        goal = await _shown(tab, target)
        start = hand.at
        for step in range(1, STEPS + 1):
            part = step / STEPS
            await hand.move(Point(start.x + (goal.x - start.x) * part, start.y + (goal.y - start.y) * part))
        await hand.drop()
        # Answered on the channel that tells about navigations, so those that the drop began are known afterwards.
        with suppress(DocumentLost):
            await (await World.of(tab)).run("addressOf")
        await navigations.settle()


class Hand:
    """The mouse while it drags; whatever happens, it is empty when it is left."""

    def __init__(self, tab: TabPort) -> None:
        self._tab = tab
        # Where it is.
        self.at = Point(0, 0)
        # The document that is dragged from; of a point, the main one.
        self._world: World | None = None
        self._is_down = False
        # What the browser carries, as Chromium describes it; None while the page hears the mouse itself.
        self._load: dict[str, Any] | None = None
        self._intercepted = tab.expect("an intercepted drag")
        self._stop = tab.listen("Input.dragIntercepted", self._on_intercepted)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        if not self._intercepted.cancel() and not self._intercepted.cancelled():
            # Looked at, or asyncio would complain: whoever dragged has failed for the same reason.
            self._intercepted.exception()
        if self._is_down:
            self._give_up()
        self._tab.post("Input.setInterceptDrags", {"enabled": False})

    async def prepare(self) -> None:
        """What the browser would carry from now on is told to us instead."""
        await self._tab.call("Input.setInterceptDrags", {"enabled": True})

    async def press(self, at: Point, world: World) -> None:
        self.at, self._world = at, world
        with suppress(DocumentLost):
            await world.run("watchDrag")
        self._is_down = True
        await asyncio.gather(self._mouse("mouseMoved"), self._mouse("mousePressed", clickCount=1, **_LEFT))

    async def release(self) -> None:
        await self._mouse("mouseReleased", button="left", clickCount=1)
        self._is_down = False

    async def move(self, to: Point) -> None:
        self.at = to
        if self._load is not None:
            await self._carry("dragOver")
            return
        await self._mouse("mouseMoved", **_LEFT)
        if await self._is_carried():
            self._load = self._intercepted.result()
            await self._carry("dragEnter")

    async def drop(self) -> None:
        """Let go of it where it is."""
        if self._load is None:
            await self.release()
            return
        # Once more, as a person's hand would make it: some pages make up their mind only over the target.
        await self._carry("dragOver")
        await self._carry("drop")
        self._is_down = False
        if self._world is not None:
            with suppress(DocumentLost):
                await self._world.run("dragEnd")

    async def _is_carried(self) -> bool:
        """Whether the browser carries something. Chromium tells it beside its answer, so the page is asked, too."""
        if not self._intercepted.done() and self._world is not None:
            with suppress(DocumentLost):
                if await self._world.run("isCarrying"):
                    await asyncio.wait([self._intercepted], timeout=CARRY_LIMIT_S)
        return self._intercepted.done()

    async def _mouse(self, kind: str, **more: Any) -> None:
        await self._tab.call("Input.dispatchMouseEvent", {"type": kind, "x": self.at.x, "y": self.at.y, **more})

    async def _carry(self, kind: str) -> None:
        event = {"type": kind, "x": self.at.x, "y": self.at.y, "data": self._load}
        await self._tab.call("Input.dispatchDragEvent", event)

    def _give_up(self) -> None:
        """Sent without waiting, because whoever dragged may have been cancelled. What is not carried is not harmed."""
        out = {"x": OUTSIDE, "y": OUTSIDE}
        load = self._load or {"items": [], "dragOperationsMask": 1}
        self._tab.post("Input.dispatchDragEvent", {"type": "dragCancel", **out, "data": load})
        self._tab.post("Input.dispatchMouseEvent", {"type": "mouseReleased", **out, "button": "left", "clickCount": 1})

    def _on_intercepted(self, event: Mapping[str, Any]) -> None:
        if not self._intercepted.done():
            # A file of this machine is nothing that a page may be given by dropping it.
            self._intercepted.set_result({name: value for name, value in event["data"].items() if name != "files"})


_LEFT: Final = {"button": "left", "buttons": 1}


def _end_of(given: str | wire.Place, name: str) -> Search | Point:
    """What the caller has named as one end of the drag."""
    place = wire.Place(selector=given) if isinstance(given, str) else given
    try:
        match place:
            case wire.Place(selector=str(selector), ref=None, x=None, y=None):
                return Search(parts=parse(selector), label=f"'{selector}'", needs=PRESSABLE)
            case wire.Place(selector=None, ref=str(ref), x=None, y=None):
                return Search(parts=parse_ref(ref), label=f"ref {ref}", needs=PRESSABLE)
            case wire.Place(selector=None, ref=None, x=float() | int() as x, y=float() | int() as y):
                return Point(x, y)
    except InvalidSelector as error:
        error.details["field"] = name
        raise
    raise InvalidRequest(f"{name}: name a selector, or a ref, or both x and y.", field=name)


async def _expected(tab: TabPort, target: Search | Point, progress: Progress) -> Point | None:
    """Waits for the target as far as it can be expected before the drag; where it is, if it can be seen."""
    if isinstance(target, Point):
        return target
    await locate(tab, _needing(target, ATTACHED), progress)
    try:
        if not isinstance(await look(tab, _needing(target, VISIBLE), slice_ms=0), Held):
            return None
        held = await locate(tab, _needing(target, UNCOVERED), progress)
        # It is not what will be pressed.
        await held.world.run("releaseGuard")
    except DocumentLost:
        return None
    return Point(held.x, held.y)


async def _taken(tab: TabPort, hand: Hand, source: Search | Point, progress: Progress) -> bool:
    """Press what is dragged, as soon as it is ready; False when something else was in the way and nothing happened."""
    if isinstance(source, Point):
        world = await World.of(tab)
        progress.acts()
        await hand.press(source, world)
        return True
    held = await approached(tab, source, 0, progress)
    progress.acts()
    await hand.press(Point(held.x, held.y), held.world)
    try:
        judged = await held.world.run("pressJudged")
        if judged["isMissed"]:
            # Swallowed by the guard as well.
            await hand.release()
        await held.world.run("releaseGuard")
    except DocumentLost:
        # The press has sent the page away.
        return True
    if judged["isMissed"]:
        cover = judged["coveredBy"]
        progress.waits("receives_events", target=source.label, element=held.element, coveredBy=cover)
    return not judged["isMissed"]


async def _shown(tab: TabPort, target: Search | Point) -> Point:
    """Where the target is while something is dragged. The page is touched by now, so what is missing is raised."""
    if isinstance(target, Point):
        return target
    missing = Progress()
    while True:
        try:
            async with asyncio.timeout(TARGET_LIMIT_S):
                return await _in_view(tab, _needing(target, STILL), missing)
        except TimeoutError:
            # A page that is busy with itself may still come to it; its caller knows how long.
            if (failure := missing.failure()) is not None and missing.waiting_for != "page":
                raise _given_up(failure) from None


async def _in_view(tab: TabPort, search: Search, missing: Progress) -> Point:
    while True:
        held = await locate(tab, search, missing)
        # Both are 0 when no part of it is in the viewport; a middle is never at its very edge.
        if held.x or held.y:
            return Point(held.x, held.y)
        missing.waits("receives_events", target=search.label, element=held.element, reason="outside of the viewport")


def _given_up(failure: TabherdError) -> TabherdError:
    failure.message = f"{failure.message} The drag had begun, and was given up."
    failure.action = "Look at the page: the target may have gone or moved when the drag began."
    return failure


def _needing(search: Search, needs: tuple[str, ...]) -> Search:
    return msgspec.structs.replace(search, needs=needs)


def _towards(at: Point, goal: Point | None, distance_px: float) -> Point:
    """So far from the point on the way to the goal; where that is unknown, to the right."""
    if goal is None:
        return Point(at.x + distance_px, at.y)
    across, down = goal.x - at.x, goal.y - at.y
    length = (across**2 + down**2) ** 0.5
    if length <= distance_px:
        return goal
    return Point(at.x + across / length * distance_px, at.y + down / length * distance_px)
