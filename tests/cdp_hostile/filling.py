"""Fills the parameters of every method of a protocol description: by their names where an id fits, else by their types.

Three fillings of each method: all parameters, only those that are needed, and those of type and value that no client of
good will would send.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .hostile import Shot

# How deep objects within objects are filled; types may be recursive.
DEPTH_MAX = 4
# Numbers that a parser, a cast or an allocation may stumble over.
WILD_INTEGER = -1
WILD_NUMBER = 1e300

Protocol = dict[str, Any]
Spec = Mapping[str, Any]


class Filler:
    """Fills parameters with the ids of one victim."""

    def __init__(self, protocol: Protocol, ids: Mapping[str, Any]) -> None:
        self._protocol = protocol
        # By the name of a parameter, in lower case.
        self._values = {name.lower(): value for name, value in ids.items() if value != ""}
        self._types = {
            f"{domain['domain']}.{kind['id']}": kind
            for domain in protocol["domains"]
            for kind in domain.get("types", ())
        }

    def shots(self, session_id: str) -> Iterator[Shot]:
        """Every method three times over."""
        for domain in self._protocol["domains"]:
            for command in domain.get("commands", ()):
                method, specs = f"{domain['domain']}.{command['name']}", command.get("parameters", ())
                needed = [spec for spec in specs if not spec.get("optional")]
                for chosen, is_wild in ((specs, False), (needed, False), (specs, True)):
                    filled = {spec["name"]: self._fill(domain["domain"], spec, is_wild, 0) for spec in chosen}
                    yield Shot(method, filled, session_id)

    def _fill(self, domain: str, spec: Spec, is_wild: bool, depth: int) -> Any:
        fitting = self._values.get(spec.get("name", "").lower())
        is_list = spec.get("type") == "array"
        if fitting is not None:
            return [fitting] if is_list else fitting
        if "$ref" in spec:
            full = spec["$ref"] if "." in spec["$ref"] else f"{domain}.{spec['$ref']}"
            # An id is known by its type where its parameter has another name.
            name = full.partition(".")[2].lower()
            if (fitting := self._values.get(name)) is not None:
                return fitting
            return self._fill(full.partition(".")[0], {**self._types[full], "name": ""}, is_wild, depth)
        if is_list:
            return [] if depth >= DEPTH_MAX or is_wild else [self._fill(domain, {**spec["items"]}, is_wild, depth + 1)]
        if "enum" in spec:
            return spec["enum"][-1 if is_wild else 0]
        match spec.get("type"):
            case "object":
                within = () if depth >= DEPTH_MAX else spec.get("properties", ())
                return {one["name"]: self._fill(domain, one, is_wild, depth + 1) for one in within}
            case "boolean":
                return not is_wild
            case "integer":
                return WILD_INTEGER if is_wild else 1
            case "number":
                return WILD_NUMBER if is_wild else 1
            case _:
                return "" if is_wild else "1"
