"""What a route is, what its handler gets, and how a request finds it.

A route is data: method, path, scope, request and answer types, the errors it may give. Routing, authentication,
decoding, the OpenAPI document and the authorisation tests all read the same table, so a route cannot be forgotten by
one of them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import unquote

import msgspec
from starlette.types import Receive, Scope, Send

from .. import logs, wire
from ..broker.caller import Caller
from ..cluster.hop import Hop
from ..cluster.places import Kind
from ..errors import InvalidRequest, MethodNotAllowed, ResourceNotFound, TabherdError
from .decode import BodyDecoder, QueryDecoder
from .everywhere import Merge
from .head import Head

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..broker.events import EventBus
    from ..metrics import Metrics
    from .auth import Badge, Guard
    from .cdp.endpoint import CdpEndpoint
    from .cluster_events import ClusterEvents
    from .mcp import McpSessions
    from .openapi import Description
    from .reload import Reload
    from .routing import Routing

Method: TypeAlias = Literal["GET", "POST", "DELETE", "PUT", "PATCH"]
# A scope of a credential; `any`: whichever valid credential; None: no credential at all.
RouteScope: TypeAlias = wire.Scope | Literal["any"] | None

# The path's parameters that name something that lives on one node.
KINDS: Final[dict[str, Kind]] = {
    "sessionId": "session",
    "tabId": "tab",
    "browserId": "browser",
    "commandId": "command",
}
JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
BYTES: Final = "application/octet-stream"


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """What the handlers work with."""

    broker: Broker
    guard: Guard
    cdp: CdpEndpoint
    mcp: McpSessions
    reload: Reload
    events: EventBus
    metrics: Metrics
    # The ways to other nodes; None: there are none.
    routing: Routing | None = None
    # What happens on all nodes; None: there is only this one.
    cluster_events: ClusterEvents | None = None
    # The OpenAPI document of the route table.
    openapi: Description
    node_id: str
    version: str


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request, decoded and authenticated."""

    caller: Caller
    # The credential that it came with; None where a route wants none.
    badge: Badge | None = None
    head: Head
    # What another node says that has passed it on; None: it comes from the client itself.
    hop: Hop | None = None
    # The first `{name}` in the path, and the second, if there are any.
    id: str = ""
    name: str = ""
    # Of the types that the route declares; None where it declares none.
    body: Any = None
    query: Any = None
    # The body as it comes in, of a route that takes a file.
    pieces: AsyncIterator[bytes] | None = None


class Raw(msgspec.Struct, frozen=True):
    """An answer that is not JSON of ours."""

    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Stream(msgspec.Struct, frozen=True):
    """An answer that goes on until the client leaves or the iterator ends."""

    chunks: AsyncGenerator[bytes]
    # Gives back what the stream holds; called in any case, also when not one chunk was read.
    close: Callable[[], None]
    headers: tuple[tuple[bytes, bytes], ...]
    # Returns, with the last chunk, when it has to end although there is more; None: it never has to.
    cut_short: Callable[[], Coroutine[Any, Any, bytes]] | None = None


class Passed(msgspec.Struct, frozen=True):
    """A request that somebody else answers, who speaks ASGI; what is raised before it answers is answered as ever."""

    serve: Callable[[Scope, Receive, Send], Awaitable[None]]


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
    # The body is a file instead: its handler takes it in piece by piece, and says how large it may be.
    takes_file: bool = False
    # What the query may have; None: whatever it has is ignored (pages that people follow links to).
    query: type[wire.Request] | None = NoQuery
    # How it is read.
    decoder: type[QueryDecoder] = QueryDecoder
    # What the answer is; None: an empty one, or not JSON (`media` says what).
    answer: Any = None
    media: str = JSON
    status: int = 200
    # The verb under which a refusal for lack of the scope is in the audit trail; empty: it is not.
    audited_as: str = ""
    # What it may refuse with, besides what every route may (see `openapi`).
    errors: tuple[type[TabherdError], ...] = ()
    # Other paths that mean the same; for clients that have their own idea of it.
    aliases: tuple[str, ...] = ()
    # Whether the credential may be in the query (`token`): for clients that can set no headers.
    takes_token: bool = False
    # It may take long: when the client leaves, the handler is cancelled, so nothing is granted to nobody.
    waits: bool = False
    # Puts the answers of all nodes together; None: the one that is asked answers for itself, or all know the same.
    merge: Merge | None = None
    # Undoes what the handler did when the client had left by the time the answer was there.
    undo: Callable[[Service, Call, Any], Awaitable[None]] | None = None


