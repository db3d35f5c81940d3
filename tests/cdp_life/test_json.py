"""Chrome's discovery pages: what they say, to whom, and under which address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
from tests.server.conftest import Server, open_session, release, value_of

from .conftest import host_of
from .wire_client import wire_client

pytestmark = [pytest.mark.server, pytest.mark.browser]


@pytest.fixture
def session(ada: httpx.Client) -> Iterator[dict[str, Any]]:
    session = open_session(ada, keepAlive=True, url="data:text/html,<title>Listed</title>")
    yield session
    release(ada, session)


@pytest.fixture
def tab_id(session: dict[str, Any]) -> str:
    first: str = session["tabs"][0]["tabId"]
    return first


def listed(client: httpx.Client, path: str = "/json/list", **query: str) -> dict[str, dict[str, Any]]:
    """The pages by id."""
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return {page["id"]: page for page in answer.json()}


# --- Version and protocol ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/json/version", "/json/version/"])
def test_the_version_is_that_of_the_browser_here(path: str, ada: httpx.Client) -> None:
    about = ada.get(path).json()
    assert "Chrome/" in about["Browser"]
    assert about["Protocol-Version"] == "1.3"
    assert about["V8-Version"]


def test_the_protocol_is_that_of_the_browser_here(ada: httpx.Client) -> None:
    domains = {domain["domain"] for domain in ada.get("/json/protocol").json()["domains"]}
    assert {"Page", "Runtime", "Target"} <= domains


@pytest.mark.parametrize("path", ["/json", "/json/list", "/json/protocol", "/json/new", "/json/activate/x"])
def test_what_is_anybodys_needs_a_credential(path: str, server: Server) -> None:
    with httpx.Client(base_url=server.record["url"]) as stranger:
        method = "PUT" if path == "/json/new" else "GET"
        assert stranger.request(method, path).status_code == 401


# --- The list ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/json", "/json/list"])
async def test_own_tabs_are_listed_with_an_address_that_opens_them(
    path: str, ada: httpx.Client, tab_id: str, session: dict[str, Any]
) -> None:
    page = listed(ada, path)[tab_id]
    assert (page["type"], page["title"], page["url"]) == ("page", "Listed", "data:text/html,<title>Listed</title>")
    async with wire_client(page["webSocketDebuggerUrl"]) as client:
        assert (await client.call("Runtime.evaluate", {"expression": "document.title"}))["result"]["value"] == "Listed"


def test_tabs_of_others_are_not_listed(bob: httpx.Client, admin: httpx.Client, tab_id: str) -> None:
    assert tab_id not in listed(bob)
    assert tab_id not in listed(admin)
    assert tab_id in listed(admin, agent="ada")


def test_an_agent_lists_for_nobody_else(bob: httpx.Client) -> None:
    assert bob.get("/json/list", params={"agent": "ada"}).status_code == 403


def test_the_list_can_be_of_one_session(ada: httpx.Client, session: dict[str, Any], tab_id: str) -> None:
    other = open_session(ada)
    assert list(listed(ada, session=session["sessionId"])) == [tab_id]
    release(ada, other)


# --- Opening, activating, closing -------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["url={}", "{}"])
def test_a_tab_is_opened_at_an_address_in_either_form(
    form: str, ada: httpx.Client, session: dict[str, Any], site: str
) -> None:
    address = f"{site}?a=1&b=2"
    query = form.format(quote(address, safe="" if "=" in form else ":/?&="))
    made = ada.put(f"/json/new?{query}")
    assert made.status_code == 200, made.text
    assert value_of(ada, made.json()["id"], "location.href") == address
    assert made.json()["id"] in listed(ada)


def test_a_blank_tab_is_opened_without_an_address(ada: httpx.Client, session: dict[str, Any]) -> None:
    assert ada.put("/json/new").json()["url"] == "about:blank"


def test_a_tab_is_not_opened_by_looking(ada: httpx.Client, session: dict[str, Any]) -> None:
    answer = ada.get("/json/new")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")


def test_a_tab_does_not_open_the_hosts_files(ada: httpx.Client, session: dict[str, Any]) -> None:
    before = listed(ada)
    answer = ada.put("/json/new?url=file:///etc/passwd")
    assert (answer.status_code, answer.json()["code"]) == (403, "policy_denied")
    assert listed(ada).keys() == before.keys()


def test_without_a_session_there_is_nowhere_to_open_a_tab(server: Server) -> None:
    with server.agent("newcomer") as newcomer:
        answer = newcomer.put("/json/new")
        assert (answer.status_code, answer.json()["code"]) == (404, "session_not_found")


def test_with_several_sessions_one_must_be_named(ada: httpx.Client, session: dict[str, Any]) -> None:
    other = open_session(ada)
    answer = ada.put("/json/new")
    assert (answer.status_code, answer.json()["code"]) == (409, "ambiguous_target")
    made = ada.put("/json/new", params={"session": other["sessionId"]}).json()["id"]
    assert ada.get(f"/tabs/{made}").json()["sessionId"] == other["sessionId"]
    release(ada, other)


def test_a_tab_is_activated_and_closed(ada: httpx.Client, session: dict[str, Any]) -> None:
    made = ada.put("/json/new").json()["id"]
    assert ada.get(f"/json/activate/{made}").text == "Target activated"
    assert ada.get(f"/json/close/{made}").text == "Target is closing"
    assert made not in listed(ada)


@pytest.mark.parametrize("verb", ["activate", "close"])
def test_tabs_of_others_are_neither_activated_nor_closed(
    verb: str, ada: httpx.Client, bob: httpx.Client, tab_id: str
) -> None:
    answer = bob.get(f"/json/{verb}/{tab_id}")
    assert (answer.status_code, answer.json()["code"]) == (404, "tab_not_found")
    assert tab_id in listed(ada)


def test_a_locked_tab_is_not_closed(ada: httpx.Client, tab_id: str) -> None:
    taken = ada.post(f"/tabs/{tab_id}/lock", json={"controllerId": "me"}).json()
    answer = ada.get(f"/json/close/{tab_id}")
    assert (answer.status_code, answer.json()["code"]) == (423, "tab_locked")
    ada.delete(f"/tabs/{tab_id}/lock", params={"ticket": taken["ticket"]})


# --- One page ---------------------------------------------------------------------------------------------------


async def test_the_socket_of_a_page_is_that_page_and_nothing_else(
    server: Server, ada: httpx.Client, token: str, session: dict[str, Any], tab_id: str
) -> None:
    other = ada.put("/json/new").json()["id"]
    async with wire_client(f"ws://{host_of(server)}/devtools/page/{tab_id}", token) as client:
        await client.call("Page.enable")
        evaluated = await client.call("Runtime.evaluate", {"expression": "document.title", "returnByValue": True})
        assert evaluated["result"]["value"] == "Listed"
    assert other in listed(ada)


async def test_the_socket_of_a_page_outlives_neither_the_page_nor_hides_why(
    server: Server, ada: httpx.Client, token: str, session: dict[str, Any]
) -> None:
    made = ada.put("/json/new").json()["id"]
    async with wire_client(f"ws://{host_of(server)}/devtools/page/{made}", token) as client:
        await client.call("Runtime.evaluate", {"expression": "1"})
        assert ada.get(f"/json/close/{made}").status_code == 200
        code, reason = await client.closed()
        assert code == 4404
        assert reason


# --- Addresses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "base"),
    [
        ({"Host": "localhost:{port}"}, "ws://localhost:{port}"),
        ({"X-Forwarded-Host": "herd.example.test"}, "ws://herd.example.test"),
        ({"X-Forwarded-Host": "herd.example.test", "X-Forwarded-Proto": "https"}, "wss://herd.example.test"),
        ({"X-Forwarded-Host": "a.test, b.test", "X-Forwarded-Proto": "https, http"}, "wss://a.test"),
    ],
)
def test_addresses_are_those_under_which_the_caller_reached_us(
    headers: dict[str, str], base: str, server: Server, ada: httpx.Client, tab_id: str, session: dict[str, Any]
) -> None:
    port = host_of(server).rpartition(":")[2]
    sent = {name: value.format(port=port) for name, value in headers.items()}
    wanted = base.format(port=port)
    for url in (
        ada.get("/json/version", headers=sent).json()["webSocketDebuggerUrl"],
        {page["id"]: page for page in ada.get("/json/list", headers=sent).json()}[tab_id]["webSocketDebuggerUrl"],
        ada.get(f"/sessions/{session['sessionId']}", headers=sent).json()["webSocketDebuggerUrl"],
    ):
        address = urlsplit(url)
        assert f"{address.scheme}://{address.netloc}" == wanted
