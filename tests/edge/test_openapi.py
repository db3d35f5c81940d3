"""The OpenAPI document says what the table says, all of it, and nothing that cannot be resolved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx

from tabherd import errors as e
from tabherd.edge import openapi
from tabherd.edge.openapi_links import GIVEN
from tabherd.edge.route import Route, parameters_of
from tabherd.edge.routes import ROUTES

DOCUMENT = openapi.document(ROUTES, "1.0")


def refs_in(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for child in node.values():
            yield from refs_in(child)
    elif isinstance(node, list):
        for child in node:
            yield from refs_in(child)


def operation_of(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = DOCUMENT["paths"][route.path][route.method.lower()]
    return operation


def test_every_route_is_described_and_nothing_else() -> None:
    described = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in ROUTES}


def test_every_reference_resolves() -> None:
    known = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert set(refs_in(DOCUMENT)) <= known


def test_operation_ids_are_unique() -> None:
    ids = [operation_of(route)["operationId"] for route in ROUTES]
    assert len(ids) == len(set(ids))


def test_every_error_of_a_route_is_listed_under_its_status_and_a_token_is_demanded_where_there_is_a_scope() -> None:
    for route in ROUTES:
        responses = operation_of(route)["responses"]
        for error in openapi.errors_of(route):
            assert error.code in responses[str(error.status)]["x-codes"]
            assert responses[str(error.status)]["content"]["application/json"]["schema"] == {
                "$ref": "#/components/schemas/ErrorView"
            }
        assert bool(operation_of(route)["security"]) == (route.scope is not None), route.path


def links() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every link, and the operation that it goes to."""
    operations = {operation_of(route)["operationId"]: operation_of(route) for route in ROUTES}
    for operation in operations.values():
        for response in operation["responses"].values():
            for link in response.get("links", {}).values():
                yield link, operations[link["operationId"]]


def test_every_link_fills_in_the_path_of_its_operation_and_nothing_that_it_does_not_take() -> None:
    for link, target in links():
        names = {each["name"]: each["required"] for each in target["parameters"]}
        assert link["parameters"].keys() <= names.keys(), link
        assert {name for name, is_required in names.items() if is_required} <= link["parameters"].keys(), link


def test_every_answer_that_is_said_to_give_something_has_links() -> None:
    linked = [route for route in ROUTES if "links" in operation_of(route)["responses"][str(route.status)]]
    assert sorted(f"{route.method} {route.path}" for route in linked) == sorted(GIVEN)


def test_every_operation_on_one_thing_can_be_reached_by_a_link() -> None:
    reached = {link["operationId"] for link, _ in links()}
    for route in ROUTES:
        # What is asked for by a name that the caller chooses needs no link.
        if any(name.endswith("Id") for name in parameters_of(route.path)):
            assert operation_of(route)["operationId"] in reached, route.path


def test_the_name_of_a_file_is_not_taken_for_that_of_a_lock() -> None:
    upload = DOCUMENT["paths"]["/sessions/{sessionId}/files"]["post"]["responses"]["201"]["links"]
    assert sorted(upload) == ["get_file", "upload_file"]


def test_a_body_is_required_only_where_a_field_is() -> None:
    paths = DOCUMENT["paths"]
    assert paths["/sessions"]["post"]["requestBody"]["required"] is False
    assert paths["/sessions/{sessionId}/heartbeat"]["post"]["requestBody"]["required"] is True
    assert paths["/tabs/{tabId}/action"]["post"]["requestBody"]["required"] is True


def test_query_parameters_carry_their_bounds_and_are_never_null() -> None:
    parameters = {each["name"]: each["schema"] for each in DOCUMENT["paths"]["/sessions"]["get"]["parameters"]}
    assert parameters["limit"] == {"type": "integer", "minimum": 1, "maximum": 1_000, "default": 100}
    assert parameters["agentId"]["type"] == "string"
    assert "null" not in json.dumps(parameters)


def test_a_full_acquire_queue_is_documented_under_both_its_statuses() -> None:
    responses = DOCUMENT["paths"]["/sessions"]["post"]["responses"]
    assert e.QueueFull.code in responses["429"]["x-codes"]
    assert "503" in responses


async def test_the_document_is_served(anybody: httpx.AsyncClient) -> None:
    answer = await anybody.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["info"]["version"] == "9.9"
