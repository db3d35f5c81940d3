"""What one client says to windows that have no document yet, and when Chromium gets it. See `first_document`.

Scripts that the gate adds on the client's behalf would run twice if Chromium got the client's own at the same time, so
those are kept back until the first document is there. Of some settings a page has only one, so the client's own are
kept back until the gate has taken its own back. Everything else passes at once. Calls of a binding may come from both
the gate and the client's own session; the client hears of each once, after what it asked for before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ...errors import BodyTooLarge
from . import message
from .emulation import Line, TargetDomain
from .first_document import ADD_SCRIPT, ADDED_MAX, RUN, FirstDocument
from .message import Request
from .rules import Kind
from .tree import Node

# What each session has of its own: in force in the gate's and in the client's at once.
_PER_SESSION: Final = frozenset(
    {"Runtime.addBinding", "Emulation.setUserAgentOverride", "Network.setUserAgentOverride"}
)
# Of what there is one in a page.
_PER_PAGE: Final = frozenset(
    {
        "Emulation.setEmulatedMedia",
        "Emulation.setLocaleOverride",
        "Emulation.setTimezoneOverride",
        "Emulation.setTouchEmulationEnabled",
    }
)
# All that must be in force before the first script.
EARLY: Final = _PER_SESSION | _PER_PAGE | {ADD_SCRIPT}
# How Chromium begins what has to be looked at while calls come from two sides.
BINDING_CALLED: Final = b'{"method":"Runtime.bindingCalled"'
# Calls that are remembered until the other side has told of them, too.
CALLS_MAX: Final = 1_000

# The session, and what was called: two calls that look the same are taken for one.
_Call = tuple[str, str, str, int]
_Message = tuple[Node, Request]


class _Window:
    """A window of the client's that has no document yet, or whose gate is still there."""

    def __init__(self) -> None:
        # The client's sessions with it that said something early.
        self.session_ids: set[str] = set()
        # What waits for the document, and what waits until the gate has taken back its own, in the client's order.
        self.scripts: list[_Message] = []
        self.settings: list[_Message] = []
        # Whether the document has come.
        self.is_begun = False
        # Calls of bindings that wait until the client has its answers; None: they pass.
        self.calls: list[bytes] | None = []


