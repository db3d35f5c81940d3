"""Reads selectors: how a caller names an element.

    button.save                    CSS
    text=Sign in                   the smallest element whose text contains it, whatever its case
    text="Sign in"                 whose whole text is exactly this
    role=button[name="Save"]       ARIA role and exact accessible name; name*= for a part of it, a trailing i for any
                                   case, and [checked] [disabled] [expanded] [pressed] [selected] [level=2]
    xpath=//td[2]                  XPath; also anything that begins with / or (//
    ref=kqa2                       a ref from a snapshot
    button "Save" [ref=kqa2]       a line of a snapshot: its ref, or else its role and name
    form#login >> text=Send        the second inside what the first finds
    iframe#pay >> button           the same; a frame is entered
    tr >> nth=1                    the second of several, as a refusal lists them; nth=-1 is the last

All of them look through open shadow roots, but a CSS combinator does not cross one: `my-card >> button` does.

Several matches: hidden ones do not count while there is a visible one. Actions that change something refuse what is
still ambiguous, with the candidates and their refs; reading takes the first.

A `ref` from a snapshot names one element of one document. It has the refs of the frames it is in before it, joined by
dots, so it says by itself where it belongs and nothing need be remembered for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from .. import wire
from ..errors import InvalidRequest, InvalidSelector
from .mistakes import corrected_role

# One step of the way to an element, as `query.js` reads it.
Part = dict[str, Any]

PARTS_MAX: Final = 20
_ROLE_EXAMPLE: Final = 'role=button[name="Save"]'
# How much of a selector is repeated in messages.
LABEL_MAX: Final = 200
_PREFIX: Final = re.compile(r"(css|text|role|xpath|ref|nth)\s*=", re.IGNORECASE)
_XPATH: Final = re.compile(r"\(*/")
_NTH: Final = re.compile(r"-?[0-9]{1,6}")
_ROLE: Final = re.compile(r"\s*([A-Za-z]+)\s*")
_ATTRIBUTE: Final = re.compile(
    r"""\[\s*([a-z]+)\s*(?:(\*?=)\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([\w-]+))\s*(i)?)?\s*\]\s*""",
    re.IGNORECASE,
)
_STATES: Final = frozenset({"checked", "disabled", "expanded", "level", "pressed", "selected"})
_REF: Final = re.compile(r"[a-z]+[0-9]+(?:\.[a-z]+[0-9]+)*")
# As snapshots show it: no attribute of HTML is called so.
_SHOWN_REF: Final = re.compile(r"\[ref=([a-z]{3}[0-9]+(?:\.[a-z]{3}[0-9]+)*)\]")
_SHOWN_LINE: Final = re.compile(r"""(?:-\s+)?([a-z]+)\s+("(?:[^"\\]|\\.)*")\s*:?""")


def target_of(action: wire.Aimed) -> list[Part] | None:
    """The way to the element that the action names; None when it names none."""
    if action.selector is not None and action.ref is not None:
        raise InvalidRequest("selector and ref exclude each other.", field="ref")
    if action.ref is not None:
        return parse_ref(action.ref)
    return None if action.selector is None else parse(action.selector)


def named_target(action: wire.Aimed) -> list[Part]:
    """The same, for an action that needs one."""
    parts = target_of(action)
    if parts is None:
        raise InvalidRequest("Name the element: selector or ref is missing.", field="selector")
    return parts


def label_of(action: wire.Aimed) -> str:
    """How the element is called in messages."""
    if action.ref is not None:
        return f"ref {_cut(action.ref)}"
    return f"'{_cut(action.selector or '')}'"


def text_of(part: Part) -> str:
    """How a part is written, for messages."""
    match part["by"]:
        case "role":
            name = "" if part["name"] is None else f'[name{"*" if part["isPartial"] else ""}="{part["name"]}"]'
            return _cut(f"role={part['role']}{name}")
        case "text":
            return _cut(f'text="{part["body"]}"' if part["isExact"] else f"text={part['body']}")
        case "nth":
            return f"nth={part['index']}"
        case "css":
            return _cut(part["body"])
        case by:
            return _cut(f"{by}={part['body']}")


def _cut(text: str) -> str:
    return text if len(text) <= LABEL_MAX else f"{text[: LABEL_MAX - 1]}…"


