"""The gate of a real tab over HTTP: turns, locks, cancels and keys, as callers in different processes meet them."""

from __future__ import annotations

import http.client
import itertools
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import httpx
import pytest

from .conftest import Server, act, events_of, open_session, value_of
from .effects_site import LOOP, REPORT, EffectsSite
from .local_site import serving

pytestmark = [pytest.mark.server, pytest.mark.browser]

PATIENT: dict[str, Any] = {"waitPolicy": "wait_with_timeout"}
# Has the tab until the site opens.
HOLD = "fetch('/hold').then(() => 'done')"
NOTE = "(name) => { (window.log ??= []).push(name); return log; }"
# Notes whether it meets another one at work.
MEET = """(name) => new Promise(done => {
  window.busy = (window.busy ?? 0) + 1;
  (window.log ??= []).push([name, busy]);
  setTimeout(() => { busy--; done(name); }, 5);
})"""

Answers = list[Future[httpx.Response]]


@pytest.fixture
def site() -> Iterator[EffectsSite]:
    with serving(EffectsSite()) as site:
        yield site


@pytest.fixture
def callers(site: EffectsSite) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(12) as callers:
        yield callers
        site.is_open.set()


@pytest.fixture
def session(ada: httpx.Client, site: EffectsSite, callers: ThreadPoolExecutor) -> Iterator[dict[str, Any]]:
    """A session that others may use, too, at a page of the site."""
    session = open_session(ada, access="shared")
    assert act(ada, session["tabs"][0]["tabId"], "navigate", url=site.url("/field")).status_code == 200
    yield session
    site.is_open.set()


@pytest.fixture
def tab_id(session: dict[str, Any]) -> str:
    return session["tabs"][0]["tabId"]


def hold(callers: ThreadPoolExecutor, client: httpx.Client, tab_id: str, site: EffectsSite) -> Future[httpx.Response]:
    """Have the tab until `site.is_open` is set."""
    holding = callers.submit(act, client, tab_id, "evaluate", expression=HOLD)
    assert site.is_held.wait(30)
    return holding


def queue_up(callers: ThreadPoolExecutor, tab_id: str, clients: list[httpx.Client], **action: Any) -> Answers:
    """Each sends the action with its number as argument, the next one when the one before is in the queue."""
    answers = []
    for n, client in enumerate(clients):
        answers.append(callers.submit(act, client, tab_id, "evaluate", args=[n], **PATIENT, **action))
        while len(client.get(f"/tabs/{tab_id}").json()["waiters"]) <= n:
            pass
    return answers


@contextmanager
def asking(server: Server, agent_id: str, path: str, body: dict[str, Any]) -> Iterator[None]:
    """Whoever asked for that for the agent, and hangs up at the end of the block without having heard an answer."""
    address = httpx.URL(server.record["url"])
    headers = {
        "Authorization": f"Bearer {server.admin_token}",
        "X-Agent-Id": agent_id,
        "Content-Type": "application/json",
    }
    with closing(http.client.HTTPConnection(address.host, address.port or 0, timeout=60)) as connection:
        connection.request("POST", path, json.dumps(body), headers)
        yield


# --- Turns ------------------------------------------------------------------------------------------------------


def test_callers_of_several_agents_are_served_in_the_order_in_which_they_came(
    ada: httpx.Client, bob: httpx.Client, tab_id: str, site: EffectsSite, callers: ThreadPoolExecutor
) -> None:
    holding = hold(callers, ada, tab_id, site)
    waiting = queue_up(callers, tab_id, [bob, ada, ada, bob, bob, ada], expression=NOTE)
    site.is_open.set()
    assert holding.result().json()["result"] == "done"
    assert [answer.result().status_code for answer in waiting] == [200] * 6
    assert value_of(ada, tab_id, "log") == [0, 1, 2, 3, 4, 5]


