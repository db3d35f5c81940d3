"""Our script's own place in a document: an isolated world, which shares the page's elements but none of its JavaScript.

Whatever a page does to its prototypes, its JSON or its timers, ours are the browser's own. Nothing is remembered here:
Chromium gives the same world again for the same name, and a document that has not met the script yet gets it then. A
frame with a process of its own is reached through its own session.

Every call raises `DocumentLost` when the document goes away under it. Whoever has not acted yet looks again.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from importlib import resources
from typing import Any, Final

from ..browsers.port import CdpFailure, SessionPort, TabGone, TabPort
from ..errors import StateConflict
from .evaluate import is_navigation

_NAME: Final = "tabherd"
_FILES: Final = ("roles.js", "query.js", "ready.js", "fields.js", "snapshot.js")
# What may be called from here.
_FUNCTIONS: Final = (
    *("locate", "through", "isReached", "releaseGuard", "step", "scrollPage"),
    *("readPage", "addressOf", "describePage", "snapshot", "holdRef", "heldFrame"),
)
_CALL: Final = f"""function(name, argument) {{
  return Object.hasOwn(globalThis, "{_NAME}") ? globalThis.{_NAME}[name](argument) : {{isMissing: true}};
}}"""
# The one handle that is ever asked for: that of a frame, while it is being entered.
_GROUP: Final = f"{_NAME} frame"
_HELD: Final = f"{_NAME}.heldFrame()"
_NO_FRAME: Final = "No frame"
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
    return f"(documentTag) => {{\n'use strict';\n{script}\nglobalThis.{_NAME} = {{{names}}};\n}}"


_SOURCE: Final = _source()


class World:
    """The script in one document."""

    __slots__ = ("_context_id", "_port", "_tab")

    def __init__(self, tab: TabPort, port: SessionPort, context_id: int) -> None:
        self._tab = tab
        # The session that the document answers on: the tab's, or its frame's own.
        self._port = port
        self._context_id = context_id

    @classmethod
    async def of(cls, tab: TabPort) -> World:
        """In the main document."""
        # Chromium names the main frame after its target.
        return await cls._in_frame(tab, tab, tab.target_id)

    async def run(self, name: str, argument: Any = None) -> Any:
        """What that function of the script returns, promises awaited."""
        answer = await self._call(name, argument)
        if isinstance(answer, dict) and "isMissing" in answer:
            await self._inject()
            answer = await self._call(name, argument)
        return answer

    async def enter(self) -> World:
        """Into the document of the frame that the script holds."""
        params = {"expression": _HELD, "contextId": self._context_id, "objectGroup": _GROUP}
        held = (await self._ask("Runtime.evaluate", params))["result"]
        if "objectId" not in held:
            raise DocumentLost("the frame is gone")
        node = (await self._ask("DOM.describeNode", {"objectId": held["objectId"]}))["node"]
        await self._ask("Runtime.releaseObjectGroup", {"objectGroup": _GROUP})
        if "frameId" not in node:
            raise DocumentLost("the frame has no document yet")
        return await self._in_frame(self._tab, self._port, node["frameId"])

    @classmethod
    async def _in_frame(cls, tab: TabPort, port: SessionPort, frame_id: str) -> World:
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
        made = await port.call("Page.createIsolatedWorld", {"frameId": frame_id, "worldName": _NAME})
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
        await self._ask("Runtime.evaluate", {"expression": f"({_SOURCE})('{tag}')", "contextId": self._context_id})

    async def _call(self, name: str, argument: Any) -> Any:
        answer = await self._ask(
            "Runtime.callFunctionOn",
            {
                "functionDeclaration": _CALL,
                "executionContextId": self._context_id,
                "arguments": [{"value": name}, {"value": argument}],
                "awaitPromise": True,
                "returnByValue": True,
            },
        )
        return answer["result"].get("value")

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
