"""Our script's own place in a document: an isolated world, which shares the page's elements but none of its JavaScript.

Whatever a page does to its prototypes, its JSON or its timers, ours are the browser's own. Chromium gives the same
world again for the same name, and a document that has not met the script yet gets it then. A frame with a process of
its own is reached through its own session.

Where the script of the main document is, is remembered for the next action, which saves it a round trip. Chromium's
number of a world may mean another one after a navigation, so the script has to show the token that it was given: a page
cannot know it, and whatever else is met there is left alone.

Every call raises `DocumentLost` when the document goes away under it. Whoever has not acted yet looks again.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
import secrets
from importlib import resources
from typing import Any, Final

from ..browsers.port import CdpFailure, SessionPort, TabGone, TabPort
from ..errors import StateConflict
from .evaluate import is_navigation

_NAME: Final = "tabherd"
_FILES: Final = (
    "dom.js",
    "roles.js",
    "query.js",
    "refs.js",
    "ready.js",
    "fields.js",
    "snapshot.js",
    "outline.js",
    "alike.js",
    "nearest.js",
    "obstacles.js",
    "files.js",
    "drag.js",
)
# What may be called from here.
_FUNCTIONS: Final = (
    *("locate", "through", "isReached", "releaseGuard", "step", "releaseInput", "scrollPage"),
    *("readPage", "addressOf", "describePage", "screenScale", "snapshot", "holdRef", "heldFrame", "nearest", "entered"),
    *("hold", "heldInput", "expectFiles", "clearFiles", "filesGiven"),
    *("watchDrag", "isCarrying", "dragEnd", "pressJudged"),
)
# Handles are asked for only of a frame, while it is being entered, and of an input, while it is being given files.
_GROUP: Final = f"{_NAME} handle"
_NO_FRAME: Final = "No frame"
_NO_WORLD: Final = "Cannot find context"
# What is sent to a frame with a renderer of its own in the moment in which it goes to another document is sometimes
# never answered. Longer than the longest look.
FRAME_ANSWER_LIMIT_S: Final = 2.0
# Documents are told apart by a tag of three letters, so that a ref of one is never taken for a ref of another. They
# are counted, and from a random one on, because refs from before a restart of ours may still be around.
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_tags: Final = itertools.count(random.randrange(len(_LETTERS) ** 3))


class DocumentLost(Exception):
    """The document that was to answer is no longer there."""


def _source() -> str:
    files = resources.files(__package__)
    script = "\n".join(files.joinpath(name).read_text("utf-8") for name in _FILES)
    names = ", ".join(_FUNCTIONS)
    return f"(documentTag, token) => {{\n'use strict';\n{script}\nreturn {{token, {names}}};\n}}"


_SOURCE: Final = _source()
# The script's name in its world. One of another version, from before an upgrade of ours, is not taken for it.
_SCRIPT: Final = f"{_NAME}_{hashlib.sha256(_SOURCE.encode()).hexdigest()[:12]}"
_HELD: Final = f"{_SCRIPT}.heldFrame()"
_HELD_INPUT: Final = f"{_SCRIPT}.heldInput()"
_HOLD: Final = f"function() {{ {_SCRIPT}.hold(this); }}"
# Strict, so that a page's own code, should it be met, cannot look at the arguments of its caller.
_CALL: Final = f"""function(token, name, argument) {{
  "use strict";
  const script = Object.hasOwn(globalThis, "{_SCRIPT}") ? globalThis.{_SCRIPT} : null;
  if (script === null || (token !== null && script.token !== token)) return null;
  return Promise.resolve(script[name](argument)).then((answer) => ({{token: script.token, answer}}));
}}"""


class World:
    """The script in one document: from its first answer on it is that one, or lost."""

    __slots__ = ("_context_id", "_is_main", "_is_recalled", "_port", "_tab", "_token")

    def __init__(self, tab: TabPort, port: SessionPort, context_id: int, token: str | None = None) -> None:
        self._tab = tab
        # The session that the document answers on: the tab's, or its frame's own.
        self._port = port
        self._context_id = context_id
        # What the script there has to show; None until it has answered where Chromium says that the world is.
        self._token = token
        # It is remembered from before, and may be another document's by now.
        self._is_recalled = token is not None
        self._is_main = False

    @classmethod
    async def of(cls, tab: TabPort) -> World:
        """In the main document."""
        # Chromium names the main frame after its target.
        main = cls(tab, tab, *tab.script) if tab.script is not None else await cls.in_frame(tab, tab, tab.target_id)
        main._is_main = True
        return main

    async def run(self, name: str, argument: Any = None) -> Any:
        """What that function of the script returns, promises awaited."""
        told = await self._call(name, argument)
        if told is None and self._is_recalled:
            self._context_id, self._token = await self._context(self._port, self._tab.target_id), None
            self._is_recalled = False
            told = await self._call(name, argument)
        if told is None and self._token is None:
            await self._inject()
            told = await self._call(name, argument)
        if told is None:
            raise DocumentLost("another document is there now")
        self._is_recalled = False
        if self._token is None:
            self._token = told["token"]
            if self._is_main:
                self._tab.script = (self._context_id, told["token"])
        return told["answer"]

    async def enter(self) -> World:
        """Into the document of the frame that the script holds."""
        return await self.in_frame(self._tab, self._port, await self.held_frame_id())

    async def held_frame_id(self) -> str:
        """Which frame the script holds."""
        params = {"expression": _HELD, "contextId": self._context_id, "objectGroup": _GROUP}
        held = (await self._ask("Runtime.evaluate", params))["result"]
        if "objectId" not in held:
            raise DocumentLost("the frame is gone")
        # One after the other on the wire, so the handle is used before it is dropped, at the price of one round trip.
        described: dict[str, Any]
        described, _ = await asyncio.gather(
            self._ask("DOM.describeNode", {"objectId": held["objectId"]}),
            self._ask("Runtime.releaseObjectGroup", {"objectGroup": _GROUP}),
        )
        node = described["node"]
        if "frameId" not in node:
            raise DocumentLost("the frame has no document yet")
        frame_id: str = node["frameId"]
        return frame_id

    @property
    def port(self) -> SessionPort:
        """The session that the document answers on."""
        return self._port

    async def hold(self, backend_node_id: int) -> None:
        """Have the script hold that node of its document."""
        # It may not be there yet.
        await self.run("addressOf")
        node = {"backendNodeId": backend_node_id, "executionContextId": self._context_id, "objectGroup": _GROUP}
        resolved = (await self._ask("DOM.resolveNode", node))["object"]["objectId"]
        await self._ask("Runtime.callFunctionOn", {"functionDeclaration": _HOLD, "objectId": resolved})
        await self._ask("Runtime.releaseObjectGroup", {"objectGroup": _GROUP})

    async def give_files(self, paths: list[str]) -> None:
        """Put these files into the input that the script holds, with the events of a person's choice."""
        params = {"expression": _HELD_INPUT, "contextId": self._context_id, "objectGroup": _GROUP}
        object_id = (await self._ask("Runtime.evaluate", params))["result"]["objectId"]
        await self._ask("DOM.setFileInputFiles", {"objectId": object_id, "files": paths})
        await self._ask("Runtime.releaseObjectGroup", {"objectGroup": _GROUP})

    @classmethod
    async def in_frame(cls, tab: TabPort, port: SessionPort, frame_id: str) -> World:
        """In the document of that frame, which may have a session of its own."""
        try:
            return cls(tab, port, await cls._context(port, frame_id))
        except CdpFailure as failure:
            if not failure.message.startswith(_NO_FRAME):
                raise
        own = await tab.frame(frame_id)
        if own is None:
            raise DocumentLost("the frame is not there yet")
        return cls(tab, own, await cls._own_context(own, frame_id))

    @staticmethod
    async def _context(port: SessionPort, frame_id: str) -> int:
        try:
            made = await port.call("Page.createIsolatedWorld", {"frameId": frame_id, "worldName": _NAME})
        except CdpFailure as failure:
            if not is_navigation(failure):
                raise
            raise DocumentLost(failure.message) from failure
        context_id: int = made["executionContextId"]
        return context_id

    @classmethod
    async def _own_context(cls, port: SessionPort, frame_id: str) -> int:
        try:
            async with asyncio.timeout(FRAME_ANSWER_LIMIT_S):
                return await cls._context(port, frame_id)
        except (TabGone, TimeoutError) as gone:
            raise DocumentLost("the frame is gone") from gone
        except CdpFailure as failure:
            if not failure.message.startswith(_NO_FRAME):
                raise
            raise DocumentLost("the frame is gone") from failure

    async def _inject(self) -> None:
        number = next(_tags)
        size = len(_LETTERS)
        tag = "".join(_LETTERS[number // size**place % size] for place in (2, 1, 0))
        # Without an answer: the script's own functions are of no use to us by value.
        expression = f"globalThis.{_SCRIPT} = ({_SOURCE})('{tag}', '{secrets.token_hex(16)}'); 0"
        await self._ask("Runtime.evaluate", {"expression": expression, "contextId": self._context_id})

    async def _call(self, name: str, argument: Any) -> dict[str, Any] | None:
        """Its answer and its token; None when the script is not there, or not with the token that it has to show."""
        params = {
            "functionDeclaration": _CALL,
            "executionContextId": self._context_id,
            "arguments": [{"value": self._token}, {"value": name}, {"value": argument}],
            "awaitPromise": True,
            "returnByValue": True,
        }
        try:
            answer = await self._ask("Runtime.callFunctionOn", params)
        except (DocumentLost, StateConflict) as failed:
            # Either nothing is there, or something that is not ours.
            if self._is_recalled and (isinstance(failed, StateConflict) or str(failed).startswith(_NO_WORLD)):
                return None
            raise
        told: dict[str, Any] | None = answer["result"].get("value")
        return told

    async def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        is_own = self._port is not self._tab
        try:
            async with asyncio.timeout(FRAME_ANSWER_LIMIT_S if is_own else None):
                answer = await self._port.call(method, params)
        except CdpFailure as failure:
            if not is_navigation(failure):
                raise
            raise DocumentLost(failure.message) from failure
        except (TabGone, TimeoutError) as gone:
            if not is_own:
                raise
            # Only the frame: the page around it lives.
            raise DocumentLost("the frame is gone") from gone
        if "exceptionDetails" in answer:
            thrown = answer["exceptionDetails"].get("exception", {}).get("description", "")[:1000]
            raise StateConflict("The page is built in a way that it cannot be read.", error=thrown)
        return answer