def test_a_crowd_on_a_few_tabs_never_meets(
    ada: httpx.Client, bob: httpx.Client, session: dict[str, Any], callers: ThreadPoolExecutor
) -> None:
    opened = [ada.post(f"/sessions/{session['sessionId']}/tabs", json={}).json()["tabId"] for _ in range(2)]
    tabs = [session["tabs"][0]["tabId"], *opened]
    sending = [
        callers.submit(act, client, tab_id, "evaluate", expression=MEET, args=[n], **PATIENT)
        for n, (tab_id, client) in enumerate(itertools.product(tabs, [ada, bob] * 4))
    ]
    assert {one.result().status_code for one in sending} == {200}
    for n, tab_id in enumerate(tabs):
        log = value_of(ada, tab_id, "log")
        assert sorted(name for name, _ in log) == list(range(n * 8, n * 8 + 8))
        assert {busy for _, busy in log} == {1}


def test_who_types_into_one_field_at_once_leaves_whole_words(
    ada: httpx.Client, bob: httpx.Client, tab_id: str, callers: ThreadPoolExecutor
) -> None:
    words = ["aaaaaa", "bbbbbb", "cccccc"]
    typing = [
        callers.submit(act, client, tab_id, "type", selector="#field", text=word, **PATIENT)
        for word, client in zip(words, (ada, bob, ada), strict=True)
    ]
    assert {one.result().status_code for one in typing} == {200}
    text = value_of(ada, tab_id, "field.value")
    assert sorted(text[at : at + 6] for at in (0, 6, 12)) == words


# --- Locks ------------------------------------------------------------------------------------------------------

EVERY_VERB: dict[str, dict[str, Any]] = {
    "navigate": {"url": "about:blank"},
    "reload": {},
    "evaluate": {"expression": "1"},
    "click": {"selector": "#field"},
    "text": {},
    "snapshot": {},
    "screenshot": {},
    "cookies": {},
    "close": {},
}


def test_a_lock_binds_every_verb_of_others_until_it_is_given_back(
    ada: httpx.Client, bob: httpx.Client, tab_id: str
) -> None:
    held = ada.post(f"/tabs/{tab_id}/lock", json={"controllerId": "worker", "lockLeaseMs": 60_000}).json()
    for client in (ada, bob):
        refusals = [act(client, tab_id, kind, **params).json()["code"] for kind, params in EVERY_VERB.items()]
        assert set(refusals) == {"tab_locked"}
        assert client.delete(f"/tabs/{tab_id}").json()["code"] == "tab_locked"
        assert client.post(f"/tabs/{tab_id}/actions", json={"steps": [{"kind": "text"}]}).status_code == 423
    assert act(ada, tab_id, "evaluate", expression="1", controllerId="worker").status_code == 200
    # A name is not enough: a controller is a name of one credential.
    assert act(bob, tab_id, "evaluate", expression="1", controllerId="worker").status_code == 423
    assert bob.delete(f"/tabs/{tab_id}/lock", params={"ticket": held["ticket"]}).json()["code"] == "not_owner"
    assert ada.delete(f"/tabs/{tab_id}/lock", params={"ticket": held["ticket"]}).status_code == 204
    assert act(bob, tab_id, "evaluate", expression="1").status_code == 200


def test_a_lock_that_is_not_renewed_expires_tells_and_lets_the_next_one_in(
    server: Server, ada: httpx.Client, bob: httpx.Client, tab_id: str, callers: ThreadPoolExecutor
) -> None:
    with events_of(server, "lock_acquired,lock_renewed,lock_conflict,lock_expired") as events:
        held = ada.post(f"/tabs/{tab_id}/lock", json={"controllerId": "worker", "lockLeaseMs": 60_000}).json()
        (waiting,) = queue_up(callers, tab_id, [bob], expression="() => 'in'")
        again = {"lockLeaseMs": 300, "ticket": held["ticket"]}
        assert ada.post(f"/tabs/{tab_id}/lock", json=again).json()["lockLeaseMs"] == 300
        assert waiting.result().json()["result"] == "in"
        mine = (event for event in events if event["tabId"] == tab_id)
        told = [next(mine) for _ in range(4)]
    assert [event["type"] for event in told] == ["lock_acquired", "lock_conflict", "lock_renewed", "lock_expired"]
    assert {event["lockOwnerControllerId"] for event in told} == {held["lockOwnerControllerId"]}
    assert told[3]["ticket"] == held["ticket"]
    assert ada.post(f"/tabs/{tab_id}/lock", json=again).json()["code"] == "lock_not_found"


