"""Tabs that are given back into their pool: who may have them next, and what those find in them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from .conftest import Server, act, open_session, release, renderer_of, value_of, wait_while, with_settings
from .login_site import LoginSite

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Everything that a page can leave behind in its browser or in itself, as far as agents can make it do so.
SOIL = """(async () => {
  document.cookie = 'tracker=ada; max-age=999';
  localStorage.secret = 'of ada';
  sessionStorage.secret = 'of ada';
  window.name = 'of ada';
  window.leaked = 'of ada';
  Array.prototype.leaked = 'of ada';
  window.alert = window.confirm = () => 'of ada';
  window.onbeforeunload = () => 'of ada';
  history.pushState({of: 'ada'}, '', '/home/ada?pushed');
  await (await caches.open('of ada')).put('/cached', new Response('of ada'));
  await new Promise(done => { indexedDB.open('of ada').onsuccess = done; });
  await navigator.serviceWorker.register('/sw.js');
  await navigator.serviceWorker.ready;
  return true;
})()"""
# The same, looked for.
LOOK = """(async () => {
  const asked = name => navigator.permissions.query({name}).then(found => found.state, error => String(error));
  return {
    cookie: document.cookie,
    localStorage: {...localStorage},
    sessionStorage: {...sessionStorage},
    name: window.name,
    leaked: window.leaked ?? null,
    prototype: [].leaked ?? null,
    dialogs: [window.alert, window.confirm].map(String),
    unload: String(window.onbeforeunload),
    history: [history.length, history.state],
    caches: await caches.keys(),
    databases: (await indexedDB.databases()).map(each => each.name),
    workers: (await navigator.serviceWorker.getRegistrations()).length,
    permissions: await Promise.all(['geolocation', 'notifications', 'camera', 'clipboard-read'].map(asked)),
    greeting: document.body.innerText,
  };
})()"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One pool of private contexts, and one of tabs in a shared profile."""
    settings = {
        "POOLS__VENDORS__ISOLATION": "shared",
        "POOLS__VENDORS__MAX_ACTIVE": "4",
        "POOLS__VENDORS__MAX_TABS": "5",
        "POOLS__DEFAULT__MAX_POOLED_PER_KEY": "2",
    }
    with with_settings(tmp_path_factory.mktemp("pooled") / "state", settings) as server:
        yield server


