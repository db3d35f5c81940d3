"""Any node takes any request: everything that a session of one node can do is done through the other one.

`there` speaks with the node that does not have the session.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from playwright.async_api import async_playwright
from tests.cdp_life.wire_client import wire_client
from tests.live.viewer import watching
from tests.server.conftest import act, open_session, value_of
from tests.server.effects_site import EffectsSite

from tabherd.cluster.hop import SKEW_MAX_MS, Hop, sign

from .rig import CALM, NOW_MS, Cluster, ClusterNode, code_of, tab_of, until

pytestmark = [pytest.mark.server, pytest.mark.browser]

FILE_BYTES = 5 << 20
TIMES = CALM


@pytest.fixture
def host(pair: Cluster) -> ClusterNode:
    """The node that has the session."""
    pair.until_whole()
    return pair.nodes[0]


@pytest.fixture
def other(pair: Cluster) -> ClusterNode:
    return pair.nodes[1]


@pytest.fixture
def there(other: ClusterNode) -> Iterator[httpx.Client]:
    with other.client() as client:
        yield client


@pytest.fixture
def session(host: ClusterNode, effects: EffectsSite) -> Iterator[dict[str, Any]]:
    """On its node, opened there."""
    with host.client() as client:
        opened = open_session(client, agentId="ada", url=effects.url(), keepAlive=True)
        assert opened["node"] == host.id
        yield opened
        client.delete(f"/sessions/{opened['sessionId']}")


# --- Sessions, tabs, commands -----------------------------------------------------------------------------------


def test_a_session_is_read_beaten_and_released(session: dict[str, Any], host: ClusterNode, there: httpx.Client) -> None:
    path, fence = f"/sessions/{session['sessionId']}", session["fence"]
    assert there.get(path).json()["node"] == host.id
    assert there.post(f"{path}/heartbeat", json={"fence": fence}).json()["fence"] == fence
    assert code_of(there.delete(path, params={"fence": fence + 1})) == (409, "lease_lost")
    assert there.delete(path, params={"fence": fence}).status_code == 204
    assert there.get(path).json()["state"] == "closed"


def test_its_storage_is_read_and_written(session: dict[str, Any], there: httpx.Client, effects: EffectsSite) -> None:
    path = f"/sessions/{session['sessionId']}/state"
    value_of(there, tab_of(session), "document.cookie = 'who=ada; max-age=99'")
    state = there.get(path).json()
    assert [cookie["value"] for cookie in state["cookies"]] == ["ada"]
    state["cookies"][0]["value"] = "bob"
    assert there.put(path, json=state).is_success
    assert value_of(there, tab_of(session), "document.cookie") == "who=bob"


def test_tabs_are_opened_listed_read_and_closed(
    session: dict[str, Any], there: httpx.Client, effects: EffectsSite
) -> None:
    path = f"/sessions/{session['sessionId']}/tabs"
    opened = there.post(path, json={"url": effects.url("/field")}).json()["tabId"]
    assert {tab["tabId"] for tab in there.get(path).json()["tabs"]} == {tab_of(session), opened}
    assert there.get(f"/tabs/{opened}").json()["state"] == "ready"
    steps = [{"kind": "fill", "selector": "#field", "value": "x"}, {"kind": "evaluate", "expression": "field.value"}]
    answer = there.post(f"/tabs/{opened}/actions", json={"steps": steps}).json()
    assert answer["result"][-1]["result"] == "x"
    assert there.delete(f"/tabs/{opened}").status_code == 204


def test_a_tab_is_locked_renewed_and_unlocked(session: dict[str, Any], host: ClusterNode, there: httpx.Client) -> None:
    path = f"/tabs/{tab_of(session)}/lock"
    lock = there.post(path, json={"controllerId": "me", "lockLeaseMs": 30_000}).json()
    with host.client() as here:
        assert code_of(act(here, tab_of(session), "evaluate", expression="1")) == (423, "tab_locked")
    renewed = there.post(path, json={"controllerId": "me", "ticket": lock["ticket"]}).json()
    assert renewed["lockExpiresAt"] >= lock["lockExpiresAt"]
    assert there.delete(path, params={"ticket": lock["ticket"]}).status_code == 204


def test_a_tab_is_handed_to_a_person_and_back(session: dict[str, Any], there: httpx.Client) -> None:
    assert there.post(f"/tabs/{tab_of(session)}/handoff", json={}).is_success
    refused = act(there, tab_of(session), "evaluate", expression="1")
    assert code_of(refused) == (409, "tab_paused_handoff")
    assert there.post(f"/tabs/{tab_of(session)}/resume").is_success
    assert value_of(there, tab_of(session), "1") == 1


def test_a_session_is_given_to_somebody_else(session: dict[str, Any], there: httpx.Client) -> None:
    taken = there.post(f"/sessions/{session['sessionId']}/takeover", json={"agentId": "bob"}).json()
    assert (taken["agentId"], taken["fence"] > session["fence"]) == ("bob", True)


def test_a_command_is_found_by_its_id_and_cancelled(
    session: dict[str, Any], there: httpx.Client, effects: EffectsSite
) -> None:
    effects.is_held.clear()
    with ThreadPoolExecutor(1) as callers:
        running = callers.submit(act, there, tab_of(session), "evaluate", expression="fetch('/hold')")
        assert effects.is_held.wait(60)
        command_id = there.get(f"/tabs/{tab_of(session)}").json()["holder"]["commandId"]
        assert there.post(f"/commands/{command_id}/cancel").json()["outcome"] == "cancelled"
        assert running.result(60).json()["outcome"] == "cancelled"
    effects.is_open.set()
    assert there.get(f"/commands/{command_id}").json()["outcome"] == "cancelled"


def test_files_go_through_whole(session: dict[str, Any], there: httpx.Client) -> None:
    path, data = f"/sessions/{session['sessionId']}/files", bytes(range(256)) * (FILE_BYTES // 256)
    sent = there.post(path, params={"name": "large.bin"}, content=data)
    assert sent.status_code == 201, sent.text
    assert [file["sizeBytes"] for file in there.get(path).json()["files"]] == [FILE_BYTES]
    assert there.get(f"{path}/large.bin").content == data


def test_a_task_on_its_tab_runs_there_and_is_read_anywhere(
    session: dict[str, Any], host: ClusterNode, there: httpx.Client
) -> None:
    body = {"agentId": "ada", "action": "evaluate", "params": {"expression": "6 * 7"}, "tabId": tab_of(session)}
    task_id = there.post("/tasks", json=body).json()["taskId"]
    with host.client() as here:
        for client in (here, there):
            assert client.get(f"/tasks/{task_id}", params={"waitMs": 30_000}).json()["result"] == 42


# --- What all nodes have together -------------------------------------------------------------------------------


def of_all(client: httpx.Client, path: str) -> dict[str, Any]:
    """What is answered there with all nodes in it: one that answers late is left out for once, and named."""

    def look() -> dict[str, Any] | None:
        answer = dict(client.get(path).json())
        return None if "unreachable" in answer else answer

    return until(look) or {}


@pytest.mark.parametrize("number", [0, 1])
def test_lists_and_sums_are_of_all_nodes_whoever_is_asked(
    pair: Cluster, session: dict[str, Any], other: ClusterNode, there: httpx.Client, number: int
) -> None:
    also = open_session(there, agentId="bob", keepAlive=True)
    assert also["node"] == other.id
    nodes = {node.id for node in pair.nodes}
    with pair.nodes[number].client() as client:
        assert {tab_of(session), tab_of(also)} <= {tab["tabId"] for tab in of_all(client, "/tabs")["tabs"]}
        assert {view["node"] for view in of_all(client, "/browsers")["browsers"]} == nodes
        assert {view["nodeId"] for view in client.get("/nodes").json()["nodes"]} == nodes
        stats = of_all(client, "/stats")
        assert (stats["sessions"], stats["pools"]["default"]["active"]) == (2, 2)
        ids = {view["sessionId"] for view in client.get("/sessions", params={"state": "active"}).json()["sessions"]}
        assert {session["sessionId"], also["sessionId"]} <= ids
    there.delete(f"/sessions/{also['sessionId']}")


def test_the_history_is_that_of_all_nodes_whoever_is_asked(
    pair: Cluster, session: dict[str, Any], there: httpx.Client
) -> None:
    also = open_session(there, agentId="bob", keepAlive=True)

    def both_tell_of_both() -> bool:
        for node in pair.nodes:
            with node.client() as client:
                if of_all(client, "/history?limit=5")["series"]["sessions"][-1:] != [2]:
                    return False
        return True

    until(both_tell_of_both)
    there.delete(f"/sessions/{also['sessionId']}")


def test_a_node_is_drained_and_opened_again_through_another(host: ClusterNode, there: httpx.Client) -> None:
    with host.client() as here:
        assert there.post("/drain", params={"node": host.id}).is_success
        assert here.get("/ready").status_code == 503
        assert there.get("/ready").status_code == 200
        assert there.delete("/drain", params={"node": host.id}).is_success
        assert here.get("/ready").status_code == 200


def test_a_browser_is_restarted_through_another_node(
    session: dict[str, Any], host: ClusterNode, there: httpx.Client
) -> None:
    browsers = of_all(there, "/browsers")["browsers"]
    (browser,) = [view for view in browsers if view["node"] == host.id]
    assert there.post(f"/browsers/{browser['browserId']}/restart").is_success
    until(lambda: there.get(f"/tabs/{tab_of(session)}").json()["generation"] == 2)
    assert value_of(there, tab_of(session), "1") == 1


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


def test_chromes_own_addresses_show_an_agents_tabs_wherever_they_are(
    session: dict[str, Any], there: httpx.Client
) -> None:
    query = {"agent": "ada"}
    assert tab_of(session) in {page["id"] for page in there.get("/json/list", params=query).json()}
    opened = there.put("/json/new", params=query)
    assert opened.is_success or opened.json()["code"] == "ambiguous_target"


# --- Tasks ------------------------------------------------------------------------------------------------------


def test_a_task_for_a_tab_of_the_other_node_runs_there(session: dict[str, Any], there: httpx.Client) -> None:
    task = {"agentId": "ada", "tabId": tab_of(session), "action": "evaluate", "params": {"expression": "6 * 7"}}
    task_id = there.post("/tasks", json=task).json()["taskId"]
    assert there.get(f"/tasks/{task_id}", params={"waitMs": 30_000}).json()["result"] == 42


def test_a_batch_is_submitted_where_each_of_its_tasks_belongs(session: dict[str, Any], there: httpx.Client) -> None:
    here = open_session(there, agentId="ada", keepAlive=True)
    assert here["node"] != session["node"]
    tabs = [tab_of(session), tab_of(here), None, tab_of(session), "tab_nobody"]
    expressions = [f"{number} + 1" for number in range(len(tabs))]
    tasks = [
        {"action": "evaluate", "params": {"expression": text}, **({} if tab is None else {"tabId": tab})}
        for tab, text in zip(tabs, expressions, strict=True)
    ]
    answer = there.post("/tasks/batch", json={"agentId": "ada", "tasks": tasks}).json()
    assert (answer["submitted"], answer["rejected"]) == (4, 1)
    ids = [item["taskId"] for item in answer["tasks"][:-1]]
    ended = [there.get(f"/tasks/{task_id}", params={"waitMs": 30_000}).json() for task_id in ids]
    assert [task["result"] for task in ended] == [1, 2, 3, 4]
    assert answer["tasks"][-1]["error"]["code"] == "tab_not_found"
    there.delete(f"/sessions/{here['sessionId']}")


def test_tasks_are_passed_on_by_nodes_only(there: httpx.Client) -> None:
    whose = {"agentId": "eve", "scopes": ["admin"], "controllerId": "x", "requestId": "", "traceparent": ""}
    passed = {**whose, "batch": {"tasks": [{"action": "text"}]}}
    answer = there.post("/nodes/tasks", json=passed)
    assert code_of(answer) == (404, "not_found")


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


def test_many_callers_at_once_get_their_own_answers(session: dict[str, Any], other: ClusterNode) -> None:
    start = threading.Barrier(8)

    def ask(number: int) -> list[Any]:
        with other.client() as client:
            start.wait(60)
            return [value_of(client, tab_of(session), f"{number} * {turn}") for turn in range(5)]

    with ThreadPoolExecutor(8) as callers:
        heard = list(callers.map(ask, range(8)))
    assert heard == [[number * turn for turn in range(5)] for number in range(8)]


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


def test_a_hop_that_a_node_has_signed_is_believed_and_the_request_goes_no_further(
    pair: Cluster, session: dict[str, Any], host: ClusterNode, other: ClusterNode, hop_key: bytes
) -> None:
    path = f"/sessions/{session['sessionId']}"
    to_host = sign(hop_key, hop_to(pair, host, other), "GET", path.encode())
    assert asked(host, path, to_host).status_code == 200
    turned_back = asked(other, path, sign(hop_key, hop_to(pair, other, host), "GET", path.encode()))
    assert (turned_back.status_code, turned_back.headers["X-Tabherd-Misdirected"]) == (421, "1")


@pytest.mark.parametrize("what", ["forged", "expired", "for another request", "for another node", "no hop at all"])
def test_a_hop_that_is_not_for_this_request_now_and_here_gives_nothing(
    pair: Cluster, session: dict[str, Any], host: ClusterNode, other: ClusterNode, hop_key: bytes, what: str
) -> None:
    path = f"/sessions/{session['sessionId']}"
    good, old = hop_to(pair, host, other), hop_to(pair, host, other, 2 * SKEW_MAX_MS)
    value = {
        "forged": sign(bytes(32), good, "GET", path.encode()),
        "expired": sign(hop_key, old, "GET", path.encode()),
        "for another request": sign(hop_key, good, "GET", b"/sessions"),
        "for another node": sign(hop_key, hop_to(pair, other, host), "GET", path.encode()),
        "no hop at all": b"AAAA",
    }[what]
    assert code_of(asked(host, path, value)) == (403, "forbidden")


def test_a_client_that_shows_a_hop_of_its_own_is_passed_on_like_everybody_else(
    session: dict[str, Any], host: ClusterNode, there: httpx.Client
) -> None:
    answer = there.get(f"/sessions/{session['sessionId']}", headers={"X-Tabherd-Hop": "AAAA"})
    assert answer.json()["node"] == host.id


def test_a_hop_is_no_credential(
    pair: Cluster, session: dict[str, Any], host: ClusterNode, other: ClusterNode, hop_key: bytes
) -> None:
    path = f"/sessions/{session['sessionId']}"
    value = sign(hop_key, hop_to(pair, host, other), "GET", path.encode()).decode()
    with httpx.Client(base_url=host.url, timeout=60) as stranger:
        assert code_of(stranger.get(path, headers={"X-Tabherd-Hop": value})) == (401, "unauthenticated")


# --- Views and streams ------------------------------------------------------------------------------------------


@pytest.fixture
def field_tab(host: ClusterNode, effects: EffectsSite) -> Iterator[str]:
    """A tab with a field to type into, on the first node."""
    with host.client() as client:
        opened = open_session(client, agentId="ada", url=effects.url("/field"), keepAlive=True)
        assert opened["node"] == host.id
        yield tab_of(opened)
        client.delete(f"/sessions/{opened['sessionId']}")


async def typed(url: str, tab: str, **how: object) -> None:
    """Watch it there, take it over, type into its field, and give it back."""
    async with watching(url, tab, **how) as viewer:  # type: ignore[arg-type]
        await viewer.picture()
        await viewer.take()
        await viewer.press("Tab", "Tab")
        await viewer.press("x", "KeyX")
        await viewer.say("give")
        await viewer.state(lambda state: state["tab"]["state"] == "ready")


def test_a_tab_of_one_node_is_watched_and_driven_through_the_other(
    field_tab: str, host: ClusterNode, other: ClusterNode, there: httpx.Client
) -> None:
    asyncio.run(typed(other.url, field_tab, token=host.token_of("ada")))
    assert value_of(there, field_tab, "field.value") == "x"


def test_a_login_of_one_node_opens_the_view_through_the_other(
    field_tab: str, host: ClusterNode, other: ClusterNode
) -> None:
    with httpx.Client(base_url=host.url, timeout=60) as person:
        login = person.post("/login", json={"token": host.token_of("ada")}).raise_for_status().json()
        cookie = "; ".join(f"{name}={value}" for name, value in person.cookies.items())
    headers = {"Cookie": cookie, "Origin": other.url}
    asyncio.run(typed(other.url, field_tab, headers=headers, csrf=login["csrf"]))
    with host.client() as client:
        assert value_of(client, field_tab, "field.value") == "x"


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
