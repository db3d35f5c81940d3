"""Answers of Chromium's from which something is learnt, or that have to wait for something else first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from . import message
from .emulation import Line, TargetDomain
from .ownership import Ownership

# What is done with an answer instead of just handing it on.
Hook = Callable[[bytes], None]
# The methods to whose answers something is done.
HOOKED: Final = frozenset(
    {
        "Target.createTarget",
        "Target.createBrowserContext",
        "Target.disposeBrowserContext",
        "Browser.getWindowForTarget",
    }
)


class Replies:
    """What is done with the answers of one client."""

    def __init__(self, line: Line, targets: TargetDomain, own: Ownership) -> None:
        self._line = line
        self._targets = targets
        self._own = own

    def hook_for(self, method: str, params: Mapping[str, Any], session_id: str) -> Hook:
        """What is to be done with the answer to one of those commands, which is being sent."""
        match method:
            case "Target.createTarget":
                self._own.targets_wanted += 1
                return self._made_target
            case "Target.createBrowserContext":
                self._own.contexts_wanted += 1
                return lambda payload: self._made_context(payload, session_id)
            case "Target.disposeBrowserContext":
                return lambda payload: self._disposed_context(payload, params["browserContextId"])
            case "Browser.getWindowForTarget":
                return self._learnt_window
            case _:
                raise AssertionError(f"nothing is done with answers to {method}")

    def _made_target(self, payload: bytes) -> None:
        self._own.targets_wanted -= 1
        target_id = _result_of(payload).get("targetId")
        if isinstance(target_id, str):
            self._targets.made_target(target_id, lambda: self._line.send(payload))
        else:
            self._line.send(payload)

    def _made_context(self, payload: bytes, session_id: str) -> None:
        self._own.contexts_wanted -= 1
        if isinstance(context_id := _result_of(payload).get("browserContextId"), str):
            self._targets.made_context(context_id)
            # The full build would write into the user's own directory until told otherwise.
            denied = {"behavior": "deny", "browserContextId": context_id}
            self._line.inject("Browser.setDownloadBehavior", denied, session_id)
        self._line.send(payload)

    def _disposed_context(self, payload: bytes, context_id: str) -> None:
        if message.decode_answer(payload).error is None:
            self._targets.disposed_context(context_id)
        self._line.send(payload)

    def _learnt_window(self, payload: bytes) -> None:
        if isinstance(window_id := _result_of(payload).get("windowId"), int):
            self._own.learn_window(window_id)
        self._line.send(payload)


def _result_of(payload: bytes) -> dict[str, Any]:
    return message.decode_answer(payload).result or {}