@pytest.fixture(autouse=True)
def admin(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client
        for session in client.get("/sessions", params={"state": "active", "limit": 500}).json()["sessions"]:
            client.delete(f"/sessions/{session['sessionId']}", params={"disposition": "close"})


def tab_of(session: dict[str, Any]) -> str:
    return session["tabs"][0]["tabId"]


def pooled(client: httpx.Client, pool: str = "default") -> int:
    return client.get("/stats").json()["pools"][pool]["pooled"]


def marked(client: httpx.Client, mark: str, **body: Any) -> dict[str, Any]:
    """A session whose page carries a mark that only the page itself has."""
    session = open_session(client, **body)
    assert value_of(client, tab_of(session), f"window.mark = '{mark}'") == mark
    return session


def mark_of(client: httpx.Client, session: dict[str, Any]) -> str | None:
    return value_of(client, tab_of(session), "window.mark ?? null")


# --- Private contexts -------------------------------------------------------------------------------------------


def test_nothing_of_its_last_holder_is_left_in_a_pooled_tab(admin: httpx.Client, login_site: LoginSite) -> None:
    clean = open_session(admin, agentId="eve", key="untouched", url=login_site.url("/look"))
    used = open_session(admin, agentId="ada", key="soiled", url=login_site.url("/login/ada"))
    assert value_of(admin, tab_of(used), SOIL) is True
    soiled = value_of(admin, tab_of(used), LOOK)
    assert soiled["workers"] == 1
    release(admin, used, "pool")
    assert pooled(admin) == 1

    fresh = open_session(admin, agentId="bob", key="soiled", url=login_site.url("/look"))
    assert pooled(admin) == 0
    found = value_of(admin, tab_of(fresh), LOOK)
    assert found == value_of(admin, tab_of(clean), LOOK)
    assert [name for name in found if name != "permissions" and found[name] == soiled[name]] == []
    assert login_site.visitors("/look") == ["stranger", "stranger"]


def test_the_same_agent_finds_its_page_as_it_left_it_and_nobody_else_gets_it(admin: httpx.Client) -> None:
    mine = marked(admin, "kept", agentId="ada", key="kept", reuse="same-agent")
    release(admin, mine, "pool")
    other = open_session(admin, agentId="bob", key="kept")
    assert mark_of(admin, other) is None
    elsewhere = open_session(admin, agentId="ada", key="another key")
    assert mark_of(admin, elsewhere) is None
    again = open_session(admin, agentId="ada", key="kept", reuse="same-agent")
    assert mark_of(admin, again) == "kept"
    assert again["sessionId"] != mine["sessionId"]
    assert again["fence"] > mine["fence"]


def test_whoever_gave_a_tab_back_cannot_reach_it_any_more(admin: httpx.Client) -> None:
    mine = marked(admin, "kept", agentId="ada", key="given back", reuse="same-agent")
    release(admin, mine, "pool")
    while_pooled = act(admin, tab_of(mine), "evaluate", expression="window.mark = 'late'")
    assert (while_pooled.status_code, while_pooled.json()["code"]) == (409, "lease_lost")
    again = open_session(admin, agentId="ada", key="given back", reuse="same-agent")
    late = act(admin, tab_of(mine), "evaluate", expression="window.mark = 'late'", fence=mine["fence"])
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")
    assert admin.delete(f"/sessions/{mine['sessionId']}", params={"fence": mine["fence"]}).status_code == 409
    assert mark_of(admin, again) == "kept"


def test_the_tab_that_was_given_back_last_is_taken_first_and_the_oldest_makes_room(admin: httpx.Client) -> None:
    sessions = [marked(admin, f"tab {n}", agentId="ada", key="many", reuse="same-agent") for n in range(3)]
    for session in sessions:
        release(admin, session, "pool")
    assert pooled(admin) == 2
    again = [open_session(admin, agentId="ada", key="many", reuse="same-agent") for _ in range(3)]
    assert [mark_of(admin, session) for session in again] == ["tab 2", "tab 1", None]


def test_a_pooled_tab_whose_page_died_is_not_handed_out(admin: httpx.Client) -> None:
    older = marked(admin, "older", agentId="ada", key="mortal", reuse="same-agent")
    newer = marked(admin, "newer", agentId="ada", key="mortal", reuse="same-agent")
    doomed = renderer_of(admin, tab_of(newer)).pid
    release(admin, older, "pool")
    release(admin, newer, "pool")
    os.kill(doomed, signal.SIGKILL)
    got = open_session(admin, agentId="ada", key="mortal", reuse="same-agent")
    assert mark_of(admin, got) == "older"
    assert pooled(admin) == 0


def test_a_session_that_is_closed_leaves_no_tab_in_the_pool(admin: httpx.Client) -> None:
    before = pooled(admin)
    release(admin, marked(admin, "gone", agentId="ada", key="closed", reuse="same-agent"))
    assert pooled(admin) == before
    assert mark_of(admin, open_session(admin, agentId="ada", key="closed")) is None


def test_a_page_for_anybody_is_refused_where_contexts_are_private(admin: httpx.Client) -> None:
    refused = admin.post("/sessions", json={"agentId": "ada", "reuse": "any"})
    assert (refused.status_code, refused.json()["details"]["field"]) == (400, "reuse")


# --- A shared profile -------------------------------------------------------------------------------------------


def test_a_shared_pool_keeps_the_page_for_the_next_one_of_its_key(admin: httpx.Client) -> None:
    mine = marked(admin, "chat", agentId="ada", pool="vendors", key="chatgpt")
    release(admin, mine)
    other_key = open_session(admin, agentId="bob", pool="vendors", key="gemini")
    assert mark_of(admin, other_key) is None
    same_key = open_session(admin, agentId="bob", pool="vendors", key="chatgpt")
    assert mark_of(admin, same_key) == "chat"
    assert same_key["fence"] > mine["fence"]


def test_the_oldest_pooled_tab_makes_room_at_the_cap_of_tabs(admin: httpx.Client) -> None:
    for number in range(3):
        release(admin, marked(admin, f"tab {number}", agentId="ada", pool="vendors", key=f"key {number}"))
    # Four places, five tabs: three of them pooled, so the third session finds no room without closing one.
    held = [open_session(admin, agentId="ada", pool="vendors", key=f"new {number}") for number in range(4)]
    stats = admin.get("/stats").json()["pools"]["vendors"]
    assert (stats["active"], stats["tabs"]) == (4, 5)
    release(admin, held[0], "close")
    assert mark_of(admin, open_session(admin, agentId="ada", pool="vendors", key="key 2")) == "tab 2"


def test_without_a_pooled_tab_to_close_the_refusal_names_the_cap_of_tabs(admin: httpx.Client) -> None:
    held = [open_session(admin, agentId="ada", pool="vendors", key="tabs") for _ in range(4)]
    session_id = held[0]["sessionId"]
    assert admin.post(f"/sessions/{session_id}/tabs", json={}).status_code == 201
    refused = admin.post(f"/sessions/{session_id}/tabs", json={})
    assert (refused.status_code, refused.json()["details"]["reason"]) == (429, "tab_cap")
    assert (refused.json()["details"]["count"], refused.json()["details"]["cap"]) == (5, 5)


# --- Time and restarts ------------------------------------------------------------------------------------------


def test_a_tab_that_nobody_wants_is_closed_after_its_time(tmp_path: Path) -> None:
    with (
        with_settings(tmp_path / "state", {"POOLS__DEFAULT__POOLED_TTL_S": "1"}) as server,
        server.client() as admin,
    ):
        session = marked(admin, "old", agentId="ada", key="k", reuse="same-agent")
        release(admin, session, "pool")
        wait_while(lambda: admin.get("/stats").json()["pools"]["default"]["tabs"])
        assert pooled(admin) == 0
        assert admin.get(f"/sessions/{session['sessionId']}").json()["state"] == "closed"
        assert mark_of(admin, open_session(admin, agentId="ada", key="k")) is None


def test_pooled_tabs_outlive_a_broker_that_was_killed(own_server: Server) -> None:
    with own_server.client() as admin:
        release(admin, marked(admin, "kept", agentId="ada", key="k", reuse="same-agent"), "pool")
    own_server.kill()
    own_server.start()
    with own_server.client() as admin:
        assert pooled(admin) == 1
        assert mark_of(admin, open_session(admin, agentId="ada", key="k")) == "kept"