def parse_ref(ref: str) -> list[Part]:
    if not _REF.fullmatch(ref):
        raise InvalidSelector("A ref is what a snapshot shows as [ref=...].", field="ref", ref=ref)
    return [{"by": "ref", "body": each} for each in ref.split(".")]


def parse(selector: str) -> list[Part]:
    """The steps of a selector, or `InvalidSelector`. Whether CSS and XPath are valid is for the page to say."""
    parts: list[Part] = []
    for piece in _pieces(selector):
        parts += _parts(piece.strip(), selector, is_first=not parts)
    if len(parts) > PARTS_MAX:
        raise InvalidSelector(f"A selector has at most {PARTS_MAX} parts.", field="selector")
    return parts


def _pieces(selector: str) -> Iterator[str]:
    """Split at >>, but not inside quotes."""
    quote = ""
    start = at = 0
    while at < len(selector):
        char = selector[at]
        if char == "\\":
            at += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "\"'" and (char == '"' or not selector[at - 1 : at].isalnum()):
            # An apostrophe inside a word of `text=` opens nothing.
            quote = char
        elif selector.startswith(">>", at):
            yield selector[start:at]
            at += 1
            start = at + 1
        at += 1
    yield selector[start:]


def _parts(piece: str, selector: str, *, is_first: bool) -> list[Part]:
    """One part; as many as a ref has frames before it."""
    if not piece:
        raise InvalidSelector(
            "A part of the selector is empty.",
            action="Write something on both sides of each >>.",
            field="selector",
            selector=_cut(selector),
        )
    prefix = _PREFIX.match(piece)
    if prefix is None:
        return _unprefixed(piece, selector)
    kind, body = prefix[1].lower(), piece[prefix.end() :].strip()
    if not body:
        raise InvalidSelector(f"Nothing follows '{piece}'.", field="selector", selector=_cut(selector))
    match kind:
        case "text":
            is_exact = len(body) > 1 and body[0] == body[-1] and body[0] in "\"'"
            return [{"by": "text", "body": body[1:-1] if is_exact else body, "isExact": is_exact}]
        case "role":
            return [_role(body, selector)]
        case "ref":
            return parse_ref(body)
        case "nth":
            return [_nth(body, selector, is_first=is_first)]
        case _:
            return [{"by": kind, "body": body}]


def _unprefixed(piece: str, selector: str) -> list[Part]:
    if _XPATH.match(piece):
        return [{"by": "xpath", "body": piece}]
    if len(shown := _SHOWN_REF.findall(piece)) == 1:
        return parse_ref(shown[0])
    if (line := _SHOWN_LINE.fullmatch(piece)) is not None:
        return [_role(f"{line[1]}[name={line[2]}]", selector)]
    return [{"by": "css", "body": piece}]


def _nth(body: str, selector: str, *, is_first: bool) -> Part:
    if is_first or not _NTH.fullmatch(body):
        raise InvalidSelector(
            "nth= counts what the part before it finds, from 0.",
            action="Write it like button >> nth=1.",
            field="selector",
            selector=_cut(selector),
        )
    return {"by": "nth", "index": int(body)}


def _role(body: str, selector: str) -> Part:
    if (line := _SHOWN_LINE.fullmatch(body)) is not None:
        body = f"{line[1]}[name={line[2]}]"
    role = _ROLE.match(body)
    part: Part = {"by": "role", "role": "", "name": None, "isPartial": False, "isFolded": False, "states": {}}
    at = role.end() if role else 0
    part["role"] = role[1].lower() if role else ""
    while role and at < len(body) and (found := _ATTRIBUTE.match(body, at)):
        name, how, *values, fold = found.groups()
        value = next((re.sub(r"\\(.)", r"\1", each) for each in values if each is not None), None)
        if name.lower() == "name" and value is not None:
            part |= {"name": value, "isPartial": how == "*=", "isFolded": fold is not None}
        elif name.lower() in _STATES and how != "*=" and (value is not None or name.lower() != "level"):
            part["states"][name.lower()] = "true" if value is None else value.lower()
        else:
            break
        at = found.end()
    if not role or at < len(body):
        raise InvalidSelector(
            f"Reading '{body[:200]}' as a role stopped at '{body[at : at + 50]}'.",
            action=f"Write it like {corrected_role(body) or _ROLE_EXAMPLE}",
            field="selector",
            selector=_cut(selector),
            position=at,
        )
    return part
