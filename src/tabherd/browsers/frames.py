"""Sessions of a page's frames that live in renderers of their own; those of other frames are the page's.

Chromium attaches to them when it is asked to, and then to each that comes later, with what is inside it. So the first
question costs a round trip per level, and the next ones nothing. A page nobody asked this of has no such session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from .cdp import CdpSession
from .port import TabGone

_ATTACH: Final = {
    "autoAttach": True,
    "flatten": True,
    "waitForDebuggerOnStart": False,
    "filter": [{"type": "iframe"}],
}
# How deep frames with their own renderers may stand in each other; Chromium itself stops sites that nest for ever.
DEPTH_MAX: Final = 50


class FrameSessions:
    """The frames of one page, by frame id, which is their target id too."""

    __slots__ = ("_page", "_sessions", "_watched")

    def __init__(self, page: CdpSession) -> None:
        self._page = page
        self._sessions: dict[str, CdpSession] = {}
        # Session ids that tell us about the frames directly below them.
        self._watched: set[str] = set()

    async def find(self, frame_id: str) -> CdpSession | None:
        """The frame's own session; None when it has none (any more, or yet)."""
        for _ in range(DEPTH_MAX):
            if frame_id in self._sessions:
                break
            fresh = [each for each in (self._page, *self._sessions.values()) if each.session_id not in self._watched]
            if not fresh:
                break
            await asyncio.gather(*(self._watch(each) for each in fresh))
        return self._sessions.get(frame_id)

    async def _watch(self, session: CdpSession) -> None:
        self._watched.add(session.session_id)
        session.listen("Target.attachedToTarget", self._add)
        session.listen("Target.detachedFromTarget", self._drop)
        try:
            # Answered after the frames that are there have been attached.
            await session.call("Target.setAutoAttach", _ATTACH)
        except TabGone:
            if session is self._page:
                raise
            # The frame left while it was asked; what was inside is gone with it.

    def _add(self, event: Mapping[str, Any]) -> None:
        session = self._page.connection.session(event["sessionId"])
        # Worlds can be made only where this was said; messages keep their order, so nobody need wait for it.
        session.post("Page.enable")
        self._sessions[event["targetInfo"]["targetId"]] = session

    def _drop(self, event: Mapping[str, Any]) -> None:
        gone = event.get("sessionId")
        self._watched.discard(str(gone))
        # A frame that changes its process may be attached anew before the old session ends.
        self._sessions = {frame: each for frame, each in self._sessions.items() if each.session_id != gone}
