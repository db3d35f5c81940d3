"""Every route x every kind of credential x whose thing it is. A route without a row fails here by its name."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tabherd.edge.route import Route
from tabherd.edge.routes import ROUTES

from .matrix import TABLE
from .rig import ALICE, BOB, NOTHING, SCOPES, Rig, Things, rig


class Heard(NamedTuple):
    """What was answered, as far as it tells anything."""

    status: int
    code: str
    details: dict[str, Any]


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path) as one:
        yield one


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


def path_of(route: Route, things: Things) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: things.of(found[1], route.path), route.path)


async def ask(here: Rig, route: Route, things: Things, headers: dict[str, str]) -> Heard:
    row = TABLE[name_of(route)]
    body = {"content": row.body} if isinstance(row.body, str) else {} if row.body is None else {"json": row.body}
    # What an earlier answer set is not shown.
    here.http.cookies.clear()
    # A stream is heard to begin; that is all that is wanted of it.
    async with here.http.stream(route.method, path_of(route, things) + row.query, headers=headers, **body) as answer:
        told: Any = {}
        if answer.headers.get("content-type", "").startswith("application/json"):
            await answer.aread()
            told = answer.json()
        told = told if isinstance(told, dict) else {}
        return Heard(answer.status_code, str(told.get("code", "")), told.get("details") or {})


def test_every_route_has_a_row_and_says_what_is_meant() -> None:
    assert sorted(TABLE) == sorted(map(name_of, ROUTES)), "say in matrix.py who may use a new route"
    for route in ROUTES:
        need = TABLE[name_of(route)].need
        assert route.scope == (None if need in ("nobody", "nodes") else need), name_of(route)


async def test_nobody_gets_in_without_a_credential_that_stands(here: Rig) -> None:
    wrong = []
    for route in ROUTES:
        row = TABLE[name_of(route)]
        for kind, headers in here.strangers(route.method, path_of(route, NOTHING)).items():
            heard = await ask(here, route, NOTHING, headers)
            expected = {"nobody": heard.status not in (403, 500), "nodes": heard.status == 404}
            # What is open stays so, whatever else is shown; except where a token is the very thing that is asked about.
            if not expected.get(row.need, (heard.status, heard.code) == (401, "unauthenticated")):
                wrong.append((name_of(route), kind, heard))
    assert not wrong


async def test_a_scope_opens_its_own_routes_and_no_others(here: Rig) -> None:
    wrong = []
    for route in ROUTES:
        need = TABLE[name_of(route)].need
        if need in ("nobody", "nodes"):
            continue
        for scope in SCOPES:
            heard = await ask(here, route, NOTHING, here.bearer(f"scope:{scope}"))
            if need in ("any", scope):
                # `evaluate` comes on top of `browse` where scripts are run.
                fits = heard.status not in (401, 500) and heard.details.get("scope") in (None, "evaluate")
            else:
                fits = (heard.status, heard.details.get("scope")) == (403, need)
            if not fits:
                wrong.append((name_of(route), scope, heard))
    assert not wrong


async def test_an_agent_cannot_be_another_and_a_page_of_another_origin_cannot_be_anybody(here: Rig) -> None:
    wrong = []
    for route in ROUTES:
        if TABLE[name_of(route)].need in ("nobody", "nodes"):
            continue
        for headers in (
            here.bearer(ALICE) | {"X-Agent-Id": BOB},
            here.logged_in | {"X-Agent-Id": BOB},
            here.logged_in | {"Origin": "http://evil.example"},
            here.bearer(ALICE) | {"Origin": "null"},
            here.bearer(ALICE) | {"Host": "evil.example"},
        ):
            heard = await ask(here, route, NOTHING, headers)
            if (heard.status, heard.code) != (403, "forbidden"):
                wrong.append((name_of(route), headers, heard))
    assert not wrong


async def test_a_login_opens_what_its_token_opens(here: Rig) -> None:
    wrong = []
    for route in ROUTES:
        if TABLE[name_of(route)].need not in ("nobody", "nodes", "any") and not route.waits:
            heard = await ask(here, route, NOTHING, here.logged_in)
            if heard.status == 401 or (heard.status == 403) != (TABLE[name_of(route)].need == "admin"):
                wrong.append((name_of(route), heard))
    assert not wrong


async def test_things_of_others_read_exactly_like_things_that_do_not_exist(here: Rig) -> None:
    bobs = await here.things_of(BOB)
    wrong = []
    for route in ROUTES:
        row = TABLE[name_of(route)]
        if row.foreign:
            foreign = await ask(here, route, bobs, here.bearer(ALICE))
            absent = await ask(here, route, NOTHING, here.bearer(ALICE))
            if foreign != absent or (foreign.status, foreign.code) != (404, row.foreign):
                wrong.append((name_of(route), foreign, absent))
    assert not wrong
    # And bob lost nothing by it.
    session = next(route for route in ROUTES if name_of(route) == "GET /sessions/{sessionId}")
    assert (await ask(here, session, bobs, here.bearer(BOB))).status == 200


async def test_a_shared_session_is_used_by_all_and_ended_by_its_owner_alone(here: Rig) -> None:
    wrong = []
    bobs = await here.things_of(BOB, "shared")
    for route in ROUTES:
        row = TABLE[name_of(route)]
        if row.shared:
            heard = await ask(here, route, bobs, here.bearer(ALICE))
            if (heard.code or "ok") != row.shared or (row.shared == "ok" and heard.status >= 300):
                wrong.append((name_of(route), heard, row.shared))
            if row.shared == "ok" and (route.method != "GET" or "close" in route.path):
                # It was closed, or is locked now.
                bobs = await here.things_of(BOB, "shared")
    assert not wrong
    # And bob can still end it.
    release = next(route for route in ROUTES if name_of(route) == "DELETE /sessions/{sessionId}")
    assert (await ask(here, release, bobs, here.bearer(BOB))).status == 204


def test_every_route_on_a_thing_says_what_it_is_in_a_shared_session() -> None:
    # The browser here is a stand-in that has no window to bring to the front.
    silent = {"GET /json/activate/{tabId}"}
    assert {name for name, row in TABLE.items() if bool(row.shared) != bool(row.foreign)} == silent


async def test_a_lock_of_another_can_be_neither_renewed_nor_given_back(here: Rig) -> None:
    bobs = await here.things_of(BOB)
    for name in ("POST /locks/{name}/renew", "DELETE /locks/{name}"):
        route = next(route for route in ROUTES if name_of(route) == name)
        assert (await ask(here, route, bobs, here.bearer(ALICE))).status in (403, 404, 409), name
    async with here.client() as http:
        held = (await http.get("/locks", headers=here.bearer(BOB))).json()
    assert bobs.lock in str(held)
