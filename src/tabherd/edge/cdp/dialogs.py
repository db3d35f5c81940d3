"""The dialogs in the pages of one client: that they are its to answer, and how it leaves them.

A dialog that opens in the moment in which the next document of its page is ready can be answered by nobody (see
`browsers.dialogs`), and when a session that hears of dialogs then ends, or is told to hear of them no more, the whole
Chromium dies of it, with all its tenants. To close the page first is safe.

Invariant: when a session of the client's that hears of dialogs ends, by whatever way, Chromium has just said that its
page has none open, or the page is no more. What the page does in the moment in between is its own; the driver, which
hears of every dialog as well, closes such a page as soon as it has heard of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from ... import logs
from ...broker.registry import Registry
from ...browsers.dialogs import is_stranded
from ...browsers.port import BrowserGone, CdpFailure
from . import message
from .emulation import Line
from .tree import Node, Tree

log = logs.get_logger("cdp")

# How long Chromium may take to say whether a dialog is open. It does so also for a page that spins.
ANSWER_LIMIT_S: Final = 2.0


class ClientDialogs:
    """Those of one client."""

    def __init__(self, line: Line, tree: Tree, registry: Registry, give_up: Callable[[str], Awaitable[None]]) -> None:
        self._line = line
        self._tree = tree
        self._registry = registry
        # Closes a page that nobody can use any more.
        self._give_up = give_up
        # The page of each session that hears of dialogs, and those of them in which one is open.
        self._pages: dict[str, str] = {}
        self._open: set[str] = set()

    def take(self, node: Node) -> None:
        """The session is told of dialogs from now on, so they are its client's to answer."""
        if node.session_id not in self._pages:
            self._pages[node.session_id] = node.page_id
            self._registry.take_dialogs(node.page_id)

    def leave(self, session_id: str) -> None:
        """The session is over, or hears of no more dialogs. Idempotent."""
        self._open.discard(session_id)
        if (page_id := self._pages.pop(session_id, None)) is not None:
            self._registry.leave_dialogs(page_id)

    def note(self, payload: bytes) -> None:
        """An event says that a dialog has opened or closed."""
        node = self._tree.find_by_bytes(message.session_of_reply(payload))
        if node is not None:
            is_open = payload.startswith(message.DIALOG_OPENING)
            (self._open.add if is_open else self._open.discard)(node.session_id)

    def dismiss(self, session_id: str) -> None:
        """Close what is open, before the client's next message: that sends the page elsewhere, and then nobody could.

        Without a dialog Chromium says so, and that is all.
        """
        if session_id in self._pages:
            self._ask(session_id)

    def ending_with(self, session_id: str) -> list[str]:
        """The sessions that hear of dialogs and that end with that one."""
        return [id for id in self._pages if self._is_within(id, session_id)]

    async def calm(self, session_ids: Collection[str]) -> None:
        """Return when those sessions may end."""
        await asyncio.gather(*(self._calm(id, self._pages[id]) for id in session_ids if id in self._pages))

    async def leave_all(self) -> None:
        """The client has left: what opens from now on is not its to answer. Return when its sessions may end."""
        pages, self._pages = self._pages, {}
        for page_id in pages.values():
            self._registry.leave_dialogs(page_id)
        await asyncio.gather(*(self._calm(id, page_id) for id, page_id in pages.items()))

    async def _calm(self, session_id: str, page_id: str) -> None:
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                await self._ask(session_id)
        except CdpFailure as failure:
            # Events come before the answer: whether one is open is known.
            if is_stranded(failure.message) and session_id in self._open:
                await self._give_up(page_id)
        except (TimeoutError, BrowserGone) as reason:
            log.info("a page was left without a word about its dialogs", targetId=page_id, reason=str(reason))

    def _ask(self, session_id: str) -> asyncio.Future[dict[str, Any]]:
        return self._line.inject("Page.handleJavaScriptDialog", {"accept": False}, session_id)

    def _is_within(self, session_id: str, outer_id: str) -> bool:
        node = self._tree.find(session_id)
        while node is not None and node.session_id != outer_id:
            # The connection itself is within nothing.
            node = self._tree.find(node.parent_id) if node.session_id else None
        return node is not None
