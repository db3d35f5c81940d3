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


@pytest.mark.parametrize("route", GUARDED, ids=name_of)
async def test_a_guarded_route_refuses_whoever_has_no_credential(anybody: httpx.AsyncClient, route: Route) -> None:
    answer = await anybody.request(route.method, path_of(route), content=b"not even JSON")
    assert answer.status_code == 401


@pytest.mark.parametrize("route", SCOPED, ids=name_of)
async def test_a_scoped_route_refuses_a_credential_with_every_scope_but_its_own(
    make_app: Callable[..., App], broker: FakeBroker, route: Route
) -> None:
    others = set(get_args(wire.Scope)) - {route.scope, "admin"}
    token, _ = await broker.credentials.create("mallory", others)
    async with client_of(make_app(), token) as mallory:
        answer = await mallory.request(route.method, path_of(route), content=b"not even JSON")
    assert (answer.status_code, answer.json()["details"]) == (403, {"scope": route.scope})


@pytest.mark.parametrize("route", SCOPED, ids=name_of)
async def test_a_scoped_route_admits_a_credential_with_its_scope(
    make_app: Callable[..., App], broker: FakeBroker, route: Route
) -> None:
    assert route.scope is not None
    token, _ = await broker.credentials.create("bob", [route.scope])
    async with client_of(make_app(), token) as bob:
        answer = await bob.request(route.method, path_of(route), content=b"not even JSON")
    assert answer.status_code not in (401, 403)


@pytest.mark.parametrize("route", ROUTES, ids=name_of)
def test_a_route_says_what_it_answers(route: Route) -> None:
    assert route.summary.endswith(".")
    assert route.status == 204 or route.answer is not None or route.media != "application/json"


@pytest.mark.parametrize("route", ROUTES, ids=name_of)
def test_a_route_is_found_by_its_own_path(route: Route) -> None:
    endpoint, parameters = RouteTable(ROUTES).find(route.method, path_of(route))
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
