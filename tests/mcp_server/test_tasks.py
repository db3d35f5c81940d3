"""Tasks over MCP, against a real server: submitted on one's own tab or a fresh page, waited for, and cancelled."""

from __future__ import annotations

import pytest
from tests.server.conftest import Server, open_session
from tests.shared_server import unique

from .clients import error, over_http, text

pytestmark = [pytest.mark.server, pytest.mark.browser]

PAGE = "data:text/html,<title>A</title><h1>Hello</h1><input id=name>"


def id_of(said: str) -> str:
    return said.removeprefix("Submitted ").partition(".")[0]


async def test_a_task_on_ones_own_tab_answers_with_what_its_action_does(shared_server: Server) -> None:
    async with over_http(shared_server) as client:
        tab_id = (await text(client, "browser_navigate", url=PAGE)).partition(" ")[0]
        filled = await text(
            client,
            "browser_submit_task",
            action="fill",
            params={"selector": "#name", "value": "Ada"},
            tabId=tab_id,
        )
        read = await text(client, "browser_submit_task", action="text", params={"selector": "h1"}, tabId=tab_id)
        assert await text(client, "browser_task", taskId=id_of(filled)) == "null"
        assert await text(client, "browser_task", taskId=id_of(read)) == '"Hello"'
        assert await text(client, "browser_evaluate", expression="document.querySelector('#name').value") == '"Ada"'


async def test_without_a_tab_it_runs_on_a_fresh_page_and_leaves_none(shared_server: Server) -> None:
    async with over_http(shared_server) as client:
        steps = [{"kind": "navigate", "url": PAGE}, {"kind": "text", "selector": "h1"}]
        task_id = id_of(await text(client, "browser_submit_task", steps=steps))
        assert '"Hello"' in await text(client, "browser_task", taskId=task_id)
        assert await text(client, "browser_tabs") == "No tabs are open."
        task_id = id_of(await text(client, "browser_submit_task", action="screenshot"))
        result = await client.call_tool("browser_task", {"taskId": task_id})
        assert (result.content[0].type, result.content[0].mime_type) == ("image", "image/png")


async def test_a_failure_is_the_typed_error_and_a_refusal_names_the_field(shared_server: Server) -> None:
    async with over_http(shared_server) as client:
        task_id = id_of(await text(client, "browser_submit_task", action="evaluate", params={"expression": "no.one"}))
        assert (await error(client, "browser_task", taskId=task_id))[0]["code"] == "javascript_error"
        refused, said = await error(client, "browser_submit_task", action="fly")
        assert (refused["code"], '"click"' in said) == ("unknown_action", True)
        stranger, _ = await error(client, "browser_submit_task", action="text", tabId="tab_none")
        assert stranger["code"] == "tab_not_found"


async def test_one_that_takes_long_is_told_about_and_can_be_cancelled(shared_server: Server) -> None:
    async with over_http(shared_server) as client:
        task_id = id_of(await text(client, "browser_submit_task", action="wait", params={"ms": 30_000}))
        said = await text(client, "browser_task", taskId=task_id, waitMs=0)
        assert said.startswith(f"{task_id} is ")
        assert await text(client, "browser_task", taskId=task_id, cancel=True) == f"Cancelled {task_id}."
        over, _ = await error(client, "browser_task", taskId=task_id)
        assert (over["code"], over["details"]["state"]) == ("conflict", "cancelled")


async def test_a_task_of_another_agent_does_not_exist_even_with_an_admins_credential(shared_server: Server) -> None:
    with shared_server.client() as admin:
        session = open_session(admin, agentId="ada")
        body = {"action": "text", "sessionId": session["sessionId"], "agentId": "ada"}
        task_id = admin.post("/tasks", json=body).json()["taskId"]
    async with over_http(shared_server) as client:
        for arguments in ({}, {"cancel": True}):
            told, _ = await error(client, "browser_task", taskId=task_id, **arguments)
            assert told["code"] == "task_not_found"


async def test_an_agent_finds_its_task_again_in_another_mcp_session(shared_server: Server) -> None:
    token = shared_server.token_of(unique("ada"))
    async with over_http(shared_server, token) as client:
        task_id = id_of(await text(client, "browser_submit_task", action="evaluate", params={"expression": "6 * 7"}))
    async with over_http(shared_server, token) as later:
        assert await text(later, "browser_task", taskId=task_id) == "42"
