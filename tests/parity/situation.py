"""What a situation is: pages, what we do and what Playwright does to them, and how the two are told apart.

A situation is cheap, because it is repeated a thousand times: nothing in it sleeps longer than 200 ms, and where an
action has to fail, its limit is short. Whatever `seen` answers must be the same on every run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from playwright.async_api import Page

from tabherd import wire

End: TypeAlias = Literal[
    "ok",
    "not_found",
    "not_visible",
    "disabled",
    "read_only",
    "unstable",
    "covered",
    "outside",
    "ambiguous",
    "invalid_selector",
    "wrong_kind",
    "no_option",
    "javascript_error",
    "navigation_failed",
    "timed_out",
]

# Long enough on a machine that is busy with other things; an action that works never waits so long.
PATIENT_MS: Final = 60_000
# For an action that has to fail: several looks fit in.
SHORT_MS: Final = 500
# In pages this becomes the origin of another site.
OTHER: Final = "{other}"
# What is recorded of a press.
PRESSES: Final = ("mousedown", "mouseup", "click", "dblclick", "auxclick", "contextmenu")
# An action that ends well is noticed, or the situation proves nothing.
_NOTHING: Final[tuple[Any, ...]] = (None, [], {})


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How it ended for one of the two, and what the page noticed of it."""

    end: End
    seen: Any


@dataclass(frozen=True, kw_only=True)
class Situation:
    # In kebab-case, and unlike any other.
    name: str
    # One sentence.
    about: str
    # HTML by path; both start at "/". OTHER in it becomes the origin of another site.
    pages: Mapping[str, str]
    # What we do, one after the other. The first that fails is the last.
    ours: Sequence[wire.AnyAction]
    # The same, as a user of Playwright would write it.
    theirs: Callable[[Page], Awaitable[Any]]
    # Asked in the main document afterwards; promises are awaited, and the answer is JSON.
    seen: str
    # How both end, unless they differ. Given, so that two equal mistakes are no agreement.
    end: End = "ok"
    # Of each action.
    limit_ms: int = PATIENT_MS
    # Why the outcomes differ, in a sentence or two; both are then pinned, so that a change on either side is noticed.
    difference: str = ""
    ours_pinned: Outcome | None = field(default=None)
    theirs_pinned: Outcome | None = field(default=None)

    def __post_init__(self) -> None:
        is_pinned = (self.ours_pinned is not None, self.theirs_pinned is not None)
        assert is_pinned == (bool(self.difference),) * 2, f"{self.name}: a difference has two outcomes and a reason"
        assert "/" in self.pages, f"{self.name}: both start at /"

    @property
    def our_end(self) -> End:
        """How it should end for us."""
        return self.end if self.ours_pinned is None else self.ours_pinned.end

    @property
    def our_limit_ms(self) -> int:
        """Of each action of ours. One that ends well may take as long as a busy machine needs for it."""
        return PATIENT_MS if self.our_end == "ok" else self.limit_ms

    def verdict(self, ours: Outcome, theirs: Outcome) -> str:
        """What is wrong with these two outcomes; empty when they are as they should be."""
        if not self.difference:
            wanted = (Outcome(end=self.end, seen=theirs.seen),) * 2
        else:
            assert self.ours_pinned is not None
            assert self.theirs_pinned is not None
            wanted = (self.ours_pinned, self.theirs_pinned)
        if (ours, theirs) == wanted and not (ours.end == "ok" and ours.seen in _NOTHING):
            return ""
        return f"{self.name}:\n  ours   {ours}\n  theirs {theirs}\n  wanted {wanted[0]}\n     and {wanted[1]}"


def listening(*types: str) -> str:
    """A script that writes down events of the document as [type, id of the element, isTrusted], in `heard`."""
    return f"""<script>heard = [];
for (const type of {list(types or PRESSES)}) {{
  addEventListener(type, (event) => heard.push([type, event.target.id, event.isTrusted]), true);
}}</script>"""


# What `listening` wrote down; of the button alone where the page moves under a press. A press that would go elsewhere
# is swallowed and tried again, but a page that listens at its window from the start may notice it, with both sides.
HEARD: Final = "heard"
HEARD_BY_X: Final = "heard.filter(([, id]) => id === 'x')"
