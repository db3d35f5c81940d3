"""Who may do what with whose things: one row for each route, as it is meant, and not as it happens to be.

`own` scopes and open routes are in the route table itself; what is declared here is which of them a route must be, what
to send it, and what an agent hears that asks for another's exclusive thing (always the same as for one that does not
exist) or for something in another's shared session.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

# Nobody need say who they are; only other nodes are heard; whoever has a credential; or a scope.
Need = Literal["nobody", "nodes", "any", "browse", "tasks", "locks", "files", "admin"]


class Row(NamedTuple):
    """What is meant for one route."""

    need: Need
    # What is sent as the body.
    body: Any = None
    # What an agent hears that names a thing of another, or one that does not exist.
    foreign: str = ""
    # What it hears in a shared session of another: a code, or `ok`; empty: that does not arise.
    shared: str = ""
    query: str = ""


_EVALUATE: Final = {"kind": "evaluate", "expression": "1"}
_SESSION: Final = "session_not_found"
_TAB: Final = "tab_not_found"

TABLE: Final[dict[str, Row]] = {
    "GET /": Row("nobody"),
    "GET /ui/{name}": Row("nobody"),
    "POST /login": Row("nobody", {"token": "th_wrong"}),
    "GET /login": Row("any"),
    "DELETE /login": Row("nobody"),
    "GET /health": Row("nobody"),
    "GET /ready": Row("nobody"),
    "GET /metrics": Row("any"),
    "GET /openapi.json": Row("nobody"),
    "GET /docs": Row("nobody"),
    "GET /events": Row("any"),
    "GET /nodes/events": Row("nodes"),
    "POST /nodes/tasks": Row(
        "nodes",
        {"agentId": "alice", "scopes": ["admin"], "controllerId": "c", "requestId": "r", "traceparent": "t",
         "batch": {"agentId": "alice", "tasks": [{"action": "text", "tabId": "tab_1"}]}},
    ),
    "GET /json/version": Row("nobody"),
    "GET /json/list": Row("browse"),
    "GET /json/protocol": Row("browse"),
    "PUT /json/new": Row("browse"),
    "GET /json/activate/{tabId}": Row("browse", foreign=_TAB),
    "GET /json/close/{tabId}": Row("browse", foreign=_TAB, shared="ok"),
    "POST /sessions": Row("browse", {}),
    "GET /sessions": Row("browse"),
    "GET /sessions/{sessionId}": Row("browse", foreign=_SESSION, shared="ok"),
    "POST /sessions/{sessionId}/heartbeat": Row("browse", {"fence": 1}, _SESSION, "not_owner"),
    "DELETE /sessions/{sessionId}": Row("browse", foreign=_SESSION, shared="not_owner"),
    "POST /sessions/{sessionId}/takeover": Row("admin", {"agentId": "carol"}),
    "GET /sessions/{sessionId}/state": Row("browse", foreign=_SESSION, shared="not_owner"),
    "PUT /sessions/{sessionId}/state": Row("browse", {}, _SESSION, "not_owner"),
    "GET /sessions/{sessionId}/files": Row("files", foreign=_SESSION, shared="not_owner"),
    "POST /sessions/{sessionId}/files": Row("files", "x", _SESSION, "not_owner", "?name=a.txt"),
    "GET /sessions/{sessionId}/files/{name}": Row("files", foreign=_SESSION, shared="not_owner"),
    "GET /sessions/{sessionId}/tabs": Row("browse", foreign=_SESSION, shared="ok"),
    "POST /sessions/{sessionId}/tabs": Row("browse", {}, _SESSION, "not_owner"),
    "GET /tabs": Row("browse"),
    "GET /tabs/{tabId}": Row("browse", foreign=_TAB, shared="ok"),
    "DELETE /tabs/{tabId}": Row("browse", foreign=_TAB, shared="ok"),
    "POST /tabs/{tabId}/handoff": Row("browse", {}, _TAB, "not_owner"),
    "POST /tabs/{tabId}/resume": Row("browse", foreign=_TAB, shared="not_owner"),
    "POST /tabs/{tabId}/action": Row("browse", _EVALUATE, _TAB, "ok"),
    "POST /tabs/{tabId}/actions": Row("browse", {"steps": [_EVALUATE]}, _TAB, "ok"),
    "POST /tabs/{tabId}/lock": Row("browse", {}, _TAB, "ok"),
    "DELETE /tabs/{tabId}/lock": Row("browse", foreign=_TAB, shared="lock_not_found", query="?ticket=t"),
    "POST /tasks": Row("tasks", {"action": "text", "tabId": "tab_1"}),
    "POST /tasks/batch": Row("tasks", {"tasks": [{"action": "text", "tabId": "tab_1"}]}),
    "GET /tasks": Row("tasks"),
    "GET /tasks/{taskId}": Row("tasks", foreign="task_not_found", shared="task_not_found"),
    "POST /tasks/{taskId}/cancel": Row("tasks", foreign="task_not_found", shared="task_not_found"),
    "GET /scheduler/stats": Row("tasks"),
    "GET /locks": Row("locks"),
    # Names of locks are everybody's, that is what they are for; whose grant it is, the ticket tells.
    "POST /locks/{name}": Row("locks", {"waitMs": 0}),
    "POST /locks/{name}/renew": Row("locks", {"ticket": "t"}),
    "DELETE /locks/{name}": Row("locks", query="?ticket=t"),
    "GET /api/advisory-locks": Row("locks"),
    "POST /commands/{commandId}/cancel": Row("browse", foreign="command_not_found", shared="command_not_found"),
    "GET /commands/{commandId}": Row("browse", foreign="command_not_found", shared="command_not_found"),
    "GET /audit": Row("admin"),
    "GET /browsers": Row("browse"),
    "POST /browsers/{browserId}/restart": Row("admin"),
    "POST /browsers/{browserId}/drain": Row("admin"),
    "GET /stats": Row("browse"),
    "GET /history": Row("browse"),
    "GET /nodes": Row("browse"),
    "POST /drain": Row("admin"),
    "DELETE /drain": Row("admin"),
    "GET /config": Row("admin"),
    "PATCH /config": Row("admin", {}),
    "POST /agents": Row("admin", {"agentId": "mallory"}),
    "GET /tokens": Row("any"),
    "DELETE /tokens/{tokenId}": Row("any", foreign="not_found", shared="not_found"),
    "POST /mcp": Row("browse", {}),
    "GET /mcp": Row("browse"),
    "DELETE /mcp": Row("browse"),
}  # fmt: skip
