"""Changes single values in the text of a TOML file, and leaves every other character of it alone.

What it keeps: the result, read by a TOML parser, is exactly the old tree with the change merged in; comments, order,
spacing and line ends of everything that was not changed stay. A layout in which a change cannot be made that way is
refused (`CannotEdit`), never rewritten. Pure: text in, text out.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

Path: TypeAlias = tuple[str, ...]

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_STRING: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})' r"|'''.*?'''(?:'{0,2})" r'|"(?:[^"\\\n]|\\.)*"' r"|'[^'\n]*'",
    re.DOTALL,
)
_SHORT_ESCAPES: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


class CannotEdit(ValueError):
    """The text is laid out in a way in which this change cannot be made without touching the rest."""


class _Statement(NamedTuple):
    """A `[header]` or a `key = value`, and where it stands."""

    # The table that it begins, or is in.
    table: Path
    # The keys, as many as are dotted; none for a header.
    key: Path
    # From the first character of its first line to behind the end of its last one.
    start: int
    end: int
    # The value alone; empty for a header.
    value_start: int
    value_end: int

    @property
    def path(self) -> Path:
        return self.table + self.key


def merged(tree: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """The tree with the patch merged in: tables are merged, other values replaced, and None removes a key."""
    result = dict(tree)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            before = result.get(key)
            below = merged(before if isinstance(before, Mapping) else {}, value)
            # To remove a key from a table that is not there makes no table.
            if below or key in result or not value:
                result[key] = below
        else:
            result[key] = value
    return result


def edited(text: str, patch: Mapping[str, Any]) -> str:
    """The text with the patch merged in. The text must be valid TOML."""
    tree = tomllib.loads(text)
    wanted = merged(tree, patch)
    for path, value in _changes(tree, wanted, ()):
        text = _removed(text, path) if value is None else _put(text, path, value)
    try:
        is_right = tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:
        raise CannotEdit("The change does not fit the way in which the file is laid out.")
    return text


def rendered(value: Any) -> str:
    """The value as TOML writes it, on one line."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value)
        case int() | float():
            return repr(value)
        case list() | tuple():
            return "[" + ", ".join(rendered(each) for each in value) + "]"
        case Mapping():
            pairs = ", ".join(f"{_key((name,))} = {rendered(each)}" for name, each in value.items())
            return "{ " + pairs + " }" if pairs else "{}"
    raise CannotEdit(f"A value of type {type(value).__name__} cannot be written.")


# --- What is to be done -----------------------------------------------------------------------------------------


def _changes(old: Mapping[str, Any], new: Mapping[str, Any], where: Path) -> Iterator[tuple[Path, Any]]:
    """Every path whose value differs, with the new value, or None where it is gone."""
    yield from (((*where, key), None) for key in old if key not in new)
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            yield from _changes(before, value, (*where, key))
        elif isinstance(value, Mapping) and value and before is None:
            yield from _changes({}, value, (*where, key))
        elif key not in old or before != value or type(before) is not type(value):
            if isinstance(before, Mapping):
                # Its lines have to go before one can take their place.
                yield (*where, key), None
            yield (*where, key), value


def _put(text: str, path: Path, value: Any) -> str:
    """The text with that value at that path, which may be new."""
    statements = _statements(text)
    for found in (each for each in statements if each.key and path[: len(each.path)] == each.path):
        rest = path[len(found.path) :]
        whole = value if not rest else merged(_value_of(text, found), _nested(rest, value))
        return text[: found.value_start] + rendered(whole) + text[found.value_end :]
    return _inserted(text, statements, path, value)


def _inserted(text: str, statements: list[_Statement], path: Path, value: Any) -> str:
    """The text with a new line: in the table that the path names, beside keys like it, or in a table of its own."""
    parent = path[:-1]
    line_end = "\r\n" if "\r\n" in text else "\n"
    # A table that was begun with dotted keys can only be continued with those.
    dotted = [each for each in statements if each.key and len(each.table) < len(parent)]
    beside = [each for each in dotted if each.path[: len(parent)] == parent]
    inside = [each for each in statements if each.table == parent]
    if beside or inside:
        last = (beside or inside)[-1]
        indent = text[last.start : _past_blanks(text, last.start)]
        line = f"{indent}{_key(path[len(last.table) :])} = {rendered(value)}{line_end}"
        return _with_line(text, last.end, line, line_end)
    line = f"{_key(path[len(parent) :])} = {rendered(value)}{line_end}"
    if not parent:
        # Before the first header, for everything behind one is in its table.
        first = min((each.start for each in statements if not each.key), default=len(text))
        return _with_line(text, first, line + (line_end if statements else ""), line_end)
    header = f"[{_key(parent)}]{line_end}"
    gap = line_end if text.strip() else ""
    return _with_line(text, len(text), gap + header + line, line_end)


