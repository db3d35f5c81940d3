"""What can be done to a page, one struct per kind, and how a command's outcome reads."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

from msgspec import Meta, field

from .base import DEADLINE_MAX_MS, Answer, Identifier, Request


class Action(Request, frozen=True, kw_only=True, tag_field="kind"):
    """What every action may carry besides its own parameters."""

    session_id: Identifier | None = None
    fence: int | None = None
    controller_id: Identifier | None = None
    wait_policy: Literal["fail_fast", "wait_with_timeout"] = "fail_fast"
    # Queue and execution together.
    timeout_ms: Annotated[int, Meta(ge=1, le=DEADLINE_MAX_MS)] | None = None
    # The same key and body within five minutes is answered with the first outcome instead of being run again.
    idempotency_key: Identifier | None = None
    # rebuild: after a timeout the page is replaced, so that nothing of the command goes on. keep: it is left as it is.
    on_timeout: Literal["rebuild", "keep"] = "rebuild"
    # How dialogs (alert, confirm, prompt) that open meanwhile are answered; absent: as the pool has it.
    dialogs: Literal["accept", "dismiss"] | None = None
    # What a prompt that is accepted gets; absent: what the page suggests. By itself it has prompts accepted.
    prompt_text: Annotated[str, Meta(max_length=10_000)] | None = None
    # When the page does not allow it: a picture of the viewport in the error's details, as base64 of a JPEG. It may
    # take some seconds more than the command's time.
    screenshot_on_error: bool = False


# How an element is named: CSS, text=, role=, xpath=, joined by >> (see actions/selectors.py).
Selector = Annotated[str, Meta(min_length=1, max_length=10_000)]
# What a snapshot shows as [ref=...].
Ref = Annotated[str, Meta(min_length=1, max_length=500)]
Url = Annotated[str, Meta(min_length=1, max_length=2_000_000)]
WaitUntil: TypeAlias = Literal["load", "domcontentloaded", "networkidle", "commit"]
Modifier: TypeAlias = Literal["Alt", "Control", "Meta", "Shift"]
# Pixels, in either direction.
Distance = Annotated[float, Meta(ge=-1e7, le=1e7)]


class Aimed(Action, frozen=True, kw_only=True):
    """An action on an element: `selector` or `ref`, not both."""

    selector: Selector | None = None
    ref: Ref | None = None


class Navigate(Action, frozen=True, kw_only=True, tag="navigate"):
    url: Url
    wait_until: WaitUntil = "load"


class Back(Action, frozen=True, kw_only=True, tag="back"):
    wait_until: WaitUntil = "load"


class Forward(Action, frozen=True, kw_only=True, tag="forward"):
    wait_until: WaitUntil = "load"


class Reload(Action, frozen=True, kw_only=True, tag="reload"):
    wait_until: WaitUntil = "load"


class Click(Aimed, frozen=True, kw_only=True, tag="click"):
    button: Literal["left", "right", "middle"] = "left"
    # Keys that are down meanwhile.
    modifiers: Annotated[tuple[Modifier, ...], Meta(max_length=4)] = ()


class Dblclick(Aimed, frozen=True, kw_only=True, tag="dblclick"):
    button: Literal["left", "right", "middle"] = "left"
    modifiers: Annotated[tuple[Modifier, ...], Meta(max_length=4)] = ()


class Hover(Aimed, frozen=True, kw_only=True, tag="hover"):
    modifiers: Annotated[tuple[Modifier, ...], Meta(max_length=4)] = ()


class Type(Aimed, frozen=True, kw_only=True, tag="type"):
    # Typed key by key, behind what is there already.
    text: Annotated[str, Meta(max_length=100_000)]
    # Between two keys.
    delay_ms: Annotated[float, Meta(ge=0, le=10_000)] = 0


class Fill(Aimed, frozen=True, kw_only=True, tag="fill"):
    # Takes the place of what is there.
    value: Annotated[str, Meta(max_length=10_000_000)]


class Press(Aimed, frozen=True, kw_only=True, tag="press"):
    # A key, or keys held together: Enter, a, Shift+Tab, Control+A. It goes to the element that is named, or else to
    # where the focus is.
    key: Annotated[str, Meta(min_length=1, max_length=100)]


class Select(Aimed, frozen=True, kw_only=True, tag="select"):
    # Each the value or the label of an option, or its number from 0. They take the place of what is selected.
    values: Annotated[
        list[Annotated[str, Meta(max_length=10_000)] | Annotated[int, Meta(ge=0)]], Meta(max_length=1_000)
    ]


class Check(Aimed, frozen=True, kw_only=True, tag="check"):
    # False unchecks it.
    checked: bool = True


class Scroll(Aimed, frozen=True, kw_only=True, tag="scroll"):
    # How far; of the page, or of the element that is named. Without them the element is brought into view.
    x: Distance | None = None
    y: Distance | None = None


class Place(Request, frozen=True, kw_only=True):
    """Where something is dragged from or to: an element, or a point of the viewport."""

    selector: Selector | None = None
    ref: Ref | None = None
    x: Distance | None = None
    y: Distance | None = None


class Drag(Action, frozen=True, kw_only=True, tag="drag"):
    """Each end is a selector (`ref=...` names a ref), or an element or point as an object."""

    from_: Selector | Place = field(name="from")
    to: Selector | Place


class Upload(Aimed, frozen=True, kw_only=True, tag="upload"):
    """Into a file input, its label, or whatever opens the file chooser when it is clicked."""

    # Names of files that the session has. They take the place of what was chosen; none clears it.
    files: Annotated[list[Annotated[str, Meta(min_length=1, max_length=1_000)]], Meta(max_length=100)]


class Wait(Aimed, frozen=True, kw_only=True, tag="wait"):
    """Exactly one of selector (or ref), text, url, ms and function."""

    # What the element is waited to be.
    state: Literal["attached", "detached", "visible", "hidden"] = "visible"
    # Visible somewhere in the page, whatever its case.
    text: Annotated[str, Meta(min_length=1, max_length=10_000)] | None = None
    # The page's address contains it; with * in it, the whole address is like it.
    url: Annotated[str, Meta(min_length=1, max_length=10_000)] | None = None
    ms: Annotated[int, Meta(ge=0, le=DEADLINE_MAX_MS)] | None = None
    # An expression or a function without parameters, asked in the page until it is true (or a promise of true).
    function: Annotated[str, Meta(min_length=1)] | None = None


class Evaluate(Action, frozen=True, kw_only=True, tag="evaluate"):
    expression: Annotated[str, Meta(min_length=1)]
    # Given, `expression` is a function and these are its arguments.
    args: list[Any] | None = None


class Text(Aimed, frozen=True, kw_only=True, tag="text"):
    """Of the whole page when no element is named."""


class Html(Aimed, frozen=True, kw_only=True, tag="html"):
    """Of the whole page when no element is named."""


class Snapshot(Aimed, frozen=True, kw_only=True, tag="snapshot"):
    """Of the whole page when no element is named."""

    # Only what can be acted upon.
    interactive: bool = False


class Screenshot(Aimed, frozen=True, kw_only=True, tag="screenshot"):
    """Of what is in the viewport when no element is named."""

    full_page: bool = False
    format: Literal["png", "jpeg", "webp"] = "png"


class Pdf(Action, frozen=True, kw_only=True, tag="pdf"):
    """The whole page as it would be printed."""

    format: Literal["A3", "A4", "A5", "Letter", "Legal", "Tabloid"] = "A4"
    landscape: bool = False
    # With background colours and pictures.
    background: bool = False
    scale: Annotated[float, Meta(ge=0.1, le=2)] = 1
    # Like 1-3, 5; empty: all.
    pages: Annotated[str, Meta(max_length=1_000, pattern="^[0-9, -]*$")] = ""


class Cookies(Action, frozen=True, kw_only=True, tag="cookies"):
    # Those that these addresses would be sent; of the page and its frames when absent.
    urls: Annotated[list[Url], Meta(max_length=100)] | None = None


class SetCookie(Request, frozen=True, kw_only=True):
    """A cookie as Playwright spells it. Without domain and url it is one of the page's own address."""

    name: Annotated[str, Meta(max_length=4_096)]
    value: Annotated[str, Meta(max_length=4_096)]
    url: Url | None = None
    domain: Annotated[str, Meta(max_length=1_000)] | None = None
    path: Annotated[str, Meta(max_length=4_096)] | None = None
    # Seconds since 1970; -1: until the session ends.
    expires: float = -1
    http_only: bool = False
    secure: bool = False
    same_site: Literal["Strict", "Lax", "None"] | None = None


