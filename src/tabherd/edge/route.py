"""What a route is, what its handler gets, and how a request finds it.

A route is data: method, path, scope, request and answer types, the errors it may give. Routing, authentication,
decoding, the OpenAPI document and the authorisation tests all read the same table, so a route cannot be forgotten by
one of them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import unquote

import msgspec

from .. import wire
from ..broker.caller import Caller
from ..errors import MethodNotAllowed, ResourceNotFound, TabherdError
from .decode import BodyDecoder, QueryDecoder
from .head import Head

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..broker.events import EventBus
    from ..metrics import Metrics

Method: TypeAlias = Literal["GET", "POST", "DELETE", "PUT", "PATCH"]
# A scope of a credential; `any`: whichever valid credential; None: no credential at all.
RouteScope: TypeAlias = wire.Scope | Literal["any"] | None

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """What the handlers work with."""

    broker: Broker
    events: EventBus
    metrics: Metrics
    # The OpenAPI document of the route table, encoded.
    openapi: bytes
    node_id: str
    version: str


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request, decoded and authenticated."""

    caller: Caller
    head: Head
    # The `{name}` in the path, if there is one.
    id: str = ""
    # Of the types that the route declares; None where it declares none.
    body: Any = None
    query: Any = None


class Raw(msgspec.Struct, frozen=True):
    """An answer that is not JSON of ours."""

    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Stream(msgspec.Struct, frozen=True):
    """An answer that goes on until the client leaves or the iterator ends."""

    chunks: AsyncGenerator[bytes]
    # Gives back what the stream holds; called in any case, also when not one chunk was read.
    close: Callable[[], None]


Handler: TypeAlias = Callable[[Service, Call], Awaitable[Any]]


class NoQuery(wire.Request, frozen=True, kw_only=True):
    """Takes no parameters."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of the HTTP interface."""

    method: Method
    path: str
    summary: str
    handler: Handler
    scope: RouteScope
    # What the body must be (a struct or a union of them); None: there is none.
    body: Any = None
    # What the query may have; None: whatever it has is ignored (pages that people follow links to).
    query: type[wire.Request] | None = NoQuery
    # What the answer is; None: an empty one, or not JSON (`media` says what).
    answer: Any = None
    media: str = JSON
    status: int = 200
    # What it may refuse with, besides what every route may (see `openapi`).
    errors: tuple[type[TabherdError], ...] = ()
    # It may take long: when the client leaves, the handler is cancelled, so nothing is granted to nobody.
    waits: bool = False
    # Undoes what the handler did when the client had left by the time the answer was there.
    undo: Callable[[Service, Call, Any], Awaitable[None]] | None = None


class Endpoint:
    """A route made ready for requests."""

    __slots__ = ("body", "name", "query", "route")

    def __init__(self, route: Route) -> None:
        # How metrics and logs call it.
        self.name = f"{route.method} {route.path}"
        self.route = route
        self.body = None if route.body is None else BodyDecoder(route.body)
        self.query = None if route.query is None else QueryDecoder(route.query)


class RouteTable:
    """Finds the endpoint of a method and a path."""

    def __init__(self, routes: Sequence[Route]) -> None:
        # Paths without parameters are found at once; the others by their first segment.
        self._fixed: dict[str, dict[str, Endpoint]] = {}
        self._open: dict[str, list[tuple[re.Pattern[str], dict[str, Endpoint]]]] = {}
        for route in routes:
            methods = self._methods_of(route.path)
            assert route.method not in methods, f"{route.method} {route.path} is declared twice"
            methods[route.method] = endpoint = Endpoint(route)
            if route.method == "GET":
                methods["HEAD"] = endpoint

    def find(self, method: str, path: str) -> tuple[Endpoint, str]:
        """The endpoint and the path's parameter, or a typed 404 or 405. `path` is still percent-encoded."""
        methods = self._fixed.get(path)
        parameter = ""
        if methods is None:
            for pattern, candidates in self._open.get(path[1:].partition("/")[0], ()):
                if found := pattern.fullmatch(path):
                    methods, parameter = candidates, found[1]
                    break
            else:
                raise ResourceNotFound(f"There is no {path[:200]!r} here.")
        endpoint = methods.get(method)
        if endpoint is None:
            allowed = sorted(methods)
            raise MethodNotAllowed(f"{path[:200]} does not take {method}.", allow=allowed)
        return endpoint, unquote(parameter) if "%" in parameter else parameter

    def _methods_of(self, path: str) -> dict[str, Endpoint]:
        if "{" not in path:
            return self._fixed.setdefault(path, {})
        before, _, after = re.split(r"\{(\w+)\}", path)
        assert before.count("/") >= 2, "the first segment of a path is fixed"
        pattern = re.compile(re.escape(before) + r"([^/]+)" + re.escape(after))
        shapes = self._open.setdefault(before.split("/", 2)[1], [])
        for known, methods in shapes:
            if known == pattern:
                return methods
        shapes.append((pattern, {}))
        return shapes[-1][1]


def parameter_of(path: str) -> str | None:
    """The name of the path's parameter."""
    found = re.search(r"\{(\w+)\}", path)
    return found[1] if found else None


def headers_of(fields: Mapping[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    """Headers in ASGI's shape."""
    return tuple((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in fields.items())
