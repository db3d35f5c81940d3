"""What an operator can do to a running server, seen from outside, with real browsers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.cli.running import call

from .conftest import (
    SPARING,
    Server,
    _unique,
    act,
    events_of,
    is_alive,
    open_session,
    value_of,
    wait_while,
    with_settings,
)
from .login_site import LoginSite

pytestmark = [pytest.mark.server, pytest.mark.browser]

# How often, every twentieth of a second, the history is looked at before what should be in it is missed.
HISTORY_TRIES = 1_200


def ready_browser(client: httpx.Client) -> dict[str, Any]:
    browsers = client.get("/browsers").json()["browsers"]
    return next(b for b in browsers if b["pool"] == "default" and b["state"] == "ready")


def test_the_sessions_of_a_restarted_browser_go_on_and_what_ran_in_it_is_unknown(
    server: Server, admin: httpx.Client, login_site: LoginSite
) -> None:
    with events_of(server, "session_recovered,browser.*") as events, ThreadPoolExecutor(1) as callers:
        session = open_session(admin, agentId="ada", url=login_site.url("/login/ada"))
        busy = open_session(admin, agentId="bob")["tabs"][0]["tabId"]
        server.wait_kept([session["sessionId"]], "secret-of-ada")
        patient = {"waitPolicy": "wait_with_timeout", "timeoutMs": 600_000}
        running = callers.submit(act, admin, busy, "evaluate", expression="new Promise(() => {})", **patient)
        wait_while(lambda: admin.get(f"/tabs/{busy}").json()["holder"] is None)
        crashes = crashes_of(admin)
        old = ready_browser(admin)
        process = psutil.Process(old["pid"])
        answer = admin.post(f"/browsers/{old['browserId']}/restart")
        assert (answer.status_code, answer.json()["sessions"]) == (202, 2)
        unknown = running.result(timeout=30)
        assert (unknown.status_code, unknown.json()["code"]) == (502, "outcome_unknown")
        told = until_told(events, lambda event: event.get("sessionId") == session["sessionId"])
    assert (told[-1]["type"], told[-1]["reason"]) == ("session_recovered", "browser_restarted")
    (stopped,) = [event for event in told if event["type"] == "browser.stopped" and event["reason"] == "restarted"]
    assert stopped["browserId"] == old["browserId"]
    assert value_of(admin, session["tabs"][0]["tabId"], "document.body.innerText") == "Hello, ada"
    assert not is_alive(process)
    assert ready_browser(admin)["browserId"] != old["browserId"]
    assert crashes_of(admin) == crashes


def test_a_drained_browser_serves_its_session_to_the_end_while_new_ones_go_to_its_replacement(
    server: Server, admin: httpx.Client
) -> None:
    with events_of(server, "browser.*") as events:
        session = open_session(admin, agentId="ada")
        old = ready_browser(admin)
        process = psutil.Process(old["pid"])
        assert admin.post(f"/browsers/{old['browserId']}/drain").status_code == 202
        open_session(admin, agentId="bob", waitMs=60_000)
        shown = {b["browserId"]: b for b in admin.get("/browsers").json()["browsers"]}
        assert (shown[old["browserId"]]["state"], shown[old["browserId"]]["sessions"]) == ("draining", 1)
        assert value_of(admin, session["tabs"][0]["tabId"], "2") == 2
        assert admin.delete(f"/sessions/{session['sessionId']}").status_code == 204
        told = until_told(events, lambda event: event["type"] == "browser.stopped" and event["reason"] == "drained")
    assert told[-1]["browserId"] == old["browserId"]
    assert "browser.draining" in {event["type"] for event in told}
    process.wait(30)


def test_a_node_whose_other_pools_have_no_browser_is_ready_and_says_how_each_of_them_is(admin: httpx.Client) -> None:
    told = admin.get("/ready")
    assert (told.status_code, told.json()["pools"]["default"]) == (200, "ready")
    # Most of them start a browser with the first session that asks for it.
    assert set(told.json()["pools"].values()) <= {"ready", "idle"}
    assert admin.get("/ready", params={"pool": "solo"}).json()["pools"].keys() == {"solo"}
    assert admin.get("/ready", params={"pool": "none"}).json()["code"] == "invalid_request"


def test_a_node_that_is_drained_refuses_sessions_and_serves_those_it_has_until_it_is_resumed_or_ends(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    settings = SPARING | {"POOLS__DEFAULT__MAX_ACTIVE": "1"}
    with with_settings(state, settings) as server, server.client() as admin, ThreadPoolExecutor(1) as callers:
        tab_id = open_session(admin, agentId="ada")["tabs"][0]["tabId"]
        waiting = callers.submit(admin.post, "/sessions", json={"agentId": "bob", "waitMs": 50_000})
        wait_while(lambda: not admin.get("/stats").json()["pools"]["default"]["waiting"])
        assert admin.post("/drain").json() == {"draining": True, "sessions": 1}
        # Who waits hears of it at once.
        for answer in (waiting.result(timeout=30), admin.post("/sessions", json={"agentId": "bob"})):
            assert (answer.status_code, answer.json()["code"]) == (503, "draining")
            assert answer.headers["retry-after"]
        assert admin.get("/ready").status_code == 503
        assert value_of(admin, tab_id, "3") == 3
        assert admin.delete("/drain").json() == {"draining": False, "sessions": 1}
        assert admin.get("/ready").status_code == 200

        # The same from another shell, where the drain ends with the life of the server.
        broker = psutil.Process(server.record["pid"])
        drained = call(state, "drain")
        assert drained.stdout == "Draining: no new session is admitted; open sessions: 1.\n"
        assert json.loads(call(state, "status", "--json").stdout)["draining"] is True
        assert call(state, "down").returncode == 0
        assert not is_alive(broker)
        assert server.browsers() == []
    try:
        assert call(state, "up", "--detach", "--pool-size", "2").returncode == 0
        with Server(state).client() as admin:
            assert [b["state"] for b in admin.get("/browsers").json()["browsers"]] == ["ready", "ready"]
            open_session(admin, agentId="ada")
    finally:
        call(state, "down")


def test_status_and_history_show_what_is_done_and_what_it_costs(server: Server, admin: httpx.Client) -> None:
    session = open_session(admin, agentId="ada")
    for expression in ("1", "missing()", "2"):
        act(admin, session["tabs"][0]["tabId"], "evaluate", expression=expression)
    # The first measurement comes a little after the start.
    wait_while(lambda: ready_browser(admin)["memoryBytes"] is None)
    browser = ready_browser(admin)
    assert browser["memoryBytes"] > 10 << 20
    assert browser["cpuMs"] > 0
    assert browser["processes"] > 1
    shown = call(server.state, "status").stdout
    assert "Active sessions: 1 (ada 1)." in shown
    assert browser["browserId"] in shown
    assert " MB" in shown

    for _ in range(HISTORY_TRIES):
        series = admin.get("/history").json()["series"]
        # An interval in which nobody could look is null.
        known = {name: [number for number in numbers if number is not None] for name, numbers in series.items()}
        if sum(known["commandsFailed"]) and known["memoryBytes"]:
            break
        time.sleep(0.05)
    assert 0 < sum(known["commandsFailed"]) < sum(known["commands"])
    assert known["memoryBytes"][-1] > 10_000_000


def test_a_revoked_token_reaches_nothing_its_session_stays_and_all_of_it_is_on_the_record(
    server: Server, admin: httpx.Client
) -> None:
    agent = _unique("leaver")
    made = admin.post("/agents", json={"agentId": agent, "expiresInS": 3_600}).raise_for_status().json()
    with server.client(made["token"]) as leaver:
        session = open_session(leaver)
        assert [each["tokenId"] for each in leaver.get("/tokens").json()["tokens"]] == [made["tokenId"]]
        assert admin.delete(f"/tokens/{made['tokenId']}").status_code == 204
        assert leaver.get("/tokens").status_code == 401
    assert admin.get(f"/sessions/{session['sessionId']}").json()["state"] == "active"
    noted = admin.get("/audit", params={"agentId": "admin", "order": "desc"}).json()["entries"]
    verbs = [entry["verb"] for entry in noted if made["tokenId"] in entry["detail"]]
    assert verbs == ["token_revoke", "token_new"]
    admin.delete(f"/sessions/{session['sessionId']}")


def crashes_of(client: httpx.Client) -> list[str]:
    """Of the server, how often a browser has crashed."""
    return [line for line in client.get("/metrics").text.splitlines() if "browser_crashes_total" in line]


def until_told(events: Iterator[dict[str, Any]], is_it: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """Every event up to that one."""
    told = []
    for event in events:
        told.append(event)
        if is_it(event):
            break
    return told
