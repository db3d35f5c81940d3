"""Sessions that name the process they live for: its proven death ends them, and nothing less does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from tabherd.browsers.process import start_time

from .callers import CallerProcess
from .conftest import Server, act, events_of, open_session, value_of, with_settings

pytestmark = [pytest.mark.server, pytest.mark.browser]

# One place, so that a waiter gets it only when the owner's session has ended.
SETTINGS = {"POOLS__DEFAULT__MAX_ACTIVE": "1", "POOLS__DEFAULT__OWNER_DEAD_GRACE_MS": "3000"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with with_settings(tmp_path_factory.mktemp("owners") / "state", SETTINGS) as server:
        yield server


@pytest.fixture(autouse=True)
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client
        for session in client.get("/sessions", params={"state": "active"}).json()["sessions"]:
            client.delete(f"/sessions/{session['sessionId']}")


@pytest.fixture
def owner(server: Server) -> Iterator[CallerProcess]:
    with server.caller("ada") as caller:
        yield caller


def test_a_waiter_gets_the_place_of_an_owner_that_was_killed(admin: httpx.Client, owner: CallerProcess) -> None:
    held = owner.ask("POST", "/sessions", {"owner": {"pid": owner.pid}}).body
    with ThreadPoolExecutor(1) as callers:
        waiting = callers.submit(open_session, admin, agentId="bob", waitMs=60_000)
        while not admin.get("/stats").json()["pools"]["default"]["waiting"]:
            pass
        owner.kill()
        got = waiting.result(timeout=60)
    assert got["fence"] > held["fence"]
    assert value_of(admin, got["tabs"][0]["tabId"], "1 + 1") == 2
    assert admin.get(f"/sessions/{held['sessionId']}").json()["endReason"] == "owner_dead"


def test_an_owner_that_is_killed_in_the_middle_of_a_command_is_dead_all_the_same(
    admin: httpx.Client, owner: CallerProcess
) -> None:
    held = owner.ask("POST", "/sessions", {"owner": {"pid": owner.pid}}).body
    tab_id = held["tabs"][0]["tabId"]
    owner.send("POST", f"/tabs/{tab_id}/action", {"kind": "wait", "ms": 60_000, "timeoutMs": 60_000})
    while admin.get(f"/tabs/{tab_id}").json()["holder"] is None:
        pass
    owner.kill()
    # That its command ends with it is no sign of life.
    open_session(admin, agentId="bob", waitMs=60_000)
    assert admin.get(f"/sessions/{held['sessionId']}").json()["endReason"] == "owner_dead"


def test_a_stopped_owner_is_not_dead(server: Server, admin: httpx.Client, owner: CallerProcess) -> None:
    held = owner.ask("POST", "/sessions", {"owner": {"pid": owner.pid}}).body
    with server.caller("bob") as other:
        owner.stop()
        wait_in_vain(other)
    assert admin.get(f"/sessions/{held['sessionId']}").json()["state"] == "active"
    owner.resume()
    assert owner.act(held["tabs"][0]["tabId"], "evaluate", expression="1 + 1").body["result"] == 2


def test_a_successor_that_speaks_up_within_the_grace_keeps_the_session(server: Server, owner: CallerProcess) -> None:
    """The rule is proven death *and* silence: an agent whose launcher ends goes on."""
    with server.agent("ada") as successor:
        held = owner.ask("POST", "/sessions", {"owner": {"pid": owner.pid}}).body
        owner.kill()
        assert act(successor, held["tabs"][0]["tabId"], "evaluate", expression="1").status_code == 200
        with server.caller("bob") as other:
            wait_in_vain(other)
        assert act(successor, held["tabs"][0]["tabId"], "evaluate", expression="2").json()["result"] == 2


def test_a_pid_with_another_start_time_is_refused_and_nothing_is_opened(admin: httpx.Client) -> None:
    mine = {"pid": os.getpid(), "startTime": start_time(os.getpid()) + 1}
    refused = admin.post("/sessions", json={"agentId": "ada", "owner": mine})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
    assert refused.json()["details"]["field"] == "owner"
    assert admin.get("/stats").json()["pools"]["default"]["active"] == 0


@pytest.mark.parametrize("unit", ["ticks", "seconds", "milliseconds"])
def test_a_start_time_is_understood_in_the_units_that_callers_have(admin: httpx.Client, unit: str) -> None:
    seconds = psutil.Process().create_time()
    started = {"ticks": start_time(os.getpid()), "seconds": seconds, "milliseconds": seconds * 1000}[unit]
    open_session(admin, agentId="ada", owner={"pid": os.getpid(), "startTime": started})


def test_a_pid_that_nobody_has_is_refused(admin: httpx.Client) -> None:
    with psutil.Popen(["true"]) as gone:
        gone.wait()
    refused = admin.post("/sessions", json={"agentId": "ada", "owner": {"pid": gone.pid}})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")


def test_the_death_of_the_calling_process_alone_ends_nothing(server: Server, owner: CallerProcess) -> None:
    """A session of a short-lived command line call, which names no owner, outlives it."""
    held = owner.ask("POST", "/sessions", {}).body
    owner.kill()
    with server.agent("ada") as later:
        assert act(later, held["tabs"][0]["tabId"], "evaluate", expression="2").json()["result"] == 2
        later.delete(f"/sessions/{held['sessionId']}")


def test_the_end_of_a_dead_owners_session_is_told_with_its_reason(server: Server, owner: CallerProcess) -> None:
    held = owner.ask("POST", "/sessions", {"owner": {"pid": owner.pid}}).body
    with events_of(server, "session.closed") as events:
        owner.kill()
        told = next(event for event in events if event["sessionId"] == held["sessionId"])
    assert (told["agentId"], told["reason"]) == ("ada", "owner_dead")


def wait_in_vain(caller: CallerProcess) -> None:
    """The one place is still taken after twice the grace of a dead owner."""
    refused = caller.ask("POST", "/sessions", {"waitMs": 6_000})
    assert refused.status == 429, refused
