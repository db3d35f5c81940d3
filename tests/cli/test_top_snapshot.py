"""What `top` asks a server for, what it makes of it, and what it leaves out."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.client.canned import BROWSER, QUEUED_TASK, SESSION, STATS, TAB

from tabherd.cli.snapshot import TASKS_MAX, Snapshot, look
from tabherd.client.aio import AsyncTabherd
from tabherd.errors import StoreUnavailable

NO_SCOPE = {"code": "forbidden", "message": "Not yours.", "retryable": False, "action": "", "details": {}}
COUNTS = {
    "tasksSubmitted": 0,
    "tasksCompleted": 0,
    "tasksFailed": 0,
    "tasksCancelled": 0,
    "tasksRejected": 0,
    "tasksExpired": 0,
    "dispatchTotal": 0,
    "avgDispatchLatencyMs": 0,
}


def queued(*numbers: int, state: str = "queued") -> dict[str, Any]:
    return {"tasks": [QUEUED_TASK | {"taskId": f"tsk_{n:05}", "state": state} for n in numbers]}


class Server:
    """Prepared answers, and what was asked."""

    def __init__(self) -> None:
        self.asked: list[httpx.Request] = []
        health = {"status": "ok", "version": "9", "node": "nod_1"}
        queue = {"totalQueued": 3, "totalInflight": 1, "agents": {"zoe": {"queued": 3, "inflight": 1}}}
        # By path: the status and the body.
        self.answers: dict[str, tuple[int, Any]] = {
            "/health": (200, health),
            "/ready": (200, health),
            "/stats": (200, STATS),
            "/browsers": (200, {"browsers": [BROWSER]}),
            "/tabs": (200, {"tabs": [TAB]}),
            "/sessions": (200, {"sessions": [SESSION]}),
            "/tasks": (200, {"tasks": []}),
            "/scheduler/stats": (200, {"queue": queue, "metrics": COUNTS | {"agents": {}}, "config": {}}),
            "/locks": (200, {"locks": [{"name": "deploy", "held": True, "waiters": 1}]}),
        }

    def queries(self, path: str) -> list[dict[str, str]]:
        return [dict(asked.url.params) for asked in self.asked if asked.url.path == path]

    async def look(self) -> Snapshot:
        transport = httpx.MockTransport(self._answer)
        async with AsyncTabherd("http://x.test", "secret", environ={}, patience_s=0, transport=transport) as herd:
            return await look(herd)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        status, body = self.answers[request.url.path]
        return httpx.Response(status, json=body)


@pytest.fixture
def server() -> Server:
    return Server()


async def test_sessions_that_are_open_are_listed_once_and_without_what_would_let_others_in(server: Server) -> None:
    ticket = {"cdpUrl": "http://x/?ticket=secret", "webSocketDebuggerUrl": "ws://x/?ticket=secret"}
    server.answers["/sessions"] = (200, {"sessions": [SESSION | ticket]})
    told = await server.look()
    found = [(view.session_id, view.cdp_url, view.web_socket_debugger_url) for view in told.sessions]
    assert found == [("ses_1", "", "")]
    assert {query["state"] for query in server.queries("/sessions")} == {"active", "recovering", "closing"}


async def test_looking_counts_as_no_sign_of_life_of_any_session(server: Server) -> None:
    await server.look()
    assert {asked.method for asked in server.asked} == {"GET"}
    assert not any(asked.url.path.startswith("/sessions/") for asked in server.asked)


async def test_tasks_are_those_that_are_not_over_the_newest_first(server: Server) -> None:
    server.answers["/tasks"] = (200, queued(1, 3, 2))
    told = await server.look()
    assert [task.task_id for task in told.tasks] == ["tsk_00003", "tsk_00002", "tsk_00001"]
    assert not told.has_more_tasks
    asked = server.queries("/tasks")
    assert {query["state"] for query in asked} == {"queued", "assigned", "running"}
    assert {(query["order"], query["limit"]) for query in asked} == {("desc", str(TASKS_MAX + 1))}


async def test_of_more_tasks_than_are_listed_the_newest_are_and_that_is_said(server: Server) -> None:
    server.answers["/tasks"] = (200, queued(*range(500, 500 - TASKS_MAX - 1, -1)))
    told = await server.look()
    assert (len(told.tasks), told.tasks[0].task_id, told.has_more_tasks) == (TASKS_MAX, "tsk_00500", True)


async def test_tasks_that_run_are_listed_however_many_newer_ones_wait(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path != "/tasks":
            return by_path(request)
        is_running = request.url.params["state"] == "running"
        return httpx.Response(200, json=queued(1, state="running") if is_running else queued(*range(900, 600, -1)))

    by_path = server._answer
    monkeypatch.setattr(server, "_answer", answer)
    told = await server.look()
    assert (told.tasks[-1].task_id, told.tasks[-1].state, len(told.tasks)) == ("tsk_00001", "running", TASKS_MAX)


async def test_agents_have_the_tasks_that_wait_and_run(server: Server) -> None:
    zoe = (await server.look()).agents["zoe"]
    assert (zoe.queued, zoe.inflight, zoe.sessions) == (3, 1, 0)


async def test_who_waits_for_a_session_is_asked_for_all_agents(server: Server) -> None:
    await server.look()
    assert server.queries("/stats") == [{"waiters": "all"}]


async def test_what_the_credential_may_not_see_is_left_out_with_the_reason(server: Server) -> None:
    for path in ("/locks", "/scheduler/stats", "/tasks"):
        server.answers[path] = (403, NO_SCOPE)
    told = await server.look()
    assert told.refused == {"tasks": "Not yours.", "locks": "Not yours."}
    assert (told.tasks, told.locks, len(told.tabs), len(told.sessions)) == ([], [], 1, 1)


async def test_any_other_refusal_is_raised(server: Server) -> None:
    server.answers["/tasks"] = (503, NO_SCOPE | {"code": "store_unavailable"})
    with pytest.raises(StoreUnavailable):
        await server.look()