class SetCookies(Action, frozen=True, kw_only=True, tag="setCookies"):
    cookies: Annotated[list[SetCookie], Meta(max_length=1_000)]


class Close(Action, frozen=True, kw_only=True, tag="close"):
    """Close the tab; a borrowed one is only given back."""


AnyAction: TypeAlias = (
    Navigate
    | Back
    | Forward
    | Reload
    | Click
    | Dblclick
    | Hover
    | Type
    | Fill
    | Press
    | Select
    | Check
    | Scroll
    | Drag
    | Upload
    | Wait
    | Evaluate
    | Text
    | Html
    | Snapshot
    | Screenshot
    | Pdf
    | Cookies
    | SetCookies
    | Close
)
# Decoding one whose kind is known is a matter of a microsecond; msgspec takes a union apart at every conversion.
ACTIONS: dict[str, type[AnyAction]] = {str(member.__struct_config__.tag): member for member in get_args(AnyAction)}
ACTION_KINDS: tuple[str, ...] = tuple(ACTIONS)


class DialogView(Answer, frozen=True, kw_only=True):
    """A dialog that a page opened, and how it was answered."""

    # alert, confirm, prompt or beforeunload.
    type: str
    # At most its first 1 000 characters.
    message: str
    is_accepted: bool
    # It opened before the command ran, and nobody has been told of it yet.
    is_earlier: bool = False


