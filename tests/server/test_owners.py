"""Sessions that name the process they live for: its proven death ends them, and nothing less does."""

from __future__ import annotations

import os

import httpx
import pytest
from tests.shared_server import unique

from tabherd.browsers.process import start_time

from .conftest import Server, act, events_of, value_of

pytestmark = [pytest.mark.server, pytest.mark.browser]


def test_a_killed_owner_ends_its_session_and_neither_a_stopped_one_nor_one_with_a_successor_does(
    server: Server, admin: httpx.Client
) -> None:
    """The rule is proven death *and* silence: an agent whose launcher ends goes on."""
    names = [unique(name) for name in ("stopped", "succeeded", "unnamed", "killed")]
    with (
        server.caller(names[0]) as stopped,
        server.caller(names[1]) as succeeded,
        server.caller(names[2]) as unnamed,
        server.caller(names[3]) as killed,
        server.agent(names[1]) as successor,
        events_of(server, "session.closed") as events,
    ):
        owners = [stopped, succeeded, killed]
        held = [owner.ask("POST", "/sessions", {"owner": {"pid": owner.pid}}).body for owner in owners]
        # A session of a short-lived call on the command line, which names no owner, outlives it.
        outliving = unnamed.ask("POST", "/sessions", {}).body
        stopped.stop()
        unnamed.kill()
        succeeded.kill()
        assert act(successor, held[1]["tabs"][0]["tabId"], "evaluate", expression="1").status_code == 200
        # In the middle of a command, whose end is no sign of life. It is the last to die: when its time is over,
        # that of the others would have been as well.
        tab_id = held[2]["tabs"][0]["tabId"]
        killed.send("POST", f"/tabs/{tab_id}/action", {"kind": "wait", "ms": 60_000, "timeoutMs": 60_000})
        while admin.get(f"/tabs/{tab_id}").json()["holder"] is None:
            pass
        killed.kill()
        told = next(events)
        assert (told["sessionId"], told["agentId"]) == (held[2]["sessionId"], names[3])
        assert told["reason"] == "owner_dead"
        for session in (*held[:2], outliving):
            assert admin.get(f"/sessions/{session['sessionId']}").json()["state"] == "active"
        stopped.resume()
        assert stopped.act(held[0]["tabs"][0]["tabId"], "evaluate", expression="1 + 1").body["result"] == 2
        assert value_of(successor, held[1]["tabs"][0]["tabId"], "2") == 2


def test_a_pid_with_another_start_time_is_refused_and_nothing_is_opened(ada: httpx.Client) -> None:
    mine = {"pid": os.getpid(), "startTime": start_time(os.getpid()) + 1}
    refused = ada.post("/sessions", json={"owner": mine})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
    assert refused.json()["details"]["field"] == "owner"
    assert ada.get("/sessions").json()["sessions"] == []