class KeptBack:
    """What waits in one client. A `Client` of first documents."""

    def __init__(self, line: Line, targets: TargetDomain, send: Callable[[Node, Request], None]) -> None:
        self._line = line
        self._targets = targets
        # What to do with a message when its time has come.
        self._send = send
        # By target.
        self._windows: dict[str, _Window] = {}
        # How much more often the gate told of a call than the client's own session.
        self._calls: Counter[_Call] = Counter()

    @property
    def is_listening(self) -> bool:
        """Whether calls of bindings have to be looked at."""
        return bool(self._windows)

    # --- What the client says ---------------------------------------------------------------------------------------

    def keeps(self, node: Node, request: Request) -> bool:
        """Whether one of the `EARLY` messages waits here."""
        first = self._targets.first_document(node.target_id) if node.kind is Kind.PAGE else None
        if first is None:
            window = self._windows.get(node.target_id)
            return window is not None and self._keeps_order(window, node, request)
        try:
            params = message.decode_params(request.method, request.params)
        except (BodyTooLarge, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # There is no room for it, or Chromium says what is wrong with it.
            return False
        if request.method == ADD_SCRIPT:
            return self._keeps_script(first, node, request, params)
        if not first.add(self, request.method, params, len(request.params)):
            return False
        window = self._window(node)
        if request.method in _PER_SESSION:
            return False
        window.settings.append((node, _copy(request, request.params.copy())))
        return True

    def _keeps_script(self, first: FirstDocument, node: Node, request: Request, params: dict[str, Any]) -> bool:
        is_isolated = bool(params.get("worldName"))
        if is_isolated and params.get("source") == "":
            # It only makes a world, which nobody but the client itself can make for it.
            return False
        # The world of the gate's session would be another one, so there a script that does nothing is added.
        copy = {"source": ""} if is_isolated else {**params, "runImmediately": False}
        if not first.add(self, ADD_SCRIPT, copy, len(request.params)):
            return False
        # In the first document it must run when it comes there, or not again if the gate has run it.
        own = message.encode({**params, "runImmediately": is_isolated})
        self._window(node).scripts.append((node, _copy(request, msgspec.Raw(own))))
        return True

    def _keeps_order(self, window: _Window, node: Node, request: Request) -> bool:
        """Whether what comes after the client has let the window run must not overtake what waits."""
        if request.method == ADD_SCRIPT:
            kept = window.scripts
        elif request.method in _PER_PAGE:
            kept = window.settings
        else:
            return False
        if not kept or len(kept) >= ADDED_MAX:
            return False
        kept.append((node, _copy(request, request.params.copy())))
        return True

    def _window(self, node: Node) -> _Window:
        window = self._windows.setdefault(node.target_id, _Window())
        window.session_ids.add(node.session_id)
        return window

    # --- What the first document tells (Client) ---------------------------------------------------------------------

    def begun(self, target_id: str) -> asyncio.Future[Any]:
        window = self._windows[target_id]
        window.is_begun = True
        kept, window.scripts = window.scripts, []
        for node, request in kept:
            self._send(node, request)
        settled = self._settled(window)
        settled.add_done_callback(lambda _: self._pass_calls(window))
        return settled

    def binding_called(self, target_id: str, call: Mapping[str, Any]) -> None:
        window = self._windows[target_id]
        for session_id in window.session_ids:
            if self._is_news((session_id, call["name"], call["payload"], call["executionContextId"]), 1):
                self._tell(window, message.event("Runtime.bindingCalled", dict(call), session_id))

    def ended(self, target_id: str) -> None:
        window = self._windows[target_id]
        if not window.is_begun:
            self.begun(target_id)
        kept, window.settings = window.settings, []
        for node, request in kept:
            self._send(node, request)
        # What the client's own session tells of the same calls has come by then.
        self._settled(window).add_done_callback(lambda _: self._forget(target_id))

    # --- What its own session tells ---------------------------------------------------------------------------------

    def takes_call(self, payload: bytes) -> bool:
        """Whether the client is told of this call of a binding otherwise."""
        try:
            event = message.decode_event(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # A page can make such strings; what cannot be read cannot be compared.
            return False
        call, session_id = event.params, event.sessionId
        window = next((one for one in self._windows.values() if session_id in one.session_ids), None)
        if window is None:
            return False
        if self._is_news((session_id, call["name"], call["payload"], call["executionContextId"]), -1):
            self._tell(window, payload)
        return True

    # --- Parts ------------------------------------------------------------------------------------------------------

    def _is_news(self, call: _Call, side: int) -> bool:
        """Whether the other side has not told of it yet; +1 is the gate, -1 the client's own session."""
        if call not in self._calls and len(self._calls) >= CALLS_MAX:
            return True
        was_told = self._calls[call] * side < 0
        self._calls[call] += side
        return not was_told

    def _tell(self, window: _Window, payload: bytes) -> None:
        if window.calls is None or len(window.calls) >= CALLS_MAX:
            self._line.send(payload)
        else:
            window.calls.append(payload)

    def _pass_calls(self, window: _Window) -> None:
        calls, window.calls = window.calls, None
        for payload in calls or ():
            self._line.send(payload)

    def _settled(self, window: _Window) -> asyncio.Future[Any]:
        """Ends when Chromium has seen to all that was said to that window so far."""
        answers = (self._line.inject(RUN, {}, session_id) for session_id in window.session_ids)
        return asyncio.gather(*answers, return_exceptions=True)

    def _forget(self, target_id: str) -> None:
        window = self._windows.pop(target_id, None)
        if window is not None:
            for call in [call for call in self._calls if call[0] in window.session_ids]:
                del self._calls[call]


def _copy(request: Request, params: msgspec.Raw) -> Request:
    """The same message with other parameters, without the frame that it came in."""
    return Request(id=request.id, method=request.method, sessionId=request.sessionId, params=params)
