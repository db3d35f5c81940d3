"""The table itself: nothing is open that should not be, and every route keeps its promises about credentials."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import httpx
import pytest

from tabherd import wire
from tabherd.edge.http import App
from tabherd.edge.route import Route, RouteTable, parameters_of
from tabherd.edge.routes import ROUTES
from tabherd.errors import MethodNotAllowed, ResourceNotFound

from .conftest import client_of
from .fake_broker import FakeBroker

GUARDED = [route for route in ROUTES if route.scope is not None]
SCOPED = [route for route in GUARDED if route.scope != "any"]


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


def path_of(route: Route) -> str:
    return route.path.replace("{", "").replace("}", "")


def test_exactly_these_routes_are_open_to_all() -> None:
    assert {name_of(route) for route in ROUTES if route.scope is None} == {
        # The dashboard itself: it has nothing of anybody's in it before somebody logs in.
        "GET /",
        "GET /ui/{name}",
        "POST /login",
        "DELETE /login",
        "GET /health",
        "GET /ready",
        "GET /openapi.json",
        "GET /docs",
        # Only another node is answered: it vouches for itself with the cluster's key.
        "GET /nodes/events",
        "POST /nodes/tasks",
        # Says what runs here; the socket that it names wants a credential.
        "GET /json/version",
    }


async def test_a_guarded_route_refuses_whoever_has_no_credential(anybody: httpx.AsyncClient) -> None:
    for route in GUARDED:
        answer = await anybody.request(route.method, path_of(route), content=b"not even JSON")
        assert answer.status_code == 401, name_of(route)


async def test_a_scoped_route_refuses_every_other_scope_and_admits_its_own(
    make_app: Callable[..., App], broker: FakeBroker
) -> None:
    app = make_app({"auth": {"rate_per_s": 100_000, "rate_burst": 100_000}})
    for scope in {route.scope for route in SCOPED if route.scope is not None}:
        others, _ = await broker.credentials.create("mallory", set(get_args(wire.Scope)) - {scope, "admin"})
        own, _ = await broker.credentials.create("bob", [scope])
        async with client_of(app, others) as mallory, client_of(app, own) as bob:
            for route in (route for route in SCOPED if route.scope == scope):
                asked = (route.method, path_of(route))
                refused = await mallory.request(*asked, content=b"not even JSON")
                assert (refused.status_code, refused.json()["details"]) == (403, {"scope": scope}), asked
                admitted = await bob.request(*asked, content=b"not even JSON")
                assert admitted.status_code not in (401, 403), asked


def test_a_route_says_what_it_answers_and_is_found_by_its_own_path() -> None:
    table = RouteTable(ROUTES)
    for route in ROUTES:
        assert route.summary.endswith("."), name_of(route)
        assert route.status == 204 or route.answer is not None or route.media != "application/json", name_of(route)
        endpoint, parameters = table.find(route.method, path_of(route))
        assert endpoint.route is route
        assert list(parameters) == parameters_of(route.path)


def test_a_route_declared_twice_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="twice"):
        RouteTable([ROUTES[0], ROUTES[0]])


def test_each_part_of_a_path_is_read_as_the_caller_meant_it() -> None:
    _, parameters = RouteTable(ROUTES).find("GET", "/sessions/ses_1/files/a%2Fb%20%C3%A9.txt")
    assert parameters == ("ses_1", "a/b é.txt")


def test_an_unknown_path_is_told_from_an_unknown_method() -> None:
    table = RouteTable(ROUTES)
    with pytest.raises(ResourceNotFound):
        table.find("GET", "/sessionss")
    with pytest.raises(MethodNotAllowed):
        table.find("PATCH", "/sessions/ses_1")
    for odd in ("", "*", "sessions"):
        with pytest.raises(ResourceNotFound):
            table.find("GET", odd)
