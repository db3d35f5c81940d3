"""Chrome's discovery pages: what they say, to whom, and under which address."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
from tests.server.conftest import Server, open_session, value_of

from .conftest import host_of
from .wire_client import wire_client

pytestmark = [pytest.mark.server, pytest.mark.browser]


@pytest.fixture
def session(ada: httpx.Client) -> dict[str, Any]:
    return open_session(ada, keepAlive=True, url="data:text/html,<title>Listed</title>")


@pytest.fixture
def tab_id(session: dict[str, Any]) -> str:
    first: str = session["tabs"][0]["tabId"]
    return first


def listed(client: httpx.Client, path: str = "/json/list", **query: str) -> dict[str, dict[str, Any]]:
    """The pages by id."""
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return {page["id"]: page for page in answer.json()}


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_version_and_protocol_are_those_of_the_browser_here(ada: httpx.Client) -> None:
    for path in ("/json/version", "/json/version/"):
        about = ada.get(path).json()
        assert "Chrome/" in about["Browser"]
        assert about["Protocol-Version"] == "1.3"
        assert about["V8-Version"]
    domains = {domain["domain"] for domain in ada.get("/json/protocol").json()["domains"]}
    assert {"Page", "Runtime", "Target"} <= domains


def test_what_is_somebodys_needs_a_credential(server: Server) -> None:
    with httpx.Client(base_url=server.record["url"]) as stranger:
        for path in ("/json", "/json/list", "/json/protocol", "/json/new", "/json/activate/x"):
            method = "PUT" if path == "/json/new" else "GET"
            assert stranger.request(method, path).status_code == 401, path


async def test_own_tabs_are_listed_with_an_address_that_opens_that_page_until_it_is_closed(
    server: Server, ada: httpx.Client, token: str, tab_id: str
) -> None:
    for path in ("/json", "/json/list"):
        page = listed(ada, path)[tab_id]
        assert (page["type"], page["title"], page["url"]) == ("page", "Listed", "data:text/html,<title>Listed</title>")
    for url in (page["webSocketDebuggerUrl"], f"ws://{host_of(server)}/devtools/page/{tab_id}?token={token}"):
        async with wire_client(url) as client:
            await client.call("Page.enable")
            evaluated = await client.call("Runtime.evaluate", {"expression": "document.title"})
            assert evaluated["result"]["value"] == "Listed"
    async with wire_client(page["webSocketDebuggerUrl"]) as client:
        await client.call("Runtime.evaluate", {"expression": "1"})
        assert ada.get(f"/json/close/{tab_id}").text == "Target is closing"
        code, reason = await client.closed()
        assert code == 4404
        assert reason
    assert tab_id not in listed(ada)


def test_tabs_of_others_are_neither_listed_nor_activated_nor_closed(
    ada: httpx.Client, bob: httpx.Client, admin: httpx.Client, tab_id: str
) -> None:
    assert tab_id not in listed(bob)
    assert tab_id not in listed(admin)
    assert tab_id in listed(admin, agent="ada")
    assert bob.get("/json/list", params={"agent": "ada"}).status_code == 403
    for verb in ("activate", "close"):
        assert refusal(bob.get(f"/json/{verb}/{tab_id}")) == (404, "tab_not_found")
    assert tab_id in listed(ada)


def test_a_tab_is_opened_at_an_address_in_either_form_and_activated(
    ada: httpx.Client, session: dict[str, Any], site: str
) -> None:
    address = f"{site}?a=1&b=2"
    for query in (f"url={quote(address, safe='')}", quote(address, safe=":/?&=")):
        made = ada.put(f"/json/new?{query}")
        assert made.status_code == 200, made.text
        assert value_of(ada, made.json()["id"], "location.href") == address
        assert made.json()["id"] in listed(ada)
    blank = ada.put("/json/new").json()
    assert blank["url"] == "about:blank"
    assert ada.get(f"/json/activate/{blank['id']}").text == "Target activated"


def test_a_tab_is_not_opened_by_looking_nor_at_a_file_nor_without_a_session(
    server: Server, ada: httpx.Client, session: dict[str, Any]
) -> None:
    before = listed(ada)
    assert refusal(ada.get("/json/new")) == (405, "method_not_allowed")
    assert refusal(ada.put("/json/new?url=file:///etc/passwd")) == (403, "policy_denied")
    assert listed(ada).keys() == before.keys()
    with server.agent("newcomer") as newcomer:
        assert refusal(newcomer.put("/json/new")) == (404, "session_not_found")


def test_of_several_sessions_one_must_be_named(ada: httpx.Client, session: dict[str, Any], tab_id: str) -> None:
    other = open_session(ada)
    assert list(listed(ada, session=session["sessionId"])) == [tab_id]
    assert refusal(ada.put("/json/new")) == (409, "ambiguous_target")
    made = ada.put("/json/new", params={"session": other["sessionId"]}).json()["id"]
    assert ada.get(f"/tabs/{made}").json()["sessionId"] == other["sessionId"]


def test_a_locked_tab_is_not_closed(ada: httpx.Client, tab_id: str) -> None:
    ada.post(f"/tabs/{tab_id}/lock", json={"controllerId": "me"}).raise_for_status()
    assert refusal(ada.get(f"/json/close/{tab_id}")) == (423, "tab_locked")


def test_addresses_are_those_under_which_the_caller_reached_us(
    server: Server, ada: httpx.Client, tab_id: str, session: dict[str, Any]
) -> None:
    here = f"localhost:{host_of(server).rpartition(':')[2]}"
    proxy = {"X-Forwarded-Host": "herd.example.test"}
    for headers, wanted in (
        ({"Host": here}, f"ws://{here}"),
        (proxy, "ws://herd.example.test"),
        (proxy | {"X-Forwarded-Proto": "https"}, "wss://herd.example.test"),
        ({"X-Forwarded-Host": "a.test, b.test", "X-Forwarded-Proto": "https, http"}, "wss://a.test"),
    ):
        for url in (
            ada.get("/json/version", headers=headers).json()["webSocketDebuggerUrl"],
            {one["id"]: one for one in ada.get("/json/list", headers=headers).json()}[tab_id]["webSocketDebuggerUrl"],
            ada.get(f"/sessions/{session['sessionId']}", headers=headers).json()["webSocketDebuggerUrl"],
        ):
            address = urlsplit(url)
            assert f"{address.scheme}://{address.netloc}" == wanted
