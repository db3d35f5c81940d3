"""Says what went wrong with an element and what to try next, in words that fit the case.

Everything is made from the details that the script in the page has told (see `nearest.js` and `obstacles.js`), which
stay beside the words for whoever decides by program. Words are for reading: nobody parses them. What a
page calls a thing stands in quotes, or in the angle brackets of its element, out of which it cannot get.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..errors import ElementNotFound, StaleRef
from ..quoting import quoted

Details = Mapping[str, Any]

_LATER: Final = "allow more time with timeoutMs"
_SHOW: Final = f"Open the menu, tab or section it belongs to, hover over what reveals it, or {_LATER}."


def named(thing: Details) -> str:
    """A thing as a snapshot would show it."""
    if not thing["name"] and "element" in thing:
        return f"{thing['element']} [ref={thing['ref']}]"
    # Most readers know a generic thing as an element.
    role = "element" if thing["role"] == "generic" else thing["role"]
    return f"{role}{_quoted(thing['name'])} [ref={thing['ref']}]"


# --- Not there --------------------------------------------------------------------------------------------------


def missing(what: str, details: Details, when: str = "") -> str:
    """That nothing fits, and where on the way."""
    message = f"No element matches {what}{when}"
    match details:
        case {"part": part, "frame": _, "inside": inside}:
            return f"{message}: the frame '{inside}' was found, but nothing in it matches '{part}'."
        case {"part": part, "inside": inside}:
            return f"{message}: '{inside}' was found, but nothing in it matches '{part}'."
        case {"part": part}:
            return f"{message}: its first part, '{part}', finds nothing."
        case _:
            return f"{message}."


def for_missing(details: Details) -> str:
    """What to try when nothing fits."""
    candidates: list[dict[str, Any]] = details.get("candidates", [])
    words = [details["hint"]] if "hint" in details else []
    if candidates:
        words.append(_did_you_mean(candidates))
    elif "closedRoot" in details:
        words.append(
            f"{details['closedRoot']} may keep it in a closed shadow root, which no selector reaches: "
            "use that element itself, or keys."
        )
    if details.get("isLoading"):
        words.append("The page is still loading: allow more time with timeoutMs.")
    return " ".join(words) or ElementNotFound.next_step


def _did_you_mean(candidates: list[dict[str, Any]]) -> str:
    best = candidates[0]
    if "selector" in best:
        return f"It is inside a frame: use the ref {best['ref']}, or the selector {best['selector']}."
    where = f", in the frame {best['frame']}" if "frame" in best else ""
    if "hiddenBecause" in best:
        return f"Did you mean {named(best)}{where}? It is there, but hidden. {_for_hidden(best)}"
    others = ", or that of another candidate" if len(candidates) > 1 else ""
    return f"Did you mean {named(best)}{where}? Use its ref{others}, or take a snapshot."


def stale(what: str, details: Details) -> tuple[str, str]:
    """Message and action for a ref whose element has left."""
    known = bool(details.get("role"))
    was = f" ({details['role']}{_quoted(details.get('name'))})" if known else ""
    message = f"The element of {what}{was} is no longer in the page."
    if not (candidates := details.get("candidates")):
        return message, StaleRef.next_step
    return (
        message,
        f"The nearest now is {named(candidates[0])}: use it if you mean that one, or take a new snapshot.",
    )


def _quoted(name: str | None) -> str:
    return f" {quoted(name)}" if name else ""


# --- Not ready --------------------------------------------------------------------------------------------------


def _for_hidden(details: Details) -> str:
    opener = named(details["opener"]) if "opener" in details else ""
    match details.get("hiddenBecause"):
        case "closed_details":
            return f"It is inside a closed <details>: click {opener or 'its summary'} first."
        case "closed_dialog" | "closed_popover" as what:
            kind = what.removeprefix("closed_")
            first = f"click {opener} first" if opener else "do what opens it first"
            return f"It is inside a {kind} that is not open: {first}."
        case "empty_box":
            return f"It has no size: act on what is in it or around it, or {_LATER}."
        case _ if opener:
            return f"Click {opener}, which seems to show it, or {_LATER}."
        case _:
            return _SHOW


def _for_disabled(details: Details) -> str:
    if "invalidFields" in details:
        fields = ", ".join(named(each) for each in details["invalidFields"])
        return f"Its form is not complete or not valid yet: see to {fields} first."
    if "disabledBy" in details:
        return f"Everything inside {details['disabledBy']} is disabled: do what enables that first, or {_LATER}."
    return f"Do what enables it first (fill in, choose, agree), or {_LATER}."


def _for_moving(details: Details) -> str:
    match details.get("animation"):
        case {"isEndless": True, "name": name, "element": element}:
            return (
                f"The animation {quoted(name)} of {element} never ends by itself: do what ends it, or stop it with "
                "evaluate: document.getAnimations().forEach((each) => each.cancel())"
            )
        case _ if "reason" in details:
            return f"Wait until the page has come to rest, or {_LATER}."
        case _:
            return f"Wait until its animation has ended, or {_LATER}."


def _for_covered(details: Details) -> str:
    cover, reason = details.get("cover"), str(details.get("reason", ""))
    if reason.startswith("inert"):
        return "Close the dialog or menu that is open, or do what switches that part of the page on again."
    if reason:
        return f"It cannot be brought to where the mouse reaches it: scroll what it is in, or {_LATER}."
    if cover is None:
        return "Close or click away what is in front of it, or wait until it is gone."
    around = cover.get("inside", cover)
    if "closer" in cover:
        return f"Click {named(cover['closer'])} to close {named(around)}, then try again."
    return f"Close {named(around)}, or click it if it goes away by that; or wait until it is gone."


def _for_option(details: Details) -> str:
    options = [str(each["label"] or each["value"]) for each in details.get("options", ())]
    if not options:
        return f"It has no options yet: do what fills it first, or {_LATER}."
    near = difflib.get_close_matches(str(details.get("wanted", "")), options, n=1, cutoff=0.5)
    first = f"Did you mean {quoted(near[0])}? " if near else ""
    return f"{first}Use the value or the label of one of details.options."


def lack(condition: str, details: Details) -> str:
    """What the element lacks, and why, where that is known."""
    if "coveredBy" in details:
        return f"something covers it ({details['coveredBy']})"
    return f"{LACKS[condition][0]} ({details['reason']})" if "reason" in details else LACKS[condition][0]


# Of each condition: what the element lacks, and what to try.
LACKS: Final[Mapping[str, tuple[str, Callable[[Details], str]]]] = {
    "visible": ("it is not visible", _for_hidden),
    "enabled": ("it is disabled", _for_disabled),
    "editable": (
        "it is read-only",
        lambda _: f"Use the button or picker that sets it, do what unlocks it, or {_LATER}.",
    ),
    "stable": ("it keeps moving", _for_moving),
    "receives_events": ("a press does not reach it", _for_covered),
    "option": ("it does not have that option", _for_option),
    "option_enabled": ("that option is disabled", lambda _: f"Choose another one, or {_LATER}."),
    "hidden": ("it is still visible", lambda _: "Do what closes it, or allow more time with timeoutMs."),
    "detached": ("it is still there", lambda _: "Do what removes it, or allow more time with timeoutMs."),
}
