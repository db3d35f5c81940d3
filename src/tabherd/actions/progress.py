"""What an action is waiting for at this moment, for whoever runs out of patience with it.

Invariant: `has_acted` is true from just before the first message that may change the page. While it is false, the
page is as it was (it may have been scrolled), nothing of the action goes on after it is cancelled but a look that ends
by itself within a moment, and `failure()` is the honest answer to a caller whose time is over.
"""

from __future__ import annotations

from typing import Any

from ..errors import CommandTimedOut, ElementNotActionable, ElementNotFound, TabherdError
from . import advice


class Progress:
    """Written by the action, read by its caller at the deadline."""

    __slots__ = ("details", "has_acted", "waiting_for")

    def __init__(self) -> None:
        # attached, visible, enabled, editable, stable, receives_events, url, ...; empty when it waits for nothing.
        self.waiting_for = ""
        # What is known of the element and of what is in the way, in wire spelling.
        self.details: dict[str, Any] = {}
        # Whether anything that may change the page has been sent to it.
        self.has_acted = False

    def waits(self, condition: str, **details: Any) -> None:
        """It waits for this, and the page is as it was."""
        self.waiting_for = condition
        self.details = {name: value for name, value in details.items() if value is not None}
        self.has_acted = False

    def acts(self) -> None:
        """From here on the page may be changed."""
        self.waiting_for = ""
        self.details = {}
        self.has_acted = True

    def failure(self) -> TabherdError | None:
        """The error for a caller whose time is over, when the page is proven untouched; None when it is not."""
        if self.has_acted or not self.waiting_for:
            return None
        told = {"waitingFor": self.waiting_for, **self.details}
        what = self.details.get("target", "the element")
        if self.waiting_for == "attached":
            message = advice.missing(what, self.details, " within the time allowed")
            return ElementNotFound(message, action=advice.for_missing(self.details), **told)
        if self.waiting_for in advice.LACKS:
            message = f"{what} was found, but {advice.lack(self.waiting_for, self.details)}."
            what_to_try = advice.LACKS[self.waiting_for][1]
            return ElementNotActionable(message, action=what_to_try(self.details), **told)
        if self.waiting_for == "page":
            return CommandTimedOut(
                "The page did not answer within the time allowed: it is busy with its own script, or loading.",
                action="Nothing was done to it. Allow more time with timeoutMs, or reload it.",
                **told,
            )
        return CommandTimedOut(
            f"What was waited for ({self.waiting_for}) did not come within the time allowed.", **told
        )
