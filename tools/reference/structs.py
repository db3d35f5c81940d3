"""What a msgspec struct says about its fields: type, bounds, default, and the comment above each."""

from __future__ import annotations

import ast
import inspect
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

NAMES: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    Any: "any JSON",
    dict: "object",
}


def type_and_bounds(kind: Any) -> tuple[str, str]:
    """How a person would call the type, and the limits of its values."""
    arguments = typing.get_args(kind)
    match typing.get_origin(kind):
        case typing.Annotated:
            inner, *notes = arguments
            limits = [limit for note in notes if isinstance(note, msgspec.Meta) for limit in _limits(note, inner)]
            return type_and_bounds(inner)[0], ", ".join(limits)
        case typing.Literal:
            return " or ".join(f"`{value}`" for value in arguments), ""
        case typing.Union | types.UnionType:
            # None and unset mean that the field may be left out, which its default says already.
            present = [each for each in arguments if each not in (types.NoneType, msgspec.UnsetType)]
            if tags := _tags(present):
                return tags, ""
            kinds = [type_and_bounds(each) for each in present]
            return " or ".join(name for name, _ in kinds), ", ".join(bounds for _, bounds in kinds if bounds)
        case builtin if builtin in (list, tuple):
            name, bounds = type_and_bounds(arguments[0])
            return f"list of {name}", bounds
        case builtin if builtin is dict and arguments[1] is Any:
            return "object", ""
        case builtin if builtin is dict:
            name, bounds = type_and_bounds(arguments[1])
            return f"table of {name}", bounds
        case _ if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return "`{" + ", ".join(field.encode_name for field in msgspec.structs.fields(kind)) + "}`", ""
        case _:
            return NAMES[kind], ""


def _tags(kinds: list[Any]) -> str:
    """Of structs that one field tells apart: that field and its values, since each is described where it belongs."""
    configs = [each.__struct_config__ for each in kinds if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    if len(kinds) < 2 or len(configs) < len(kinds) or any(config.tag is None for config in configs):
        return ""
    return f"object with `{configs[0].tag_field}` " + ", ".join(f"`{config.tag}`" for config in configs)


def _limits(meta: msgspec.Meta, kind: Any) -> Iterator[str]:
    counted = "characters" if kind is str else "entries"
    if meta.ge is not None:
        yield f"≥ {meta.ge:,}"
    if meta.le is not None:
        yield f"≤ {meta.le:,}"
    if meta.min_length == 1:
        yield "not empty"
    elif meta.min_length is not None:
        yield f"at least {meta.min_length:,} {counted}"
    if meta.max_length is not None:
        yield f"at most {meta.max_length:,} {counted}"


def default(field: msgspec.structs.FieldInfo) -> str:
    """The default as JSON; empty for fields that are then absent."""
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return "" if value is msgspec.UNSET or value is None else f"`{msgspec.json.encode(value).decode()}`"


@cache
def field_comments(module: types.ModuleType) -> dict[tuple[str, str], str]:
    """(class, field) -> the comment right above it."""
    lines = inspect.getsource(module).splitlines()
    found: dict[tuple[str, str], str] = {}
    for node in ast.parse("\n".join(lines)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for statement in node.body:
            if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
                continue
            above: list[str] = []
            for line in reversed(lines[: statement.lineno - 1]):
                if not line.strip().startswith("#"):
                    break
                above.insert(0, line.strip().removeprefix("#").strip())
            found[node.name, statement.target.id] = " ".join(above)
    return found
