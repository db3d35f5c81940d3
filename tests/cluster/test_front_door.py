"""Any node takes any request: everything that a session of one node can do is done through the other one.

`there` speaks with the node that does not have the session. Two nodes that are not missed, however long anything takes.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import async_playwright
from playwright.sync_api import sync_playwright
from tests.cdp_life.wire_client import wire_client
from tests.cli.running import call
from tests.live.viewer import watching
from tests.server.conftest import act, open_session, value_of
from tests.server.effects_site import EffectsSite

from tabherd import Tabherd
from tabherd.cluster.hop import SKEW_MAX_MS, Hop, sign

from .balancers import balanced
from .rig import CALM, LIMIT_S, NOW_MS, Cluster, ClusterNode, code_of, tab_of, until

pytestmark = [pytest.mark.server, pytest.mark.browser]

# Callers know the nodes by a balancer's address as well.
SETTINGS = {"SERVER__ALLOWED_HOSTS": "127.0.0.1", **CALM}
FILE_BYTES = 5 << 20


@pytest.fixture
def host(pair: Cluster) -> ClusterNode:
    """The node that has the session."""
    return pair.nodes[0]


@pytest.fixture
def other(pair: Cluster) -> ClusterNode:
    return pair.nodes[1]


@pytest.fixture
def there(other: ClusterNode) -> Iterator[httpx.Client]:
    with other.client() as client:
        yield client


@pytest.fixture
def session(host: ClusterNode, effects: EffectsSite) -> dict[str, Any]:
    """On its node, opened there."""
    with host.client() as client:
        opened = open_session(client, agentId="ada", url=effects.url(), keepAlive=True)
    assert opened["node"] == host.id
    return opened


# --- Sessions, tabs, commands -----------------------------------------------------------------------------------


def test_a_session_is_read_beaten_filled_given_to_somebody_else_and_released(
    session: dict[str, Any], host: ClusterNode, there: httpx.Client
) -> None:
    path, fence = f"/sessions/{session['sessionId']}", session["fence"]
    assert there.get(path).json()["node"] == host.id
    assert there.post(f"{path}/heartbeat", json={"fence": fence}).json()["fence"] == fence
    # Its storage.
    value_of(there, tab_of(session), "document.cookie = 'who=ada; max-age=99'")
    state = there.get(f"{path}/state").json()
    assert [cookie["value"] for cookie in state["cookies"]] == ["ada"]
    state["cookies"][0]["value"] = "bob"
    assert there.put(f"{path}/state", json=state).is_success
    assert value_of(there, tab_of(session), "document.cookie") == "who=bob"
    # Its files, whole.
    data = bytes(range(256)) * (FILE_BYTES // 256)
    sent = there.post(f"{path}/files", params={"name": "large.bin"}, content=data)
    assert sent.status_code == 201, sent.text
    assert [file["sizeBytes"] for file in there.get(f"{path}/files").json()["files"]] == [FILE_BYTES]
    assert there.get(f"{path}/files/large.bin").content == data
    taken = there.post(f"{path}/takeover", json={"agentId": "bob"}).json()
    assert (taken["agentId"], taken["fence"] > fence) == ("bob", True)
    assert code_of(there.delete(path, params={"fence": fence})) == (409, "lease_lost")
    assert there.delete(path, params={"fence": taken["fence"]}).status_code == 204
    assert there.get(path).json()["state"] == "closed"


def test_tabs_are_opened_driven_locked_handed_to_a_person_and_closed(
    session: dict[str, Any], host: ClusterNode, there: httpx.Client, effects: EffectsSite
) -> None:
    path = f"/sessions/{session['sessionId']}/tabs"
    opened = there.post(path, json={"url": effects.url("/field")}).json()["tabId"]
    assert {tab["tabId"] for tab in there.get(path).json()["tabs"]} == {tab_of(session), opened}
    assert there.get(f"/tabs/{opened}").json()["state"] == "ready"
    steps = [{"kind": "fill", "selector": "#field", "value": "x"}, {"kind": "evaluate", "expression": "field.value"}]
    answer = there.post(f"/tabs/{opened}/actions", json={"steps": steps}).json()
    assert answer["result"][-1]["result"] == "x"
    lock = there.post(f"/tabs/{opened}/lock", json={"controllerId": "me", "lockLeaseMs": 30_000}).json()
    with host.client() as here:
        assert code_of(act(here, opened, "evaluate", expression="1")) == (423, "tab_locked")
    renewed = there.post(f"/tabs/{opened}/lock", json={"controllerId": "me", "ticket": lock["ticket"]}).json()
    assert renewed["lockExpiresAt"] >= lock["lockExpiresAt"]
    assert there.delete(f"/tabs/{opened}/lock", params={"ticket": lock["ticket"]}).status_code == 204
    assert there.post(f"/tabs/{opened}/handoff", json={}).is_success
    assert code_of(act(there, opened, "evaluate", expression="1")) == (409, "tab_paused_handoff")
    assert there.post(f"/tabs/{opened}/resume").is_success
    assert value_of(there, opened, "1") == 1
    assert there.delete(f"/tabs/{opened}").status_code == 204


def test_a_command_is_found_by_its_id_and_cancelled(
    session: dict[str, Any], there: httpx.Client, effects: EffectsSite
) -> None:
    with ThreadPoolExecutor(1) as callers:
        running = callers.submit(act, there, tab_of(session), "evaluate", expression="fetch('/hold')")
        assert effects.is_held.wait(LIMIT_S)
        command_id = there.get(f"/tabs/{tab_of(session)}").json()["holder"]["commandId"]
        assert there.post(f"/commands/{command_id}/cancel").json()["outcome"] == "cancelled"
        assert running.result(LIMIT_S).json()["outcome"] == "cancelled"
    effects.is_open.set()
    assert there.get(f"/commands/{command_id}").json()["outcome"] == "cancelled"


def test_a_batch_is_submitted_where_each_of_its_tasks_belongs(
    session: dict[str, Any], host: ClusterNode, there: httpx.Client
) -> None:
    here = open_session(there, agentId="ada", keepAlive=True)
    assert here["node"] != session["node"]
    tabs = [tab_of(session), tab_of(here), None, tab_of(session), "tab_nobody"]
    tasks = [
        {"action": "evaluate", "params": {"expression": f"{place} + 1"}, **({} if tab is None else {"tabId": tab})}
        for place, tab in enumerate(tabs)
    ]
    answer = there.post("/tasks/batch", json={"agentId": "ada", "tasks": tasks}).json()
    assert (answer["submitted"], answer["rejected"]) == (4, 1)
    assert answer["tasks"][-1]["error"]["code"] == "tab_not_found"
    with host.client() as client:
        for asked in (there, client):
            paths = [f"/tasks/{item['taskId']}" for item in answer["tasks"][:-1]]
            ended = [asked.get(path, params={"waitMs": 30_000}).json() for path in paths]
            assert [task["result"] for task in ended] == [1, 2, 3, 4]
    # Tasks are passed on by nodes only.
    whose = {"agentId": "eve", "scopes": ["admin"], "controllerId": "x", "requestId": "", "traceparent": ""}
    forged = there.post("/nodes/tasks", json={**whose, "batch": {"tasks": [{"action": "text"}]}})
    assert code_of(forged) == (404, "not_found")


# --- What all nodes have together -------------------------------------------------------------------------------


def of_all(client: httpx.Client, path: str) -> dict[str, Any]:
    """What is answered there with all nodes in it: one that answers late is left out for once, and named."""

    def look() -> dict[str, Any] | None:
        answer = dict(client.get(path).json())
        return None if "unreachable" in answer else answer

    return until(look) or {}


def test_lists_and_sums_are_of_all_nodes_whoever_is_asked(
    pair: Cluster, session: dict[str, Any], other: ClusterNode, there: httpx.Client
) -> None:
    also = open_session(there, agentId="bob", keepAlive=True)
    assert also["node"] == other.id
    nodes = {node.id for node in pair.nodes}
    for node in pair.nodes:
        with node.client() as client:
            assert {tab_of(session), tab_of(also)} <= {tab["tabId"] for tab in of_all(client, "/tabs")["tabs"]}
            assert {view["node"] for view in of_all(client, "/browsers")["browsers"]} == nodes
            assert {view["nodeId"] for view in client.get("/nodes").json()["nodes"]} == nodes
            stats = of_all(client, "/stats")
            assert (stats["sessions"], stats["pools"]["default"]["active"]) == (2, 2)
            ids = {view["sessionId"] for view in client.get("/sessions", params={"state": "active"}).json()["sessions"]}
            assert {session["sessionId"], also["sessionId"]} <= ids


def test_a_node_is_drained_and_a_browser_restarted_through_another_node(
    session: dict[str, Any], host: ClusterNode, there: httpx.Client
) -> None:
    with host.client() as here:
        assert there.post("/drain", params={"node": host.id}).is_success
        assert [client.get("/ready").status_code for client in (here, there)] == [503, 200]
        assert there.delete("/drain", params={"node": host.id}).is_success
        assert here.get("/ready").status_code == 200
    browsers = of_all(there, "/browsers")["browsers"]
    (browser,) = [view for view in browsers if view["node"] == host.id]
    assert there.post(f"/browsers/{browser['browserId']}/restart").is_success
    until(lambda: there.get(f"/tabs/{tab_of(session)}").json()["generation"] == 2)
    assert value_of(there, tab_of(session), "1") == 1


def test_a_named_lock_is_renewed_counted_given_back_and_forced_through_any_node(pair: Cluster) -> None:
    one, other = pair.nodes
    with one.client() as here, other.client() as there, ThreadPoolExecutor(1) as callers:
        lock = here.post("/locks/shared", json={"agentId": "ada", "leaseMs": 300_000}).json()
        assert there.post("/locks/shared", json={"skip": True}).json()["holder"] == "ada"
        renewed = there.post("/locks/shared/renew", json={"ticket": lock["ticket"]})
        assert (renewed.status_code, renewed.json()["fence"]) == (200, lock["fence"])
        for client in (here, there):
            assert [held["name"] for held in client.get("/locks").json()["locks"]] == ["shared"]
        with other.client() as waiter:
            waiting = callers.submit(waiter.post, "/locks/shared", json={"waitMs": 60_000, "leaseMs": 300_000})
            until(lambda: [each["waiters"] for each in here.get("/locks").json()["locks"]] == [1])
            assert there.delete("/locks/shared", params={"ticket": lock["ticket"]}).status_code == 204
            second = waiting.result(LIMIT_S).json()
        assert second["fence"] > lock["fence"]
        assert here.delete("/locks/shared", params={"force": "true"}).status_code == 204
        third = here.post("/locks/shared", json={}).json()
        assert third["fence"] > second["fence"]
        lost = there.post("/locks/shared/renew", json={"ticket": second["ticket"]})
        assert code_of(lost) == (409, "lock_lost")
        there.delete("/locks/shared", params={"ticket": third["ticket"]})


def test_a_stream_of_one_node_has_the_events_of_another_and_goes_on_there(pair: Cluster) -> None:
    one, other = pair.nodes
    with one.client() as here, other.client() as there:
        ids, names = [], []
        for client, teller, name in ((here, there, "first"), (there, here, "second")):
            headers = {"Last-Event-ID": ids[-1]} if ids else {}
            with client.stream("GET", "/events", params={"types": "lock.acquired"}, headers=headers) as stream:
                lines = stream.iter_lines()
                ids.append(next(line[4:] for line in lines if line.startswith("id: ")))
                teller.post(f"/locks/{name}", json={})
                for line in lines:
                    if line.startswith("id: "):
                        ids.append(line[4:])
                    if line.startswith("data: "):
                        names.append(json.loads(line[6:])["name"])
                        break
        assert names == ["first", "second"]
        assert all(id.count(",") == 1 for id in ids)


# --- Sockets ----------------------------------------------------------------------------------------------------


async def test_playwright_drives_it_through_the_address_that_the_other_node_gives(
    session: dict[str, Any], other: ClusterNode, there: httpx.Client, effects: EffectsSite
) -> None:
    address = there.get(f"/sessions/{session['sessionId']}").json()["cdpUrl"]
    assert address.startswith(other.url)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(address)
        page = browser.contexts[0].pages[0]
        await page.goto(effects.url("/field"))
        await page.fill("#field", "typed")
        await browser.close()
    assert value_of(there, tab_of(session), "field.value") == "typed"


async def test_one_page_is_driven_through_the_other_node(session: dict[str, Any], other: ClusterNode) -> None:
    url = f"{other.url.replace('http', 'ws')}/devtools/page/{tab_of(session)}"
    async with wire_client(url, other.admin_token, headers={"X-Agent-Id": "ada"}) as client:
        assert await client.value("6 * 7", "") == 42


def test_chromes_pages_list_and_open_what_is_on_the_other_node(session: dict[str, Any], there: httpx.Client) -> None:
    query = {"agent": "ada", "session": session["sessionId"]}
    assert "Chrome/" in there.get("/json/version", params=query).json()["Browser"]
    opened = there.put("/json/new", params=query).json()["id"]
    listed = {page["id"] for page in there.get("/json/list", params=query).json()}
    assert listed == {tab_of(session), opened}
    assert there.get(f"/json/close/{opened}", params=query).is_success


async def test_a_login_of_one_node_watches_and_drives_a_tab_through_the_other(
    host: ClusterNode, other: ClusterNode, there: httpx.Client, effects: EffectsSite
) -> None:
    with host.client() as client:
        tab = tab_of(open_session(client, agentId="ada", url=effects.url("/field"), keepAlive=True))
    with httpx.Client(base_url=host.url, timeout=60) as person:
        login = person.post("/login", json={"token": host.token_of("ada")}).raise_for_status().json()
        cookie = "; ".join(f"{name}={value}" for name, value in person.cookies.items())
    headers = {"Cookie": cookie, "Origin": other.url}
    async with watching(other.url, tab, headers=headers, csrf=login["csrf"]) as viewer:
        await viewer.picture()
        await viewer.take()
        await viewer.press("Tab", "Tab")
        await viewer.press("x", "KeyX")
        await viewer.say("give")
        await viewer.state(lambda state: state["tab"]["state"] == "ready")
    assert value_of(there, tab, "field.value") == "x"


# --- Who asks ---------------------------------------------------------------------------------------------------


def test_a_token_of_one_node_is_good_at_the_other_and_for_its_agent_only(
    session: dict[str, Any], host: ClusterNode, other: ClusterNode
) -> None:
    with other.client(host.token_of("ada")) as ada, other.client(host.token_of("bob")) as bob:
        assert value_of(ada, tab_of(session), "1") == 1
        assert code_of(act(bob, tab_of(session), "evaluate", expression="1")) == (404, "tab_not_found")


def test_a_requests_ids_are_the_same_on_both_nodes(session: dict[str, Any], there: httpx.Client) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"X-Request-Id": "mine-42", "traceparent": trace}
    answer = there.get(f"/tabs/{tab_of(session)}", headers=headers)
    assert answer.headers["X-Request-Id"] == "mine-42"
    assert answer.headers["traceparent"].split("-")[1] == trace.split("-")[1]


# --- Hops -------------------------------------------------------------------------------------------------------

# A name under which no node is known: only who comes from another node may use it.
ELSEWHERE = "elsewhere.example"


@pytest.fixture
def hop_key(pair: Cluster) -> bytes:
    return bytes.fromhex(pair.value("SELECT value FROM secrets WHERE id = 'nodes'"))


def hop_to(pair: Cluster, node: ClusterNode, sender: ClusterNode, age_ms: int = 0) -> Hop:
    return Hop(
        from_node=sender.id,
        from_epoch=pair.epoch_of(sender),
        to_node=node.id,
        at_ms=pair.value(f"SELECT {NOW_MS}") - age_ms,
        client=("127.0.0.1", 1),
        boot_id="",
    )


def asked(node: ClusterNode, path: str, hop: bytes) -> httpx.Response:
    """As nobody could but a node: under a foreign name."""
    with node.client() as client:
        return client.get(path, headers={"Host": ELSEWHERE, "X-Tabherd-Hop": hop.decode()})


def test_only_a_hop_that_a_node_has_signed_for_this_request_now_and_here_is_believed(
    pair: Cluster, session: dict[str, Any], host: ClusterNode, other: ClusterNode, hop_key: bytes
) -> None:
    path = f"/sessions/{session['sessionId']}"
    good, back = hop_to(pair, host, other), hop_to(pair, other, host)
    signed = sign(hop_key, good, "GET", path.encode())
    assert asked(host, path, signed).status_code == 200
    # What was passed on goes no further.
    turned_back = asked(other, path, sign(hop_key, back, "GET", path.encode()))
    assert (turned_back.status_code, turned_back.headers["X-Tabherd-Misdirected"]) == (421, "1")
    false = {
        "forged": sign(bytes(32), good, "GET", path.encode()),
        "expired": sign(hop_key, hop_to(pair, host, other, 2 * SKEW_MAX_MS), "GET", path.encode()),
        "for another request": sign(hop_key, good, "GET", b"/sessions"),
        "for another node": sign(hop_key, back, "GET", path.encode()),
        "no hop at all": b"AAAA",
    }
    assert {what: code_of(asked(host, path, hop)) for what, hop in false.items()} == dict.fromkeys(
        false, (403, "forbidden")
    )
    # It is no credential, and whoever shows one of their own is passed on like everybody else.
    with httpx.Client(base_url=host.url, timeout=60) as stranger:
        refused = stranger.get(path, headers={"X-Tabherd-Hop": signed.decode()})
        assert code_of(refused) == (401, "unauthenticated")
    with other.client() as client:
        assert client.get(path, headers={"X-Tabherd-Hop": "AAAA"}).json()["node"] == host.id


# --- Lives ------------------------------------------------------------------------------------------------------


def test_a_copy_of_a_living_node_is_refused_with_what_to_do(pair: Cluster, tmp_path: Path) -> None:
    original = pair.nodes[0]
    epoch = pair.epoch_of(original)
    copy = tmp_path / "copy"
    # What says who a node is; its browsers' profiles are not needed for that.
    copy.mkdir(mode=0o700)
    for name in ("node.json", "admin.token"):
        shutil.copy2(original.state / name, copy / name)
    refused = call(copy, "up", env=original.env)
    assert refused.returncode == 1
    assert f"Another server at {original.url} is node {original.id} already" in refused.stderr
    assert "Give each server a state directory of its own (TABHERD_STATE); never copy one." in refused.stderr
    assert pair.epoch_of(original) == epoch


def test_a_node_that_leaves_in_order_hands_its_sessions_on_at_once_and_comes_back_as_a_new_life(
    pair: Cluster, effects: EffectsSite
) -> None:
    stayed, leaving = pair.nodes
    with leaving.client() as client:
        session = open_session(client, agentId="ada", url=effects.url("/field"), keepAlive=True)
        assert session["node"] == leaving.id
        value_of(client, tab_of(session), "document.cookie = 'who=ada; max-age=999'")
    leaving.stop()
    until(lambda: pair.is_active_on(session, stayed))
    with stayed.client() as client:
        found = value_of(client, tab_of(session), "[document.cookie, location.pathname]")
        assert found == ["who=ada", "/field"]
        assert client.get(f"/sessions/{session['sessionId']}").json()["fence"] == session["fence"]
    until(lambda: leaving.id not in pair.states_at(stayed))
    pair.until_counted()
    leaving.start()
    pair.until_whole()
    assert pair.epoch_of(leaving) > pair.epoch_of(stayed)
    with leaving.client() as client:
        again = open_session(client, agentId="new")
        assert (again["node"], value_of(client, tab_of(again), "1")) == (leaving.id, 1)


# --- Balancers --------------------------------------------------------------------------------------------------


@pytest.fixture(params=["haproxy", pytest.param("nginx", marks=pytest.mark.release)])
def door(request: pytest.FixtureRequest, pair: Cluster, tmp_path: Path) -> Iterator[str]:
    """The address of a load balancer that sends every request to the next node."""
    with balanced(request.param, [int(node.url.rpartition(":")[2]) for node in pair.nodes], tmp_path) as url:
        yield url


def test_behind_a_balancer_that_takes_turns_thirty_mixed_steps_of_sdk_playwright_and_events_succeed(
    door: str, pair: Cluster, effects: EffectsSite
) -> None:
    done: list[str] = []

    def step(name: str, was_good: Any) -> None:
        assert was_good, name
        done.append(name)

    token = pair.nodes[1].admin_token
    with httpx.Client(base_url=door, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        views = [next(view for view in client.get("/nodes").json()["nodes"] if view["isSelf"]) for _ in range(4)]
    assert {view["nodeId"] for view in views} == {node.id for node in pair.nodes}
    with Tabherd(door, token, agent="ada") as herd, Tabherd(door, token, agent="ada") as listening:
        heard: list[str] = []
        with herd.session(url=effects.url("/field")) as session:
            listener = threading.Thread(target=listen, args=(listening, heard, session.id), daemon=True)
            listener.start()
            # It hears what happens from when it is heard, which nobody else can tell.
            until(lambda: heard or herd.session().open().close())
            tab = session.tab
            for turn in range(6):
                step(f"evaluate {turn}", tab.evaluate(f"{turn} + 1") == turn + 1)
            tab.fill("#field", "hello")
            step("fill", tab.evaluate("field.value") == "hello")
            step("text", tab.text("#spin") == "Spin")
            step("snapshot", "Spin" in str(tab.snapshot()))
            step("screenshot", tab.screenshot())
            step("steps", tab.run([{"kind": "evaluate", "expression": "1"}, {"kind": "evaluate", "expression": "2"}]))
            step("view", tab.view().tab_id == tab.id)
            step("heartbeat", session.heartbeat().fence == session.fence)
            second = session.new_tab(effects.url("/leaving"))
            step("new tab", second.evaluate("location.pathname") == "/leaving")
            step("tabs", len(session.tabs) == 2)
            second.close()
            with tab.lock():
                step("locked", tab.evaluate("1") == 1)
            session.upload(b"x" * 100_000, "up.bin")
            step("upload", [file.name for file in session.files()] == ["up.bin"])
            step("download", session.download("up.bin") == b"x" * 100_000)
            session.set_storage_state(session.storage_state())
            step("state", True)
            for turn in range(3):
                task = herd.submit(action="evaluate", params={"expression": f"{turn} * 2"}, tab=tab.id)
                step(f"task {turn}", task.result(timeout=60) == turn * 2)
            step("task of the pool", herd.submit(action="evaluate", params={"expression": "7"}).result(timeout=60) == 7)
            with herd.lock("account:x", timeout=30):
                step("lock", [lock.name for lock in herd.locks()] == ["account:x"])
            step("playwright", driven(session.cdp_url, effects) == "typed")
            step("view", tab.view().tab_id == tab.id)
            step("sessions", session.id in {view.session_id for view in herd.sessions()})
            step("stats", herd.stats().sessions >= 1)
            step("nodes", len(herd.nodes()) == 2)
            tab.goto(effects.url("/last"))
            step("goto", tab.evaluate("location.pathname") == "/last")
        listener.join(60)
        step("events", session.id in heard)
    assert len(done) >= 30


def listen(herd: Tabherd, heard: list[str], last: str) -> None:
    """Note the sessions that end, until that one does."""
    with closing(herd.events(types="session.closed")) as events:
        for event in events:
            heard.append(event.data["sessionId"])
            if heard[-1] == last:
                return


def driven(cdp_url: str, effects: EffectsSite) -> str:
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(cdp_url)
        page = browser.contexts[0].pages[0]
        page.goto(effects.url("/field"))
        page.fill("#field", "typed")
        value = page.input_value("#field")
        browser.close()
        return value