class Endpoint:
    """A route made ready for requests."""

    __slots__ = ("body", "kind", "name", "query", "route")

    def __init__(self, route: Route) -> None:
        # How metrics and logs call it.
        self.name = f"{route.method} {route.path}"
        self.route = route
        self.body = None if route.body is None else BodyDecoder(route.body)
        self.query = None if route.query is None else route.decoder(route.query)
        # What the path names that lives on one node, if it does.
        self.kind = KINDS.get(next(iter(parameters_of(route.path)), ""))

    def token_of(self, query: bytes) -> str | None:
        """The credential in the query, where it may be."""
        if not self.route.takes_token or self.query is None:
            return None
        token: str | None = self.query.decode(query).token
        return token


class RouteTable:
    """Finds the endpoint of a method and a path."""

    def __init__(self, routes: Sequence[Route]) -> None:
        # Paths without parameters are found at once; the others by their first segment.
        self._fixed: dict[str, dict[str, Endpoint]] = {}
        self._open: dict[str, list[tuple[re.Pattern[str], dict[str, Endpoint]]]] = {}
        for route in routes:
            endpoint = Endpoint(route)
            for path in (route.path, *route.aliases):
                methods = self._methods_of(path)
                assert route.method not in methods, f"{route.method} {path} is declared twice"
                methods[route.method] = endpoint
                if route.method == "GET":
                    methods["HEAD"] = endpoint

    def find(self, method: str, path: str) -> tuple[Endpoint, tuple[str, ...]]:
        """The endpoint and the path's parameters, or a typed 404 or 405. `path` is still percent-encoded."""
        methods = self._fixed.get(path)
        parameters: tuple[str, ...] = ()
        if methods is None:
            for pattern, candidates in self._open.get(path[1:].partition("/")[0], ()):
                if found := pattern.fullmatch(path):
                    methods, parameters = candidates, found.groups()
                    break
            else:
                raise ResourceNotFound(f"There is no {logs.redact(path)[:200]!r} here.")
        endpoint = methods.get(method)
        if endpoint is None:
            allowed = sorted(methods)
            raise MethodNotAllowed(f"{path[:200]} does not take {method}.", allow=allowed)
        return endpoint, tuple(map(_decoded, parameters)) if "%" in path else parameters

    def _methods_of(self, path: str) -> dict[str, Endpoint]:
        if "{" not in path:
            return self._fixed.setdefault(path, {})
        before, *rest = re.split(r"\{\w+\}", path)
        assert before.count("/") >= 2, "the first segment of a path is fixed"
        pattern = re.compile("([^/]+)".join(map(re.escape, (before, *rest))))
        shapes = self._open.setdefault(before.split("/", 2)[1], [])
        for known, methods in shapes:
            if known == pattern:
                return methods
        shapes.append((pattern, {}))
        return shapes[-1][1]


def _decoded(parameter: str) -> str:
    """What was percent-encoded. Bytes that are no text are refused: replaced, two names would become one."""
    try:
        return unquote(parameter, errors="strict")
    except UnicodeDecodeError:
        raise InvalidRequest("The path is not UTF-8.", field="path") from None


def parameters_of(path: str) -> list[str]:
    """The names of the path's parameters; there are two at the most."""
    return re.findall(r"\{(\w+)\}", path)


def headers_of(fields: Mapping[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    """Headers in ASGI's shape."""
    return tuple((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in fields.items())