class CommandView(Answer, frozen=True, kw_only=True):
    command_id: str
    ok: bool
    # completed, failed, timed_out, cancelled or outcome_unknown.
    outcome: str
    result: Any = None
    error: dict[str, Any] | None = None
    queued_ms: int
    duration_ms: int
    # Dialogs of the page that were answered since the command before, at most the first 10; steps tell of their own.
    dialogs: tuple[DialogView, ...] = ()
    # How many more there were.
    more_dialogs: int = 0


class Steps(Request, frozen=True, kw_only=True):
    """Several actions on one turn: nobody else's command comes in between, and the first failure ends it."""

    steps: Annotated[list[AnyAction], Meta(min_length=1, max_length=100)]
    session_id: Identifier | None = None
    fence: int | None = None
    controller_id: Identifier | None = None
    wait_policy: Literal["fail_fast", "wait_with_timeout"] = "fail_fast"
    # All steps and the queue together.
    timeout_ms: Annotated[int, Meta(ge=1, le=DEADLINE_MAX_MS)] | None = None
    idempotency_key: Identifier | None = None
    on_timeout: Literal["rebuild", "keep"] = "rebuild"


class StepView(Answer, frozen=True, kw_only=True):
    kind: str
    ok: bool
    result: Any = None
    error: dict[str, Any] | None = None
    # As for a command.
    dialogs: tuple[DialogView, ...] = ()
    more_dialogs: int = 0


# --- Tab locks --------------------------------------------------------------------------------------------------


class LockTab(Request, frozen=True, kw_only=True):
    controller_id: Identifier | None = None
    # How long the lock lasts unless it is renewed.
    lock_lease_ms: Annotated[int, Meta(ge=100, le=DEADLINE_MAX_MS)] | None = None
    wait_policy: Literal["fail_fast", "wait_with_timeout"] = "fail_fast"
    # How long to wait for it.
    timeout_ms: Annotated[int, Meta(ge=1, le=DEADLINE_MAX_MS)] | None = None
    # Of a lock that is held: its lease starts anew.
    ticket: Identifier | None = None
    session_id: Identifier | None = None
    fence: int | None = None


class TabLockView(Answer, frozen=True, kw_only=True):
    tab_id: str
    lock_owner_controller_id: str
    lock_lease_ms: int
    lock_expires_at: str
    # Renews and releases it.
    ticket: str
