"""Links of the OpenAPI document: to which operations that goes which an answer has given.

Declared here is only what an answer gives that is new; where it goes follows from the table: to every operation whose
path can be filled in and that takes something new, in its path, its query or its body. What has a meaning only together
with the path it came from (the ticket of a lock, the name of a file) goes nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

import msgspec

from .route import Route, parameters_of

_BODY: Final = "$response.body#/"
# What an answer gives and where in it that is, by method and path.
GIVEN: Final[Mapping[str, Mapping[str, str]]] = {
    "POST /sessions": {"sessionId": "sessionId", "fence": "fence", "tabId": "tabs/0/tabId"},
    "POST /sessions/{sessionId}/tabs": {"tabId": "tabId"},
    "POST /sessions/{sessionId}/files": {"name": "name"},
    "POST /tabs/{tabId}/action": {"commandId": "commandId"},
    "POST /tabs/{tabId}/actions": {"commandId": "commandId"},
    "POST /tabs/{tabId}/lock": {"ticket": "ticket"},
    "POST /tasks": {"taskId": "taskId"},
    "POST /tasks/batch": {"taskId": "tasks/0/taskId"},
    "POST /locks/{name}": {"ticket": "ticket"},
    "POST /agents": {"tokenId": "tokenId"},
    "GET /browsers": {"browserId": "browsers/0/browserId"},
}


def links_of(route: Route, routes: Sequence[Route]) -> dict[str, Any]:
    """The links of its good answer, by the operation that each goes to."""
    given = GIVEN.get(f"{route.method} {route.path}", {})
    known = {name: f"$request.path.{name}" for name in parameters_of(route.path)}
    known |= {name: _BODY + place for name, place in given.items()}
    # An id says by itself what it is.
    around = set() if any(name.endswith("Id") for name in given) else set(parameters_of(route.path))
    return {
        target.handler.__name__: link
        for target in routes
        if given and (link := _link(target, known, given.keys(), around)) is not None
    }


def _link(target: Route, known: Mapping[str, str], new: Set[str], around: Set[str]) -> dict[str, Any] | None:
    path = set(parameters_of(target.path))
    query = _fields(target.query, is_required=False)
    body = _fields(target.body, is_required=True)
    if not path or not around <= path <= known.keys() or not (path | query | body) & new:
        return None
    link: dict[str, Any] = {
        "operationId": target.handler.__name__,
        "parameters": {name: known[name] for name in known if name in path | query},
    }
    if filled := {name: known[name] for name in known if name in body}:
        link["requestBody"] = filled
    return link


def _fields(kind: Any, *, is_required: bool) -> set[str]:
    """Names of its fields on the wire, all or those that must be there; a union has none of its own."""
    if not isinstance(kind, type):
        return set()
    return {field.encode_name for field in msgspec.structs.fields(kind) if field.required or not is_required}
