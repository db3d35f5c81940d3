"""Gives a page files: into a file input, its label, or whatever opens the file chooser when it is pressed.

A file input is given them at once, also one that cannot be seen, because pages hide them behind prettier things.
Anything else is pressed as a person would press it, and the chooser that opens is answered before anybody could see it.
The events `input` and `change` are the browser's own.

Invariants:
- `files` of the action are paths of this machine here: the broker has put them in the place of the names.
- Choosers are intercepted only while one is waited for, however that ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import PurePath
from typing import Any, Final, TypedDict

from .. import wire
from ..browsers.port import SessionPort, TabPort
from ..errors import ElementNotActionable, StateConflict
from .locate import PRESSABLE, Held, Search, locate
from .navigations import Navigations
from .pointer import press_on
from .progress import Progress
from .selectors import label_of, named_target
from .world import DocumentLost, World

# A page may open a chooser only within so many seconds of a press; Chromium refuses it later.
CHOOSER_LIMIT_S: Final = 5.0
# A person could not choose for a disabled input either, and a form would not send what it has.
CHOOSABLE: Final = ("enabled",)
_INTERCEPT: Final = "Page.setInterceptFileChooserDialog"


class _Given(TypedDict):
    """What the page saw of the files."""

    names: list[str]
    # Whether the input was in the document at that moment.
    isConnected: bool


async def upload(tab: TabPort, action: wire.Upload, progress: Progress) -> list[str]:
    """The names of the files as the page sees them."""
    search = Search(parts=named_target(action), label=label_of(action), needs=CHOOSABLE, is_field=True)
    while True:
        held = await locate(tab, search, progress)
        try:
            is_input = await _takes(held.world, held, action.files)
        except DocumentLost:
            continue
        if not is_input:
            world = await _pressed(tab, held, action, progress)
            return (await _give(tab, world, action.files))["names"]
        progress.acts()
        given = await _give(tab, held.world, action.files)
        # Otherwise the page has put another input in its place a moment before.
        if given["isConnected"]:
            return given["names"]


async def _takes(world: World, held: Held, files: list[str]) -> bool:
    """Whether the element that the world holds is an input for these files; raises when it is one for others only."""
    answer: dict[str, Any] = await world.run("expectFiles", len(files))
    if "failed" in answer:
        raise ElementNotActionable(
            f"{held.search.label} cannot be given these files: {answer['failed']}.",
            action="Give it what it takes, or choose another element.",
            element=held.element,
        )
    return bool(answer["done"] == "give")


async def _give(tab: TabPort, world: World, files: list[str]) -> _Given:
    with Navigations(tab) as navigations:
        try:
            await (world.give_files(files) if files else world.run("clearFiles"))
            given: _Given = await world.run("filesGiven")
        except DocumentLost:
            # The page went on when it got them, as pages do that send a form by themselves.
            given = {"names": [PurePath(path).name for path in files], "isConnected": True}
        await navigations.settle()
    return given


async def _pressed(tab: TabPort, held: Held, action: wire.Upload, progress: Progress) -> World:
    """The document with the input whose chooser a press of the element opens; it holds that input."""
    search = Search(parts=held.search.parts, label=held.search.label, needs=PRESSABLE)
    port, chooser = await _chooser_of(tab, held.world.port, search, progress)
    if chooser is None:
        raise ElementNotActionable(
            f"{search.label} was clicked, but opened no file chooser.",
            action="Name the file input itself, which may be hidden, or the element that opens the chooser.",
            element=held.element,
        )
    if "backendNodeId" not in chooser:
        raise ElementNotActionable(
            f"{search.label} opens a chooser that belongs to no file input, which only a person can answer.",
            action="Look for another way to give the page files, such as a file input.",
            element=held.element,
        )
    try:
        world = await World.in_frame(tab, port, chooser["frameId"])
        await world.hold(chooser["backendNodeId"])
        is_taken = await _takes(world, held, action.files)
    except DocumentLost as lost:
        raise StateConflict("The page went on before it could be given the files.") from lost
    assert is_taken, "only a file input has a chooser of its own"
    return world


async def _chooser_of(
    tab: TabPort, own: SessionPort, search: Search, progress: Progress
) -> tuple[SessionPort, Mapping[str, Any] | None]:
    """What Chromium tells about the chooser that a press opens, and on which session; None when none is opened."""
    opened: asyncio.Future[tuple[SessionPort, Mapping[str, Any]]] = tab.expect("a file chooser")

    def settle(port: SessionPort, event: Mapping[str, Any]) -> None:
        if not opened.done():
            opened.set_result((port, event))

    # A frame with a renderer of its own tells by itself.
    ports = [tab] if own is tab else [tab, own]
    stops = [port.listen("Page.fileChooserOpened", partial(settle, port)) for port in ports]
    try:
        await asyncio.gather(*(port.call(_INTERCEPT, {"enabled": True}) for port in ports))
        await press_on(tab, search, progress)
        done, _ = await asyncio.wait([opened], timeout=CHOOSER_LIMIT_S)
        return opened.result() if done else (tab, None)
    finally:
        for port in ports:
            port.post(_INTERCEPT, {"enabled": False})
        for stop in stops:
            stop()
        if not opened.cancel() and not opened.cancelled():
            # Looked at, or asyncio would complain: whoever waited has failed for the same reason.
            opened.exception()
