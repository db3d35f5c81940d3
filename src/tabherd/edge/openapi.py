"""The OpenAPI 3.1 document, made from the route table and the wire structs, so that it cannot disagree with them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from .. import errors as e
from .. import wire
from .openapi_links import links_of
from .route import BYTES, EVENT_STREAM, JSON, KINDS, Route, parameters_of

REF: Final = "#/components/schemas/{name}"
# What any route may answer: a foreign Host or Origin, a repeated header, a query it does not know.
ALWAYS: Final = (e.Forbidden, e.InvalidRequest, e.UnknownField)
# Besides, of what names something that lives on one node.
HOSTED: Final = (e.NodeUnreachable, e.OutcomeUnknown, e.StoreUnavailable)
WITH_CREDENTIAL: Final = (e.Unauthenticated, e.RateLimited, e.StoreUnavailable)
WITH_BODY: Final = (e.BodyTooLarge,)
_BINARY: Final = {"type": "string", "format": "binary"}


def errors_of(route: Route) -> tuple[type[e.TabherdError], ...]:
    """Every error that the route may answer with."""
    kinds = [*route.errors, *ALWAYS, *(HOSTED if KINDS.keys() & set(parameters_of(route.path)) else ())]
    if route.scope is not None:
        kinds += WITH_CREDENTIAL
    if route.body is not None or route.takes_file:
        kinds += WITH_BODY
    return tuple(dict.fromkeys(kinds))


def statuses_of(route: Route) -> frozenset[int]:
    """Every status that the route may answer with."""
    return frozenset({route.status, *(error.status for error in errors_of(route))} | _queue_full_status(route))


class Description:
    """The document of one server, encoded when it is first asked for: that takes several times as long as all else
    that an application is made of, and hardly anybody asks.
    """

    def __init__(self, routes: Sequence[Route], version: str) -> None:
        self._routes = routes
        self._version = version
        self._rendering: asyncio.Future[bytes] | None = None

    async def encoded(self) -> bytes:
        if self._rendering is None:
            # Once, for all who ask meanwhile; in a thread, so that nobody else waits for it.
            self._rendering = asyncio.ensure_future(asyncio.to_thread(self._render))
        return await asyncio.shield(self._rendering)

    def _render(self) -> bytes:
        return msgspec.json.encode(document(self._routes, self._version))


def document(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """The whole interface, described."""
    types = [wire.ErrorView, *(kind for route in routes for kind in (route.body, route.answer) if kind is not None)]
    schemas, components = msgspec.json.schema_components(types, ref_template=REF)
    schema_of = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operation = _operation(route, schema_of)
        if links := links_of(route, routes):
            operation["responses"][str(route.status)]["links"] = links
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tabherd",
            "version": version,
            "description": "One door to your browsers for a crowd of agents. Every error has one shape, ErrorView.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, schema_of: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "parameters": list(_parameters(route)),
        "responses": _responses(route, schema_of),
        "security": [] if route.scope is None else [{"token": []}],
    }
    if route.scope is not None:
        operation["x-scope"] = route.scope
    if route.body is not None:
        # An empty body reads as {}, so it is only required where a field is.
        operation["requestBody"] = {
            "required": any(_has_required(kind) for kind in getattr(route.body, "__args__", (route.body,))),
            "content": {JSON: {"schema": schema_of[repr(route.body)]}},
        }
    if route.takes_file:
        operation["requestBody"] = {"required": True, "content": {BYTES: {"schema": _BINARY}}}
    return operation


def _parameters(route: Route) -> Iterable[dict[str, Any]]:
    for name in parameters_of(route.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    for name, schema in _query_properties(route.query).items():
        yield {"name": name, "in": "query", "required": False, "schema": _without_null(schema)}
    if route.media == EVENT_STREAM:
        yield {"name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "string"}}


def _query_properties(query: type[wire.Request] | None) -> dict[str, Any]:
    if query is None:
        return {}
    properties: dict[str, Any] = msgspec.json.schema_components([query])[1][query.__name__]["properties"]
    return properties


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query parameter is absent, never null."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    return kinds[0] if len(kinds) == 1 else {key: value for key, value in schema.items() if value is not None}


def _responses(route: Route, schema_of: dict[str, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": route.summary}
    if route.answer is not None:
        good["content"] = {JSON: {"schema": schema_of[repr(route.answer)]}}
    elif route.status != 204:
        # A stream is a sequence of events, for which OpenAPI 3.1 has no schema.
        schema = _BINARY if route.media == BYTES else {"type": "string"}
        good["content"] = {route.media: {} if route.media == EVENT_STREAM else {"schema": schema}}
    responses: dict[str, Any] = {str(route.status): good}
    kinds = errors_of(route)
    for status in sorted(statuses_of(route) - {route.status}):
        here = [kind for kind in kinds if kind.status == status] or [e.QueueFull]
        responses[str(status)] = {
            "description": "\n".join(f"- `{kind.code}`: {inspect.cleandoc(kind.__doc__ or '')}" for kind in here),
            "content": {JSON: {"schema": schema_of[repr(wire.ErrorView)]}},
            "x-codes": [kind.code for kind in here],
        }
        if status in (429, 503):
            responses[str(status)]["headers"] = {
                "Retry-After": {"description": "Seconds, rounded up.", "schema": {"type": "integer"}}
            }
    return responses


def _queue_full_status(route: Route) -> set[int]:
    """A full queue of callers that wait for a session is 503, where a full queue of tasks is 429."""
    return {503} if e.QueueFull in route.errors else set()


def _has_required(kind: type[msgspec.Struct]) -> bool:
    return kind.__struct_config__.tag is not None or any(field.required for field in msgspec.structs.fields(kind))
