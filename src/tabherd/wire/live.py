"""What travels over `/live/{tabId}`: the live view of a tab, and a person's hands on it.

The server sends `state` at once and whenever it changes, `error` for what it refuses (an error in its one shape, and
the type of the message in `refused`), and `ended` before it closes; all of these are text. A frame is binary: the
length of a header in four bytes, most significant first, the header as JSON (`LiveFrame`), then the picture as JPEG.
Of frames that were not acknowledged there are never more than two.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from .base import Answer, Request
from .sessions import TabView

# Frames that a viewer may have before it has acknowledged the first of them.
LIVE_UNDER_WAY_MAX = 2
# A place on the page, in CSS pixels of its viewport; a little outside of it is where a mouse may be, too.
LivePlace = Annotated[float, Meta(ge=-10_000, le=100_000)]
LiveDistance = Annotated[float, Meta(ge=-100_000, le=100_000)]
# Alt 1, Control 2, Meta 4, Shift 8.
LiveModifiers = Annotated[int, Meta(ge=0, le=15)]
LiveKeyName = Annotated[str, Meta(max_length=40)]
LiveSide = Annotated[int, Meta(ge=16, le=4_096)]
LiveQuality = Annotated[int, Meta(ge=1, le=100)]
MouseButton: TypeAlias = Literal["none", "left", "middle", "right", "back", "forward"]

# --- From the viewer ----------------------------------------------------------------------------------------------


class LiveAck(Request, frozen=True, kw_only=True, tag_field="type", tag="ack"):
    """The viewer has drawn this frame, and so all before it."""

    seq: int


class LiveTake(Request, frozen=True, kw_only=True, tag_field="type", tag="take"):
    """Hand the tab to this viewer: agents wait from now on."""

    # Also if another viewer drives.
    force: bool = False


class LiveGive(Request, frozen=True, kw_only=True, tag_field="type", tag="give"):
    """Give the tab back to agents."""


class LiveMouse(Request, frozen=True, kw_only=True, tag_field="type", tag="mouse"):
    event: Literal["move", "down", "up", "wheel"]
    x: LivePlace
    y: LivePlace
    # The one that goes down or up.
    button: MouseButton = "none"
    # Those that are down: left 1, right 2, middle 4, back 8, forward 16.
    buttons: Annotated[int, Meta(ge=0, le=31)] = 0
    click_count: Annotated[int, Meta(ge=0, le=3)] = 0
    modifiers: LiveModifiers = 0
    # Of the wheel, in CSS pixels.
    delta_x: LiveDistance = 0
    delta_y: LiveDistance = 0


class LiveKey(Request, frozen=True, kw_only=True, tag_field="type", tag="key"):
    """A key as `KeyboardEvent` names it."""

    event: Literal["down", "up"]
    key: LiveKeyName
    code: LiveKeyName = ""
    modifiers: LiveModifiers = 0
    repeat: bool = False
    # What it types, where that does not follow from the key.
    text: Annotated[str, Meta(max_length=40)] | None = None


class LiveText(Request, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """Text that no key types: pasted, or of an input method."""

    text: Annotated[str, Meta(max_length=100_000)]


class LiveNavigate(Request, frozen=True, kw_only=True, tag_field="type", tag="navigate"):
    url: Annotated[str, Meta(min_length=1, max_length=65_536)]


class LiveHistory(Request, frozen=True, kw_only=True, tag_field="type", tag="history"):
    by: Literal[-1, 1]


class LiveReload(Request, frozen=True, kw_only=True, tag_field="type", tag="reload"):
    """Load the page again."""


class LiveSize(Request, frozen=True, kw_only=True, tag_field="type", tag="size"):
    """The largest frame that this viewer wants; nobody else's, and not the page's own size."""

    width: LiveSide
    height: LiveSide
    quality: LiveQuality = 60


# What a person does to the page.
LiveInput = LiveMouse | LiveKey | LiveText | LiveNavigate | LiveHistory | LiveReload
LiveMessage = LiveAck | LiveTake | LiveGive | LiveInput | LiveSize

# --- To the viewer ------------------------------------------------------------------------------------------------


class LiveDriver(Answer, frozen=True, kw_only=True):
    """Whose hands are on the page."""

    name: str
    is_you: bool


class LiveState(Answer, frozen=True, kw_only=True, tag_field="type", tag="state"):
    tab: TabView
    driver: LiveDriver | None
    # Whether this viewer may take the tab over and give it back.
    may_drive: bool
    viewers: int


class LiveEnded(Answer, frozen=True, kw_only=True, tag_field="type", tag="ended"):
    """Why nothing more comes: an error in its one shape."""

    error: dict[str, Any]


class LiveFrame(Answer, frozen=True, kw_only=True):
    """The header of a frame."""

    seq: int
    # The size of the page's viewport in CSS pixels: what places of the mouse are measured in.
    width: float
    height: float
    scroll_x: float
    scroll_y: float
    # When the page looked like this, in milliseconds since 1970.
    captured_at: int