def _removed(text: str, path: Path) -> str:
    """The text without that path and all below it."""
    statements = _statements(text)
    within = [each for each in statements if each.path[: len(path)] == path]
    if not within:
        (found,) = (each for each in statements if each.key and path[: len(each.path)] == each.path)
        rest = path[len(found.path) :]
        whole = merged(_value_of(text, found), _nested(rest, None))
        return text[: found.value_start] + rendered(whole) + text[found.value_end :]
    parent = path[:-1]
    for each in reversed(within):
        text = text[: each.start] + text[each.end :]
    keepers = [each for each in _statements(text) if each.path[: len(parent)] == parent]
    if parent and not keepers:
        # The table was there only by what is gone, and an empty one is not the same as none.
        return _inserted(text, _statements(text), parent, {})
    return text


# --- How it stands in the text ----------------------------------------------------------------------------------


def _statements(text: str) -> list[_Statement]:
    """Everything that is said in the text, which is valid, in its order."""
    found: list[_Statement] = []
    table: Path = ()
    position = 0
    while position < len(text):
        line_start = position
        position = _past_blanks(text, position)
        if position == len(text) or text[position] in "#\r\n":
            position = _line_end(text, position)
            continue
        if text[position] == "[":
            if text.startswith("[[", position):
                raise CannotEdit("Arrays of tables are no settings.")
            closing = _skip_to(text, position + 1, "]")
            table = _keys(text[position : closing + 1])
            position = _line_end(text, closing)
            found.append(_Statement(table, (), line_start, position, position, position))
            continue
        equals = _skip_to(text, position, "=")
        value_start = _past_blanks(text, equals + 1)
        value_end = _value_end(text, value_start)
        key = _keys(text[position:equals] + "= 0")
        position = _line_end(text, value_end)
        found.append(_Statement(table, key, line_start, position, value_start, value_end))
    return found


def _value_end(text: str, position: int) -> int:
    """Where the value that begins there ends, without the blanks and the comment behind it."""
    depth = 0
    end = position
    while position < len(text):
        character = text[position]
        if character in "\"'":
            position = _string_end(text, position)
            end = position
            continue
        if character in "#\n" and not depth:
            break
        if character == "#":
            position = _line_end(text, position)
            continue
        depth += (character in "[{") - (character in "]}")
        position += 1
        if not character.isspace():
            end = position
    return end


def _skip_to(text: str, position: int, wanted: str) -> int:
    """Where that character is next, outside of quotes."""
    while text[position] != wanted:
        position = _string_end(text, position) if text[position] in "\"'" else position + 1
    return position


def _string_end(text: str, position: int) -> int:
    string = _STRING.match(text, position)
    assert string is not None, "the text was parsed before: its strings end"
    return string.end()


def _past_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t":
        position += 1
    return position


def _line_end(text: str, position: int) -> int:
    """The first character of the next line."""
    newline = text.find("\n", position)
    return len(text) if newline < 0 else newline + 1


def _keys(statement: str) -> Path:
    """The keys that a header or a `key = 0` names."""
    keys: list[str] = []
    tree: Any = tomllib.loads(statement)
    while isinstance(tree, dict) and tree:
        ((key, tree),) = tree.items()
        keys.append(key)
    return tuple(keys)


def _value_of(text: str, statement: _Statement) -> Any:
    return tomllib.loads("x = " + text[statement.value_start : statement.value_end])["x"]


def _nested(path: Path, value: Any) -> dict[str, Any]:
    """The value in tables within tables, as the path names them."""
    for key in reversed(path):
        value = {key: value}
    return dict(value)


def _with_line(text: str, position: int, line: str, line_end: str) -> str:
    before = text[:position]
    # The last line of a file may lack its end.
    gap = line_end if before and not before.endswith("\n") else ""
    return before + gap + line + text[position:]


def _key(path: Path) -> str:
    return ".".join(key if _BARE.fullmatch(key) else _quoted(key) for key in path)


def _quoted(text: str) -> str:
    def escaped(character: str) -> str:
        if character in _SHORT_ESCAPES:
            return _SHORT_ESCAPES[character]
        return f"\\u{ord(character):04X}" if ord(character) < 0x20 or character == "\x7f" else character

    return '"' + "".join(escaped(character) for character in text) + '"'
