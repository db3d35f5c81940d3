"""Knows what people and models write instead of a selector, and how the same is written here.

What a page calls invalid CSS is often another tool's way to name an element. Nothing is guessed: a correction is told,
never taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_Rewrite = Callable[[re.Match[str]], str]

# A text in quotes, as the first argument of something.
_SAID: Final = r"""\(\s*(?:"(?P<a>[^"]*)"|'(?P<b>[^']*)'|(?P<c>[^)"']*))"""
_NAME: Final = r"""(?:.*?\bname\s*[:=]\s*(?:"(?P<d>[^"]*)"|'(?P<e>[^']*)'|/(?P<f>[^/]*)/))?"""
_GET_BY: Final = r"(?:(?:page|frame|self|this)\.)?get_?by_?"
_REF_ALONE: Final = re.compile(r"[a-z]{3}[0-9]+(?:\.[a-z]{3}[0-9]+)*")


def _said(found: re.Match[str]) -> str:
    return next((found[name] for name in "abc" if found[name] is not None), "").strip()


def _role_and_name(found: re.Match[str]) -> str:
    name = next((found[each] for each in "def" if found[each] is not None), None)
    return f"role={_said(found)}" if name is None else f'role={_said(found)}[name="{name}"]'


def _has_text(found: re.Match[str]) -> str:
    before = found["css"].strip()
    return f"{before} >> text={_said(found)}" if before else f"text={_said(found)}"


def _nth(found: re.Match[str]) -> str:
    index = {"first": "0", "last": "-1"}.get(found["which"], found["n"] or "0")
    return f"{found['css'].strip() or '*'} >> nth={index}"


def _attribute(name: str) -> _Rewrite:
    return lambda found: f'[{name}="{_said(found)}"]'


def _named_attribute(found: re.Match[str]) -> str:
    value = found["value"].strip().strip("\"'")
    match found["key"].lower():
        case "id":
            return f"#{value}"
        case "class":
            return "." + ".".join(value.split())
        case "label" | "link" | "button" as kind:
            role = {"label": "textbox"}.get(kind, kind)
            return f'role={role}[name="{value}"]'
        case "testid" | "data-testid":
            return f'[data-testid="{value}"]'
        case key:
            return f'[{key}="{value}"]'


def _tag_line(found: re.Match[str]) -> str:
    if (by_id := re.search(r"""\bid=["']?([\w-]+)""", found["attributes"])) is not None:
        return f"{found['tag']}#{by_id[1]}"
    return f"{found['tag']} >> text={found['text'].strip()}" if found["text"].strip() else found["tag"]


_MISTAKES: Final[tuple[tuple[re.Pattern[str], _Rewrite], ...]] = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), rewrite)
    for pattern, rewrite in (
        (rf"{_GET_BY}role{_SAID}{_NAME}.*", _role_and_name),
        (rf"{_GET_BY}text{_SAID}.*", lambda found: f"text={_said(found)}"),
        (rf"{_GET_BY}label(?:_?text)?{_SAID}.*", lambda found: f'role=textbox[name="{_said(found)}"]'),
        (rf"{_GET_BY}placeholder(?:_?text)?{_SAID}.*", _attribute("placeholder")),
        (rf"{_GET_BY}title{_SAID}.*", _attribute("title")),
        (rf"{_GET_BY}alt_?text{_SAID}.*", _attribute("alt")),
        (rf"{_GET_BY}test_?id{_SAID}.*", _attribute("data-testid")),
        (rf"document\.getElementById{_SAID}.*", lambda found: f"#{_said(found)}"),
        (rf"(?:page\.|frame\.|document\.)?(?:locator|querySelector(?:All)?|\$\$?){_SAID}.*", _said),
        (rf"(?P<css>.*?):(?:has-text|contains|text-is|text|icontains){_SAID}\s*\).*", _has_text),
        (r"(?P<css>.*?):(?P<which>first|last|nth|eq)(?:\s*\(\s*(?P<n>-?\d+)\s*\))?", _nth),
        (r"(?P<css>.*?):visible(?P<rest>.*)", lambda found: f"{found['css']}{found['rest']}".strip() or "*"),
        (r"internal:(?P<kind>role|text)=(?P<rest>.*)", lambda found: f"{found['kind']}={found['rest']}"),
        (r"(?P<kind>text|role|xpath|css|ref)\s*:\s*(?P<rest>.+)", lambda found: f"{found['kind']}={found['rest']}"),
        (
            r"(?P<kind>text|role|xpath|css)\s*\(\s*(?P<rest>.+?)\s*\)",
            lambda found: f"{found['kind']}={found['rest'].strip(chr(34) + chr(39))}",
        ),
        (
            r"@?(?P<key>id|name|class|placeholder|title|alt|label|link|button|href|type|value|testid|data-[\w-]+|aria-[\w-]+)"
            r"\s*=\s*(?P<value>.+)",
            _named_attribute,
        ),
        (r"<(?P<tag>[a-z][\w-]*)(?P<attributes>[^>]*)>(?P<text>[^<]*).*", _tag_line),
    )
)
_ROLE_AND_NAME: Final = re.compile(
    r"""(?P<role>[a-z]+)[\s,;:]+(?:name\s*[=:]\s*)?["']?(?P<name>[^"'\[\]]+?)["']?""", re.IGNORECASE
)
_UNQUOTED_NAME: Final = re.compile(r"""(?P<role>[a-z]+)\s*\[\s*name\s*=\s*(?P<name>[^"'\]]+?)\s*\]""", re.IGNORECASE)


def correction(piece: str) -> str | None:
    """How this is written here; None when it is like nothing we know."""
    # Far longer than anybody writes by hand, and the patterns above are not made for it.
    if len(piece) > 500:
        return None
    for pattern, rewrite in _MISTAKES:
        if (found := pattern.fullmatch(piece.strip())) is not None:
            return rewrite(found)
    return None


def corrected_role(body: str) -> str | None:
    """The same for what follows `role=`."""
    if len(body) > 500:
        return None
    found = _UNQUOTED_NAME.fullmatch(body) or _ROLE_AND_NAME.fullmatch(body)
    return None if found is None else f'role={found["role"].lower()}[name="{found["name"]}"]'


def misreading(css: str) -> str:
    """What else CSS that finds nothing, and has words in it that are no tags, may have been meant as."""
    if _REF_ALONE.fullmatch(css):
        return f"'{css}' was read as CSS; if it is a ref of a snapshot, send it as ref, or write ref={css}."
    return f"'{css}' was read as CSS; a text is written text={css}."
