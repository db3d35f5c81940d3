"""Events of Chromium's that may not be the client's business, or that change what is.

Here its sessions come and go. One that is attached to what is not the client's, or of a kind that is nobody's, is
detached again, and the client does not hear of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from ... import logs
from . import message, rules
from .answers import Answers
from .emulation import Line, TargetDomain
from .ownership import Ownership
from .rules import Kind
from .tree import Node, Tree

log = logs.get_logger("cdp")

# Sessions that a client may be attached to.
SESSIONS_MAX: Final = 1_000


class Hearing:
    """What one client hears of its browser and of its sessions."""

    def __init__(
        self,
        line: Line,
        *,
        own: Ownership,
        targets: TargetDomain,
        tree: Tree,
        answers: Answers,
        place: Callable[[str, str], Awaitable[None]],
        left: Callable[[str], None],
    ) -> None:
        self._line = line
        self._own = own
        self._targets = targets
        self._tree = tree
        self._answers = answers
        # Puts a download where the client looks for it.
        self._place = place
        # Told of every session that is over.
        self._left = left

    def hear(self, payload: bytes) -> None:
        """An event that may not be the client's business, or that changes what is."""
        try:
            event = message.decode_event(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            log.warning("an event cannot be read and is dropped", head=payload[:100])
            return
        match event.method:
            case "Target.attachedToTarget":
                self._attached(event.sessionId, event.params)
            case "Target.detachedFromTarget":
                self._detached(event.params["sessionId"], payload)
            case "Target.targetInfoChanged":
                # Of what a page's own auto-attach found; discovery is answered from the watch.
                if self._own.owns(event.params["targetInfo"]):
                    self._line.send(payload)
            case "Page.downloadWillBegin":
                self._own.learn_download(event.params["guid"])
                self._line.send(payload)
            case method if method.startswith("Target."):
                return
            case method if rules.is_shown(method, event.params, self._own):
                self._tell_download(event.params, payload)
            case _:
                return

    def _tell_download(self, params: Mapping[str, Any], payload: bytes) -> None:
        """News of a download; that it is complete, once the file is where the client looks for it."""
        if params.get("state") == "completed" and self._own.client_dir:

            async def place() -> None:
                await self._place(params["guid"], self._own.client_dir)
                self._line.send(payload)

            self._line.spawn(place())
        else:
            self._line.send(payload)

    def _attached(self, parent_id: str, params: dict[str, Any]) -> None:
        info, session_id = params["targetInfo"], params["sessionId"]
        parent, kind = self._tree.find(parent_id), rules.kind_of(info["type"])
        is_one_too_many = len(self._tree) >= SESSIONS_MAX
        if (
            is_one_too_many
            or parent is None
            or kind is None
            or not (kind is Kind.ROOT or parent.page_id or self._own.owns(info))
        ):
            # Not the client's, or of a kind that is nobody's: as if it were not there.
            self._line.inject("Target.detachFromTarget", {"sessionId": session_id}, parent_id)
            return
        target_id = info["targetId"]
        page_id = target_id if kind is Kind.PAGE else parent.page_id
        node = Node(kind, session_id, parent_id, target_id, page_id)
        self._tree.add(node)
        if self._targets.is_waiting(target_id):
            params["waitingForDebugger"] = True
        self._line.send(message.event("Target.attachedToTarget", params, parent_id))
        self._answers.attached(node)
        self._targets.attached(parent_id, target_id)

    def _detached(self, session_id: str, payload: bytes) -> None:
        node = self._tree.remove(session_id)
        if node is None:
            return
        self._left(session_id)
        self._line.send(payload)
        self._targets.detached(node.parent_id, session_id, node.target_id)
