"""http.md, from the route table: what each operation takes, gives and may refuse with."""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from tabherd.edge.openapi import errors_of
from tabherd.edge.route import JSON, Route
from tabherd.edge.routes import ROUTES

from .markdown import row, table
from .structs import default, field_comments, type_and_bounds


def write() -> Iterator[str]:
    yield from (
        "# HTTP",
        "",
        "The machine-readable form of this page is `/openapi.json`. Send `Authorization: Bearer TOKEN` where a scope",
        "is named. Fields that do not exist are refused by name. Errors have [one shape](errors.md), and each",
        "operation lists all that it may answer with.",
        "",
    )
    yield from table("operation", "scope", "what it does")
    for route in ROUTES:
        yield row(f"[`{route.method} {route.path}`](#{_anchor(route)})", _scope(route), route.summary)
    for route in ROUTES:
        yield from ("", f"## {route.method} {route.path}", "", route.summary)
        for struct in _structs(route.query):
            yield from _fields("Query", struct)
        yield from _body(_structs(route.body))
        if route.takes_file:
            yield from ("", "The body is the file itself.")
        yield from _answer(route)
        yield from ("", "Errors: " + ", ".join(f"`{error.code}`" for error in errors_of(route)) + ".")


def _anchor(route: Route) -> str:
    """The anchor that GitHub gives the heading."""
    kept = (letter for letter in f"{route.method} {route.path}".lower() if letter.isalnum() or letter in " -_")
    return "".join(kept).replace(" ", "-")


def _scope(route: Route) -> str:
    return {None: "open to all", "any": "any credential"}.get(route.scope) or f"`{route.scope}`"


def _structs(kind: Any) -> tuple[type[msgspec.Struct], ...]:
    if kind is None:
        return ()
    return typing.get_args(kind) or (kind,)


def _body(structs: tuple[type[msgspec.Struct], ...]) -> Iterator[str]:
    """The fields of the body; where it is one of several kinds, what all of them share comes first."""
    if len(structs) == 1:
        yield from _fields("Body", structs[0])
    if len(structs) > 1:
        shared = set.intersection(*(set(struct.__struct_fields__) for struct in structs))
        yield from _fields("Body, whatever its `kind`", structs[0], only=shared)
        for struct in structs:
            own = set(struct.__struct_fields__) - shared
            yield from _fields(f'With `"kind": "{struct.__struct_config__.tag}"`', struct, only=own)


def _answer(route: Route) -> Iterator[str]:
    if route.media != JSON:
        yield from ("", f"Answers {route.status} with `{route.media}`.")
    elif isinstance(route.answer, type) and issubclass(route.answer, msgspec.Struct):
        yield from ("", f"Answers {route.status} with:", "")
        yield from table("field", "type", "meaning")
        for field in msgspec.structs.fields(route.answer):
            yield row(f"`{field.encode_name}`", type_and_bounds(field.type)[0], _comment(route.answer, field.name))
    else:
        yield from ("", f"Answers {route.status}" + (" with JSON." if route.answer else " without a body."))


def _fields(title: str, struct: type[msgspec.Struct], only: set[str] | None = None) -> Iterator[str]:
    fields = [field for field in msgspec.structs.fields(struct) if only is None or field.name in only]
    if not fields:
        return
    yield from ("", f"{title}:", "")
    yield from table("field", "type", "default", "bounds", "meaning")
    for field in fields:
        kind, bounds = type_and_bounds(field.type)
        shown = "required" if field.required else default(field)
        yield row(f"`{field.encode_name}`", kind, shown, bounds, _comment(struct, field.name))


def _comment(struct: type[msgspec.Struct], field: str) -> str:
    """The comment in the class that declares the field, which may be a base of the struct."""
    for owner in (each for each in struct.__mro__ if each.__module__.startswith("tabherd")):
        if comment := field_comments(sys.modules[owner.__module__]).get((owner.__name__, field)):
            return comment
    return ""
