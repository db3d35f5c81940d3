"""What an action is waiting for at this moment, for whoever runs out of patience with it.

Invariant: `has_acted` is true from just before the first message that may change the page. While it is false, the
page is as it was (it may have been scrolled), nothing of the action goes on after it is cancelled but a look that ends
by itself within a moment, and `failure()` is the honest answer to a caller whose time is over.
"""

from __future__ import annotations

from typing import Any, Final

from ..errors import CommandTimedOut, ElementNotActionable, ElementNotFound, TabherdError

# How each condition that an element may lack is told.
_LACKS: Final = {
    "visible": "it is not visible",
    "enabled": "it is disabled",
    "editable": "it is read-only",
    "stable": "it keeps moving",
    "receives_events": "something covers it",
    "option": "it does not have that option",
    "option_enabled": "that option is disabled",
    "hidden": "it is still visible",
    "detached": "it is still there",
}


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
            return ElementNotFound(f"No element matches {what} within the time allowed.", **told)
        if (lack := _LACKS.get(self.waiting_for)) is not None:
            by = f" ({self.details['coveredBy']})" if "coveredBy" in self.details else ""
            return ElementNotActionable(f"{what} was found, but {lack}{by}.", **told)
        return CommandTimedOut(
            f"What was waited for ({self.waiting_for}) did not come within the time allowed.", **told
        )
