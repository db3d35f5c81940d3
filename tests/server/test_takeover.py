"""An admin gives a session to another agent: from that moment nothing of the old holder has any effect."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.shared_server import unique

from .callers import CallerProcess
from .conftest import Server, act, events_of, open_session, value_of

pytestmark = [pytest.mark.server, pytest.mark.browser]

LOG = "(window.log ??= [])"


@pytest.fixture
def bob(server: Server) -> Iterator[httpx.Client]:
    with server.agent("bob") as client:
        yield client


@pytest.fixture
def holder(server: Server) -> Iterator[CallerProcess]:
    with server.caller(unique("ada")) as caller:
        yield caller


def test_what_a_stopped_holder_sends_after_a_takeover_touches_nothing(
    admin: httpx.Client, bob: httpx.Client, holder: CallerProcess
) -> None:
    session = holder.ask("POST", "/sessions", {}).body
    session_id, tab_id, fence = session["sessionId"], session["tabs"][0]["tabId"], session["fence"]
    assert holder.act(tab_id, "evaluate", expression=f"{LOG}.push('ada')").status == 200
    holder.stop()
    # What it will send as soon as it runs again: with its fence, without it, as every kind of verb.
    late = {"kind": "evaluate", "expression": f"{LOG}.push('late')"}
    for method, path, body in (
        ("POST", f"/tabs/{tab_id}/action", late | {"fence": fence}),
        ("POST", f"/tabs/{tab_id}/action", late | {"fence": fence, "sessionId": session_id}),
        ("POST", f"/tabs/{tab_id}/action", late),
        ("POST", f"/tabs/{tab_id}/action", late | {"waitPolicy": "wait_with_timeout"}),
        ("POST", f"/tabs/{tab_id}/action", {"kind": "navigate", "url": "about:blank", "fence": fence}),
        ("POST", f"/tabs/{tab_id}/action", {"kind": "close", "fence": fence}),
        ("POST", f"/tabs/{tab_id}/handoff", {}),
        ("POST", f"/sessions/{session_id}/tabs", {}),
        ("POST", f"/sessions/{session_id}/heartbeat", {"fence": fence}),
        ("PUT", f"/sessions/{session_id}/state", {"cookies": [], "origins": []}),
        ("DELETE", f"/tabs/{tab_id}", None),
        ("DELETE", f"/sessions/{session_id}?fence={fence}", None),
        ("DELETE", f"/sessions/{session_id}", None),
    ):
        holder.send(method, path, body)

    taken = admin.post(f"/sessions/{session_id}/takeover", json={"agentId": "bob"}).json()
    assert (taken["agentId"], taken["fence"] > fence) == ("bob", True)
    assert value_of(bob, tab_id, f"{LOG}.push('bob')") == 2
    holder.resume()
    heard = [holder.hear() for _ in range(13)]

    assert {(one.status, one.body["code"]) for one in heard} == {(409, "lease_lost")}
    assert value_of(bob, tab_id, LOG) == ["ada", "bob"]
    now = bob.get(f"/sessions/{session_id}").json()
    assert (now["state"], now["fence"], len(now["tabs"])) == ("active", taken["fence"], 1)
    assert bob.delete(f"/sessions/{session_id}", params={"fence": taken["fence"]}).status_code == 204


def test_commands_of_the_old_holder_that_run_or_wait_end_before_the_new_one_begins(
    server: Server, admin: httpx.Client, bob: httpx.Client
) -> None:
    with server.agent(unique("ada")) as ada, ThreadPoolExecutor(2) as callers:
        session = open_session(ada)
        tab_id = session["tabs"][0]["tabId"]
        patient = {"waitPolicy": "wait_with_timeout", "timeoutMs": 60_000}
        ticking = f"new Promise(() => setInterval(() => {LOG}.push('ada'), 5))"
        waiting = f"{LOG}.push('waited')"
        running = callers.submit(act, ada, tab_id, "evaluate", expression=ticking, **patient)
        while admin.get(f"/tabs/{tab_id}").json()["holder"] is None:
            pass
        queued = callers.submit(act, ada, tab_id, "evaluate", expression=waiting, **patient)
        while not admin.get(f"/tabs/{tab_id}").json()["waiters"]:
            pass
        admin.post(f"/sessions/{session['sessionId']}/takeover", json={"agentId": "bob"}).raise_for_status()
        # Granted only when the page in which the old command ticks has been replaced.
        first = value_of(bob, tab_id, f"{LOG}.push('bob')")
        codes = [answer.result(timeout=30).json()["code"] for answer in (running, queued)]
    assert codes == ["lease_lost", "lease_lost"]
    assert first == 1
    later = value_of(bob, tab_id, f"new Promise(done => setTimeout(() => done({LOG}), 100))")
    assert later == ["bob"]


def test_a_takeover_is_told_to_both_agents(server: Server, admin: httpx.Client) -> None:
    session = open_session(admin, agentId="ada")
    with events_of(server, "session.taken_over") as events:
        taken = admin.post(f"/sessions/{session['sessionId']}/takeover", json={"agentId": "bob"}).json()
        told = next(events)
    assert (told["sessionId"], told["agentId"], told["formerAgentId"]) == (session["sessionId"], "bob", "ada")
    assert told["fence"] == taken["fence"]