# --- Ends -------------------------------------------------------------------------------------------------------


def test_a_running_command_is_cancelled_by_its_sender_alone_and_nothing_of_it_goes_on(
    ada: httpx.Client, bob: httpx.Client, tab_id: str, site: EffectsSite, callers: ThreadPoolExecutor
) -> None:
    running = callers.submit(
        act, ada, tab_id, "evaluate", expression=f"{LOOP % 'timer'}; {HOLD}", controllerId="worker"
    )
    assert site.is_held.wait(30)
    command_id = ada.get(f"/tabs/{tab_id}").json()["holder"]["commandId"]
    assert ada.get(f"/commands/{command_id}").json()["outcome"] == "running"
    refused = bob.post(f"/commands/{command_id}/cancel")
    assert (refused.status_code, refused.json()["code"]) == (403, "not_owner")
    assert ada.post(f"/commands/{command_id}/cancel").json()["outcome"] == "cancelled"
    assert running.result().json()["outcome"] == "cancelled"
    pause = "new Promise(done => { const at = Date.now(); setTimeout(() => done(at), 200); })"
    next_at = value_of(ada, tab_id, pause)
    assert [effect for effect in site.effects if effect.at > next_at] == []
    assert ada.get(f"/commands/{command_id}").json()["outcome"] == "cancelled"


@pytest.mark.parametrize("stage", ["running", "waiting"])
def test_who_hangs_up_takes_its_command_along(
    server: Server,
    ada: httpx.Client,
    session: dict[str, Any],
    tab_id: str,
    site: EffectsSite,
    callers: ThreadPoolExecutor,
    stage: str,
) -> None:
    if stage == "waiting":
        hold(callers, ada, tab_id, site)
    hasty = {"kind": "evaluate", "expression": f"{REPORT % 'hasty'}; {HOLD}", **PATIENT}
    with asking(server, session["agentId"], f"/tabs/{tab_id}/action", hasty):
        if stage == "waiting":
            while not ada.get(f"/tabs/{tab_id}").json()["waiters"]:
                pass
        else:
            assert site.is_held.wait(30)
    if stage == "waiting":
        while ada.get(f"/tabs/{tab_id}").json()["waiters"]:
            pass
        site.is_open.set()
    assert value_of(ada, tab_id, "'free'") == "free"
    assert ada.get(f"/tabs/{tab_id}").json()["generation"] == (2 if stage == "running" else 1)
    assert site.count("hasty") == (1 if stage == "running" else 0)


# --- Keys -------------------------------------------------------------------------------------------------------


def test_one_key_sent_by_many_at_once_is_done_once_and_all_hear_of_it(
    ada: httpx.Client, tab_id: str, site: EffectsSite, callers: ThreadPoolExecutor
) -> None:
    buy = {"expression": f"{REPORT % 'bought'}.then(() => 'bought')", "idempotencyKey": "order-7"}
    answers = [one.result().json() for one in [callers.submit(act, ada, tab_id, "evaluate", **buy) for _ in range(8)]]
    assert {answer["result"] for answer in answers} == {"bought"}
    assert len({answer["commandId"] for answer in answers}) == 1
    assert site.count("bought") == 1
    other = act(ada, tab_id, "evaluate", expression="'else'", idempotencyKey="order-7")
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")


# --- What can be seen -------------------------------------------------------------------------------------------


def test_an_admin_reads_who_did_what_to_which_tab(
    admin: httpx.Client, ada: httpx.Client, bob: httpx.Client, tab_id: str
) -> None:
    act(ada, tab_id, "text")
    act(bob, tab_id, "evaluate", expression="throw 1")
    entries = admin.get("/audit", params={"tabId": tab_id}).json()["entries"]
    done = [(one["agentId"].partition("-")[0], one["verb"], one["detail"]) for one in entries]
    assert done[-2:] == [("ada", "text", "completed"), ("bob", "evaluate", "failed")]
    assert ada.get("/audit").json()["code"] == "forbidden"
