"""Who may do what over what is not plain HTTP: the control channel, MCP, live views and CDP.

Every message of the control channel and every tool has a row here; a new one without a row fails by its name.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest
from tests.edge.control_house import client, command
from tests.mcp_server.speaker import HELLO, told

from tabherd import wire

from .raw import UPGRADE
from .rig import ALICE, BOB, NOTHING, SCOPES, Rig, Things, rig


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path) as one:
        yield one


# --- The control channel ------------------------------------------------------------------------------------------


class Said(NamedTuple):
    """What is meant for one kind of message."""

    # The scope that it takes; empty: a credential is enough.
    scope: str
    payload: Callable[[Things], dict[str, Any]] = lambda things: {}
    # What an agent hears that names a thing of another, or one that does not exist.
    foreign: str = ""


MESSAGES: Final[dict[str, Said]] = {
    "hello": Said(""),
    "command": Said("browse", lambda things: command(things.tab, "1"), "tab_not_found"),
    "command_cancel": Said("browse", lambda things: {"commandId": things.command}, "command_not_found"),
    "tab_lock": Said("browse", lambda things: {"tabSessionId": things.tab}, "tab_not_found"),
    "tab_renew": Said("browse", lambda things: {"tabSessionId": things.tab, "ticket": "t"}, "tab_not_found"),
    "tab_unlock": Said("browse", lambda things: {"tabSessionId": things.tab, "ticket": "t"}, "tab_not_found"),
    # Names of locks are everybody's, that is what they are for; whose grant it is, the ticket tells.
    "lock": Said("locks", lambda things: {"name": "free-lock"}),
    "lock_renew": Said("locks", lambda things: {"name": things.lock, "ticket": "t"}),
    "unlock": Said("locks", lambda things: {"name": things.lock, "ticket": "t"}),
    "ping": Said(""),
    "pong": Said(""),
}


def test_every_message_has_a_row() -> None:
    assert sorted(MESSAGES) == sorted(wire.CLIENT_PAYLOADS), "say here who may send a new message"


async def test_a_scope_lets_its_own_messages_through_and_no_others(here: Rig) -> None:
    wrong = []
    for scope in SCOPES:
        async with client(here.here, here.tokens[f"scope:{scope}"]) as speaker:
            for kind, row in MESSAGES.items():
                if row.scope:
                    said = (await speaker.ask(kind, row.payload(NOTHING)))["payload"]
                    refused = said.get("details", {}).get("scope") if said.get("code") == "forbidden" else None
                    # `evaluate` comes on top of `browse` where scripts are run.
                    fits = refused in (None, "evaluate") if row.scope == scope else refused == row.scope
                    if not fits:
                        wrong.append((scope, kind, said))
    assert not wrong


async def test_a_message_about_a_thing_of_another_is_answered_as_if_there_were_none(here: Rig) -> None:
    bobs = await here.things_of(BOB)
    wrong = []
    async with client(here.here, here.tokens[ALICE]) as speaker:
        for kind, row in MESSAGES.items():
            if row.foreign:
                foreign = (await speaker.ask(kind, row.payload(bobs)))["payload"]
                absent = (await speaker.ask(kind, row.payload(NOTHING)))["payload"]
                if foreign != absent or foreign.get("code") != row.foreign:
                    wrong.append((kind, foreign, absent))
    assert not wrong
    # And it would have been answered otherwise to bob.
    async with client(here.here, here.tokens[BOB]) as speaker:
        assert (await speaker.ask("command", command(bobs.tab, "1")))["messageType"] == "result"


async def test_a_lock_of_another_can_be_neither_renewed_nor_given_back(here: Rig) -> None:
    async with client(here.here, here.tokens[BOB]) as bob, client(here.here, here.tokens[ALICE]) as alice:
        taken = (await bob.ask("lock", {"name": "bobs"}))["payload"]
        for kind in ("lock_renew", "unlock"):
            refused = await alice.ask(kind, {"name": "bobs", "ticket": taken["ticket"]})
            assert refused["messageType"] == "error", refused
        assert (await bob.ask("lock_renew", {"name": "bobs", "ticket": taken["ticket"]}))["messageType"] == "result"


async def test_a_connection_cannot_speak_for_another_agent(here: Rig) -> None:
    async with client(here.here, here.tokens[ALICE], is_greeting=False) as speaker:
        assert (await speaker.ask("hello", {"agentId": BOB}))["payload"]["code"] == "forbidden"
    async with client(here.here, here.tokens["admin"], is_greeting=False) as speaker:
        assert (await speaker.ask("hello", {"agentId": BOB}))["payload"]["agentId"] == BOB


# --- Sockets that open --------------------------------------------------------------------------------------------


async def opened(here: Rig, path: str, headers: dict[str, str]) -> tuple[int, str]:
    """How the door answers: 101 if it opens, or the status and the code."""
    async with here.client() as http, http.stream("GET", path, headers=UPGRADE | headers) as answer:
        if answer.status_code == 101:
            return 101, ""
        await answer.aread()
        return answer.status_code, answer.json()["code"]


def doors(tab_id: str) -> tuple[str, ...]:
    return ("/ws", f"/live/{tab_id}", f"/devtools/page/{tab_id}", "/devtools/browser", "/devtools/browser/", "/")


async def test_every_door_of_the_server_is_tried(here: Rig) -> None:
    tried = {path if path.count("/") == 1 else path[: path.rfind("/", 1) + 1] for path in doors("tab")} | set(
        doors("tab")
    )
    assert set(here.here.front.config.loaded_app.doors._doors) <= tried  # type: ignore[union-attr]


async def test_no_socket_opens_without_a_credential_that_stands(here: Rig) -> None:
    alices = await here.things_of(ALICE)
    wrong = []
    for path in doors(alices.tab):
        for kind, headers in here.strangers("GET", path).items():
            heard = await opened(here, path, headers)
            if heard != (401, "unauthenticated"):
                wrong.append((path, kind, heard))
        for query in ("?token=th_" + "A" * 43, "?token="):
            heard = await opened(here, path + query, {})
            if heard != (401, "unauthenticated"):
                wrong.append((path, query, heard))
    assert not wrong


async def test_pages_of_other_tenants_read_as_if_there_were_none(here: Rig) -> None:
    bobs = await here.things_of(BOB)
    for path in ("/live/{}", "/devtools/page/{}"):
        foreign = await opened(here, path.format(bobs.tab), here.bearer(ALICE))
        assert foreign == await opened(here, path.format(NOTHING.tab), here.bearer(ALICE)) == (404, "tab_not_found")
        # The browser behind it is a stand-in and has no page, but the door is open.
        assert (await opened(here, path.format(bobs.tab), here.bearer(BOB)))[0] not in (401, 403, 404)
    session = await opened(here, f"/devtools/browser?session={bobs.session}", here.bearer(ALICE))
    assert session == (404, "session_not_found")
    assert session == await opened(here, f"/devtools/browser?session={NOTHING.session}", here.bearer(ALICE))


async def test_a_ticket_opens_what_it_was_signed_for_until_its_token_is_revoked(here: Rig) -> None:
    bobs = await here.things_of(BOB)
    async with here.client() as http:
        view = (await http.get(f"/sessions/{bobs.session}", headers=here.bearer(BOB))).json()
    ticket = view["webSocketDebuggerUrl"].rpartition("/")[2]
    assert (await opened(here, f"/devtools/browser/{ticket}", {}))[0] not in (401, 403, 404)
    # It is no token, opens no page and no live view, and one letter more or less is none at all.
    for path in (f"/ws?token={ticket}", f"/live/{bobs.tab}?token={ticket}", f"/devtools/page/{bobs.tab}?token={ticket}",
                 f"/devtools/browser/{ticket[:-1]}", f"/devtools/browser/{ticket}A"):  # fmt: skip
        assert await opened(here, path, {}) == (401, "unauthenticated"), path
    found = await here.here.credentials.authenticate(here.tokens[BOB])
    assert found is not None
    await here.here.credentials.revoke(found.id)
    assert await opened(here, f"/devtools/browser/{ticket}", {}) == (401, "unauthenticated")


async def test_a_ticket_that_is_too_old_or_revoked_or_not_ours_opens_nothing(here: Rig) -> None:
    alices = await here.things_of(ALICE)
    assert (await opened(here, f"/devtools/browser/{here.good_ticket(alices.session)}", {}))[0] not in (401, 403, 404)
    for kind, ticket in here.bad_tickets(alices.session).items():
        for path in (f"/devtools/browser/{ticket}", f"/devtools/page/{alices.tab}?ticket={ticket}",
                     f"/devtools/browser?ticket={ticket}"):  # fmt: skip
            assert await opened(here, path, {}) == (401, "unauthenticated"), (kind, path)


async def test_a_scope_opens_its_own_sockets_and_no_others(here: Rig) -> None:
    alices = await here.things_of(ALICE)
    for path, needed in ((f"/live/{alices.tab}", "browse"), (f"/devtools/page/{alices.tab}", "browse"),
                         ("/devtools/browser", "browse")):  # fmt: skip
        for scope in SCOPES:
            heard = await opened(here, path, here.bearer(f"scope:{scope}"))
            is_enough = scope == needed and path.startswith("/live")
            assert (heard == (403, "forbidden")) == (not is_enough), (path, scope, heard)


# --- Tools --------------------------------------------------------------------------------------------------------

# What a tool needs beside what it is aimed at.
ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    "browser_lease": {},
    "browser_release": {},
    "browser_navigate": {"url": "http://127.0.0.1:1/"},
    "browser_snapshot": {},
    "browser_click": {"selector": "a"},
    "browser_type": {"selector": "a", "text": "x"},
    "browser_fill": {"selector": "a", "value": "x"},
    "browser_press": {"key": "Enter"},
    "browser_select": {"selector": "a", "values": ["x"]},
    "browser_drag": {"from": "a", "to": "b"},
    "browser_upload": {"selector": "a", "files": []},
    "browser_wait": {"ms": 0},
    "browser_evaluate": {"expression": "1"},
    "browser_screenshot": {},
    "browser_pdf": {},
    "browser_files": {},
    "browser_tabs": {"action": "close"},
    "browser_who_holds": {},
    "browser_handoff": {},
    "browser_submit_task": {"action": "text"},
    "browser_task": {},
}
IDS: Final = {"sessionId": "session", "tabId": "tab", "taskId": "task"}


class Model:
    """One MCP client of the server."""

    def __init__(self, http: httpx.AsyncClient, token: str) -> None:
        self._http = http
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}

    async def post(self, method: str, params: dict[str, Any]) -> httpx.Response:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self._http.post("/mcp", json=message, headers=self._headers)

    async def open(self) -> httpx.Response:
        answer = await self.post("initialize", HELLO)
        if answer.is_success:
            self._headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
            done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await self._http.post("/mcp", json=done, headers=self._headers)
        return answer

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result: dict[str, Any] = told(await self.post("tools/call", {"name": tool, "arguments": arguments}))["result"]
        return result

    async def tools(self) -> dict[str, dict[str, Any]]:
        listed = told(await self.post("tools/list", {}))["result"]["tools"]
        return {tool["name"]: tool["inputSchema"]["properties"] for tool in listed}

    async def close(self) -> None:
        await self._http.delete("/mcp", headers=self._headers)


async def test_every_tool_refuses_ids_of_others_as_if_there_were_none(here: Rig) -> None:
    bobs = await here.things_of(BOB)
    wrong = []
    async with here.client() as http:
        model = Model(http, here.tokens[ALICE])
        assert (await model.open()).is_success
        tools = await model.tools()
        assert sorted(tools) == sorted(ARGUMENTS), "say here what a new tool takes"
        for name, properties in tools.items():
            for field in IDS.keys() & properties.keys():
                heard = []
                for things in (bobs, NOTHING):
                    id = getattr(things, IDS[field])
                    result = await model.call(name, **ARGUMENTS[name], **{field: id})
                    heard.append(json.loads(json.dumps(result).replace(id, "<id>")))
                foreign, absent = heard
                code = foreign.get("structuredContent", {}).get("code")
                if foreign != absent or code != f"{IDS[field]}_not_found":
                    wrong.append((name, field, foreign, absent))
        await model.close()
        # Bob has lost nothing by it.
        for path in (f"/sessions/{bobs.session}", f"/tabs/{bobs.tab}", f"/tasks/{bobs.task}"):
            assert (await http.get(path, headers=here.bearer(BOB))).is_success, path
    assert not wrong


async def test_mcp_opens_for_whoever_may_browse_and_tools_keep_to_the_scopes(here: Rig) -> None:
    alices = await here.things_of(ALICE)
    async with here.client() as http:
        for scope in SCOPES:
            answer = await Model(http, here.tokens[f"scope:{scope}"]).open()
            assert answer.status_code == (200 if scope == "browse" else 403), scope
        model = Model(http, here.tokens["scope:browse"])
        await model.open()
        # Its own agent's session: only the scopes are in the way.
        joined = await model.call("browser_lease", sessionId=alices.session)
        assert not joined.get("isError"), joined
        for name, needed, arguments in (
            ("browser_evaluate", "evaluate", {}),
            ("browser_task", "tasks", {"taskId": alices.task}),
            ("browser_submit_task", "tasks", {}),
        ):
            refused = await model.call(name, **ARGUMENTS[name], **arguments)
            assert refused["structuredContent"]["code"] == "forbidden", (name, refused)
            assert refused["structuredContent"]["details"]["scope"] == needed
        await model.close()


async def test_an_mcp_session_of_another_is_not_found(here: Rig) -> None:
    async with here.client() as http:
        bobs, alices = Model(http, here.tokens[BOB]), Model(http, here.tokens[ALICE])
        await bobs.open()
        alices._headers["Mcp-Session-Id"] = bobs._headers["Mcp-Session-Id"]
        assert (await alices.post("tools/list", {})).status_code == 404
        assert (await bobs.post("tools/list", {})).status_code == 200
        await bobs.close()
