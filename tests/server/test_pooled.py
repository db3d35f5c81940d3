"""Tabs that are given back into their pool: who may have them next, and what those find in them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.shared_server import unique

from .conftest import act, open_session, release, value_of
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
    before = pooled(admin)
    release(admin, used, "pool")
    assert pooled(admin) == before + 1

    fresh = open_session(admin, agentId="bob", key="soiled", url=login_site.url("/look"))
    assert pooled(admin) == before
    found = value_of(admin, tab_of(fresh), LOOK)
    assert found == value_of(admin, tab_of(clean), LOOK)
    assert [name for name in found if name != "permissions" and found[name] == soiled[name]] == []
    assert login_site.visitors("/look") == ["stranger", "stranger"]


def test_the_same_agent_finds_its_page_as_it_left_it_and_nobody_else_gets_it(admin: httpx.Client) -> None:
    ada, bob = unique("ada"), unique("bob")
    mine = marked(admin, "kept", agentId=ada, key="kept", reuse="same-agent")
    release(admin, mine, "pool")
    # Who gave it back cannot reach it any more, neither now nor when it is somebody's again.
    while_pooled = act(admin, tab_of(mine), "evaluate", expression="window.mark = 'late'")
    assert (while_pooled.status_code, while_pooled.json()["code"]) == (409, "lease_lost")
    assert mark_of(admin, open_session(admin, agentId=bob, key="kept")) is None
    assert mark_of(admin, open_session(admin, agentId=ada, key="another key")) is None
    again = open_session(admin, agentId=ada, key="kept", reuse="same-agent")
    late = act(admin, tab_of(mine), "evaluate", expression="window.mark = 'late'", fence=mine["fence"])
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")
    assert mark_of(admin, again) == "kept"
    assert again["sessionId"] != mine["sessionId"]
    assert again["fence"] > mine["fence"]


# --- A shared profile -------------------------------------------------------------------------------------------


def test_a_shared_pool_keeps_the_page_for_the_next_one_of_its_key(admin: httpx.Client) -> None:
    key = unique("chatgpt")
    mine = marked(admin, "chat", agentId="ada", pool="shared", key=key)
    release(admin, mine)
    other_key = open_session(admin, agentId="bob", pool="shared", key="gemini")
    assert mark_of(admin, other_key) is None
    same_key = open_session(admin, agentId="bob", pool="shared", key=key)
    assert mark_of(admin, same_key) == "chat"
    assert same_key["fence"] > mine["fence"]
